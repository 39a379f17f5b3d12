"""
Smooth factors of a binary matrix
=================================

Votes over time, spikes, presence and absence along a gradient: binary matrices whose rows have an order.
``BinaryFactorization`` finds a few factors that vary smoothly along it, and their posterior. Here 120 times
and 60 columns without an order are generated from two factors; a third of the entries is missing, and so is
everything after time 100.
"""

import numpy as np

import kalvi
from kalvi import metrics, plots

rng = np.random.default_rng(1)
n, m, known = 120, 60, 100
times = np.arange(n)
truth = 2 * np.column_stack([np.sin(times / 15), np.cos(times / 30)])
probability = 1 / (1 + np.exp(-truth @ rng.normal(size=(2, m))))
entries = rng.random((n, m)) < probability
seen = rng.random((n, m)) < 2 / 3
seen[known:] = False

# %%
# The smoothness and the size of the factors are learned, and with ``n_factors="auto"``, which takes longer,
# also their number. The columns have no order.

model = kalvi.BinaryFactorization(n_factors=2, col_locations="unordered", random_state=0)
model.fit(entries[:known], mask=seen[:known])
print(f"correlation lengths of {model.smoothness_.rows.round(0)} rows, {model.n_sweeps_} sweeps")

# %%
# Beyond the last row the factors slowly return to their means, with growing uncertainty. (In the model they
# are random walks that are pulled back to their means; it does not know that they are waves.)

predicted = model.predict_proba(row_locations=times)
hidden, later = ~seen & (times < known)[:, None], ~seen & (times >= known)[:, None]
for name, where in (("missing entries", hidden), ("the next 20 rows", later)):
    loss = metrics.log_loss(predicted[where], entries[where])
    best = metrics.log_loss(probability[where], entries[where])
    print(f"log loss of {name}: {loss:.3f}, with the true probabilities {best:.3f}")

# %%
# Factors are determined only up to a linear map of all of them: for the picture the truth is mapped to the
# axes that the model has chosen.

mean, std = model.factors_at(row_locations=times)
change = np.linalg.lstsq(truth[:known], mean[:known], rcond=None)[0]
shown = np.where(seen, entries, np.nan)

_ = plots.compose(
    [
        [
            lambda axes: plots.image(shown, title="Observed", ylabel="time", axes=axes),
            lambda axes: plots.image(predicted, title="Predicted", ylabel="time", axes=axes),
            lambda axes: plots.image(probability, title="The truth", ylabel="time", axes=axes),
        ],
        [
            lambda axes: plots.paths(
                times, mean, std, truth=truth @ change, seen=(0, known), xlabel="time", axes=axes
            ),
            lambda axes: plots.trace(model.elbo_history_, axes=axes),
        ],
    ]
)
