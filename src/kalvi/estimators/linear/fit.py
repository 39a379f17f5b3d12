"""A fit of a linear model: the state of its stream, waiting rows, the posterior in the user's units."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import equinox as eqx
import numpy as np

from kalvi import streams
from kalvi.estimators.linear.families import Family
from kalvi.estimators.linear.fit_results import FitResults, LookAhead, Member, Optimum
from kalvi.estimators.linear.grids import FIXED, LEARNED, how_sought
from kalvi.estimators.linear.learned_settings import LearnedSettings, summarise
from kalvi.estimators.linear.predictive import LinearPredictive
from kalvi.estimators.linear.settings import LinearSettings
from kalvi.estimators.linear.stream import LinearStream, Rows, streams_of, with_streams
from kalvi.gaussians import Dense, Gaussian, Updatable
from kalvi.numerics.namespaces import is_jax, on_device, on_host
from kalvi.numerics.precision import matching_precision
from kalvi.rules import side_by_side
from kalvi.rules.rvga import Streaming
from kalvi.rules.side_by_side import Copies, Point
from kalvi.streams import run

MOST_AHEAD = 1024
"""Up to so many parameters, waiting rows are absorbed in a full covariance."""
LEAST_STILL = 0.01
"""Coefficients count as constant if settings without drift have at least this weight."""
LEAST_WEIGHT = 1e-3
"""Copies with less weight are left out of predictions."""

FIELDS = {
    "state_": "state",
    "buffer_": "buffer",
    "_chosen": "member",
    "klprox_scale_": "klprox_scale",
    "clock_": "clock",
    "_after_waiting": "with_waiting",
    "_unprojected": "without_projection",
}
"""The fields of a fit, by their names in files."""
OPTIMUM = ("n_passes_", "elbo_", "elbo_gap_", "converged_")
PARTS = (*FIELDS, *OPTIMUM, "structure_")
"""The names of all parts in files."""


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A linear model that has learned some rows; methods that learn return another fit.

    Results are computed when they are first read, and kept.
    """

    stream: LinearStream
    state: Any  # Streaming, or Copies if settings are learned
    buffer: streams.Buffer
    parameters: tuple[Any, ...] | None = None  # of the estimator, when they were last checked
    optimum: Optimum | None = None  # if the posterior is that of an ascent, with no rows after it
    member: int | None = None  # of the grid, if an ascent has continued with it
    klprox_scale: Any = None  # the prior scale of a fit that began at the optimum
    clock: float | None = None  # the time of the last row, if rows have times
    ahead: LookAhead | None = None  # the state with some waiting rows
    with_waiting: Any = None  # of a file: the state after the waiting rows
    without_projection: Any = None  # of a file: that state for predictions

    @classmethod
    def begin(
        cls, settings: LinearSettings, family: Family, x: Any, *, streaming: bool
    ) -> "LinearFit":
        """A fit without rows; x shows the form of the first ones."""
        sparse = streams.stays_sparse(x, bool(settings.fit_intercept))
        settings = settings.resolved(streaming)
        sought = how_sought(settings, streaming)
        stream = LinearStream(settings, family, x.shape[1], sought, sparse)
        return cls(stream, stream.begin(), streams.Buffer())

    def with_stream(self, **changes: Any) -> "LinearFit":
        """The fit with other settings, another family or more features."""
        return replace(self, stream=replace(self.stream, **changes))

    @property
    def settings(self) -> LinearSettings:
        """The parameters of the estimator when the fit was made."""
        return self.stream.settings

    @property
    def family(self) -> Family:
        """The likelihood of y, and the noise that is learned with the coefficients."""
        return self.stream.family

    @property
    def n_features(self) -> int:
        """The number of features, without the intercept."""
        return self.stream.n_features

    @property
    def learned(self) -> bool:
        """Whether settings are learned during the stream."""
        return self.stream.learned

    def resolved(self, settings: LinearSettings) -> LinearSettings:
        """The parameters of the estimator in the form that this fit uses."""
        return settings.resolved(self.learned)

    def structure(self) -> dict[str, Any]:
        """The settings that must not change during a stream."""
        given = self.settings
        sought = "" if self.klprox_scale is not None else how_sought(given, self.learned)
        memories = sought == LEARNED and given.seeks_drift
        cut: dict[str, Any] = {}
        if given.rank is not None or memories:  # rows wait, or the memories suit the blocks
            cut = {
                "block_size": given.block_size,
                "rows of a block": self.stream.schedule.largest,
            }
        scale = "auto" if sought == FIXED else "given"
        if sought == LEARNED and given.seeks_scale:
            scale = "learned"
        return {
            "rank": given.rank,
            "fit_intercept": bool(given.fit_intercept),
            "dtype": np.dtype(given.dtype).name,
            "prior_scale": scale,
            "drift": "learned" if memories else "given",
            "sparse": self.stream.sparse,
        } | cut

    # learning --------------------------------------------------------------------------------------

    def learn(self, rows: Rows, times: np.ndarray | None = None) -> "LinearFit":
        """The fit after further rows; with a low rank, rows that do not fill a block wait."""
        clock = self.clock
        if times is not None:
            times = times[rows[2] > 0]
            start = times[:1] if clock is None else [clock]
            rows = (*drop_zero_weight(*rows), np.diff(np.concatenate([start, times])))
            clock = float(times[-1]) if len(times) else clock
        state, buffer = self.stream.learn(self.state, self.buffer, drop_zero_weight(*rows))
        parts = {"buffer": buffer, "clock": clock, "optimum": None, "member": None}
        return self.changed(state=state, **parts)

    def changed(self, **changes: Any) -> "LinearFit":
        """The fit with another state, for which nothing is known of rows that wait."""
        return replace(self, with_waiting=None, without_projection=None, **changes)

    def with_parameters(self, settings: LinearSettings, family: Family) -> "LinearFit":
        """The fit ready to learn further rows with these parameters."""
        settings = self.resolved(settings)
        fit = self.resumed().with_stream(settings=settings, family=family)
        same = settings.drifts == self.settings.drifts
        go_on = fit.stream.anchored if same else fit.stream.after_change
        return replace(fit, state=go_on(fit.state), parameters=None)

    def resumed(self) -> "LinearFit":
        """The fit ready to learn further rows."""
        known = vars(self).get("_ahead", self.ahead)
        state = self.stream.anchored(self.resumable(self.state))
        if known is self.ahead and state is self.state:
            return self
        return replace(self, state=state, ahead=known)

    def resumable(self, state: Any) -> Any:
        """A state whose posterior has the structure of the stream."""
        return _all_in_full(state) if self.settings.rank is None else state

    def parameter_indices(self, features: np.ndarray, n_features: int) -> Any:
        """The indices of the parameters of some features, and of the intercept, among all parameters."""
        intercept = bool(self.settings.fit_intercept)
        own = np.append(features, [n_features] * intercept).astype(int)
        outputs, width = range(self.family.likelihood.outputs), n_features + intercept
        return np.concatenate([own + width * k for k in outputs])

    def at(self, posterior: Updatable, prior: Any, rows: Rows, optimum: Optimum) -> "LinearFit":
        """The fit with another posterior in its best state, at the end of an ascent over all its rows."""
        state, best = self.current.state, self.current.best
        index, n_rows = self.best_index(state), int(np.sum(rows[2] > 0))
        best = eqx.tree_at(lambda s: s.posterior, best, posterior)
        best = self.family.update_noise(best, prior, rows, bool(self.settings.fit_intercept))
        if not isinstance(state, Copies):
            return self.with_state(best, n_rows, optimum)
        if self.learned:
            best = side_by_side.without_evidence(best)
            return self.with_state(state.with_streams([best]), n_rows, optimum)
        others = list(state.streams)
        others[index] = best
        return self.with_state(state.with_streams(others), n_rows, optimum, index)

    def with_state(
        self, state: Any, n_rows: int, optimum: Optimum | None, member: int | None = None
    ) -> "LinearFit":
        """A fit with this state, without waiting rows."""
        none_waits = {"buffer": streams.Buffer(n_rows), "ahead": None}
        return self.changed(state=state, optimum=optimum, member=member, **none_waits)

    # results ---------------------------------------------------------------------------------------

    @cached_property
    def current(self) -> FitResults:
        """The fit with the waiting rows absorbed as a block."""
        with matching_precision(self.settings.dtype):
            rest = self.buffer.rest(self.stream.schedule, **self.settings.layout)
            state = self.state if rest is None else self.stream.after_batch(self.state, rest)
            return self.results_of(state)

    @cached_property
    def posterior(self) -> Gaussian:
        """The posterior in the user's units, with JAX arrays."""
        with matching_precision(self.settings.dtype):
            return on_device(self.current.posterior)

    @cached_property
    def on_host(self) -> FitResults:
        """The results as NumPy arrays, or JAX arrays if they are on an accelerator."""
        state = self.state if self.buffer.waiting is None else self.with_waiting
        if state is None or is_jax(state):
            state = on_host(self.current.state)
        return self.current if is_jax(state) else self.results_of(state)

    @cached_property
    def predicting(self) -> FitResults:
        """The results for predictions: as `on_host`, but waiting rows are not projected."""
        if self.buffer.waiting is None or not self.may_look_ahead:
            return self.on_host
        if self.without_projection is not None:
            return self.results_of(self.without_projection)
        with matching_precision(self.settings.dtype):
            return self.results_of(on_host(self._ahead.state))

    @cached_property
    def predictive(self) -> LinearPredictive:
        """Predictions of rows."""
        return LinearPredictive(self.family, self.settings, self.predicting.members)

    @property
    def may_look_ahead(self) -> bool:
        """Whether parameters are so few that waiting rows are absorbed in a full covariance."""
        return streams_of(self.state)[0].posterior.dim <= MOST_AHEAD

    @cached_property
    def _ahead(self) -> LookAhead:
        """The state with all waiting rows, computed from the state with the first of them."""
        known = self.ahead
        if known is None or known.base is not self.state:
            known = LookAhead(self.state, 0, _all_in_full(self.state))
        rows = self.buffer.since(known.count, self.stream.schedule, self.settings.layout)
        if rows is None:
            return known
        count = known.count + int(np.sum(np.asarray(rows.weight) > 0))
        return LookAhead(known.base, count, self.stream.called(known.state, rows))

    def results_of(self, state: Any) -> FitResults:
        """A state with its best copy and the posteriors in the user's units."""
        index, found = self.best_index(state), streams_of(state)
        weights = self.stream.weights(state) if self.member is None else np.ones(1)
        best = found[index]
        leading = Member(1.0, best, self.in_units(best.posterior, best))
        members = [leading]
        if self.learned:
            kept = [i for i in np.flatnonzero(weights >= LEAST_WEIGHT) if i != index]
            total = float(weights[index] + weights[kept].sum())
            members = [leading._replace(weight=float(weights[index]) / total)]
            for i in kept:
                units = self.in_units(found[i].posterior, found[i])
                members.append(Member(float(weights[i]) / total, found[i], units))
        return FitResults(state, best, leading.posterior, tuple(members))

    def in_units(self, q: Any, state: Streaming) -> Gaussian:
        """A Gaussian of the stream in the user's units."""
        return self.family.in_units(q, state, self.settings.dtype)

    def best_index(self, state: Any) -> int:
        """The index of the grid's member that gives the results."""
        return self.stream.best_index(state) if self.member is None else self.member

    def best_member(self, state: Any) -> Streaming:
        """The copy that gives the results."""
        return streams_of(state)[self.best_index(state)]

    @property
    def log_evidence(self) -> float:
        """The log evidence of the rows."""
        if self.learned:
            return self.stream.evidence(self.on_host.state)
        return self.family.evidence(self.on_host.best)

    @property
    def point(self) -> Point | None:
        """The settings with the most evidence, if they are learned."""
        state = self.on_host.state
        return self.stream.points_of(state)[self.best_index(state)]

    @property
    def prior_scale(self) -> Any:
        """The prior scale; the one with the most evidence if it was "auto"."""
        if self.klprox_scale is not None and self.settings.seeks_scale:
            return self.klprox_scale
        return self.stream.scale_at(self.point)

    @property
    def drift(self) -> Any:
        """The learned share of the past that a row keeps; otherwise the given drift."""
        point = self.point
        return point.keep if self.learned and point is not None else self.settings.drift

    @property
    def stands_still(self) -> bool:
        """Whether there is no drift or, if it is learned, no evidence of one."""
        if not self.learned:
            return not self.settings.drifts
        log_weights = self._log_weights()
        still = [point.keep == 1 for point in self.stream.points]
        return float(np.sum(np.exp(log_weights[still]))) >= LEAST_STILL

    def learned_settings(self) -> LearnedSettings | None:
        """The learned settings at each turn; None if they were given."""
        if not self.learned or self.stream.grid is None:
            return None
        history = self.on_host.state.history
        weights, rows = self._log_weights(), self.n_rows
        return summarise(self.stream.grid, history, weights, rows, self.prior_scale, self.point)

    def _log_weights(self) -> np.ndarray:
        """The current log weights of all settings, among those that were tried."""
        now = self.stream.counted(self.on_host.state)
        return side_by_side.among_tried(now.tried, now.log_weights)

    def standing_still(self) -> "LinearFit":
        """The fit without drift; if settings are learned, with only its best copy."""
        grid = self.stream.grid
        if not self.learned or grid is None:
            return self
        state = self.current.state
        index = self.best_index(state)
        state = self.stream.counted(state)
        point = grid.standing_still(int(state.points[index]))
        return self.with_state(self.stream.moved(state, index, point), self.n_rows, None)

    @property
    def weight(self) -> float:
        """The total weight of the rows, or their number if they fade."""
        fades = self.learned and self.drift != 1
        return float(self.n_rows) if fades else float(self.current.best.rows)

    def fitted_prior(self) -> Gaussian:
        """The prior with the scale that was found, in the units of the posterior."""
        outputs = self.family.likelihood.outputs
        prior = self.settings.make_prior(self.prior_scale, self.n_features, outputs)
        return self.in_units(prior, self.current.best)

    @property
    def n_rows(self) -> int:
        """The number of rows with a weight that were learned, including those that wait."""
        return self.buffer.seen + self.buffer.count

    def problems(self) -> list[str]:
        """Warnings about the stream, as sentences."""
        return self.family.problems(self.best_member(self.state))

    def parts(self) -> dict[str, Any]:
        """The parts of a fit for a file or a pickle, without settings and family, which the estimator
        has."""
        parts = {name: getattr(self, field) for name, field in FIELDS.items()}
        if self.buffer.waiting is not None:  # so that a loaded fit need not absorb them again
            parts["_after_waiting"] = self.on_host.state
            parts["_unprojected"] = self.predicting.state if self.may_look_ahead else None
        numbers = (1,) if self.optimum is None else self.optimum
        parts |= dict(zip(OPTIMUM, numbers, strict=False)) | {"structure_": self.structure()}
        return {name: part for name, part in parts.items() if part is not None}


def drop_zero_weight(x: Any, y: np.ndarray, weight: np.ndarray, *elapsed: np.ndarray) -> Rows:
    """The rows with a weight above 0; the others must not fill a block."""
    rows = x, y, weight, *elapsed
    if np.all(weight > 0):
        return rows
    which = np.flatnonzero(weight > 0)
    return tuple(array[which] for array in rows)


def _to_dense(posterior: Any) -> Any:
    return posterior.to_dense()


def _in_full(stream: Streaming) -> Streaming:
    """The stream with a full covariance."""
    if isinstance(stream.posterior, Dense):
        return stream
    return eqx.tree_at(lambda s: s.posterior, stream, run.call(_to_dense, stream.posterior))


def _all_in_full(state: Any) -> Any:
    return with_streams(state, [_in_full(stream) for stream in streams_of(state)])
