"""Factor analysis of a stream or a table: its covariance as F Fᵀ + diag ψ, never d × d."""

from kalvi.algorithms.factor_analysis.batch import Optimum, batch_em
from kalvi.algorithms.factor_analysis.common import (
    canonical,
    factors,
    log_densities,
    start,
    variances,
)
from kalvi.algorithms.factor_analysis.online import Averaged, OnlineEM
from kalvi.algorithms.factor_analysis.recursive import Factored, RecursiveFA

__all__ = [
    "Averaged",
    "Factored",
    "OnlineEM",
    "Optimum",
    "RecursiveFA",
    "batch_em",
    "canonical",
    "factors",
    "log_densities",
    "start",
    "variances",
]
