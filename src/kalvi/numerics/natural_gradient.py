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

Rounding. The terms of a row's log-likelihood may be far larger than their sum (y f − e^f − log y!, of a
count of 10⁷, is −9 of terms of 10⁸). The bound is known only to eps times the norm of the terms' sizes tᵢ.
That says nothing of how well the gradient is known: its terms of row i, |gᵢ| and γᵢ times the size sᵢ of
the predictor, are rounded to eps each, which changes the norm by eps² Σ vᵢ (|gᵢ| + γᵢ sᵢ)². Rounding each
entry of Λ and of its factors by eps √(Λⱼⱼ Λₖₖ), and h by as much times m, changes it by eps² (τ s² + τ²/2),
τ = Σ Σⱼⱼ Λⱼⱼ and s = Σ √Λₖₖ |mₖ|. Below the sum of these the norm is noise, and the ascent has converged.
Where a fall of the bound is within its rounding, a step is taken if it lowers the norm.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kalvi.numerics import linalg

Scalar = Float[Array, ""]
Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]

RIDGE = 1e-12
"""Keeps Anderson's least squares solvable when past steps repeat; it changes the way, not the optimum."""
MEMORY = 8
"""Past steps that Anderson's method combines."""
ULPS = 8
"""Units of the last place that the rounding of many terms is taken to add up to."""

BOLD = 20
"""Passes that may go to a better target than that of the natural gradient while steps to it are taken.
It need not be reached: given the others, the optima of rows that share a latent may chase one another."""


class Rounding(NamedTuple):
    """The squared error that rounding puts on a bound and that on its gap, in units of eps²."""

    bound: Scalar | float = 0.0  # Σ t²
    gap: Scalar | float = 0.0  # Σ v (|g| + γ s)²


class Sums(NamedTuple):
    """What the data say of a Gaussian."""

    fit: Scalar
    gradient: Vector
    curvature: Matrix
    rounding: Rounding = Rounding()


class Place(eqx.Module):
    """What the ascent asks of a point."""

    elbo: Scalar
    felt: Float[Array, " k"]  # the way to the target in units of the Gaussian's own deviations
    gap: Scalar  # the squared natural-gradient norm, or a bound on it
    blur: Scalar  # nats that rounding may put on the bound, beside that of a sum over the rows
    hidden: Scalar  # nats by which the bound may fall unseen, which a step may if it lowers the gap
    floor: Scalar  # the gap that rounding leaves at the optimum

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


def rounding_of(
    value: Float[Array, " n"],
    gradient: Float[Array, "n *c"],
    curvature: Float[Array, "n *cc"],
    size: Float[Array, "n *c"],
    var: Float[Array, "n *cc"],
) -> Rounding:
    """The `Rounding` of rows, given their expected terms and the size and variance of their predictors."""
    if (
        gradient.ndim == 2
    ):  # of each predictor: the sum of the sizes of its row of γ, its own variance
        curvature, var = jnp.sum(jnp.abs(curvature), axis=2), jnp.einsum("ncc->nc", var)
    terms = jnp.abs(gradient) + jnp.abs(curvature) * (1 + size + jnp.sqrt(var))
    total = (terms + jnp.abs(gradient) * size).reshape(len(value), -1).sum(axis=1)
    return Rounding(jnp.sum((jnp.abs(value) + total) ** 2), jnp.sum(var * terms**2))


def unseen(elbo: Scalar, squares: Scalar | float) -> Scalar:
    """Nats to which a bound is known, given the squares of its terms (`Rounding.bound`)."""
    size = 1 + jnp.abs(jnp.where(jnp.isfinite(elbo), elbo, 0))
    return ULPS * float(jnp.finfo(elbo.dtype).eps) * (size + jnp.sqrt(squares))


def slack(rows: Scalar) -> Scalar:
    """Rounding in a sum of so many terms of about one nat."""
    return ULPS * float(jnp.finfo(rows.dtype).eps) * (1 + rows)


class Past(NamedTuple):
    """The last accepted steps: how the natural parameters moved, and how the way to the target changed."""

    moved: Float[Array, "k n"]
    turned: Float[Array, "k n"]
    felt: Float[Array, "k f"]
    count: Int[Array, ""]


class Climb(eqx.Module):
    """The best point so far, and the natural parameters of the one to visit next."""

    here: Any  # a Place
    past: Past
    length: Scalar
    passes: Int[Array, ""]
    proposal: Float[Array, " n"]
    bold: Bool[Array, ""]
    stuck: Bool[Array, ""]  # whether the last step did not halve the gap

    def close(self, tolerance: float | Scalar) -> Bool[Array, ""]:
        """Whether the gap is below the tolerance, or rounding."""
        return self.here.gap <= jnp.maximum(tolerance, self.here.floor)

    def going(self, tolerance: float | Scalar, max_passes: Any) -> Bool[Array, ""]:
        """Whether there is more to gain."""
        # the floor is an estimate: what can still be halved is no rounding
        done = (self.here.gap <= tolerance) | (self.stuck & self.close(tolerance))
        return (self.passes == 0) | (~done & (self.passes < max_passes) & (self.length > 1e-8))


def begin(
    at: Callable[[Float[Array, " n"]], Somewhere],
    start: Float[Array, " n"],
    memory: int = MEMORY,
) -> Climb:
    """Before the first point, which is made where all others are: what makes points is compiled once."""
    nowhere = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(at, start))
    length, none = jnp.ones((), start.dtype), jnp.zeros((), jnp.int32)
    past = _nothing(nowhere, memory)
    return Climb(nowhere, past, length, none, start, jnp.asarray(True), jnp.asarray(False))


