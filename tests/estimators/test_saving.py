"""Every fitted estimator through a file: the same predictions, and the same learning afterwards."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import kernels as sklearn_kernels

import kalvi
from kalvi.gaussians import Dense
from tests import problems

PROBLEM = problems.binary()
X = np.asarray(PROBLEM.x)[:, :3]
Y = X @ [1.0, -2.0, 0.5] + np.random.default_rng(0).normal(size=len(X))
LABELS = np.where(Y > 0, "yes", "no")
THREE = np.digitize(Y, [-1.0, 1.0])
SOME, MORE = slice(0, 25), slice(25, 37)


class Case(NamedTuple):
    fitted: Callable[[], Any]
    ask: Callable[[Any], Any]
    learn: Callable[[Any], Any] | None = None  # more rows


def probabilities(model):
    return model.predict_proba(X), np.asarray(model.posterior_.mean), model.log_evidence_


def prediction(model):
    return model.predict(X, return_std=True)


def _linear():
    return kalvi.LinearRegression().fit(X[SOME], Y[SOME])


def _low_rank(prior_scale: Any = 1.0):
    model = kalvi.LogisticRegression(rank=1, prior_scale=prior_scale)
    return model.partial_fit(sp.csr_matrix(X[SOME]), LABELS[SOME])


def _named():
    frame = pd.DataFrame(X, columns=["width", "größe", "x=1"])
    prior = Dense(np.arange(4.0), np.eye(4))
    return kalvi.LogisticRegression(prior=prior, dtype=np.float32).partial_fit(
        frame[SOME], LABELS[SOME]
    )


def _quietly(model, *rows, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*rows, **more)


def _matrix():
    return (np.random.default_rng(1).random((6, 7)) < 0.5).astype(float)


def _more_labels(model):
    return model.partial_fit(X[MORE], LABELS[MORE])


CASES = {
    "linear": Case(_linear, prediction, lambda m: m.partial_fit(X[MORE], Y[MORE])),
    "low rank": Case(
        _low_rank,
        probabilities,
        lambda m: m.partial_fit(sp.csr_matrix(X[MORE]), LABELS[MORE]),
    ),
    "factors": Case(
        lambda: kalvi.FactorAnalysis(1).partial_fit(X[SOME]),
        lambda m: (m.transform(X), m.gaussian_.mean),
        lambda m: m.partial_fit(X[MORE]),
    ),
}
SLOW = {
    "named": Case(
        _named,
        lambda m: m.predict_proba(pd.DataFrame(X, columns=["width", "größe", "x=1"])),
        lambda m: m.partial_fit(
            pd.DataFrame(X[MORE], columns=["width", "größe", "x=1"]), LABELS[MORE]
        ),
    ),
    "grid": Case(
        lambda: _low_rank("auto"),
        probabilities,
        lambda m: m.partial_fit(sp.csr_matrix(X[MORE]), LABELS[MORE]),
    ),
    "binary": Case(
        lambda: _quietly(kalvi.BinaryFactorization(1, max_sweeps=2), _matrix()),
        lambda m: m.predict_proba(),
    ),
    "process": Case(
        lambda: kalvi.GaussianProcessRegressor(optimizer=None).fit(X[SOME], Y[SOME]),
        prediction,
    ),
    "network": Case(
        lambda: kalvi.NeuralRegressor((2,), method="lrvga", random_state=0).fit(X[SOME], Y[SOME]),
        prediction,
        lambda m: m.partial_fit(X[MORE], Y[MORE]),
    ),
    "classes": Case(
        lambda: kalvi.LogisticRegression().fit(X[SOME], THREE[SOME]),
        probabilities,
        lambda m: m.partial_fit(X[MORE], THREE[MORE]),
    ),
    "by rows": Case(
        lambda: kalvi.LogisticRegression(method="klprox").fit(X[:3], LABELS[:3]),
        probabilities,
        _more_labels,
    ),
    "counts": Case(
        lambda: kalvi.PoissonRegression(rank=0).partial_fit(X[SOME], THREE[SOME]),
        prediction,
        lambda m: m.partial_fit(X[MORE], THREE[MORE]),
    ),
    "sparse process": Case(
        lambda: kalvi.GaussianProcessRegressor(
            optimizer=None, sparse=True, n_inducing=5, random_state=0
        ).fit(X[SOME], Y[SOME]),
        prediction,
    ),
    "classes of a process": Case(
        lambda: kalvi.GaussianProcessClassifier(
            kernel=2.0 * sklearn_kernels.RBF(0.5) + sklearn_kernels.WhiteKernel(0.1),
            optimizer=None,
        ).fit(X[SOME], THREE[SOME]),
        lambda m: m.predict_proba(X),
    ),
    "classes of a network": Case(
        lambda: kalvi.NeuralClassifier((2,), epochs=2, random_state=0).fit(X[SOME], THREE[SOME]),
        lambda m: m.predict_proba(X),
    ),
    "mixture": Case(
        lambda: kalvi.NeuralRegressor(
            (2,), method="multiswag", n_members=2, epochs=4, rank=2, random_state=0
        ).fit(X[SOME], Y[SOME]),
        prediction,
    ),
    "online factors": Case(
        lambda: kalvi.FactorAnalysis(1, method="online_em", warm_up=4, random_state=0).partial_fit(
            X[SOME]
        ),
        lambda m: m.transform(X),
        lambda m: m.partial_fit(X[MORE]),
    ),
}
MARKED = [
    *(pytest.param(case, id=name) for name, case in CASES.items()),
    *(
        pytest.param(case, id=name, marks=pytest.mark.slow(reason="compiles a fit and predictions"))
        for name, case in SLOW.items()
    ),
]


def bits(answer) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(answer)]


@pytest.mark.parametrize("case", MARKED)
def test_a_model_comes_back_bit_for_bit_and_learns_on(case, tmp_path):
    path, model = tmp_path / "model.kalvi", case.fitted()
    kalvi.save(path, model, rows=25)
    with jax.enable_x64(False):  # the global setting must not matter
        again = kalvi.load(path)
    assert type(again) is type(model)
    assert set(vars(again)) == set(vars(model))
    assert bits(case.ask(again)) == bits(case.ask(model))
    if case.learn is not None:
        case.learn(model)
        case.learn(again)
        assert bits(case.ask(again)) == bits(case.ask(model))


def test_names_of_columns_come_back(tmp_path):
    frame = pd.DataFrame(
        X[:5], columns=["width", "größe", "x=1"]
    )  # too few rows for a block: they wait
    model = kalvi.LogisticRegression(rank=1, dtype=np.float32)
    kalvi.save(tmp_path / "model", model.partial_fit(frame, LABELS[:5], ["no", "yes"]))
    again = kalvi.load(tmp_path / "model")
    assert again.feature_names_in_.tolist() == ["width", "größe", "x=1"]
    assert again.feature_names_in_.dtype == object
    assert again.classes_.tolist() == ["no", "yes"]
    assert again.get_params()["dtype"] is np.float32


def test_what_cannot_be_saved_is_named(tmp_path):
    path = tmp_path / "model"
    seeded = kalvi.LogisticRegression(random_state=np.random.RandomState(0))
    with pytest.raises(
        TypeError, match=r"LogisticRegression.random_state is a numpy.*give a whole"
    ):
        kalvi.save(path, seeded)
    process = kalvi.GaussianProcessRegressor(kalvi.kernels.Function(lambda k, x, y: x @ y.T, 1.0))
    with pytest.raises(TypeError, match=r"Regressor.kernel.fn is the function .*lambda"):
        kalvi.save(path, process)

    class Mine(kalvi.LogisticRegression):
        pass

    with pytest.raises(TypeError, match=r"Mine is a .*Mine, which cannot be saved"):
        kalvi.save(path, Mine())
    assert not list(tmp_path.iterdir())


def test_attributes_that_contradict_each_other(tmp_path, monkeypatch):
    model = kalvi.LogisticRegression(rank=1).partial_fit(X[:5], LABELS[:5], ["no", "yes"])
    for name, wrong in (
        ("n_features_in_", 5),
        ("classes_", np.array(["a", "b", "c"])),
        ("classes_", np.array(["b", "a"])),
        ("scheme", "none"),
        ("dtype", "nothing"),
        ("state_", None),
        ("structure_", {}),
        ("elbo_", "high"),
        ("converged_", True),
        ("buffer_", kalvi.rules.rule.Batch(np.zeros((1, 3)), np.zeros(1), np.zeros(1))),
    ):
        kept = model.__getstate__() | {name: wrong}
        with monkeypatch.context() as broken:
            broken.setattr(kalvi.LogisticRegression, "__getstate__", lambda self, kept=kept: kept)
            kalvi.save(tmp_path / "model", model)
        with pytest.raises(ValueError, match="model is not a saved state"):
            kalvi.load(tmp_path / "model")
