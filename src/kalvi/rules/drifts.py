"""Drift: what time does to a Gaussian whose parameters change while rows arrive.

Plain forgetting, Σ⁻¹ ← λ Σ⁻¹, and plain random walks, Σ ← Σ + q I, wind up: directions that no row excites
widen without end, and the first row that meets one again is answered by nonsense. Each drift here has the
prior p₀ = N(μ₀, Σ₀), Λ₀ = Σ₀⁻¹, as its stationary law, and Σ never exceeds Σ₀:

    Geometric           q ← q^λ p₀^(1−λ):  Λ ← λ Λ + (1 − λ) Λ₀,  Λ' μ' = λ Λ μ + (1 − λ) Λ₀ μ₀
    OrnsteinUhlenbeck   θ ← μ₀ + a (θ − μ₀) + √(1 − a²) ε, ε from p₀:
                        Σ ← a² Σ + (1 − a²) Σ₀,  μ ← μ₀ + a (μ − μ₀)
    RandomWalk          the same with an a of each parameter, aᵢ² = 1 − q/Σ₀ᵢᵢ: a walk of variance q a row,
                        held within the prior; ε then has the prior's variances and no correlations

Geometric is stabilised forgetting (Kulhavý & Zarrop 1993); n units of time are one step with λⁿ or aⁿ.

Time is counted in rows unless rows say how much passed before them. A block of rows sees the Gaussian of
its end, and row j of it, under Geometric, as if its precision were divided by ρⱼ = λ^(time after j): right
for what the rows have said, while what the prior says is then too strong by less than λ^(−time of the
block). So blocks should be short beside the memory 1/(1 − λ); where times are uneven, `part_within` cuts.

A step that costs as much as several blocks of rows (a full covariance) is taken once for several of them,
`blocks_per_step` at most and only while λ^time ≥ 1/`MOST_AHEAD`. It is taken ahead of time: Geometric fades
the precision with every block, which costs nothing, and at a step adds as much of Λ₀ as lasts until the
next; the part of the prior in Λ is then between Λ₀ and `MOST_AHEAD` Λ₀.
"""

from abc import abstractmethod
from math import inf, log
from numbers import Real
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kalvi.gaussians import Diagonal, Updatable
from kalvi.numerics.namespaces import Scalar, Setting, as_setting
from kalvi.numerics.precision import is_traced

MOST_AHEAD = 2.0
"""What is taken ahead of a step makes the prior's part of the precision at most this much too large."""


class Drifting(eqx.Module):
    """What a stream that drifts keeps beside its posterior."""

    anchor: Updatable  # the prior, without what its structure does not hold on to
    ahead: Float[Array, " k"]  # of each drift, the time for which it was taken already


class Drifted(NamedTuple):
    """A Gaussian after some time, and how much of what was known is left."""

    posterior: Updatable
    drifting: Drifting
    left: Scalar


