"""Batch variational Gaussian approximation: the optimum that one pass of R-VGA approaches.

The bound ELBO(q) = Σ wᵢ E_q[log p(yᵢ | xᵢᵀθ)] − KL(q ‖ prior) is climbed by natural-gradient steps. At
the optimum every row's site is consistent with the marginal of its predictor,

    Λ = Σ₀⁻¹ + Σ wᵢ γᵢ xᵢ xᵢᵀ,      h = Σ₀⁻¹ μ₀ + Σ wᵢ (gᵢ + γᵢ xᵢᵀμ) xᵢ,      Λ μ = h,

so a pass over the rows at the present q gives target natural parameters (Λ*, h*), and the step is
(Λ, h) + p (Λ* − Λ, h* − h). It is taken if the bound does not fall; the length p follows the secant of
the bound's slope along the step. The squared natural-gradient norm |∇m|²_Σ + ½ |Σ^{1/2}(Λ* − Λ)Σ^{1/2}|²
bounds the gap in nats near the optimum and stops the iteration.

All of it happens in the prior's own coordinates, where the prior is N(0, I) and Λ ≥ I.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Bool, Float, Int

from kalvi import linalg
from kalvi.algorithms.base import Batch
from kalvi.gaussians import Dense
from kalvi.likelihoods import Likelihood

Scalar = Float[Array, ""]

ROWS_AT_ONCE = 2048
TOLERANCE = 1e-10
"""Default stopping value of the squared natural-gradient norm, in nats."""


class VGA(NamedTuple):
    """The optimal Gaussian, its bound, the passes it took and how far it is from stationary."""

    posterior: Dense
    elbo: Scalar
    passes: Int[Array, ""]
    gap: Scalar  # squared natural-gradient norm, in nats
    converged: Bool[Array, ""]


class _Point(NamedTuple):
    precision: Float[Array, "d d"]
    shift: Float[Array, " d"]  # h
    mean: Float[Array, " d"]
    cov: Float[Array, "d d"]
    elbo: Scalar
    gradient: Float[Array, " d"]  # ∂ELBO/∂m
    target: Float[Array, "d d"]  # Λ*
    gap: Scalar


def vga(
    likelihood: Likelihood,
    prior: Dense,
    batch: Batch,
    start: Dense,
    *,
    max_passes: int | Int[Array, ""] = 1000,
    tolerance: float = TOLERANCE,
) -> VGA:
    """The Gaussian that maximises the bound, from a Gaussian `start` (the prior, or one R-VGA pass)."""
    offset, z = batch.x @ prior.mean, batch.x @ prior.root
    blocks = _blocks(z, offset, batch.y, batch.weight)
    unroot = linalg.inverse_root(prior.root).T
    whitened = jnp.linalg.solve(start.root, prior.root)
    precision = whitened.T @ whitened
    here = _visit(likelihood, blocks, precision, precision @ (unroot @ (start.mean - prior.mean)))
    # rounding in a sum of n terms is what the bound can be known to
    slack = 8 * jnp.finfo(z.dtype).eps * (1 + jnp.sum(batch.weight))
    floor = jnp.maximum(tolerance, slack**2)

    def advance(state):
        here, length, passes = state
        there = _visit(likelihood, blocks, *_step(here, length))
        rising = there.elbo >= here.elbo - slack * (
            1 + jnp.abs(here.elbo) / (1 + jnp.sum(batch.weight))
        )
        secant = _secant(here, there)
        longer = jnp.clip(length * jnp.clip(secant, 0.3, 2.0), 0.01, 1.0)
        shorter = length * jnp.clip(secant, 0.1, 0.5)
        here = jax.tree.map(lambda a, b: jnp.where(rising, a, b), there, here)
        return here, jnp.where(rising, longer, shorter), passes + 1

    def going(state):
        here, length, passes = state
        return (here.gap > floor) & (passes < max_passes) & (length > 1e-8)

    here, _, passes = jax.lax.while_loop(going, advance, (here, jnp.ones((), z.dtype), 1))
    posterior = Dense.from_root(
        prior.mean + prior.root @ here.mean, prior.root @ linalg.root_from_precision(here.precision)
    )
    return VGA(posterior, here.elbo, jnp.asarray(passes), here.gap, here.gap <= floor)


def _blocks(*arrays: Array) -> tuple[Array, ...]:
    """The rows of each array in blocks, the last padded with zeros (weight 0)."""
    n = arrays[0].shape[0]
    size = min(ROWS_AT_ONCE, n)
    missing = -n % size

    def cut(a: Array) -> Array:
        return jnp.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1)).reshape(-1, size, *a.shape[1:])

    return tuple(cut(a) for a in arrays)


def _visit(
    likelihood: Likelihood,
    blocks: tuple[Array, ...],
    precision: Float[Array, "d d"],
    shift: Float[Array, " d"],
) -> _Point:
    """One pass over the rows: the bound at a Gaussian, its gradient and the target precision."""
    lower = linalg.cholesky(precision)
    mean = linalg.cho_solve(lower, shift)
    root = jsl.solve_triangular(lower, linalg.identity_like(lower), lower=True).T
    identity = linalg.identity_like(precision)
    expect = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v))

    def add(total, block):
        z, offset, y, weight = block
        value, gradient, curvature = expect(y, offset + z @ mean, jnp.sum((z @ root) ** 2, axis=1))
        weighted = jnp.where(weight > 0, weight * value, 0)
        bend = jnp.where(weight > 0, weight * curvature, 0)
        pull = jnp.where(weight > 0, weight * gradient, 0)
        fit, gradient, target = total
        target = target + z.T @ linalg.scale_rows(bend, z)
        return (fit + jnp.sum(weighted), gradient + z.T @ pull, target), None

    start = (jnp.zeros((), mean.dtype), -mean, identity)
    (fit, gradient, target), _ = jax.lax.scan(add, start, blocks)
    logdet = 2 * jnp.sum(jnp.log(jnp.diagonal(lower)))
    divergence = (jnp.sum(root**2) + mean @ mean - len(mean) + logdet) / 2
    change = root.T @ (target - precision) @ root
    gap = jnp.sum((root.T @ gradient) ** 2) + jnp.sum(change**2) / 2
    return _Point(precision, shift, mean, root @ root.T, fit - divergence, gradient, target, gap)


def _step(here: _Point, length: Scalar) -> tuple[Float[Array, "d d"], Float[Array, " d"]]:
    """Natural parameters `length` of the way to the target; h* = Λ* m + ∂ELBO/∂m."""
    target_shift = here.target @ here.mean + here.gradient
    precision = (1 - length) * here.precision + length * here.target
    return (precision + precision.T) / 2, (1 - length) * here.shift + length * target_shift


def _secant(here: _Point, there: _Point) -> Scalar:
    """The share of the step at which the bound's slope along it vanishes; 2 if it does not."""
    move, spread = there.mean - here.mean, there.cov - here.cov

    def slope(at: _Point) -> Scalar:
        return at.gradient @ move + jnp.sum((at.precision - at.target) * spread) / 2

    first, last = slope(here), slope(there)
    bounded = jnp.isfinite(last) & (first > last)
    share = jnp.where(bounded, first / jnp.where(bounded, first - last, 1), 2.0)
    return jnp.where(jnp.isfinite(there.elbo), share, 0.0)
