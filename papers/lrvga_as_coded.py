"""Mirror prox with a low-rank precision as the authors' scripts run it (figure 4 of the L-RVGA paper).

The text gives mirror prox for a full covariance (eqs. 137-143) and leaves open where the projection goes.
The scripts project between the halves, and both halves move the mean with what was projected:

    P̂⁻¹ = FA(P⁻¹ + γ(μ, P) x xᵀ),     μ̂ = μ + P̂ x (y − E σ),     expectations under (μ, P),
    μ⁺ = μ + P⁺ x (y − E σ),           expectations under (μ̂, P̂),

where P⁺ is P̂ if the extra covariance update is skipped and otherwise FA(P⁻¹ + γ(μ̂, P̂) x xᵀ). Expectations
are the inverse-probit integrals, or means over K draws whose normal numbers are the same at every row.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.gaussians import LowRankPrecision
from kalvi.likelihoods import Bernoulli
from kalvi.likelihoods.logistic import InverseProbit
from kalvi.rules.rule import Batch, Rule


class Coded(eqx.Module):
    """The Gaussian so far, and the key of the normal numbers."""

    posterior: LowRankPrecision
    key: PRNGKeyArray | None


class MirrorProxAsCoded(Rule[Coded]):
    """One row at a time."""

    samples: int | None = eqx.field(static=True, default=None)
    extra_covariance: bool = eqx.field(static=True, default=False)
    key: PRNGKeyArray | None = None

    def init(self, prior: LowRankPrecision, *, key: PRNGKeyArray | None = None) -> Coded:
        return Coded(prior, self.key)

    def update(self, state: Coded, batch: Batch, *, key: PRNGKeyArray | None = None) -> Coded:
        """A row of weight 0 changes nothing."""

        def step(q: LowRankPrecision, row: Batch) -> tuple[LowRankPrecision, None]:
            after = self._absorb(q, row.x, row.y, state.key)
            return jax.tree.map(
                lambda new, old: jnp.where(row.weight > 0, new, old), after, q
            ), None

        return Coded(jax.lax.scan(step, state.posterior, batch)[0], state.key)

    def _absorb(self, q: LowRankPrecision, x: Float[Array, " d"], y, key) -> LowRankPrecision:
        chance, curvature = self._expect(q, x, key)
        ahead = _moved(_curved(q, x, curvature), q.mean, x, y - chance)
        chance, curvature = self._expect(ahead, x, key)
        base = _curved(q, x, curvature) if self.extra_covariance else ahead
        return _moved(base, q.mean, x, y - chance)

    def _expect(self, q: LowRankPrecision, x: Float[Array, " d"], key) -> tuple[Array, Array]:
        """E σ and E σ′ of the predictor."""
        if self.samples is None:
            mean, var = q.mean @ x, q.marginal_variance(x[None, :])[0]
            zero = jnp.zeros((), x.dtype)
            _, gradient, curvature = Bernoulli(InverseProbit()).expect(zero, mean, var)
            return -gradient, curvature
        chance = jax.nn.sigmoid(q.sample(key, self.samples) @ x)
        return jnp.mean(chance), jnp.mean(chance * (1 - chance))


def _curved(q: LowRankPrecision, x: Float[Array, " d"], curvature: Array) -> LowRankPrecision:
    """The projection of P⁻¹ + γ x xᵀ, the mean as it is."""
    new = q.view(x[None, :]).absorb(jnp.zeros_like(curvature)[None], curvature[None])
    assert isinstance(new, LowRankPrecision)
    return new


def _moved(q: LowRankPrecision, mean: Array, x: Array, residual: Array) -> LowRankPrecision:
    return q.with_parts(mean + residual * q.matvec(x), q.precision.factor, q.precision.diag)
