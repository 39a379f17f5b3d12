"""Algebra on one thread, where threads would wait for each other longer than they save.

NumPy and SciPy come with a BLAS each, and each keeps threads that spin for a while after every product or
factorisation. On a machine with few cores, or where others compute too, a chain of short ones by both takes
many times as long with these threads as without.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

from threadpoolctl import ThreadpoolController

_taken = Lock()


@contextmanager
def algebra_on_one_thread() -> Iterator[None]:
    """A context in which BLAS and LAPACK compute on the thread that calls them.

    The limit is the process's. Whoever comes first sets it and, leaving, lifts it; who comes meanwhile has
    it for so long. Two that set and lift it by turns could leave it set for ever.
    """
    if not _taken.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _taken.release()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
