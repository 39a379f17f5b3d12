"""Streams: how rows get to a rule.

blocks          arrays cut into blocks of a few sizes; rows that wait until a block is full
sparse_batches  blocks of rows that stay sparse
datasets        generated rows
engines         the choice between NumPy and compiled programs
run             the loop that feeds blocks to a rule, and the one place where it is compiled
"""

from kalvi.streams.blocks import (
    FIRST_BLOCK,
    SMALL_SHAPE,
    Buffer,
    Schedule,
    array_batches,
    row_blocks,
    whole_batch,
)
from kalvi.streams.sparse_batches import numbers_per_row, stays_sparse

__all__ = [
    "FIRST_BLOCK",
    "SMALL_SHAPE",
    "Buffer",
    "Schedule",
    "array_batches",
    "numbers_per_row",
    "row_blocks",
    "stays_sparse",
    "whole_batch",
]
