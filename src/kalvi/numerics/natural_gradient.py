"""The ascent of a variational bound over Gaussians by natural gradients.

An iterate has natural parameters, a bound and a target. The target is a vector of natural parameters too,
and at the optimum the two agree. A plain step goes a fraction ρ ≤ 1 of the way to the target; ρ follows the
secant of the bound's slope along the step. Steps are combined with the last few by Anderson's method. No
step that lowers the bound is accepted: a combined step that would is replaced by a plain one, and a plain
one is shortened. Where integrals are approximate, the bound and its gradient agree only up to the error of
the integrals, and a step that lowers the norm of the gradient may lower the bound by that error.

For a Gaussian kept as a matrix, N(m, Λ⁻¹) with h = Λ m in coordinates where the prior is N(0, I), the sums
over the data

    fit = Σ E[log p],      g = Σ E[∇ log p],      G = −Σ E[∇² log p]

give the bound fit − KL(q ‖ prior) and the target Λ* = I + G, h* = Λ* m + g − m. The squared
natural-gradient norm |g − m|²_Σ + ½ |Σ^{1/2}(Λ* − Λ)Σ^{1/2}|² bounds the gap in nats near the optimum and
stops the ascent.

Rounding. The terms of a row's log-likelihood may be far larger than their sum (y f − e^f − log y!, of a
count of 10⁷, is −9 of terms of 10⁸). The bound is known only to eps times the norm of the terms' sizes tᵢ.
That says nothing about the accuracy of the gradient: its terms of row i, |gᵢ| and γᵢ times the size sᵢ of
the predictor, are rounded to eps each, which changes the norm by eps² Σ vᵢ (|gᵢ| + γᵢ sᵢ)². Rounding each
entry of Λ and of its factors by eps √(Λⱼⱼ Λₖₖ), and h by as much times m, changes it by eps² (τ s² + τ²/2),
τ = Σ Σⱼⱼ Λⱼⱼ and s = Σ √Λₖₖ |mₖ|. Below the sum of these the norm is noise, and the ascent has converged.
If the bound falls by no more than its rounding error, a step is accepted if it lowers the norm.
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
from kalvi.numerics.namespaces import Scalar

Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]

RIDGE = 1e-12
"""Keeps Anderson's least squares solvable when past steps repeat; it changes the path, not the optimum."""
MEMORY = 8
"""Past steps that Anderson's method combines."""
ULPS = 8
"""Units in the last place by which a sum of many terms is assumed to be rounded."""

GREEDY_PASSES = 20
"""Passes that may step towards the greedy target, as long as such steps are accepted. The limit is needed
because the greedy target of a row takes the others as fixed: rows that share a latent may oscillate."""


class Rounding(NamedTuple):
    """The squared rounding errors of a bound and of its gap, in units of eps²."""

    bound: Scalar | float = 0.0  # Σ t²
    gap: Scalar | float = 0.0  # Σ v (|g| + γ s)²


class WhitenedSums(NamedTuple):
    """Sums over the data at one Gaussian, in coordinates where the prior is N(0, I)."""

    fit: Scalar
    gradient: Vector
    curvature: Matrix
    rounding: Rounding = Rounding()


class AscentIterate(eqx.Module):
    """A Gaussian on the path of the ascent, with its bound and its target."""

    elbo: Scalar
    whitened_direction: Float[Array, " k"]  # the direction in the Gaussian's standard deviations
    gap: Scalar  # the squared natural-gradient norm, or a bound on it
    rounding_error: Scalar  # of the bound, in nats; a fall within it is accepted
    term_rounding: Scalar  # of the rows' terms; a fall within it is accepted if the gap shrinks
    floor: Scalar  # the gap that rounding leaves at the optimum

    @property
    @abstractmethod
    def natural(self) -> Float[Array, " n"]:
        """The natural parameters."""

    @abstractmethod
    def direction(self, greedy: Bool[Array, ""]) -> Float[Array, " n"]:
        """The difference between the target and the natural parameters.

        If `greedy`, and if there is one, the target that suits each row best given the others is used.
        """

    @property
    @abstractmethod
    def moments(self) -> tuple[Array, ...]:
        """The moments of which the bound is a function."""

    @property
    @abstractmethod
    def slopes(self) -> tuple[Array, ...]:
        """The derivatives of the bound with respect to the moments."""


