"""Steps of q = N(c, F Fᵀ + diag ψ), given the gradients of −ELBO in c, F and β = log ψ.

    Plain          a learning rate for each                                              (Algorithm 3)
    Transform      any Optax optimiser
    Preconditioned c ← c − ρ S g_c,   F ← F − ½ ρ S G_F,   β ← β − ρ g_β,   S = F Fᵀ + diag ψ,
                   ρₜ = ρ₀/(1 + t/τ), at most 1/λ_max(S Λ) if the batch's Λ is known

The last does not depend on units: in directions of θ with a large curvature, S is small. ρ₀ is at most ½.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int

from kalvi.gaussians import LowRankCovariance
from kalvi.numerics.linalg import LowRankPlusDiagonal
from kalvi.numerics.namespaces import Scalar, Setting, as_setting
from kalvi.rules.vifa.gradients import Slopes
from kalvi.rules.visits import BatchVisit

POWER_ITERATIONS = 8
FARTHEST = 0.5
"""A limit on each step, because single draws have heavy tails: on changes of log ψ, and in deviations of q
on average on changes of the columns of F and, if no curvature bounds it, of the mean."""


class Step(eqx.Module):
    """A method that turns gradients into the next q."""

    @abstractmethod
    def init(self, q: LowRankCovariance) -> Any:
        """The memory before the first step."""

    @abstractmethod
    def __call__(
        self,
        q: LowRankCovariance,
        slopes: Slopes,
        memory: Any,
        number: Int[Array, ""],
        curved: BatchVisit | None,
        prior_precision: Setting,
    ) -> tuple[LowRankCovariance, Any]:
        """The next q, and the memory for the following step."""


class Plain(Step):
    """Stochastic gradient descent."""

    mean_rate: Setting = eqx.field(converter=as_setting, default=0.01)
    factor_rate: Setting = eqx.field(converter=as_setting, default=0.001)
    log_diag_rate: Setting = eqx.field(converter=as_setting, default=0.01)

    def init(self, q: LowRankCovariance) -> None:
        return None

    def __call__(self, q, slopes, memory, number, curved, prior_precision):
        rates = (self.mean_rate, self.factor_rate, self.log_diag_rate)
        return move(q, Slopes(*(-r * s for r, s in zip(rates, slopes, strict=True)))), memory


class Transform(Step):
    """An Optax optimiser, or anything with its `init` and `update`."""

    optimiser: Any = eqx.field(static=True)

    def init(self, q: LowRankCovariance) -> Any:
        return self.optimiser.init(parameters(q))

    def __call__(self, q, slopes, memory, number, curved, prior_precision):
        moves, memory = self.optimiser.update(slopes, memory, parameters(q))
        return move(q, moves), memory


class Preconditioned(Step):
    """Steps in units of q's own covariance."""

    step_size: Setting = eqx.field(converter=as_setting, default=0.5)
    decay: Setting = eqx.field(converter=as_setting, default=30.0)  # τ

    def init(self, q: LowRankCovariance) -> None:
        return None

    def __call__(self, q, slopes, memory, number, curved, prior_precision):
        rate = self.step_size / (1 + number / self.decay)
        if curved is not None:
            rate = jnp.minimum(rate, 1 / stiffness(q.covariance, curved, prior_precision))
        turn = q.covariance.matvec(slopes.factor)
        square = jnp.sum(turn * slopes.factor) / max(turn.shape[1], 1)  # of ½ S G_F, in q's units
        rate = jnp.minimum(
            rate, FARTHEST * 2 * jax.lax.rsqrt(square + jnp.finfo(square.dtype).tiny)
        )
        log_diag = jnp.clip(-rate * slopes.log_diag, -FARTHEST, FARTHEST)
        shift = -rate * q.covariance.matvec(slopes.mean)
        if curved is None:
            size = jnp.sqrt(-rate * (shift @ slopes.mean) / len(shift))  # in q's deviations
            shift = shift * jnp.minimum(FARTHEST / jnp.maximum(size, FARTHEST / 2), 1)
        return move(q, Slopes(shift, -rate / 2 * turn, log_diag)), memory


def stiffness(
    covariance: LowRankPlusDiagonal, curved: BatchVisit, prior_precision: Setting
) -> Scalar:
    """λ_max(S Λ), Λ = α + H, by power iterations; a lower bound, which is close if it is large."""

    def iterate(_, carry):
        v, _ = carry
        image = covariance.matvec(prior_precision * v + curved.matvec(v))
        size = jnp.sqrt(jnp.sum(image**2))
        return image / jnp.maximum(size, jnp.finfo(v.dtype).tiny), size

    v = jr.normal(jr.key(0), covariance.diag.shape, covariance.diag.dtype)
    v = v / jnp.sqrt(jnp.sum(v**2))
    return jax.lax.fori_loop(0, POWER_ITERATIONS, iterate, (v, jnp.ones((), v.dtype)))[1]


def parameters(q: LowRankCovariance) -> Slopes:
    """c, F and log ψ."""
    return Slopes(q.mean, q.covariance.factor, jnp.log(q.covariance.diag))


def move(q: LowRankCovariance, moves: Slopes) -> LowRankCovariance:
    """q after these changes of c, F and log ψ."""
    mean, factor, log_diag = (a + b for a, b in zip(parameters(q), moves, strict=True))
    return LowRankCovariance(mean, factor, jnp.exp(log_diag))
