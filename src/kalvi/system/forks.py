"""Refuses to use JAX in a child forked from a process that used it, where it would wait forever.

Computations by NumPy (`streams.engines`) are not affected.

A fork copies the memory of a process but none of its threads. JAX's backend is a pool of threads, so a
child that inherits a started one waits for workers that do not exist.
"""

import os

from jax._src import xla_bridge

_inherited = False
"""Whether this process was forked from one that had started JAX's backend."""


def backend_started() -> bool:
    """Whether this process has a backend of JAX, started here or inherited through a fork."""
    return xla_bridge.backends_are_initialized()


def refuse_inherited_backend() -> None:
    """Raise an error if JAX would wait for threads that a fork did not copy."""
    if _inherited:
        raise RuntimeError(
            "this process was forked from one that had started JAX, which would wait forever here; "
            'start workers with "spawn" or "forkserver", or fork before JAX is started. Models of few '
            "rows, and predictions of linear models, need no JAX and work after a fork."
        )


def _after_fork() -> None:
    global _inherited
    _inherited = _inherited or backend_started()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
