"""Common parts of the factor-analysis rules: centring, starts, hidden factors and log densities.

Model: x = μ + F z + noise, z ~ N(0, I), noise ~ N(0, diag ψ), so that x ~ N(μ, F Fᵀ + diag ψ).

Centring. With tₙ the total weight of the first n rows and μₙ their mean, the rows

    eₙ = √(tₙ₋₁/tₙ) (xₙ − μₙ₋₁)      have      Σₙ wₙ eₙ eₙᵀ = Σₙ wₙ (xₙ − μ_N)(xₙ − μ_N)ᵀ  for every N,

and are independent N(0, F Fᵀ + diag ψ) if the xₙ are independent with any common mean. So a rule for rows
of mean zero works for rows of unknown mean if it is given e, without approximation.

Start (Lambert, Bonnabel & Bach 2023, section 5.1.2, with the misprinted square root of 1/σ₀ undone, and a
variance for each feature as in its Remark 1): ψ = (1 − ε) v and F = √(ε d/p) v^{1/2} U with random unit
columns U, so that E[F Fᵀ] + diag ψ = diag v. If no symmetry has to be broken, ψ = v and F = 0. The
orthogonal start of Brownlie (2021), section 4.4, is F = Q, ψ = 1, where Q R is a normal matrix; here it is
F = share v^{1/2} Q, ψ = v, after which EM does not depend on the units of the features.
"""

from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.gaussians import LowRankCovariance
from kalvi.numerics import linalg
from kalvi.numerics.namespaces import Scalar
from kalvi.numerics.precision import is_traced
from kalvi.rules.rule import Batch

Number = float | int
Rows = Float[Array, "n d"]
PerFeature = Float[Array, " d"]
Factor = Float[Array, "d p"]

NOISE_SHARE = 1e-12
"""No noise variance falls below this share of its feature's variance (in float32: 8 ulp)."""
START_SHARE = 0.1
"""The share of the variance that a random start gives to the factors."""
ORTHOGONAL_SHARE = 0.5
"""The standard deviation that an orthogonal start gives to a factor along its own direction."""
NO_VARIANCE = 1e-12
"""The variance of every feature at the start if the first rows do not differ."""


class CentredRows(NamedTuple):
    """The rows e of a block, with the mean and the total weight after it."""

    x: Float[Array, "b d"]
    mean: PerFeature
    rows: Scalar


def centre(mean: PerFeature, rows: Scalar, batch: Batch) -> CentredRows:
    """Rows whose scatter about zero is the block's addition to the scatter about the mean."""
    weight = batch.weight
    total = rows + jnp.sum(weight)
    after = rows + jnp.cumsum(weight)
    before = after - weight
    # subtract the block's own mean first, so that a large common offset costs no digits
    here = weight @ batch.x / jnp.where(total > rows, total - rows, 1)
    away, past = batch.x - here[None, :], mean - here
    shrink = jnp.sqrt(before / jnp.where(after > 0, after, 1))
    share = shrink / jnp.where(before > 0, before, 1)
    mixed = jnp.diag(shrink) - share[:, None] * jnp.tril(
        jnp.broadcast_to(weight, (len(weight),) * 2), -1
    )
    x = mixed @ away - (share * rows)[:, None] * past[None, :]
    return CentredRows(x, here + past * (rows / jnp.where(total > 0, total, 1)), total)


def subtract_mean(mean: PerFeature, rows: Scalar, batch: Batch) -> CentredRows:
    """The rows less a known mean."""
    return CentredRows(batch.x - mean[None, :], mean, rows + jnp.sum(batch.weight))


class CentredRow(NamedTuple):
    """A row e (as a batch of one), the mean and total weight after it, its number and its own weight.

    If the mean is unknown, the first row only sets it: its weight is 0, and later rows count from 1.
    """

    x: Float[Array, "1 d"]
    mean: PerFeature
    rows: Scalar
    number: Scalar
    weight: Scalar


def centre_one(mean: PerFeature, rows: Scalar, row: Batch, centred: bool) -> CentredRow:
    """Centre one row, for a rule that takes single rows."""
    x, mean, rows = (centre if centred else subtract_mean)(mean, rows, row)
    number = rows - 1 if centred else rows
    weight = jnp.where(number > 0, row.weight[0], 0)
    return CentredRow(x, mean, rows, jnp.maximum(number, 1), weight)


def floor_noise(factor: Factor, diag: PerFeature) -> PerFeature:
    """The noise variances, at least a share of the feature's variance and share² of the average
    variance."""
    share = max(NOISE_SHARE, 8 * float(jnp.finfo(diag.dtype).eps))
    variance = jnp.maximum(diag, 0) + jnp.sum(factor**2, axis=1)
    least = share * jnp.maximum(variance, share * jnp.mean(variance))
    return jnp.maximum(diag, jnp.maximum(least, float(jnp.finfo(diag.dtype).tiny) ** 0.5))


