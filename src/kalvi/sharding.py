"""Sharding: parameters spread over several devices."""

from kalvi.numerics.sharding import columns, gathered, over, pieces, rows, spread

__all__ = ["columns", "gathered", "over", "pieces", "rows", "spread"]
