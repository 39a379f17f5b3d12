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

from kalvi import linalg
from kalvi.algorithms.base import Batch
from kalvi.gaussians import Dense
from kalvi.likelihoods import Likelihood

LADDER = 24


class LaplaceApproximation(NamedTuple):
    """The Gaussian at the maximum, the log joint density there, and whether the search arrived."""

    posterior: Dense
    log_joint: Float[Array, ""]
    steps: Int[Array, ""]
    converged: Bool[Array, ""]


def laplace(
    likelihood: Likelihood, prior: Dense, batch: Batch, *, max_steps: int = 200
) -> LaplaceApproximation:
    """The Laplace approximation to the posterior of θ."""
    offset, z = batch.x @ prior.mean, batch.x @ prior.root
    log_prob = jax.vmap(lambda f, y: likelihood.log_prob(f, y))
    slope = jax.vmap(jax.grad(lambda f, y: likelihood.log_prob(f, y)))
    bend = jax.vmap(jax.grad(jax.grad(lambda f, y: likelihood.log_prob(f, y))))

    def objective(u):
        return batch.weight @ log_prob(offset + z @ u, batch.y) - u @ u / 2

    def newton(u):
        f = offset + z @ u
        gradient = z.T @ (batch.weight * slope(f, batch.y)) - u
        curvature = -batch.weight * bend(f, batch.y)
        hessian = z.T @ linalg.scale_rows(curvature, z) + jnp.eye(z.shape[1], dtype=z.dtype)
        return gradient, hessian

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

    start = (jnp.zeros_like(prior.mean), jnp.asarray(jnp.inf, z.dtype), 0, True)
    u, decrement, steps, _ = jax.lax.while_loop(going, advance, start)
    _, hessian = newton(u)
    posterior = Dense.from_root(
        prior.mean + prior.root @ u, prior.root @ linalg.root_from_precision(hessian)
    )
    constant = prior.logdet() / 2 + prior.dim * jnp.log(2 * jnp.pi) / 2
    return LaplaceApproximation(
        posterior, objective(u) - constant, jnp.asarray(steps), decrement < 1e-6
    )
