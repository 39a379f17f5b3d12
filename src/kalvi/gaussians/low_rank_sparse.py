"""Blocks of sparse rows for a low-rank precision, without any array of size b × d.

S are the m active columns of the block, G = Wᵀ Ψ⁻¹ W. The block needs W, ψ and μ only at S:

    A = X Ψ⁻¹ W,   B = X Ψ⁻¹ Xᵀ,   C = (I + G)⁻¹ Aᵀ,   X Σ Xᵀ = B − A C,   Σ Xᵀ c = Ψ⁻¹ (Xᵀ c − W C c),

and so is the Gram matrix of Z = [W, Xᵀ √γ], [[G, Aᵀ √γ], [√γ A, √γ B √γ]], whose leading eigenvectors
[top; bottom] project (`projections`). Rows of W outside S are only multiplied by p × p matrices,

    Wᵢ ← Wᵢ T,   ψᵢ ← ψᵢ + Wᵢ N Wᵢᵀ,   μᵢ ← μᵢ − Wᵢ C c/ψᵢ,   T = top √(1 − f),   N = D Dᵀ + top f topᵀ,

where D are the first p rows of the dropped eigenvectors. A sweep over d does this after every block, or
only after several. Their products and sums

    Q ← Q T,   M ← M + Q N Qᵀ,   u ← u + Q C c                                         (`Pending.table`)

then update a row that none of them touched: when a block touches it, or in the sweep after the last block.
The cost of a block is then that of its stored numbers, for any d. Each row records the number of blocks for
which it is updated (`Pending.seen`), and each such number has its own Q, M and u.

Late updates of W and μ are exact, and so is G = Σ Wᵢᵀ Wᵢ/ψᵢ for the current ψ: T multiplies the part of the
rows outside S, and the part of S is replaced. Only ψᵢ lacks Wᵢ M Wᵢᵀ until its update. If that is at most a
share ε of ψᵢ, variances are larger by a factor of at most 1 + ε, and never smaller.

The differences cancel if factors are strong, so small matrices, active rows and G are in float64, whatever
the precision of the state.
"""

from functools import reduce
from operator import add
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt

from kalvi.numerics import linalg, projections
from kalvi.numerics.linalg import LowRankPlusDiagonal, scale_rows
from kalvi.numerics.namespaces import AnyArray, namespace_of
from kalvi.numerics.platforms import platform
from kalvi.numerics.precision import in_double
from kalvi.numerics.sparse_rows import SparseRows, put_rows


class Parts(NamedTuple):
    """The mean, factor and diag of a Gaussian, or of some of its rows."""

    mean: Float[AnyArray, " d"]
    factor: Float[AnyArray, "d p"]
    diag: Float[AnyArray, " d"]

    @classmethod
    def of(cls, mean: Float[AnyArray, " d"], precision: LowRankPlusDiagonal) -> "Parts":
        return cls(mean, precision.factor, precision.diag)

    def put(self, x: SparseRows, new: "Parts") -> "Parts":
        """The same parts with other active rows."""
        return Parts(*(put_rows(a, x.columns, b) for a, b in zip(self, new, strict=True)))

    def doubled(self) -> "Parts":
        """The parts in float64."""
        return Parts(*(a.astype(np.float64) for a in self))

    def inner_products(self, share: Float[AnyArray, " d"] | float = 1.0) -> Float[AnyArray, "p p"]:
        """G, with each row weighted by its share."""
        return linalg.inner(self.factor, scale_rows(share / self.diag, self.factor))


def inner_products(whole: Parts) -> Float[AnyArray, "p p"]:
    """G of all rows in float64, by a sweep."""

    def visit(total, read, wide, _, fresh):
        return total + read.doubled().inner_products(fresh), ()

    with in_double():
        (d, p), xp = whole.factor.shape, namespace_of(whole.factor)
        return linalg.sweep(visit, xp.zeros((p, p)), whole, xp.zeros((0, d), whole.diag.dtype))[0]


