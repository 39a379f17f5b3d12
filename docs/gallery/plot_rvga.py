"""
A posterior, and three Gaussians for it
=======================================

In a logistic regression with classes that hardly overlap, the posterior is skewed and has a long tail. In
two dimensions it can be drawn and compared with three Gaussians: one pass of implicit R-VGA, one pass of
the extended Kalman filter (EKF), and the Laplace approximation, which needs all rows at once.
"""

import jax
import jax.numpy as jnp
import numpy as np

import kalvi
from kalvi import metrics, plots

jax.config.update("jax_enable_x64", True)

# %%
# Sixty rows of two classes, and a wide prior.

rng = np.random.default_rng(3)
y = (np.arange(60) % 2).astype(float)
x = np.outer(2 * y - 1, [1.3, 0.7]) + rng.normal(size=(60, 2)) * [0.95, 0.7]
order = rng.permutation(60)
batch = kalvi.Batch(jnp.asarray(x[order]), jnp.asarray(y[order]), jnp.ones(60))
prior = kalvi.Dense(jnp.zeros(2), 10.0**2 * jnp.eye(2))
likelihood = kalvi.likelihoods.Bernoulli()

# %%
# The two filters see each row once, in the same order; they differ only in their scheme.

found = {
    "implicit": kalvi.fit(
        kalvi.RVGA(likelihood, kalvi.schemes.Implicit()), prior, [batch]
    ).posterior,
    "EKF": kalvi.fit(kalvi.RVGA(likelihood, kalvi.schemes.EKF()), prior, [batch]).posterior,
    "Laplace": jax.jit(kalvi.rules.laplace)(likelihood, prior, batch).posterior,
}

# %%
# The variational bound measures how good a Gaussian is: it is log p(y) minus the divergence from the
# posterior. No Gaussian has a higher bound than the one that ``vga`` finds with many passes.

best = jax.jit(kalvi.rules.vga)(likelihood, prior, batch, found["implicit"])
bound = jax.jit(metrics.elbo)
for name, q in found.items():
    behind = float(best.elbo - bound(q, prior, likelihood, batch))
    print(f"{name:<10}{behind:8.3f} nats behind the best Gaussian")

# %%
# The true log density on a grid, shaded at 50, 80, 95 and 99 % of its mass, and the 95 % ellipses.

found["best Gaussian"] = best.posterior
centre, std = np.asarray(best.posterior.mean), np.sqrt(best.posterior.variance())
a, b = np.linspace(centre - 3.5 * std, centre + 5 * std, 221).T
theta = np.stack(np.meshgrid(a, b), axis=-1)
margins = np.einsum("bak,nk->ban", theta, x) * (2 * y - 1)
log_density = -np.logaddexp(0, -margins).sum(axis=-1) - (theta**2).sum(axis=-1) / (2 * 10.0**2)
ellipses = {name: (np.asarray(q.mean), np.asarray(q.cov)) for name, q in found.items()}

_ = plots.compose(
    [
        [
            lambda axes: plots.scatter(x, y, axes=axes, title="60 rows"),
            lambda axes: plots.ellipses(
                (a, b, log_density), ellipses, axes=axes, title="The posterior of θ"
            ),
        ]
    ],
    size=(10.5, 5.0),
)
