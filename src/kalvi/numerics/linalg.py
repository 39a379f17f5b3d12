"""Matrices of the form diag(d) ± F Fᵀ, square roots of covariances, and sweeps over long arrays.

Everything here is about arrays, not about probability.

A low-rank-plus-diagonal matrix A = D + s F Fᵀ (s = ±1) is closed under inversion:

    A⁻¹ = D⁻¹ − s U Uᵀ,   U = D⁻¹ F M^{-T},   M Mᵀ = I + s Fᵀ D⁻¹ F,   log|A| = log|D| + 2 log|M|.

A covariance that is kept as a square root, P = R Rᵀ, stays positive under rounding. Adding a block of
rank-one precisions turns it into R (I + Aᵀ A)⁻¹ Rᵀ with A = Γ^{1/2} X R, and with M Mᵀ = I + A Aᵀ

    R ← R − (R Aᵀ) M^{-T} (M + I)⁻¹ A                          (Andrews' block form of Potter's root).
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

from kalvi.numerics import sharding
from kalvi.numerics.namespaces import AnyArray, is_jax, namespace_of, repeat
from kalvi.numerics.platforms import is_traced_for_numpy, platform

CHUNK_ROWS, CHUNK_NUMBERS, CHUNK_ROWS_ACCELERATOR = 4096, 2**19, 2**20
"""The number of rows of long arrays in a chunk of a sweep: on a CPU at least the first, and more while they
have fewer numbers than the second (the size of a cache); on an accelerator enough rows to fill it."""
GROUP = 8192
"""The rows that one group of an accelerator's processors adds up in an inner product."""
INVERTED_AT_ONCE = 512
"""Triangular matrices larger than this are inverted in halves."""
MAX_STD = 1e12
"""The largest standard deviation in a diagonal next to a factor (its square, 1e24, fits a float32)."""


def least_diag(factor: Float[Array, "d p"]) -> Float[Array, " d"]:
    """The smallest diag that is allowed next to a factor.

    Products with the inverse of F Fᵀ + diag have a relative error of eps · F²/diag. The limit keeps half of
    the digits, and raises the matrix by at most a share √eps of its diagonal.
    """
    share = float(jnp.finfo(factor.dtype).eps) ** 0.5
    return jnp.maximum(share * jnp.sum(factor**2, axis=1), MAX_STD**-2)


class SymmetricMatrix(eqx.Module):
    """A symmetric matrix given by its operations."""

    @abstractmethod
    def matvec(self, v: Float[Array, "d *k"]) -> Float[Array, "d *k"]:
        """A v."""

    @abstractmethod
    def diagonal(self) -> Float[Array, " d"]:
        """diag A."""

    @abstractmethod
    def diagonal_part(self) -> Float[Array, " d"]:
        """The entries of the largest known diagonal matrix D for which A − D is positive semidefinite."""

    @abstractmethod
    def quadratic_trace(self, v: Float[Array, "d k"]) -> Float[Array, ""]:
        """tr(vᵀ A v)."""

    @abstractmethod
    def to_dense(self) -> Float[Array, "d d"]:
        """A, written out."""


class LowRankPlusDiagonal(SymmetricMatrix):
    """The symmetric matrix diag(`diag`) + `sign` · `factor` `factor`ᵀ, never formed."""

    diag: Float[AnyArray, " d"]
    factor: Float[AnyArray, "d p"]
    sign: int = eqx.field(static=True, default=1)

    def matvec(self, v: Float[Array, "d *k"]) -> Float[Array, "d *k"]:
        return scale_rows(self.diag, v) + self.sign * (self.factor @ (self.factor.T @ v))

    def diagonal(self) -> Float[Array, " d"]:
        return self.diag + self.sign * jnp.sum(self.factor**2, axis=1)

    def diagonal_part(self) -> Float[Array, " d"]:
        return self.diag if self.sign > 0 else jnp.zeros_like(self.diag)

    def quadratic_trace(self, v: Float[Array, "d k"]) -> Float[Array, ""]:
        own = self.diag @ jnp.sum(v**2, axis=1)
        return own + self.sign * jnp.sum((self.factor.T @ v) ** 2)

    def trace_product(self, other: SymmetricMatrix) -> Float[Array, ""]:
        """tr(A B), without either matrix."""
        return self.diag @ other.diagonal() + self.sign * other.quadratic_trace(self.factor)

    def inverse(self) -> "LowRankPlusDiagonal":
        scaled = scale_rows(1 / self.diag, self.factor)
        u = solve_rows(self._capacitance_root(), scaled)
        return LowRankPlusDiagonal(1 / self.diag, u, -self.sign)

    def solve(self, v: Float[Array, " d"]) -> Float[Array, " d"]:
        """A⁻¹ v."""
        own = v / self.diag
        inner = cho_solve(self._capacitance_root(), self.factor.T @ own)
        return own - self.sign * (self.factor @ inner) / self.diag

    def logdet(self) -> Float[Array, ""]:
        root = self._capacitance_root()
        return jnp.sum(jnp.log(self.diag)) + 2 * jnp.sum(jnp.log(jnp.diagonal(root)))

    def to_dense(self) -> Float[Array, "d d"]:
        return jnp.diag(self.diag) + self.sign * self.factor @ self.factor.T

    def _capacitance_root(self) -> Float[Array, "p p"]:
        gram = self.factor.T @ scale_rows(1 / self.diag, self.factor)
        if self.sign < 0:
            return cholesky(identity_like(gram) - gram)
        return steady_cholesky(identity_like(gram) + gram)


