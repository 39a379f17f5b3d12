"""
Shards, learned apart and merged
================================

Rows are stored in several places. Each part is learned where it is, from the same prior, and the posteriors
are merged: their precisions add, and the prior is counted once. For a linear model this is exact; for a
logistic one the Gaussian of each shard is an approximation, which is worse with fewer rows.
"""

import matplotlib.pyplot as plt
import numpy as np

import kalvi
from kalvi import plots

rng = np.random.default_rng(0)
n, d = 4096, 8
theta = rng.normal(size=d)
X = rng.normal(size=(n, d))
y = (rng.random(n) < 1 / (1 + np.exp(-X @ theta))).astype(int)
prior = kalvi.Diagonal(np.zeros(d), np.ones(d)).to_dense()


def learned(rows: slice) -> kalvi.Gaussian:
    """The posterior of some of the rows."""
    model = kalvi.LogisticRegression(prior_scale=1.0, fit_intercept=False)
    return model.partial_fit(X[rows], y[rows], classes=[0, 1]).posterior_


whole = learned(slice(None))

# %%
# From one shard to 64. The distance to the posterior of one stream is in nats.

counts = (1, 2, 4, 8, 16, 32, 64)
merged = {k: kalvi.merge([learned(slice(i, None, k)) for i in range(k)], prior) for k in counts}
away = {k: float(kalvi.kl(q, whole)) for k, q in merged.items()}
for k, nats in away.items():
    print(f"{k:2d} shards of {n // k:4d} rows: {nats:.4f} nats from one stream")

# %%
# Eight shards of 512 rows: the posterior of each is far wider than that of all rows, but together they say
# nearly the same. If shards are small, their errors add up; a further round over the rows removes most of
# the error (``kalvi.distributed``).

shards = [learned(slice(i, None, 8)) for i in range(8)]
with plots.style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=[1.6, 1])
    places = np.arange(d)
    for i, q in enumerate(shards):
        at = places - 0.28 + 0.05 * i
        std = 1.96 * np.sqrt(q.variance())
        look = {"color": "#9aa1a9", "fmt": "none", "lw": 1}
        left.errorbar(
            at, np.asarray(q.mean) - theta, std, label="a shard" if i == 0 else None, **look
        )
    for q, shift, colour, label in (
        (merged[8], 0.16, "#0b5fa5", "merged"),
        (whole, 0.26, "#d5581a", "one stream"),
    ):
        std = 1.96 * np.sqrt(q.variance())
        middle = np.asarray(q.mean) - theta
        left.errorbar(places + shift, middle, std, fmt="o", ms=3.5, color=colour, label=label)
    left.axhline(0, color="#22262b", lw=0.8)
    left.set(title="Coefficients less the truth, 95 %", xlabel="coefficient")
    left.legend(loc="upper right", ncols=3)
    right.loglog(counts[1:], [away[k] for k in counts[1:]], "o-", color="#0b5fa5")
    right.set(title="Merged against one stream", xlabel="shards", ylabel="KL, nats")
    right.set_xticks(counts[1:], [str(k) for k in counts[1:]])
    right.minorticks_off()
