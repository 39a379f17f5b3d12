"""Blocks of sparse rows for a low-rank precision, without any array of size b × d.

S are the m active columns of the block, G = Wᵀ Ψ⁻¹ W. The block needs W, ψ and μ only at S:

    A = X Ψ⁻¹ W,   B = X Ψ⁻¹ Xᵀ,   C = (I + G)⁻¹ Aᵀ,   X Σ Xᵀ = B − A C,   Σ Xᵀ c = Ψ⁻¹ (Xᵀ c − W C c),

and so is the Gram matrix of Z = [W, Xᵀ √γ], [[G, Aᵀ √γ], [√γ A, √γ B √γ]], whose leading eigenvectors
[top; bottom] project (`projections`). Rows of W outside S are only multiplied by p × p matrices,

    Wᵢ ← Wᵢ top √(1 − f),   ψᵢ ← ψᵢ + |Wᵢ L|²,   L Lᵀ = D Dᵀ + top f topᵀ,   μᵢ ← μᵢ − Wᵢ C c/ψᵢ,

where D are the first p rows of the dropped eigenvectors. One sweep over d does this and computes G for the
next block. The m rows of S are computed separately and replace those of the sweep.

The differences cancel if factors are strong, so small matrices and active rows are in float64, whatever the
precision of the state is. So is the part of G from the active rows. The part from the other rows is summed
in the state's precision; it is also a term of X Σ Xᵀ, so its rounding is relative to the result.
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
    """The mean, factor and diag of a Gaussian, or of its active rows."""

    mean: Float[AnyArray, " d"]
    factor: Float[AnyArray, "d p"]
    diag: Float[AnyArray, " d"]

    def put(self, x: SparseRows, new: "Parts") -> "Parts":
        """The same parts with other active rows."""
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
    """The products of a block of sparse rows with a Gaussian."""
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
    """The parts after the block has been absorbed, and their inner products."""
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
    """The rows that the block does not touch, and their part of the inner products.

    Active rows are updated as if the block did not touch them, and left out of the inner products.
    """
    dtype, (d, p) = whole.factor.dtype, whole.factor.shape
    top, dropped = start.kept[:p], start.dropped[:p]
    turn = top * jnp.sqrt(1 - start.shared)[None, :]
    spread = dropped @ dropped.T + (top * start.shared[None, :]) @ top.T
    root = linalg.semidefinite_root(spread)
    small = jnp.concatenate([turn, root, pull[:, None]], axis=1).astype(dtype)

    def visit(total, read, wide, written, fresh):
        mean, w, diag = written
        product = w @ small  # a single product, because each reads all of W
        factor = product[:, :p]
        mean = mean - product[:, -1] / diag
        diag = diag + jnp.sum(product[:, p:-1] ** 2, axis=1)
        own = linalg.inner(factor, linalg.scale_rows(fresh * read / diag, factor))
        return total + own.astype(total.dtype), Parts(mean, factor, diag)

    untouched = put_rows(jnp.ones(d, dtype), x.columns, jnp.zeros(len(x.columns), dtype))
    nothing = jnp.zeros((0, d), dtype)
    inner, parts = linalg.sweep(visit, jnp.zeros((p, p)), untouched, nothing, whole)
    return parts, inner
