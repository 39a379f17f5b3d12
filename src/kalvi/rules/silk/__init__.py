"""SILK, scaleable inference for logistic Kalmans: smooth binary matrix factorisation.

Document 004, "Scaleable inference for logistic Kalmans" (2019). A binary matrix X has the logits ψ = UAᵀ of
a few factors of its rows and columns, which vary smoothly along the locations of the rows and columns.

| document                                   | here                                                      |
|--------------------------------------------|-----------------------------------------------------------|
| KalmanParameters                           | `Side`: an `OrnsteinUhlenbeck` prior and a `Posterior`    |
| SilkParameters, transpose                  | `Silk`, `Silk.transpose`                                  |
| BinaryMatrixMinusOneHalfWithCornerCut      | `Table` of signs 2X̃ (any mask), `Entries`                 |
| BinaryMatrixMinusOneHalfJustACorner        | the same, with the other mask                             |
| mult Phi, mult D                           | `prior.phi() * u`, `prior.neighbours(u)`                  |
| mult Sigma (it multiplies by Σ⁻¹)          | `prior.precision(u)`                                      |
| log|Σ|, quadratic form                     | `prior.logdet`, `prior.quadratic`                         |
| mult Psi, solve_Psi_Phi                    | `Statistics.curvature` (blocks of Ψ), `Jacobi`            |
| kalman KL, data_loss, ELBO                 | `Side.kl`, `Statistics.loss`, `elbo`                      |
| test loss                                  | `log_likelihood(plug_in=True)`                            |
| variational update                         | `update_rows` with `Exact` or `Jacobi`                    |
| prior gaussian update, prior smoothing update | `with_best_prior`, both at once (`papers.silk_priors`) |
| initialisation (7)                         | `start`                                                   |
| the same for α                             | the transposed `Silk` and the transposed table            |
"""

from kalvi.rules.silk.entries import Entries, list_entries
from kalvi.rules.silk.expected import ExpectedSILK, ExpectedSILKState
from kalvi.rules.silk.interpolation import Bridge, Neighbours, bridge, find_neighbours
from kalvi.rules.silk.locations import (
    DeviceLocations,
    Locations,
    group_locations,
    separate_ties,
    unordered_locations,
)
from kalvi.rules.silk.model import Side, Silk, elbo, statistics, update_rows
from kalvi.rules.silk.moments import Moments
from kalvi.rules.silk.observed import Observed, Statistics
from kalvi.rules.silk.posteriors import (
    Chains,
    Coupled,
    Exact,
    Jacobi,
    MeanField,
    MeanSolver,
    Posterior,
    SideSites,
)
from kalvi.rules.silk.predict import log_likelihood, paired_probabilities, probabilities
from kalvi.rules.silk.priors import with_best_prior
from kalvi.rules.silk.rule import SILK, SILKState
from kalvi.rules.silk.start import start, start_from_factors
from kalvi.rules.silk.stochastic import StochasticSILK, StochasticSILKState
from kalvi.rules.silk.table import Table

__all__ = [
    "SILK",
    "Bridge",
    "Chains",
    "Coupled",
    "DeviceLocations",
    "Entries",
    "Exact",
    "ExpectedSILK",
    "ExpectedSILKState",
    "Jacobi",
    "Locations",
    "MeanField",
    "MeanSolver",
    "Moments",
    "Neighbours",
    "Observed",
    "Posterior",
    "SILKState",
    "Side",
    "SideSites",
    "Silk",
    "Statistics",
    "StochasticSILK",
    "StochasticSILKState",
    "Table",
    "bridge",
    "elbo",
    "find_neighbours",
    "group_locations",
    "list_entries",
    "log_likelihood",
    "paired_probabilities",
    "probabilities",
    "separate_ties",
    "start",
    "start_from_factors",
    "statistics",
    "unordered_locations",
    "update_rows",
    "with_best_prior",
]
