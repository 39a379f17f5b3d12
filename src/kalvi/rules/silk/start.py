"""A first guess of the factors by singular vectors, also with missing entries.

Document 004, section 7. At Γ = 0 and without a prior the bound is least squares for 4X̃ on the observed
entries. Its factors U√S, V√S come from subspace iteration with the matrix of signs (0 if not observed), and
then from alternating least squares on the observed entries; a ridge of the size of one entry keeps rows
without entries at zero. The means and variances of the prior are those of the factors. (Printed is "the
distribution of μ̂²", a slip; and ½|μ̂|, the first deviation, may be zero.)
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.rules.silk.locations import DeviceLocations, Locations
from kalvi.rules.silk.model import Side, Silk
from kalvi.rules.silk.moments import Moments, packed_outer, unpack_triangles
from kalvi.rules.silk.observed import Observed
from kalvi.rules.silk.posteriors import Family
from kalvi.rules.silk.priors import ROUGHEST, with_best_prior

ITERATIONS, SPARE, ROUNDS = 6, 8, 2
"""The numbers of subspace iterations, of additional singular vectors, and of rounds of least squares."""
LEAST_STD = 0.05
"""First standard deviations are half the mean, but at least this share of the factor's typical size."""

Factors = Float[Array, "_ k"]  # of either side


def start(
    observed: Observed,
    rows: Locations | DeviceLocations,
    cols: Locations | DeviceLocations,
    n_factors: int,
    family: Family,
    *,
    key: PRNGKeyArray,
    dtype: str = "float64",
    piece: tuple[int, int] | None = None,
) -> Silk:
    """Factors from the observed entries, with priors that fit them.

    With `piece`, only so many rows and columns of a `Table` are factorised, and the other factors follow
    from these.
    """
    how = n_factors, jnp.dtype(dtype), key
    u, v = _factors(observed, *how) if piece is None else _from_piece(observed, *piece, *how)
    return start_from_factors(u, v, rows, cols, family)


def start_from_factors(
    u: Float[Array, "r k"],
    v: Float[Array, "c k"],
    rows: Locations | DeviceLocations,
    cols: Locations | DeviceLocations,
    family: Family,
) -> Silk:
    """The factorisation with these factors as means, and with priors that fit them."""
    return Silk(_side(u, rows, family), _side(v, cols, family))


def prior(
    places: Locations | DeviceLocations, mean: Array, variance: Array, rate: Array
) -> OrnsteinUhlenbeck:
    """The smoothness prior at these locations, without smoothness if they have no order."""
    rate = rate if places.ordered else jnp.full_like(rate, jnp.inf)
    return OrnsteinUhlenbeck(
        jnp.asarray(places.gaps, mean.dtype), mean, variance, rate, places.even
    )


def _side(factors: Factors, places: Locations | DeviceLocations, family: Family) -> Side:
    spot = None if places.spot is None else jnp.asarray(places.spot)
    if spot is not None:
        n = places.n
        count = jax.ops.segment_sum(jnp.ones(len(factors), factors.dtype), spot, n)
        factors = jax.ops.segment_sum(factors, spot, n) / count[:, None]
    k = factors.shape[1]
    size = jnp.sqrt(jnp.mean(factors**2, axis=0))
    std = jnp.maximum(jnp.abs(factors) / 2, jnp.maximum(LEAST_STD * size, LEAST_STD)[None])
    smallest = jnp.min(jnp.asarray(places.gaps, factors.dtype), initial=1.0)
    rough = jnp.full(k, ROUGHEST / smallest, factors.dtype)
    first = prior(places, jnp.zeros(k, factors.dtype), jnp.ones(k, factors.dtype), rough)
    return with_best_prior(Side(first, family(factors, std**2), spot, places.ordered))


def _factors(
    observed: Observed, k: int, dtype: jnp.dtype, key: PRNGKeyArray
) -> tuple[Factors, Factors]:
    """U√S and V√S of 4X̃, refined by least squares on the observed entries."""
    width = min(k + SPARE, *observed.shape)
    back = observed.transpose()
    v = jr.normal(key, (observed.shape[1], width), dtype)

    def iterate(_: Array, v: Factors) -> Factors:
        u = jnp.linalg.qr(_product(observed, v))[0]
        return jnp.linalg.qr(_product(back, u))[0]

    v = jax.lax.fori_loop(0, ITERATIONS, iterate, jnp.linalg.qr(v)[0])
    left, size, right = jnp.linalg.svd(_product(observed, v), full_matrices=False)
    root = jnp.sqrt(4 * size[:k])[None]
    u, v = left[:, :k] * root, (v @ right.T)[:, :k] * root

    def fill(_: Array, pair: tuple[Factors, Factors]) -> tuple[Factors, Factors]:
        u = _least_squares(observed, pair[1])
        return u, _least_squares(back, u)

    return jax.lax.fori_loop(0, ROUNDS, fill, (u, v))


def _from_piece(
    table: Any, n_rows: int, n_cols: int, k: int, dtype: jnp.dtype, key: PRNGKeyArray
) -> tuple[Factors, Factors]:
    """Factors of some rows and columns, then of all rows given these columns, and of all columns."""
    row_key, col_key, key = jr.split(key, 3)
    n, m = table.shape
    rows, cols = jr.permutation(row_key, n)[:n_rows], jr.permutation(col_key, m)[:n_cols]
    u, v = _factors(table.piece(rows, cols), k, dtype, key)
    tall, wide = table.piece(jnp.arange(n), cols), table.piece(rows, jnp.arange(m))
    return _least_squares(tall, v), _least_squares(wide.transpose(), u)


def _moments_at_zero(n: int, factors: Factors, second: Array) -> tuple[Moments, Moments]:
    """The moments of unknown rows and of known columns, at Γ = 0."""

    def nothing(n: int, width: int) -> Array:
        return jnp.zeros((n, width), factors.dtype)

    k, f = factors.shape[1], second.shape[1]
    rows = Moments(nothing(n, k), nothing(n, 1), nothing(n, 1), nothing(n, f))
    other = nothing(len(factors), 1)
    return rows, Moments(factors, other, other, second)


def _product(observed: Observed, factors: Factors) -> Factors:
    """X̃ times the factors of the columns."""
    nothing = jnp.zeros((len(factors), 1), factors.dtype)
    moments = _moments_at_zero(observed.shape[0], factors, nothing)
    return observed.statistics(*moments, adds_mean=False).pull


def _least_squares(observed: Observed, factors: Factors) -> Factors:
    moments = _moments_at_zero(observed.shape[0], factors, packed_outer(factors))
    found = observed.statistics(*moments, adds_mean=False)
    ridge = jnp.diag(jnp.mean(factors**2, axis=0) / 4)
    ridge = ridge + 1e-6 * jnp.trace(ridge) * jnp.eye(len(ridge), dtype=ridge.dtype)
    blocks = unpack_triangles(found.curvature) + ridge[None]
    return jnp.linalg.solve(blocks, found.pull[..., None])[..., 0]
