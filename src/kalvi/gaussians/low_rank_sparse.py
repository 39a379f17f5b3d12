"""Blocks of sparse rows for a precision of low rank: nothing of size b × d is ever made.

S are the m active columns of the block, G = Wᵀ Ψ⁻¹ W. All that the block needs of W, ψ and μ is at S:

    A = X Ψ⁻¹ W,   B = X Ψ⁻¹ Xᵀ,   C = (I + G)⁻¹ Aᵀ,   X Σ Xᵀ = B − A C,   Σ Xᵀ c = Ψ⁻¹ (Xᵀ c − W C c),

and so is the Gram matrix of Z = [W, Xᵀ √γ], [[G, Aᵀ √γ], [√γ A, √γ B √γ]], whose leading eigenvectors
[top; bottom] project (`projections`). Rows of W outside S meet the p × p matrices alone,

    Wᵢ ← Wᵢ top √(1 − f),   ψᵢ ← ψᵢ + |Wᵢ L|²,   L Lᵀ = D Dᵀ + top f topᵀ,   μᵢ ← μᵢ − Wᵢ C c/ψᵢ,

D the first p rows of the eigenvectors that are dropped: one sweep over d, which also leaves G for the next
block. The m rows of S are made by themselves and put over what the sweep made of them.

The differences cancel where factors are strong, so what is small or active is in float64, whatever the
state is in. So is the share of G of the active rows; that of the others, summed in the state's precision,
is also a term of X Σ Xᵀ, so that its rounding is relative to what it is added to.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kalvi.numerics import linalg, projections
from kalvi.numerics.linalg import LowRankPlusDiagonal
from kalvi.numerics.namespaces import AnyArray, namespace_of
from kalvi.numerics.precision import in_double
from kalvi.numerics.sparse_rows import SparseRows, put_rows


class Parts(NamedTuple):
    """Mean, factor and diag of a Gaussian, or of its active rows."""

    mean: Float[AnyArray, " d"]
    factor: Float[AnyArray, "d p"]
    diag: Float[AnyArray, " d"]

    def put(self, x: SparseRows, new: "Parts") -> "Parts":
        """These with other active rows."""
        pairs = zip(self, new, strict=True)
        return Parts(*(put_rows(a, x.columns, b.astype(a.dtype)) for a, b in pairs))


class SparseView(NamedTuple):
    """A block of sparse rows at a Gaussian, in float64."""

    rows: SparseRows  # over the active columns
    active: Parts
    mixed: Float[AnyArray, "b p"]  # A
    own: Float[AnyArray, "b b"]  # B
    loading: Float[AnyArray, "p b"]  # C
    inner: Float[AnyArray, "p p"]  # G


def inner_products(precision: LowRankPlusDiagonal) -> Float[AnyArray, "p p"]:
    """G = Wᵀ Ψ⁻¹ W in float64, by a sweep."""

    def visit(total, read, wide, _, fresh):
        w, diag = read
        return total + linalg.inner(w, linalg.scale_rows(fresh / diag, w)).astype(total.dtype), ()

    with in_double():
        (d, p), xp = precision.factor.shape, namespace_of(precision.factor)
        read, nothing = (precision.factor, precision.diag), xp.zeros((0, d), precision.diag.dtype)
        return linalg.sweep(visit, xp.zeros((p, p), np.float64), read, nothing)[0]


def look(whole: Parts, inner: Float[AnyArray, "p p"], x: SparseRows) -> SparseView:
    """The block at a Gaussian."""
    active = Parts(*(x.on_active(a).astype(np.float64) for a in whole))
    rows = x.over_active()
    rows = rows.with_values(rows.values.astype(np.float64))
    mixed = rows @ linalg.scale_rows(1 / active.diag, active.factor)
    own = (rows * (1 / active.diag)[None, :]) @ rows.T
    return SparseView(rows, active, mixed, own, _loading(inner, mixed), inner)


def marginal(view: SparseView) -> tuple[Float[AnyArray, " b"], Float[AnyArray, "b b"]]:
    """Mean and covariance of the predictors."""
    return view.rows @ view.active.mean, view.own - view.mixed @ view.loading


def variances(
    whole: Parts, inner: Float[AnyArray, "p p"], x: SparseRows
) -> tuple[Float[AnyArray, " b"], Float[AnyArray, " b"]]:
    """Mean and variance of each predictor."""
    active = Parts(*(x.on_active(a).astype(np.float64) for a in whole))
    rows = x.over_active()
    rows = rows.with_values(rows.values.astype(np.float64))
    mixed = rows @ linalg.scale_rows(1 / active.diag, active.factor)
    spread = (mixed.T * _loading(inner, mixed)).sum(axis=0)
    return rows @ active.mean, rows**2 @ (1 / active.diag) - spread


def _loading(
    inner: Float[AnyArray, "p p"], mixed: Float[AnyArray, "b p"]
) -> Float[AnyArray, "p b"]:
    root = linalg.steady_cholesky(linalg.identity_like(inner) + inner)
    return linalg.cho_solve(root, mixed.T)


def absorb(
    whole: Parts,
    view: SparseView,
    x: SparseRows,
    coefficients: Float[Array, " b"],
    scale: projections.Scale,
    shrink: bool,
) -> tuple[Parts, Float[Array, "p p"]]:
    """The parts after the block, and their inner products."""
    coefficients, scale = coefficients.astype(np.float64), scale.astype(np.float64)
    d, p = whole.factor.shape
    gram = projections.Gram(view.inner, view.mixed.T, view.own)
    start = projections.leading(projections.scaled_gram(gram, scale), p, d, shrink)
    pull = view.loading @ coefficients
    active = _absorb_active(view, coefficients, pull, scale, start)
    others, inner = _absorb_others(whole, x, pull, start)
    inner = inner + linalg.inner(active.factor, linalg.scale_rows(1 / active.diag, active.factor))
    return others.put(x, active), inner


def _absorb_active(
    view: SparseView,
    coefficients: Float[Array, " b"],
    pull: Float[Array, " p"],
    scale: projections.Scale,
    start: projections.Leading,
) -> Parts:
    """The active rows after the block."""
    (mean, w, diag), p = view.active, view.active.factor.shape[1]
    rows, weight = view.rows, scale**2
    if scale.ndim > 1:
        rows, weight = rows.mixed(scale), jnp.ones_like(coefficients)
    bottom = linalg.scale_blocks(scale, start.kept[p:])
    kept = w @ start.kept[:p] + view.rows.T @ bottom
    squares = jnp.sum(w**2, axis=1) + (rows**2).T @ weight
    dropped = jnp.maximum(squares - jnp.sum(kept**2, axis=1), 0)
    return Parts(
        mean + (view.rows.T @ coefficients - w @ pull) / diag,
        kept * jnp.sqrt(1 - start.shared)[None, :],
        diag + dropped + kept**2 @ start.shared,
    )


def _absorb_others(
    whole: Parts, x: SparseRows, pull: Float[Array, " p"], start: projections.Leading
) -> tuple[Parts, Float[Array, "p p"]]:
    """Rows that the block does not touch, and the share of the inner products that is theirs.

    Active rows come out as if the block did not touch them, and are left out of the share.
    """
    dtype, (d, p) = whole.factor.dtype, whole.factor.shape
    top, dropped = start.kept[:p], start.dropped[:p]
    turn = top * jnp.sqrt(1 - start.shared)[None, :]
    spread = dropped @ dropped.T + (top * start.shared[None, :]) @ top.T
    root = linalg.semidefinite_root(spread)
    small = jnp.concatenate([turn, root, pull[:, None]], axis=1).astype(dtype)

    def visit(total, read, wide, written, fresh):
        mean, w, diag = written
        product = w @ small  # one product: each costs a reading of W
        factor = product[:, :p]
        mean = mean - product[:, -1] / diag
        diag = diag + jnp.sum(product[:, p:-1] ** 2, axis=1)
        own = linalg.inner(factor, linalg.scale_rows(fresh * read / diag, factor))
        return total + own.astype(total.dtype), Parts(mean, factor, diag)

    untouched = put_rows(jnp.ones(d, dtype), x.columns, jnp.zeros(len(x.columns), dtype))
    nothing = jnp.zeros((0, d), dtype)
    inner, parts = linalg.sweep(visit, jnp.zeros((p, p)), untouched, nothing, whole)
    return parts, inner
