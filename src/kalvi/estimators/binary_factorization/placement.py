"""Where a fit is computed: by NumPy at once if the matrix is small, by programs compiled for it otherwise.

The arrays that a fit begins with say it for all that follows (`streams.run`). It depends on counts alone,
so that the same matrix gives the same bits.
"""

from typing import Any

from kalvi.numerics import sharding
from kalvi.numerics.namespaces import is_jax, on_device
from kalvi.rules.silk import Observed, Table

MOST_ENTRIES = 2**16
"""Matrices of so many entries are NumPy's, to which a sweep over them is some milliseconds."""
MOST_PRODUCTS = 2**15
"""The same for rows and columns times the cube of the factors: what their chains cost."""
MOST_SWEEPS = 256
"""Sweeps that NumPy makes before a program is compiled: as many take as long as the compilation."""


def is_small(observed: Observed, n_factors: int) -> bool:
    """Whether NumPy has swept over a matrix before a program for it is compiled."""
    rows, cols = observed.shape
    few = rows * cols <= MOST_ENTRIES and (rows + cols) * n_factors**3 <= MOST_PRODUCTS
    return few and isinstance(observed, Table) and sharding.device_count() == 1


def placed_for(sweeps: int, state: Any, observed: Observed) -> tuple[Any, Observed]:
    """State and matrix where the sweep after so many is made."""
    if sweeps < MOST_SWEEPS or is_jax(state):
        return state, observed
    return on_device((state, observed))
