"""
What a network knows, and what it does not
==========================================

A posterior over the parameters of a network separates two kinds of uncertainty: that of the noise, which
more rows would not remove, and that of the parameters, which more rows would reduce. The second grows where
there are no rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import kalvi
from kalvi import plots

# %%
# Rows with a gap in the middle. Variational inference sees them many times, L-RVGA once.

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-3, -1, 80), rng.uniform(1, 3, 80)])[:, None]
y = np.sin(2 * x[:, 0]) + 0.15 * rng.normal(size=160)
grid = np.linspace(-4.5, 4.5, 200)[:, None]

learned = kalvi.NeuralRegressor((20,), learning_rate=0.1, random_state=0).fit(x, y)
passed = kalvi.NeuralRegressor((20,), method="lrvga", random_state=0)
for _ in range(8):  # one pass over eight times as many rows
    more = np.where(rng.random(160) < 0.5, rng.uniform(-3, -1, 160), rng.uniform(1, 3, 160))
    passed.partial_fit(more[:, None], np.sin(2 * more) + 0.15 * rng.normal(size=160))

# %%
# Two classes: the probability, and the part of its uncertainty that comes from the parameters.

moons, labels = make_moons(200, noise=0.15, random_state=0)
classes = kalvi.NeuralClassifier((20,), epochs=500, random_state=0).fit(moons, labels)
plane = np.stack(np.meshgrid(np.linspace(-2.5, 3.5, 80), np.linspace(-2, 2.5, 60)), axis=-1)
probability, epistemic, _ = classes.predict_parts(plane.reshape(-1, 2))

# %%
# The pictures.

with plots.style():
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    for ax, model, title in zip(
        axes[0], (learned, passed), ("variational inference", "one pass"), strict=True
    ):
        mean, open_, noise = model.predict_parts(grid)
        for width, shade in ((np.sqrt(open_ + noise), 0.15), (np.sqrt(open_), 0.35)):
            ax.fill_between(
                grid[:, 0], mean - 2 * width, mean + 2 * width, color="#0b5fa5", alpha=shade, lw=0
            )
        ax.plot(grid[:, 0], mean, color="#0b5fa5")
        ax.plot(x[:, 0], y, ".", color=plots.INK, ms=3, alpha=0.6)
        ax.set(title=title, ylim=(-4, 4), xlabel="x")
    axes[0, 0].set_ylabel("y")
    for ax, values, title, look in zip(
        axes[1],
        (probability[:, 1], np.sqrt(epistemic[:, 1])),
        ("probability of the second class", "its deviation by the parameters"),
        ({"cmap": plots.DIVERGING, "vmin": 0, "vmax": 1}, {"cmap": "Blues", "vmin": 0}),
        strict=True,
    ):
        image = ax.pcolormesh(
            plane[0, :, 0], plane[:, 0, 1], values.reshape(plane.shape[:2]), rasterized=True, **look
        )
        figure.colorbar(image, ax=ax)
        for label, colour in enumerate(plots.CLASSES):
            ax.plot(*moons[labels == label].T, ".", color=colour, ms=3)
        ax.set(title=title, xticks=[], yticks=[])
