"""Projections: how a precision returns to low rank after a block of rows; see `kalvi.LowRankPrecision`."""

from kalvi.numerics.projections import EM, Eigen, Projection

__all__ = ["EM", "Eigen", "Projection"]
