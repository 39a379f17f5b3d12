"""What kind of machine a program is traced for, known before it is traced."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

_for_numpy = ContextVar("for_numpy", default=False)


def platform() -> str:
    """ "cpu", "gpu" or "tpu"; "cpu" for a program that NumPy runs, which starts no backend of JAX."""
    return "cpu" if is_traced_for_numpy() else jax.default_backend()


def is_traced_for_numpy() -> bool:
    """Whether NumPy is to run the program that is traced here."""
    return _for_numpy.get()


@contextmanager
def traced_for_numpy() -> Iterator[None]:
    """A context in which programs are traced that NumPy is to run."""
    token = _for_numpy.set(True)
    try:
        yield
    finally:
        _for_numpy.reset(token)
