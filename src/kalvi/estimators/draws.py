"""What draws of a linear model's posterior are for: samples, ArviZ, and how good the Gaussian is.

The true posterior is prior · Π p(yᵢ | xᵢᵀθ)^wᵢ up to a constant, so draws θ of the Gaussian q have

    log r(θ) = log prior(θ) + Σ wᵢ log p(yᵢ | xᵢᵀθ) − log q(θ),

and `psis` says from these ratios how far q is from it.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float
from sklearn.base import clone, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kalvi import streams
from kalvi.estimators import settings
from kalvi.evaluation.psis import FEWEST, Diagnosis, diagnosis, psis
from kalvi.gaussians import Gaussian
from kalvi.likelihoods import Likelihood
from kalvi.numerics.precision import matching
from kalvi.predictors import linear
from kalvi.rules.base import Batch, weighted
from kalvi.streams import run

ROWS, NUMBERS = 256, 2**24
"""Ratios are summed over blocks of so many rows, for draws of at most so many numbers at once."""
SAME = 1e-6
"""Total weights that differ by less than this share are those of the same rows."""


class Drawn:
    """What the streaming estimators do with draws of their coefficients."""

    posterior_: Any
    random_state: Any
    _fitted: Any
    _current: Any

    def sample_posterior(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws of the coefficients, the intercept last when there is one, one a row."""
        check_is_fitted(self)
        return np.asarray(self.posterior_.sample(self._draw_key(random_state), n_samples))

    def to_arviz(self, n_draws: int = 1000, random_state: Any = None) -> Any:
        """Draws of the coefficients as ArviZ takes them, by the names of the columns.

        The variable is "coef"; its coordinates are the columns of X, "intercept" the last, and for three
        classes or more each of them after the class and a colon. Needs `pip install 'kalvi[arviz]'`.
        """
        check_is_fitted(self)
        key = self._draw_key(random_state)
        return self.posterior_.to_arviz(n_draws, self._coefficient_names(), "coef", key=key)

    def diagnose(
        self, X, y, sample_weight=None, n_draws: int = 1000, random_state: Any = None
    ) -> Diagnosis:
        """How good the Gaussian is, by importance ratios of the true posterior to it.

        The rows must be those the model has learned from, or a sample of them: then a model with the same
        parameters learns from the sample alone, by `partial_fit`, and is judged in place of this one.
        Where prior_scale or noise_scale were "auto", the posterior meant is that given the values learned.
        The verdict is "good" below a Pareto k of 0.5, or where weighting the draws costs less than a tenth
        of them, if the weighted means are within 0.2 deviations of the Gaussian's; "poor" where weighted
        averages could not be trusted, beyond min(1 − 1/log₁₀ n_draws, 0.7); and "usable" between.
        """
        check_is_fitted(self)
        model: Any = self._fitted()
        _check_judged(model, n_draws)
        rows, targets = model._check_rows(X, y, reset=False, y_numeric=not is_classifier(model))
        weight = model._check_weight(sample_weight, rows)
        seen, given = float(self._current()[1].rows), float(weight.sum())
        if given > seen * (1 + SAME) or not given > 0:
            raise ValueError(
                f"diagnose needs rows that the model has learned from, of a total weight up to {seen:g}; "
                f"got {given:g}."
            )
        if given < seen * (1 - SAME):
            model = learned_alone(model, X, y, sample_weight)
        table, key = (rows, model._targets(targets), weight), self._draw_key(random_state)
        ratios = log_ratios(model, table, int(n_draws), key)
        shift = shifts(model.posterior_, psis(ratios).log_weights, key)
        return diagnosis(ratios, int(np.sum(weight > 0)), shift)

    def _draw_key(self, random_state: Any) -> Any:
        chosen = self.random_state if random_state is None else random_state
        return jr.key(check_random_state(chosen).randint(2**31 - 1))

    def _coefficient_names(self) -> list[str]:
        model: Any = self._fitted()
        names = list(getattr(model, "feature_names_in_", range(model.n_features_in_)))
        names = [name if isinstance(name, str) else f"x{name}" for name in names]
        names += ["intercept"] * bool(model.fit_intercept)
        if model._outputs() == 1:
            return names
        return [f"{label}: {name}" for label in model.classes_ for name in names]


