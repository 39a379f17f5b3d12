"""Schemes: how one observation updates the Gaussian of its own predictors; `scheme=` of `kalvi.RVGA`."""

from kalvi.rules.schemes import EKF, QKF, Explicit, Implicit, MirrorProx, Scheme

__all__ = ["EKF", "QKF", "Explicit", "Implicit", "MirrorProx", "Scheme"]
