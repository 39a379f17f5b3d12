"""Theorem 4 of the R-VGA paper: the recursive update for any exponential family, here of one dimension.

q_η(θ) = h(θ) exp(⟨η, T(θ)⟩ − F(η)), with m = E[T] = ∇F(η) and I = ∇²F(η) = Cov T. The η closest to
p(y | θ) q_η₀(θ) in KL satisfies

    η = η₀ + ∇_m E_q[log p(y | θ)] = η₀ + I(η)⁻¹ Cov_q(T, log p(y | θ))                         (eqs. 96-97)

(the paper prints ⟨η, θ⟩). Integrals are sums over a grid of θ, on which everything is exact. `implicit`
goes from η towards the right-hand side as far as the bound E[log p] − KL(q_η ‖ q_η₀) rises.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class GridFamily(NamedTuple):
    """A family on a grid: weights of the points (with h in them) and T at each."""

    theta: np.ndarray
    log_weights: np.ndarray
    statistics: np.ndarray  # (points, k)

    def log_probabilities(self, eta: np.ndarray) -> np.ndarray:
        """log q of every point."""
        heights = self.log_weights + self.statistics @ eta
        return heights - np.logaddexp.reduce(heights)

    def target(self, eta: np.ndarray, before: np.ndarray, log_p: np.ndarray) -> np.ndarray:
        """The right-hand side of eq. 96."""
        q = np.exp(self.log_probabilities(eta))
        away = self.statistics - q @ self.statistics
        fisher = away.T @ (q[:, None] * away)
        return before + np.linalg.solve(fisher, away.T @ (q * log_p))

    def bound(self, eta: np.ndarray, before: np.ndarray, log_p: np.ndarray) -> float:
        """−KL(q_η ‖ p(y | θ) q_η₀)."""
        log_q = self.log_probabilities(eta)
        return float(np.exp(log_q) @ (log_p + self.log_probabilities(before) - log_q))


def on_grid(
    theta: np.ndarray,
    statistics: Callable[[np.ndarray], list[np.ndarray]],
    log_base: Callable[[np.ndarray], np.ndarray] = np.zeros_like,
) -> GridFamily:
    """A family by its statistics; the grid may be uneven."""
    return GridFamily(
        theta, log_base(theta) + np.log(np.gradient(theta)), np.stack(statistics(theta), axis=1)
    )


def normal(theta: np.ndarray) -> GridFamily:
    """T = (θ, θ²): η = (μ/P, −1/(2P))."""
    return on_grid(theta, lambda t: [t, t**2])


def gamma(theta: np.ndarray) -> GridFamily:
    """T = (log θ, θ): η = (shape − 1, −rate)."""
    return on_grid(theta, lambda t: [np.log(t), t])


def implicit(
    family: GridFamily, before: np.ndarray, log_p: np.ndarray, steps: int = 500
) -> np.ndarray:
    """The η of Theorem 4 for an observation whose log-likelihood at the points is log_p."""
    eta = before
    for _ in range(steps):
        here, move = family.bound(eta, before, log_p), family.target(eta, before, log_p) - eta
        for length in 0.5 ** np.arange(30):
            if family.bound(eta + length * move, before, log_p) >= here:
                eta = eta + length * move
                break
    return eta
