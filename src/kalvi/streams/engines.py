"""The choice of an engine: NumPy, which starts at once, or a program that must be compiled first.

Formulas are written once, and the library of their arrays decides who computes (`run`). This file chooses
that library. NumPy takes about fifty times as long for a row as a compiled program, and the first
compilation takes as long as NumPy needs for about ten thousand rows. So NumPy learns the first rows of a
stream, and later calls with few rows; everything else is compiled. The choice depends only on counts, never
on a clock: the same rows in the same calls give the same bits.
"""

from typing import Any, TypeVar

import jax

from kalvi.numerics import sharding
from kalvi.numerics.namespaces import is_array, is_jax, on_device, on_host

Tree = TypeVar("Tree")

FIRST_ROWS = 2**12
"""NumPy learns so many first rows of a stream with one predictor and one prior."""
FEW_ROWS = 64
"""NumPy learns calls of up to so many rows, whenever they come."""
MOST_NUMBERS = 2**18
"""Larger states are compiled from the start, because their algebra costs more than a compilation."""


def rows_by_numpy(numbers: int, seen: int, n: int, sites: int = 1) -> int:
    """How many of the next n rows NumPy learns, `seen` rows after the beginning of the stream.

    The state has `numbers` numbers, and a row costs as much as `sites` rows of one predictor and one prior.
    """
    if sharding.device_count() > 1 or numbers > MOST_NUMBERS:
        return 0
    first = FIRST_ROWS // sites
    if n * sites <= FEW_ROWS or seen + n <= 2 * first:  # too few more for a compilation
        return n
    return min(max(first - seen, 0), n)


def is_small(tree: Any) -> bool:
    """Whether NumPy is as fast as a compiled program with a state of this size."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if is_array(leaf)]
    return sharding.device_count() == 1 and sum(leaf.size for leaf in leaves) <= MOST_NUMBERS


def placed(tree: Tree, by_numpy: bool) -> Tree:
    """The tree with arrays of NumPy or of JAX, as the engine needs them."""
    if by_numpy:
        return on_host(tree) if is_jax(tree) else tree
    return on_device(tree)
