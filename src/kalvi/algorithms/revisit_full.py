"""Further passes over the rows for a full covariance: natural-gradient steps from sums over the rows.

The bound ELBO(q) = Σ wᵢ E_q[log p(yᵢ | xᵢᵀθ)] − KL(q ‖ prior) over q = N(μ, Λ⁻¹) is at its optimum where

    Λ = S(q) = Σ₀⁻¹ + Σ wᵢ γᵢ xᵢ xᵢᵀ,      ∇(q) = Σ wᵢ gᵢ xᵢ − Σ₀⁻¹ (μ − μ₀) = 0,

with gᵢ, γᵢ the expected gradient and curvature of row i under its predictor's law. A pass adds up the
bound, ∇ and S at the present q, and the next q is a step of length ρ along the natural gradient (Khan & Lin
2017, "Conjugate-computation variational inference"); ρ = 1, which is tried first, is Newton's method:

    Λ ← (1 − ρ) Λ + ρ S,      μ ← μ + ρ Λ⁻¹ ∇        (Λ the new one).

Precisions are positive by construction: S is a sum of squares for a log-concave likelihood, and nothing is
subtracted. A step that lowers the bound is taken back and halved, and the one after a good step is twice as
long again. Where rows lie on many machines only the sums travel. (With all rows in one memory `vga` needs
fewer passes.)
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi import climbing, linalg
from kalvi.algorithms.base import Batch, Rule, weighted
from kalvi.algorithms.groups import laws, rounding_of_groups
from kalvi.divergences import kl
from kalvi.gaussians import Dense
from kalvi.likelihoods import Likelihood
from kalvi.predictors import MultiLinear
from kalvi.vectors import VectorLikelihood

Scalar = Float[Array, ""]
Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]


class FullSums(NamedTuple):
    """What a pass adds up over the rows at one Gaussian."""

    value: Scalar  # Σ w E log p
    gradient: Vector  # Σ w g x
    curvature: Matrix  # Σ w γ x xᵀ
    rounding: Scalar | float = 0.0  # `climbing.Rounding.bound`


class FullPoint(NamedTuple):
    """A Gaussian and the bound there, with all that a step from it needs."""

    posterior: Dense
    elbo: Scalar
    gradient: Vector
    target: Matrix  # S
    rounding: Scalar | float = 0.0


class FullClimb(eqx.Module):
    """The best Gaussian so far, and the one that the present pass visits."""

    prior: Dense
    here: FullPoint
    visited: Dense
    sums: FullSums
    length: Scalar  # ρ of the last step
    gained: Scalar  # nats of the last pass; infinite before there is one
    passes: Int[Array, ""]

    @property
    def posterior(self) -> Dense:
        return self.here.posterior


class RevisitFull(Rule[FullClimb]):
    """Passes over the same rows: `update` visits a block, `turn` ends a pass and starts the next."""

    likelihood: Likelihood | VectorLikelihood

    def init(self, prior: Dense, *, start: Dense, key: PRNGKeyArray | None = None) -> FullClimb:
        """Before the first pass."""
        zero = jnp.zeros((), start.mean.dtype)
        sums = _nothing(start)
        here = FullPoint(start, -jnp.inf + zero, *sums[1:])
        passes = jnp.zeros((), jnp.int32)
        return FullClimb(prior, here, start, sums, 1 + zero, jnp.inf + zero, passes)

    def update(
        self, state: FullClimb, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> FullClimb:
        sums = self.visit(state.visited, batch)
        return eqx.tree_at(lambda s: s.sums, state, jax.tree.map(jnp.add, state.sums, sums))

    def visit(self, q: Dense, batch: Batch) -> FullSums:
        """What the rows say at one Gaussian; sums of parts of the rows are those of all of them."""
        expect = jax.vmap(lambda y, m, v: self.likelihood.expect(y, m, v))
        x = batch.x
        if not isinstance(self.likelihood, VectorLikelihood):
            mean, var = x @ q.mean, q.marginal_variance(x)
            value, gradient, bend = (weighted(batch.weight, a) for a in expect(batch.y, mean, var))
            rounding = climbing.rounding_of(value, gradient, bend, jnp.abs(mean), var).bound
            curvature = x.T @ linalg.scale_rows(bend, x)
            return FullSums(jnp.sum(value), x.T @ gradient, curvature, rounding)
        predictor = MultiLinear(self.likelihood.outputs)
        law = laws(q, predictor, x)
        value, gradient, bend = (weighted(batch.weight, a) for a in expect(batch.y, *law))
        rounding = rounding_of_groups(value, gradient, bend, *law).bound
        whole = jnp.einsum("ncl,ni,nj->cilj", bend, x, x, optimize="optimal")
        curvature = whole.reshape(q.dim, q.dim)
        return FullSums(jnp.sum(value), predictor.gather(x, gradient), curvature, rounding)

    def turn(self, state: FullClimb) -> FullClimb:
        """Judge the Gaussian that was visited, and choose the next."""
        there = _point(state)
        old = state.here.elbo
        rises = there.elbo >= old - climbing.unseen(old, state.here.rounding)
        here = jax.tree.map(lambda a, b: jnp.where(rises, a, b), there, state.here)
        length = jnp.where(rises, jnp.minimum(2 * state.length, 1), state.length / 2)
        gained = jnp.where(rises, there.elbo - old, state.gained)
        return FullClimb(
            state.prior,
            here,
            _candidate(here, length),
            _nothing(here.posterior),
            length,
            gained,
            state.passes + 1,
        )


def _nothing(q: Dense) -> FullSums:
    zero = jnp.zeros_like(q.mean)
    return FullSums(zero[0], zero, jnp.zeros_like(q.root), zero[0])


def _point(state: FullClimb) -> FullPoint:
    """What the pass found at the Gaussian it visited."""
    q, prior, sums = state.visited, state.prior, state.sums
    own = prior.precision.to_dense()
    return FullPoint(
        q,
        sums.value - kl(q, prior),
        sums.gradient - own @ (q.mean - prior.mean),
        sums.curvature + own,
        sums.rounding,
    )


def _candidate(here: FullPoint, length: Scalar) -> Dense:
    old = here.posterior.precision.to_dense()
    precision = (1 - length) * old + length * here.target
    root = linalg.root_from_precision((precision + precision.T) / 2)
    return Dense.from_root(here.posterior.mean + length * (root @ (root.T @ here.gradient)), root)
