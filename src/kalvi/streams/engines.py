"""Which engine does a job: NumPy, at once, or a program that must be compiled first.

Formulas are written once, and the arrays they are given say who computes (`run`). This file says where a
job's arrays should be. What NumPy learns from a row costs some fifty times what a compiled program does,
and a program costs, the first time, what NumPy needs for some ten thousand rows. So the first rows of a
stream are NumPy's, and so are calls of a few rows later on; all others are compiled. The choice depends on
counts alone, never on a clock: the same rows in the same calls give the same bits.
"""

from typing import Any, TypeVar

import jax

from kalvi.numerics import sharding
from kalvi.numerics.namespaces import is_array, is_jax, on_device, on_host

Tree = TypeVar("Tree")

FIRST_ROWS = 2**12
"""NumPy learns from so many rows of a stream with one predictor and one prior, before a program does."""
FEW_ROWS = 64
"""Calls of so many rows are NumPy's, whenever they come."""
MOST_NUMBERS = 2**18
"""States of more numbers are compiled for from the start: their algebra costs more than a compilation."""


def rows_by_numpy(numbers: int, seen: int, n: int, sites: int = 1) -> int:
    """How many of the next n rows of a stream NumPy learns from, `seen` rows after its beginning.

    Its state has so many numbers, and a row costs as much as `sites` rows of one predictor and one prior.
    """
    if sharding.device_count() > 1 or numbers > MOST_NUMBERS:
        return 0
    first = FIRST_ROWS // sites
    if n * sites <= FEW_ROWS or seen + n <= 2 * first:  # as many more do not repay a compilation
        return n
    return min(max(first - seen, 0), n)


def is_small(tree: Any) -> bool:
    """Whether NumPy is as fast as a compiled program with a state of this size."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if is_array(leaf)]
    return sharding.device_count() == 1 and sum(leaf.size for leaf in leaves) <= MOST_NUMBERS


def placed(tree: Tree, by_numpy: bool) -> Tree:
    """The tree with arrays of the library that the engine of a job works with."""
    if by_numpy:
        return on_host(tree) if is_jax(tree) else tree
    return on_device(tree)
