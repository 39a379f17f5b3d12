"""
Choosing the prior by evidence
==============================

How wide should the prior be? A stream answers this while it learns: the *prequential evidence*, the sum of
the log predictions of each label before it was seen, is the log probability of the data under the prior.
With ``prior_scale="auto"`` nine scales are learned in the same pass, and the one with the most evidence is
kept. Here it is compared with each of these scales set by hand, on new rows.
"""

import matplotlib.pyplot as plt
import numpy as np

import kalvi
from kalvi import metrics, plots

rng = np.random.default_rng(2)
d, n_train, n_test = 30, 300, 5000
theta = 0.3 * rng.normal(size=d)
x = rng.normal(size=(n_train + n_test, d))
y = (rng.random(len(x)) < 1 / (1 + np.exp(-x @ theta))).astype(int)
train, test = slice(0, n_train), slice(n_train, None)


def learned(prior_scale) -> tuple[kalvi.LogisticRegression, float]:
    """A model after one pass, and its log loss on new rows."""
    model = kalvi.LogisticRegression(prior_scale=prior_scale, fit_intercept=False, passes=1)
    model.fit(x[train], y[train])
    return model, metrics.log_loss(model.predict_proba(x[test])[:, 1], y[test])


# %%
# The coefficients were drawn with a standard deviation of 0.3, which the models do not know.

scales = np.logspace(-2, 2, 9)
fixed = [learned(float(scale)) for scale in scales]
auto, auto_loss = learned("auto")
print(f"chosen scale {auto.prior_scale_:.3g}, log evidence {auto.log_evidence_:.1f}")
print(f"log loss on new rows {auto_loss:.4f}, best of the grid {min(s for _, s in fixed):.4f}")

# %%
# The evidence uses only the training rows, and still points to the scale that predicts best.

columns = {
    "Log evidence of the 300 training rows": ([m.log_evidence_ for m, _ in fixed], "nats"),
    "Log loss on 5 000 new rows": ([loss for _, loss in fixed], "nats per row"),
}
chosen = {
    "Log evidence of the 300 training rows": auto.log_evidence_,
    "Log loss on 5 000 new rows": auto_loss,
}
with plots.style():
    figure, panels = plt.subplots(1, 2, figsize=(10.5, 4.2))
    for axes, (title, (values, unit)) in zip(panels, columns.items(), strict=True):
        axes.plot(scales, values, "o-", color="#6b7178", ms=5, label="fixed scales")
        axes.plot(auto.prior_scale_, chosen[title], "o", ms=11, color="#0b5fa5", label='"auto"')
        axes.axvline(0.3, color="#22262b", lw=1, dashes=(1, 1.5), label="the truth")
        axes.set(title=title, xlabel="prior_scale", ylabel=unit, xscale="log")
        axes.grid(axis="y", color="#d9dcdf", lw=0.6)
    panels[0].legend(loc="lower left")
