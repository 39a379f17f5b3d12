"""How parameters meet inputs: the predictors f(θ, x) of a block of rows, linear in θ around one θ.

A predictor says what f is at θ and how it changes there, f(θ + δ, x) ≈ mean + rows · δ. For a linear model
that is exact.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Predictor(eqx.Module):
    """f of θ and x, with c numbers for a row of x."""

    @abstractmethod
    def linearise(
        self, theta: Float[Array, " d"], x: Float[Array, "n i"]
    ) -> tuple[Float[Array, "n c"], Float[Array, "nc d"]]:
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
        self, theta: Float[Array, " d"], x: Float[Array, "n i"]
    ) -> tuple[Float[Array, "n c"], Float[Array, "nc d"]]:
        n, width = x.shape
        identity = jnp.eye(self.outputs, dtype=x.dtype)
        rows = jnp.einsum("ni,ck->ncki", x, identity)
        mean = x @ theta.reshape(self.outputs, width).T
        return mean, rows.reshape(n * self.outputs, self.outputs * width)
