"""Variational Gaussian process classifiers of others: GPflow's written out, GPJax's and GPyTorch's."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np

from benchmarks.timing import cpu_seconds

NODES, WEIGHTS = np.polynomial.hermite.hermgauss(20)


def vgp(cov, y, step, count):
    """Natural-gradient steps on q(v) = N(m, S), f = L v; the bound before each of them."""
    n, y = len(y), jnp.asarray(y)
    nodes, weights = jnp.asarray(np.sqrt(2) * NODES), jnp.asarray(WEIGHTS / np.sqrt(np.pi))

    def bound(first, second, cov):
        root = jnp.linalg.cholesky(cov + 1e-6 * jnp.eye(n))
        spread = jnp.linalg.cholesky(second - jnp.outer(first, first))
        mean, var = root @ first, jnp.sum((root @ spread) ** 2, axis=1)
        f = mean[:, None] + jnp.sqrt(var)[:, None] * nodes
        fit = jnp.sum((y[:, None] * f - jax.nn.softplus(f)) @ weights)
        volume = 2 * jnp.sum(jnp.log(jnp.diagonal(spread)))
        return fit - (jnp.trace(second) - n - volume) / 2

    def advance(state, _, cov):
        mean, covariance = state
        second = covariance + jnp.outer(mean, mean)
        value, (slope, bend) = jax.value_and_grad(bound, (0, 1))(mean, second, cov)
        inverse = jsl.cho_solve((jnp.linalg.cholesky(covariance), True), jnp.eye(n))
        precision = inverse - step * (bend + bend.T)
        pull = inverse @ mean + step * slope
        root = jnp.linalg.cholesky(precision)
        new = jsl.cho_solve((root, True), jnp.eye(n))
        return (new @ pull, (new + new.T) / 2), value

    @jax.jit
    def climb(cov):
        start = jnp.zeros(n), jnp.eye(n)
        end, values = jax.lax.scan(lambda s, t: advance(s, t, cov), start, None, length=count)
        last = bound(end[0], end[1] + jnp.outer(end[0], end[0]), cov)
        return jnp.append(values, last)

    return lambda: climb(cov)


def gpjax(x, y, variance, length, step, count):
    """GPJax's natural-gradient step of its dual parameters, without the step of hyperparameters."""
    import gpjax as gpx
    from gpjax.natural_gradients import natural_gradient_step, partition_variational

    kernel = gpx.kernels.RBF(lengthscale=length, variance=variance)
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=kernel)
    data = gpx.Dataset(X=jnp.asarray(x), y=jnp.asarray(y)[:, None])
    family = gpx.variational_families.DualVariationalGaussian(
        model=prior * gpx.likelihoods.Bernoulli(), inducing_inputs=jnp.asarray(x)
    )
    variational, hyper = partition_variational(family)

    def negative(q, d):
        return -gpx.objectives.dual_elbo(q, d)

    @jax.jit
    def climb(variational, hyper, data):
        def advance(state, _):
            new, loss = natural_gradient_step(state, hyper, data, negative, jnp.asarray(step))
            return new, -loss

        return jax.lax.scan(advance, variational, None, length=count + 1)[1]

    return lambda: climb(variational, hyper, data)


def gpytorch(x, y, new, iterations: int, rate: float = 0.1):
    """CPU seconds, the bound and the probabilities of new rows: the classifier of GPyTorch's documentation.

    All rows are inducing points, not whitened; Adam learns everything together. In a process of its own.
    """
    import gpytorch as gp
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y, new = (torch.tensor(a, dtype=torch.float32) for a in (x, y, new))

    class Classifier(gp.models.ApproximateGP):
        def __init__(self):
            law = gp.variational.CholeskyVariationalDistribution(len(x))
            super().__init__(
                gp.variational.UnwhitenedVariationalStrategy(
                    self, x, law, learn_inducing_locations=False
                )
            )
            self.mean_module = gp.means.ConstantMean()
            self.covar_module = gp.kernels.ScaleKernel(gp.kernels.RBFKernel())

        def forward(self, rows):
            return gp.distributions.MultivariateNormal(
                self.mean_module(rows), self.covar_module(rows)
            )

    model, likelihood = Classifier(), gp.likelihoods.BernoulliLikelihood()
    bound = gp.mlls.VariationalELBO(likelihood, model, len(y))

    def train():
        model.train(), likelihood.train()
        optimiser = torch.optim.Adam(model.parameters(), lr=rate)
        for _ in range(iterations):
            optimiser.zero_grad()
            loss = -bound(model(x), y)
            loss.backward()
            optimiser.step()
        return -loss.item() * len(y)

    values = []
    seconds = cpu_seconds(lambda: values.append(train()))
    model.eval(), likelihood.eval()
    with torch.no_grad():
        probability = likelihood(model(new)).mean
    return seconds, values[0], np.asarray(probability, float)
