"""A fit of a linear model: the state of its stream, rows that wait, the posterior in the user's units."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import numpy as np
import scipy.sparse as sp

from kalvi import streams
from kalvi.estimators.linear.families import Family
from kalvi.estimators.linear.fit_results import FitResults, LookAhead, Optimum
from kalvi.estimators.linear.predictions import draw_predictors, predict_rows, predictor_laws
from kalvi.estimators.linear.settings import LinearSettings
from kalvi.estimators.linear.stream import LinearStream, Rows
from kalvi.gaussians import Dense, Gaussian, Updatable
from kalvi.numerics.namespaces import is_jax, on_device, on_host
from kalvi.numerics.precision import matching_precision
from kalvi.rules.grid import put, stack, take
from kalvi.rules.rvga import Streaming
from kalvi.streams import run

MOST_AHEAD = 1024
"""Up to so many parameters rows that wait for their block are absorbed in a full covariance."""

FIELDS = {
    "state_": "state",
    "buffer_": "buffer",
    "_chosen": "member",
    "klprox_scale_": "klprox_scale",
    "clock_": "clock",
    "_after_waiting": "with_waiting",
    "_unprojected": "without_projection",
}
"""Fields of a fit by the names that they have in files."""
OPTIMUM = ("n_passes_", "elbo_", "elbo_gap_", "converged_")
PARTS = (*FIELDS, *OPTIMUM, "structure_")
"""The names of all parts in files."""


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A linear model that has learned some rows; methods that learn give another fit.

    Results are computed when they are first read, and kept.
    """

    stream: LinearStream
    state: Any  # Streaming, with a leading axis over the grid when the prior scale is sought
    buffer: streams.Buffer
    parameters: tuple[Any, ...] | None = None  # of the estimator, when they were last checked
    optimum: Optimum | None = None  # if the posterior is that of an ascent, with no rows after it
    member: int | None = None  # of the grid, if an ascent has gone on with it
    klprox_scale: Any = None  # the prior scale of a fit that began at the optimum
    clock: float | None = None  # the time of the last row, where rows have times
    ahead: LookAhead | None = None  # what is known of the waiting rows
    with_waiting: Any = None  # of a file: the state after the waiting rows
    without_projection: Any = None  # of a file: the same for predictions

    @classmethod
    def begin(cls, settings: LinearSettings, family: Family, x: Any) -> "LinearFit":
        """A fit that has learned no row; the first will be like those of x."""
        sparse = streams.stays_sparse(x, bool(settings.fit_intercept))
        stream = LinearStream(settings, family, x.shape[1], settings.seeks_scale, sparse)
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
        """The likelihood of y, and the noise that is learned beside the coefficients."""
        return self.stream.family

    @property
    def n_features(self) -> int:
        """How many features there are, without the intercept."""
        return self.stream.n_features

    @property
    def on_grid(self) -> bool:
        """Whether several prior scales are streamed side by side."""
        return self.stream.on_grid

    def structure(self) -> dict[str, Any]:
        """The settings that must not change while a stream goes on."""
        given = self.settings
        waits: dict[str, Any] = {}
        if given.rank is not None:
            waits = {
                "block_size": given.block_size,
                "rows of a block": self.stream.schedule.largest,
            }
        sought = given.seeks_scale and self.klprox_scale is None
        return waits | {
            "rank": given.rank,
            "fit_intercept": bool(given.fit_intercept),
            "dtype": np.dtype(given.dtype).name,
            "prior_scale": "auto" if sought else "given",
            "sparse": self.stream.sparse,
        }

    # learning --------------------------------------------------------------------------------------

    def learn(self, rows: Rows, times: np.ndarray | None = None) -> "LinearFit":
        """The fit after further rows; those that fill no block of a low rank wait."""
        clock = self.clock
        if times is not None:
            times = times[rows[2] > 0]
            start = times[:1] if clock is None else [clock]
            rows = (*drop_zero_weight(*rows), np.diff(np.concatenate([start, times])))
            clock = float(times[-1]) if len(times) else clock
        state, buffer = self.stream.learn(self.state, self.buffer, drop_zero_weight(*rows))
        return replace(
            self,
            state=state,
            buffer=buffer,
            clock=clock,
            optimum=None,
            member=None,
            with_waiting=None,
            without_projection=None,
        )

    def with_parameters(self, settings: LinearSettings, family: Family) -> "LinearFit":
        """The fit ready to learn further rows with these parameters."""
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
        """A state whose posterior has the structure that a stream goes on with."""
        if self.settings.rank is not None or isinstance(state.posterior, Dense):
            return state
        dense = run.call(_to_dense, state.posterior)
        return eqx.tree_at(lambda s: s.posterior, state, dense)

    def widen(self, n_features: int) -> "LinearFit":
        """The fit with so many features in all.

        A feature that was zero in every row leaves its coefficient at the prior, independent of all others:
        the result is what learning from the wider rows would have given, with a low rank up to its
        projection, which counts the features.
        """
        wider = replace(self.stream, n_features=n_features)
        state, prior = self.resumable(self.state), wider.prior()
        places = self.parameter_indices(np.arange(self.n_features), n_features)
        embed = _embed_each if self.on_grid else _embed
        posterior = run.call(embed, state.posterior, prior, places)
        state = eqx.tree_at(lambda s: s.posterior, state, posterior)
        if state.drifting is not None:
            ahead = state.drifting.ahead
            state = eqx.tree_at(lambda s: s.drifting.ahead, wider.with_anchor(state), ahead)
        return replace(
            self,
            stream=wider,
            state=state,
            buffer=_widen_buffer(self.buffer, n_features),
            ahead=None,
            with_waiting=None,
            without_projection=None,
        )

    def parameter_indices(self, features: np.ndarray, n_features: int) -> Any:
        """The indices of the parameters of some features, and of the intercept, among all parameters."""
        intercept = bool(self.settings.fit_intercept)
        own = np.append(features, [n_features] * intercept).astype(int)
        outputs, width = range(self.family.likelihood.outputs), n_features + intercept
        return np.concatenate([own + width * k for k in outputs])

    def at(self, posterior: Updatable, prior: Any, rows: Rows, optimum: Optimum) -> "LinearFit":
        """The fit at another posterior of its best state: where an ascent over all its rows ended."""
        state, best, _ = self.current
        index = self.best_index(state)
        best = eqx.tree_at(lambda s: s.posterior, best, posterior)
        best = self.family.update_noise(best, prior, rows, bool(self.settings.fit_intercept))
        if self.on_grid:
            best = put(state, index, best)
        return self.with_state(best, int(np.sum(rows[2] > 0)), optimum, index)

    def with_state(
        self, state: Any, n_rows: int, optimum: Optimum | None, member: int | None = None
    ) -> "LinearFit":
        """A fit with this state, of which no row waits."""
        return replace(
            self,
            state=state,
            buffer=streams.Buffer(n_rows),
            optimum=optimum,
            member=member,
            ahead=None,
            with_waiting=None,
            without_projection=None,
        )

    # results ---------------------------------------------------------------------------------------

    @cached_property
    def current(self) -> FitResults:
        """The fit with the waiting rows absorbed as a block."""
        with matching_precision(self.settings.dtype):
            rest = self.buffer.rest(self.stream.schedule, **self.settings.layout)
            state = self.state if rest is None else run.resume(self.stream.rule, self.state, [rest])
            return self.results_of(state)

    @cached_property
    def posterior(self) -> Gaussian:
        """The posterior in the user's units, with JAX's arrays."""
        with matching_precision(self.settings.dtype):
            return on_device(self.current.posterior)

    @cached_property
    def on_host(self) -> FitResults:
        """The results as NumPy arrays; JAX's if they are on an accelerator."""
        state = self.state if self.buffer.waiting is None else self.with_waiting
        if state is None or is_jax(state):
            state = on_host(self.current.state)
        return self.current if is_jax(state) else self.results_of(state)

    @cached_property
    def predicting(self) -> FitResults:
        """The results from which predictions are made: `on_host`, but rows that wait are not projected."""
        if self.buffer.waiting is None or not self.may_look_ahead:
            return self.on_host
        if self.without_projection is not None:
            return self.results_of(self.without_projection)
        with matching_precision(self.settings.dtype):
            return self.results_of(on_host(self._ahead.state))

    @property
    def may_look_ahead(self) -> bool:
        """Whether there are so few parameters that waiting rows are absorbed in a full covariance."""
        return self.state.posterior.mean.shape[-1] <= MOST_AHEAD

    @cached_property
    def _ahead(self) -> LookAhead:
        """The state with all waiting rows, from what is known of the first of them."""
        known = self.ahead
        if known is None or known.base is not self.state:
            known = LookAhead(self.state, 0, self._in_full(self.state))
        rows = self.buffer.since(known.count, self.stream.schedule, self.settings.layout)
        if rows is None:
            return known
        rule = self.stream.rule
        count = known.count + int(np.sum(np.asarray(rows.weight) > 0))
        return LookAhead(known.base, count, run.call(type(rule).update, rule, known.state, rows))

    def _in_full(self, state: Any) -> Any:
        """The state with a full covariance; of a grid, each of its members."""
        q = state.posterior
        members = [take(q, i) for i in range(q.mean.shape[0])] if self.on_grid else [q]
        dense = [run.call(_to_dense, member) for member in members]
        return eqx.tree_at(lambda s: s.posterior, state, stack(dense) if self.on_grid else dense[0])

    def results_of(self, state: Any) -> FitResults:
        """A state, its best member, and the posterior in the user's units."""
        best = self.best_member(state)
        return FitResults(state, best, self.in_units(best.posterior, best))

    def in_units(self, q: Any, state: Streaming) -> Gaussian:
        """A Gaussian of the stream in the user's units."""
        return self.family.in_units(q, state, self.settings.dtype)

    def best_index(self, state: Any) -> int:
        """The number of the member of the grid that results are read from."""
        return self.stream.best_index(state) if self.member is None else self.member

    def best_member(self, state: Any) -> Streaming:
        """The member of the grid that results are read from; the state itself if there is no grid."""
        return take(state, self.best_index(state)) if self.on_grid else state

    @property
    def log_evidence(self) -> float:
        """The log evidence of the rows."""
        return self.family.evidence(self.on_host.best)

    @property
    def prior_scale(self) -> Any:
        """The prior scale, the one with the most evidence if it was sought."""
        if self.on_grid:
            return float(self.family.scales[self.best_index(self.on_host.state)])
        return self.klprox_scale if self.settings.seeks_scale else self.settings.prior_scale

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
        """Sentences on what the user must know of the stream."""
        return self.family.problems(self.best_member(self.state))

    def parts(self) -> dict[str, Any]:
        """A fit as a file or a pickle has it: settings and family are those of the estimator."""
        parts = {name: getattr(self, field) for name, field in FIELDS.items()}
        if self.buffer.waiting is not None:  # a loaded fit need not absorb them again
            parts["_after_waiting"] = self.on_host.state
            parts["_unprojected"] = self.predicting.state if self.may_look_ahead else None
        numbers = (1,) if self.optimum is None else self.optimum
        parts |= dict(zip(OPTIMUM, numbers, strict=False)) | {"structure_": self.structure()}
        return {name: part for name, part in parts.items() if part is not None}

    # predictions -----------------------------------------------------------------------------------

    def predict(self, x: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and (co)variance of y, and the mean of the linear predictors, for each row."""
        likelihood = self.family.fitted_likelihood(self.predicting.best, self.settings.dtype)
        return predict_rows(likelihood, self._law_for(x), x, self.settings.layout)

    def predictors(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the linear predictor of each row; of several, their covariances."""
        outputs = self.family.likelihood.outputs
        return predictor_laws(self._law_for(x), outputs, x, self.settings.layout)

    def draw_predictors(self, x: Any, n_samples: int, random: np.random.Generator) -> np.ndarray:
        """Joint draws of the linear predictors of the rows."""
        outputs, q = self.family.likelihood.outputs, self._law_for(x)
        return draw_predictors(q, outputs, x, n_samples, random, self.settings.layout)

    def _law_for(self, x: Any) -> Any:
        """The posterior that rows are predicted with, prepared once for all sparse ones."""
        return self._prepared if sp.issparse(x) else self.predicting.posterior

    @cached_property
    def _prepared(self) -> Gaussian:
        q: Any = self.predicting.posterior
        with matching_precision(self.settings.dtype):
            return q.prepared()


def drop_zero_weight(x: Any, y: np.ndarray, weight: np.ndarray, *elapsed: np.ndarray) -> Rows:
    """The rows that have a weight: others must not fill a block."""
    rows = x, y, weight, *elapsed
    if np.all(weight > 0):
        return rows
    which = np.flatnonzero(weight > 0)
    return tuple(array[which] for array in rows)


def _to_dense(posterior: Any) -> Any:
    return posterior.to_dense()


def _embed(posterior: Any, prior: Any, places: Any) -> Any:
    return posterior.embed(prior, places)


def _embed_each(posteriors: Any, priors: Any, places: Any) -> Any:
    return jax.vmap(_embed, in_axes=(0, 0, None))(posteriors, priors, places)


def _widen_buffer(buffer: streams.Buffer, n_features: int) -> streams.Buffer:
    """The waiting rows with zeros for the new features."""
    if buffer.waiting is None:
        return buffer
    x, *others = buffer.waiting
    if sp.issparse(x):
        x = sp.csr_array((x.data, x.indices, x.indptr), shape=(x.shape[0], n_features))
    else:
        x = np.pad(x, [(0, 0), (0, n_features - x.shape[1])])
    return buffer._replace(waiting=(x, *others))
