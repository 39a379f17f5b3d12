"""The ascent of the variational bound: from sums over the rows at one Gaussian to the next Gaussian.

The bound ELBO(q) = Σ wᵢ E_q[log p(yᵢ | fᵢ)] − KL(q ‖ prior) over q = N(μ, Λ⁻¹) is at its optimum where

    Λ = S(q) = Σ₀⁻¹ + Σ wᵢ Jᵢᵀ Γᵢ Jᵢ,      ∇(q) = Σ wᵢ Jᵢᵀ gᵢ − Σ₀⁻¹ (μ − μ₀) = 0,

with gᵢ, Γᵢ the expected gradient and curvature of row i under the distribution of its predictors. If a
structure cannot hold S, Λ is the best approximation of S that it can hold. An ascent proposes a Gaussian
(`proposal`). A pass over the rows, on one machine or on many, adds up at the proposal the bound, ∇ and the
parts of S that the structure needs (`Updatable.gather`). Then `turn` accepts the proposal, or rejects it if
it lowers the bound, and makes the next one.

`NaturalAscent`, of a full covariance, takes natural-gradient steps combined by Anderson's method
(`numerics.natural_gradient`), in coordinates where the prior is N(0, I).

`QuasiNewtonAscent` works for every structure that can move its precision towards S (`Updatable.toward`).
The mean takes a quasi-Newton step (limited-memory BFGS) with Σ as the first inverse Hessian. S itself is
never formed.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kalvi.gaussians.divergences import kl
from kalvi.gaussians.gaussian import Gathered, Updatable
from kalvi.numerics import linalg, natural_gradient
from kalvi.numerics.namespaces import Scalar
from kalvi.numerics.natural_gradient import Climb, Rounding, bound_resolution

Vector = Float[Array, " d"]

MEMORY = 8
"""The number of past steps that the quasi-Newton method remembers."""
SHORTEST = 1e-3
"""The ascent ends when a step of the mean has been shortened to less than this fraction."""


class RowSums(NamedTuple):
    """Sums over rows at one Gaussian; the sums of two sets of rows are added field by field."""

    value: Scalar  # Σ w E log p
    gradient: Vector  # Σ w Jᵀ g
    curvature: Any  # the part of Σ w Jᵀ Γ J that the structure gathers
    rounding: Rounding
    weight: Scalar  # Σ w
    roughness: Scalar  # the error of approximate integrals in the bound, in nats


def zero_sums(q: Updatable) -> RowSums:
    """The sums over no rows at a Gaussian."""
    kept = jax.eval_shape(_gather_own, q)
    curvature = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), kept)
    zero = jnp.zeros_like(q.mean)
    return RowSums(zero[0], zero, curvature, _no_rounding(zero), zero[0], zero[0])


def _gather_own(q: Updatable) -> Any:
    """`gather` of the Gaussian's own precision; a named function is traced once for each shape."""
    return q.gather(q.precision)


class Ascent(eqx.Module):
    """An ascent of the bound, at one of its steps."""

    prior: eqx.AbstractVar[Any]

    @property
    @abstractmethod
    def posterior(self) -> Any:
        """The best Gaussian so far."""

    @property
    @abstractmethod
    def proposal(self) -> Any:
        """The Gaussian at which `turn` needs the sums over all rows."""

    @property
    @abstractmethod
    def passes(self) -> Int[Array, ""]:
        """The number of proposals that have been evaluated."""

    @property
    @abstractmethod
    def elbo(self) -> Scalar:
        """The bound at the best Gaussian so far."""

    @abstractmethod
    def turn(self, sums: RowSums) -> "Ascent":
        """Accept or reject the proposal, given the sums over all rows at it, and make the next one."""

    @abstractmethod
    def gap(self) -> Scalar:
        """The squared natural-gradient norm, or an estimate: near the optimum, twice the distance to it in
        nats."""

    @abstractmethod
    def should_continue(self, tolerance: float) -> Bool[Array, ""]:
        """Whether another pass may gain more than `tolerance` nats."""

    @abstractmethod
    def converged(self, tolerance: float) -> Bool[Array, ""]:
        """Whether the bound can rise by at most `tolerance` nats, or by its rounding error."""

    @abstractmethod
    def remaining(self) -> Scalar:
        """An estimate of the nats by which the bound may still rise."""


