"""Drift: how a Gaussian changes with time if the parameters change while rows arrive.

Plain forgetting, Σ⁻¹ ← λ Σ⁻¹, and plain random walks, Σ ← Σ + q I, wind up: the variance of directions that
no row informs grows without bound, and the next row along one of them moves the mean absurdly far. Each
drift here has the prior p₀ = N(μ₀, Σ₀), Λ₀ = Σ₀⁻¹, as its stationary distribution, and Σ never exceeds Σ₀:

    Geometric           q ← q^λ p₀^(1−λ):  Λ ← λ Λ + (1 − λ) Λ₀,  Λ' μ' = λ Λ μ + (1 − λ) Λ₀ μ₀
    OrnsteinUhlenbeck   θ ← μ₀ + a (θ − μ₀) + √(1 − a²) ε, ε from p₀:
                        Σ ← a² Σ + (1 − a²) Σ₀,  μ ← μ₀ + a (μ − μ₀)
    RandomWalk          the same with one a for each parameter, aᵢ² = 1 − q/Σ₀ᵢᵢ: a walk of variance q a
    row,
                        held within the prior; ε then has the prior's variances and no correlations

Geometric is stabilised forgetting (Kulhavý & Zarrop 1993); n units of time are one step with λⁿ or aⁿ.

Time is counted in rows unless rows say how much time passed before them. The rows of a block see the
Gaussian at the end of the block. Under Geometric, row j sees its precision divided by ρⱼ = λ^(time after
j). This is right for the information from rows, but makes the prior's part too large, by a factor below
λ^(−time of the block). So blocks should be short relative to the memory 1/(1 − λ); `part_within` cuts them
if times are uneven.

If a step costs as much as several blocks of rows (with a full covariance), one step serves several blocks:
at most `blocks_per_step`, and only while λ^time ≥ 1/`MOST_AHEAD`. It is taken ahead of time: Geometric
fades the precision with every block, which costs nothing, and a step adds as much of Λ₀ as is needed until
the next step. The part of the prior in Λ is then between Λ₀ and `MOST_AHEAD` Λ₀.
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
"""Steps ahead of time make the prior's part of the precision too large by at most this factor."""


class Drifting(eqx.Module):
    """The state of a drift, besides the posterior."""

    anchor: Updatable  # the part of the prior to which the drift returns
    ahead: Float[Array, " k"]  # the time for which each drift was already taken


class Drifted(NamedTuple):
    """A Gaussian after some time, the state of its drift, and the share of the information that is left."""

    posterior: Updatable
    drifting: Drifting
    left: Scalar


class Drift(eqx.Module):
    """How parameters change with time; the prior is their stationary distribution."""

    @abstractmethod
    def left(self, time: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """The share of the information from rows that is left after some time."""

    @abstractmethod
    def wait(self, q: Updatable, time: Scalar) -> Updatable:
        """The Gaussian after a time for which the step was already taken."""

    @abstractmethod
    def step(
        self, q: Updatable, anchor: Updatable, time: Scalar, past: Scalar, ahead: Scalar
    ) -> Updatable:
        """The Gaussian after `time`, of which `past` is not yet accounted for, and `ahead` of the time that
        follows."""

    @abstractmethod
    def speed(self, anchor: Updatable) -> Scalar:
        """How fast information fades: −log of the share that is left after one unit of time."""

    @abstractmethod
    def longest_block(self) -> float:
        """The most rows that a block may have, as far as this is known without the prior."""

    def take(
        self, q: Updatable, anchor: Updatable, ahead: Scalar, time: Scalar
    ) -> tuple[Updatable, Scalar]:
        """The Gaussian after some time, and the time that it is then ahead."""
        blocks, none = q.blocks_per_step(), jnp.zeros_like(time)
        if blocks == 1:
            return self.step(q, anchor, time, time, none), none
        least = float(jnp.finfo(time.dtype).tiny)
        allowed = log(MOST_AHEAD) / jnp.maximum(self.speed(anchor), least)
        allowed = allowed / jnp.maximum(time, least)
        further = time * jnp.floor(jnp.minimum(allowed, blocks - 1.0))
        return jax.lax.cond(
            (ahead < time) & (self.speed(anchor) > 0),
            lambda: (self.step(q, anchor, time, time - ahead, further), further),
            lambda: (self.wait(q, time), jnp.maximum(ahead - time, 0)),
        )


class Geometric(Drift):
    """The information of earlier rows fades by the factor `keep` a row, and the prior replaces it.

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
    """A drift of the parameters themselves; the information from rows fades only because they move."""

    def left(self, time: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.ones_like(time)

    def wait(self, q: Updatable, time: Scalar) -> Updatable:
        return q


class OrnsteinUhlenbeck(Wandering):
    """Parameters wander around the prior mean within the prior's deviations.

    `keep` is their correlation from one row to the next; it is lost in about 1/(1 − keep) rows.
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
    """The parameters' variances grow by `variance` a row, up to those of the prior."""

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
    """A drift unchanged; a number as `Geometric`, or as None if it is 1, which keeps everything."""
    if value is None or isinstance(value, Drift):
        return value
    return None if isinstance(value, Real) and value == 1 else Geometric(value)


def start(drifts: tuple[Drift, ...], prior: Updatable) -> Drifting | None:
    """The state of these drifts at the beginning of a stream."""
    if not drifts:
        return None
    return Drifting(prior.anchor(), jnp.zeros(len(drifts), prior.mean.dtype))


def after(drifts: tuple[Drift, ...], q: Updatable, drifting: Drifting, time: Scalar) -> Drifted:
    """A Gaussian after some time under all drifts, applied one after the other."""
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
    """The first of the remaining rows, up to the half-life of their information, and the time before
    each."""
    places, first = jnp.arange(len(left)), jnp.argmax(left)
    since = jnp.cumsum(jnp.where(places > first, elapsed, 0))
    speed = sum(drift.speed(drifting.anchor) for drift in drifts)
    part = left & ((places == first) | (since * speed <= log(2)))
    return part, jnp.where(part, elapsed, 0)


def share_left(drifts: tuple[Drift, ...], time: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The share of the information from rows that is left after some time under all drifts."""
    left = jnp.ones_like(time)
    for drift in drifts:
        left = left * drift.left(time)
    return left


def _rows_until_half(keep: float) -> float:
    return inf if keep >= 1 else log(0.5) / log(keep)


def _power(keep: Setting, time: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """keep^time, at least the rounding unit."""
    return jnp.maximum(jnp.asarray(keep, time.dtype) ** time, float(jnp.finfo(time.dtype).eps))


def _need_share(name: str, keep: Setting) -> None:
    if not is_traced(keep) and not np.all((keep > 0) & (keep <= 1)):
        raise ValueError(
            f"{name} needs what is kept from a row to the next, a number in (0, 1]; got {keep}."
        )
