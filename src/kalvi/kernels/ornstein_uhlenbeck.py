"""The Ornstein–Uhlenbeck prior of factors along ordered locations, with operators in linear time.

Document 004, "Scaleable inference for logistic Kalmans" (2019), section 2. Factor k of row r, at location
lᵣ, has

    E uᵣₖ = μₖ,     cov(uᵣₖ, uₛₖ) = σₖ² exp(−½ ρₖ |lᵣ − lₛ|),     factors independent.

With the gaps dᵣ = lᵣ₊₁ − lᵣ > 0 and πᵣ = exp(−½ ρ dᵣ) its precision is tridiagonal, Σ⁻¹ = Φ − D. It is kept
as the springs and loads of `kalvi.numerics.tridiagonal`, which do not cancel when π → 1:

    eᵀΣ⁻¹e = Σ loadᵣ eᵣ² + Σ linkᵣ (eᵣ₊₁ − eᵣ)²,     linkᵣ = πᵣ / (σ²(1 − πᵣ²)),
    loadᵣ  = (1 − πᵣ₋₁πᵣ) / (σ²(1 + πᵣ₋₁)(1 + πᵣ)),   π beyond the ends = 0,
    log|Σ| = n log σ² + Σ log(1 − πᵣ²).

So Σ⁻¹1 = load. (The document's cheat sheet takes the wrong gap in the last row of D, lets k run to N_k and
omits a logarithm; its ξ_{r′k′} in section 2 is ξ_{r′k}.) A rate ρ = ∞ means no smoothness: π = 0.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.numerics import tridiagonal

Sequence = Float[Array, "n k"]
Between = Float[Array, "m k"]  # m = n − 1


class OrnsteinUhlenbeck(eqx.Module):
    """Independent Ornstein–Uhlenbeck processes, one for each factor, at n ordered locations."""

    gaps: Float[Array, " m"]  # between neighbouring locations, positive
    mean: Float[Array, " k"]  # μ
    variance: Float[Array, " k"]  # σ²
    rate: Float[Array, " k"]  # ρ
    even: bool = eqx.field(static=True, default=False)  # whether all gaps are equal

    @property
    def n(self) -> int:
        return len(self.gaps) + 1

    def correlation(self) -> Between:
        """π of neighbours."""
        return jnp.exp(self._log_correlation())

    def links(self) -> Between:
        """The off-diagonal of D: how strongly neighbours are tied to each other."""
        return link(self._log_correlation()) / self.variance[None]

    def loads(self) -> Sequence:
        """Σ⁻¹1: how strongly each location is tied to the prior mean."""
        log = self._log_correlation()
        ends = jnp.full((1, len(self.rate)), -jnp.inf, log.dtype)
        before, after = jnp.concatenate([ends, log]), jnp.concatenate([log, ends])
        return load(before, after) / self.variance[None]

    def phi(self) -> Sequence:
        """The diagonal of Φ."""
        links = self.links()
        beside = jnp.pad(links, ((1, 0), (0, 0))) + jnp.pad(links, ((0, 1), (0, 0)))
        return self.loads() + beside

    def neighbours(self, u: Sequence) -> Sequence:
        """D u."""
        links = self.links()
        left = jnp.pad(links * u[:-1], ((1, 0), (0, 0)))
        return left + jnp.pad(links * u[1:], ((0, 1), (0, 0)))

    def precision(self, u: Sequence) -> Sequence:
        """Σ⁻¹ u = (Φ − D) u."""
        return self.loads() * u + tridiagonal.spring(self.links(), u)

    def quadratic(self, square: Sequence, step_square: Between) -> Float[Array, " k"]:
        """E eᵀΣ⁻¹e of every factor, given E eᵣ² and E (eᵣ₊₁ − eᵣ)²."""
        held = jnp.sum(self.loads() * square, axis=0)
        return held + jnp.sum(self.links() * step_square, axis=0)

    def logdet(self) -> Float[Array, " k"]:
        """log|Σ| of every factor."""
        between = log_innovation(self._log_correlation())
        return self.n * jnp.log(self.variance) + jnp.sum(between, axis=0)

    def _log_correlation(self) -> Between:
        return -self.rate[None] * self.gaps[:, None] / 2


def link(log_correlation: Array) -> Array:
    """π / (1 − π²), given log π."""
    return jnp.exp(log_correlation) / -jnp.expm1(2 * log_correlation)


def load(before: Array, after: Array) -> Array:
    """(1 − ππ′) / ((1 + π)(1 + π′)), given log π and log π′ of the gaps on both sides."""
    return -jnp.expm1(before + after) / ((1 + jnp.exp(before)) * (1 + jnp.exp(after)))


def log_innovation(log_correlation: Array) -> Array:
    """log(1 − π²), given log π."""
    return jnp.log(-jnp.expm1(2 * log_correlation))
