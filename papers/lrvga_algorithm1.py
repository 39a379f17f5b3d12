"""Algorithm 1 of the L-RVGA paper as printed, with αₜ = (t − 1)/t and βₜ = 1/t (eq. 48).

The library's `RecursiveFA` gives the start a weight. Printed, α₁ = 0 forgets it: after the first row

    W₁ = x aᵀ/(1 + aᵀM⁻¹a),   ψ₁ = x∘x/(1 + aᵀM⁻¹a),   a = W₀ᵀΨ₀⁻¹x,

is of rank one, and EM never adds a direction but by rounding. This file shows it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.gaussians import LowRankCovariance
from kalvi.numerics import linalg
from kalvi.rules.rule import Batch, Rule

Factor = Float[Array, "d p"]
Diag = Float[Array, " d"]


class Printed(eqx.Module):
    """The covariance so far."""

    posterior: LowRankCovariance
    rows: Float[Array, ""]


class Algorithm1(Rule[Printed]):
    """The fixed point of eq. 20 on S = α (W Wᵀ + Ψ) + β x xᵀ, `loops` times a row."""

    loops: int = eqx.field(static=True)

    def init(self, prior: LowRankCovariance, *, key: PRNGKeyArray | None = None) -> Printed:
        return Printed(prior, jnp.zeros((), prior.mean.dtype))

    def update(self, state: Printed, batch: Batch, *, key: PRNGKeyArray | None = None) -> Printed:
        return jax.lax.scan(lambda s, row: (self._absorb(s, *row[:3]), None), state, batch)[0]

    def _absorb(self, state: Printed, x: Diag, y, weight) -> Printed:
        """A row of weight 0 changes nothing."""
        rows = state.rows + weight
        share = jnp.where(rows > 0, weight / jnp.maximum(rows, 1), 0)
        cov = state.posterior.covariance
        factor, diag = cov.factor, cov.diag
        for _ in range(self.loops):
            factor, diag = _fixed_point(cov, x, share, factor, diag)
        kept = jnp.where(weight > 0, factor, cov.factor), jnp.where(weight > 0, diag, cov.diag)
        return Printed(LowRankCovariance(state.posterior.mean, *kept), rows)


def _fixed_point(
    old: linalg.LowRankPlusDiagonal, x: Diag, share: Array, factor: Factor, diag: Diag
) -> tuple[Factor, Diag]:
    """V = S Ψ⁻¹ W, W ← V (I + M⁻¹ Wᵀ Ψ⁻¹ V)⁻¹, ψ ← diag(S − W M⁻¹ Vᵀ)."""
    u = linalg.scale_rows(1 / diag, factor)
    v = (1 - share) * old.matvec(u) + share * x[:, None] * (x @ u)[None, :]
    inner = factor.T @ u
    root = linalg.cholesky(linalg.identity_like(inner) + inner)
    mixed = linalg.identity_like(inner) + linalg.cho_solve(root, u.T @ v)
    new = jnp.linalg.solve(mixed.T, v.T).T
    total = (1 - share) * old.diagonal() + share * x**2
    return new, total - jnp.sum(new * linalg.cho_solve(root, v.T).T, axis=1)