class NaturalAscent(Ascent):
    """The ascent of a full covariance."""

    prior: Any  # Dense
    climb: Climb

    @classmethod
    def begin(
        cls, prior: Any, start: Any, memory: int = natural_gradient.MEMORY
    ) -> "NaturalAscent":
        """An ascent from a Gaussian `start`, such as the posterior of a stream.

        `memory` is the number of past steps that are combined; an ascent of few passes needs few.
        """
        natural = whitened_natural(prior, start)
        d = start.dim
        nothing = jnp.zeros((d, d), natural.dtype)
        empty = natural_gradient.WhitenedSums(
            nothing[0, 0], nothing[0], nothing, _no_rounding(nothing)
        )

        def at(natural: Float[Array, " n"]) -> natural_gradient.GaussianIterate:
            return natural_gradient.iterate_at(natural, d, lambda mean, root: empty)

        return cls(prior, natural_gradient.begin(at, natural, memory))

    @property
    def posterior(self) -> Any:
        here = self.climb.best
        root = linalg.root_from_precision(here.precision)
        return self._unwhiten(here.mean, root)

    @property
    def proposal(self) -> Any:
        _, _, mean, root = natural_gradient.from_natural_parameters(
            self.climb.proposal, self.prior.dim
        )
        return self._unwhiten(mean, root)

    @property
    def elbo(self) -> Scalar:
        return self.climb.best.elbo

    @property
    def passes(self) -> Int[Array, ""]:
        return self.climb.passes

    def turn(self, sums: RowSums) -> "NaturalAscent":
        root = self.prior.root
        own = root.T @ sums.gradient, root.T @ sums.curvature @ root
        whitened = natural_gradient.WhitenedSums(sums.value, *own, sums.rounding)
        there = natural_gradient.iterate_at(
            self.climb.proposal, self.prior.dim, lambda mean, root: whitened
        )
        roughness = sums.roughness / jnp.where(sums.weight > 0, sums.weight, 1)
        climb = natural_gradient.turn(self.climb, there, sums.weight, roughness)
        return NaturalAscent(self.prior, climb)

    def gap(self) -> Scalar:
        return self.climb.best.gap

    def should_continue(self, tolerance: float) -> Bool[Array, ""]:
        return self.climb.should_continue(2 * tolerance, jnp.iinfo(jnp.int32).max)

    def converged(self, tolerance: float) -> Bool[Array, ""]:
        return jnp.isfinite(self.elbo) & self.climb.has_converged(2 * tolerance)

    def remaining(self) -> Scalar:
        return jnp.maximum(self.climb.best.gap, self.climb.best.floor) / 2

    def _unwhiten(self, mean: Vector, root: Float[Array, "d d"]) -> Any:
        return type(self.prior).from_root(
            self.prior.mean + self.prior.root @ mean, self.prior.root @ root
        )


class EvaluatedGaussian(NamedTuple):
    """A Gaussian with its bound and the terms that a step from it needs."""

    posterior: Updatable
    elbo: Scalar
    gradient: Vector  # ∇
    target: Gathered  # the part of S that the structure gathers
    rounding: Scalar | float  # the squares of the bound's terms


