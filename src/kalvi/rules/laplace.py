"""Batch maximum a posteriori and the Laplace approximation: the reference of every experiment.

In the prior's own coordinates, θ = μ₀ + R₀ u with R₀ R₀ᵀ = Σ₀, Newton's method maximises

    −|u|²/2 + Σᵢ wᵢ log p(yᵢ | xᵢᵀθ)

with the best of a geometric ladder of step lengths; the covariance is the inverse of minus the
Hessian at the maximum.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kalvi.gaussians import Dense
from kalvi.likelihoods import Likelihood
from kalvi.likelihoods.sites import Expected
from kalvi.numerics import linalg
from kalvi.predictors import Linear, Predictor
from kalvi.predictors.models import need_same_outputs
from kalvi.rules.base import Batch
from kalvi.rules.visits import weigh

LADDER = 24


class LaplaceApproximation(NamedTuple):
    """The Gaussian at the maximum, the log joint density there, and whether the search arrived."""

    posterior: Dense
    log_joint: Float[Array, ""]
    steps: Int[Array, ""]
    converged: Bool[Array, ""]


def laplace(
    likelihood: Likelihood,
    prior: Dense,
    batch: Batch,
    *,
    predictor: Predictor | None = None,
    max_steps: int = 200,
) -> LaplaceApproximation:
    """The Laplace approximation to the posterior of θ; a network counts as linear in its Hessian."""
    predictor = predictor or Linear()
    need_same_outputs(predictor, likelihood)
    inner, x = predictor.whitened(prior, batch.x)
    dtype = prior.mean.dtype

    def terms(f, y):
        value, slope = jax.value_and_grad(lambda f: likelihood.log_prob(f, y))(f)
        return Expected(value, slope, -jax.hessian(lambda f: likelihood.log_prob(f, y))(f))

    def objective(u):
        value = jax.vmap(lambda f, y: likelihood.log_prob(f, y))(inner.values(u, x), batch.y)
        return batch.weight @ value - u @ u / 2

    def newton(u):
        f, rows, _ = inner.linearise(u, x)
        seen = weigh(rows, jax.vmap(terms)(f, batch.y), batch.weight)
        return seen.force() - u, seen.to_dense() + linalg.identity_like(prior.root)

    def advance(state):
        u, _, steps, _ = state
        gradient, hessian = newton(u)
        move = linalg.cho_solve(linalg.cholesky(hessian), gradient)
        move = jnp.where(jnp.all(jnp.isfinite(move)), move, gradient)
        lengths = 0.5 ** jnp.arange(LADDER, dtype=u.dtype)
        heights = jax.vmap(lambda s: objective(u + s * move))(lengths)
        best = jnp.argmax(jnp.where(jnp.isfinite(heights), heights, -jnp.inf))
        decrement = gradient @ move
        better = heights[best] > objective(u)
        u = jnp.where(better | (decrement < 1e-6), u + lengths[best] * move, u)
        return u, decrement, steps + 1, better

    def going(state):
        u, decrement, steps, better = state
        floor = jnp.finfo(u.dtype).eps
        return (steps < max_steps) & (decrement > floor) & (better | (decrement > 1e-6))

    start = (jnp.zeros_like(prior.mean), jnp.asarray(jnp.inf, dtype), 0, True)
    u, decrement, steps, _ = jax.lax.while_loop(going, advance, start)
    _, hessian = newton(u)
    posterior = Dense.from_root(
        prior.mean + prior.root @ u, prior.root @ linalg.root_from_precision(hessian)
    )
    constant = prior.logdet() / 2 + prior.dim * jnp.log(2 * jnp.pi) / 2
    return LaplaceApproximation(
        posterior, objective(u) - constant, jnp.asarray(steps), decrement < 1e-6
    )