def scale_rows(scale: Float[AnyArray, " d"], v: Float[AnyArray, "d *k"]) -> Float[AnyArray, "d *k"]:
    """diag(scale) v for a vector or a matrix v."""
    return scale.reshape(scale.shape + (1,) * (v.ndim - 1)) * v


def scale_blocks(
    scale: Float[Array, " b"] | Float[Array, "n c c"], v: Float[Array, "b *k"]
) -> Array:
    """S v, where S is diag(scale) or, given n blocks of c rows each, block diagonal."""
    if scale.ndim == 1:
        return scale_rows(scale, v)
    blocks = v.reshape(scale.shape[0], scale.shape[1], -1)
    return jnp.einsum("nij,njk->nik", scale, blocks).reshape(v.shape)


def scale_blocks_transposed(
    scale: Float[Array, " b"] | Float[Array, "n c c"], v: Float[Array, "b *k"]
) -> Array:
    """Sᵀ v for the same S."""
    return scale_blocks(scale if scale.ndim == 1 else jnp.swapaxes(scale, 1, 2), v)


def identity_like(a: Float[AnyArray, "*b n n"]) -> Float[AnyArray, "n n"]:
    """The identity of a's size and dtype."""
    return namespace_of(a).eye(a.shape[-1], dtype=a.dtype)


def cholesky(a: Float[AnyArray, "n n"]) -> Float[AnyArray, "n n"]:
    """The lower Cholesky root of a, of which the lower triangle is read. If a is not positive definite,
    JAX gives NaN and NumPy raises an error."""
    if not is_jax(a):
        return np.linalg.cholesky(a)
    return jnp.linalg.cholesky(a, symmetrize_input=False)


def inner(a: Float[AnyArray, "d m"], b: Float[AnyArray, "d n"]) -> Float[AnyArray, "m n"]:
    """aᵀ b for long arrays; an accelerator sums groups of rows in parallel, or most of it would be idle."""
    if not _in_groups(a.shape[0], a, b):
        return a.T @ b
    (left, left_end), (right, right_end) = (_grouped(c, 0) for c in (a, b))
    return jnp.einsum("gcm,gcn->gmn", left, right).sum(0) + left_end.T @ right_end


def inner_of_wide(a: Float[AnyArray, "m d"], b: Float[AnyArray, "n d"]) -> Float[AnyArray, "m n"]:
    """a bᵀ for wide arrays, in groups like `inner`."""
    if not _in_groups(a.shape[1], a, b):
        return a @ b.T
    (left, left_end), (right, right_end) = (_grouped(c, 1) for c in (a, b))
    return jnp.einsum("mgc,ngc->gmn", left, right).sum(0) + left_end @ right_end.T


def wide_times(a: Float[AnyArray, "m d"], b: Float[AnyArray, "d n"]) -> Float[AnyArray, "m n"]:
    """a b for a wide and a long array, in groups like `inner`."""
    if not _in_groups(a.shape[1], a, b):
        return a @ b
    (left, left_end), (right, right_end) = _grouped(a, 1), _grouped(b, 0)
    return jnp.einsum("mgc,gcn->gmn", left, right).sum(0) + left_end @ right_end


def _in_groups(d: int, *arrays: Any) -> bool:
    return d >= 2 * GROUP and is_jax(*arrays) and platform() != "cpu"


