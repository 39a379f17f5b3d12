"""The variance of normal noise, learned along a stream.

It is the average of the squared residuals after each block, (y − E f)² + Var f, taken with steps
(t + 1)^{−0.6} for t blocks.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kalvi.likelihoods.sites import narrowed, product
from kalvi.rules.recursion import BlockSites

POWER = 0.6


class LearnedNoise(eqx.Module):
    """The variance of the noise of each output, and the blocks that it was learned from."""

    variance: Float[Array, " c"]
    blocks: Int[Array, ""]

    def after(self, squares: Float[Array, " c"], some: Bool[Array, ""]) -> "LearnedNoise":
        """The estimate after a block with this average of squared residuals; the same if it has no row."""
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
