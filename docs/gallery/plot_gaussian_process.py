"""
Gaussian processes with outliers and with labels
================================================

A Gaussian process learns a function without a formula. Its kernel and its noise are those with the highest
variational bound on the evidence, which needs no held-out rows. The noise may have any log density: here
one row in eight is spoiled, and Student-t noise is compared with normal noise.
"""

import matplotlib.pyplot as plt
import numpy as np

import kalvi
from kalvi import plots

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(-3, 3, 64))[:, None]
y = np.sin(2 * x[:, 0]) + 0.15 * rng.normal(size=64)
spoiled = rng.choice(64, 8, replace=False)
y[spoiled] += rng.choice([-1, 1], 8) * rng.uniform(2, 4, 8)
new = np.linspace(-3, 3, 200)[:, None]
truth = np.sin(2 * new[:, 0])

# %%
# Both models learn the same kinds of hyperparameters from the same rows. The bound shows which noise suits
# the rows better.

fits = {}
for noise in ("normal", "student_t"):
    model = kalvi.GaussianProcessRegressor(likelihood=noise).fit(x, y)
    mean, std = fits[noise] = model.predict_latent(new)
    error = np.sqrt(np.mean((mean - truth) ** 2))
    print(f"{noise:10s} bound {model.elbo_:6.1f} nats, error {error:.2f}, kernel {model.kernel_}")

# %%
# Labels instead of numbers: two half-moons. Away from the rows the probability returns to one half, because
# there the function follows its prior.

angle = rng.uniform(0, np.pi, 64)
side = rng.integers(0, 2, 64)
moons = np.column_stack([np.cos(angle), np.sin(angle) - 0.25]) * np.where(side, -1, 1)[:, None]
moons += [0.5, 0] * np.where(side, 1, -1)[:, None] + 0.15 * rng.normal(size=(64, 2))
classifier = kalvi.GaussianProcessClassifier().fit(moons, side)
ticks = np.linspace(-3.5, 3.5, 80)
across, up = np.meshgrid(ticks, ticks)
chance = classifier.predict_proba(np.column_stack([across.ravel(), up.ravel()]))[:, 1]
print(f"classifier bound {classifier.elbo_:.1f} nats, kernel {classifier.kernel_}")

# %%
# Bands are two standard deviations of the function.

with plots.style():
    figure, panels = plt.subplots(1, 3, figsize=(13.5, 4.2), width_ratios=[1, 1, 1.05])
    titles = {"normal": "Normal noise", "student_t": "Student-t noise"}
    for axes, (noise, (mean, std)) in zip(panels, fits.items(), strict=False):
        axes.fill_between(
            new[:, 0], mean - 2 * std, mean + 2 * std, color="#0b5fa5", alpha=0.2, lw=0
        )
        axes.plot(new, mean, color="#0b5fa5", label="learned")
        axes.plot(new, truth, color="#22262b", lw=1, dashes=(4, 2), label="the truth")
        axes.plot(x, y, "o", color="#6b7178", ms=3.5, label="rows")
        axes.set(title=titles[noise], xlabel="x", ylim=(-5, 5))
    panels[0].legend(loc="lower left", ncols=3, fontsize="small")
    image = panels[2].contourf(
        across, up, chance.reshape(80, 80), np.linspace(0, 1, 21), cmap="RdBu_r"
    )
    for label, colour in ((0, "#0b3c68"), (1, "#8c1c1c")):
        panels[2].plot(*moons[side == label].T, "o", ms=4, color=colour, mec="white", mew=0.5)
    panels[2].set(title="Probability of the second class", xlabel="x₁", ylabel="x₂")
    panels[2].set_aspect("equal")
    figure.colorbar(image, ax=panels[2], ticks=[0, 0.5, 1])
