"""The choice of the engine of a fit: NumPy, which starts at once, for small ones, and compiled programs for
others.

The first arrays of a fit decide the engine of everything that follows (`streams.run`). The choice depends
only on the numbers of rows and inducing points, so the same table gives the same bits.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from kalvi.numerics.namespaces import AnyArray
from kalvi.numerics.precision import matching_precision
from kalvi.streams import engines
from kalvi.system.threads import algebra_on_one_thread

MOST_ROWS = 1536
"""Tables with up to so many rows use NumPy. Factorisations and products, most of the work of a fit, take it
as long as a compiled program, and a compilation takes as long as about 150 of them with so many rows."""
MOST_FEATURES = 2**18
"""The limit for rows times inducing points: 1024 rows and 256 points. NumPy takes twice as long for a pass
as a program, because most of it is not factorisations."""


def is_small(rows: int) -> bool:
    """Whether NumPy computes a fit in which each of so many rows has its own latent value."""
    return rows <= MOST_ROWS


def is_small_sparse(rows: int, inducing: int) -> bool:
    """Whether NumPy computes a fit of so many rows through inducing points."""
    return rows * inducing <= MOST_FEATURES


def placed(array: Any, dtype: Any, small: bool) -> AnyArray:
    """An array as the engine of a small or a large fit needs it."""
    return engines.placed(np.asarray(array, dtype), small)


@contextmanager
def computing(dtype: Any, small: bool) -> Iterator[None]:
    """A context for all computations in a fit, or from it."""
    with matching_precision(dtype), algebra_on_one_thread() if small else nullcontext():
        yield
