"""Work done ahead in a thread, and interruptions that wait for a safe moment."""

import queue
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Item = TypeVar("Item")


def ahead(items: Iterable[Item], depth: int = 2) -> Iterator[Item]:
    """The items, at most `depth` of them made ahead of their use; errors come where their item would."""
    ready: queue.Queue[tuple[bool, Any]] = queue.Queue(depth)
    stopped = threading.Event()

    def hand_over(entry: tuple[bool, Any]) -> None:
        while not stopped.is_set():
            try:
                return ready.put(entry, timeout=0.1)
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
            more, item = ready.get()
            if more:
                yield item
            elif item is None:
                return
            else:
                raise item
    finally:
        stopped.set()


class Stop:
    """Whether someone asked to stop."""

    asked: bool = False


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Ctrl-C, or a polite request to end, is noted; a second Ctrl-C ends at once."""
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
