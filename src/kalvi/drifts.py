"""Drifts: how coefficients change between rows; `drift=` of `kalvi.RVGA` and of the linear models."""

from kalvi.rules.drifts import Drift, Geometric, OrnsteinUhlenbeck, RandomWalk

__all__ = ["Drift", "Geometric", "OrnsteinUhlenbeck", "RandomWalk"]
