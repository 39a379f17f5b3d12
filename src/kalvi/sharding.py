"""Sharding: parameters spread over several devices."""

from kalvi.numerics.sharding import columns, device_count, gather, over, rows, spread

__all__ = ["columns", "device_count", "gather", "over", "rows", "spread"]
