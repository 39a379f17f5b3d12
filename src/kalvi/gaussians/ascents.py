"""From what the rows say at one Gaussian to the next one: the ascent of the variational bound.

The bound ELBO(q) = Σ wᵢ E_q[log p(yᵢ | fᵢ)] − KL(q ‖ prior) over q = N(μ, Λ⁻¹) is at its optimum where

    Λ = S(q) = Σ₀⁻¹ + Σ wᵢ Jᵢᵀ Γᵢ Jᵢ,      ∇(q) = Σ wᵢ Jᵢᵀ gᵢ − Σ₀⁻¹ (μ − μ₀) = 0,

with gᵢ, Γᵢ the expected gradient and curvature of row i under the law of its predictors; of a structure
that cannot hold S, where Λ is the best of its kind for it. An ascent proposes a Gaussian to visit
(`visited`); a pass over the rows, in one place or in many, adds up the bound, ∇ and what the structure
needs of S there (`Updatable.gather`); `turn` judges it and proposes the next. A proposal that lowers the
bound is not taken.

`NaturalAscent`, of a full covariance, takes natural-gradient steps combined by Anderson's method
(`numerics.natural_gradient`), in coordinates where the prior is N(0, I).

`QuasiNewtonAscent` is for every structure that can move its precision towards S (`Updatable.toward`); the
mean takes a quasi-Newton step (limited-memory BFGS) that starts from Σ for the inverse Hessian. S itself is
never formed.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kalvi.gaussians.base import Gathered, Updatable
from kalvi.gaussians.divergences import kl
from kalvi.numerics import linalg, natural_gradient
from kalvi.numerics.natural_gradient import Climb, Rounding, unseen

Scalar = Float[Array, ""]
Vector = Float[Array, " d"]

MEMORY = 8
"""Past steps that the quasi-Newton method remembers."""
SHORTEST = 1e-3
"""A mean step shortened to less than this share of itself ends the ascent."""


class Sums(NamedTuple):
    """What a pass adds up over the rows at one Gaussian; sums of parts of the rows add."""

    value: Scalar  # Σ w E log p
    gradient: Vector  # Σ w Jᵀ g
    curvature: Any  # what the structure gathers of Σ w Jᵀ Γ J
    rounding: Rounding
    weight: Scalar  # Σ w
    roughness: Scalar  # nats by which integrals that are not exact may disagree with the bound


def no_sums(q: Updatable) -> Sums:
    """The sums of no rows at a Gaussian."""
    kept = jax.eval_shape(lambda q: q.gather(q.precision), q)
    curvature = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), kept)
    zero = jnp.zeros_like(q.mean)
    return Sums(zero[0], zero, curvature, _no_rounding(zero), zero[0], zero[0])


class Ascent(eqx.Module):
    """An ascent on its way."""

    prior: eqx.AbstractVar[Any]

    @property
    @abstractmethod
    def posterior(self) -> Any:
        """The best Gaussian so far."""

    @property
    @abstractmethod
    def visited(self) -> Any:
        """The Gaussian at which `turn` wants the sums over all rows."""

    @property
    @abstractmethod
    def passes(self) -> Int[Array, ""]:
        """Gaussians visited so far."""

    @property
    @abstractmethod
    def elbo(self) -> Scalar:
        """The bound at the best Gaussian so far."""

    @abstractmethod
    def turn(self, sums: Sums) -> "Ascent":
        """Judge the Gaussian that was visited, and propose the next."""

    @abstractmethod
    def gap(self) -> Scalar:
        """The squared natural-gradient norm, twice the nats to the optimum near it, or an estimate."""

    @abstractmethod
    def going(self, tolerance: float) -> Bool[Array, ""]:
        """Whether another pass may gain more than `tolerance` nats."""

    @abstractmethod
    def converged(self, tolerance: float) -> Bool[Array, ""]:
        """Whether no more than `tolerance` nats, or than the bound is known to, are to be gained."""

    @abstractmethod
    def remaining(self) -> Scalar:
        """Nats by which the bound may still rise, as far as it is known."""


class NaturalAscent(Ascent):
    """The ascent of a full covariance."""

    prior: Any  # Dense
    climb: Climb

    @classmethod
    def begin(
        cls, prior: Any, start: Any, memory: int = natural_gradient.MEMORY
    ) -> "NaturalAscent":
        """From a Gaussian `start`, such as the posterior of a stream; few passes need little memory."""
        natural = whitened_natural(prior, start)
        d = start.dim
        nothing = jnp.zeros((d, d), natural.dtype)
        still = natural_gradient.Sums(nothing[0, 0], nothing[0], nothing, _no_rounding(nothing))

        def at(natural: Float[Array, " n"]) -> natural_gradient.Point:
            return natural_gradient.point_at(natural, d, lambda mean, root: still)

        return cls(prior, natural_gradient.begin(at, natural, memory))

    @property
    def posterior(self) -> Any:
        here = self.climb.here
        root = linalg.root_from_precision(here.precision)
        return self._in_units(here.mean, root)

    @property
    def visited(self) -> Any:
        _, _, mean, root = natural_gradient.gaussian_of(self.climb.proposal, self.prior.dim)
        return self._in_units(mean, root)

    @property
    def elbo(self) -> Scalar:
        return self.climb.here.elbo

    @property
    def passes(self) -> Int[Array, ""]:
        return self.climb.passes

    def turn(self, sums: Sums) -> "NaturalAscent":
        root = self.prior.root
        own = root.T @ sums.gradient, root.T @ sums.curvature @ root
        whitened = natural_gradient.Sums(sums.value, *own, sums.rounding)
        there = natural_gradient.point_at(
            self.climb.proposal, self.prior.dim, lambda mean, root: whitened
        )
        rough = sums.roughness / jnp.where(sums.weight > 0, sums.weight, 1)
        turned = natural_gradient.turn(self.climb, there, sums.weight, rough)
        return NaturalAscent(self.prior, turned)

    def gap(self) -> Scalar:
        return self.climb.here.gap

    def going(self, tolerance: float) -> Bool[Array, ""]:
        return self.climb.going(2 * tolerance, jnp.iinfo(jnp.int32).max)

    def converged(self, tolerance: float) -> Bool[Array, ""]:
        return jnp.isfinite(self.elbo) & self.climb.close(2 * tolerance)

    def remaining(self) -> Scalar:
        return jnp.maximum(self.climb.here.gap, self.climb.here.floor) / 2

    def _in_units(self, mean: Vector, root: Float[Array, "d d"]) -> Any:
        return type(self.prior).from_root(
            self.prior.mean + self.prior.root @ mean, self.prior.root @ root
        )


class Visited(NamedTuple):
    """A Gaussian and the bound there, with all that a step from it needs."""

    posterior: Updatable
    elbo: Scalar
    gradient: Vector  # ∇
    target: Gathered  # of S
    rounding: Scalar | float


class QuasiNewtonAscent(Ascent):
    """The ascent of any structure that can move its precision towards S."""

    prior: Updatable
    here: Visited
    candidate: Updatable
    moved: Float[Array, "m d"]
    turned: Float[Array, "m d"]
    length: Scalar  # of the last step, 1 unless it was shortened
    gained: Scalar  # nats of the last pass; infinite before there is one
    turns: Int[Array, ""]

    @classmethod
    def begin(cls, prior: Updatable, start: Updatable) -> "QuasiNewtonAscent":
        """From a Gaussian `start`; EM never fills an empty column: start from a streaming posterior."""
        zero, one = jnp.zeros_like(start.mean), jnp.ones_like(start.mean[0])
        nothing = start.gather(prior.precision)
        here = Visited(start, -jnp.inf * one, zero, nothing, zero[0])
        empty = jnp.zeros((MEMORY, start.dim), zero.dtype)
        none = jnp.zeros((), jnp.int32)
        return cls(prior, here, start, empty, empty, one, jnp.inf * one, none)

    @property
    def posterior(self) -> Updatable:
        return self.here.posterior

    @property
    def visited(self) -> Updatable:
        return self.candidate

    @property
    def passes(self) -> Int[Array, ""]:
        return self.turns

    @property
    def elbo(self) -> Scalar:
        return self.here.elbo

    def turn(self, sums: Sums) -> "QuasiNewtonAscent":
        there, old = self._judged(sums), self.here.elbo
        rises = there.elbo >= old - unseen(old, self.here.rounding)
        moved, turned = self._remember(there)  # also of a step that is taken back
        here = jax.tree.map(lambda a, b: jnp.where(rises, a, b), there, self.here)
        length = jnp.where(rises, 1.0, self.length / 1.5)
        return QuasiNewtonAscent(
            self.prior,
            here,
            _candidate(self.prior, here, moved, turned, length),
            moved,
            turned,
            length,
            jnp.where(rises, there.elbo - old, self.gained),
            self.turns + 1,
        )

    def gap(self) -> Scalar:
        """That of the mean, and of the diagonal of the precision in units of itself."""
        q, here = self.posterior, self.here
        change = here.target.diagonal / q.precision.diagonal() - 1
        return here.gradient @ q.covariance.matvec(here.gradient) + change @ change / 2

    def going(self, tolerance: float) -> Bool[Array, ""]:
        return (self.gained > tolerance) & (self.length > SHORTEST)

    def converged(self, tolerance: float) -> Bool[Array, ""]:
        """Whether the last pass gained no more than `tolerance` nats, or than the bound is known to."""
        small = self.gained <= jnp.maximum(tolerance, self._known_to())
        return jnp.isfinite(self.here.elbo) & small & (self.length > SHORTEST)

    def remaining(self) -> Scalar:
        """What the last pass gained, or what the bound is known to."""
        return jnp.maximum(self.gained, self._known_to())

    def _known_to(self) -> Scalar:
        return unseen(self.here.elbo, self.here.rounding)

    def _judged(self, sums: Sums) -> Visited:
        """What the pass found at the Gaussian it visited."""
        q, prior = self.visited, self.prior
        away = prior.precision.matvec(q.mean - prior.mean)
        target = jax.tree.map(jnp.add, sums.curvature, q.gather(prior.precision))
        bound = sums.value - kl(q, prior)
        return Visited(q, bound, sums.gradient - away, target, sums.rounding.bound)

    def _remember(self, there: Visited) -> tuple[Float[Array, "m d"], Float[Array, "m d"]]:
        """The steps so far and how the gradient turned along each, the newest first."""
        step = there.posterior.mean - self.here.posterior.mean
        turn = self.here.gradient - there.gradient
        usable = (self.turns > 0) & jnp.all(jnp.isfinite(step) & jnp.isfinite(turn))
        new = (jnp.where(usable, a, 0) for a in (step, turn))
        pairs = zip((self.moved, self.turned), new, strict=True)
        moved, turned = (jnp.roll(old, 1, axis=0).at[0].set(a) for old, a in pairs)
        return moved, turned


def whitened(prior: Any, q: Any) -> tuple[Float[Array, "d d"], Vector]:
    """Precision and mean of q in coordinates where the prior is N(0, I); both have full covariances."""
    away = jnp.linalg.solve(q.root, prior.root)
    return away.T @ away, linalg.inverse_root(prior.root).T @ (q.mean - prior.mean)


def whitened_natural(prior: Any, q: Any) -> Float[Array, " n"]:
    """The natural parameters of q in those coordinates."""
    precision, mean = whitened(prior, q)
    return natural_gradient.natural_of(precision, precision @ mean)


def _no_rounding(like: Array) -> Rounding:
    return Rounding(jnp.zeros((), like.dtype), jnp.zeros((), like.dtype))


def _candidate(
    prior: Updatable,
    here: Visited,
    moved: Float[Array, "m d"],
    turned: Float[Array, "m d"],
    length: Scalar,
) -> Updatable:
    """A step of the precision towards S, and a quasi-Newton step of the given length for the mean."""
    q = here.posterior
    # a step that was taken back is tried again with the mean alone, in case the sites moved too far
    whole = length == 1
    there = q.toward(here.target, prior)
    there = jax.tree.map(lambda a, b: jnp.where(whole, a, b), there, q)
    step = _quasi_newton(here, moved, turned)
    return eqx.tree_at(lambda q: q.mean, there, q.mean + length * step)


def _quasi_newton(here: Visited, moved, turned) -> Vector:
    """The two-loop recursion, newest pair first; empty pairs do nothing."""
    products = jnp.sum(moved * turned, axis=1)
    good = products > 0
    rho = jnp.where(good, 1 / jnp.where(good, products, 1), 0)

    def down(v, pair):
        s, y, r = pair
        a = r * (s @ v)
        return v - a * y, a

    v, alphas = jax.lax.scan(down, here.gradient, (moved, turned, rho))

    def up(v, pair):
        s, y, r, a = pair
        return v + (a - r * (y @ v)) * s, None

    v = here.posterior.covariance.matvec(v)
    return jax.lax.scan(up, v, (moved, turned, rho, alphas), reverse=True)[0]
