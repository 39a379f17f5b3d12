"""
Thompson sampling
=================

There are five offers, visitors are described by three numbers, and each clicks or does not. For every
visitor one coefficient vector is drawn from the posterior, and the offer that is best under it is shown:
uncertain offers are tried, offers known to be bad are not. For comparison, the same model always shows the
offer that looks best, and a third strategy shows random offers.

Most visitors like all offers, so the first one shown looks good, and a rule that never tries others stays
with it. (If visitors differ so much that every offer is shown at some point, always choosing the best may
do as well.)
"""

import matplotlib.pyplot as plt
import numpy as np

import kalvi
from kalvi import plots

offers, features, visits = 5, 3, 600
truth = 0.7 * np.random.default_rng(3).normal(size=(offers, features))
truth[:, 0] = [0.3, 0.6, 1.8, 0.9, 0.0]

# %%
# One model: the inputs are the visitor's numbers, in the columns of the offer that is shown. It learns
# after every ten visits, as if rewards arrived in batches.


def campaign(choose, seed: int) -> tuple[np.ndarray, kalvi.LogisticRegression]:
    """What was lost against the best offer at every visit, and the model at the end."""
    rng = np.random.default_rng(seed)
    model = kalvi.LogisticRegression(prior_scale=1.0, fit_intercept=False)
    model.partial_fit(np.zeros((1, offers * features)), [0], classes=[0, 1])  # the prior, so far
    lost, rows, clicks = np.empty(visits), [], []
    for visit in range(visits):
        visitor = np.append(1.0, 0.5 * rng.normal(size=features - 1))
        inputs = np.kron(np.eye(offers), visitor)
        chance = 1 / (1 + np.exp(-truth @ visitor))
        offer = choose(model, inputs, rng)
        lost[visit] = chance.max() - chance[offer]
        rows.append(inputs[offer])
        clicks.append(int(rng.random() < chance[offer]))
        if len(rows) == 10:
            model.partial_fit(np.array(rows), clicks)
            rows, clicks = [], []
    return lost, model


def thompson(model, inputs, rng):
    draw = model.sample_posterior(1, random_state=int(rng.integers(2**31)))[0]
    return int(np.argmax(inputs @ draw))


def greedy(model, inputs, rng):
    return int(np.argmax(model.decision_function(inputs)))


def at_random(model, inputs, rng):
    return int(rng.integers(offers))


rules = {"at random": at_random, "what looks best": greedy, "Thompson sampling": thompson}
lost = {name: [campaign(rule, seed)[0] for seed in range(6)] for name, rule in rules.items()}
for name, runs in lost.items():
    print(f"{name:18s} clicks lost in {visits} visits: {np.sum(runs) / len(runs):.0f}")

# %%
# Clicks lost so far, the mean of six campaigns. At the end the posterior is narrow for offers that were
# worth showing and wide for the others.

_, model = campaign(thompson, seed=0)
deviation = np.sqrt(model.posterior_.variance()).reshape(offers, features).mean(axis=1)
colours = {"at random": "#6b7178", "what looks best": "#d5581a", "Thompson sampling": "#0b5fa5"}
with plots.style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), width_ratios=[1.5, 1])
    for name, runs in lost.items():
        left.plot(np.cumsum(np.mean(runs, axis=0)), color=colours[name], label=name)
    left.set(title="Clicks lost so far", xlabel="visits", xlim=(0, visits), ylim=(0, None))
    left.legend(loc="upper left")
    right.barh(np.arange(offers), deviation, color="#0b5fa5", height=0.6)
    right.set(title="What is still unknown of each offer", xlabel="mean posterior deviation")
    right.set_yticks(np.arange(offers), [f"offer {i + 1}" for i in range(offers)])
    right.invert_yaxis()
