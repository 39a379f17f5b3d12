"""What results of a linear fit are read from: where an ascent ended, and states with their posteriors."""

from typing import Any, NamedTuple

from kalvi.gaussians import Gaussian
from kalvi.rules.rvga import Streaming


class Optimum(NamedTuple):
    """Where an ascent of the variational bound ended."""

    passes: int
    elbo: float
    gap: float  # squared natural-gradient norm; of a low rank, what the last pass gained, or rounding
    converged: bool


class FitResults(NamedTuple):
    """A state and its posterior, from which results are read."""

    state: Any  # a Streaming, or Copies of it with other settings
    best: Streaming  # the one with the most weight
    posterior: Gaussian  # its posterior in the user's units
    members: tuple["Member", ...]  # what predictions are averaged over


class Member(NamedTuple):
    """One of the copies whose predictions are averaged."""

    weight: float
    stream: Streaming
    posterior: Gaussian  # in the user's units


class LookAhead(NamedTuple):
    """A state of low rank with its first waiting rows absorbed, in a full covariance.

    A block of rows is projected onto the rank when it is full. Until then predictions are made from what
    its rows say without the projection: each is absorbed once, where projecting them anew with every
    prediction would cost as much as the whole block.
    """

    base: Any  # the state after the last full block
    count: int  # rows absorbed since
    state: Any
