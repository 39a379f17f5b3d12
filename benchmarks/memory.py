"""Resident memory of this process, and runs in a process of their own."""

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
    """Begin the peak again from what is resident now."""
    FORGET.write_text("5")


def apart(function: Callable, *args) -> Any:
    """function(*args) in a fresh process, which ends with it."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh) as pool:
        return pool.submit(function, *args).result()


def _field(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text())
    assert found is not None
    return int(found[1]) * 1.024e-3