class Pending(NamedTuple):
    """G, and the pending updates of rows of W that blocks of sparse rows did not touch."""

    inner: Float[AnyArray, "p p"]
    seen: UInt[AnyArray, " d"]  # the number of blocks for which a row is updated
    table: Float[AnyArray, "k p q"]  # [Q, M, u] of the blocks after the first so many
    count: Int[AnyArray, ""]  # blocks since the last sweep

    @classmethod
    def begin(cls, whole: Parts, blocks: int) -> "Pending":
        """The start, with room for so many blocks from one sweep to the next."""
        (d, p), xp = whole.factor.shape, namespace_of(whole.factor)
        with in_double():
            table = xp.stack([_nothing(xp, p)] * (blocks + 1))
            zeros = xp.zeros(d, np.uint8), table, xp.zeros((), np.int32)
            return cls(inner_products(whole), *zeros)

    @property
    def at_once(self) -> bool:
        """Whether a sweep follows every block."""
        return len(self.table) == 2

    def after(self, step: "_Step", inner: Float[Array, "p p"], columns: Array) -> "Pending":
        """The pending updates after a block that touched these columns."""
        p, count = len(inner), self.count + 1
        turn = self.table[:, :, :p]
        spread = self.table[:, :, p:-1] + turn @ step.spread @ jnp.swapaxes(turn, 1, 2)
        pull = self.table[:, :, -1:] + turn @ step.pull[:, None]
        table = jnp.concatenate([turn @ step.turn, spread, pull], axis=2)
        new = (jnp.arange(len(table)) == count)[:, None, None]
        seen = put_rows(self.seen, columns, jnp.full(len(columns), count, np.uint8))
        return Pending(inner, seen, jnp.where(new, _nothing(jnp, p), table), count)


class _Step(NamedTuple):
    """The update that a block makes to rows of W that it does not touch."""

    turn: Float[Array, "p p"]  # T
    spread: Float[Array, "p p"]  # N
    pull: Float[Array, " p"]  # C c

    @classmethod
    def of(cls, start: projections.Leading, pull: Float[Array, " p"]) -> "_Step":
        top, dropped = start.kept[: len(pull)], start.dropped[: len(pull)]
        spread = dropped @ dropped.T + (top * start.shared[None, :]) @ top.T
        return cls(top * jnp.sqrt(1 - start.shared)[None, :], spread, pull)


def _nothing(xp: Any, p: int) -> Float[AnyArray, "p q"]:
    """[Q, M, u] before any block."""
    return xp.concatenate([xp.eye(p), xp.zeros((p, p + 1))], axis=1)


def _by_row(
    w: Float[AnyArray, "n p"], seen: UInt[AnyArray, " n"], table: Float[AnyArray, "k p q"]
) -> Float[AnyArray, "n q"]:
    """Each row of W times its own matrix, as a sum over p that XLA compiles into one loop."""
    return reduce(add, (w[:, k, None] * table[:, k][seen] for k in range(w.shape[1])))


def _materialised(
    found: Float[Array, "n q"], mean: Float[Array, " n"], diag: Float[Array, " n"]
) -> tuple[Float[Array, "n q"], Float[Array, " n"], Float[Array, " n"]]:
    """The same arrays by a product, which XLA computes once and keeps.

    It would compute anything else again for each array that a loop writes over, and copy these to do so.
    """
    whole = jnp.concatenate([found, mean[:, None], diag[:, None]], axis=1)
    whole = whole @ jnp.eye(whole.shape[1], dtype=whole.dtype) if platform() == "cpu" else whole
    return whole[:, :-2], whole[:, -2], whole[:, -1]


class SparseView(NamedTuple):
    """A block of sparse rows at a Gaussian, in float64."""

    rows: SparseRows  # over the active columns
    active: Parts
    mixed: Float[AnyArray, "b p"]  # A
    own: Float[AnyArray, "b b"]  # B
    loading: Float[AnyArray, "p b"]  # C
    inner: Float[AnyArray, "p p"]  # G
    others: Float[AnyArray, "p p"]  # the part from rows that are not active


def look(whole: Parts, pending: Pending, x: SparseRows) -> SparseView:
    """The block at a Gaussian with its active rows updated."""
    active = Parts(*(x.on_active(a) for a in whole)).doubled()
    others = inner = pending.inner
    if not pending.at_once:
        old, p = active, active.factor.shape[1]
        found = _by_row(active.factor, x.on_active(pending.seen), pending.table)
        owed = (found[:, p:-1] * active.factor).sum(axis=1).clip(0)
        active = Parts(active.mean - found[:, -1] / old.diag, found[:, :p], old.diag + owed)
        others = inner - active._replace(diag=old.diag).inner_products()
        inner = others + active.inner_products()
    rows = x.over_active()
    rows = rows.with_values(rows.values.astype(np.float64))
    mixed = rows @ scale_rows(1 / active.diag, active.factor)
    own = (rows * (1 / active.diag)[None, :]) @ rows.T
    return SparseView(rows, active, mixed, own, _loading(inner, mixed), inner, others)


