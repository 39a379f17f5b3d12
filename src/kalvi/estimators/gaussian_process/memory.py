"""Checks that a fit has room on this machine, before anything is allocated."""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from kalvi.estimators.gaussian_process.placement import is_small, is_small_sparse

SQUARES = 12
"""The measured peak of an exact fit in N × N arrays; kernels of scikit-learn take more."""
FEATURES = 4
"""The number of N × M arrays that a sparse fit of all rows holds."""


def check_memory(n: int, dtype: Any, more: int = 0) -> None:
    """Refuse an exact fit that does not fit in memory.

    `more` is the number of N × N arrays for the derivatives of the kernel.
    """
    needed = n**2 * (SQUARES * np.dtype(dtype).itemsize + more * 8)
    there = available_memory(is_small(n))
    if there is not None and needed > there:
        raise ValueError(
            f"an exact Gaussian process of {n} rows needs about {_size(needed)} and there are "
            f"{_size(there)}; use sparse=True, which needs N · n_inducing numbers."
        )


def check_sparse_memory(n: int, m: int, dtype: Any) -> None:
    """Refuse a fit of all rows at once through m inducing points that does not fit in memory."""
    needed = FEATURES * n * m * np.dtype(dtype).itemsize
    there = available_memory(is_small_sparse(n, m))
    if there is not None and needed > there:
        raise ValueError(
            f"{m} inducing points of {n} rows need about {_size(needed)} and there are {_size(there)}; "
            "use batch_size, with which memory does not grow with the rows."
        )


def available_memory(small: bool) -> int | None:
    """The bytes available to the arrays of a fit, or None if this is unknown."""
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
