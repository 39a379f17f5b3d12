"""Models of an older version, and what they were asked then.

The files beside this one were written by the code of commit bfcc55f, before the modules moved:

    python -m tests.archives.older.cases        # with that version installed

It uses public names only, so that today's version can ask the same questions.
"""

import copy
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import kalvi

FOLDER = Path(__file__).parent
ANSWERS = FOLDER / "answers.json"

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3))
Y = X @ [1.0, -2.0, 0.5] + 0.3 * RNG.normal(size=24)
LABELS = np.where(Y > 0, "yes", "no")
THREE = np.digitize(Y, [-1.0, 1.0])
COUNTS = THREE.astype(float)
MATRIX = (RNG.random((5, 6)) < 0.5).astype(float)
NEW = X[:4] + 0.1


class Case(NamedTuple):
    """A value of an older version, and what it is asked."""

    make: Callable[[], Any]
    ask: Callable[[Any], Any]


def _probabilities(model: Any) -> Any:
    return model.predict_proba(NEW)


def _predictions(model: Any) -> Any:
    return model.predict(NEW, return_std=True)


def _fitted(rule: Any, prior: Any) -> Any:
    rows = kalvi.Batch(jnp.asarray(X), jnp.asarray(Y > 0, float), jnp.ones(len(X)))
    return kalvi.fit(rule, prior, [rows])


def _state_answers(state: Any) -> Any:
    return state.posterior.mean, state.posterior.variance(), state.log_evidence, state.rows


def _network_rule() -> Any:
    network, _ = kalvi.networks.Perceptron((3, 2, 1)).network(jr.key(0), jnp.float64)
    model = kalvi.networks.Model(network, kalvi.likelihoods.Normal(0.5))
    return kalvi.NetworkRVGA(model, learn_noise=True)


def _network_prior() -> Any:
    mean = 0.3 * np.random.default_rng(1).normal(size=11)
    return kalvi.LowRankPrecision(mean, np.zeros((11, 2)), np.ones(11))


def _likelihood_says(rule: Any) -> Any:
    likelihood = vars(rule).get("likelihood") or rule.model.likelihood
    likelihood = vars(likelihood).get("likelihood", likelihood)  # a network's was wrapped once
    return likelihood.log_prob(jnp.asarray(0.3), jnp.asarray(1.0))


def _learns_on(model: Any) -> Any:
    return _probabilities(copy.deepcopy(model).partial_fit(X[:4], LABELS[:4]))


def _factorised() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two sweeps do not converge
        return kalvi.BinaryFactorization(1, max_sweeps=2).fit(MATRIX)


def _prior(d: int = 3) -> Any:
    return kalvi.Dense(np.zeros(d), np.eye(d))


def _posterior() -> Any:
    rng = np.random.default_rng(2)
    return kalvi.LowRankPrecision(rng.normal(size=4), rng.normal(size=(4, 2)), np.ones(4))


CASES = {
    "linear": Case(lambda: kalvi.LinearRegression().fit(X, Y), _predictions),
    "logistic": Case(lambda: kalvi.LogisticRegression().fit(X, LABELS), _probabilities),
    "three_classes": Case(lambda: kalvi.LogisticRegression().fit(X, THREE), _probabilities),
    "low_rank": Case(  # eight rows are learned, six wait for the next block
        lambda: kalvi.LogisticRegression(rank=2, block_size=8).partial_fit(X[:14], LABELS[:14]),
        _probabilities,
    ),
    "grid": Case(
        lambda: kalvi.LogisticRegression(prior_scale="auto").fit(X, LABELS), _probabilities
    ),
    "counts": Case(lambda: kalvi.PoissonRegression().fit(X, COUNTS), _predictions),
    "process": Case(
        lambda: kalvi.GaussianProcessRegressor(optimizer=None).fit(X[:8], Y[:8]), _predictions
    ),
    "process_classes": Case(
        lambda: kalvi.GaussianProcessClassifier(optimizer=None).fit(X[:8], LABELS[:8]),
        _probabilities,
    ),
    "network": Case(
        lambda: kalvi.NeuralRegressor((2,), method="lrvga", random_state=0).fit(X, Y), _predictions
    ),
    "network_classes": Case(
        lambda: kalvi.NeuralClassifier((2,), method="vifa", epochs=2, random_state=0).fit(
            X, LABELS
        ),
        _probabilities,
    ),
    "network_stream_of_classes": Case(
        lambda: kalvi.NeuralClassifier((2,), method="lrvga", random_state=0).fit(X, LABELS),
        _learns_on,
    ),
    "revisit": Case(lambda: kalvi.rules.Revisit(kalvi.likelihoods.Bernoulli()), _likelihood_says),
    "full_covariance": Case(lambda: kalvi.FullVI(_network_rule().model, 0.5), _likelihood_says),
    "factors": Case(lambda: kalvi.FactorAnalysis(1).fit(X), lambda m: m.transform(NEW)),
    "matrix": Case(_factorised, lambda m: m.predict_proba()),
    "state": Case(
        lambda: _fitted(kalvi.RVGA(kalvi.likelihoods.Bernoulli()), _prior()), _state_answers
    ),
    "rule": Case(
        lambda: kalvi.RVGA(
            kalvi.likelihoods.Bernoulli(), kalvi.schemes.EKF(), forgetting=0.9, block_size=4
        ),
        lambda rule: _state_answers(_fitted(rule, _prior())),
    ),
    "posterior": Case(_posterior, lambda q: (q.mean, q.variance(), q.marginal(jnp.eye(4)))),
    "network_rule": Case(
        _network_rule, lambda rule: _state_answers(_fitted(rule, _network_prior()))
    ),
    "network_state": Case(lambda: _fitted(_network_rule(), _network_prior()), _state_answers),
}


def file_of(name: str) -> Path:
    """Where a case was saved."""
    return FOLDER / f"{name}.kalvi"


def answers(case: Case, value: Any) -> list[Any]:
    """What a value says, as lists of numbers."""
    return [np.asarray(part).tolist() for part in jax.tree.leaves(case.ask(value))]


def write() -> None:
    """Save every case, and what it says."""
    found = {}
    for name, case in CASES.items():
        value = case.make()
        kalvi.save(file_of(name), value)
        found[name] = answers(case, value)
    ANSWERS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    write()