def _grouped(a: Array, axis: int) -> tuple[Array, Array]:
    """The axis in groups of one size, and the remainder, which is empty if d has a suitable divisor."""
    d = a.shape[axis]
    size = next((g for g in range(GROUP, GROUP // 2, -1) if d % g == 0), GROUP)
    cut = d - d % size
    whole, end = jnp.split(a, [cut], axis)
    return whole.reshape(*a.shape[:axis], -1, size, *a.shape[axis + 1 :]), end


def times_vector(a: Float[AnyArray, "*m n"], v: Float[AnyArray, " n"]) -> Float[AnyArray, "*m"]:
    """a v in full precision.

    If matrix products are sums of products of 8-bit parts (`precision.full_precision_products`), XLA turns
    a product with a vector into a sum and rounds its terms to 8 bits, with errors of 10⁻³ of the terms.
    """
    if not is_jax(a, v) or platform() == "cpu":
        return a @ v
    if not _in_groups(v.shape[0], a, v):
        return jnp.sum(a * jnp.broadcast_to(v, a.shape), axis=-1)
    (left, left_end), (right, right_end) = _grouped(a, a.ndim - 1), _grouped(v, 0)
    whole = jnp.sum(left * jnp.broadcast_to(right, left.shape), (-2, -1))
    return whole + jnp.sum(left_end * jnp.broadcast_to(right_end, left_end.shape), -1)


def steady_cholesky(a: Float[AnyArray, "n n"]) -> Float[AnyArray, "n n"]:
    """The lower Cholesky root of a sum of squares that rounding may have made indefinite.

    Its diagonal is raised by the rounding error of a sum, a share of n eps.
    """
    xp, share = namespace_of(a), 2 * a.shape[0] * float(jnp.finfo(a.dtype).eps)
    return cholesky(a + share * xp.diag(xp.diagonal(a)))


def semidefinite_root(a: Float[AnyArray, "*n c c"]) -> Float[AnyArray, "*n c c"]:
    """The lower Cholesky root of a small matrix that may be singular, such as zero, or of each of several.

    When the remainder of a diagonal entry is below 4 c eps of the entry, it counts as rounding, and its
    column becomes zero. So entry (i, j) of root rootᵀ − a is rounding in units of √(aᵢᵢ aⱼⱼ).
    """
    xp, c = namespace_of(a), a.shape[-1]
    least = 4 * c * float(jnp.finfo(a.dtype).eps) * xp.diagonal(a, axis1=-2, axis2=-1)
    places = xp.arange(c)

    def eliminate(k, carry):
        rest, root = carry
        pivot = rest[..., k, k]
        alive = pivot > least[..., k]
        scale = xp.sqrt(xp.where(alive, pivot, 1))
        column = xp.where(alive[..., None], rest[..., k, :] / scale[..., None], 0)
        column = xp.where(places >= k, column, 0)
        outer = column[..., :, None] * column[..., None, :]
        return rest - outer, xp.where(places[None, :] == k, column[..., :, None], root)

    return repeat(c, eliminate, (a, xp.zeros_like(a)))[1]


def semidefinite_factor(a: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """A root of a covariance that may be singular: the Cholesky root, or the symmetric one if that
    fails."""
    try:
        return steady_cholesky(a)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(a)
        return vectors * np.sqrt(np.maximum(values, 0))[None, :]


def cho_solve(root: Float[AnyArray, "n n"], b: Float[AnyArray, "n *k"]) -> Float[AnyArray, "n *k"]:
    """(root rootᵀ)⁻¹ b for a lower-triangular root."""
    if is_jax(root, b):
        return jsl.cho_solve((root, True), b)
    # not SciPy's, because the threads of its BLAS contend with NumPy's
    return np.linalg.solve(root.T, np.linalg.solve(root, b))


def solve_rows(root: Float[Array, "p p"], a: Float[Array, "d p"]) -> Float[Array, "d p"]:
    """A L^{-T} for a lower-triangular L and a long A, row by row."""
    return sharding.map_rows(lambda rows: jsl.solve_triangular(root, rows.T, lower=True).T, a)


def triangular_inverse(root: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse of a lower-triangular matrix; in XLA by halves, so that most of the work is fast
    products."""
    n = root.shape[0]
    if n <= INVERTED_AT_ONCE or is_traced_for_numpy():
        return jsl.solve_triangular(root, identity_like(root), lower=True)
    h = n // 2
    first, last = triangular_inverse(root[:h, :h]), triangular_inverse(root[h:, h:])
    between = -last @ (root[h:, :h] @ first)
    return jnp.block([[first, jnp.zeros((h, n - h), root.dtype)], [between, last]])


def root_from_precision(precision: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """R with R Rᵀ = precision⁻¹."""
    lower = cholesky(precision)
    return jsl.solve_triangular(lower, identity_like(precision), lower=True).T


def inverse_root(root: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """R^{-T}, the root of the inverse of R Rᵀ."""
    return jnp.linalg.solve(root.T, identity_like(root))


def root_logdet(root: Float[Array, "d d"]) -> Float[Array, ""]:
    """log|R Rᵀ|."""
    return 2 * jnp.linalg.slogdet(root)[1]


def shrink_root(
    root: Float[Array, "d d"],
    rows: Float[Array, "b d"],
    products: Float[Array, "b b"],
    scale: Float[Array, " b"] | Float[Array, "n c c"],
) -> Float[Array, "d d"]:
    """The root of ((R Rᵀ)⁻¹ + Xᵀ S Sᵀ X)⁻¹, given rows = X R, rows rowsᵀ and S as in `scale_blocks`."""
    a = scale_blocks_transposed(scale, rows)
    gram = scale_blocks_transposed(scale, scale_blocks_transposed(scale, products).T)
    identity = identity_like(gram)
    # the c rows of a block may be far more similar than rows of different observations
    lower = (cholesky if scale.ndim == 1 else steady_cholesky)(identity + gram)
    half = jsl.solve_triangular(lower + identity, identity, lower=True)
    gain = jsl.solve_triangular(lower, half, lower=True, trans=1)
    return root - (root @ a.T) @ (gain @ a)


def add_roots(one: Float[Array, "d d"], other: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The root of R Rᵀ + Q Qᵀ."""
    return jnp.linalg.qr(jnp.concatenate([one.T, other.T]), mode="r").T


def fade_root(
    root: Float[Array, "d d"], keep: Float[Array, ""], added: Float[Array, "d d"]
) -> Float[Array, "d d"]:
    """The root of R (keep I + A)⁻¹ Rᵀ, where A is positive semidefinite up to rounding."""
    share = 2 * added.shape[0] * float(jnp.finfo(added.dtype).eps)  # as in `steady_cholesky`
    raised = keep + share * jnp.diagonal(added)
    lower = cholesky(added + jnp.diag(raised))
    return jsl.solve_triangular(lower, root.T, lower=True).T


def sweep(
    visit: Callable, total: Any, read: Any, wide: Float[AnyArray, "b d"], written: Any = ()
) -> tuple[Any, Any]:
    """Fold over d, one chunk at a time, and overwrite some of the arrays on the way.

    `read` and `written` are pytrees of arrays with d rows, `wide` has d columns.
    visit(total, rows of read, columns of wide, rows of written, fresh) gives the next total and the new
    rows of `written`. The last chunk reaches back so that all have one size; `fresh` is 1 for rows that
    were in no earlier chunk and 0 for the others, whose new values are ignored.

    If d is spread over devices (`sharding`), each sweeps over its own rows and their additions to `total`
    are summed: `visit` may change it only by adding. NumPy, which overwrites nothing, takes one chunk.
    """
    if not is_jax(read, wide):
        return visit(total, read, wide, written, np.ones(wide.shape[1], wide.dtype))
    if sharding.splits(wide.shape[1]):
        return _sweep_pieces(visit, total, read, wide, written)
    b, d = wide.shape
    width = b + sum(a.size // d for a in jax.tree.leaves((read, written)))
    size = max(CHUNK_ROWS, CHUNK_NUMBERS // width)
    size = size if platform() == "cpu" else CHUNK_ROWS_ACCELERATOR
    if d <= size:
        return visit(total, read, wide, written, jnp.ones(d, wide.dtype))

    def advance(i, carry):
        total, written = carry
        first = jnp.minimum(i * size, d - size)
        fresh = jnp.arange(size) >= i * size - first

        def rows(tree):
            return jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, first, size), tree)

        columns = jax.lax.dynamic_slice_in_dim(wide, first, size, axis=1)
        old = rows(written)
        total, new = visit(total, rows(read), columns, old, fresh.astype(wide.dtype))

        def put(whole, new, old):
            kept = jnp.where(fresh.reshape((size,) + (1,) * (new.ndim - 1)), new, old)
            return jax.lax.dynamic_update_slice_in_dim(whole, kept, first, axis=0)

        return total, jax.tree.map(put, written, new, old)

    return jax.lax.fori_loop(0, -(-d // size), advance, (total, written))


def _sweep_pieces(visit: Callable, total: Any, read: Any, wide: Array, written: Any):
    def own(read, wide, written):
        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), total)
        added, written = sweep(visit, nothing, read, wide, written)
        return sharding.sum_over_devices(added), written

    specs = (sharding.ROWS, sharding.COLUMNS, sharding.ROWS)
    added, written = sharding.on_each_device(own, specs, (sharding.WHOLE, sharding.ROWS))(
        read, wide, written
    )
    return jax.tree.map(jnp.add, total, added), written


def orthonormal_basis(a: Float[Array, "d q"]) -> Float[Array, "d k"]:
    """An orthonormal basis of the columns; if d is spread over devices, by a QR of their R factors."""
    if not sharding.splits(a.shape[0]):
        return jnp.linalg.qr(a)[0]

    def own(a):
        q, r = jnp.linalg.qr(a)
        stacked = jax.lax.all_gather(r, sharding.AXIS, tiled=True)
        turn = jnp.linalg.qr(stacked)[0].reshape(-1, r.shape[0], r.shape[1])
        return q @ turn[jax.lax.axis_index(sharding.AXIS)]

    return sharding.on_each_device(own, (sharding.ROWS,), sharding.ROWS)(a)
