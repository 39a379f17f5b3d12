"""The common body of the streaming estimators: validate, run the rule, publish the posterior."""

from abc import abstractmethod
from typing import Any
from warnings import warn

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from tqdm import tqdm

from kalvi import streams
from kalvi.estimators import settings
from kalvi.estimators.common import counted
from kalvi.estimators.draws import Drawn
from kalvi.estimators.optimum import streamable
from kalvi.estimators.predictive import predicted
from kalvi.estimators.refining import Refining
from kalvi.estimators.states import Settled, ahead_of, check_restored, weighty
from kalvi.estimators.widening import Widening
from kalvi.gaussians import Gaussian
from kalvi.likelihoods import Likelihood
from kalvi.numerics.namespaces import is_jax, on_device, on_host
from kalvi.numerics.precision import matching
from kalvi.predictors import Predictor, linear
from kalvi.rules.base import Rule
from kalvi.rules.grid import SideBySide, stack, take
from kalvi.rules.rvga import RVGA, Streaming
from kalvi.streams import run

CLIMBED = ("elbo_", "elbo_gap_", "converged_", "_chosen")
"""What a climb leaves beside the posterior: rows that are streamed after it make it untrue."""


MOST_AHEAD = 1024
"""Up to so many parameters rows that wait for their block are absorbed in a full covariance."""


