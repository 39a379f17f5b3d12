"""Factor analysis of a stream or a table: its covariance as F Fᵀ + diag ψ, never d × d."""

from kalvi.rules.factor_analysis.batch import Optimum, batch_em
from kalvi.rules.factor_analysis.common import (
    canonical,
    factors,
    log_densities,
    orthogonal_start,
    start,
    variances,
)
from kalvi.rules.factor_analysis.generate import random_factor_model
from kalvi.rules.factor_analysis.gradient import SGA, Climbing
from kalvi.rules.factor_analysis.online import Averaged, OnlineEM
from kalvi.rules.factor_analysis.recursive import Factored, RecursiveFA

__all__ = [
    "SGA",
    "Averaged",
    "Climbing",
    "Factored",
    "OnlineEM",
    "Optimum",
    "RecursiveFA",
    "batch_em",
    "canonical",
    "factors",
    "log_densities",
    "orthogonal_start",
    "random_factor_model",
    "start",
    "variances",
]