def feature_variances(batch: Batch, mean: PerFeature | None = None) -> PerFeature:
    """Each feature's variance about its own mean or the given one; the average variance if it is zero."""
    share = batch.weight / jnp.maximum(jnp.sum(batch.weight), 1)
    centre: PerFeature = share @ batch.x if mean is None else mean
    found = share @ (batch.x - centre[None, :]) ** 2
    noise = (8 * float(jnp.finfo(found.dtype).eps) * centre) ** 2
    seen = found > noise
    typical = jnp.sum(jnp.where(seen, found, 0)) / jnp.maximum(jnp.sum(seen), 1)
    return jnp.where(seen, found, jnp.where(typical > 0, typical, NO_VARIANCE))


def start(
    mean: PerFeature,
    variance: PerFeature,
    rank: int,
    *,
    key: PRNGKeyArray | None = None,
    share: float = START_SHARE,
) -> LowRankCovariance:
    """A Gaussian with these variances to start from; with random factors if there is a key."""
    if key is None:
        return LowRankCovariance(mean, jnp.zeros((len(mean), rank), mean.dtype), variance)
    unit = jr.normal(key, (len(mean), rank), mean.dtype)
    unit = unit / jnp.sqrt(jnp.sum(unit**2, axis=0))[None, :]
    scale = jnp.sqrt(share * len(mean) / rank * variance)
    return LowRankCovariance(mean, linalg.scale_rows(scale, unit), (1 - share) * variance)


def random_orthonormal(dim: int, rank: int, *, key: PRNGKeyArray, dtype=None) -> Factor:
    """Random orthonormal columns: Q of the reduced Q R of a normal matrix."""
    return jnp.linalg.qr(jr.normal(key, (dim, rank), dtype))[0]


def orthogonal_start(
    mean: PerFeature,
    variance: PerFeature,
    rank: int,
    *,
    key: PRNGKeyArray,
    share: float = ORTHOGONAL_SHARE,
) -> LowRankCovariance:
    """ψ = v and F = share v^{1/2} Q; with variances of 1 and a share of 1 it is F = Q, ψ = 1."""
    unit = random_orthonormal(len(mean), rank, key=key, dtype=mean.dtype)
    return LowRankCovariance(mean, linalg.scale_rows(share * jnp.sqrt(variance), unit), variance)


def refuse_empty_columns(rule: str, factor: Factor) -> None:
    """Refuse a factor F with an empty column, which neither EM nor a gradient would ever fill."""
    if not is_traced(factor) and not bool(jnp.all(jnp.any(factor != 0, axis=0))):
        raise ValueError(
            f"{rule} needs a start whose factor has no empty column, because EM never fills one; "
            "give `start` a key."
        )


def hidden_moments(factor: Factor, diag: PerFeature, x: Rows) -> tuple[Float[Array, "n p"], Array]:
    """E[z | x] for rows of mean zero, and Cov[z | x] = M⁻¹ with M = I + Fᵀ Ψ⁻¹ F."""
    scaled = linalg.scale_rows(1 / diag, factor)
    inner = factor.T @ scaled
    inverse = invert_positive(linalg.identity_like(inner) + inner)
    return x @ scaled @ inverse, inverse


def invert_positive(a: Float[Array, "p p"]) -> Float[Array, "p p"]:
    """The inverse of a small positive matrix, symmetric."""
    inverse = linalg.cho_solve(linalg.cholesky(a), linalg.identity_like(a))
    return (inverse + inverse.T) / 2


def canonical(q: LowRankCovariance) -> LowRankCovariance:
    """The same Gaussian with factors rotated so that Fᵀ Ψ⁻¹ F is diagonal and decreasing, and with positive
    largest entries. The data cannot distinguish rotations of F, so this choice makes them unique."""
    factor, diag = q.covariance.factor, q.covariance.diag
    inner = factor.T @ linalg.scale_rows(1 / diag, factor)
    turned = factor @ jnp.linalg.eigh((inner + inner.T) / 2)[1][:, ::-1]
    largest = jnp.take_along_axis(turned, jnp.argmax(jnp.abs(turned), axis=0)[None, :], axis=0)
    return LowRankCovariance(q.mean, jnp.where(largest < 0, -turned, turned), diag)


def expected_factors(q: LowRankCovariance, x: Rows) -> Float[Array, "n p"]:
    """E[z | x], a row for each row."""
    return hidden_moments(q.covariance.factor, q.covariance.diag, x - q.mean[None, :])[0]


def log_densities(q: LowRankCovariance, x: Rows) -> Float[Array, " n"]:
    """log N(x; μ, F Fᵀ + diag ψ) of each row, with the quadratic form as a sum of squares."""
    factor, diag, away = q.covariance.factor, q.covariance.diag, x - q.mean[None, :]
    hidden, _ = hidden_moments(factor, diag, away)
    square = (away - hidden @ factor.T) ** 2 @ (1 / diag) + jnp.sum(hidden**2, axis=1)
    return -(square + q.logdet() + q.dim * float(np.log(2 * np.pi))) / 2
