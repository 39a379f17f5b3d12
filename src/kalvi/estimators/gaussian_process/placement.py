"""Where a fit is computed: by NumPy at once if it is small, by programs compiled for it otherwise.

The arrays that a fit begins with say it for all that follows (`streams.run`). It depends on the numbers of
rows and inducing points alone, so that the same table gives the same bits.
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
"""Tables of so many rows are NumPy's. Factorisations and products, most of a fit, cost it as much as they
cost a compiled program, and one is compiled in the time that some 150 of them take for so many rows."""
MOST_FEATURES = 2**18
"""The same for rows times inducing points: 1024 rows and 256 points. A pass costs NumPy twice as much as it
costs a program, since most of it is not factorisations."""


def is_small(rows: int) -> bool:
    """Whether NumPy computes where each of so many rows has a latent value of its own."""
    return rows <= MOST_ROWS


def is_small_sparse(rows: int, inducing: int) -> bool:
    """Whether NumPy computes where so many rows go through inducing points."""
    return rows * inducing <= MOST_FEATURES


def placed(array: Any, dtype: Any, small: bool) -> AnyArray:
    """An array of a small fit, or of another."""
    return engines.placed(np.asarray(array, dtype), small)


@contextmanager
def computing(dtype: Any, small: bool) -> Iterator[None]:
    """A context for all that is computed in a fit, or from it."""
    with matching_precision(dtype), algebra_on_one_thread() if small else nullcontext():
        yield
