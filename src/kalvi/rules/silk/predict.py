"""Predictions of a factorisation: probabilities of entries, and scores of entries that were held out."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.likelihoods.logistic import ScaleMixture
from kalvi.numerics.namespaces import Scalar
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
    return _probability(*logits(rows, cols, adds_mean))


def paired_probabilities(rows: Moments, cols: Moments, adds_mean: bool) -> Float[Array, " e"]:
    """P(x = 1) of each row with the column at the same position."""
    return _probability(*paired_logits(rows, cols, adds_mean))


def quantiles(
    rows: Moments, cols: Moments, adds_mean: bool, deviations: Scalar
) -> Float[Array, "r c"]:
    """σ(E ψ + z √var ψ) of all pairs: the quantile of the probability that Φ(z) of the mass is below."""
    return _quantile(*logits(rows, cols, adds_mean), deviations)


def paired_quantiles(
    rows: Moments, cols: Moments, adds_mean: bool, deviations: Scalar
) -> Float[Array, " e"]:
    """The quantiles of each row with the column at the same position."""
    return _quantile(*paired_logits(rows, cols, adds_mean), deviations)


def logits(
    rows: Moments, cols: Moments, adds_mean: bool
) -> tuple[Float[Array, "r c"], Float[Array, "r c"]]:
    """The means and variances of the logits of all pairs of rows and columns."""
    return _law(rows.mean @ cols.mean.T, rows.left @ cols.right.T, adds_mean)


def paired_logits(
    rows: Moments, cols: Moments, adds_mean: bool
) -> tuple[Float[Array, " e"], Float[Array, " e"]]:
    """The means and variances of the logits of each row with the column at the same position."""
    mean = jnp.sum(rows.mean * cols.mean, axis=1)
    return _law(mean, jnp.sum(rows.left * cols.right, axis=1), adds_mean)


def _law(mean: Array, product: Array, adds_mean: bool) -> tuple[Array, Array]:
    return mean, jnp.maximum(product if adds_mean else product - mean**2, 0)


def _quantile(mean: Array, var: Array, deviations: Scalar) -> Array:
    return jax.nn.sigmoid(mean + deviations * jnp.sqrt(var))


def _probability(mean: Array, var: Array) -> Array:
    def one(mean: Array, var: Array) -> Array:
        return ScaleMixture().tail(-mean, var).value

    return jax.vmap(one)(mean.ravel(), var.ravel()).reshape(mean.shape)
