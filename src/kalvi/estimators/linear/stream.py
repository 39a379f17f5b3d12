"""The stream of a linear model: its rule, prior and blocks, and which engine learns from which rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import inf
from typing import Any

import equinox as eqx
import numpy as np
from tqdm import tqdm

from kalvi import streams
from kalvi.estimators.linear.families import Family
from kalvi.estimators.linear.settings import SCHEMES, LinearSettings
from kalvi.estimators.progress import with_progress
from kalvi.predictors import linear_predictor
from kalvi.rules import drifts
from kalvi.rules.base import Batch, Rule
from kalvi.rules.drifts import Drifting
from kalvi.rules.grid import SideBySide, stack, take
from kalvi.rules.rvga import RVGA, Streaming
from kalvi.streams import engines, run

SINGLE_ROWS = 4
"""NumPy learns from so few rows of a full covariance one by one: that costs less than a padded block."""

Rows = tuple[Any, ...]
"""x, y and the weights of some rows, checked, and the time before each where times are uneven."""


@dataclass(frozen=True, eq=False)
class LinearStream:
    """How a linear model with these settings streams."""

    settings: LinearSettings
    family: Family
    n_features: int
    on_grid: bool = False  # whether several prior scales are streamed side by side
    sparse: bool = False  # whether the first rows stayed sparse

    @cached_property
    def schedule(self) -> streams.Schedule:
        """The number of rows in each block: what the user asked for, or what suits the parameters."""
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
    def rule(self) -> Rule:
        """The rule, one for all prior scales."""
        given = self.settings
        rule = RVGA(
            self.family.likelihood,
            SCHEMES[given.scheme],
            forgetting=None if given.forgetting == 1 else given.forgetting,
            process_noise=None if given.process_noise == 0 else float(given.process_noise),
            drift=given.drift,
            block_size=self.schedule.largest,
            predictor=linear_predictor(self.family.likelihood.outputs),
        )
        return SideBySide(rule) if self.on_grid else rule

    @property
    def scales(self) -> Any:
        """The prior scales that are streamed."""
        return self.family.scales if self.on_grid else [self.settings.prior_scale]

    @cached_property
    def sites(self) -> int:
        """The number of predictors of a row, counted once for each prior."""
        return self.family.likelihood.outputs * len(self.scales)

    @cached_property
    def n_numbers(self) -> int:
        """How many numbers a state holds."""
        dim = self.family.likelihood.outputs * (self.n_features + bool(self.settings.fit_intercept))
        columns = dim if self.settings.rank is None else self.settings.rank + 2
        return len(self.scales) * dim * columns

    def prior(self) -> Any:
        """The prior, one for each scale of a grid."""
        outputs = self.family.likelihood.outputs
        made = [self.settings.make_prior(scale, self.n_features, outputs) for scale in self.scales]
        return stack(made) if self.on_grid else made[0]

    def begin(self) -> Any:
        """The state before the first row."""
        return self.with_anchor(run.begin(self.rule, self.prior()))

    def with_anchor(self, state: Any) -> Any:
        """The state with the prior that coefficients drift to, of which most often variances will do."""
        return eqx.tree_at(lambda s: s.drifting, state, self._drifting(), is_leaf=_is_none)

    def anchored(self, state: Any) -> Any:
        """The state as this stream goes on with it: anchored if it was not, where coefficients drift."""
        kept = 0 if state.drifting is None else state.drifting.ahead.shape[-1]
        return state if kept == len(self.settings.drifts) else self.with_anchor(state)

    def after_change(self, state: Any) -> Any:
        """The state as this stream goes on with it where the drift was another one.

        A step that the other drift took ahead counts for nothing: the prior's part of the precision is
        too large then, never too small, and comes back.
        """
        return self.with_anchor(state)

    def _drifting(self) -> Drifting | None:
        given, outputs = self.settings, self.family.likelihood.outputs
        anchors = (
            given.make_prior(scale, self.n_features, outputs, variances=True).anchor()
            for scale in self.scales
        )
        kept = [drifts.start(given.drifts, anchor) for anchor in anchors if given.drifts]
        if not kept:
            return None
        return stack(kept) if self.on_grid else kept[0]

    # learning --------------------------------------------------------------------------------------

    def learn(self, state: Any, buffer: streams.Buffer, rows: Rows) -> tuple[Any, streams.Buffer]:
        """State and buffer after further rows, all of some weight; the first of a stream are NumPy's."""
        n, seen = len(rows[1]), buffer.seen + buffer.count
        first = engines.rows_by_numpy(self.n_numbers, seen, n, self.sites)
        if first == n and not self.settings.verbose:
            return self._learn(state, buffer, rows, by_numpy=True)
        head, tail = _part(rows, slice(first)), _part(rows, slice(first, n))
        with tqdm(total=n, unit=" rows", unit_scale=True, disable=not self.settings.verbose) as bar:
            if first:
                if first < n:
                    ahead, _ = self._cut(streams.Buffer(seen + first), tail, by_numpy=False)
                    run.compile_ahead(self.rule, state, islice(ahead, 2))
                state, buffer = self._learn(state, buffer, head, by_numpy=True, bar=bar)
            if first < n:
                state, buffer = self._learn(state, buffer, tail, by_numpy=False, bar=bar)
        return state, buffer

    def _learn(
        self,
        state: Any,
        buffer: streams.Buffer,
        rows: Rows,
        *,
        by_numpy: bool,
        bar: tqdm | None = None,
    ) -> tuple[Any, streams.Buffer]:
        """State and buffer after rows that one engine learns from."""
        seen = buffer.seen
        batches, buffer = self._cut(buffer, rows, by_numpy)
        if buffer.seen > seen:  # some block is full
            state, show = engines.placed(state, by_numpy), None
            if bar is not None and not bar.disable:
                batches = with_progress(batches, bar, len(rows[1]))
                show = self._show_loss(bar)
            state = run.resume(self.rule, state, batches, after_block=show)
        return state, buffer

    def _cut(
        self, buffer: streams.Buffer, rows: Rows, by_numpy: bool
    ) -> tuple[Iterator[Batch], streams.Buffer]:
        """The batches that one engine learns from, and the buffer after them."""
        layout = {**self.settings.layout, "chunks": not by_numpy}
        if self.settings.rank is not None:
            return buffer.push(rows, self.schedule, **layout)
        # a full covariance needs no whole blocks, so no row waits
        n = len(rows[1])
        size = 1 if by_numpy and n <= SINGLE_ROWS else self.schedule.largest
        batches = streams.array_batches(*rows, block_size=size, stacked=True, **layout)
        return batches, streams.Buffer(buffer.seen + n)

    def _show_loss(self, bar: tqdm) -> Callable[[Any], None]:
        """A function that shows the present loss beside a progress bar."""

        def show_loss(state: Any) -> None:
            best = self.best_member(state)
            loss = -float(best.log_evidence) / max(float(best.rows), 1)
            bar.set_postfix(log_loss=f"{loss:.4f}", refresh=False)

        return show_loss

    # members of a grid -----------------------------------------------------------------------------

    def best_index(self, state: Any) -> int:
        """The number of the member of the grid with the most evidence."""
        if not self.on_grid:
            return 0
        members = [take(state, i) for i in range(len(self.scales))]
        return int(np.argmax([self.family.evidence(member) for member in members]))

    def best_member(self, state: Any) -> Streaming:
        """The member of the grid with the most evidence; the state itself if there is no grid."""
        return take(state, self.best_index(state)) if self.on_grid else state


def _is_none(value: Any) -> bool:
    return value is None


def _part(rows: Rows, which: slice) -> Rows:
    return tuple(array[which] for array in rows)
