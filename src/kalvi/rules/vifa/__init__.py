"""Variational inference for networks: Gaussians with a low-rank covariance or a low-rank precision."""

from kalvi.rules.vifa.gradients import Antithetic, GaussNewton, Single
from kalvi.rules.vifa.precision import PrecisionVI
from kalvi.rules.vifa.rule import VIFA, Descent
from kalvi.rules.vifa.steps import Plain, Preconditioned, Transform

__all__ = [
    "VIFA",
    "Antithetic",
    "Descent",
    "GaussNewton",
    "Plain",
    "PrecisionVI",
    "Preconditioned",
    "Single",
    "Transform",
]
