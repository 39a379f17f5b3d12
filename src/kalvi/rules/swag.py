"""Gaussians fitted to the iterates θ₁, θ₂, … of an SGD path, in memory linear in d.

`SWA` (Izmailov et al. 2018, "Averaging weights leads to wider optima and better generalization") keeps
their mean. `SWAG` (Maddox et al. 2019, "A simple baseline for Bayesian uncertainty in deep learning") adds
their variances and the last K deviations d_t = θ_t − mean_t from the running mean as columns of D:

    q = N(mean, ½ diag(var) + ½ D Dᵀ/(K − 1)),        with K = 0:  N(mean, diag(var)).

Maddox et al. take var as the mean of squares minus the squared mean, which cancels; here it is Welford's
sum of squares, Σ w (θ − mean_before)(θ − mean_after). Until K iterates have come, their number replaces K;
the first deviation is zero by definition. In case a parameter never moves, variances are kept above the
floor for the noise of a factor analysis (`factor_analysis.factor_model.floor_noise`).

`FASWAG` fits a factor analysis to the iterates with any rule for streams of rows. `WindowAverage` (Mandt,
Hoffman & Blei 2017, "Stochastic gradient descent as approximate Bayesian inference") replaces iterates by
the means of disjoint windows of them. `papers.vifa_iterates` compares these Gaussians with the posterior:
SGD with a constant step has its own stationary covariance.

Iterates come as rows of a `Batch`; a row of weight 0 changes nothing.
"""

from abc import abstractmethod
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi.gaussians import Diagonal, Gaussian, LowRankCovariance
from kalvi.numerics import linalg
from kalvi.numerics.namespaces import Scalar
from kalvi.rules import factor_analysis as fa
from kalvi.rules.factor_analysis.factor_model import floor_noise
from kalvi.rules.rule import Batch, StreamRule

State = TypeVar("State")
Inner = TypeVar("Inner")
Vector = Float[Array, " d"]
Count = Int[Array, ""]


class PathRule(StreamRule[State], Generic[State]):
    """A rule for iterates, which begins from any vector of their length and dtype."""

    @property
    @abstractmethod
    def least(self) -> int:
        """The fewest iterates that give a Gaussian."""

    @abstractmethod
    def mean(self, state: State) -> Vector:
        """The average of the iterates."""

    @abstractmethod
    def posterior(self, state: State) -> Gaussian:
        """The Gaussian of the iterates so far."""


class Path(eqx.Module):
    """The running mean, the sum of squares about it, and the last deviations, of which the oldest is
    replaced next."""

    mean: Vector
    squares: Vector | None
    deviations: Float[Array, "k d"]
    rows: Scalar  # their total weight
    count: Count  # of rows


class SWA(PathRule[Path]):
    """Stochastic weight averaging.

    Parameters
    ----------
    variance : bool, default False
        Whether to keep variances as well, for a diagonal Gaussian.
    """

    variance: bool = eqx.field(static=True, default=False)

    @property
    def least(self) -> int:
        return 2

    def init(self, prior: Vector, *, key: PRNGKeyArray | None = None) -> Path:
        return _no_path(prior, 0, self.variance)

    def update(self, state: Path, batch: Batch, *, key: PRNGKeyArray | None = None) -> Path:
        return _each_row(_averaged, state, batch)

    def mean(self, state: Path) -> Vector:
        return state.mean

    def posterior(self, state: Path) -> Diagonal:
        if state.squares is None:
            raise ValueError(
                "SWA keeps only the mean, which is not a distribution; "
                "use SWA(variance=True), or SWAG for correlations as well."
            )
        return _diagonal(state)


