"""Online EM for factor analysis as the authors of the L-RVGA paper coded it (appendix C, eqs. 104-114).

The library's `OnlineEM` counts the start as a row and averages apart from the iteration. Here γ₁ = 1 erases
the start, γₜ = (t − 1)^−0.6 after that, and from the 502nd row on the average of W and ψ is what the next
E-step sees. On Madelon each matters: 103 nats with neither, 80 where the start is erased (and averages are
over the second half), 55 with the average fed back, which calms rows that are far from their predecessors.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.gaussians import LowRankCovariance
from kalvi.numerics import linalg
from kalvi.rules.rule import Batch, Rule

AVERAGED_FROM, DECAY = 500, 0.6


class Statistics(eqx.Module):
    """W and ψ, and running means of E[z] xᵀ, E[z zᵀ] and x∘x."""

    posterior: LowRankCovariance
    mixed: Float[Array, "p d"]
    hidden: Float[Array, "p p"]
    squares: Float[Array, " d"]
    rows: Float[Array, ""]


class OnlineEMAsCoded(Rule[Statistics]):
    """One row at a time, a single pass."""

    def init(self, prior: LowRankCovariance, *, key: PRNGKeyArray | None = None) -> Statistics:
        factor = prior.covariance.factor
        none = jnp.zeros((), factor.dtype)
        hidden = jnp.zeros((factor.shape[1],) * 2, factor.dtype)
        return Statistics(prior, none * factor.T, hidden, none * prior.mean, none)

    def update(
        self, state: Statistics, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Statistics:
        """Rows of weight 0 change nothing."""

        def step(state: Statistics, row: Batch) -> tuple[Statistics, None]:
            after = _absorb(state, row.x)
            return jax.tree.map(
                lambda new, old: jnp.where(row.weight > 0, new, old), after, state
            ), None

        return jax.lax.scan(step, state, batch)[0]


def _absorb(state: Statistics, x: Float[Array, " d"]) -> Statistics:
    cov, t = state.posterior.covariance, state.rows
    u = linalg.scale_rows(1 / cov.diag, cov.factor)
    inner = u.T @ cov.factor
    root = linalg.cholesky(linalg.identity_like(inner) + inner)
    z = linalg.cho_solve(root, u.T @ x)
    second = linalg.cho_solve(root, linalg.identity_like(inner)) + jnp.outer(z, z)
    rate = jnp.where(t > 0, jnp.maximum(t, 1) ** -DECAY, 1.0)
    mixed = (1 - rate) * state.mixed + rate * jnp.outer(z, x)
    hidden = (1 - rate) * state.hidden + rate * second
    squares = (1 - rate) * state.squares + rate * x**2
    factor = linalg.cho_solve(linalg.cholesky(hidden), mixed).T
    diag = squares - jnp.sum(factor * mixed.T, axis=1)
    share = jnp.where(t > AVERAGED_FROM, 1 / jnp.maximum(t - AVERAGED_FROM, 1), 1.0)
    averaged = LowRankCovariance(
        state.posterior.mean,
        (1 - share) * cov.factor + share * factor,
        (1 - share) * cov.diag + share * diag,
    )
    return Statistics(averaged, mixed, hidden, squares, t + 1)
