"""Ctrl-C during imports, where some libraries catch KeyboardInterrupt and the command would continue."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOPPED = 1
"""The exit code of a command that the user stopped."""


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Within this context, Ctrl-C ends the process at once instead of raising KeyboardInterrupt."""
    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not default or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: Any) -> None:
    os.write(2, b"stopped.\n")
    os._exit(STOPPED)
