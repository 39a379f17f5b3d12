"""The interface of kernels, and kernels composed of others."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kalvi.numerics.precision import is_traced

Rows = Float[Array, "n i"]
Others = Float[Array, "m i"]
Cross = Float[Array, "n m"]
PerRow = Float[Array, " n"]
Number = Float[Array | np.ndarray, ""]
Numbers = Float[Array | np.ndarray, "*i"]  # one for all inputs, or one for each

SHOWN = 6
"""The most entries of a vector that are printed."""


class Kernel(eqx.Module):
    """A positive semidefinite function of two rows."""

    __array_ufunc__ = None  # a NumPy number times a kernel is a kernel

    @abstractmethod
    def __call__(self, x: Rows, z: Others) -> Cross:
        """The covariances of the function at rows x and at other rows z."""

    @abstractmethod
    def diagonal(self, x: Rows) -> PerRow:
        """The variance of the function at each row."""

    @abstractmethod
    def __repr__(self) -> str: ...

    def gram(self, x: Rows) -> Float[Array, "n n"]:
        """The covariance matrix of the function at the rows x, including the noise of each row."""
        return jnp.fill_diagonal(self(x, x), self.diagonal(x), inplace=False)

    def __add__(self, other: Any) -> "Sum":
        return Sum(self, _kernel(other))

    def __radd__(self, other: Any) -> "Sum":
        return Sum(_kernel(other), self)

    def __mul__(self, other: Any) -> "Product":
        return Product(self, _kernel(other))

    def __rmul__(self, other: Any) -> "Product":
        return Product(_kernel(other), self)


class Constant(Kernel):
    """An unknown number that is the same at every row; as a factor, the variance of another kernel."""

    variance: Number

    def __init__(self, variance=1.0):
        self.variance = checked_positive(variance, "Constant's variance")

    def __call__(self, x: Rows, z: Others) -> Cross:
        return jnp.full((x.shape[0], z.shape[0]), jnp.asarray(self.variance, x.dtype))

    def diagonal(self, x: Rows) -> PerRow:
        return jnp.full(x.shape[0], jnp.asarray(self.variance, x.dtype))

    def __repr__(self) -> str:
        return as_text(self, "variance")


class Sum(Kernel):
    """The sum of two independent functions."""

    left: Kernel
    right: Kernel

    def __call__(self, x: Rows, z: Others) -> Cross:
        return self.left(x, z) + self.right(x, z)

    def diagonal(self, x: Rows) -> PerRow:
        return self.left.diagonal(x) + self.right.diagonal(x)

    def __repr__(self) -> str:
        return " + ".join(_terms(self.left, self.right))


class Product(Kernel):
    """The product of two covariances."""

    left: Kernel
    right: Kernel

    def __call__(self, x: Rows, z: Others) -> Cross:
        return self.left(x, z) * self.right(x, z)

    def diagonal(self, x: Rows) -> PerRow:
        return self.left.diagonal(x) * self.right.diagonal(x)

    def __repr__(self) -> str:
        terms = zip((self.left, self.right), _terms(self.left, self.right), strict=True)
        return " * ".join(f"({text})" if isinstance(k, Sum) else text for k, text in terms)


class Fixed(Kernel):
    """A kernel whose hyperparameters are not learned."""

    kernel: Kernel

    def __call__(self, x: Rows, z: Others) -> Cross:
        return self.kernel(x, z)

    def diagonal(self, x: Rows) -> PerRow:
        return self.kernel.diagonal(x)

    def __repr__(self) -> str:
        return f"Fixed({self.kernel!r})"


def _kernel(value: Any) -> Kernel:
    """A kernel unchanged; a number as a `Constant`."""
    return value if isinstance(value, Kernel) else Constant(value)


def checked_positive(value: Any, name: str, vector: bool | None = False) -> Array | np.ndarray:
    """A positive number, or a vector of them if that is allowed (None: any shape)."""
    if not isinstance(value, jax.Array):
        try:
            value = np.asarray(value, np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"{name} must be a positive number; got {value!r}.") from None
    limit = {None: value.ndim, True: 1, False: 0}[vector]
    if value.ndim > limit or value.size == 0:
        kind = "a number or a vector with one for each input" if vector else "a number"
        raise ValueError(f"{name} must be {kind}; got shape {value.shape}.")
    if not is_traced(value) and not np.all(np.isfinite(value) & (np.asarray(value) > 0)):
        raise ValueError(f"{name} must be positive and finite; got {number_text(value)}.")
    return value


def per_input(kernel: Kernel, name: str, x: Rows) -> Float[Array, "1 i"]:
    """A hyperparameter for each input of the rows."""
    value, inputs = jnp.asarray(getattr(kernel, name), x.dtype), x.shape[1]
    if value.ndim and value.shape[0] != inputs:
        raise ValueError(
            f"{type(kernel).__name__}'s {name} needs one number, or one for each of the {inputs} "
            f"inputs of the rows; got {value.shape[0]}."
        )
    return jnp.broadcast_to(value, (inputs,))[None]


def _terms(left: Kernel, right: Kernel) -> tuple[str, str]:
    """Two kernels as text; a constant next to another kernel is written as a number."""
    numbers = [isinstance(k, Constant) for k in (left, right)]
    plain = [
        number_text(k.variance) if isinstance(k, Constant) and sum(numbers) == 1 else repr(k)
        for k in (left, right)
    ]
    return plain[0], plain[1]


def as_text(kernel: Kernel, *fields: str) -> str:
    """A kernel and its hyperparameters as text."""
    values = ", ".join(f"{name}={number_text(getattr(kernel, name))}" for name in fields)
    return f"{type(kernel).__name__}({values})"


def number_text(value: Any) -> str:
    """A hyperparameter to three digits."""
    if value is None:
        return "None"
    if is_traced(value):
        return f"{value.dtype}{list(value.shape)}"
    if np.ndim(value) == 0:
        return f"{float(value):.3g}"
    entries = [f"{float(v):.3g}" for v in np.ravel(value)[:SHOWN]]
    return f"[{', '.join(entries + ['…'] * (np.size(value) > SHOWN))}]"
