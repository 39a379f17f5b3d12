"""Linear algebra on one thread, for products so short that more threads would cost time.

NumPy and SciPy each come with a BLAS, whose threads keep spinning for a while after every product or
factorisation. On a machine with few or busy cores, a chain of short operations of both takes many times as
long with these threads as without.
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

    The limit applies to the whole process. The first context to open sets it and lifts it on closing;
    contexts opened in the meantime share it. (If each set and lifted it, overlapping ones could leave it
    set forever.)
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