def log_ratios(model: Any, table: tuple, n_draws: int, key: Any) -> Float[np.ndarray, " s"]:
    """log r of draws of a model's posterior, in float64 and in as many pieces as memory asks for."""
    likelihood = model._fitted_likelihood()
    with matching(np.float64):
        posterior, prior = in_double(model.posterior_), in_double(prior_of(model))
        parts = []
        for theta in _draws(posterior, n_draws, key):
            total = run.call(_densities, prior, theta) - run.call(_densities, posterior, theta)
            layout = model._layout() | {"dtype": np.float64}
            for batch in streams.array_batches(*table, block_size=ROWS, **layout):
                total = total + run.call(_log_likelihoods, likelihood, theta, batch)
            parts.append(np.asarray(total))
    return np.concatenate(parts)


def _draws(posterior: Gaussian, n_draws: int, key: Any) -> Iterator[Float[Array, "s d"]]:
    """Draws of a posterior, in as many pieces as memory asks for."""
    size = int(np.clip(NUMBERS // posterior.dim, 1, n_draws))
    for number, first in enumerate(range(0, n_draws, size)):
        yield posterior.sample(jr.fold_in(key, number), min(size, n_draws - first))


def shifts(
    posterior: Gaussian, log_weights: Float[np.ndarray, " s"], key: Any
) -> Float[np.ndarray, " d"]:
    """How far weighting the draws of `log_ratios` moves each mean, in standard deviations.

    Against the mean of the same draws: equal weights move nothing, whatever was drawn.
    """
    extra, done = np.exp(log_weights) - 1 / len(log_weights), 0
    with matching(np.float64):
        posterior = in_double(posterior)
        total = np.zeros(posterior.dim)
        for theta in _draws(posterior, len(extra), key):
            total += extra[done : done + len(theta)] @ np.asarray(theta - posterior.mean[None, :])
            done += len(theta)
        return total / np.sqrt(np.asarray(posterior.variance()))


def prior_of(model: Any) -> Gaussian:
    """The prior of a fitted model, in the units of its posterior."""
    shape = model.n_features_in_, model._outputs()
    prior = settings.make_prior(model.get_params(), model.prior_scale_, shape, model.dtype)
    return model._in_units(prior, model._current()[1])


def in_double(q: Gaussian) -> Any:
    """The same Gaussian in float64."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), q)


def learned_alone(model: Any, x: Any, y: Any, sample_weight: Any) -> Any:
    """A model with the same parameters that knows these rows alone, learned in one pass."""
    fresh: Any = clone(model)
    if not isinstance(model.prior_scale_, str) and model.prior is None:
        fresh.set_params(prior_scale=model.prior_scale_)
    classes = {"classes": model.classes_} if is_classifier(model) else {}
    return fresh.partial_fit(x, y, sample_weight=sample_weight, **classes)


def _check_judged(model: Any, n_draws: int) -> None:
    if model.forgetting != 1 or model.process_noise != 0:
        raise ValueError(
            "diagnose needs forgetting=1 and process_noise=0; a model that forgets has no other posterior "
            "to be compared with."
        )
    if n_draws < FEWEST:
        raise ValueError(f"n_draws must be at least {FEWEST}; got {n_draws}.")


def _densities(q: Gaussian, theta: Float[Array, "s d"]) -> Float[Array, " s"]:
    return jax.vmap(lambda one: q.log_prob(one))(theta)


def _log_likelihoods(
    likelihood: Likelihood, theta: Float[Array, "s d"], batch: Batch
) -> Float[Array, " s"]:
    """Σ wᵢ log p(yᵢ | θ) of each draw."""
    predictor = linear(likelihood.outputs)
    f = jnp.swapaxes(jax.vmap(lambda one: predictor.values(one, batch.x))(theta), 0, 1)
    terms = jax.vmap(lambda row, y: jax.vmap(lambda one: likelihood.log_prob(one, y))(row))
    return jnp.sum(weighted(batch.weight, terms(f, batch.y)), axis=0)