AnyIterate = TypeVar("AnyIterate", bound=AscentIterate)


class GaussianIterate(AscentIterate):
    """An iterate with a full precision matrix."""

    precision: Matrix
    shift: Vector  # h
    mean: Vector
    cov: Matrix
    sums: WhitenedSums

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

    def direction(self, greedy: Bool[Array, ""]) -> Float[Array, " n"]:
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
    if gradient.ndim == 2:  # several predictors: sum |γ| along its rows, keep only the variances
        curvature, var = jnp.sum(jnp.abs(curvature), axis=2), jnp.einsum("ncc->nc", var)
    terms = jnp.abs(gradient) + jnp.abs(curvature) * (1 + size + jnp.sqrt(var))
    total = (terms + jnp.abs(gradient) * size).reshape(len(value), -1).sum(axis=1)
    return Rounding(jnp.sum((jnp.abs(value) + total) ** 2), jnp.sum(var * terms**2))


def bound_resolution(elbo: Scalar, squares: Scalar | float) -> Scalar:
    """The rounding error of a bound in nats, given the squares of its terms (`Rounding.bound`)."""
    size = 1 + jnp.abs(jnp.where(jnp.isfinite(elbo), elbo, 0))
    return ULPS * float(jnp.finfo(elbo.dtype).eps) * (size + jnp.sqrt(squares))


def sum_rounding(rows: Scalar) -> Scalar:
    """The rounding error of a sum of `rows` terms of about one nat."""
    return ULPS * float(jnp.finfo(rows.dtype).eps) * (1 + rows)


class StepHistory(NamedTuple):
    """The last accepted steps, the newest first: the changes of parameters and of directions."""

    parameter_steps: Float[Array, "k n"]
    direction_changes: Float[Array, "k n"]
    whitened_changes: Float[Array, "k f"]
    count: Int[Array, ""]


class Climb(eqx.Module):
    """The best iterate so far, and the natural parameters of the one to evaluate next."""

    best: Any  # an AscentIterate
    history: StepHistory
    length: Scalar
    passes: Int[Array, ""]
    proposal: Float[Array, " n"]
    greedy: Bool[Array, ""]
    stuck: Bool[Array, ""]  # whether the last step did not halve the gap

    def has_converged(self, tolerance: float | Scalar) -> Bool[Array, ""]:
        """Whether the gap is at most the tolerance, or what rounding leaves."""
        return self.best.gap <= jnp.maximum(tolerance, self.best.floor)

    def should_continue(self, tolerance: float | Scalar, max_passes: Any) -> Bool[Array, ""]:
        """Whether another pass may raise the bound."""
        # the floor is an estimate: a gap that can still be halved is not rounding
        done = (self.best.gap <= tolerance) | (self.stuck & self.has_converged(tolerance))
        return (self.passes == 0) | (~done & (self.passes < max_passes) & (self.length > 1e-8))


def begin(
    at: Callable[[Float[Array, " n"]], AnyIterate],
    start: Float[Array, " n"],
    memory: int = MEMORY,
) -> Climb:
    """The state before the first iterate.

    The first iterate is evaluated in the loop, like all others, so that `at` is compiled once only.
    """
    nowhere = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(at, start))
    length, none = jnp.ones((), start.dtype), jnp.zeros((), jnp.int32)
    history = _no_history(nowhere, memory)
    return Climb(nowhere, history, length, none, start, jnp.asarray(True), jnp.asarray(False))


