"""The batch maximum a posteriori and the Laplace approximation, a reference for experiments.

In the prior's own coordinates, θ = μ₀ + R₀ u with R₀ R₀ᵀ = Σ₀, Newton's method maximises

    −|u|²/2 + Σᵢ wᵢ log p(yᵢ | xᵢᵀθ)

with the best of several geometrically decreasing step lengths; the covariance is the inverse of minus the
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
from kalvi.numerics.namespaces import Scalar
from kalvi.predictors import Linear, Predictor
from kalvi.predictors.models import need_same_outputs
from kalvi.rules.rule import Batch
from kalvi.rules.visits import weigh

STEP_LENGTHS = 24
"""The number of step lengths that are tried: 1, 1/2, 1/4 and so on."""
CONVERGED = 1e-6
"""A squared Newton decrement below this means convergence, whatever rounding does to the last steps."""

Vector = Float[Array, " d"]


class LaplaceApproximation(NamedTuple):
    """The Gaussian at the maximum, the log joint density there, and whether the search converged."""

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
    """The Laplace approximation to the posterior of θ; in the Hessian a network counts as linear."""
    predictor = predictor or Linear()
    need_same_outputs(predictor, likelihood)
    inner, x = predictor.whitened(prior, batch.x)
    target = _Target(inner, likelihood, batch._replace(x=x))
    resolution = jnp.finfo(prior.mean.dtype).eps

    def should_continue(state):
        _, decrement, better, steps = state
        return (steps < max_steps) & (decrement > resolution) & (better | (decrement > CONVERGED))

    def advance(state):
        return *_newton_step(target, state[0]), state[3] + 1

    start = jnp.zeros_like(prior.mean), jnp.asarray(jnp.inf, prior.mean.dtype), True, 0
    u, decrement, _, steps = jax.lax.while_loop(should_continue, advance, start)
    _, hessian = target.slopes(u)
    posterior = Dense.from_root(
        prior.mean + prior.root @ u, prior.root @ linalg.root_from_precision(hessian)
    )
    constant = prior.logdet() / 2 + prior.dim * jnp.log(2 * jnp.pi) / 2
    log_joint = target.value(u) - constant
    return LaplaceApproximation(posterior, log_joint, jnp.asarray(steps), decrement < CONVERGED)


class _Target(NamedTuple):
    """The function of u that is maximised, with a predictor and inputs for u."""

    predictor: Predictor
    likelihood: Likelihood
    batch: Batch

    def value(self, u: Vector) -> Scalar:
        f, y = self.predictor.values(u, self.batch.x), self.batch.y
        terms = jax.vmap(lambda f, y: self.likelihood.log_prob(f, y))(f, y)
        return self.batch.weight @ terms - u @ u / 2

    def slopes(self, u: Vector) -> tuple[Vector, Float[Array, "d d"]]:
        """The gradient, and minus the Hessian."""
        f, rows, _ = self.predictor.linearise(u, self.batch.x)
        seen = weigh(rows, jax.vmap(self._derivatives)(f, self.batch.y), self.batch.weight)
        hessian = seen.to_dense()
        return seen.force() - u, hessian + linalg.identity_like(hessian)

    def _derivatives(self, f, y) -> Expected:
        def log_prob(f):
            return self.likelihood.log_prob(f, y)

        value, slope = jax.value_and_grad(log_prob)(f)
        return Expected(value, slope, -jax.hessian(log_prob)(f))


def _newton_step(target: _Target, u: Vector) -> tuple[Vector, Scalar, Bool[Array, ""]]:
    """The point after the best step, the squared Newton decrement, and whether the step raised the
    value."""
    gradient, hessian = target.slopes(u)
    move = linalg.cho_solve(linalg.cholesky(hessian), gradient)
    move = jnp.where(jnp.all(jnp.isfinite(move)), move, gradient)
    lengths = 0.5 ** jnp.arange(STEP_LENGTHS, dtype=u.dtype)
    heights = jax.vmap(lambda length: target.value(u + length * move))(lengths)
    best = jnp.argmax(jnp.where(jnp.isfinite(heights), heights, -jnp.inf))
    decrement, better = gradient @ move, heights[best] > target.value(u)
    return (
        jnp.where(better | (decrement < CONVERGED), u + lengths[best] * move, u),
        decrement,
        better,
    )
