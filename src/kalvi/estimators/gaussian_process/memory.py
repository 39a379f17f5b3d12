"""Whether a fit has room on this machine, before anything is allocated."""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from kalvi.estimators.gaussian_process.placement import is_small, is_small_sparse

SQUARES = 12
"""N × N arrays that an exact fit holds at its height, as measured; scikit-learn's kernels take more."""
FEATURES = 4
"""N × M arrays that a sparse fit of all rows holds."""


def check_memory(n: int, dtype: Any, more: int = 0) -> None:
    """Refuse an exact fit that this machine cannot hold.

    `more` are the N × N arrays of a kernel's own derivatives.
    """
    needed = n**2 * (SQUARES * np.dtype(dtype).itemsize + more * 8)
    there = available_memory(is_small(n))
    if there is not None and needed > there:
        raise ValueError(
            f"an exact Gaussian process of {n} rows needs about {_size(needed)} and there are "
            f"{_size(there)}; use sparse=True, which needs N · n_inducing numbers."
        )


def check_sparse_memory(n: int, m: int, dtype: Any) -> None:
    """Refuse a fit through m inducing points that visits all rows at once and finds no room."""
    needed = FEATURES * n * m * np.dtype(dtype).itemsize
    there = available_memory(is_small_sparse(n, m))
    if there is not None and needed > there:
        raise ValueError(
            f"{m} inducing points of {n} rows need about {_size(needed)} and there are {_size(there)}; "
            "use batch_size, with which memory does not grow with the rows."
        )


def available_memory(small: bool) -> int | None:
    """Bytes that arrays of a fit may take where they are, if that can be known."""
    if not small and (device := jax.devices()[0]).platform != "cpu":
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