def turn(
    climb: Climb, there: AscentIterate, rows: Scalar, roughness: float | Scalar = 0.0
) -> Climb:
    """Accept or reject the iterate `there`, which was proposed last, and propose the next.

    `rows` is the total weight of the data, and `roughness` the error of the integrals, relative to the
    bound or to a nat a row.
    """
    here, history, length = climb.best, climb.history, climb.length
    passes, greedy = climb.passes, climb.greedy
    n = 1 + rows
    least = sum_rounding(rows) / n
    first, combined = passes == 0, history.count > 0
    size = n + jnp.abs(here.elbo)
    fall = (here.elbo - there.elbo - here.rounding_error) / size
    closer, halved = there.gap < here.gap, there.gap < here.gap / 2
    rising = (fall <= least) | (closer & (fall <= roughness + here.term_rounding / size)) | first
    secant = jnp.where(first, 1.0, _secant(here, there))
    longer = jnp.clip(length * jnp.clip(secant, 0.3, 2.0), 0.01, 1.0)
    shorter = length * jnp.clip(secant, 0.1, 0.5)
    still = greedy & (rising | combined) & (passes + 1 < GREEDY_PASSES)
    history = _remember(history, here, there, rising & ~first & (still | ~greedy), still)
    here = jax.tree.map(lambda a, b: jnp.where(rising, a, b), there, here)
    length = jnp.where(combined, length, jnp.where(rising, longer, shorter))
    length = jnp.where(still == greedy, length, 1.0)  # a new target, a whole step
    step = _step(here, history, length, still)
    return Climb(here, history, length, passes + 1, step, still, ~(halved | first))


def climb(
    at: Callable[[Float[Array, " n"]], AnyIterate],
    start: Float[Array, " n"],
    *,
    rows: Scalar,
    tolerance: float | Scalar,
    max_passes: int | Int[Array, ""],
    roughness: float | Scalar = 0.0,
    memory: int = MEMORY,
) -> tuple[AnyIterate, Int[Array, ""], Bool[Array, ""]]:
    """The best iterate, the number of passes, and whether its gap is below the tolerance.

    at(natural parameters) evaluates an iterate.
    """
    at = jax.jit(at)  # traced once, for the shapes and for the loop
    last = jax.lax.while_loop(
        lambda climb: climb.should_continue(tolerance, max_passes),
        lambda climb: turn(climb, at(climb.proposal), rows, roughness),
        begin(at, start, memory),
    )
    return last.best, last.passes, last.has_converged(tolerance)


def climb_gaussian(
    visit: Callable[[Vector, Matrix], WhitenedSums], precision: Matrix, shift: Vector, **limits: Any
) -> tuple[GaussianIterate, Int[Array, ""], Bool[Array, ""]]:
    """`climb` over (Λ, h); visit(mean, root) computes the sums at N(mean, root rootᵀ)."""

    def at(natural: Float[Array, " n"]) -> GaussianIterate:
        return iterate_at(natural, len(shift), visit)

    return climb(at, natural_parameters(precision, shift), **limits)


def natural_parameters(precision: Matrix, shift: Vector) -> Float[Array, " n"]:
    """(h, Λ) as one vector."""
    return jnp.concatenate([shift, precision.ravel()])


def from_natural_parameters(
    natural: Float[Array, " n"], d: int
) -> tuple[Matrix, Vector, Vector, Matrix]:
    """Λ, h, the mean and a root of the covariance, from (h, Λ) as one vector."""
    precision = natural[d:].reshape(d, d)
    precision, shift = (precision + precision.T) / 2, natural[:d]
    root = linalg.root_from_precision(precision)
    return precision, shift, root @ (root.T @ shift), root


