"""The ascent of a variational bound over Gaussians by natural gradients.

In coordinates where the prior is N(0, I), a Gaussian N(m, Λ⁻¹) with h = Λ m and the sums over the data

    fit = Σ E[log p],      g = Σ E[∇ log p],      G = −Σ E[∇² log p]

has the bound fit − KL(q ‖ prior), and target natural parameters Λ* = I + G, h* = Λ* m + g − m, which are
its own at the optimum. The plain step goes a length ρ ≤ 1 of the way from (Λ, h) to them; ρ follows the
secant of the bound's slope along the step. Steps are combined with the last few by Anderson's method. No
step is taken that lowers the bound: a combined one that would is replaced by a plain one, a plain one
that would is shortened. Where the integrals are rough, so that the bound and its gradient agree only to
their error, a step that lowers the norm of the gradient may lower the bound by as much.

The squared natural-gradient norm |g − m|²_Σ + ½ |Σ^{1/2}(Λ* − Λ)Σ^{1/2}|² bounds the gap in nats near the
optimum and stops the ascent.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kalvi import linalg

Scalar = Float[Array, ""]
Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]

RIDGE = 1e-12
"""Keeps Anderson's least squares solvable when past steps repeat; it changes the way, not the optimum."""
MEMORY = 8
"""Past steps that Anderson's method combines."""


class Sums(NamedTuple):
    """What the data say of a Gaussian."""

    fit: Scalar
    gradient: Vector
    curvature: Matrix


class Point(NamedTuple):
    """A Gaussian in natural parameters, its bound and its targets."""

    precision: Matrix
    shift: Vector  # h
    mean: Vector
    cov: Matrix
    elbo: Scalar
    sums: Sums
    felt: Float[Array, " n"]  # the way to the target in units of q's own deviations

    @property
    def gradient(self) -> Vector:
        """∂ELBO/∂m."""
        return self.sums.gradient - self.mean

    @property
    def target(self) -> Matrix:
        """Λ*."""
        return linalg.identity_like(self.cov) + self.sums.curvature

    @property
    def natural(self) -> Float[Array, " n"]:
        return jnp.concatenate([self.shift, self.precision.ravel()])

    @property
    def way(self) -> Float[Array, " n"]:
        target_shift = self.target @ self.mean + self.gradient
        return jnp.concatenate([target_shift, self.target.ravel()]) - self.natural

    @property
    def gap(self) -> Scalar:
        return self.felt @ self.felt


def climb(
    visit: Callable[[Vector, Matrix], Sums],
    precision: Matrix,
    shift: Vector,
    *,
    rows: Scalar,
    tolerance: float,
    max_passes: int | Int[Array, ""],
    rough: float = 0.0,
    memory: int = MEMORY,
) -> tuple[Point, Int[Array, ""], Bool[Array, ""]]:
    """The best Gaussian, how many were visited, and whether the gap is below the tolerance there.

    visit(mean, root) makes the sums at N(mean, root rootᵀ); `rows` is how much data they are over, and
    `rough` the error of their integrals, relative to the bound or to a nat a row.
    """
    here = _at(visit, precision, shift)
    # rounding in a sum of n terms is what the bound can be known to
    n = 1 + rows
    slack = 8 * float(jnp.finfo(shift.dtype).eps) * n
    floor = jnp.maximum(tolerance, slack**2)

    def advance(state):
        here, past, length, passes = state
        combined = past.count > 0
        there = _at(visit, *_step(here, past, length))
        fall = (here.elbo - there.elbo) / (n + jnp.abs(here.elbo))
        rising = fall <= slack / n
        if rough:
            rising = rising | ((fall <= rough) & (there.gap < here.gap))
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

    state = (here, _nothing(here, memory), jnp.ones((), shift.dtype), 1)
    here, _, _, passes = jax.lax.while_loop(going, advance, state)
    return here, jnp.asarray(passes), here.gap <= floor


def _at(visit: Callable[[Vector, Matrix], Sums], precision: Matrix, shift: Vector) -> Point:
    root = linalg.root_from_precision(precision)
    mean = root @ (root.T @ shift)
    sums = visit(mean, root)
    log_volume = jnp.sum(jnp.log(jnp.diagonal(root)))
    divergence = (jnp.sum(root**2) + mean @ mean - len(mean)) / 2 - log_volume
    away = linalg.identity_like(precision) + sums.curvature - precision
    change = root.T @ away @ root / float(np.sqrt(2))
    felt = jnp.concatenate([root.T @ (sums.gradient - mean), change.ravel()])
    return Point(precision, shift, mean, root @ root.T, sums.fit - divergence, sums, felt)


class _Past(NamedTuple):
    """The last accepted steps: how the natural parameters moved, and how the way to the target changed."""

    moved: Float[Array, "k n"]
    turned: Float[Array, "k n"]
    felt: Float[Array, "k n"]
    count: Int[Array, ""]


def _nothing(here: Point, memory: int) -> _Past:
    empty = jnp.zeros((memory, here.felt.shape[0]), here.felt.dtype)
    return _Past(empty, empty, empty, jnp.zeros((), jnp.int32))


def _remember(past: _Past, here: Point, there: Point, rising: Bool[Array, ""]) -> _Past:
    """The past with one more step, or nothing where the step was refused."""

    def push(rows: Float[Array, "k n"], new: Float[Array, " n"]) -> Float[Array, "k n"]:
        return jnp.where(rising, jnp.roll(rows, 1, axis=0).at[0].set(new), 0)

    return _Past(
        push(past.moved, there.natural - here.natural),
        push(past.turned, there.way - here.way),
        push(past.felt, there.felt - here.felt),
        jnp.where(rising, past.count + 1, 0),
    )


def _step(here: Point, past: _Past, length: Scalar) -> tuple[Matrix, Vector]:
    """Anderson's combination of the past with the way to the target; the plain step without a past."""
    gram = past.felt @ past.felt.T
    ridge = RIDGE * jnp.trace(gram) + jnp.finfo(gram.dtype).tiny
    share = jnp.linalg.solve(gram + ridge * linalg.identity_like(gram), past.felt @ here.felt)
    move = length * here.way - share @ (past.moved + length * past.turned)
    natural = here.natural + move
    d = len(here.mean)
    precision = natural[d:].reshape(d, d)
    return (precision + precision.T) / 2, natural[:d]


def _secant(here: Point, there: Point) -> Scalar:
    """The share of the step at which the bound's slope along it vanishes; 2 if it does not."""
    move, spread = there.mean - here.mean, there.cov - here.cov

    def slope(at: Point) -> Scalar:
        return at.gradient @ move + jnp.sum((at.precision - at.target) * spread) / 2

    first, last = slope(here), slope(there)
    bounded = jnp.isfinite(last) & (first > last)
    share = jnp.where(bounded, first / jnp.where(bounded, first - last, 1), 2.0)
    return jnp.where(jnp.isfinite(there.elbo), share, 0.0)
