"""
Many features: a low-rank posterior
===================================

With 3000 features a full covariance has nine million numbers. ``rank=10`` keeps 36,000, and still gives a
posterior: it knows which words it has seen often and which never. Rows are sparse and come in pieces; how
they are cut makes no difference. Two shards, learned separately, are merged.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

import kalvi
from kalvi import metrics

# %%
# Documents of about 40 words, with word frequencies as in a natural language. Twenty words matter.

rng = np.random.default_rng(0)
n_words, n_documents = 3000, 1200
frequency = 1 / np.arange(1, n_words + 1) ** 0.8
counts = rng.poisson(40 * frequency / frequency.sum(), size=(n_documents, n_words))
X = sp.csr_matrix(np.log1p(counts))
weight = np.zeros(n_words)
weight[5:25] = rng.choice([-2, 2], 20)
y = rng.random(n_documents) < 1 / (1 + np.exp(-X @ weight))

# %%
# One pass with 100 documents a call; each piece is predicted before it is learned.

model, losses = kalvi.LogisticRegression(rank=10, prior_scale=1.0, dtype="float32"), []
for start in range(0, n_documents, 100):
    piece = slice(start, start + 100)
    if start:
        probability = model.predict_proba(X[piece])[:, 1]
        losses.append(metrics.log_loss(probability, y[piece]))
    model.partial_fit(X[piece], y[piece], classes=[False, True])
print(f"log loss of the last 300 documents before learning them: {np.mean(losses[-3:]):.3f}")

# %%
# The knowledge of the model: the deviation of a coefficient falls with the frequency of its word, and stays
# at 1, as in the prior, for words that were never seen.

deviation = np.sqrt(model.posterior_.variance())[:n_words]
seen = np.asarray((X > 0).sum(axis=0)).ravel()
_, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
left.plot(100 * np.arange(1, 12), losses, "o-")
left.set(xlabel="documents learned", ylabel="log loss of the next 100")
right.plot(seen, deviation, ".", alpha=0.3)
right.set(xlabel="documents with the word", ylabel="posterior deviation", xscale="symlog")

# %%
# Two halves are learned separately from the same prior, which merging counts once.

halves = [kalvi.LogisticRegression(rank=10, dtype="float32", passes=1) for _ in range(2)]
for half, part in zip(halves, (slice(0, None, 2), slice(1, None, 2)), strict=True):
    half.fit(X[part], y[part])
prior = kalvi.Diagonal(
    np.zeros(n_words + 1, np.float32), np.append(np.ones(n_words), 100).astype(np.float32)
)
merged = kalvi.merge([half.posterior_ for half in halves], prior)
agreement = np.corrcoef(merged.mean[:n_words], model.coef_[0])[0, 1]
print(f"merged and sequential coefficients correlate by {agreement:.3f}")
