"""What a factorisation says of entries: probabilities, and scores of entries that were held out."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.likelihoods.logistic import ScaleMixture
from kalvi.rules.silk.model import Silk
from kalvi.rules.silk.moments import Moments
from kalvi.rules.silk.observed import Observed, log_plug_in, log_predictive


def log_likelihood(silk: Silk, observed: Observed, *, plug_in: bool = False) -> Float[Array, " r"]:
    """The log predictive probability of each row's entries; with `plug_in`, at the posterior means."""
    rows, cols = silk.rows.moments(), silk.cols.moments()
    score = log_plug_in if plug_in else log_predictive
    return observed.reduce(rows, cols, silk.rows.posterior.adds_mean, score)


def probabilities(rows: Moments, cols: Moments, adds_mean: bool) -> Float[Array, "r c"]:
    """P(x = 1) of all pairs of rows and columns."""
    mean = rows.mean @ cols.mean.T
    return _probability(mean, rows.left @ cols.right.T, adds_mean)


def paired_probabilities(rows: Moments, cols: Moments, adds_mean: bool) -> Float[Array, " e"]:
    """P(x = 1) of rows and columns side by side."""
    mean = jnp.sum(rows.mean * cols.mean, axis=1)
    return _probability(mean, jnp.sum(rows.left * cols.right, axis=1), adds_mean)


def _probability(mean: Array, product: Array, adds_mean: bool) -> Array:
    var = jnp.maximum(product if adds_mean else product - mean**2, 0)

    def one(mean: Array, var: Array) -> Array:
        return ScaleMixture().tail(-mean, var).value

    return jax.vmap(one)(mean.ravel(), var.ravel()).reshape(mean.shape)
