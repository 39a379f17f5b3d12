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
    group_locations,
    list_entries,
    log_likelihood,
    probabilities,
    separate_ties,
    start,
    unordered_locations,
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
    "group_locations",
    "list_entries",
    "log_likelihood",
    "probabilities",
    "separate_ties",
    "start",
    "unordered_locations",
]
