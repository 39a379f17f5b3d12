"""Draws of a linear model's coefficients, and a diagnosis of its Gaussian.

The true posterior is prior · Π p(yᵢ | xᵢᵀθ)^wᵢ up to a constant, so draws θ of the Gaussian q have

    log r(θ) = log prior(θ) + Σ wᵢ log p(yᵢ | xᵢᵀθ) − log q(θ),

and `psis` judges the distance of q from the posterior by these ratios.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from sklearn.base import clone, is_classifier

from kalvi import streams
from kalvi.estimators.input_checks import seed_of
from kalvi.estimators.linear.fit import LinearFit
from kalvi.estimators.linear.stream import Rows
from kalvi.evaluation.psis import FEWEST, Diagnosis, diagnosis, psis
from kalvi.gaussians import Gaussian
from kalvi.likelihoods import Likelihood
from kalvi.numerics.precision import matching_precision
from kalvi.predictors import Predictor, linear_predictor
from kalvi.rules.rule import Batch, weigh_rows
from kalvi.streams import run

SAME_WEIGHT = 1e-6
"""Total weights that differ by less than this share count as equal."""
ROWS, NUMBERS = 256, 2**24
"""The number of rows in a block over which ratios are summed, and the most numbers in draws at once."""


def draw_key(random_state: Any) -> PRNGKeyArray:
    """A key for draws, from any random state that scikit-learn takes."""
    return jr.key(seed_of(random_state))


def check_judged(fit: LinearFit, n_draws: int) -> None:
    """Refuse a diagnosis of a model that forgets, or with too few draws."""
    if not fit.stands_still:
        raise ValueError(
            "diagnose needs forgetting=1, process_noise=0 and drift=None; a model that forgets has no "
            "other posterior to be compared with."
        )
    if n_draws < FEWEST:
        raise ValueError(f"n_draws must be at least {FEWEST}; got {n_draws}.")


def are_a_sample(fit: LinearFit, rows: Rows) -> bool:
    """Whether these are only some of the rows of the fit; more rows than those are refused."""
    seen, given = fit.weight, float(rows[2].sum())
    if given > seen * (1 + SAME_WEIGHT) or not given > 0:
        raise ValueError(
            f"diagnose needs rows that the model has learned from, of a total weight up to {seen:g}; "
            f"got {given:g}."
        )
    return given < seen * (1 - SAME_WEIGHT)


def coefficient_names(model: Any) -> list[str]:
    """The names of the coefficients: those of the columns, after the class if there are several."""
    given = getattr(model, "feature_names_in_", range(model.n_features_in_))
    names = [name if isinstance(name, str) else f"x{name}" for name in given]
    names += ["intercept"] * bool(model.fit_.settings.fit_intercept)
    if model.fit_.family.likelihood.outputs == 1:
        return names
    return [f"{label}: {name}" for label in model.classes_ for name in names]


def diagnose(fit: LinearFit, rows: Rows, n_draws: int, key: PRNGKeyArray) -> Diagnosis:
    """The diagnosis of a fit's posterior, given the rows that it has learned."""
    ratios = log_ratios(fit, rows, n_draws, key)
    shift = mean_shifts(fit.posterior, psis(ratios).log_weights, key)
    return diagnosis(ratios, int(np.sum(rows[2] > 0)), shift)


def log_ratios(
    fit: LinearFit, rows: Rows, n_draws: int, key: PRNGKeyArray
) -> Float[np.ndarray, " s"]:
    """log r of draws of a fit's posterior, in float64, in pieces that fit in memory."""
    likelihood = fit.family.fitted_likelihood(fit.predicting.best, fit.settings.dtype)
    predictor = linear_predictor(likelihood.outputs)
    layout: dict[str, Any] = {**fit.settings.layout, "dtype": np.float64}
    with matching_precision(np.float64):
        posterior, prior = _in_double(fit.posterior), _in_double(fit.fitted_prior())
        parts = []
        for theta in _draws(posterior, n_draws, key):
            total = run.call(_densities, prior, theta) - run.call(_densities, posterior, theta)
            for batch in streams.array_batches(*rows, block_size=ROWS, **layout):
                total = total + run.call(_log_likelihoods, likelihood, predictor, theta, batch)
            parts.append(np.asarray(total))
    return np.concatenate(parts)


def mean_shifts(
    posterior: Gaussian, log_weights: Float[np.ndarray, " s"], key: PRNGKeyArray
) -> Float[np.ndarray, " d"]:
    """The moves of the means when the draws of `log_ratios` are weighted, in standard deviations.

    They are relative to the mean of the same draws, so that equal weights give zero.
    """
    extra, done = np.exp(log_weights) - 1 / len(log_weights), 0
    with matching_precision(np.float64):
        posterior = _in_double(posterior)
        total = np.zeros(posterior.dim)
        for theta in _draws(posterior, len(extra), key):
            total += extra[done : done + len(theta)] @ np.asarray(theta - posterior.mean[None, :])
            done += len(theta)
        return total / np.sqrt(np.asarray(posterior.variance()))


def learned_alone(model: Any, x: Any, y: Any, sample_weight: Any) -> Any:
    """A model with the same parameters that has learned only these rows, in one pass."""
    fresh: Any = clone(model)
    if model.fit_.learned:
        fresh.set_params(drift=None)
    if not isinstance(model.prior_scale_, str) and model.prior is None:
        fresh.set_params(prior_scale=model.prior_scale_)
    classes = {"classes": vars(model)["classes_"]} if is_classifier(model) else {}
    return fresh.partial_fit(x, y, sample_weight=sample_weight, **classes)


def _draws(posterior: Gaussian, n_draws: int, key: PRNGKeyArray) -> Iterator[Float[Array, "s d"]]:
    """Draws of a posterior, in pieces that fit in memory."""
    size = int(np.clip(NUMBERS // posterior.dim, 1, n_draws))
    for number, first in enumerate(range(0, n_draws, size)):
        yield posterior.sample(jr.fold_in(key, number), min(size, n_draws - first))


def _in_double(q: Gaussian) -> Any:
    """The same Gaussian in float64."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), q)


def _densities(q: Gaussian, theta: Float[Array, "s d"]) -> Float[Array, " s"]:
    return jax.vmap(lambda one: q.log_prob(one))(theta)


def _log_likelihoods(
    likelihood: Likelihood, predictor: Predictor, theta: Float[Array, "s d"], batch: Batch
) -> Float[Array, " s"]:
    """Σ wᵢ log p(yᵢ | θ) of each draw."""
    f = jnp.swapaxes(jax.vmap(lambda one: predictor.values(one, batch.x))(theta), 0, 1)
    terms = jax.vmap(lambda row, y: jax.vmap(lambda one: likelihood.log_prob(one, y))(row))
    return jnp.sum(weigh_rows(batch.weight, terms(f, batch.y)), axis=0)
