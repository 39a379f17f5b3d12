"""Variational inference for networks: Gaussians of low-rank covariance, and of low-rank precision."""

from kalvi.algorithms.vifa.full import FullVI
from kalvi.algorithms.vifa.gradients import Antithetic, GaussNewton, Single
from kalvi.algorithms.vifa.precision import PrecisionVI
from kalvi.algorithms.vifa.rule import VIFA, Descent
from kalvi.algorithms.vifa.steps import Plain, Preconditioned, Transform

__all__ = [
    "VIFA",
    "Antithetic",
    "Descent",
    "FullVI",
    "GaussNewton",
    "Plain",
    "PrecisionVI",
    "Preconditioned",
    "Single",
    "Transform",
]
