"""Batch variational Gaussian approximation: the optimum that one pass of R-VGA approaches.

The bound ELBO(q) = Σ wᵢ E_q[log p(yᵢ | xᵢᵀθ)] − KL(q ‖ prior) is climbed by natural-gradient steps. At
the optimum every row's site is consistent with the marginal of its predictor,

    Λ = Σ₀⁻¹ + Σ wᵢ γᵢ xᵢ xᵢᵀ,      h = Σ₀⁻¹ μ₀ + Σ wᵢ (gᵢ + γᵢ xᵢᵀμ) xᵢ,      Λ μ = h,

so a pass over the rows at the present q gives target natural parameters (Λ*, h*), and the plain step
goes a length p of the way from (Λ, h) to it; p follows the secant of the bound's slope along the step.
Steps are combined with the last few by Anderson's method. No step is taken that lowers the bound: a
combined one that would is replaced by a plain one, a plain one that would is shortened.

The squared natural-gradient norm |∇m|²_Σ + ½ |Σ^{1/2}(Λ* − Λ)Σ^{1/2}|² bounds the gap in nats near the
optimum and stops the iteration. All of it happens in the prior's own coordinates, where the prior is
N(0, I) and Λ ≥ I.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kalvi import linalg
from kalvi.algorithms.base import Batch
from kalvi.gaussians import Dense
from kalvi.likelihoods import Likelihood

Scalar = Float[Array, ""]

ROWS_AT_ONCE = 2048
TOLERANCE = 1e-18
"""Default stopping value of the squared natural-gradient norm, in nats: means to 1e-9 deviations."""
RIDGE = 1e-12
"""Keeps Anderson's least squares solvable when past steps repeat; it changes the way, not the optimum."""
MEMORY = 8
"""Past steps that Anderson's method combines."""


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
    target_shift: Float[Array, " d"]  # h* = Λ* m + ∂ELBO/∂m
    felt: Float[Array, " n"]  # the way to the target in units of q's own deviations

    @property
    def natural(self) -> Float[Array, " n"]:
        return jnp.concatenate([self.shift, self.precision.ravel()])

    @property
    def way(self) -> Float[Array, " n"]:
        return jnp.concatenate([self.target_shift, self.target.ravel()]) - self.natural

    @property
    def gap(self) -> Scalar:
        return self.felt @ self.felt


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
    n = 1 + jnp.sum(batch.weight)
    slack = 8 * jnp.finfo(z.dtype).eps * n
    floor = jnp.maximum(tolerance, slack**2)

    def advance(state):
        here, past, length, passes = state
        combined = past.count > 0
        there = _visit(likelihood, blocks, *_step(here, past, length))
        rising = there.elbo >= here.elbo - slack * (1 + jnp.abs(here.elbo) / n)
        secant = _secant(here, there)
        longer = jnp.clip(length * jnp.clip(secant, 0.3, 2.0), 0.01, 1.0)
        shorter = length * jnp.clip(secant, 0.1, 0.5)
        length = jnp.where(combined, length, jnp.where(rising, longer, shorter))
        past = _remember(past, here, there, rising)
        here = jax.tree.map(lambda a, b: jnp.where(rising, a, b), there, here)
        return here, past, length, passes + 1

    def going(state):
        here, _, length, passes = state
        return (here.gap > floor) & (passes < max_passes) & (length > 1e-8)

    state = (here, _nothing(here), jnp.ones((), z.dtype), 1)
    here, _, _, passes = jax.lax.while_loop(going, advance, state)
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
    root = linalg.root_from_precision(precision)
    mean = root @ (root.T @ shift)
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
    log_volume = jnp.sum(jnp.log(jnp.diagonal(root)))
    divergence = (jnp.sum(root**2) + mean @ mean - len(mean)) / 2 - log_volume
    change = root.T @ (target - precision) @ root / np.sqrt(2)
    felt = jnp.concatenate([root.T @ gradient, change.ravel()])
    target_shift = target @ mean + gradient
    return _Point(
        precision,
        shift,
        mean,
        root @ root.T,
        fit - divergence,
        gradient,
        target,
        target_shift,
        felt,
    )


class _Past(NamedTuple):
    """The last accepted steps: how the natural parameters moved, and how the way to the target changed."""

    moved: Float[Array, "k n"]
    turned: Float[Array, "k n"]
    felt: Float[Array, "k n"]
    count: Int[Array, ""]


def _nothing(here: _Point) -> _Past:
    empty = jnp.zeros((MEMORY, here.felt.shape[0]), here.felt.dtype)
    return _Past(empty, empty, empty, jnp.zeros((), jnp.int32))


def _remember(past: _Past, here: _Point, there: _Point, rising: Bool[Array, ""]) -> _Past:
    """The past with one more step, or nothing where the step was refused."""

    def push(rows: Float[Array, "k n"], new: Float[Array, " n"]) -> Float[Array, "k n"]:
        return jnp.where(rising, jnp.roll(rows, 1, axis=0).at[0].set(new), 0)

    return _Past(
        push(past.moved, there.natural - here.natural),
        push(past.turned, there.way - here.way),
        push(past.felt, there.felt - here.felt),
        jnp.where(rising, past.count + 1, 0),
    )


def _step(
    here: _Point, past: _Past, length: Scalar
) -> tuple[Float[Array, "d d"], Float[Array, " d"]]:
    """Anderson's combination of the past with the way to the target; the plain step without a past."""
    gram = past.felt @ past.felt.T
    ridge = RIDGE * jnp.trace(gram) + jnp.finfo(gram.dtype).tiny
    share = jnp.linalg.solve(gram + ridge * linalg.identity_like(gram), past.felt @ here.felt)
    move = length * here.way - share @ (past.moved + length * past.turned)
    natural = here.natural + move
    d = len(here.mean)
    precision = natural[d:].reshape(d, d)
    return (precision + precision.T) / 2, natural[:d]


def _secant(here: _Point, there: _Point) -> Scalar:
    """The share of the step at which the bound's slope along it vanishes; 2 if it does not."""
    move, spread = there.mean - here.mean, there.cov - here.cov

    def slope(at: _Point) -> Scalar:
        return at.gradient @ move + jnp.sum((at.precision - at.target) * spread) / 2

    first, last = slope(here), slope(there)
    bounded = jnp.isfinite(last) & (first > last)
    share = jnp.where(bounded, first / jnp.where(bounded, first - last, 1), 2.0)
    return jnp.where(jnp.isfinite(there.elbo), share, 0.0)
