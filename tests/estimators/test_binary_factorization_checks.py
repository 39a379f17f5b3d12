"""Binary factorisation by other settings, and scikit-learn's own checks: much to compile."""

import numpy as np
import pytest
import scipy.sparse as sp

import kalvi
from kalvi.estimators.binary_factorization import entries, sweeps
from kalvi.estimators.binary_factorization.locations import sort_axis
from tests.estimators.quick_checks import quick_checks
from tests.estimators.test_binary_factorization import HOLES, LOCATIONS, K, M, N, X, model
from tests.laws import assert_close


@pytest.fixture(scope="module")
def fitted():
    return model().fit(HOLES)


@pytest.mark.slow(reason="compiles the sweeps of a shape of its own")
def test_one_row_says_nothing_of_others():
    found = kalvi.BinaryFactorization(1, random_state=0).fit(X[:1])
    mean, std = found.factors_at(row_locations=[0.0, 5.0])
    assert_close(mean[0], found.row_factors_[0], 1e-12)
    assert_close(mean[1], np.asarray(found.row_prior_.mean), 1e-12)
    assert_close(std[1] ** 2, np.asarray(found.row_prior_.variance), 1e-12)


@pytest.mark.slow(reason="compiles sweeps with shared locations, and their transform")
def test_shared_factors():
    shared = model(row_locations=np.arange(N) // 2).fit(HOLES)
    assert np.array_equal(shared.row_factors_[::2], shared.row_factors_[1::2])
    assert_close(shared.transform(HOLES), shared.row_factors_, 0.02)


@pytest.mark.slow(reason="compiles a fit for every number of factors tried")
def test_the_number_of_factors_is_found():
    random, times = np.random.default_rng(1), np.arange(80)
    waves = 3 * np.column_stack([np.sin(times / 6), np.cos(times / 9)])
    logits = waves @ random.normal(size=(K, 50))
    x = random.random(logits.shape) < 1 / (1 + np.exp(-logits))
    settings = {"col_locations": "unordered", "random_state": 0}
    found = kalvi.BinaryFactorization(max_factors=5, **settings).fit(x)
    assert found.n_factors_ == K
    assert_close(found.elbo_, kalvi.BinaryFactorization(K, **settings).fit(x).elbo_, 1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"posterior": "mean_field"},
        *(
            pytest.param(given, marks=pytest.mark.slow(reason="compiles a fit for each setting"))
            for given in (
                {"dtype": "float32"},
                {"posterior": "coupled"},
                {"solver": "jacobi"},
                {"solver": "jacobi_search"},
            )
        ),
    ],
)
def test_other_settings_are_near(fitted, settings):
    found = model(**settings).fit(HOLES)
    assert found.row_factors_.dtype == settings.get("dtype", "float64")
    assert np.abs(found.predict_proba() - fitted.predict_proba()).max() < 0.1
    axes = (
        sort_axis("row_locations", LOCATIONS, N, "share"),
        sort_axis("col_locations", None, M, "share"),
    )
    table = entries.read_entries(HOLES, None, None, None, axes, found.row_factors_.dtype).observed
    assert_close(sweeps.bound(found.posterior_, table), found.elbo_, 1e-6)  # also in this order
    order = {"coupled": 1, "mean_field": -1}.get(settings.get("posterior"), 0)
    assert order * (found.elbo_ - fitted.elbo_) >= 0
    if not order:
        assert abs(found.elbo_ - fitted.elbo_) < 0.05


class Thresholded(kalvi.BinaryFactorization):
    """For scikit-learn's checks: numbers above 1/2 count as ones, and there is no predict_proba.

    The checks bring tables of numbers, of which the estimator itself takes 0, 1 and NaN only, and ask
    predict_proba of rows of X, where it has entries of the matrix that was fitted.
    """

    def fit(self, X, y=None):
        return super().fit(_above(X), y)

    def fit_transform(self, X, y=None):
        return self.fit(X, y).row_factors_

    def transform(self, X):
        return super().transform(_above(X))

    def score(self, X, y=None):
        return super().score(_above(X), y)

    @property
    def predict_proba(self):
        raise AttributeError("not by rows of X")


def _above(x):
    """Ones where finite numbers are above 1/2; anything else as it came, to be refused."""
    x = x if sp.issparse(x) or hasattr(x, "iloc") else np.asarray(x)
    if sp.issparse(x):
        return x > 0.5
    proper = x.ndim == 2 and np.asarray(x).dtype.kind in "iuf" and np.all(np.isfinite(x))
    return x > 0.5 if proper else x


UNORDERED = {"row_locations": "unordered", "col_locations": "unordered"}


@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")
@quick_checks([Thresholded(1, posterior="mean_field", random_state=0, tol=1e-4, **UNORDERED)])
def test_sklearn_check(estimator, check):
    check(estimator)
