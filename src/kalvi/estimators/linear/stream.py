"""The stream of a linear model: its rule, its prior, its blocks, and the engine for its rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from math import inf
from typing import Any

import equinox as eqx
import numpy as np
from tqdm import tqdm

from kalvi import streams
from kalvi.estimators.linear.families import Family
from kalvi.estimators.linear.grids import LEARNED, make_grid
from kalvi.estimators.linear.settings import SCHEMES, LinearSettings
from kalvi.estimators.progress import with_progress
from kalvi.predictors import linear_predictor
from kalvi.rules import drifts, side_by_side
from kalvi.rules.drifts import Drifting
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA, Streaming
from kalvi.rules.side_by_side import Copies, Grid, Point
from kalvi.streams import engines, run

SINGLE_ROWS = 4
"""With a full covariance NumPy learns up to so many rows one by one, which costs less than a padded
block."""

Rows = tuple[Any, ...]
"""Checked rows: x, y, weights and, if times are uneven, the time before each."""


@dataclass(frozen=True, eq=False)
class LinearStream:
    """The stream of a linear model with these settings."""

    settings: LinearSettings
    family: Family
    n_features: int
    sought: str = ""  # how settings are found (`grids`), if they are not given
    sparse: bool = False  # whether the first rows stayed sparse

    @cached_property
    def schedule(self) -> streams.Schedule:
        """The number of rows in each block: the user's choice, or one that suits the parameters."""
        given, outputs = self.settings, self.family.likelihood.outputs
        if given.block_size != "auto":
            return streams.Schedule(int(given.block_size), growing=False)
        width = self.n_features + bool(given.fit_intercept)
        if given.rank is None:
            schedule = streams.Schedule.for_full_covariance(width, outputs)
        else:
            itemsize = np.dtype(given.dtype).itemsize
            schedule = streams.Schedule.for_low_rank(
                given.rank, width, outputs, itemsize, sparse=self.sparse
            )
        return schedule.at_most(min((drift.longest_block() for drift in given.drifts), default=inf))

    @cached_property
    def rule(self) -> RVGA:
        """The rule; if the drift is learned, that of a copy without drift."""
        given = self.settings
        if self.learned:
            moving: dict[str, Any] = {"drift": drifts.Geometric(np.ones((), given.dtype))}
        else:
            moving = {
                "forgetting": None if given.forgetting == 1 else given.forgetting,
                "process_noise": None if given.process_noise == 0 else float(given.process_noise),
                "drift": given.drift,
            }
        return RVGA(
            self.family.likelihood,
            SCHEMES[given.scheme],
            block_size=self.schedule.largest,
            predictor=linear_predictor(self.family.likelihood.outputs),
            unit_noise=self.learned and self.family.learns_noise,
            **moving,
        )

    # settings --------------------------------------------------------------------------------------

    @property
    def learned(self) -> bool:
        """Whether settings are learned during the stream."""
        return self.sought == LEARNED

    @cached_property
    def grid(self) -> Grid | None:
        """The settings that copies of the stream may have."""
        if not self.sought:
            return None
        return make_grid(self.settings, self.family, self.schedule.largest, self.learned)

    @cached_property
    def points(self) -> list[Point]:
        """The settings of the grid."""
        return [] if self.grid is None else self.grid.points

    def rule_of(self, point: Point | None) -> RVGA:
        """The rule of the copy with these settings; all are one program."""
        if point is None or not self.learned:
            return self.rule
        return self._rules[point.keep]

    @cached_property
    def _rules(self) -> dict[float, RVGA]:
        keeps = {keep: np.asarray(keep, self.settings.dtype) for _, keep in self.points}
        return {
            keep: eqx.tree_at(lambda rule: rule.drift.keep, self.rule, number)
            for keep, number in keeps.items()
        }

    def scale_at(self, point: Point | None) -> Any:
        """The prior scale of a copy."""
        sought = point is not None and self.settings.seeks_scale
        return point.scale if point is not None and sought else self.settings.fixed_scale

    def points_of(self, state: Any) -> list[Point | None]:
        """The settings of each copy in a state; None for those that are given."""
        if not isinstance(state, Copies):
            return [None]
        return [self.points[i] for i in state.points]

    @cached_property
    def n_numbers(self) -> int:
        """The number of numbers in the state of a copy."""
        dim = self.family.likelihood.outputs * (self.n_features + bool(self.settings.fit_intercept))
        columns = dim if self.settings.rank is None else self.settings.rank + 2
        return dim * columns

    def prior(self, point: Point | None = None) -> Any:
        """The prior of a copy."""
        outputs = self.family.likelihood.outputs
        return self.settings.make_prior(self.scale_at(point), self.n_features, outputs)

    def begin(self) -> Any:
        """The state before the first row."""
        if self.grid is None:
            return self._begin(None)
        points = [self.points[i] for i in self.grid.beginners]
        return Copies.begin(self.grid, [self._begin(point) for point in points])

    def _begin(self, point: Point | None) -> Streaming:
        return self._anchor(run.begin(self.rule_of(point), self.prior(point)), point)

    def with_anchor(self, state: Any) -> Any:
        """The state with the prior to which coefficients drift; usually its variances are enough."""
        pairs = zip(streams_of(state), self.points_of(state), strict=True)
        return with_streams(state, [self._anchor(stream, point) for stream, point in pairs])

    def _anchor(self, stream: Streaming, point: Point | None) -> Streaming:
        kept = self._drifting(point)
        return eqx.tree_at(lambda s: s.drifting, stream, kept, is_leaf=_is_none)

    def anchored(self, state: Any) -> Any:
        """The state for continuing this stream, with an anchor if coefficients drift."""
        drifting = streams_of(state)[0].drifting
        kept = 0 if drifting is None else drifting.ahead.shape[-1]
        return state if kept == len(self.rule.drifts()) else self.with_anchor(state)

    def after_change(self, state: Any) -> Any:
        """The state for continuing this stream after a change of the drift.

        Steps that the old drift took ahead are ignored: the prior's part of the precision is then too large
        for a while, but never too small.
        """
        return self.with_anchor(state)

    def _drifting(self, point: Point | None) -> Drifting | None:
        given, outputs = self.settings, self.family.likelihood.outputs
        moving = self.rule.drifts()
        if not moving:
            return None
        scale = self.scale_at(point)
        prior = given.make_prior(scale, self.n_features, outputs, variances=True)
        return drifts.start(moving, prior.anchor())

    # learning --------------------------------------------------------------------------------------

    def learn(self, state: Any, buffer: streams.Buffer, rows: Rows) -> tuple[Any, streams.Buffer]:
        """The state and the buffer after further rows with weights above 0; NumPy learns the first of a
        stream."""
        n, verbose = len(rows[1]), bool(self.settings.verbose)
        if n == 0:
            return state, buffer
        given, ahead, done = state, False, 0
        with tqdm(total=n, unit=" rows", unit_scale=True, disable=not verbose) as bar:
            while done < n:
                size = self._rows_at_once(buffer, n - done)
                by_numpy = self._rows_by_numpy(state, buffer, n - done)
                size = min(size, by_numpy) if by_numpy else size
                part = _part(rows, slice(done, done + size))
                if by_numpy and by_numpy < n - done and not ahead:
                    self._compile_ahead(state, buffer, _part(rows, slice(done + size, n)))
                    ahead = True
                learn = self._learn if state is not given else self._learn_first
                state, buffer = learn(state, buffer, part, bool(by_numpy), bar)
                done += size
        return state, buffer

    def _rows_by_numpy(self, state: Any, buffer: streams.Buffer, n: int) -> int:
        """How many of the next n rows NumPy learns, before the copies change."""
        copies = len(streams_of(state))
        sites = self.family.likelihood.outputs * copies
        seen = buffer.seen + buffer.count
        return engines.rows_by_numpy(self.n_numbers * copies, seen, n, sites)

    def _rows_at_once(self, buffer: streams.Buffer, n: int) -> int:
        """How many of n rows come before the end of the block at which the copies change."""
        if not self.learned:
            return n
        turn = side_by_side.next_turn(buffer.seen)
        end = turn if self.settings.rank is None else buffer.seen
        while end < turn:
            end += self.schedule.size(end)
        return min(end - buffer.seen - buffer.count, n)

    def _compile_ahead(self, state: Any, buffer: streams.Buffer, rows: Rows) -> None:
        """Start compiling the programs for these rows."""
        later = streams.Buffer(buffer.seen)
        size = min(side_by_side.LAST_DOUBLING, len(rows[1])) if self.learned else len(rows[1])
        batches, _ = self._cut(later, _part(rows, slice(size)), by_numpy=False)
        one = streams_of(state)[0]
        run.compile_ahead(self.rule, one, islice(batches, 2))

    def _learn_first(self, state: Any, *args: Any) -> tuple[Any, streams.Buffer]:
        """Learn as `_learn` does, without changing the given state."""
        return self._learn(with_streams(state, run.copied(streams_of(state))), *args)

    def _learn(
        self, state: Any, buffer: streams.Buffer, rows: Rows, by_numpy: bool, bar: tqdm
    ) -> tuple[Any, streams.Buffer]:
        """The state and the buffer after rows that one engine learns, including a turn at their end."""
        seen, before = buffer.seen, buffer
        batches, buffer = self._cut(buffer, rows, by_numpy)
        if buffer.seen > seen:  # at least one block is full
            learned, show = engines.placed(streams_of(state), by_numpy), None
            if not bar.disable:
                batches = with_progress(batches, bar, len(rows[1]))
                show = self._show_loss(bar, state)
            rules = [self.rule_of(point) for point in self.points_of(state)]
            for batch in batches:
                learned = _advance(rules, learned, batch)
                if show is not None:
                    show(learned)
            state = with_streams(state, learned)
            if self.learned and buffer.seen >= side_by_side.next_turn(before.seen):
                state = self._turn(state, buffer.seen)
        return state, buffer

    def _turn(self, state: Copies, seen: int) -> Copies:
        """The state after a turn, with the copies for the next rows."""
        assert self.grid is not None
        return side_by_side.turn(self.grid, state, self.gained(state), seen, self._wake)

    def _wake(self, stream: Streaming, here: Point, there: Point) -> Streaming:
        """The stream with other settings."""
        numbers = (here.scale / there.scale) ** 2, here.keep, there.keep
        parts = (np.asarray(number, self.settings.dtype) for number in numbers)
        return run.call(side_by_side.other_settings, stream, *parts)

    def _cut(
        self, buffer: streams.Buffer, rows: Rows, by_numpy: bool
    ) -> tuple[Iterator[Batch], streams.Buffer]:
        """The batches for one engine, and the buffer after them."""
        layout = {**self.settings.layout, "chunks": not by_numpy}
        if self.settings.rank is not None:
            return buffer.push(rows, self.schedule, **layout)
        # a full covariance does not need full blocks, so no row waits
        n = len(rows[1])
        size = 1 if by_numpy and n <= SINGLE_ROWS else self.schedule.largest
        batches = streams.array_batches(*rows, block_size=size, stacked=True, **layout)
        return batches, streams.Buffer(buffer.seen + n)

    def after_batch(self, state: Any, batch: Batch) -> Any:
        """The state after a batch, without a turn; the given state does not change."""
        rules = [self.rule_of(point) for point in self.points_of(state)]
        return with_streams(state, _advance(rules, run.copied(streams_of(state)), batch))

    def called(self, state: Any, batch: Batch) -> Any:
        """The state after a batch as one call, for states whose structure differs from the stream's."""
        rules = [self.rule_of(point) for point in self.points_of(state)]
        pairs = zip(rules, streams_of(state), strict=True)
        return with_streams(state, [run.call(type(r).update, r, s, batch) for r, s in pairs])

    def _show_loss(self, bar: tqdm, state: Any) -> Callable[[Any], None]:
        """A function that shows the current loss next to a progress bar."""

        def show_loss(learned: Any) -> None:
            now = with_streams(state, learned)
            loss = -self.evidence(now) / max(float(self.best_member(now).rows), 1)
            bar.set_postfix(log_loss=f"{loss:.4f}", refresh=False)

        return show_loss

    # copies ----------------------------------------------------------------------------------------

    def gained(self, state: Copies) -> list[float]:
        """The log evidence of each copy since the last turn."""
        if self.learned:
            return [float(stream.log_evidence) for stream in state.streams]
        return [self.family.evidence(stream) for stream in state.streams]

    def weights(self, state: Any) -> np.ndarray:
        """The weights of the copies, usually of a single one; they sum to one."""
        if not isinstance(state, Copies):
            return np.ones(1)
        if not self.learned:
            return (np.arange(len(state.streams)) == np.argmax(self.gained(state))).astype(float)
        found = side_by_side.judge(state, self.gained(state)).log_weights[state.points]
        return np.exp(found - side_by_side.log_sum(found))

    def evidence(self, state: Any) -> float:
        """The log evidence: of the mixture if settings are learned, otherwise of the best copy."""
        if isinstance(state, Copies) and self.learned:
            return side_by_side.judge(state, self.gained(state)).log_evidence
        return self.family.evidence(self.best_member(state))

    def counted(self, state: Copies) -> Copies:
        """The state with the evidence of its copies since the last turn taken into account."""
        return state.judged(side_by_side.judge(state, self.gained(state)))

    def moved(self, state: Copies, index: int, point: int) -> Copies:
        """The state with a single copy, which has the settings of another point."""
        one = state.only(index)
        stream, here = one.streams[0], int(one.points[0])
        if here != point:
            stream = self._wake(stream, self.points[here], self.points[point])
        points = np.array([point], np.int64)
        return replace(one, points=points, streams=(stream,))

    def best_index(self, state: Any) -> int:
        """The index of the copy with the most weight."""
        return int(np.argmax(self.weights(state)))

    def best_member(self, state: Any) -> Streaming:
        """The copy with the most weight."""
        return streams_of(state)[self.best_index(state)]


def streams_of(state: Any) -> tuple[Streaming, ...]:
    """The streams in a state: the copies, or a single one."""
    return state.streams if isinstance(state, Copies) else (state,)


def with_streams(state: Any, learned: Any) -> Any:
    """The state with other streams."""
    return state.with_streams(learned) if isinstance(state, Copies) else learned[0]


def _advance(rules: list[RVGA], learned: Any, batch: Batch) -> tuple[Streaming, ...]:
    """The streams after a batch."""
    pairs = zip(rules, learned, strict=True)
    return tuple(run.advance(rule, stream, batch) for rule, stream in pairs)


def _is_none(value: Any) -> bool:
    return value is None


def _part(rows: Rows, which: slice) -> Rows:
    return tuple(array[which] for array in rows)
