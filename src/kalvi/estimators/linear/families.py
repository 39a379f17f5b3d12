"""What is special about each kind of y: its likelihood, and what is learned beside the coefficients."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

from kalvi.gaussians import Gaussian
from kalvi.likelihoods import Likelihood, Normal
from kalvi.rules.rvga import Streaming

SCALES = np.logspace(-2, 2, 9)
"""The grid of prior_scale="auto"."""
NOISE_UNITS = np.logspace(-2, 5, 15)
"""The grid where the prior scale is in units of a learned noise."""
NO_NOISE = 1e-12
"""The learned noise scale where nothing was ever mispredicted."""


class Family(ABC):
    """What a linear model knows of its y."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """How many predictors a row has."""

    @property
    @abstractmethod
    def scales(self) -> np.ndarray:
        """The grid of prior_scale="auto"."""

    @property
    @abstractmethod
    def stream_likelihood(self) -> Likelihood:
        """The likelihood that the stream is run with."""

    @abstractmethod
    def is_exact(self, rank: int | None) -> bool:
        """Whether one pass ends at the optimum, so that others could change nothing."""

    @abstractmethod
    def fitted_likelihood(self, state: Streaming, dtype: Any) -> Likelihood:
        """The likelihood that predictions are made with."""

    @abstractmethod
    def evidence(self, state: Streaming) -> float:
        """The log evidence of a state."""

    @abstractmethod
    def in_units(self, q: Any, state: Streaming, dtype: Any) -> Gaussian:
        """The posterior of a state, or its prior, in the user's units."""

    @abstractmethod
    def refitted(
        self, state: Streaming, prior: Gaussian, rows: tuple, intercept: bool
    ) -> Streaming:
        """A state whose posterior has moved, with what is learned beside the coefficients brought up."""

    @abstractmethod
    def complaint(self, state: Streaming) -> str | None:
        """What the user must be told of a state, if anything."""


@dataclass(frozen=True)
class FixedFamily(Family):
    """A likelihood with nothing to learn."""

    likelihood: Likelihood

    @property
    def outputs(self) -> int:
        return self.likelihood.outputs

    @property
    def scales(self) -> np.ndarray:
        return SCALES

    @property
    def stream_likelihood(self) -> Likelihood:
        return self.likelihood

    def is_exact(self, rank: int | None) -> bool:
        return False

    def fitted_likelihood(self, state: Streaming, dtype: Any) -> Likelihood:
        return self.likelihood

    def evidence(self, state: Streaming) -> float:
        return float(state.log_evidence)

    def in_units(self, q: Any, state: Streaming, dtype: Any) -> Gaussian:
        return q

    def refitted(
        self, state: Streaming, prior: Gaussian, rows: tuple, intercept: bool
    ) -> Streaming:
        return state

    def complaint(self, state: Streaming) -> str | None:
        return None


@dataclass(frozen=True)
class NormalFamily(Family):
    """Numbers with normal noise, whose scale is given or, if it is None, learned.

    A noise that is learned is the unit of the stream: the conjugate normal–inverse-gamma model.
    """

    noise_scale: float | None

    @property
    def outputs(self) -> int:
        return 1

    @property
    def scales(self) -> np.ndarray:
        return SCALES if self.noise_scale else NOISE_UNITS

    @property
    def stream_likelihood(self) -> Likelihood:
        return Normal(self.noise_scale**2 if self.noise_scale else 1.0)

    def is_exact(self, rank: int | None) -> bool:
        return rank is None

    def fitted_likelihood(self, state: Streaming, dtype: Any) -> Likelihood:
        return Normal(np.asarray(self.noise_variance(state), dtype))

    def noise_variance(self, state: Streaming) -> float:
        """The variance of the noise, given or learned."""
        if self.noise_scale:
            return self.noise_scale**2
        return float(state.innovations) / max(float(state.rows), NO_NOISE) or NO_NOISE**2

    def in_units(self, q: Any, state: Streaming, dtype: Any) -> Gaussian:
        if self.noise_scale:
            return q
        return q.rescale(np.asarray(1 / self.noise_variance(state), dtype))

    def refitted(
        self, state: Streaming, prior: Gaussian, rows: tuple, intercept: bool
    ) -> Streaming:
        """The squared residuals, and the prior's share: what the noise is learned from."""
        if self.noise_scale:
            return state
        (x, y, weight), q = rows, state.posterior
        mean, away = np.asarray(q.mean), q.mean - prior.mean
        residual = y - x @ mean[: x.shape[1]] - (mean[-1] if intercept else 0)
        total = jnp.asarray(weight @ residual**2 + float(away @ prior.solve(away)), q.mean.dtype)
        evidence = state.log_evidence + (state.innovations - total) / 2  # Π (1 + vₜ) stays
        return eqx.tree_at(lambda s: (s.innovations, s.log_evidence), state, (total, evidence))

    def complaint(self, state: Streaming) -> str | None:
        if self.noise_scale or float(state.rows) == 0 or float(state.innovations) > 0:
            return None
        return (
            "every y was predicted exactly, so the noise cannot be learned and is taken as "
            f"{NO_NOISE:g}; pass noise_scale= if it is known."
        )

    def evidence(self, state: Streaming) -> float:
        """With unknown noise, ∫ Π N(yₜ; aₜ, σ²(1 + vₜ)) dσ²/σ² = Γ(n/2) (π S)^{−n/2} Π (1 + vₜ)^{−1/2}."""
        n, total = float(state.rows), float(state.innovations)
        if self.noise_scale or n == 0 or total <= 0:
            return float(state.log_evidence)
        spread = float(state.log_evidence) + n * np.log(2 * np.pi) / 2 + total / 2
        return float(gammaln(n / 2)) - n / 2 * np.log(np.pi * total) + spread
