"""SILK: binary matrices as products of factors that vary smoothly along the rows and columns."""

from kalvi.rules.silk import (
    SILK,
    Chains,
    Coupled,
    Exact,
    Jacobi,
    MeanField,
    StochasticSILK,
    Table,
    elbo,
    entries,
    log_likelihood,
    places,
    probabilities,
    spread,
    start,
    unordered,
)

__all__ = [
    "SILK",
    "Chains",
    "Coupled",
    "Exact",
    "Jacobi",
    "MeanField",
    "StochasticSILK",
    "Table",
    "elbo",
    "entries",
    "log_likelihood",
    "places",
    "probabilities",
    "spread",
    "start",
    "unordered",
]
