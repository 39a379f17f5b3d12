"""Whether a fit has room on this machine, before anything is allocated."""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

SQUARES = 12
"""N × N arrays that an exact fit holds at its height, as measured; scikit-learn's kernels take more."""
FEATURES = 4
"""N × M arrays that a sparse fit of all rows holds."""


def check_memory(n: int, dtype: Any, more: int = 0) -> None:
    """Refuse an exact fit that this machine cannot hold.

    `more` are the N × N arrays of a kernel's own derivatives.
    """
    needed, there = n**2 * (SQUARES * np.dtype(dtype).itemsize + more * 8), available_memory()
    if there is not None and needed > there:
        raise ValueError(
            f"an exact Gaussian process of {n} rows needs about {_size(needed)} and there are "
            f"{_size(there)}; use sparse=True, which needs N · n_inducing numbers."
        )


def check_sparse_memory(n: int, m: int, dtype: Any) -> None:
    """Refuse a fit through m inducing points that visits all rows at once and finds no room."""
    needed, there = FEATURES * n * m * np.dtype(dtype).itemsize, available_memory()
    if there is not None and needed > there:
        raise ValueError(
            f"{m} inducing points of {n} rows need about {_size(needed)} and there are {_size(there)}; "
            "use batch_size, with which memory does not grow with the rows."
        )


def available_memory() -> int | None:
    """Bytes that arrays may take where JAX puts them, if that can be known."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        return stats.get("bytes_limit")
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    limit = Path("/sys/fs/cgroup/memory.max")
    allowed = limit.read_text().strip() if limit.is_file() else "max"
    return machine if allowed == "max" else min(machine, int(allowed))


def _size(count: int | float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
