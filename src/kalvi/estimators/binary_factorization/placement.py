"""The choice of the engine of a fit: NumPy, which starts at once, for small matrices, compiled programs for
others.

The first arrays of a fit decide the engine of everything that follows (`streams.run`). The choice depends
only on counts, so the same matrix gives the same bits.
"""

from typing import Any

from kalvi.numerics import sharding
from kalvi.numerics.namespaces import is_jax, on_device
from kalvi.rules.silk import Observed, Table

MOST_ENTRIES = 2**16
"""NumPy takes matrices with up to so many entries; it sweeps over them in a few milliseconds."""
MOST_PRODUCTS = 2**15
"""The limit for the number of rows and columns times the cube of the factors, the cost of their chains."""
MOST_SWEEPS = 256
"""The sweeps that NumPy makes before a program is compiled; they take as long as the compilation."""


def is_small(observed: Observed, n_factors: int) -> bool:
    """Whether NumPy converges for a matrix before a program for it would be compiled."""
    rows, cols = observed.shape
    few = rows * cols <= MOST_ENTRIES and (rows + cols) * n_factors**3 <= MOST_PRODUCTS
    return few and isinstance(observed, Table) and sharding.device_count() == 1


def placed_for(sweeps: int, state: Any, observed: Observed) -> tuple[Any, Observed]:
    """The state and the matrix on the engine of the next sweep."""
    if sweeps < MOST_SWEEPS or is_jax(state):
        return state, observed
    return on_device((state, observed))
