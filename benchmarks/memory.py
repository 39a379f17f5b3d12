"""Resident memory of this process, and runs in a process of their own."""

import ctypes
import multiprocessing
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident() -> float:
    """MB of memory that are resident now."""
    return _field("VmRSS")


def peak() -> float:
    """The most MB since the process began, or since `forget_peak`."""
    return _field("VmHWM")


def forget_peak() -> None:
    """Begin the peak again from what is resident now, after what was freed has been given back."""
    ctypes.CDLL(None).malloc_trim(0)
    FORGET.write_text("5")


class Worker:
    """A process of its own that stays until it is closed: libraries with threads do not meet there."""

    def __init__(self):
        self.pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))

    def call(self, function: Callable, *args) -> Any:
        return self.pool.submit(function, *args).result()

    def close(self) -> None:
        self.pool.shutdown()


def apart(function: Callable, *args) -> Any:
    """function(*args) in a fresh process, which ends with it."""
    worker = Worker()
    try:
        return worker.call(function, *args)
    finally:
        worker.close()


def _field(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text())
    assert found is not None
    return int(found[1]) * 1.024e-3
