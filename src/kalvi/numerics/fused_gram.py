"""The Gram matrices of a factor and a block of rows in one kernel on a GPU, in float32.

With long arrays and short sides a product of matrices must share the long dimension among all processors.
XLA finds a good way to do so by trying dozens, which takes longer than anything else in the compilation of
a stream; here the way is known. Each program has one of the three matrices and a share of the rows. Products
are six of 8-bit parts each, as in `precision.full_precision_products`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

SHARES = 44
"""Programs for each matrix: with three matrices, one for each processor of a large GPU."""
ROWS, WARPS, STAGES = 64, 8, 3
WIDEST, SMALLEST = 128, 16
"""Products are of widths that are powers of two between these."""


def serves(factor: Any, x: Any) -> bool:
    """Whether the kernel can take them: widths that fit on the chip, and offsets below 2³¹ bytes."""
    narrow = 0 < factor.shape[1] <= WIDEST and 0 < x.shape[0] <= WIDEST
    return narrow and factor.dtype == jnp.float32 and 4 * max(factor.size, x.size) < 2**31


def fused_gram(
    factor: Float[Array, "d p"],
    weight: Float[Array, " d"],
    x: Float[Array, "b d"],
    *,
    interpret: bool = False,
) -> tuple[Float[Array, "p p"], Float[Array, "p b"], Float[Array, "b b"]]:
    """With weights v: Wᵀ v W, Wᵀ v Xᵀ and X v Xᵀ."""
    d, p = factor.shape
    width = _width(max(p, x.shape[0]))
    steps = pl.cdiv(pl.cdiv(d, ROWS), SHARES)
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
    """The next power of two."""
    return max(SMALLEST, 1 << (n - 1).bit_length())


def _kernel(d, p, b, steps, factor_ref, weight_ref, x_ref, sums_ref):
    width, share = sums_ref.shape[2], pl.program_id(1)
    columns = jnp.arange(width)

    def parts(step):
        at = pl.ds((share * steps + step) * ROWS, ROWS)
        inside = at.start + jnp.arange(ROWS) < d
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


def _dot(a: Array, b: Array, over_a: int, over_b: int) -> Array:
    return jax.lax.dot_general(
        a,
        b,
        (((over_a,), (over_b,)), ((), ())),
        precision=jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X6,
        preferred_element_type=jnp.float32,
    )
