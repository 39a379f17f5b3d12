"""Kernels that do not depend on a distance: linear functions, noise, and your own."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.kernels.kernel import (
    Cross,
    Kernel,
    Number,
    Numbers,
    Others,
    PerRow,
    Rows,
    as_text,
    checked_positive,
    number_text,
    per_input,
)


class Linear(Kernel):
    """bias + Σᵢ varianceᵢ xᵢ zᵢ: linear functions whose slopes and constant have these variances.

    `bias=None` gives functions through the origin.
    """

    variance: Numbers
    bias: Number | None

    def __init__(self, variance=1.0, bias: Any = 1.0):
        self.variance = checked_positive(variance, "Linear's variance", vector=True)
        self.bias = None if bias is None else checked_positive(bias, "Linear's bias")

    def __call__(self, x: Rows, z: Others) -> Cross:
        return self._constant(x) + (x * per_input(self, "variance", x)) @ z.T

    def diagonal(self, x: Rows) -> PerRow:
        return self._constant(x) + jnp.sum(per_input(self, "variance", x) * x**2, axis=1)

    def _constant(self, x: Rows) -> Float[Array, ""]:
        return jnp.asarray(0.0 if self.bias is None else self.bias, x.dtype)

    def __repr__(self) -> str:
        return as_text(self, "variance", "bias")


class White(Kernel):
    """Independent noise at every row, even if two rows are equal; zero between different sets of rows."""

    variance: Number

    def __init__(self, variance=1.0):
        self.variance = checked_positive(variance, "White's variance")

    def __call__(self, x: Rows, z: Others) -> Cross:
        return jnp.zeros((x.shape[0], z.shape[0]), x.dtype)

    def diagonal(self, x: Rows) -> PerRow:
        return jnp.full(x.shape[0], jnp.asarray(self.variance, x.dtype))

    def __repr__(self) -> str:
        return as_text(self, "variance")


class Function(Kernel):
    """Your own covariance function fn(parameters, x, z), with x (n, i) and z (m, i), written in JAX.

    Parameters
    ----------
    fn : function that returns an array (n, m)
    parameters : pytree of positive numbers and arrays
    """

    fn: Callable = eqx.field(static=True)
    parameters: Any

    def __init__(self, fn: Callable, parameters: Any = ()):
        self.fn = fn
        self.parameters = jax.tree.map(
            lambda a: checked_positive(a, "Function's parameters", None), parameters
        )

    def __call__(self, x: Rows, z: Others) -> Cross:
        parameters = jax.tree.map(lambda a: jnp.asarray(a, x.dtype), self.parameters)
        found, wanted = self.fn(parameters, x, z), (x.shape[0], z.shape[0])
        if jnp.shape(found) != wanted:
            raise ValueError(
                f"the function of a Function kernel must return shape {wanted} for {wanted[0]} and "
                f"{wanted[1]} rows; it returned {jnp.shape(found)}."
            )
        return found

    def diagonal(self, x: Rows) -> PerRow:
        return jax.vmap(lambda row: self(row[None], row[None])[0, 0])(x)

    def __repr__(self) -> str:
        entries = jax.tree_util.tree_flatten_with_path(self.parameters)[0]
        text = [getattr(self.fn, "__name__", repr(self.fn))]
        for path, leaf in entries:
            name = jax.tree_util.keystr(path, simple=True, separator=".") or "parameters"
            text.append(f"{name}={number_text(leaf)}")
        return f"Function({', '.join(text)})"
