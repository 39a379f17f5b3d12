"""Settings learned during a stream: several copies of the stream, which are averaged, pruned and refined.

The settings are a prior scale s and the share λ of the past that a row keeps (`drifts.Geometric`); a grid
has one point g for each pair. Some points are awake: they have a copy of the stream that learns every row.
The others sleep. The weights of the points are a Bayesian mixture of *specialists* (Freund et al. 1997):
between two turns a copy is judged by its evidence e_g = log p(rows | rows before, g), and a sleeping point
is assumed to predict like those that are awake,

    e = log Σ_awake w_g exp(e_g) − log Σ_awake w_g,   w_g ← w_g exp(e_g − e) for g awake.

Σ e is the evidence of the mixture, row by row, because Π p = p. At a turn, at fixed numbers of rows,

    fixed share  w ← (1 − α) w + α/G,  α = 1 − (1 − `SHARE`)^(rows since): the best point may change with
                 time (Herbster & Warmuth 1998), at a price of `SHARE` nats a row
    pruning      the copies with the most weight stay if they are within `BEHIND` nats of the leading one
    refining     free places go to sleeping neighbours of the leading point, by weight
    surprise     after rows that were predicted much worse than usual (`SURPRISED`), to shorter memories

A copy that wakes starts from the leading one's posterior. Under geometric drift the part of the prior in a
precision is Λ₀ = P/s² for any rows. So the change to another scale is known, and a shorter memory λ' keeps
as much of the rows as it would have kept, if the stream remembers n of them:

    Λ ← κ (Λ − P/s²) + P/s'²,   κ = min(1, 1/((1 − λ') n)).

(If a step was taken ahead of time, the prior's part is λ^{-ahead} Λ₀, which is subtracted.)

Additional copies cost time. At first there are as many as `PLACES` says, and later two (three after a
surprise) as long as additional copies have learned at most `CREDIT` + `RATE` · rows in all (plus a
`RESERVE` after a surprise). Everything depends on counts and evidence, nothing on clocks.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from kalvi.numerics.namespaces import Scalar
from kalvi.rules.drifts import Drifting, Geometric
from kalvi.rules.rvga import Streaming

SHARE = 1e-5
"""The share of the weights that each row redistributes equally over all points."""
BEHIND = 7.0
"""A copy that is so many nats behind the leading one, before weights are shared, loses its place."""
PLACES = ((0, 8), (512, 4), (1024, 2))
"""Pairs: from so many rows on, at most so many copies."""
CREDIT, RATE = 8000, 0.25
"""Once there are few places, additional copies learn at most CREDIT + RATE · rows in all."""
RESERVE, RESERVE_RATE = 3000, 0.12
"""After a surprise, or after a change of the leading copy, they may learn RESERVE + RESERVE_RATE · rows
more."""
SURPRISED, RECENT, FEWEST = 4.0, 0.1, 4
"""The rows between two turns are a surprise if their mean loss is the first number of deviations above the
usual loss. That is an average, to which each turn contributes the second number as a share; there are no
surprises before the third number of turns."""
FIRST_TURN, LAST_DOUBLING = 64, 2048
"""Turns come after the first number of rows, after twice as many and so on; later after every second
number."""
MOST_HISTORY = 512
"""The most turns in the history; when there are more, every other one is dropped."""


class Point(NamedTuple):
    """A pair of settings."""

    scale: float  # the prior's deviations, relative to the given prior
    keep: float  # the share of the past that a row keeps


class Grid(NamedTuple):
    """All pairs of prior scales and shares that a row keeps, in order, and the points that begin awake."""

    scales: tuple[float, ...]
    keeps: tuple[float, ...] = (1.0,)
    first: tuple[int, ...] | None = None  # all, if there are no turns
    turns: bool = False  # whether copies come and go

    @property
    def points(self) -> list[Point]:
        return [Point(*pair) for pair in product(self.scales, self.keeps)]

    @property
    def beginners(self) -> tuple[int, ...]:
        """The points that begin awake."""
        return tuple(range(len(self.points))) if self.first is None else self.first

    def standing_still(self, point: int) -> int:
        """The point with the same scale that keeps everything."""
        return point - point % len(self.keeps)

    def beside(self, point: int) -> list[int]:
        """The neighbours of a point, first those with another memory."""
        return self._there(point, [(0, 1), (0, -1), (1, 0), (-1, 0)])

    def quicker(self, point: int) -> list[int]:
        """Points with much shorter memories, which adapt before the leading posterior is forgotten."""
        return self._there(point, [(0, 2), (0, 4)])

    def _there(self, point: int, steps: list[tuple[int, int]]) -> list[int]:
        """The existing points that are these steps away."""
        i, j = divmod(point, len(self.keeps))
        near = [(i + down, j + right) for down, right in steps]
        return [
            a * len(self.keeps) + b
            for a, b in near
            if 0 <= a < len(self.scales) and 0 <= b < len(self.keeps)
        ]


class History(eqx.Module):
    """The weights of the points tried so far at each turn, and the turns that were surprises."""

    rows: Int[np.ndarray, " t"]
    log_weights: Float[np.ndarray, "t g"]
    surprises: Int[np.ndarray, " c"]  # in numbers of rows

    @classmethod
    def begin(cls, points: int) -> "History":
        """The start, before any turn."""
        return cls(np.zeros(0, np.int64), np.zeros((0, points)), np.zeros(0, np.int64))

    def noted(
        self, rows: int, log_weights: Float[np.ndarray, " g"], *, surprise: bool
    ) -> "History":
        """The history with another turn."""
        thin = 2 if len(self.rows) >= MOST_HISTORY else 1
        past = np.append(self.rows[::thin], rows)
        weights = np.vstack([self.log_weights[::thin], log_weights])
        surprises = np.append(self.surprises, [rows] * surprise).astype(np.int64)
        return History(past, weights, surprises[-MOST_HISTORY:])


class Usual(eqx.Module):
    """The usual mean loss of rows between two turns: the number of turns, and its recent average and
    variance."""

    turns: Int[np.ndarray, ""]
    mean: Float[np.ndarray, ""]
    variance: Float[np.ndarray, ""]

    @classmethod
    def begin(cls) -> "Usual":
        """The start, before any turn."""
        return cls(np.zeros((), np.int64), np.zeros(()), np.zeros(()))

    def surprised(self, loss: float) -> bool:
        """Whether a loss is unusual."""
        deviation = float(np.sqrt(self.variance))
        return int(self.turns) >= FEWEST and loss > float(self.mean) + SURPRISED * deviation

    def after(self, loss: float) -> "Usual":
        """The statistics with another loss."""
        if not np.isfinite(loss):
            return self
        share = max(RECENT, 1 / (int(self.turns) + 1))
        away = loss - self.mean
        variance = (1 - share) * (self.variance + share * away**2)
        numbers = self.turns + 1, self.mean + share * away, variance
        return Usual(*(np.asarray(number) for number in numbers))


class Copies(eqx.Module):
    """Copies of a stream with different settings, and the probability of each setting."""

    streams: tuple[Streaming, ...]  # with their evidence since the last turn
    points: Int[np.ndarray, " m"]  # the point of each copy
    tried: Bool[np.ndarray, " g"]  # the points that have ever had a copy
    log_weights: Float[np.ndarray, " g"]  # at the last turn; weights sum to one
    log_evidence: Float[np.ndarray, ""]  # of the mixture, until the last turn
    turned: Int[np.ndarray, ""]  # rows before the last turn
    extra: Int[np.ndarray, ""]  # rows learned by additional copies until then
    usual: Usual
    history: History

    @classmethod
    def begin(cls, grid: Grid, streams: Sequence[Streaming]) -> "Copies":
        """The first copies, one for each point that begins awake."""
        g, none = len(grid.points), np.zeros((), np.int64)
        even = np.full(g, -np.log(g))
        points = np.array(grid.beginners, np.int64)
        tried = np.isin(np.arange(g), points)
        usual = Usual.begin()
        history = History.begin(g)
        return cls(tuple(streams), points, tried, even, np.zeros(()), none, none, usual, history)

    def with_streams(self, streams: Sequence[Streaming]) -> "Copies":
        """The copies with other states of the streams."""
        return replace(self, streams=tuple(streams))

    def judged(self, now: "Judged") -> "Copies":
        """The copies with the rows since the last turn taken into account."""
        return replace(
            self,
            streams=tuple(without_evidence(stream) for stream in self.streams),
            log_weights=now.log_weights,
            log_evidence=np.asarray(now.log_evidence),
        )

    def only(self, index: int) -> "Copies":
        """Only one of the copies, with the same weights."""
        own = slice(index, index + 1)
        return replace(self, streams=self.streams[own], points=self.points[own])


class Judged(NamedTuple):
    """The weights of all points given the rows since the last turn, and the evidence of the mixture."""

    log_weights: Float[np.ndarray, " g"]
    log_evidence: float


def judge(copies: Copies, gained: Sequence[float]) -> Judged:
    """The current weights, given the log evidence that each copy gained since the last turn."""
    before = copies.log_weights[copies.points]
    after = before + np.nan_to_num(np.asarray(gained, float), nan=-np.inf, neginf=-np.inf)
    total = log_sum(after) - log_sum(before)
    if not np.isfinite(total):  # no copy can predict, so their weights do not change
        return Judged(copies.log_weights, float(copies.log_evidence) + total)
    now = copies.log_weights.copy()
    now[copies.points] = np.maximum(after - total, LEAST)
    return Judged(now - log_sum(now), float(copies.log_evidence) + total)


LEAST = -1e4
"""The smallest log weight, so that differences of log weights are finite."""


def turn(grid: Grid, copies: Copies, gained: Sequence[float], seen: int, wake: Any) -> Copies:
    """The copies after a turn, `seen` rows after the beginning.

    wake(stream, point, another point) makes a copy with the settings of the other point.
    """
    judged, log_evidence = judge(copies, gained)
    since, g = seen - int(copies.turned), len(judged)
    share = -np.expm1(since * np.log1p(-SHARE))
    log_weights = np.logaddexp(np.log1p(-share) + judged, np.log(share / g))
    extra = int(copies.extra) + (len(copies.points) - 1) * since
    loss = (float(copies.log_evidence) - log_evidence) / max(since, 1)
    surprise = seen > LAST_DOUBLING and copies.usual.surprised(loss)
    usual = copies.usual.after(loss) if seen > LAST_DOUBLING else copies.usual
    behind = np.max(judged[copies.points]) - judged[copies.points]
    near = [int(p) for p in copies.points[behind < BEHIND]]
    moved = int(np.argmin(behind)) != 0
    most = places(seen, extra, surprise=surprise, moved=moved)
    points = chosen(grid, log_weights, near, most, surprise)
    leader, awake = copies.streams[_index(copies, points[0])], grid.points
    streams = []
    for point in points:
        if point in copies.points:
            streams.append(without_evidence(copies.streams[_index(copies, point)]))
        else:
            streams.append(without_evidence(wake(leader, awake[points[0]], awake[point])))
    return Copies(
        tuple(streams),
        np.array(points, np.int64),
        copies.tried | np.isin(np.arange(g), points),
        log_weights,
        np.asarray(log_evidence),
        np.asarray(seen, np.int64),
        np.asarray(extra, np.int64),
        usual,
        copies.history.noted(seen, among_tried(copies.tried, log_weights), surprise=surprise),
    )


def chosen(
    grid: Grid,
    log_weights: Float[np.ndarray, " g"],
    awake: list[int],
    most: int,
    surprise: bool = False,
) -> list[int]:
    """The points that are awake until the next turn, the leading one first."""
    points = sorted(awake, key=lambda p: -log_weights[p])[:most]
    if surprise:
        points, near = points[:1], grid.quicker(points[0])
    else:
        near = sorted(grid.beside(points[0]), key=lambda p: -log_weights[p])
    free = most - len(points)
    return points + [p for p in near if p not in points][: max(free, 0)]


def among_tried(
    tried: Bool[np.ndarray, " g"], log_weights: Float[np.ndarray, " g"]
) -> Float[np.ndarray, " g"]:
    """The log weights among the points that have ever had a copy; the rows say nothing about the others."""
    known = np.where(tried, log_weights, -np.inf)
    return known - log_sum(known)


def pooled(parts: Sequence[Copies], stream: Streaming, seen: int) -> Copies:
    """One stream for several streams over different rows: their evidence about the settings adds up."""
    even = -np.log(len(parts[0].log_weights))
    weights = sum(part.log_weights for part in parts) - (len(parts) - 1) * even
    evidence = np.asarray(sum(float(part.log_evidence) for part in parts))
    extra = np.asarray(sum(int(part.extra) for part in parts), np.int64)
    first = parts[0]
    return Copies(
        (without_evidence(stream),),
        first.points[:1],
        np.any([part.tried for part in parts], axis=0),
        weights - log_sum(weights),
        evidence,
        np.asarray(seen, np.int64),
        extra,
        Usual.begin(),
        History.begin(len(weights)),
    )


def places(seen: int, extra: int, *, surprise: bool = False, moved: bool = False) -> int:
    """The most copies until the next turn, after additional copies have learned `extra` rows.

    A surprise, or a change of the leading copy, allows more.
    """
    most = next(n for rows, n in reversed(PLACES) if seen >= rows)
    if most > PLACES[-1][1]:
        return most
    ahead = next_turn(seen) - seen
    allowed = CREDIT + RATE * (seen + ahead)
    if surprise or moved:
        allowed += RESERVE + RESERVE_RATE * (seen + ahead)
    most += surprise
    return most if extra + (most - 1) * ahead <= allowed else 1


def next_turn(seen: int) -> int:
    """The number of rows at the next turn."""
    if seen < LAST_DOUBLING:
        return max(FIRST_TURN, 1 << int(seen).bit_length())
    return (seen // LAST_DOUBLING + 1) * LAST_DOUBLING


def other_settings(stream: Streaming, narrower: Scalar, keep: Scalar, other: Scalar) -> Streaming:
    """A copy with the prior precision multiplied by `narrower`, which keeps another share of the past."""
    assert stream.drifting is not None
    anchor, ahead = stream.drifting.anchor, stream.drifting.ahead
    prior_part = Geometric(keep).left(-ahead[0])
    left = 1 / jnp.maximum((1 - other) * stream.rows, 1)
    posterior = stream.posterior.fade(left, anchor, narrower - left * prior_part)
    drifting = Drifting(anchor.rescale(narrower), jnp.zeros_like(ahead))
    sums = {"rows": left * stream.rows, "innovations": left * stream.innovations}
    return replace(stream, posterior=posterior, drifting=drifting, **sums)


def log_sum(a: Float[np.ndarray, " n"]) -> float:
    """log Σ exp(a), −∞ if all are."""
    most = float(np.max(a))
    return most + float(np.log(np.sum(np.exp(a - most)))) if np.isfinite(most) else most


def _index(copies: Copies, point: int) -> int:
    return int(np.flatnonzero(copies.points == point)[0])


def without_evidence(stream: Streaming) -> Streaming:
    """The stream with its evidence set to zero, because small sums keep more digits."""
    return replace(stream, log_evidence=np.zeros((), stream.log_evidence.dtype))