def turn(climb: Climb, there: Place, rows: Scalar, rough: float | Scalar = 0.0) -> Climb:
    """Judge the point that was visited, and propose the next.

    `rows` is how much data its sums are over, and `rough` the error of their integrals, relative to the
    bound or to a nat a row.
    """
    here, past, length, passes, bold = (
        climb.here,
        climb.past,
        climb.length,
        climb.passes,
        climb.bold,
    )
    n = 1 + rows
    least = slack(rows) / n
    first, combined = passes == 0, past.count > 0
    size = n + jnp.abs(here.elbo)
    fall = (here.elbo - there.elbo - here.blur) / size
    closer, halved = there.gap < here.gap, there.gap < here.gap / 2
    rising = (fall <= least) | (closer & (fall <= rough + here.hidden / size)) | first
    secant = jnp.where(first, 1.0, _secant(here, there))
    longer = jnp.clip(length * jnp.clip(secant, 0.3, 2.0), 0.01, 1.0)
    shorter = length * jnp.clip(secant, 0.1, 0.5)
    still = bold & (rising | combined) & (passes + 1 < BOLD)
    past = _remember(past, here, there, rising & ~first & (still | ~bold), still)
    here = jax.tree.map(lambda a, b: jnp.where(rising, a, b), there, here)
    length = jnp.where(combined, length, jnp.where(rising, longer, shorter))
    length = jnp.where(still == bold, length, 1.0)  # a new target, a whole step
    step = _step(here, past, length, still)
    return Climb(here, past, length, passes + 1, step, still, ~(halved | first))


def climb(
    at: Callable[[Float[Array, " n"]], Somewhere],
    start: Float[Array, " n"],
    *,
    rows: Scalar,
    tolerance: float | Scalar,
    max_passes: int | Int[Array, ""],
    rough: float | Scalar = 0.0,
    memory: int = MEMORY,
) -> tuple[Somewhere, Int[Array, ""], Bool[Array, ""]]:
    """The best point, how many were visited, and whether the gap is below the tolerance there.

    at(natural parameters) makes a point.
    """
    last = jax.lax.while_loop(
        lambda climb: climb.going(tolerance, max_passes),
        lambda climb: turn(climb, at(climb.proposal), rows, rough),
        begin(at, start, memory),
    )
    return last.here, last.passes, last.close(tolerance)


def climb_gaussian(
    visit: Callable[[Vector, Matrix], Sums], precision: Matrix, shift: Vector, **limits: Any
) -> tuple[Point, Int[Array, ""], Bool[Array, ""]]:
    """`climb` over (Λ, h); visit(mean, root) makes the sums at N(mean, root rootᵀ)."""

    def at(natural: Float[Array, " n"]) -> Point:
        return point_at(natural, len(shift), visit)

    return climb(at, natural_of(precision, shift), **limits)


def natural_of(precision: Matrix, shift: Vector) -> Float[Array, " n"]:
    """(h, Λ) as one vector."""
    return jnp.concatenate([shift, precision.ravel()])


def gaussian_of(natural: Float[Array, " n"], d: int) -> tuple[Matrix, Vector, Vector, Matrix]:
    """Λ, h, the mean and a root of the covariance."""
    precision = natural[d:].reshape(d, d)
    precision, shift = (precision + precision.T) / 2, natural[:d]
    root = linalg.root_from_precision(precision)
    return precision, shift, root @ (root.T @ shift), root


def point_at(natural: Float[Array, " n"], d: int, visit: Callable[[Vector, Matrix], Sums]) -> Point:
    """The point of natural parameters, with the sums that visit(mean, root) makes there."""
    precision, shift, mean, root = gaussian_of(natural, d)
    sums = visit(mean, root)
    log_volume = jnp.sum(jnp.log(jnp.diagonal(root)))
    divergence = (jnp.sum(root**2) + mean @ mean - len(mean)) / 2 - log_volume
    away = linalg.identity_like(precision) + sums.curvature - precision
    change = root.T @ away @ root / float(np.sqrt(2))
    felt = jnp.concatenate([root.T @ (sums.gradient - mean), change.ravel()])
    elbo, exact = sums.fit - divergence, jnp.zeros_like(divergence)
    eps = ULPS * float(jnp.finfo(shift.dtype).eps)
    hidden = exact + eps * jnp.sqrt(sums.rounding.bound)
    sizes = jnp.sqrt(jnp.diagonal(precision))
    inflation = jnp.sum((sizes[:, None] * root) ** 2)  # τ
    floor = eps**2 * (
        sums.rounding.gap + inflation * (sizes @ jnp.abs(mean)) ** 2 + inflation**2 / 2
    )
    law = (precision, shift, mean, root @ root.T)
    return Point(elbo, felt, felt @ felt, exact, hidden, floor, *law, sums)


def _nothing(here: Place, memory: int) -> Past:
    def empty(like: Array) -> Array:
        return jnp.zeros((memory, like.shape[0]), like.dtype)

    natural = empty(here.natural)
    return Past(natural, natural, empty(here.felt), jnp.zeros((), jnp.int32))


def _remember(
    past: Past, here: Place, there: Place, rising: Bool[Array, ""], bold: Bool[Array, ""]
) -> Past:
    """The past with one more step, or nothing where the step was refused."""

    def push(rows: Float[Array, "k n"], new: Float[Array, " n"]) -> Float[Array, "k n"]:
        return jnp.where(rising, jnp.roll(rows, 1, axis=0).at[0].set(new), 0)

    return Past(
        push(past.moved, there.natural - here.natural),
        push(past.turned, there.way(bold) - here.way(bold)),
        push(past.felt, there.felt - here.felt),
        jnp.where(rising, past.count + 1, 0),
    )


def _step(here: Place, past: Past, length: Scalar, bold: Bool[Array, ""]) -> Float[Array, " n"]:
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
