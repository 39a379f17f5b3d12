"""From one pass over the rows to the optimum of the variational bound, where the rows are at hand."""

from typing import Any
from warnings import warn

import equinox as eqx
import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from kalvi import streams
from kalvi.estimators import settings
from kalvi.estimators.climbs import Found, climb_dense, climb_low_rank
from kalvi.estimators.common import all_or_nothing
from kalvi.estimators.draws import SAME
from kalvi.estimators.optimum import solve
from kalvi.estimators.states import Settled, put
from kalvi.numerics.natural_gradient import MEMORY
from kalvi.numerics.precision import matching
from kalvi.rules.grid import take

REVISIT_BYTES = 2**31
"""Tables larger than this are passed over once by passes="auto"."""


class Refining:
    """How a streaming estimator goes on from one pass over a table to the optimum."""

    rank: Any
    scheme: Any
    method: Any
    passes: Any
    dtype: Any
    verbose: Any
    forgetting: Any
    process_noise: Any
    n_passes_: int
    elbo_: float
    elbo_gap_: float
    converged_: bool
    _chosen: int

    @all_or_nothing
    def climb_to_optimum(self, X, y, sample_weight=None) -> Any:
        """Go on from what was streamed to the optimum of the variational bound over the same rows.

        The rows must be all that the model has learned from, such as those of several calls of
        `partial_fit`; the result is that of `fit` on them. `passes` limits the passes, if it is a number.
        """
        model: Any = self
        check_is_fitted(model, "state_")
        rows, targets = model._check_rows(X, y, reset=False, y_numeric=not is_classifier(model))
        weight = model._check_weight(sample_weight, rows)
        self._check_climb(float(weight.sum()))
        table = rows, model._targets(targets), weight
        with matching(self.dtype):
            if self.method == "klprox":
                return self._solve(*table)
            self._revisit(*table)
        model._warn(model._current()[1])
        return self

    def _check_climb(self, given: float) -> None:
        model: Any = self
        if not self.has_optimum():
            raise ValueError(
                "only a model with forgetting=1, process_noise=0, a variational scheme "
                f"({', '.join(settings.VARIATIONAL)}) and rank other than 0 has an optimum to go on to."
            )
        seen = float(model._current()[1].rows)
        if not abs(given - seen) <= SAME * seen:
            raise ValueError(
                "climb_to_optimum needs all rows that the model has learned from, of a total weight of "
                f"{seen:g}; got {given:g}."
            )

    def revisits(self, n_rows: int, n_features: int) -> bool:
        """Whether `fit` goes on to the optimum after one pass over a table of this size."""
        model: Any = self
        square = (model._outputs() * n_features) ** 2 if self.rank is None else 0
        numbers = n_rows * n_features + 3 * MEMORY * square
        small = numbers * np.dtype(self.dtype).itemsize <= REVISIT_BYTES
        wanted = small if self.passes == "auto" else int(self.passes) > 1
        return wanted and self.has_optimum() and not model._one_pass_is_exact()

    def has_optimum(self) -> bool:
        """Whether the stream approaches the optimum of a bound, which further passes can reach."""
        still = self.forgetting == 1 and self.process_noise == 0
        return self.rank != 0 and self.scheme in settings.VARIATIONAL and still

    def exact_in_one_pass(self) -> bool:
        """Whether one pass is at the optimum, so that others could change nothing."""
        model: Any = self
        return self.has_optimum() and model._one_pass_is_exact()

    def _revisit(self, x, y: np.ndarray, weight: np.ndarray) -> None:
        """Climb from the one-pass posterior to the optimum of the variational bound."""
        model: Any = self
        state, best, _ = model._current()
        index, prior = model._best_index(state), model._priors(x.shape[1])
        prior = take(prior, index) if model._on_grid() else prior
        limit = None if self.passes == "auto" else int(self.passes)
        rows, climb = (x, y, weight), climb_dense if self.rank is None else climb_low_rank
        found = climb(
            model._stream_likelihood(),
            prior,
            best.posterior,
            rows,
            model._layout(),
            limit,
            self.verbose,
        )
        best = eqx.tree_at(lambda s: s.posterior, best, found.posterior)
        best = model._refitted(best, prior, rows)
        model.state_ = put(state, best, index) if model._on_grid() else best
        model.buffer_, model._chosen = streams.Buffer(int(np.sum(weight > 0))), index
        model._settled = Settled(self)
        self._report(found)

    def _solve(self, x, y: np.ndarray, weight: np.ndarray) -> Any:
        """The optimum of the variational bound without a stream; of several prior scales, the best."""
        model: Any = self
        scales = list(model._scales()) if model._seeks_scale() else [model.prior_scale]
        model.state_, found, model.klprox_scale_ = solve(model, scales, (x, y, weight))
        rows = int(np.sum(weight > 0))
        model.structure_, model.buffer_ = model._structure(), streams.Buffer(rows)
        model._settled = Settled(self)
        self._report(found)
        model._warn(model._current()[1])
        return self

    def _report(self, found: Found) -> None:
        self.n_passes_, self.elbo_, self.elbo_gap_ = found.passes, found.elbo, found.gap
        self.converged_ = found.converged
        if self.passes == "auto" and not found.converged:
            warn(
                f"the variational bound had not converged after {self.n_passes_} passes "
                f"(elbo_gap_ = {self.elbo_gap_:.2g} nats).",
                ConvergenceWarning,
                stacklevel=4,
            )