class Drift(eqx.Module):
    """How parameters change with time, the prior being their stationary law."""

    @abstractmethod
    def left(self, time: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """The share of what rows said that is left after some time."""

    @abstractmethod
    def wait(self, q: Updatable, time: Scalar) -> Updatable:
        """The Gaussian after a time for which the step was taken already."""

    @abstractmethod
    def step(
        self, q: Updatable, anchor: Updatable, time: Scalar, past: Scalar, ahead: Scalar
    ) -> Updatable:
        """The Gaussian after a time of which `past` is not accounted for, and ahead of what follows."""

    @abstractmethod
    def speed(self, anchor: Updatable) -> Scalar:
        """How fast the prior would take over, −log of the share that is left, in a unit of time."""

    @abstractmethod
    def longest_block(self) -> float:
        """How many rows a block may have, as far as that is known without the prior."""

    def take(
        self, q: Updatable, anchor: Updatable, ahead: Scalar, time: Scalar
    ) -> tuple[Updatable, Scalar]:
        """The Gaussian after some time, and the time that it is ahead of then."""
        blocks, none = q.blocks_per_step(), jnp.zeros_like(time)
        if blocks == 1:
            return self.step(q, anchor, time, time, none), none
        least = float(jnp.finfo(time.dtype).tiny)
        allowed = log(MOST_AHEAD) / jnp.maximum(self.speed(anchor), least)
        allowed = allowed / jnp.maximum(time, least)
        further = time * jnp.floor(jnp.minimum(allowed, blocks - 1.0))
        return jax.lax.cond(
            ahead < time,
            lambda: (self.step(q, anchor, time, time - ahead, further), further),
            lambda: (self.wait(q, time), ahead - time),
        )


class Geometric(Drift):
    """Old rows fade by the factor `keep` a row, and the prior takes their place.

    The memory is about 1/(1 − keep) rows.
    """

    keep: Setting = eqx.field(converter=as_setting)

    def __check_init__(self):
        _need_share("Geometric", self.keep)

    def left(self, time: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return _power(self.keep, time)

    def wait(self, q: Updatable, time: Scalar) -> Updatable:
        return q.rescale(self.left(time))

    def step(
        self, q: Updatable, anchor: Updatable, time: Scalar, past: Scalar, ahead: Scalar
    ) -> Updatable:
        # the prior's part was λ^-(time − past), and is to be λ^-ahead
        return q.fade(self.left(time), anchor, self.left(-ahead) - self.left(past))

    def speed(self, anchor: Updatable) -> Scalar:
        return -jnp.log(jnp.asarray(self.keep, anchor.mean.dtype))

    def longest_block(self) -> float:
        return _rows_until_half(float(self.keep))


class Wandering(Drift):
    """Parameters move on their own: what rows said of them fades only as they do."""

    def left(self, time: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.ones_like(time)

    def wait(self, q: Updatable, time: Scalar) -> Updatable:
        return q


class OrnsteinUhlenbeck(Wandering):
    """Parameters wander around the prior mean within the prior's deviations.

    `keep` is their correlation between a row and the next, and 1/(1 − keep) the rows in which it is lost.
    """

    keep: Setting = eqx.field(converter=as_setting)

    def __check_init__(self):
        _need_share("OrnsteinUhlenbeck", self.keep)

    def step(
        self, q: Updatable, anchor: Updatable, time: Scalar, past: Scalar, ahead: Scalar
    ) -> Updatable:
        return q.relax(_power(self.keep, past + ahead), anchor)

    def speed(self, anchor: Updatable) -> Scalar:
        return -2 * jnp.log(jnp.asarray(self.keep, anchor.mean.dtype))

    def longest_block(self) -> float:
        return _rows_until_half(float(self.keep) ** 2)


class RandomWalk(Wandering):
    """Parameters gain `variance` a row, but wander no further than the prior's deviations."""

    variance: Setting = eqx.field(converter=as_setting)

    def __check_init__(self):
        variance = self.variance
        if not is_traced(variance) and not np.all((variance >= 0) & np.isfinite(variance)):
            raise ValueError(f"RandomWalk needs a variance of 0 or more; got {variance}.")

    def step(
        self, q: Updatable, anchor: Updatable, time: Scalar, past: Scalar, ahead: Scalar
    ) -> Updatable:
        total = anchor.variance()
        kept = jnp.log1p(-jnp.minimum(self.variance / total, 1))
        keep = jnp.where(past + ahead > 0, jnp.exp(kept * (past + ahead) / 2), 1)
        return q.relax(keep, Diagonal.from_parts(anchor.mean, total))

    def speed(self, anchor: Updatable) -> Scalar:
        return -jnp.log1p(-jnp.minimum(self.variance / jnp.min(anchor.variance()), 1))

    def longest_block(self) -> float:
        return inf


def as_drift(value: Any) -> Any:
    """A drift as it is; a number as that of `Geometric`, where 1 keeps everything and is none."""
    if value is None or isinstance(value, Drift):
        return value
    return None if isinstance(value, Real) and value == 1 else Geometric(value)


def start(drifts: tuple[Drift, ...], prior: Updatable) -> Drifting | None:
    """What is kept for these drifts at the beginning of a stream."""
    if not drifts:
        return None
    return Drifting(prior.anchor(), jnp.zeros(len(drifts), prior.mean.dtype))


def after(drifts: tuple[Drift, ...], q: Updatable, drifting: Drifting, time: Scalar) -> Drifted:
    """A Gaussian after some time of all drifts, one after the other."""
    ahead = []
    for i, drift in enumerate(drifts):
        q, left = drift.take(q, drifting.anchor, drifting.ahead[i], time)
        ahead.append(left)
    return Drifted(q, Drifting(drifting.anchor, jnp.stack(ahead)), share_left(drifts, time))


def part_within(
    drifts: tuple[Drift, ...],
    drifting: Drifting,
    elapsed: Float[Array, " b"],
    left: Bool[Array, " b"],
) -> tuple[Bool[Array, " b"], Float[Array, " b"]]:
    """The first of the rows left, until half of what they say has faded, and the time before each."""
    places, first = jnp.arange(len(left)), jnp.argmax(left)
    since = jnp.cumsum(jnp.where(places > first, elapsed, 0))
    speed = sum(drift.speed(drifting.anchor) for drift in drifts)
    part = left & ((places == first) | (since * speed <= log(2)))
    return part, jnp.where(part, elapsed, 0)


def share_left(drifts: tuple[Drift, ...], time: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The share of what rows said that is left after some time of all drifts."""
    left = jnp.ones_like(time)
    for drift in drifts:
        left = left * drift.left(time)
    return left


def _rows_until_half(keep: float) -> float:
    return inf if keep >= 1 else log(0.5) / log(keep)


def _power(keep: Setting, time: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """keep^time, and never less than rounding."""
    return jnp.maximum(jnp.asarray(keep, time.dtype) ** time, float(jnp.finfo(time.dtype).eps))


def _need_share(name: str, keep: Setting) -> None:
    if not is_traced(keep) and not np.all((keep > 0) & (keep <= 1)):
        raise ValueError(
            f"{name} needs what is kept from a row to the next, a number in (0, 1]; got {keep}."
        )
