"""How parameters meet inputs: the predictors f(θ, x) of a block of rows, linear in θ around one θ.

A predictor says what f is at θ and how it changes there, f(θ + δ, x) ≈ mean + rows · δ. For a linear model
that is exact.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi import sharding
from kalvi.namespaces import AnyArray, namespace_of

Parameters = Float[AnyArray, " d"]
Rows = Float[AnyArray, "n i"]


class Predictor(eqx.Module):
    """f of θ and x, with c numbers for a row of x."""

    @abstractmethod
    def linearise(
        self, theta: Parameters, x: Rows
    ) -> tuple[Float[AnyArray, "n c"], Float[AnyArray, "nc d"]]:
        """f at θ, and its derivatives: c rows for the first x, then c for the next."""


class Linear(Predictor):
    """One number a row, f = xᵀθ."""

    def linearise(
        self, theta: Float[Array, " d"], x: Float[Array, "n d"]
    ) -> tuple[Float[Array, "n 1"], Float[Array, "n d"]]:
        return (x @ theta)[:, None], x


class MultiLinear(Predictor):
    """f = B x for c outputs, where θ holds the rows of B one after the other."""

    outputs: int = eqx.field(static=True)

    def linearise(
        self, theta: Parameters, x: Rows
    ) -> tuple[Float[AnyArray, "n c"], Float[AnyArray, "nc d"]]:
        n, width = x.shape
        if sharding.divides(theta.shape[0]):
            rows = self._cut(x)
            return (rows @ theta).reshape(n, self.outputs), rows
        xp = namespace_of(theta, x)
        rows = xp.einsum("ni,ck->ncki", x, xp.eye(self.outputs, dtype=x.dtype))
        return self.mean(theta, x), rows.reshape(n * self.outputs, self.outputs * width)

    def mean(self, theta: Parameters, x: Rows) -> Float[AnyArray, "n c"]:
        """f itself."""
        return x @ theta.reshape(self.outputs, x.shape[1]).T

    def _cut(self, x: Float[Array, "n i"]) -> Float[Array, "nc d"]:
        """The rows where d is spread over devices: each has x whole and makes the columns it holds."""
        (n, width), c = x.shape, self.outputs
        own = c * width // sharding.pieces()

        def columns(x):
            at = jax.lax.axis_index(sharding.AXIS) * own + jnp.arange(own)
            mine = at[None, :] // width == jnp.arange(c)[:, None]
            rows = x[:, at % width][:, None, :] * mine[None].astype(x.dtype)
            return rows.reshape(n * c, own)

        return sharding.on_each(columns, (sharding.WHOLE,), sharding.COLUMNS)(x)

    def spread(self, x: Rows, factor: Float[AnyArray, "d k"]) -> Float[AnyArray, "n c k"]:
        """rows · factor, the rows not written out."""
        parts = factor.reshape(self.outputs, x.shape[1], factor.shape[1])
        return (x[None] @ parts).swapaxes(0, 1)

    def gather(self, x: Float[Array, "n i"], v: Float[Array, "n c *k"]) -> Float[Array, "d *k"]:
        """rowsᵀ · v."""
        summed = jnp.einsum("ni,nc...->ci...", x, v)
        return summed.reshape(self.outputs * x.shape[1], *v.shape[2:])
