"""float64 where it is needed, without changing JAX's global setting."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import jax
import numpy as np
from jax.core import Tracer

from kalvi.numerics.platforms import platform
from kalvi.numerics.program_cache import cached_programs
from kalvi.system.forks import refuse_inherited_backend

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def matching_precision(dtype: Any) -> Iterator[None]:
    """A context for the library's computations in which arrays of `dtype` keep it: 64-bit JAX for float64.

    Programs compiled within are kept on disk.
    """
    with cached_programs(), jax.enable_x64(np.dtype(dtype) == np.float64):
        yield


def full_precision_products():
    """A context in which float32 matrix products keep their 24 bits, on accelerators too.

    By default JAX rounds the factors there to 11 bits. Six products of their 8-bit parts on the tensor
    cores restore all bits, faster than plain float32. (JAX also offers nine products, but in some programs
    it silently replaces them by one product of 11 bits.)
    """
    tensor_cores = platform() == "gpu" and not has_doubles()
    return jax.default_matmul_precision("BF16_BF16_F32_X6" if tensor_cores else "highest")


@contextmanager
def in_double() -> Iterator[None]:
    """A context in which part of a computation is in float64, even inside a program of float32.

    Its products have full precision, on accelerators too.
    """
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


def has_doubles() -> bool:
    """Whether JAX is in 64-bit mode here."""
    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64


def is_traced(value: Any) -> bool:
    """Whether a value is only known inside a traced computation."""
    return isinstance(value, Tracer)


def own_precision(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Decorate a method of an object with a `mean` to run in the precision of that mean.

    Inside a traced computation the caller's precision is kept.
    """

    @wraps(method)
    def run(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        if is_traced(self.mean):
            return method(self, *args, **kwargs)
        if isinstance(self.mean, jax.Array):
            refuse_inherited_backend()
        if self.mean.dtype != np.float64:
            return method(self, *args, **kwargs)
        with jax.enable_x64(True):
            return method(self, *args, **kwargs)

    return run
