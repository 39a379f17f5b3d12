"""Metrics: how good a prediction is, and how good a posterior is."""

from kalvi.evaluation.metrics import (
    brier,
    calibration,
    calibration_error,
    coverage,
    elbo,
    entropy,
    log_loss,
)
from kalvi.evaluation.psis import Diagnosis, psis
from kalvi.gaussians.divergences import wasserstein

__all__ = [
    "Diagnosis",
    "brier",
    "calibration",
    "calibration_error",
    "coverage",
    "elbo",
    "entropy",
    "log_loss",
    "psis",
    "wasserstein",
]
