"""The variance of normal noise, learned along a stream.

It is an average of the squared residuals after each block, (y − E f)² + Var f, with steps (t + 1)^{−0.6}
after t blocks.

Where the noise is instead the unit of y and of the prior (`student_evidence`), its variance has the
improper prior dσ²/σ² and is integrated out: the conjugate normal–inverse-gamma model. With n rows before
(as far as they are remembered), S the sum of their squared standardised innovations, and a row of weight
w with innovation i and log N₀ its density of unit noise at the peak, where i is 0,

    log p = log N₀ + w log(2π)/2
            + log Γ((n + w)/2) − log Γ(n/2) − (w/2) log(π (S + i)) − (n/2) log(1 + i/S).

(log N = log N₀ − i/2 would lose all digits of log N₀ where i is large.)
"""

from math import log, pi
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kalvi.likelihoods.sites import narrowed, product
from kalvi.numerics.namespaces import Scalar
from kalvi.rules.recursion import BlockSites

POWER = 0.6
MANY = 64.0
"""From so many rows on, log Γ((n + w)/2) − log Γ(n/2) is replaced by (w/2) log((n + w/2 − 1)/2), because a
difference of large numbers would lose all digits in float32."""


class LearnedNoise(eqx.Module):
    """The noise variance of each output, and the number of blocks from which it was learned."""

    variance: Float[Array, " c"]
    blocks: Int[Array, ""]

    def after(self, squares: Float[Array, " c"], some: Bool[Array, ""]) -> "LearnedNoise":
        """The estimate after a block with this average of squared residuals; unchanged if the block has no
        row."""
        step = jnp.where(some, (self.blocks + 2.0) ** -POWER, 0).astype(squares.dtype)
        return LearnedNoise(
            self.variance + step * (squares - self.variance), self.blocks + some.astype(jnp.int32)
        )


def squared_residuals(
    y: Float[Array, "n *o"], share: Float[Array, " n"], sites: BlockSites
) -> Float[Array, " c"]:
    """Σ share ((y − E f)² + Var f) after each observation, for each output."""
    curvature = sites.curvature
    if curvature.ndim == 3:
        curvature = curvature @ curvature.swapaxes(1, 2)
    after = sites.mean + jax.vmap(product)(sites.cov, sites.step)
    var = jax.vmap(narrowed)(sites.cov, curvature)
    own = var if var.ndim == 1 else jnp.diagonal(var, axis1=1, axis2=2)
    residual = (y.reshape(after.shape) - after) ** 2 + own
    return jnp.atleast_1d(share @ residual)


class NoiseSums(NamedTuple):
    """The number of rows before a block and the sum of their innovations, as far as its end remembers
    them."""

    rows: Scalar
    innovations: Scalar


def student_evidence(
    peak: Float[Array, " b"],
    before: NoiseSums,
    weight: Float[Array, " b"],
    innovations: Float[Array, " b"],
    discount: Float[Array, " b"],
) -> Float[Array, " b"]:
    """log p of each row, given log N₀ of each; 0 for a row of weight 0.

    Weights and innovations are those that the end of the block remembers, a share `discount` of each.
    """
    tiny = float(jnp.finfo(peak.dtype).tiny)
    n = (before.rows + jnp.cumsum(weight) - weight) / discount
    total = (before.innovations + jnp.cumsum(innovations) - innovations) / discount
    own, new = weight / discount, innovations / discount
    after = jnp.maximum(total + new, tiny)
    ratio = jnp.where(n > 0, n / 2 * jnp.log1p(new / jnp.maximum(total, tiny)), 0)
    small = jnp.minimum(jnp.maximum(n, tiny), MANY)
    exact = jax.lax.lgamma((small + own) / 2) - jax.lax.lgamma(small / 2)
    exact = jnp.where(n > 0, exact, jax.lax.lgamma(jnp.maximum(own, tiny) / 2))
    gamma = jnp.where(n > MANY, own / 2 * jnp.log(jnp.maximum((n + own / 2 - 1) / 2, 1)), exact)
    found = peak + own * log(2 * pi) / 2 + gamma - own / 2 * jnp.log(pi * after) - ratio
    return jnp.where(weight > 0, found, 0)
