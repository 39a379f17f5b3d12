"""KL proximal-gradient steps for any split f + h, the step that is safe, and its rounds over machines.

Khan, Baqué, Fleuret & Fua (2015), sections 4 and 7, for a Gaussian q over the predictors of the rows,
q = N(m, V), with the prior N(μ, K). L = f + h, and a step linearises f and keeps h:

    maximise  λᵀ∇f(λ_k) + h(λ) − KL(q ‖ q_k)/β.

Any expected log-likelihoods may go to f. Those of Normal rows may stay in h, which is conjugate
(`split_step`). In natural parameters (Λ, η), the precision and the precision times the mean, with g and γ
the expected gradients and curvatures of what is linearised at q_k, Ξ and ξ the sites of what is kept and
r = 1/(1 + β):

    Λ_{k+1} = r Λ_k + (1 − r)(K⁻¹ + Ξ + diag γ),    η_{k+1} = r η_k + (1 − r)(K⁻¹μ + ξ + g + γ∘m_k).

Natural parameters are averaged and not the mean: other iterates than (18)-(19), the same optimum.

The condition of section 4 is β < α/L, with ∇f L-Lipschitz and α as in (8). For λ = (m, V), V_k and V_{k+1}
no wider than the prior, whose largest eigenvalue is κ,

    Δmᵀ V_k⁻¹ Δm + ½ tr(ΔV V_k⁻¹ ΔV V_{k+1}⁻¹) ≥ |Δm|²/κ + |ΔV|²/2κ²,       α = min(1/κ, 1/2κ²),

and f, a sum over rows of functions of (m_n, V_nn), has the Lipschitz constant of the worst row: for
the logistic likelihood at most `LOGISTIC`. The document's own steps of 0.25 and 1 are far beyond it.

ADMM in the manner of Wang & Banerjee (2014), "Bregman alternating direction method of multipliers", with KL
in place of squares. Each of M machines has rows of its own and a Gaussian (Λ_j, η_j) = λ_j, q̄ is what they
agree on, ν_j are the multipliers and S_j the sites of its rows at its own q_j:

    λ_j = (λ₀/M + S_j(q_j) + ρ λ̄ − ν_j)/(1/M + ρ),   λ̄ = Σ λ_j/M,   ν_j ← ν_j + ρ (λ_j − λ̄).

Where it rests λ̄ = λ₀ + Σ S_j: the optimum for all rows. λ_j stands on both sides of its equation, and
goes half of the way there each round. Machines send Gaussians and never rows.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.gaussians import Dense
from kalvi.likelihoods import Likelihood
from kalvi.numerics import linalg
from kalvi.numerics.namespaces import Scalar
from kalvi.rules.rule import Batch

LOGISTIC = 0.2602
"""No less than any |∂²E log σ/∂(m, v)²|: its entries are at most ¼, 1/(12 √3) and 1/32."""


class Natural(NamedTuple):
    """A Gaussian by its precision and its precision times its mean, or what rows add to them."""

    precision: Float[Array, "d d"]
    shift: Float[Array, " d"]

    @classmethod
    def of(cls, q: Dense) -> "Natural":
        """A Gaussian's parameters."""
        inverse = linalg.cho_solve(linalg.cholesky(q.cov), jnp.eye(q.dim, dtype=q.mean.dtype))
        return cls(inverse, inverse @ q.mean)

    def moments(self) -> Dense:
        """Mean and covariance."""
        root = linalg.cholesky((self.precision + self.precision.T) / 2)
        cov = linalg.cho_solve(root, jnp.eye(len(self.shift), dtype=self.shift.dtype))
        return Dense(linalg.cho_solve(root, self.shift), cov)


def sites(likelihood: Likelihood, q: Dense, batch: Batch) -> Natural:
    """What the linearised rows ask for at q, in weight space: Σ γ x xᵀ and Σ (g + γ m) x."""
    mean, var = batch.x @ q.mean, q.marginal_variance(batch.x)
    found = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v))(batch.y, mean, var)
    gradient, curvature = batch.weight * found.gradient, batch.weight * found.curvature
    x = batch.x
    return Natural(x.T @ linalg.scale_rows(curvature, x), (gradient + curvature * mean) @ x)


def exact_sites(noise: Scalar | float, batch: Batch) -> Natural:
    """Normal rows, which are conjugate: kept in h they are never linearised."""
    scaled = linalg.scale_rows(batch.weight / noise, batch.x)
    return Natural(batch.x.T @ scaled, batch.y @ scaled)


def split_step(
    likelihood: Likelihood, base: Natural, here: Natural, batch: Batch, beta: Scalar | float
) -> Natural:
    """A step that linearises the rows of the batch; `base` is all that is kept, the prior among it."""
    r = 1 / (1 + beta)
    wanted = _sum(base, sites(likelihood, here.moments(), batch))
    return jax.tree.map(lambda old, new: r * old + (1 - r) * new, here, wanted)


def _sum(*parts: Natural) -> Natural:
    return jax.tree.map(lambda *a: sum(a[1:], a[0]), *parts)


def safe_step(largest_variance: Scalar | float, lipschitz: Scalar | float) -> Scalar:
    """α/L: below it the document's condition holds, `largest_variance` being the prior's eigenvalue κ."""
    k = jnp.asarray(largest_variance)
    return jnp.minimum(1 / k, 1 / (2 * k**2)) / lipschitz


class Agreement(NamedTuple):
    """Where ADMM stands: every machine's Gaussian and multipliers (leading axis), and the common one."""

    own: Natural
    multipliers: Natural
    common: Natural


def first_agreement(prior: Natural, machines: int) -> Agreement:
    """All at the prior."""
    copies = jax.tree.map(lambda a: jnp.broadcast_to(a, (machines, *a.shape)), prior)
    return Agreement(copies, jax.tree.map(jnp.zeros_like, copies), prior)


def admm_round(
    likelihood: Likelihood, prior: Natural, here: Agreement, batches: Batch, rho: Scalar | float
) -> Agreement:
    """One round; `batches` has the rows of every machine along its leading axis."""
    machines = len(here.own.shift)
    share = 1 / machines

    def alone(own: Natural, multiplier: Natural, batch: Batch) -> Natural:
        found = sites(likelihood, own.moments(), batch)
        wanted = jax.tree.map(
            lambda p, s, c, m: (share * p + s + rho * c - m) / (share + rho),
            prior, found, here.common, multiplier,
        )  # fmt: skip
        return jax.tree.map(lambda old, new: (old + new) / 2, own, wanted)

    own = jax.vmap(alone)(here.own, here.multipliers, batches)
    common = jax.tree.map(lambda a: jnp.mean(a, axis=0), own)
    multipliers = jax.tree.map(
        lambda m, o, c: m + rho * (o - c[None]), here.multipliers, own, common
    )
    return Agreement(own, multipliers, common)
