"""Factor analysis of a stream or a table: its covariance as F Fᵀ + diag ψ, without d × d arrays."""

from kalvi.rules.factor_analysis.batch import FactorOptimum, batch_em
from kalvi.rules.factor_analysis.factor_model import (
    canonical,
    expected_factors,
    feature_variances,
    log_densities,
    orthogonal_start,
    start,
)
from kalvi.rules.factor_analysis.generate import random_factor_model
from kalvi.rules.factor_analysis.gradient import SGA, SGAState
from kalvi.rules.factor_analysis.online import OnlineEM, OnlineEMState
from kalvi.rules.factor_analysis.recursive import RecursiveFA, RecursiveFAState

__all__ = [
    "SGA",
    "FactorOptimum",
    "OnlineEM",
    "OnlineEMState",
    "RecursiveFA",
    "RecursiveFAState",
    "SGAState",
    "batch_em",
    "canonical",
    "expected_factors",
    "feature_variances",
    "log_densities",
    "orthogonal_start",
    "random_factor_model",
    "start",
]
