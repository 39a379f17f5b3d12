"""Rows on their way to a rule.

blocks    arrays cut into blocks of one size; rows that wait until a block is full
datasets  made-up rows
run       the loop that feeds blocks to a rule, and the one place where it is compiled
"""

from kalvi.streams.blocks import (
    FIRST_BLOCK,
    SMALL_SHAPE,
    Buffer,
    Schedule,
    array_batches,
    dense_blocks,
    whole_batch,
)

__all__ = [
    "FIRST_BLOCK",
    "SMALL_SHAPE",
    "Buffer",
    "Schedule",
    "array_batches",
    "dense_blocks",
    "whole_batch",
]
