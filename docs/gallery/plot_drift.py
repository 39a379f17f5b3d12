"""
Following a coefficient that changes
====================================

One coefficient of a logistic model swings and then jumps. With ``drift`` below 1 the information of earlier
rows fades by this factor before every row, and the prior replaces it: the posterior remembers about ``1 /
(1 - drift)`` rows, its bands stay as wide as this memory warrants, and it follows the coefficient. Without
drift it averages over all time and becomes sure of the wrong value.
"""

import matplotlib.pyplot as plt
import numpy as np

import kalvi
from kalvi import plots

rng = np.random.default_rng(1)
n, size = 9_000, 150
time = np.arange(n)
slope = np.where(time < 6000, 1.5 * np.sin(2 * np.pi * time / 6000), -1.5)
x = rng.normal(size=(n, 2))
log_odds = slope * x[:, 0] + 1.0 * x[:, 1]
y = (rng.random(n) < 1 / (1 + np.exp(-log_odds))).astype(int)


def follow(drift: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and standard deviation of the first coefficient after every batch, and the evidence."""
    model = kalvi.LogisticRegression(drift=drift, fit_intercept=False)
    track = []
    for start in range(0, n, size):
        rows = slice(start, start + size)
        model.partial_fit(x[rows], y[rows], classes=[0, 1])
        track.append((model.coef_[0, 0], np.sqrt(model.posterior_.variance()[0])))
    mean, std = np.array(track).T
    return mean, std, model.log_evidence_


# %%
# The evidence of a stream, the sum of its log predictions before each label, shows how much to forget.

tracks = {drift: follow(drift) for drift in (1.0, 0.995, 0.98)}
for drift, (_, _, evidence) in tracks.items():
    print(f"drift {drift:<6} log evidence {evidence:9.1f}")

# %%
# The 95 % bands of the best drift, and of no drift at all.

kept = max(tracks, key=lambda drift: tracks[drift][2])
seen = np.arange(size, n + 1, size)
names = {kept: ("#0b5fa5", f"drift={kept}"), 1.0: ("#d5581a", "no drift")}
with plots.style():
    figure, axes = plt.subplots(figsize=(9, 4.4))
    axes.plot(time, slope, color="#22262b", lw=1.4, label="the true coefficient")
    for drift, (colour, label) in names.items():
        mean, std, _ = tracks[drift]
        axes.fill_between(
            seen, mean - 1.96 * std, mean + 1.96 * std, color=colour, alpha=0.22, lw=0
        )
        axes.plot(seen, mean, color=colour, label=label)
    axes.set(
        title="A coefficient that changes, 95 % bands", xlabel="rows seen", ylabel="coefficient"
    )
    axes.set(xlim=(0, n), ylim=(-2.6, 2.9))
    axes.legend(loc="upper right", ncols=3)
