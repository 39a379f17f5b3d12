"""The common part of the linear estimators: checks of parameters and rows, and published results."""

from abc import abstractmethod
from dataclasses import fields, replace
from functools import cache
from inspect import signature
from operator import is_
from typing import Any, ClassVar
from warnings import warn

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from kalvi.estimators.constraints import Constraint, check_parameters, check_unchanged
from kalvi.estimators.decorators import all_or_nothing, parametrised
from kalvi.estimators.input_checks import (
    checked_table,
    checked_weights,
    need_no_check,
    require_consistent,
    seed_of,
)
from kalvi.estimators.linear import diagnostics, refinement
from kalvi.estimators.linear.clock import check_clock, checked_times
from kalvi.estimators.linear.families import Family
from kalvi.estimators.linear.fit import PARTS, LinearFit
from kalvi.estimators.linear.fit_results import Optimum
from kalvi.estimators.linear.learned_settings import LearnedSettings
from kalvi.estimators.linear.restoring import restore_fit
from kalvi.estimators.linear.settings import CONSTRAINTS, VARIATIONAL, LinearSettings
from kalvi.estimators.linear.stream import Rows
from kalvi.estimators.linear.widening import widen
from kalvi.estimators.pickling import PickledInParts
from kalvi.evaluation.psis import Diagnosis
from kalvi.gaussians import Gaussian
from kalvi.numerics.precision import matching_precision