class SWAG(PathRule[Path]):
    """Stochastic weight averaging, Gaussian.

    Parameters
    ----------
    rank : int, default 20
        The number K of deviations that are kept: 0 for a diagonal Gaussian, or at least 2.
    """

    rank: int = eqx.field(static=True, default=20)

    def __check_init__(self):
        if self.rank < 0 or self.rank == 1:
            raise ValueError(
                f"SWAG needs rank 0 or at least 2, because it divides by rank − 1; got {self.rank}."
            )

    @property
    def least(self) -> int:
        return 2

    def init(self, prior: Vector, *, key: PRNGKeyArray | None = None) -> Path:
        _check_rank(self.rank, prior)
        return _no_path(prior, self.rank, True)

    def update(self, state: Path, batch: Batch, *, key: PRNGKeyArray | None = None) -> Path:
        return _each_row(_averaged, state, batch)

    def mean(self, state: Path) -> Vector:
        return state.mean

    def posterior(self, state: Path) -> Diagonal | LowRankCovariance:
        if self.rank == 0:
            return _diagonal(state)
        kept = jnp.minimum(state.count, self.rank)
        scale = 1 / jnp.sqrt(2 * jnp.maximum(kept - 1, 1).astype(state.mean.dtype))
        factor = scale * state.deviations.T
        return LowRankCovariance(state.mean, factor, floor_noise(factor, _variances(state) / 2))


class WaitingIterates(eqx.Module, Generic[Inner]):
    """Waiting iterates, and the state of the rule that will learn them."""

    inner: Inner
    waiting: Float[Array, "b d"]
    count: Count  # of waiting iterates
    blocks: Count  # of absorbed blocks


