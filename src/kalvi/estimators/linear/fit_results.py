"""The end of an ascent, and states with their posteriors, from which the results of a fit are read."""

from typing import Any, NamedTuple

from kalvi.gaussians import Gaussian
from kalvi.rules.rvga import Streaming


class Optimum(NamedTuple):
    """The end of an ascent of the variational bound."""

    passes: int
    elbo: float
    gap: float  # squared natural-gradient norm; for a low rank, the last gain or rounding
    converged: bool


class FitResults(NamedTuple):
    """A state and its posterior, from which results are read."""

    state: Any  # a Streaming, or Copies with different settings
    best: Streaming  # the one with the most weight
    posterior: Gaussian  # its posterior in the user's units
    members: tuple["Member", ...]  # what predictions are averaged over


class Member(NamedTuple):
    """One of the copies whose predictions are averaged."""

    weight: float
    stream: Streaming
    posterior: Gaussian  # in the user's units


class LookAhead(NamedTuple):
    """A low-rank state with its first waiting rows absorbed in a full covariance.

    A block of rows is projected onto the rank when it is full. Until then predictions use its rows without
    the projection. Each row is absorbed once; a new projection for every prediction would cost as much as
    the whole block.
    """

    base: Any  # the state after the last full block
    count: int  # the number of rows absorbed since
    state: Any
