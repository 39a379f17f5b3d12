"""Gaussian processes by NumPy and by compiled programs: small fits compile nothing, and results agree."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from kalvi import GaussianProcessClassifier, GaussianProcessRegressor
from kalvi.estimators.gaussian_process import placement

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 2))
F = np.sin(2 * X[:, 0]) + X[:, 1]
Y = F + 0.3 * RNG.normal(size=60)
LABELS = (RNG.random(60) < 1 / (1 + np.exp(-3 * F))).astype(int)
COUNTS = RNG.poisson(np.exp(F / 2))
NEW = RNG.normal(size=(7, 2))
SPARSE = {"sparse": True, "n_inducing": 10, "random_state": 0}


def alone(code: str) -> str:
    """What a program prints in a process of its own."""
    program = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    run = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_small_fits_and_their_predictions_start_no_backend():
    alone("""
        import pickle
        import numpy as np, kalvi
        from sklearn.gaussian_process.kernels import RBF
        from kalvi.system.forks import backend_started
        rng = np.random.default_rng(0)
        x = rng.normal(size=(40, 2))
        y, new = x[:, 0] + rng.normal(size=40), rng.normal(size=(5, 2))
        labels = np.digitize(y, [-0.5, 0.5])
        sparse = {"sparse": True, "n_inducing": 8}
        classifier = kalvi.GaussianProcessClassifier().fit(x, labels > 0)
        classifier.predict_proba(new), classifier.predict_latent(new)
        classifier.kernel_, classifier.hyperparameters_, classifier.log_marginal_likelihood_
        kalvi.GaussianProcessClassifier(RBF()).fit(x, labels).predict_proba(new)
        kalvi.GaussianProcessClassifier(**sparse).fit(x, labels > 0).predict_proba(new)
        tails = {"likelihood": "student_t", "optimizer": None}
        for how in ({}, tails, sparse, sparse | {"batch_size": 16}):
            model = kalvi.GaussianProcessRegressor(**how).fit(x, y)
            model = pickle.loads(pickle.dumps(model))
            model.predict(new, return_std=True), model.log_predictive_density(new, y[:5])
        assert not backend_started()
    """)


def both(model, y, monkeypatch) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """The bound and the latent function that each engine finds at the same hyperparameters."""
    found = []
    for most in (placement.MOST_ROWS, 0):
        monkeypatch.setattr(placement, "MOST_ROWS", most)
        monkeypatch.setattr(placement, "MOST_FEATURES", most)
        fitted = model.set_params(optimizer=None).fit(X, y)
        found.append((fitted.log_marginal_likelihood_, *fitted.predict_latent(NEW)))
    return found


@pytest.mark.parametrize(
    ("model", "y"),
    [
        pytest.param(GaussianProcessClassifier(), LABELS, id="logit"),
        *(
            pytest.param(
                model, y, id=name, marks=pytest.mark.slow(reason="compiles an optimum of rows")
            )
            for name, model, y in (
                ("normal", GaussianProcessRegressor(), Y),
                ("probit", GaussianProcessClassifier(link="probit"), LABELS),
                ("t", GaussianProcessRegressor(likelihood="student_t"), Y),
                ("counts", GaussianProcessRegressor(likelihood="poisson"), COUNTS),
                ("sparse", GaussianProcessClassifier(**SPARSE), LABELS),
                ("sparse_t", GaussianProcessRegressor(likelihood="student_t", **SPARSE), Y),
                ("batches", GaussianProcessRegressor(batch_size=16, **SPARSE), Y),
            )
        ),
    ],
)
def test_the_engines_agree(model, y, monkeypatch):
    mine, other = both(model, y, monkeypatch)
    np.testing.assert_allclose(mine[0], other[0], rtol=1e-9)
    for a, b in zip(mine[1:], other[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)  # the ascents stop at 1e-8 nats


def test_large_tables_are_compiled(monkeypatch):
    monkeypatch.setattr(placement, "MOST_ROWS", len(X) - 1)
    for n, small in ((len(X), False), (48, True)):
        model = GaussianProcessClassifier(optimizer=None).fit(X[:n], LABELS[:n])
        assert isinstance(model.fits_[0].found.mean, np.ndarray) == small
