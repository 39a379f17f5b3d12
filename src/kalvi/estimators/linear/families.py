"""The likelihood of a linear model's y, and the noise that may be learned with the coefficients."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np
from scipy.special import gammaln

from kalvi.gaussians import Gaussian
from kalvi.likelihoods import Likelihood, Normal
from kalvi.rules.rvga import Streaming
from kalvi.streams import run

SCALES = np.logspace(-2, 2, 9)
"""The grid of prior_scale="auto"."""
NOISE_UNITS = np.logspace(-2, 5, 15)
"""The grid for a prior scale in units of a learned noise."""
NO_NOISE = 1e-12
"""The learned noise scale if all predictions were exact."""


@dataclass(frozen=True, eq=False)
class Family:
    """The likelihood of the stream, and whether its noise is learned.

    A learned noise is the unit of the stream, whose likelihood is then Normal(1): the conjugate
    normal–inverse-gamma model. Numbers of the likelihood are NumPy numbers, so that they keep their
    precision.
    """

    likelihood: Likelihood
    noise_scale: float | None = None  # of normal noise, if it is given
    learns_noise: bool = False

    @property
    def scales(self) -> np.ndarray:
        """The grid of prior_scale="auto"."""
        return NOISE_UNITS if self.learns_noise else SCALES

    @property
    def usual_scale(self) -> float:
        """The scale in the middle of those that a stream begins with."""
        return 10.0 if self.learns_noise else 1.0

    def is_exact(self, rank: int | None) -> bool:
        """Whether one pass reaches the optimum, so that further passes would change nothing."""
        normal = self.learns_noise or self.noise_scale is not None
        return rank is None and normal

    def fitted_likelihood(self, state: Streaming, dtype: Any) -> Likelihood:
        """The likelihood for predictions."""
        if not self.learns_noise:
            return self.likelihood
        return Normal(np.asarray(self.noise_variance(state), dtype))

    def noise_variance(self, state: Streaming) -> float:
        """The variance of normal noise, given or learned."""
        if self.noise_scale is not None:
            return self.noise_scale**2
        return float(state.innovations) / max(float(state.rows), NO_NOISE) or NO_NOISE**2

    def evidence(self, state: Streaming) -> float:
        """The log evidence of a state.

        With unknown noise, ∫ Π N(yₜ; aₜ, σ²(1 + vₜ)) dσ²/σ² = Γ(n/2) (π S)^{−n/2} Π (1 + vₜ)^{−1/2}.
        """
        n, total = float(state.rows), float(state.innovations)
        if not self.learns_noise or n == 0 or total <= 0:
            return float(state.log_evidence)
        spread = float(state.log_evidence) + n * np.log(2 * np.pi) / 2 + total / 2
        return float(gammaln(n / 2)) - n / 2 * np.log(np.pi * total) + spread

    def in_units(self, q: Any, state: Streaming, dtype: Any) -> Gaussian:
        """The posterior or the prior of a state, in the user's units."""
        if not self.learns_noise:
            return q
        return q.rescale(np.asarray(1 / self.noise_variance(state), dtype))

    def update_noise(
        self, state: Streaming, prior: Gaussian, rows: tuple, intercept: bool
    ) -> Streaming:
        """A state with a new posterior, with updated squares from which the noise is learned.

        These are the squared residuals and the prior's part.
        """
        if not self.learns_noise:
            return state
        (x, y, weight), q = rows, state.posterior
        mean = np.asarray(q.mean)
        residual = y - x @ mean[: x.shape[1]] - (mean[-1] if intercept else 0)
        share = float(run.call(_squared_distance, q, prior))
        total = np.asarray(weight @ residual**2 + share, q.mean.dtype)
        evidence = state.log_evidence + (state.innovations - total) / 2  # keeps Π (1 + vₜ)
        return eqx.tree_at(lambda s: (s.innovations, s.log_evidence), state, (total, evidence))

    def problems(self, state: Streaming) -> list[str]:
        """Warnings about a state, as sentences."""
        found = []
        if int(state.unsolved):
            unsolved = int(state.unsolved)
            found.append(f"the implicit equations of {unsolved} rows were not solved to precision.")
        if self.learns_noise and float(state.rows) > 0 and not float(state.innovations) > 0:
            found.append(
                "every y was predicted exactly, so the noise cannot be learned and is taken as "
                f"{NO_NOISE:g}; pass noise_scale= if it is known."
            )
        return found


def _squared_distance(q: Gaussian, prior: Gaussian) -> Any:
    """The squared Mahalanobis distance of q's mean from the prior."""
    away = q.mean - prior.mean
    return away @ prior.solve(away)
