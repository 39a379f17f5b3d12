"""The ascent of a variational bound over Gaussians by natural gradients.

A point has natural parameters, a bound and a target: natural parameters that are its own at the optimum.
The plain step goes a length ρ ≤ 1 of the way to the target; ρ follows the secant of the bound's slope along
the step. Steps are combined with the last few by Anderson's method. No step is taken that lowers the bound:
a combined one that would is replaced by a plain one, a plain one that would is shortened. Where the
integrals are rough, so that the bound and its gradient agree only to their error, a step that lowers the
norm of the gradient may lower the bound by as much.

For a Gaussian kept as a matrix, N(m, Λ⁻¹) with h = Λ m in coordinates where the prior is N(0, I), the sums
over the data

    fit = Σ E[log p],      g = Σ E[∇ log p],      G = −Σ E[∇² log p]

give the bound fit − KL(q ‖ prior) and the target Λ* = I + G, h* = Λ* m + g − m. The squared
natural-gradient norm |g − m|²_Σ + ½ |Σ^{1/2}(Λ* − Λ)Σ^{1/2}|² bounds the gap in nats near the optimum and
stops the ascent.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
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


BOLD = 20
"""Passes that may go to a better target than that of the natural gradient while steps to it are taken.
It need not be reached: given the others, the optima of rows that share a latent may chase one another."""


class Sums(NamedTuple):
    """What the data say of a Gaussian."""

    fit: Scalar
    gradient: Vector
    curvature: Matrix


class Place(eqx.Module):
    """What the ascent asks of a point."""

    elbo: Scalar
    felt: Float[Array, " k"]  # the way to the target in units of the Gaussian's own deviations
    gap: Scalar  # the squared natural-gradient norm, or a bound on it
    blur: Scalar  # nats that rounding may put on the bound, beside that of a sum over the rows

    @property
    @abstractmethod
    def natural(self) -> Float[Array, " n"]:
        """The natural parameters."""

    @abstractmethod
    def way(self, bold: Bool[Array, ""]) -> Float[Array, " n"]:
        """From them to the target; to a better one, if there is one and if bold."""

    @property
    @abstractmethod
    def moments(self) -> tuple[Array, ...]:
        """What the bound is a function of."""

    @property
    @abstractmethod
    def slopes(self) -> tuple[Array, ...]:
        """Its derivatives with respect to them."""


Somewhere = TypeVar("Somewhere", bound=Place)


class Point(Place):
    """A Gaussian in natural parameters, its bound and its targets."""

    precision: Matrix
    shift: Vector  # h
    mean: Vector
    cov: Matrix
    sums: Sums

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

    def way(self, bold: Bool[Array, ""]) -> Float[Array, " n"]:
        target_shift = self.target @ self.mean + self.gradient
        return jnp.concatenate([target_shift, self.target.ravel()]) - self.natural

    @property
    def moments(self) -> tuple[Array, ...]:
        return self.mean, self.cov

    @property
    def slopes(self) -> tuple[Array, ...]:
        return self.gradient, (self.precision - self.target) / 2


def climb_gaussian(
    visit: Callable[[Vector, Matrix], Sums], precision: Matrix, shift: Vector, **limits: Any
) -> tuple[Point, Int[Array, ""], Bool[Array, ""]]:
    """`climb` over (Λ, h); visit(mean, root) makes the sums at N(mean, root rootᵀ)."""
    d = len(shift)

    def at(natural: Float[Array, " n"]) -> Point:
        precision = natural[d:].reshape(d, d)
        return _at(visit, (precision + precision.T) / 2, natural[:d])

    return climb(at, jnp.concatenate([shift, precision.ravel()]), **limits)


def climb(
    at: Callable[[Float[Array, " n"]], Somewhere],
    start: Float[Array, " n"],
    *,
    rows: Scalar,
    tolerance: float | Scalar,
    max_passes: int | Int[Array, ""],
    rough: float = 0.0,
    memory: int = MEMORY,
) -> tuple[Somewhere, Int[Array, ""], Bool[Array, ""]]:
    """The best point, how many were visited, and whether the gap is below the tolerance there.

    at(natural parameters) makes a point; `rows` is how much data its sums are over, and `rough` the error
    of their integrals, relative to the bound or to a nat a row.
    """
    # rounding in a sum of n terms is what the bound can be known to
    n = 1 + rows
    slack = 8 * float(jnp.finfo(start.dtype).eps) * n

    def close(here: Somewhere) -> Bool[Array, ""]:
        return here.gap <= jnp.maximum(jnp.maximum(tolerance, slack**2), here.blur)

    def advance(state):
        here, past, length, passes, proposal, bold = state
        first, combined = passes == 0, past.count > 0
        there = at(proposal)
        fall = (here.elbo - there.elbo - here.blur) / (n + jnp.abs(here.elbo))
        rising = fall <= slack / n
        if rough:
            rising = rising | ((fall <= rough) & (there.gap < here.gap))
        rising = rising | first
        secant = jnp.where(first, 1.0, _secant(here, there))
        longer = jnp.clip(length * jnp.clip(secant, 0.3, 2.0), 0.01, 1.0)
        shorter = length * jnp.clip(secant, 0.1, 0.5)
        still = bold & (rising | combined) & (passes + 1 < BOLD)
        past = _remember(past, here, there, rising & ~first & (still | ~bold), still)
        here = jax.tree.map(lambda a, b: jnp.where(rising, a, b), there, here)
        length = jnp.where(combined, length, jnp.where(rising, longer, shorter))
        length = jnp.where(still == bold, length, 1.0)  # a new target, a whole step
        return here, past, length, passes + 1, _step(here, past, length, still), still

    def going(state):
        here, _, length, passes, _, _ = state
        return (passes == 0) | (~close(here) & (passes < max_passes) & (length > 1e-8))

    # the first point is made in the loop as well: what makes points is compiled once
    nowhere = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(at, start))
    length, bold = jnp.ones((), start.dtype), jnp.asarray(True)
    state = (nowhere, _nothing(nowhere, memory), length, 0, start, bold)
    here, _, _, passes, _, _ = jax.lax.while_loop(going, advance, state)
    return here, jnp.asarray(passes), close(here)


def _at(visit: Callable[[Vector, Matrix], Sums], precision: Matrix, shift: Vector) -> Point:
    root = linalg.root_from_precision(precision)
    mean = root @ (root.T @ shift)
    sums = visit(mean, root)
    log_volume = jnp.sum(jnp.log(jnp.diagonal(root)))
    divergence = (jnp.sum(root**2) + mean @ mean - len(mean)) / 2 - log_volume
    away = linalg.identity_like(precision) + sums.curvature - precision
    change = root.T @ away @ root / float(np.sqrt(2))
    felt = jnp.concatenate([root.T @ (sums.gradient - mean), change.ravel()])
    elbo, exact = sums.fit - divergence, jnp.zeros_like(divergence)
    return Point(elbo, felt, felt @ felt, exact, precision, shift, mean, root @ root.T, sums)


class _Past(NamedTuple):
    """The last accepted steps: how the natural parameters moved, and how the way to the target changed."""

    moved: Float[Array, "k n"]
    turned: Float[Array, "k n"]
    felt: Float[Array, "k f"]
    count: Int[Array, ""]


def _nothing(here: Place, memory: int) -> _Past:
    def empty(like: Array) -> Array:
        return jnp.zeros((memory, like.shape[0]), like.dtype)

    natural = empty(here.natural)
    return _Past(natural, natural, empty(here.felt), jnp.zeros((), jnp.int32))


def _remember(
    past: _Past, here: Place, there: Place, rising: Bool[Array, ""], bold: Bool[Array, ""]
) -> _Past:
    """The past with one more step, or nothing where the step was refused."""

    def push(rows: Float[Array, "k n"], new: Float[Array, " n"]) -> Float[Array, "k n"]:
        return jnp.where(rising, jnp.roll(rows, 1, axis=0).at[0].set(new), 0)

    return _Past(
        push(past.moved, there.natural - here.natural),
        push(past.turned, there.way(bold) - here.way(bold)),
        push(past.felt, there.felt - here.felt),
        jnp.where(rising, past.count + 1, 0),
    )


def _step(here: Place, past: _Past, length: Scalar, bold: Bool[Array, ""]) -> Float[Array, " n"]:
    """Anderson's combination of the past with the way to the target; the plain step without a past."""
    gram = past.felt @ past.felt.T
    ridge = RIDGE * jnp.trace(gram) + jnp.finfo(gram.dtype).tiny
    share = jnp.linalg.solve(gram + ridge * linalg.identity_like(gram), past.felt @ here.felt)
    return here.natural + length * here.way(bold) - share @ (past.moved + length * past.turned)


def _secant(here: Place, there: Place) -> Scalar:
    """The share of the step at which the bound's slope along it vanishes; 2 if it does not."""
    moves = [b - a for a, b in zip(here.moments, there.moments, strict=True)]

    def slope(at: Place) -> Scalar:
        return jnp.stack([jnp.sum(s * m) for s, m in zip(at.slopes, moves, strict=True)]).sum()

    first, last = slope(here), slope(there)
    bounded = jnp.isfinite(last) & (first > last)
    share = jnp.where(bounded, first / jnp.where(bounded, first - last, 1), 2.0)
    return jnp.where(jnp.isfinite(there.elbo), share, 0.0)
