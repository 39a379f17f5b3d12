"""
Learning from a stream
======================

Rows arrive in small batches. Each batch is first predicted and then learned, so that every row is a test
row exactly once; the mean of these log losses is the *progressive* log loss. The labels are generated, so
the log loss of the true probabilities is known, and the excess over it is the price of learning.
"""

import numpy as np

import kalvi
from kalvi import metrics, plots

rng = np.random.default_rng(0)
n, d, size = 12_800, 10, 128
theta = rng.normal(size=d)
x = rng.normal(size=(n, d))
truth = 1 / (1 + np.exp(-x @ theta))
y = (rng.random(n) < truth).astype(int)

# %%
# One pass: predict, then learn.

model = kalvi.LogisticRegression(prior_scale=3.0)
predicted = np.full(n, 0.5)
for start in range(0, n, size):
    rows = slice(start, start + size)
    if start:
        predicted[rows] = model.predict_proba(x[rows])[:, 1]
    model.partial_fit(x[rows], y[rows], classes=[0, 1])


def so_far(probability: np.ndarray) -> np.ndarray:
    """The mean log loss of the rows up to each one."""
    loss = -np.log(np.where(y == 1, probability, 1 - probability))
    return np.cumsum(loss) / np.arange(1, n + 1)


print(f"progressive log loss {so_far(predicted)[-1]:.4f}, of the truth {so_far(truth)[-1]:.4f}")

# %%
# A prediction averages over the uncertainty of the coefficients, so it is calibrated from the start: of the
# rows with a predicted probability of 30 %, about 30 % were positive.

table = metrics.calibration(predicted[size:], y[size:], bins=12)
shown = np.arange(size, n, size)
_ = plots.compose(
    [
        [
            lambda axes: plots.lines(
                shown / 1000,
                {"the truth itself": so_far(truth)[shown], "one pass": so_far(predicted)[shown]},
                axes=axes,
                title="Mean log loss so far",
                xlabel="thousand rows",
                ylabel="nats per row",
            ),
            lambda axes: plots.reliability(
                table.predicted, table.observed, table.count, axes=axes, title="Reliability"
            ),
        ]
    ],
    size=(10.5, 4.6),
)
