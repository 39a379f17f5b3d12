"""What kind of machine a program is traced for, known before it is traced."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

_for_numpy = ContextVar("for_numpy", default=False)


def platform() -> str:
    """ "cpu", "gpu" or "tpu"; "cpu" for a program that NumPy runs, which starts no backend of JAX."""
    return "cpu" if _for_numpy.get() else jax.default_backend()


@contextmanager
def traced_for_numpy() -> Iterator[None]:
    """A context in which programs are traced that NumPy is to run."""
    token = _for_numpy.set(True)
    try:
        yield
    finally:
        _for_numpy.reset(token)