@parametrised
class LinearEstimator(PickledInParts[LinearFit]):
    """A Gaussian posterior over linear coefficients, learned from a stream of rows."""

    constraints: ClassVar[dict[str, Constraint]] = CONSTRAINTS
    conjugate: ClassVar[bool] = False
    """Whether one pass with a full covariance ends at the optimum."""
    default_scale: ClassVar[float] = 1.0
    """The prior scale if none is given or learned."""
    fit_parts: ClassVar[tuple[str, ...]] = PARTS

    rank: Any = None
    prior_mean: Any = 0.0
    prior_scale: Any = None
    prior: Any = None
    method: Any = "rvga"
    scheme: Any = "implicit"
    fit_intercept: Any = True
    forgetting: Any = 1.0
    process_noise: Any = 0.0
    drift: Any = None
    passes: Any = "auto"
    block_size: Any = "auto"
    dtype: Any = "float64"
    random_state: Any = None
    verbose: Any = False

    @abstractmethod
    def family(self) -> Family:
        """The likelihood of this model's y, and the noise that is learned with the coefficients."""

    def settings(self) -> LinearSettings:
        """The parameters as a fit uses them."""
        return LinearSettings(**{f.name: getattr(self, f.name) for f in fields(LinearSettings)})

    @abstractmethod
    def _targets(self, y: np.ndarray) -> np.ndarray:
        """y in the form that the likelihood takes; invalid values are refused."""

    # learning --------------------------------------------------------------------------------------

    @all_or_nothing
    def climb_to_optimum(self, X, y, sample_weight=None) -> Any:
        """Continue from the stream to the optimum of the variational bound over the same rows.

        The rows must be all that the model has learned, such as those of several calls of `partial_fit`;
        the result is that of `fit` on them. If `passes` is a number, it limits the passes.
        """
        check_is_fitted(self, "fit_")
        rows = self.checked_rows(X, y, sample_weight)
        self._check_climb(float(rows[2].sum()))
        fit = self.fit_.with_stream(settings=self.fit_.resolved(self.settings()))
        with matching_precision(self.dtype):
            if self.method == "klprox":
                self.fit_ = refinement.solve(fit.settings, fit.family, rows)
            else:
                self.fit_ = refinement.climb(fit, rows)
        self.warn_of_problems()
        return self

    @all_or_nothing
    def widen(self, n_features: int) -> "LinearEstimator":
        """Add features, to `n_features` in all, as if they had been zero in every row so far."""
        check_is_fitted(self, "fit_")
        if n_features < self.n_features_in_ or self.prior is not None:
            raise ValueError(
                f"widen needs {self.n_features_in_} features or more and a model without prior=; "
                f"got n_features={n_features}, prior={self.prior!r}."
            )
        with matching_precision(self.dtype):
            self.fit_ = widen(self.fit_, n_features)
        self.n_features_in_ = n_features
        return self

    def revisits(self, n_rows: int, n_features: int) -> bool:
        """Whether `fit` continues to the optimum after one pass over a table of this size."""
        settings = self.settings().resolved(False)
        return self.has_optimum() and refinement.climbs(settings, self.family(), n_rows, n_features)

    def has_optimum(self) -> bool:
        """Whether the stream approximates the optimum of a bound, which further passes can reach."""
        return self.settings().has_optimum and not self.drifts()

    def drifts(self) -> bool:
        """Whether coefficients change, as given or as learned so far."""
        if "fit_" in vars(self) and self.fit_.learned:
            return not self.fit_.stands_still
        return bool(self.settings().drifts)

    def exact_in_one_pass(self) -> bool:
        """Whether one pass reaches the optimum, so that further passes would change nothing."""
        return self.has_optimum() and self.conjugate and self.rank is None

    def _learn_table(self, x: Any, y: np.ndarray, sample_weight: Any) -> Any:
        """Forget everything and learn from checked rows, in as many passes as the parameters say."""
        rows = x, y, checked_weights(sample_weight, x)
        settings, family = self.settings().resolved(False), self.family()
        with matching_precision(self.dtype):
            if self.method == "klprox":
                self.fit_ = refinement.solve(settings, family, rows)
            else:
                self.fit_ = LinearFit.begin(settings, family, x, streaming=False).learn(rows)
                if refinement.climbs(settings, family, *x.shape):
                    self.fit_ = refinement.climb(self.fit_, rows)
        self.fit_ = replace(self.fit_, parameters=self._parameters())
        self.warn_of_problems()
        return self

    def _learn_more(self, x: Any, y: np.ndarray, sample_weight: Any, time: Any = None) -> Any:
        """Continue the stream, or begin one, with checked rows."""
        rows = x, y, checked_weights(sample_weight, x)
        times = None if time is None else checked_times(time, x.shape[0])
        with matching_precision(self.dtype):
            if "fit_" not in vars(self):
                before = LinearFit.begin(self.settings(), self.family(), x, streaming=True)
            elif self._has_same_parameters():
                before = self.fit_.resumed()
            else:
                before = self.fit_.with_parameters(self.settings(), self.family())
            if before.parameters is None:
                before = replace(before, parameters=self._parameters())
            check_clock(before, times)
            self.fit_ = before.learn(rows, times)
        for problem in self.fit_.problems():
            _warn(problem)
        return self

    def warn_of_problems(self) -> None:
        """Warn about problems of the fit, including those of the waiting rows."""
        found = self.fit_.optimum
        if found is not None and self.passes == "auto" and not found.converged:
            _warn(
                f"the variational bound had not converged after {found.passes} passes "
                f"(elbo_gap_ = {found.gap:.2g} nats)."
            )
        for problem in self.fit_.family.problems(self.fit_.current.best):
            _warn(problem)

    # checks ----------------------------------------------------------------------------------------

    def check_settings(self) -> None:
        """Refuse parameters that are invalid for any rows."""
        given = self.get_params()
        check_parameters(given, self.constraints)
        self.settings().check_combinations(self.conjugate, given.get("noise_scale"))

    def check_structure(self) -> None:
        """Refuse changes of parameters on which the state of the fit depends."""
        settings = self.fit_.resolved(self.settings())
        now = self.fit_.with_stream(settings=settings).structure()
        check_unchanged(self.fit_.structure(), now)

    def _parameters(self) -> tuple[Any, ...]:
        """The current parameters."""
        values = vars(self)
        return tuple(values[name] for name in parameter_names(type(self)))

    def _has_same_parameters(self) -> bool:
        """Whether the parameters are the same objects that were checked for the current fit."""
        before = self.fit_.parameters if "fit_" in vars(self) else None
        return before is not None and all(map(is_, before, self._parameters()))

    def checked_rows(self, X, y, sample_weight=None) -> Rows:
        """Rows for a fitted model in the form that its likelihood takes, checked as in `partial_fit`."""
        x, y = self._check_rows(X, y, reset=False)
        return x, self._targets(y), checked_weights(sample_weight, x)

    def _check_rows(self, x, y, *, reset: bool) -> tuple[Any, np.ndarray]:
        """X and y, checked by scikit-learn, after the parameters are checked."""
        if reset or not self._has_same_parameters():
            self.check_settings()
            if "fit_" in vars(self) and not reset:
                self.check_structure()
        if not reset and need_no_check(self, x, y, dtype=self.dtype):
            return x, y
        how = {"reset": reset, "accept_sparse": "csr", "dtype": np.dtype(self.dtype)}
        return checked_table(self, x, y, y_numeric=not is_classifier(self), **how)

    def _check_climb(self, given: float) -> None:
        if not self.has_optimum():
            raise ValueError(
                "only a model with forgetting=1, process_noise=0, drift=None (or a stream that found no "
                f"drift), a variational scheme ({', '.join(VARIATIONAL)}) and rank other than 0 has an "
                "optimum to go on to."
            )
        seen = self.fit_.weight
        if not abs(given - seen) <= diagnostics.SAME_WEIGHT * seen:
            raise ValueError(
                "climb_to_optimum needs all rows that the model has learned from, of a total weight of "
                f"{seen:g}; got {given:g}."
            )

    # results ---------------------------------------------------------------------------------------

    @property
    def posterior_(self) -> Gaussian:
        """The posterior of the coefficients, with the intercept last if there is one."""
        return self._fitted("posterior_").posterior

    @property
    def log_evidence_(self) -> float:
        """The log evidence of the rows."""
        return self._fitted("log_evidence_").log_evidence

    @property
    def prior_scale_(self) -> Any:
        """The prior scale; the one with the most evidence if it was "auto"."""
        return self._fitted("prior_scale_").prior_scale

    @property
    def drift_(self) -> Any:
        """The share of the past that a row keeps with the most evidence, if it was learned; otherwise the
        given drift."""
        return self._fitted("drift_").drift

    @property
    def learned_settings_(self) -> LearnedSettings:
        """The weights of prior scales and drifts over time, if a stream has learned them."""
        found = self._fitted("learned_settings_").learned_settings()
        if found is None:
            raise AttributeError(
                "learned_settings_ is there after partial_fit with prior_scale='auto' or drift='auto'."
            )
        return found

    @property
    def state_(self) -> Any:
        """The state of the stream after its last full block; all copies if settings are learned."""
        return self._fitted("state_").state

    @property
    def buffer_(self) -> Any:
        """The rows that wait until their block is full."""
        return self._fitted("buffer_").buffer

    @property
    def n_passes_(self) -> int:
        """Passes over the rows."""
        found = self._fitted("n_passes_").optimum
        return 1 if found is None else found.passes

    @property
    def elbo_(self) -> float:
        """The variational bound on log p(y), after more than one pass."""
        return self._optimum("elbo_").elbo

    @property
    def elbo_gap_(self) -> float:
        """An estimate of the distance of the bound from its optimum, in nats, after more than one pass."""
        return self._optimum("elbo_gap_").gap

    @property
    def converged_(self) -> bool:
        """Whether the passes reached the optimum of the bound."""
        return self._optimum("converged_").converged

    def _optimum(self, name: str) -> Optimum:
        found = self._fitted(name).optimum
        if found is None:
            raise AttributeError(f"{name} exists only after a fit that goes on to the optimum.")
        return found

    def _predict(self, x) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The mean and variance of y and the mean of the linear predictor, for each row."""
        if "fit_" not in vars(self):
            check_is_fitted(self, "fit_")
        return self.fit_.predictive.predict(self._rows_to_predict(x))

    def _rows_to_predict(self, x) -> Any:
        """Rows to predict, checked if necessary."""
        if not self._has_same_parameters():
            self.check_structure()
        if need_no_check(self, x, dtype=self.dtype):
            return x
        dtype = np.dtype(self.dtype)
        return checked_table(self, x, reset=False, accept_sparse="csr", dtype=dtype)

    # draws -----------------------------------------------------------------------------------------

    def sample_posterior(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws of the coefficients, one in each row, with the intercept last if there is one."""
        check_is_fitted(self, "fit_")
        key = diagnostics.draw_key(self.random_state if random_state is None else random_state)
        return np.asarray(self.posterior_.sample(key, n_samples))

    def sample_predictors(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Joint draws of the linear predictors of the rows of X, an array of shape (n_samples, rows).

        They have the same distribution as products of X with draws of the coefficients, but the
        coefficients are not drawn: with sparse rows and a rank the cost does not depend on the number of
        features. Thompson sampling takes the candidate with the largest value. For three classes or more a
        last axis has one value for each class.
        """
        check_is_fitted(self, "fit_")
        rows = self._rows_to_predict(X)
        seed = self.random_state if random_state is None else random_state
        random = np.random.default_rng(seed_of(seed))
        return self.fit_.predictive.draw_predictors(rows, n_samples, random)

    def to_arviz(self, n_draws: int = 1000, random_state: Any = None) -> Any:
        """Draws of the coefficients for ArviZ, by the names of the columns.

        The variable is "coef". Its coordinates are the columns of X and then "intercept"; for three classes
        or more each is preceded by the class and a colon. Needs `pip install 'kalvi[arviz]'`.
        """
        check_is_fitted(self, "fit_")
        key = diagnostics.draw_key(self.random_state if random_state is None else random_state)
        return self.posterior_.to_arviz(
            n_draws, diagnostics.coefficient_names(self), "coef", key=key
        )

    def diagnose(
        self, X, y, sample_weight=None, n_draws: int = 1000, random_state: Any = None
    ) -> Diagnosis:
        """How good the Gaussian is, judged by the importance ratios of the true posterior.

        The rows must be those that the model has learned, or a sample of them; in this case a model with
        the same parameters learns only the sample, by `partial_fit`, and is judged in place of this one. If
        prior_scale or noise_scale is "auto", the true posterior is that given the learned values. The
        verdict is "good" for a Pareto k below 0.5, or if weighting costs less than a tenth of the draws,
        provided that the weighted means are within 0.2 deviations of the Gaussian's. It is "poor" if
        weighted averages cannot be trusted, for k above min(1 − 1/log₁₀ n_draws, 0.7), and otherwise
        "usable".
        """
        check_is_fitted(self, "fit_")
        diagnostics.check_judged(self.fit_, n_draws)
        rows, fit = self.checked_rows(X, y, sample_weight), self.fit_
        if diagnostics.are_a_sample(fit, rows):
            fit = diagnostics.learned_alone(self, X, y, sample_weight).fit_
        key = diagnostics.draw_key(self.random_state if random_state is None else random_state)
        return diagnostics.diagnose(fit, rows, int(n_draws), key)

    # files -----------------------------------------------------------------------------------------

    def _fit_of(self, parts: dict[str, Any]) -> LinearFit:
        """Make a fit from its parts; arrays stay NumPy arrays until more rows are learned."""
        self._check_restored()
        self.check_settings()
        return restore_fit(self, parts, self.settings(), self.family())

    def _check_restored(self) -> None:
        """Refuse labels that no fit can have."""
        labels = np.asarray(vars(self).get("classes_", [0, 1]))
        require_consistent(labels.ndim == 1 and len(labels) > 1, self, "classes_")
        require_consistent(bool(np.all(labels[:-1] < labels[1:])), self, "the order of classes_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@cache
def parameter_names(cls: type[LinearEstimator]) -> tuple[str, ...]:
    """The names of the parameters of a class."""
    return tuple(signature(cls.__init__).parameters)[1:]


def _warn(text: str) -> None:
    warn(text, ConvergenceWarning, stacklevel=2)
