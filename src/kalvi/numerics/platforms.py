"""The platform that a program is traced for, known before the tracing."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

_for_numpy = ContextVar("for_numpy", default=False)


def platform() -> str:
    """ "cpu", "gpu" or "tpu"; "cpu" for a program that NumPy runs, which starts no backend of JAX."""
    return "cpu" if is_traced_for_numpy() else jax.default_backend()


def is_traced_for_numpy() -> bool:
    """Whether NumPy will run the program that is being traced."""
    return _for_numpy.get()


@contextmanager
def traced_for_numpy() -> Iterator[None]:
    """A context for tracing programs that NumPy will run."""
    token = _for_numpy.set(True)
    try:
        yield
    finally:
        _for_numpy.reset(token)