class FASWAG(PathRule[WaitingIterates]):
    """Factor analysis of the iterates.

    Parameters
    ----------
    rule : Rule
        A rule of `rules.factor_analysis`; it begins from a `LowRankCovariance`.
    rank : int
        The number of factors.
    block_size : int, default 16
        The number of iterates that are absorbed together; the variances of the first block are the start.
        `posterior` includes those that still wait.
    random_start : bool, default False
        Whether the start has random factors, which needs a key. EM and gradients never fill a zero factor.
    """

    rule: StreamRule
    rank: int = eqx.field(static=True)
    block_size: int = eqx.field(static=True, default=16)
    random_start: bool = eqx.field(static=True, default=False)

    @property
    def least(self) -> int:
        return 2

    def init(self, prior: Vector, *, key: PRNGKeyArray | None = None) -> WaitingIterates:
        _check_rank(self.rank, prior)
        if self.random_start and key is None:
            raise ValueError("a random start needs a key; give init, or fit, a key.")
        chosen = key if self.random_start else None
        start = fa.start(jnp.zeros_like(prior), jnp.ones_like(prior), self.rank, key=chosen)
        none = jnp.zeros((), jnp.int32)
        waiting = jnp.zeros((self.block_size, len(prior)), prior.dtype)
        return WaitingIterates(self.rule.init(start), waiting, none, none)

    def update(
        self, state: WaitingIterates, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> WaitingIterates:
        return _each_row(lambda *row: self._wait(*row), state, batch)

    def mean(self, state: WaitingIterates) -> Vector:
        return self.posterior(state).mean

    def posterior(self, state: WaitingIterates) -> LowRankCovariance:
        return self._absorb(state).inner.posterior

    def _wait(self, state: WaitingIterates, theta: Vector, weight: Scalar) -> WaitingIterates:
        waiting = jax.lax.dynamic_update_index_in_dim(state.waiting, theta, state.count, 0)
        state = WaitingIterates(state.inner, waiting, state.count + 1, state.blocks)
        full = state.count == self.block_size
        return jax.lax.cond(full, lambda s: self._absorb(s), lambda s: s, state)

    def _absorb(self, state: WaitingIterates) -> WaitingIterates:
        """The state after the waiting iterates; the start has the variances of the first block."""
        weight = (jnp.arange(self.block_size) < state.count).astype(state.waiting.dtype)
        batch = Batch(state.waiting, jnp.zeros_like(weight), weight)

        def scaled(inner):
            unit = inner.posterior
            variance = fa.feature_variances(batch)
            factor = linalg.scale_rows(jnp.sqrt(variance), unit.covariance.factor)
            start = LowRankCovariance(unit.mean, factor, variance * unit.covariance.diag)
            return self.rule.init(start)

        inner = jax.lax.cond(state.blocks == 0, scaled, lambda inner: inner, state.inner)
        inner = self.rule.update(inner, batch)
        return WaitingIterates(inner, state.waiting, jnp.zeros_like(state.count), state.blocks + 1)


class WindowAverage(PathRule[WaitingIterates]):
    """Feeds another rule with the means of disjoint windows of iterates.

    Parameters
    ----------
    inner : PathRule
    window : int
        The number of iterates in a mean; an unfinished window is ignored. For SGD with replacement Mandt et
        al. use the number of batches in an epoch.
    """

    inner: PathRule
    window: int = eqx.field(static=True)

    def __check_init__(self):
        if self.window < 1:
            raise ValueError(f"WindowAverage needs a window of at least 1; got {self.window}.")

    @property
    def least(self) -> int:
        return self.window * self.inner.least

    def init(self, prior: Vector, *, key: PRNGKeyArray | None = None) -> WaitingIterates:
        none = jnp.zeros((), jnp.int32)
        return WaitingIterates(
            self.inner.init(prior, key=key), jnp.zeros_like(prior)[None, :], none, none
        )

    def update(
        self, state: WaitingIterates, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> WaitingIterates:
        return _each_row(lambda *row: self._wait(*row), state, batch)

    def mean(self, state: WaitingIterates) -> Vector:
        return self.inner.mean(state.inner)

    def posterior(self, state: WaitingIterates) -> Gaussian:
        return self.inner.posterior(state.inner)

    def _wait(self, state: WaitingIterates, theta: Vector, weight: Scalar) -> WaitingIterates:
        count = state.count + 1
        past = state.waiting[0]
        mean = past + (theta - past) / count.astype(past.dtype)
        state = WaitingIterates(state.inner, mean[None, :], count, state.blocks)
        return jax.lax.cond(count == self.window, lambda s: self._pass_on(s), lambda s: s, state)

    def _pass_on(self, state: WaitingIterates) -> WaitingIterates:
        one = jnp.ones(1, state.waiting.dtype)
        inner = self.inner.update(state.inner, Batch(state.waiting, jnp.zeros_like(one), one))
        nothing = jnp.zeros_like(state.waiting)
        return WaitingIterates(inner, nothing, jnp.zeros_like(state.count), state.blocks + 1)


def _each_row(step: Any, state: State, batch: Batch) -> State:
    """step(state, θ, weight) for each row whose weight is not zero."""

    def advance(state, row):
        theta, weight = row
        return jax.lax.cond(weight > 0, step, lambda s, *_: s, state, theta, weight), None

    if len(batch.weight) == 1:  # without a loop, which would copy the state
        return advance(state, (batch.x[0], batch.weight[0]))[0]
    return jax.lax.scan(advance, state, (batch.x, batch.weight))[0]


def _averaged(state: Path, theta: Vector, weight: Scalar) -> Path:
    rows = state.rows + weight
    away = theta - state.mean
    mean = state.mean + (weight / rows) * away
    squares, deviations, rank = state.squares, state.deviations, len(state.deviations)
    if squares is not None:
        squares = squares + weight * away * (theta - mean)
    if rank:
        slot = state.count % rank
        deviations = jax.lax.dynamic_update_index_in_dim(deviations, theta - mean, slot, 0)
    return Path(mean, squares, deviations, rows, state.count + 1)


def _no_path(like: Vector, rank: int, variance: bool) -> Path:
    squares = jnp.zeros_like(like) if variance else None
    deviations = jnp.zeros((rank, len(like)), like.dtype)
    return Path(
        jnp.zeros_like(like),
        squares,
        deviations,
        jnp.zeros((), like.dtype),
        jnp.zeros((), jnp.int32),
    )


def _variances(state: Path) -> Vector:
    assert state.squares is not None
    return state.squares / jnp.where(state.rows > 0, state.rows, 1)


def _diagonal(state: Path) -> Diagonal:
    return Diagonal(state.mean, floor_noise(state.deviations[:0].T, _variances(state)))


def _check_rank(rank: int, like: Vector) -> None:
    if rank > len(like):
        raise ValueError(
            f"rank={rank} exceeds the {len(like)} parameters; choose rank ≤ {len(like)}."
        )
