"""float64 for whoever asks, without touching JAX's global setting."""

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
    """A context of the library's own work in which arrays of `dtype` keep it: 64-bit JAX if it is float64.

    What is compiled within is kept on disk.
    """
    with cached_programs(), jax.enable_x64(np.dtype(dtype) == np.float64):
        yield


def full_precision_products():
    """A context in which float32 matrix products keep their 24 bits, on accelerators too.

    There JAX would round the factors to 11 bits. Six products of their 8-bit parts on the tensor cores
    give all of them back, faster than plain float32. (Nine, which JAX offers too, are done as one product
    of 11 bits in some programs, without a word.)
    """
    tensor_cores = platform() == "gpu" and not has_doubles()
    return jax.default_matmul_precision("BF16_BF16_F32_X6" if tensor_cores else "highest")


@contextmanager
def in_double() -> Iterator[None]:
    """A context in which part of a computation is in float64, also inside a program of float32.

    Nothing is rounded in its products; on accelerators too.
    """
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


def has_doubles() -> bool:
    """Whether this is 64-bit JAX."""
    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64


def is_traced(value: Any) -> bool:
    """Whether a value is only known inside a traced computation."""
    return isinstance(value, Tracer)


def own_precision(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Run a method of something with a `mean` in the precision of that mean.

    Inside a traced computation the caller's precision already rules and nothing is done.
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
