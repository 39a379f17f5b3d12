"""The two sweeps of a block through a low-rank precision, each in one kernel on a GPU, in float32.

`fused_gram`: a product of long, narrow matrices must divide the long dimension among all processors. XLA
tries dozens of ways, which takes longer than anything else in the compilation of a stream; here the way is
fixed. Each program computes one of the three matrices over a share of the rows.

`fused_rows`: the projected rows of a factor and their sums of squares; every row is read once and
overwritten.

Each product is six products of 8-bit parts, as in `precision.full_precision_products`. Plain JAX
(`projections`) computes the same and tests the kernels.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from kalvi.numerics.namespaces import is_jax
from kalvi.numerics.platforms import platform
from kalvi.numerics.precision import has_doubles

SHARES = 44
"""The number of programs for each of three matrices: one for each processor of a large GPU."""
VISITED, WARPS, STAGES = 64, 8, 3
"""The rows that a program of `fused_gram` visits at once, and its launch parameters for Triton."""
TILE, PIECE, TILE_WARPS = 64, 32, 4
"""The rows of a program of `fused_rows`, the columns that it visits at once, and its warps."""
WIDEST, SMALLEST = 128, 16
"""Widths of products are powers of two between these."""


def supports(factor: Any, x: Any) -> bool:
    """Whether the kernels can run on these arrays: in 32-bit JAX on a GPU, if the arrays are small enough.

    The chip limits widths, and offsets below 2³¹ bytes limit arrays.
    """
    if platform() != "gpu" or has_doubles() or not is_jax(factor, x):
        return False
    narrow = 0 < factor.shape[1] <= WIDEST and 0 < x.shape[0] <= WIDEST
    single = factor.dtype == x.dtype == jnp.float32
    return narrow and single and 4 * max(factor.size, x.size) < 2**31


def fused_gram(
    factor: Float[Array, "d p"],
    weight: Float[Array, " d"],
    x: Float[Array, "b d"],
    *,
    interpret: bool = False,
) -> tuple[Float[Array, "p p"], Float[Array, "p b"], Float[Array, "b b"]]:
    """Wᵀ v W, Wᵀ v Xᵀ and X v Xᵀ with weights v on the long axis."""
    d, p = factor.shape
    width = _width(max(p, x.shape[0]))
    steps = pl.cdiv(pl.cdiv(d, VISITED), SHARES)
    sums = pl.pallas_call(
        partial(_kernel, d, p, x.shape[0], steps),
        grid=(3, SHARES),
        out_shape=jax.ShapeDtypeStruct((3, SHARES, width, width), jnp.float32),
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        interpret=interpret,
    )(factor, weight, x)
    own, mixed, rows = jnp.sum(sums, axis=1)
    b = x.shape[0]
    return own[:p, :p], mixed[:p, :b], rows[:b, :b]


def _width(n: int) -> int:
    """The smallest power of two that is not below n."""
    return max(SMALLEST, 1 << (n - 1).bit_length())


def _kernel(d, p, b, steps, factor_ref, weight_ref, x_ref, sums_ref):
    width, share = sums_ref.shape[2], pl.program_id(1)
    columns = jnp.arange(width)

    def parts(step):
        at = pl.ds((share * steps + step) * VISITED, VISITED)
        inside = at.start + jnp.arange(VISITED) < d
        return at, inside, triton.load(weight_ref.at[at], mask=inside, other=0.0)

    def of_factor(at, inside):
        mask = inside[:, None] & (columns < p)[None, :]
        return triton.load(factor_ref.at[at, pl.ds(0, width)], mask=mask, other=0.0)

    def of_rows(at, inside):
        mask = (columns < b)[:, None] & inside[None, :]
        return triton.load(x_ref.at[pl.ds(0, width), at], mask=mask, other=0.0)

    def own(step, total):
        at, inside, weight = parts(step)
        w = of_factor(at, inside)
        return total + _dot(w * weight[:, None], w, 0, 0)

    def mixed(step, total):
        at, inside, weight = parts(step)
        return total + _dot(of_factor(at, inside) * weight[:, None], of_rows(at, inside), 0, 1)

    def rows(step, total):
        at, inside, weight = parts(step)
        x = of_rows(at, inside)
        return total + _dot(x * weight[None, :], x, 1, 1)

    for which, visit in enumerate((own, mixed, rows)):
        pl.when(pl.program_id(0) == which)(partial(_add_up, visit, steps, sums_ref, which, share))


def _add_up(visit, steps, sums_ref, which, share):
    start = jnp.zeros(sums_ref.shape[2:], jnp.float32)
    sums_ref[which, share] = jax.lax.fori_loop(0, steps, visit, start)


def fused_rows(
    factor: Float[Array, "d p"],
    x: Float[Array, "b d"],
    kept: Float[Array, "q p"],
    scale: Float[Array, " b"],
    shared: Float[Array, " p"],
    *,
    interpret: bool = False,
) -> tuple[Float[Array, "d p"], Float[Array, " d"], Float[Array, " d"]]:
    """With Z = [W, Xᵀ diag(scale)] and K = Z kept: K √(1 − f), rowsum(Z²) − rowsum(K²), rowsum(f K²).

    The first result overwrites W.
    """
    (d, p), b = factor.shape, x.shape[0]
    out, inner, rows = _width(p), -(-p // PIECE), -(-b // PIECE)
    top, bottom = kept[:p], scale[:, None] * kept[p:]
    small = (
        jnp.pad(top, ((0, inner * PIECE - p), (0, out - p))),
        jnp.pad(bottom, ((0, rows * PIECE - b), (0, out - p))),
        jnp.pad(scale**2, (0, rows * PIECE - b)),
        jnp.pad(shared, (0, out - p)),
    )
    vector = jax.ShapeDtypeStruct((d,), jnp.float32)
    return pl.pallas_call(
        partial(_rows_kernel, d, p, b),
        grid=(pl.cdiv(d, TILE),),
        out_shape=(jax.ShapeDtypeStruct((d, p), jnp.float32), vector, vector),
        input_output_aliases={0: 0},
        compiler_params=triton.CompilerParams(num_warps=TILE_WARPS, num_stages=STAGES),
        interpret=interpret,
    )(factor, x, *small)


def _rows_kernel(
    d, p, b, factor_ref, x_ref, top_ref, bottom_ref, square_ref, shared_ref,
    new_ref, difference_ref, leaked_ref,
):  # fmt: skip
    at = pl.ds(pl.program_id(0) * TILE, TILE)
    inside = at.start + jnp.arange(TILE) < d
    columns = jnp.arange(top_ref.shape[1])

    def of_factor(i, carry):
        total, squares = carry
        piece = pl.ds(i * PIECE, PIECE)
        mask = inside[:, None] & (piece.start + jnp.arange(PIECE) < p)[None, :]
        w = triton.load(factor_ref.at[at, piece], mask=mask, other=0.0)
        return total + _dot(w, top_ref[piece, :], 1, 0), squares + jnp.sum(w**2, axis=1)

    def of_rows(i, carry):
        total, squares = carry
        piece = pl.ds(i * PIECE, PIECE)
        mask = (piece.start + jnp.arange(PIECE) < b)[:, None] & inside[None, :]
        x = triton.load(x_ref.at[piece, at], mask=mask, other=0.0)
        own = jnp.sum(x**2 * square_ref[piece][:, None], axis=0)
        return total + _dot(x, bottom_ref[piece, :], 0, 0), squares + own

    carry = jnp.zeros((TILE, len(columns)), jnp.float32), jnp.zeros(TILE, jnp.float32)
    carry = jax.lax.fori_loop(0, top_ref.shape[0] // PIECE, of_factor, carry)
    rows, squares = jax.lax.fori_loop(0, bottom_ref.shape[0] // PIECE, of_rows, carry)
    shared = shared_ref[...]
    found = squares - jnp.sum(rows**2, axis=1), jnp.sum(rows**2 * shared[None, :], axis=1)
    new = rows * jnp.sqrt(1 - shared)[None, :]
    mask = inside[:, None] & (columns < p)[None, :]
    triton.store(new_ref.at[at, pl.ds(0, len(columns))], new, mask=mask)
    for ref, values in zip((difference_ref, leaked_ref), found, strict=True):
        triton.store(ref.at[at], values, mask=inside)


def _dot(a: Array, b: Array, over_a: int, over_b: int) -> Array:
    return jax.lax.dot_general(
        a,
        b,
        (((over_a,), (over_b,)), ((), ())),
        precision=jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X6,
        preferred_element_type=jnp.float32,
    )
