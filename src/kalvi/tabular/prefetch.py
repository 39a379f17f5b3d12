"""Work that a thread does ahead of time, and interruptions that wait for a safe moment."""

import queue
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Item = TypeVar("Item")
WAIT = 0.1
"""Seconds between checks of whether the user asked to stop."""


class Interrupted(Exception):
    """The user asked to stop."""


class Stop:
    """Whether the user asked to stop."""

    asked: bool = False


def prefetch(items: Iterable[Item], stop: Stop, depth: int = 2) -> Iterator[Item]:
    """Make items in a thread, at most `depth` ahead of their use; errors are raised here, in order.

    If the user asks to stop while no item is ready, `Interrupted` is raised, even if the thread blocks.
    """
    ready: queue.Queue[tuple[bool, Any]] = queue.Queue(depth)
    stopped = threading.Event()

    def hand_over(entry: tuple[bool, Any]) -> None:
        while not stopped.is_set():
            try:
                return ready.put(entry, timeout=WAIT)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                hand_over((True, item))
                if stopped.is_set():
                    return
            hand_over((False, None))
        except BaseException as error:
            hand_over((False, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            more, item = _next(ready, stop)
            if more:
                yield item
            elif item is None:
                return
            else:
                raise item
    finally:
        stopped.set()


def _next(ready: "queue.Queue[tuple[bool, Any]]", stop: Stop) -> tuple[bool, Any]:
    """Wait for the next entry, unless the user asks to stop."""
    while True:
        try:
            return ready.get(timeout=WAIT)
        except queue.Empty:
            if stop.asked:
                raise Interrupted from None


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Note Ctrl-C or a SIGTERM instead of stopping; a second Ctrl-C raises KeyboardInterrupt."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def note(number: int, frame: Any) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