def marginal(view: SparseView) -> tuple[Float[AnyArray, " b"], Float[AnyArray, "b b"]]:
    """Mean and covariance of the predictors."""
    return view.rows @ view.active.mean, view.own - view.mixed @ view.loading


def variances(
    whole: Parts, inner: Float[AnyArray, "p p"], x: SparseRows
) -> tuple[Float[AnyArray, " b"], Float[AnyArray, " b"]]:
    """Mean and variance of each predictor."""
    active = Parts(*(x.on_active(a) for a in whole)).doubled()
    rows = x.over_active()
    rows = rows.with_values(rows.values.astype(np.float64))
    mixed = rows @ scale_rows(1 / active.diag, active.factor)
    spread = (mixed.T * _loading(inner, mixed)).sum(axis=0)
    return rows @ active.mean, rows**2 @ (1 / active.diag) - spread


def _loading(
    inner: Float[AnyArray, "p p"], mixed: Float[AnyArray, "b p"]
) -> Float[AnyArray, "p b"]:
    root = linalg.steady_cholesky(linalg.identity_like(inner) + inner)
    return linalg.cho_solve(root, mixed.T)


def absorb(
    whole: Parts,
    pending: Pending,
    view: SparseView,
    x: SparseRows,
    coefficients: Float[Array, " b"],
    scale: projections.Scale,
    shrink: bool,
) -> tuple[Parts, Pending]:
    """The parts after the block, and the pending updates."""
    coefficients, scale = coefficients.astype(np.float64), scale.astype(np.float64)
    d, p = whole.factor.shape
    gram = projections.Gram(view.inner, view.mixed.T, view.own)
    start = projections.leading(projections.scaled_gram(gram, scale), p, d, shrink)
    pull = view.loading @ coefficients
    active = _absorb_active(view, coefficients, pull, scale, start)
    active = Parts(*(new.astype(old.dtype) for new, old in zip(active, whole, strict=True)))
    step = _Step.of(start, pull)
    inner = step.turn.T @ view.others @ step.turn + active.doubled().inner_products()
    both = whole.put(x, active), pending.after(step, inner, x.columns)
    if pending.at_once:
        return settle(*both)
    # a loop instead of a branch, because XLA overwrites what a loop carries
    full = len(pending.table) - 1
    return jax.lax.while_loop(lambda both: both[1].count == full, lambda both: settle(*both), both)


def settle(whole: Parts, pending: Pending) -> tuple[Parts, Pending]:
    """Update all rows for all blocks, by a sweep."""
    dtype, (d, p) = whole.factor.dtype, whole.factor.shape
    root = linalg.semidefinite_root(pending.table[:, :, p:-1])
    pieces = pending.table[:, :, :p], root, pending.table[:, :, -1:]
    table = jnp.concatenate(pieces, axis=2).astype(dtype)

    def visit(total, seen, wide, written, fresh):
        mean, w, diag = written
        behind = jnp.ones_like(seen, bool)
        if pending.at_once:
            found, behind = w @ table[0], seen == 0
        else:
            found = _by_row(w, seen, table)
        found, mean, diag = _materialised(found, mean, diag)
        pull = jnp.where(behind, found[:, -1], 0)
        owed = jnp.where(behind, jnp.sum(found[:, p:-1] ** 2, axis=1), 0)
        factor = jnp.where(behind[:, None], found[:, :p], w)
        new = Parts(mean - pull / diag, factor, diag + owed)
        return total + new.doubled().inner_products(fresh), new

    nothing = jnp.zeros((0, d), dtype)
    inner, whole = linalg.sweep(visit, jnp.zeros((p, p)), pending.seen, nothing, whole)
    fresh = jnp.zeros_like(pending.seen), jnp.zeros_like(pending.count)
    start = jnp.broadcast_to(_nothing(jnp, p), pending.table.shape)
    return whole, Pending(inner, fresh[0], start, fresh[1])


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
