"""
The path of a training loop: SWAG and MultiSWAG
===============================================

SGD at a constant rate visits many networks that fit. A collector gets their parameters now and then and
keeps a Gaussian, in memory linear in the number of parameters; several runs make a mixture. In a gap
between the rows the draws of one run agree too well; those of four runs show the uncertainty.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np

import kalvi

# %%
# Rows with a gap, and the loss of a network; a wide range of inputs lets it bend.

WIDE = 4.0
rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-2, -0.8, 60), rng.uniform(0.8, 2, 60)]).astype(np.float32)
y = (np.sin(3 * x) + 0.1 * rng.normal(size=120)).astype(np.float32)


def loss(network, x, y):
    return jnp.mean((jax.vmap(network)(WIDE * x[:, None]) - y) ** 2)


# %%
# An ordinary training loop. The collector sees its second half.


@eqx.filter_jit
def step(network, x, y):
    gradient = eqx.filter_grad(loss)(network, x, y)
    return eqx.apply_updates(network, jax.tree.map(lambda g: -0.05 * g, gradient))


def train(seed):
    network = eqx.nn.MLP(1, "scalar", 50, 2, activation=jnp.tanh, key=jr.key(seed))
    collector = kalvi.networks.Collector("swag", rank=20)
    for i in range(3000):
        rows = rng.integers(120, size=20)
        network = step(network, x[rows], y[rows])
        if i >= 1500 and i % 10 == 0:
            collector.collect(network)
    return collector


runs = [train(seed) for seed in range(4)]
print(f"{runs[0].n_collected} networks of {runs[0].flat.size} parameters in each run")

# %%
# Draws of one run, and of the mixture of all.

mixture = kalvi.Mixture([run.posterior for run in runs])
unflatten = runs[0].flat.unflatten
draws = {
    "SWAG, one run": runs[0].sample(40, random_state=0),
    "MultiSWAG, four runs": map(unflatten, mixture.sample(jr.key(0), 40)),
}

grid = np.linspace(-3, 3, 200, dtype=np.float32)
predict = eqx.filter_jit(lambda network: jax.vmap(network)(WIDE * grid[:, None]))
_, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True, layout="constrained")
for panel, (name, networks) in zip(axes, draws.items(), strict=True):
    curves = np.stack([predict(network) for network in networks])
    panel.plot(grid, curves.T, color="#0b5fa5", alpha=0.2, lw=1)
    panel.plot(x, y, ".", color="#22262b", ms=4)
    panel.set(title=name, xlabel="x", ylim=(-1.8, 1.8))
    gap, rows = np.abs(grid) < 0.4, np.abs(grid - 1.4) < 0.3
    spread = curves.std(axis=0)
    print(
        f"{name}: deviation {spread[rows].mean():.3f} at rows, {spread[gap].mean():.3f} in the gap"
    )