def iterate_at(
    natural: Float[Array, " n"], d: int, visit: Callable[[Vector, Matrix], WhitenedSums]
) -> GaussianIterate:
    """The iterate with these natural parameters; visit(mean, root) computes its sums over the data."""
    precision, shift, mean, root = from_natural_parameters(natural, d)
    sums = visit(mean, root)
    log_volume = jnp.sum(jnp.log(jnp.diagonal(root)))
    divergence = (jnp.sum(root**2) + mean @ mean - len(mean)) / 2 - log_volume
    away = linalg.identity_like(precision) + sums.curvature - precision
    change = root.T @ away @ root / float(np.sqrt(2))
    whitened_direction = jnp.concatenate([root.T @ (sums.gradient - mean), change.ravel()])
    elbo, exact = sums.fit - divergence, jnp.zeros_like(divergence)
    eps = ULPS * float(jnp.finfo(shift.dtype).eps)
    term_rounding = exact + eps * jnp.sqrt(sums.rounding.bound)
    sizes = jnp.sqrt(jnp.diagonal(precision))
    inflation = jnp.sum((sizes[:, None] * root) ** 2)  # τ
    floor = eps**2 * (
        sums.rounding.gap + inflation * (sizes @ jnp.abs(mean)) ** 2 + inflation**2 / 2
    )
    law = (precision, shift, mean, root @ root.T)
    return GaussianIterate(
        elbo,
        whitened_direction,
        whitened_direction @ whitened_direction,
        exact,
        term_rounding,
        floor,
        *law,
        sums,
    )


def _no_history(here: AscentIterate, memory: int) -> StepHistory:
    def empty(like: Array) -> Array:
        return jnp.zeros((memory, like.shape[0]), like.dtype)

    natural = empty(here.natural)
    return StepHistory(natural, natural, empty(here.whitened_direction), jnp.zeros((), jnp.int32))


def _remember(
    history: StepHistory,
    here: AscentIterate,
    there: AscentIterate,
    rising: Bool[Array, ""],
    greedy: Bool[Array, ""],
) -> StepHistory:
    """The history with one more step; an empty history if the step was rejected."""

    def push(rows: Float[Array, "k n"], new: Float[Array, " n"]) -> Float[Array, "k n"]:
        return jnp.concatenate([new[None], rows[:-1]])

    def longer() -> StepHistory:
        return StepHistory(
            push(history.parameter_steps, there.natural - here.natural),
            push(history.direction_changes, there.direction(greedy) - here.direction(greedy)),
            push(history.whitened_changes, there.whitened_direction - here.whitened_direction),
            history.count + 1,
        )

    return jax.lax.cond(rising, longer, lambda: jax.tree.map(jnp.zeros_like, history))


def _step(
    here: AscentIterate, history: StepHistory, length: Scalar, greedy: Bool[Array, ""]
) -> Float[Array, " n"]:
    """The next natural parameters by Anderson's method; a plain step if the history is empty."""
    changes = history.whitened_changes
    gram = changes @ changes.T
    ridge = RIDGE * jnp.trace(gram) + jnp.finfo(gram.dtype).tiny
    damped = gram + ridge * linalg.identity_like(gram)
    share = jnp.linalg.solve(damped, changes @ here.whitened_direction)
    direction = here.direction(greedy) - share @ history.direction_changes
    return here.natural - share @ history.parameter_steps + length * direction


def _secant(here: AscentIterate, there: AscentIterate) -> Scalar:
    """The fraction of the step at which the bound's slope along it vanishes; 2 if it does not vanish."""
    moves = [b - a for a, b in zip(here.moments, there.moments, strict=True)]

    def slope(at: AscentIterate) -> Scalar:
        return jnp.stack([jnp.sum(s * m) for s, m in zip(at.slopes, moves, strict=True)]).sum()

    first, last = slope(here), slope(there)
    bounded = jnp.isfinite(last) & (first > last)
    share = jnp.where(bounded, first / jnp.where(bounded, first - last, 1), 2.0)
    return jnp.where(jnp.isfinite(there.elbo), share, 0.0)
