"""A fit of a factor analysis: the state of its stream, the waiting rows, the distribution of a row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array
from tqdm import tqdm

from kalvi import streams
from kalvi.estimators.constraints import is_integer
from kalvi.estimators.factor_analysis.methods import METHODS, FactorSettings, climb, make_start
from kalvi.estimators.input_checks import require_consistent
from kalvi.estimators.pickling import as_jax
from kalvi.estimators.prediction_blocks import padded_blocks, predict_in_blocks, rows_at_once
from kalvi.estimators.progress import with_progress
from kalvi.gaussians import LowRankCovariance
from kalvi.numerics import sharding
from kalvi.numerics.precision import matching_precision
from kalvi.rules import factor_analysis as fa
from kalvi.rules.rule import Batch
from kalvi.streams import run


@dataclass(frozen=True, eq=False)
class FactorFit:
    """A factor analysis that has learned some rows; methods that learn return another fit."""

    settings: FactorSettings
    seed: int  # of the start
    state: Any = None  # of the stream; None until the first rows fill a block
    buffer: streams.Buffer = field(default_factory=streams.Buffer)
    n_rows: int = 0
    n_passes: int = 1
    log_likelihood: float | None = None  # of a row on average, at the maximum
    converged: bool = True

    def learn(self, x: Any, verbose: bool) -> "FactorFit":
        """Learn the rows that fill blocks; the others wait."""
        n, rows = x.shape[0], (x, np.zeros(x.shape[0]), np.ones(x.shape[0]))
        bar = tqdm(total=n, unit=" rows", disable=not verbose)
        with matching_precision(self.settings.dtype), bar:
            batches, buffer = self.buffer.push(rows, self._schedule(), **self._layout())
            state = self._pass(with_progress(batches, bar, n))
            bar.update(n - bar.n)
        return replace(self, state=state, buffer=buffer, n_rows=self.n_rows + n)

    def maximise(self, x: Any, max_passes: int, tolerance: float) -> "FactorFit":
        """Continue from one pass over the rows to the maximum likelihood."""
        n, dtype = x.shape[0], self.settings.dtype
        with matching_precision(dtype):
            batch = streams.whole_batch(x, np.zeros(n), np.ones(n), **self._layout())
            limits = jnp.asarray(max_passes), jnp.asarray(tolerance, dtype)
            found: fa.FactorOptimum = run.call(climb, batch, self.gaussian, *limits)
            state = fa.RecursiveFAState(found.posterior, jnp.asarray(n, dtype))
        return replace(
            self,
            state=state,
            buffer=streams.Buffer(),
            n_passes=int(found.passes),
            log_likelihood=float(found.log_likelihood),
            converged=bool(found.converged),
        )

    @cached_property
    def gaussian(self) -> LowRankCovariance:
        """The distribution of a row, including waiting rows, which stay in the buffer."""
        with matching_precision(self.settings.dtype):
            rest = self.buffer.rest(self._schedule(), **self._layout())
            state = self.state if rest is None else self._pass(iter([rest]))
            return run.call(fa.canonical, state.posterior)

    def factors(self, x: Any) -> np.ndarray:
        """The expected factors of each row, E[z | x]."""
        return self._predict(fa.expected_factors, x)

    def log_densities(self, x: Any) -> np.ndarray:
        """The log density of each row."""
        return self._predict(fa.log_densities, x)

    def parts(self) -> dict[str, Any]:
        """The parts of the fit for a file or a pickle."""
        parts = {
            "structure_": self.settings._asdict(),
            "state_": self.state,
            "buffer_": self.buffer,
            "_seed": self.seed,
            "n_samples_seen_": self.n_rows,
            "n_iter_": self.n_passes,
        }
        if self.log_likelihood is not None:
            parts["log_likelihood_"] = self.log_likelihood
        return parts

    def _predict(self, function: Callable, x: Any) -> np.ndarray:
        def predict(block: np.ndarray) -> tuple[Array]:
            return (run.call(function, self.gaussian, jnp.asarray(block, self.settings.dtype)),)

        blocks = padded_blocks(x, rows_at_once(*x.shape))
        with matching_precision(self.settings.dtype):
            return predict_in_blocks(predict, blocks, x.shape[0])[0]

    def _pass(self, batches: Iterator[Batch]) -> Any:
        """The state after further rows; without a state the first rows make a start."""
        rule, state = self.settings.rule(), self.state
        if state is None:
            first = next(batches, None)
            if first is None:
                return None
            state, batches = rule.init(self._start(first)), chain([first], batches)
        return run.resume(rule, state, batches)

    def _start(self, first: Batch) -> LowRankCovariance:
        given, method = self.settings, METHODS[self.settings.method]
        key = jr.key(self.seed) if method.row_by_row else None
        kind = method.warms_up, bool(given.scaled)
        return sharding.spread(run.call(make_start, first, given.n_components, key, *kind))

    def _schedule(self) -> streams.Schedule:
        return streams.Schedule(self.settings.rows_per_block(), growing=False)

    def _layout(self) -> dict[str, Any]:
        return {"intercept": False, "dtype": self.settings.dtype}


PARTS = (
    *("structure_", "state_", "buffer_", "_seed", "n_samples_seen_", "n_iter_", "log_likelihood_"),
    "_published",
)
"""The parts of a fit in a file or a pickle; the last is empty, and only in older files."""


def restore_fit(parts: dict[str, Any], model: Any) -> FactorFit:
    """The fit with these parts; parts that no fit of `model` can have are refused."""
    known: Any = [parts.get(name) for name in ("structure_", "state_", "buffer_")]
    structure, state, buffer = known
    named = isinstance(structure, dict) and set(structure) == set(FactorSettings._fields)
    require_consistent(named, model, "structure_")
    require_consistent(isinstance(buffer, streams.Buffer), model, "buffer_")
    counts: Any = [parts.get(name) for name in ("_seed", "n_samples_seen_", "n_iter_")]
    counted = all(is_integer(count) and count >= 0 for count in counts)
    require_consistent(counted, model, "n_samples_seen_ and n_iter_")
    settings = FactorSettings(**structure)
    return FactorFit(
        settings,
        parts["_seed"],
        as_jax(state, settings.dtype) if isinstance(state, eqx.Module) else state,
        buffer,
        parts["n_samples_seen_"],
        parts["n_iter_"],
        parts.get("log_likelihood_"),
    )