class QuasiNewtonAscent(Ascent):
    """The ascent of any structure that can move its precision towards S."""

    prior: Updatable
    best: EvaluatedGaussian
    candidate: Updatable
    mean_steps: Float[Array, "m d"]
    gradient_changes: Float[Array, "m d"]
    length: Scalar  # of the last step; 1 unless it was shortened
    last_gain: Scalar  # of the last pass, in nats; infinite before the first
    turns: Int[Array, ""]

    @classmethod
    def begin(cls, prior: Updatable, start: Updatable) -> "QuasiNewtonAscent":
        """An ascent from a Gaussian `start`.

        EM never fills an empty column of a factor: start from the posterior of a stream.
        """
        zero, one = jnp.zeros_like(start.mean), jnp.ones_like(start.mean[0])
        nothing = start.gather(prior.precision)
        here = EvaluatedGaussian(start, -jnp.inf * one, zero, nothing, zero[0])
        empty = jnp.zeros((MEMORY, start.dim), zero.dtype)
        none = jnp.zeros((), jnp.int32)
        return cls(prior, here, start, empty, empty, one, jnp.inf * one, none)

    @property
    def posterior(self) -> Updatable:
        return self.best.posterior

    @property
    def proposal(self) -> Updatable:
        return self.candidate

    @property
    def passes(self) -> Int[Array, ""]:
        return self.turns

    @property
    def elbo(self) -> Scalar:
        return self.best.elbo

    def turn(self, sums: RowSums) -> "QuasiNewtonAscent":
        there, old = self._evaluate(sums), self.best.elbo
        rises = there.elbo >= old - bound_resolution(old, self.best.rounding)
        mean_steps, gradient_changes = self._remember(there)  # even of a rejected step
        here = jax.tree.map(lambda a, b: jnp.where(rises, a, b), there, self.best)
        length = jnp.where(rises, 1.0, self.length / 1.5)
        return QuasiNewtonAscent(
            self.prior,
            here,
            _propose(self.prior, here, mean_steps, gradient_changes, length),
            mean_steps,
            gradient_changes,
            length,
            jnp.where(rises, there.elbo - old, self.last_gain),
            self.passes + 1,
        )

    def gap(self) -> Scalar:
        """The gap of the mean plus that of the precision's diagonal, relative to the diagonal."""
        q, here = self.posterior, self.best
        change = here.target.diagonal / q.precision.diagonal() - 1
        return here.gradient @ q.covariance.matvec(here.gradient) + change @ change / 2

    def should_continue(self, tolerance: float) -> Bool[Array, ""]:
        return (self.last_gain > tolerance) & (self.length > SHORTEST)

    def converged(self, tolerance: float) -> Bool[Array, ""]:
        """Whether the last pass gained no more than `tolerance` nats or the rounding error of the bound."""
        small = self.last_gain <= jnp.maximum(tolerance, self._resolution())
        return jnp.isfinite(self.best.elbo) & small & (self.length > SHORTEST)

    def remaining(self) -> Scalar:
        """The gain of the last pass, or the rounding error of the bound if that is larger."""
        return jnp.maximum(self.last_gain, self._resolution())

    def _resolution(self) -> Scalar:
        return bound_resolution(self.best.elbo, self.best.rounding)

    def _evaluate(self, sums: RowSums) -> EvaluatedGaussian:
        """The proposal with its bound, gradient and target, from the sums over all rows."""
        q, prior = self.proposal, self.prior
        away = prior.precision.matvec(q.mean - prior.mean)
        target = jax.tree.map(jnp.add, sums.curvature, q.gather(prior.precision))
        bound = sums.value - kl(q, prior)
        return EvaluatedGaussian(q, bound, sums.gradient - away, target, sums.rounding.bound)

    def _remember(
        self, there: EvaluatedGaussian
    ) -> tuple[Float[Array, "m d"], Float[Array, "m d"]]:
        """The steps of the mean and the changes of the gradient, the latest first."""
        step = there.posterior.mean - self.best.posterior.mean
        turn = self.best.gradient - there.gradient
        usable = (self.passes > 0) & jnp.all(jnp.isfinite(step) & jnp.isfinite(turn))
        new = (jnp.where(usable, a, 0) for a in (step, turn))
        pairs = zip((self.mean_steps, self.gradient_changes), new, strict=True)
        mean_steps, gradient_changes = (jnp.roll(old, 1, axis=0).at[0].set(a) for old, a in pairs)
        return mean_steps, gradient_changes


def whiten(prior: Any, q: Any) -> tuple[Float[Array, "d d"], Vector]:
    """Precision and mean of q in coordinates where the prior is N(0, I); both have full covariances."""
    away = jnp.linalg.solve(q.root, prior.root)
    return away.T @ away, linalg.inverse_root(prior.root).T @ (q.mean - prior.mean)


def whitened_natural(prior: Any, q: Any) -> Float[Array, " n"]:
    """The natural parameters of q in coordinates where the prior is N(0, I)."""
    precision, mean = whiten(prior, q)
    return natural_gradient.natural_parameters(precision, precision @ mean)


def _no_rounding(like: Array) -> Rounding:
    return Rounding(jnp.zeros((), like.dtype), jnp.zeros((), like.dtype))


def _propose(
    prior: Updatable,
    here: EvaluatedGaussian,
    mean_steps: Float[Array, "m d"],
    gradient_changes: Float[Array, "m d"],
    length: Scalar,
) -> Updatable:
    """A step of the precision towards S, and a quasi-Newton step of the given length for the mean."""
    q = here.posterior
    # a rejected step is tried again with the mean only, in case the precision moved too far
    whole = length == 1
    there = q.toward(here.target, prior)
    there = jax.tree.map(lambda a, b: jnp.where(whole, a, b), there, q)
    step = _quasi_newton(here, mean_steps, gradient_changes)
    return eqx.tree_at(lambda q: q.mean, there, q.mean + length * step)


def _quasi_newton(here: EvaluatedGaussian, mean_steps, gradient_changes) -> Vector:
    """The step of the mean by BFGS's two-loop recursion, newest pair first; zero pairs do nothing."""
    products = jnp.sum(mean_steps * gradient_changes, axis=1)
    good = products > 0
    rho = jnp.where(good, 1 / jnp.where(good, products, 1), 0)

    def down(v, pair):
        s, y, r = pair
        a = r * (s @ v)
        return v - a * y, a

    v, alphas = jax.lax.scan(down, here.gradient, (mean_steps, gradient_changes, rho))

    def up(v, pair):
        s, y, r, a = pair
        return v + (a - r * (y @ v)) * s, None

    v = here.posterior.covariance.matvec(v)
    return jax.lax.scan(up, v, (mean_steps, gradient_changes, rho, alphas), reverse=True)[0]