class StreamingEstimator(Widening, Drawn, Refining, BaseEstimator):
    """A Gaussian posterior over linear coefficients, learned from rows as they come."""

    n_features_in_: int
    _chosen: int  # the member of a grid that a climb has chosen
    state_: Any  # Streaming, with a leading axis over the grid when prior_scale is "auto"
    buffer_: streams.Buffer

    def __init__(
        self,
        *,
        rank=None,
        prior_mean=0.0,
        prior_scale=1.0,
        prior=None,
        method="rvga",
        scheme="implicit",
        fit_intercept=True,
        forgetting=1.0,
        process_noise=0.0,
        passes="auto",
        block_size="auto",
        dtype="float64",
        random_state=None,
        verbose=False,
    ):
        self.rank = rank
        self.prior_mean = prior_mean
        self.prior_scale = prior_scale
        self.prior = prior
        self.method = method
        self.scheme = scheme
        self.fit_intercept = fit_intercept
        self.forgetting = forgetting
        self.process_noise = process_noise
        self.passes = passes
        self.block_size = block_size
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    @abstractmethod
    def _outputs(self) -> int:
        """How many predictors a row has."""

    @abstractmethod
    def _stream_likelihood(self) -> Likelihood:
        """The likelihood that the rule is run with."""

    @abstractmethod
    def _fitted_likelihood(self) -> Likelihood:
        """The likelihood that predictions are made with."""

    @abstractmethod
    def _evidence(self, state: Streaming) -> float:
        """The log evidence of a state."""

    @abstractmethod
    def _in_units(self, q: Gaussian, state: Streaming) -> Gaussian:
        """The posterior of a state, or its prior, in the user's units."""

    @abstractmethod
    def _targets(self, y: np.ndarray) -> np.ndarray:
        """y as the likelihood takes it, if the model can observe it."""

    @abstractmethod
    def _check_model(self) -> None:
        """Refuse parameters that mean nothing to this model."""

    @abstractmethod
    def _refitted(self, state: Streaming, prior: Gaussian, rows: tuple) -> Streaming:
        """A state after further passes, with what the model learns beside the coefficients brought up."""

    @abstractmethod
    def _complaint(self, state: Streaming) -> str | None:
        """What the user must be told of a state, if anything."""

    @abstractmethod
    def _scales(self) -> np.ndarray:
        """The grid of prior_scale="auto"."""

    @abstractmethod
    def _one_pass_is_exact(self) -> bool:
        """Whether further passes could change nothing."""

    def _learn(self, x, y: np.ndarray, sample_weight, *, revisit: bool) -> Any:
        """Run the rule over checked rows from the present state."""
        weight = self._check_weight(sample_weight, x)
        for name in (*CLIMBED, *["klprox_scale_"] * revisit):
            self.__dict__.pop(name, None)
        self.n_passes_ = 1
        with matching(self.dtype):
            if revisit and self.method == "klprox":
                return self._solve(x, y, weight)
            rule = self._rule(x.shape[1])
            if not hasattr(self, "state_"):
                self.state_, self.buffer_ = rule.init(self._priors(x.shape[1])), streams.Buffer()
                self.structure_ = self._structure()
            self.state_ = streamable(self.state_, self.rank)
            self.state_, self.buffer_ = self._pass(rule, x, y, weight)
            before = self.__dict__.get("_settled")
            self._settled = Settled(self, ahead=before and before.ahead)
            if revisit and self.revisits(*x.shape):
                self._revisit(x, y, weight)
        self._warn(self._current()[1] if revisit else self._best(self.state_))
        return self

    def _rule(self, n_features: int) -> Rule:
        rule = RVGA(
            self._stream_likelihood(),
            settings.SCHEMES[self.scheme],
            forgetting=None if self.forgetting == 1 else self.forgetting,
            process_noise=None if self.process_noise == 0 else float(self.process_noise),
            block_size=self._schedule(n_features).largest,
            predictor=self._predictor(),
        )
        return SideBySide(rule) if self._on_grid() else rule

    def _predictor(self) -> Predictor:
        return linear(self._outputs())

    def _schedule(self, n_features: int) -> streams.Schedule:
        dim = n_features + bool(self.fit_intercept)
        return settings.schedule(self.block_size, dim, self.rank, self.dtype, self._outputs())

    def _priors(self, n_features: int) -> Gaussian:
        scales = self._scales() if self._on_grid() else [self.prior_scale]
        shape = n_features, self._outputs()
        made = [settings.make_prior(self.get_params(), s, shape, self.dtype) for s in scales]
        return stack(made) if self._on_grid() else made[0]

    def _on_grid(self) -> bool:
        """Whether a stream runs with several prior scales side by side."""
        return self._seeks_scale() and "klprox_scale_" not in self.__dict__

    def _seeks_scale(self) -> bool:
        return isinstance(self.prior_scale, str) and self.prior is None

    def _pass(self, rule: Rule, x, y: np.ndarray, weight: np.ndarray) -> tuple[Any, streams.Buffer]:
        """The state after the rows, and those that wait for a block to fill."""
        schedule, layout = self._schedule(x.shape[1]), self._layout()
        if self.rank is None:  # however the rows are cut into blocks, the posterior is the same
            size, after = schedule.largest, self.buffer_
            batches = streams.array_batches(x, y, weight, block_size=size, **layout)
        else:
            rows = weighty(x, y, weight)  # others must not fill a block
            batches, after = self.buffer_.push(rows, schedule, **layout)
            if after.seen == self.buffer_.seen:  # no block is full
                return self.state_, after
        if not self.verbose:
            return run.resume(rule, self.state_, batches), after
        with tqdm(total=x.shape[0], unit=" rows", unit_scale=True) as bar:
            state = run.resume(
                rule,
                self.state_,
                counted(batches, bar, x.shape[0]),
                after_block=lambda state: bar.set_postfix(
                    log_loss=self._progressive_loss(state), refresh=False
                ),
            )
        return state, after

    def _layout(self) -> dict[str, Any]:
        return {"intercept": bool(self.fit_intercept), "dtype": self.dtype}

    def _current(self) -> Any:
        """The state with the waiting rows absorbed, its best member, and the posterior in user's units."""
        settled = self._fitted()._settled
        if settled.value is None:
            settled.value = settled.model._settle()
        return settled.value

    def _fitted(self) -> Any:
        """This model with the parameters it was fitted with."""
        check_is_fitted(self, "state_")
        return self._settled.model

    def _settle(self) -> tuple[Any, Streaming, Gaussian]:
        with matching(self.dtype):
            rest = self.buffer_.rest(self._schedule(self.n_features_in_), **self._layout())
            rule = self._rule(self.n_features_in_)
            state = self.state_ if rest is None else run.resume(rule, self.state_, [rest])
            state = on_device(state)
            return self._read_from(state)

    def _on_host(self) -> Any:
        """The same as NumPy arrays, without JAX if they came out of a file; JAX's if on an accelerator."""
        settled = self._fitted()._settled
        if settled.host is None:
            settled.host = settled.model._settle_on_host()
        return settled.host

    def _settle_on_host(self) -> tuple[Any, Streaming, Gaussian]:
        state = self.state_ if self.buffer_.waiting is None else self._settled.stored
        if state is None or is_jax(state):
            state = on_host(self._current()[0])
        return self._current() if is_jax(state) else self._read_from(state)

    def _predicting(self) -> Any:
        """What predictions read: as `_on_host`, but rows that wait for their block are not projected."""
        settled = self._fitted()._settled
        if settled.predicting is None:
            settled.predicting = settled.model._settle_for_predictions()
        return settled.predicting

    def _settle_for_predictions(self) -> tuple[Any, Streaming, Gaussian]:
        settled = self._settled
        if self.buffer_.waiting is None or self.state_.posterior.mean.shape[-1] > MOST_AHEAD:
            return self._on_host()
        if settled.unprojected is not None:
            return self._read_from(settled.unprojected)
        with matching(self.dtype):
            settled.ahead = ahead_of(self, settled.ahead)
            return self._read_from(on_host(settled.ahead.state))

    def _read_from(self, state: Any) -> tuple[Any, Streaming, Gaussian]:
        """A state, its best member, and the posterior in the user's units."""
        best = self._best(state)
        return state, best, self._in_units(best.posterior, best)

    @property
    def posterior_(self) -> Gaussian:
        """Over the coefficients, the intercept last when there is one."""
        return self._current()[2]

    @property
    def log_evidence_(self) -> float:
        """The log evidence of the rows."""
        return self._fitted()._evidence(self._on_host()[1])

    @property
    def prior_scale_(self) -> Any:
        """The prior scale, the one with the most evidence if it was chosen."""
        model = self._fitted()
        if not model._on_grid():
            return model.klprox_scale_ if model._seeks_scale() else model.prior_scale
        return float(model._scales()[model._best_index(self._on_host()[0])])

    def _progressive_loss(self, state: Any) -> str:
        best = self._best(state)
        return f"{-float(best.log_evidence) / max(float(best.rows), 1):.4f}"

    def _best_index(self, state: Any) -> int:
        if not self._on_grid():
            return 0
        if "_chosen" in self.__dict__:
            return self._chosen
        members = [take(state, i) for i in range(len(self._scales()))]
        return int(np.argmax([self._evidence(member) for member in members]))

    def _best(self, state: Any) -> Streaming:
        return take(state, self._best_index(state)) if self._on_grid() else state

    def _warn(self, state: Streaming) -> None:
        if int(state.unsolved):
            warn(
                f"the implicit equations of {int(state.unsolved)} rows were not solved to precision.",
                ConvergenceWarning,
                stacklevel=4,
            )
        if complaint := self._complaint(state):
            warn(complaint, ConvergenceWarning, stacklevel=4)

    def _check_rows(self, x, y, *, reset: bool, y_numeric: bool) -> tuple[Any, np.ndarray]:
        """X and y as scikit-learn wants them; parameters are checked first."""
        self._check_settings()
        if not reset:
            self._check_structure()
        how = {"reset": reset, "accept_sparse": "csr", "dtype": np.dtype(self.dtype)}
        with settings.located(X=x, y=y):
            checked: Any = validate_data(self, x, y, y_numeric=y_numeric, **how)
        return checked

    def _check_settings(self) -> None:
        """Refuse parameters that mean nothing, whatever the rows."""
        settings.check_settings(self.get_params(), self._scale_names())
        settings.check_passes(self.passes, self.has_optimum() or self._one_pass_is_exact())
        settings.check_method(self.get_params(), self.has_optimum())
        self._check_model()
        settings.check_prior(self.get_params())

    def _structure(self) -> dict[str, Any]:
        """The parameters that a state's shape depends on, or how its rows wait."""
        waits = {} if self.rank is None else {"block_size": self.block_size}
        return waits | {
            "rank": self.rank,
            "fit_intercept": bool(self.fit_intercept),
            "dtype": np.dtype(self.dtype).name,
            "prior_scale": "auto" if self._on_grid() else "given",
        }

    def _check_structure(self) -> None:
        for name, now in self._structure().items():
            if name in self.structure_ and now != self.structure_[name]:
                raise ValueError(
                    f"{name} was {self.structure_[name]!r} when this model was fitted and is {now!r} now; "
                    "call fit to start again, or set it back."
                )

    def _scale_names(self) -> tuple[str, ...]:
        return tuple(name for name in ("prior_scale", "noise_scale") if name in self.get_params())

    def _check_weight(self, sample_weight, x) -> np.ndarray:
        weight = _check_sample_weight(sample_weight, x, dtype=np.float64)
        bad = np.flatnonzero(weight < 0)
        if bad.size:
            raise ValueError(
                f"sample_weight must be non-negative; row {bad[0]} has {weight[bad[0]]:g}. "
                "Give rows to ignore the weight 0."
            )
        return weight

    def _predictive(self, x) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and variance of y, and the mean of the linear predictor, for each row."""
        check_is_fitted(self)
        self._check_structure()
        dtype = np.dtype(self.dtype)
        with settings.located(X=x):
            rows: Any = validate_data(self, x, reset=False, accept_sparse="csr", dtype=dtype)
        return predicted(self._fitted_likelihood(), self._predicting()[2], rows, self._layout())

    def __getstate__(self) -> dict[str, Any]:
        """JAX arrays travel as NumPy arrays: unpickling must not depend on JAX's global precision.

        The state after the waiting rows travels too, so that predictions need not absorb them again.
        """
        kept = {name: value for name, value in vars(self).items() if name != "_settled"}
        if "_settled" in vars(self) and self.buffer_.waiting is not None:
            kept["_after_waiting"], unprojected = self._on_host()[0], self._predicting()[0]
            if self.state_.posterior.mean.shape[-1] <= MOST_AHEAD:
                kept["_unprojected"] = unprojected
        return jax.tree.map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, kept)

    def __setstate__(self, kept: dict[str, Any]) -> None:
        """The arrays stay NumPy's until more rows are learned: predictions then leave JAX alone."""
        stored, unprojected = (kept.get(name) for name in ("_after_waiting", "_unprojected"))
        own = {k: v for k, v in kept.items() if k not in ("_after_waiting", "_unprojected")}
        super().__setstate__(own)
        if "state_" in self.__dict__:
            check_restored(self, stored, unprojected)
            self._settled = Settled(self, stored=stored, unprojected=unprojected)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
