"""Binary factorisation: quadrature and dense processes as judges, forms of X, refusals."""

import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import kalvi
from kalvi.estimators.binary_factorization import entries, predictions, sweeps
from kalvi.estimators.binary_factorization.locations import sort_axis
from kalvi.rules.silk import Entries
from tests.laws import assert_close

N, M, K = 30, 20, 2
rng = np.random.default_rng(0)
LOCATIONS = np.cumsum(rng.uniform(0.5, 1.5, N))[rng.permutation(N)]
WAVES = 3 * np.column_stack([np.sin(LOCATIONS / 4), np.cos(LOCATIONS / 5)])
X = (rng.random((N, M)) < 1 / (1 + np.exp(-WAVES @ rng.normal(size=(K, M))))).astype(float)
SEEN = rng.random((N, M)) < 0.8
SEEN[4], SEEN[:, 7] = False, False
HOLES = np.where(SEEN, X, np.nan)


def model(**settings):
    usual = {"row_locations": LOCATIONS, "col_locations": "unordered", "bound": "polya_gamma"}
    settings = usual | settings
    return kalvi.BinaryFactorization(K, random_state=0, **settings)


@pytest.fixture(scope="module")
def fitted():
    return model().fit(HOLES)


def law(found):
    """Mean and variance of the logits, written out."""
    u, v = found.row_factors_, found.col_factors_
    s, t = found.row_stds_**2, found.col_stds_**2
    return u @ v.T, (u**2 + s) @ t.T + s @ (v**2).T


def averaged(mean, var):
    """E σ(ψ) by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    psi = mean[..., None] + np.sqrt(var)[..., None] * nodes
    return (1 / (1 + np.exp(-psi))) @ weights / np.sqrt(2 * np.pi)


def process(prior, k, a, b):
    """The covariance of factor k between locations, dense."""
    apart = np.abs(a[:, None] - b[None])
    return float(prior.variance[k]) * np.exp(-float(prior.rate[k]) * apart / 2)


def test_probabilities_and_scores_are_those_of_the_factors(fitted):
    expected = averaged(*law(fitted))
    assert_close(fitted.predict_proba(), expected, 1e-8)
    rows, cols = [0, 5, 5, -1], [3, 3, 0, 19]
    assert_close(fitted.predict_proba(rows, cols), expected[rows, cols], 1e-8)
    assert_close(fitted.predict_proba(rows=slice(None, None, -1)), expected[::-1], 1e-8)
    assert_close(fitted.predict_proba(cols=np.arange(M)[::-1]), expected[:, ::-1], 1e-8)
    assert list(predictions.as_numbers("col", np.arange(M) % 10 == 3, M)) == [3, 13]
    logs = np.log(np.where(X == 1, expected, 1 - expected))
    assert_close(fitted.score(X, mask=~SEEN), logs[~SEEN].mean(), 1e-8)
    weight = rng.uniform(size=(N, M))
    assert_close(fitted.score(X, weight=weight), np.average(logs, weights=weight), 1e-8)


def test_the_bound_written_out(fitted):
    """Pólya–Gamma terms at Γ² = E ψ² less the divergences, the chain's from its tridiagonal covariance."""
    mean, var = law(fitted)
    gamma = np.sqrt(mean**2 + var)
    terms = (X - 0.5) * mean - np.log(2 * np.cosh(gamma / 2))
    order = np.argsort(LOCATIONS)
    total, posterior = terms[SEEN].sum(), fitted.posterior_.rows.posterior
    for k in range(K):
        cov = process(fitted.row_prior_, k, LOCATIONS[order], LOCATIONS[order])
        precision = _chain_precision(
            np.asarray(posterior.var)[:, k], np.asarray(posterior.lag)[:, k]
        )
        total -= _kl(
            fitted.row_factors_[order, k], precision, float(fitted.row_prior_.mean[k]), cov
        )
        own = np.diag(1 / fitted.col_stds_[:, k] ** 2)
        cov = np.eye(M) * float(fitted.col_prior_.variance[k])
        total -= _kl(fitted.col_factors_[:, k], own, float(fitted.col_prior_.mean[k]), cov)
    assert_close(fitted.elbo_, total, 1e-8)


def _chain_precision(var, lag):
    """The precision of a Gauss–Markov chain, from pairs of neighbours."""
    found = np.diag(np.r_[0, -1 / var[1:-1], 0])
    for r in range(len(lag)):
        pair = np.array([[var[r], lag[r]], [lag[r], var[r + 1]]])
        found[r : r + 2, r : r + 2] += np.linalg.inv(pair)
    return found


def _kl(mean, precision, prior_mean, prior_cov):
    away = mean - prior_mean
    trace = np.trace(np.linalg.solve(prior_cov, np.linalg.inv(precision)))
    logdets = np.linalg.slogdet(prior_cov)[1] + np.linalg.slogdet(precision)[1]
    return (trace + away @ np.linalg.solve(prior_cov, away) - len(mean) + logdets) / 2


def test_new_locations_are_the_conditional_process(fitted):
    order = np.argsort(LOCATIONS)
    known, prior = LOCATIONS[order], fitted.row_prior_
    new = np.array([known[3] + 0.1, known[0] - 2, known[-1] + 3, known[6]])
    mean, std = fitted.factors_at(row_locations=new)
    posterior = fitted.posterior_.rows.posterior
    for k in range(K):
        weights = np.linalg.solve(process(prior, k, known, known), process(prior, k, known, new))
        level = float(prior.mean[k])
        assert_close(mean[:, k], level + weights.T @ (posterior.mean[:, k] - level), 1e-8)
        lag = np.asarray(posterior.lag)[:, k]
        spread = np.diag(np.asarray(posterior.var)[:, k]) + np.diag(lag, 1) + np.diag(lag, -1)
        noise = float(prior.variance[k]) - np.sum(weights * process(prior, k, known, new), axis=0)
        var = noise + np.einsum("nt,nm,mt->t", weights, spread, weights)
        assert_close(std[:, k], np.sqrt(var), 1e-7)
    u, s = mean, std**2
    v, t = fitted.col_factors_, fitted.col_stds_**2
    expected = averaged(u @ v.T, (u**2 + s) @ t.T + s @ (v**2).T)
    assert_close(fitted.predict_proba(row_locations=new), expected, 1e-8)
    far, width = fitted.factors_at(row_locations=[known[-1] + 1e4])
    assert_close(far[0], np.asarray(prior.mean), 1e-8)
    assert_close(width[0], np.sqrt(np.asarray(prior.variance)), 1e-8)


def test_the_bound_rises_and_its_end_is_said(fitted):
    gains = np.diff(fitted.elbo_history_)
    assert gains.min() > -1e-8 and fitted.elbo_history_[-1] == fitted.elbo_
    assert fitted.converged_ and len(gains) == fitted.n_sweeps_ < 1000
    assert fitted.elbo_history_[-2] - fitted.elbo_history_[-7] < 1e-5 * (N + M) * K
    with pytest.warns(ConvergenceWarning, match="still rose after 3 sweeps; raise max_sweeps or"):
        short = model(max_sweeps=3).fit(HOLES)
    assert not short.converged_ and short.n_sweeps_ == 3
    assert_close(short.elbo_history_[:3], fitted.elbo_history_[:3], 1e-12)


def test_factors_come_by_their_share_and_signs_are_settled(fitted):
    u, v = fitted.row_factors_, fitted.col_factors_
    s, t = fitted.row_stds_**2, fitted.col_stds_**2
    size = np.mean(u**2 + s, axis=0) * np.mean(v**2 + t, axis=0)
    assert size[0] > size[1] and np.all(np.sum(v**3, axis=0) > 0)
    assert fitted.n_factors_ == K
    assert_close(fitted.smoothness_.rows, 2 / fitted.row_rates_, 1e-15)
    assert np.all(fitted.smoothness_.cols == 0) and np.all(np.isinf(fitted.col_rates_))
    assert fitted.score(X, mask=~SEEN) > np.log(0.5) + 0.1


@pytest.mark.parametrize(
    "given",
    [
        lambda: {"X": X, "mask": SEEN},
        lambda: {"X": np.ma.array(X.astype(int), mask=~SEEN)},
        lambda: {"X": np.where(SEEN, X, 7), "mask": sp.csr_array(SEEN)},
        lambda: {"X": X.astype(bool), "weight": SEEN * 1.0},
        lambda: {"X": pd.DataFrame(HOLES).astype("boolean")},
        lambda: {"X": np.where(SEEN, X, None).tolist()},
        lambda: {"X": _stored(SEEN), "unstored": "missing"},
        lambda: {"X": _stored(np.ones_like(SEEN)), "unstored": "missing", "mask": SEEN},
        lambda: {"X": _stored(np.ones_like(SEEN)).tocsc(), "unstored": "zero", "weight": SEEN * 1},
        lambda: {"X": sp.coo_matrix(X), "mask": SEEN},
    ],
)
def test_every_form_is_the_same_matrix(fitted, given):
    given = given()
    axes = (
        sort_axis("row_locations", LOCATIONS, N, "share"),
        sort_axis("col_locations", "unordered", M, "share"),
    )
    how = given.get("mask"), given.get("weight"), given.get("unstored"), axes, "float64"
    found = entries.read_entries(entries.array_like(given["X"]), *how)
    expected = np.where(SEEN, 2 * X - 1, 0)[np.argsort(LOCATIONS)]
    assert np.array_equal(found.observed.signs, expected) and found.total == SEEN.sum()


def _stored(where):
    row, col = np.nonzero(where)
    return sp.coo_array((X[row, col], (row, col)), shape=X.shape)


def test_lists_of_few_entries_are_the_same_matrix(fitted, monkeypatch):
    monkeypatch.setattr(entries, "FEW", 1.0)
    axes = (
        sort_axis("row_locations", LOCATIONS, N, "share"),
        sort_axis("col_locations", None, M, "share"),
    )
    for given in ((_stored(SEEN), None, None, "missing"), (X, SEEN, None, None)):
        listed = entries.read_entries(*given, axes, "float64").observed
        assert isinstance(listed, Entries)
        assert_close(sweeps.bound(fitted.posterior_, listed), fitted.elbo_, 1e-10)
    weighed = entries.read_entries(HOLES, None, np.full((N, M), 3.0), None, axes, "float64")
    loss = sweeps.bound(fitted.posterior_, weighed.observed) - fitted.elbo_
    mean, var = law(fitted)
    terms = (X - 0.5) * mean - np.log(2 * np.cosh(np.sqrt(mean**2 + var) / 2))
    assert_close(loss, 2 * terms[SEEN].sum(), 1e-8)


def test_any_order_of_rows_is_the_same_fit(fitted):
    order = np.argsort(LOCATIONS)
    found = model(row_locations=LOCATIONS[order]).fit(HOLES[order])
    assert_close(found.row_factors_, fitted.row_factors_[order], 1e-12)
    assert_close(found.predict_proba(), fitted.predict_proba()[order], 1e-12)


def test_reading_makes_no_matrix_of_numbers():
    big = np.zeros((4096, 4096), bool)
    axes = sort_axis("", None, 4096, "share"), sort_axis("", None, 4096, "share")
    tracemalloc.start()
    try:
        found = entries.read_entries(big, None, None, None, axes, "float32")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.all(found.observed.signs == -1)
    assert peak < 2 * big.size  # bytes: the signs, and what a block takes


def test_rows_and_columns_without_entries_follow_neighbours_or_prior(fitted):
    order = np.argsort(LOCATIONS)
    place = int(np.flatnonzero(order == 4)[0])
    beside = order[[place - 1, place + 1]]
    assert np.all(fitted.row_stds_[4] > fitted.row_stds_[beside])
    low, high = np.sort(fitted.row_factors_[beside], axis=0)
    assert np.all((fitted.row_factors_[4] > low - 0.1) & (fitted.row_factors_[4] < high + 0.1))
    prior = fitted.col_prior_
    assert_close(fitted.col_factors_[7], np.asarray(prior.mean), 1e-3)
    assert_close(fitted.col_stds_[7], np.sqrt(np.asarray(prior.variance)), 1e-3)


def test_transform_finds_the_rows_again(fitted):
    again = fitted.transform(HOLES)
    assert_close(again, fitted.row_factors_, 0.02)
    assert np.array_equal(model().fit_transform(HOLES), fitted.row_factors_)
    two = np.full((2, M), np.nan)
    two[0] = X[3]
    with pytest.raises(ValueError, match="one location for each of the 2 rows; got 30"):
        fitted.transform(two)
    found = fitted.transform(two, row_locations=[0.0, 1e5])  # too far apart to know of each other
    assert_close(found[0], best_row(fitted, X[3]), 1e-3)
    assert_close(found[1], np.asarray(fitted.row_prior_.mean), 1e-8)


def best_row(found, x):
    """The factors of a row by itself, the bound written out and climbed by SciPy."""
    v, t = found.col_factors_, found.col_stds_**2
    level, width = np.asarray(found.row_prior_.mean), np.asarray(found.row_prior_.variance)

    def negative(numbers):
        mean, var = numbers[:K], np.exp(numbers[K:])
        psi = v @ mean
        gamma = np.sqrt(psi**2 + t @ (mean**2 + var) + v**2 @ var)
        kl = np.sum(((mean - level) ** 2 + var) / width - 1 - np.log(var / width)) / 2
        return kl - np.sum((x - 0.5) * psi - np.log(2 * np.cosh(gamma / 2)))

    return minimize(negative, np.zeros(2 * K), options={"gtol": 1e-6}).x[:K]


def test_rows_at_one_location_share_a_place():
    found = sort_axis("row_locations", [3.0, 1.0, 3.0, 2.0], 4, "share")
    assert_close(found.places.locations, [1.0, 2.0, 3.0], 0)
    assert list(found.location_numbers) == [2, 0, 2, 1] and list(found.order) == [1, 3, 0, 2]
    apart = sort_axis("row_locations", [3.0, 1.0, 3.0, 2.0], 4, "spread")
    assert_close(apart.places.locations, [1.0, 2.0, 3.0, 3.5], 1e-12)
    assert list(apart.location_numbers) == [2, 0, 3, 1]


def test_dates_are_days():
    days = np.datetime64("2020-03-01") + np.arange(3) * np.timedelta64(36, "h")
    assert_close(np.diff(sort_axis("row_locations", days, 3, "share").places.locations), 1.5, 1e-12)


def test_only_ones_leave_everything_finite():
    found = model().fit(np.ones((N, M)))
    assert found.predict_proba().min() > 0.9
    assert -5 < found.elbo_ < 0 and np.abs(found.row_factors_).max() < 100


def test_tables_names_and_saved_models(fitted):
    frame = pd.DataFrame(HOLES, columns=[f"bill {c}" for c in range(M)])
    found = model().set_output(transform="pandas").fit(frame)
    assert list(found.feature_names_in_) == list(frame.columns) and found.n_features_in_ == M
    factors = found.transform(frame)
    assert list(factors.columns) == ["binaryfactorization0", "binaryfactorization1"]
    kept = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(kept.predict_proba(), fitted.predict_proba())
    assert_close(kept.transform(HOLES), fitted.transform(HOLES), 0)
    assert clone(fitted).get_params()["row_locations"] is not None


def test_progress_is_shown(capsys, fitted):
    model(verbose=True).fit(HOLES)
    shown = capsys.readouterr().err
    assert f"{fitted.n_sweeps_} sweeps" in shown and f"elbo={fitted.elbo_history_[-2]:.3f}" in shown


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_factors": 0}, "n_factors must be 'auto' or a positive integer; got 0"),
        (
            {"n_factors": 21},
            r"n_factors=21 exceeds the smaller .* \(30, 20\); choose n_factors ≤ 20",
        ),
        ({"n_factors": "few"}, "n_factors must be 'auto' or a positive integer; got 'few'"),
        (
            {"n_factors": "auto", "max_factors": 2.5},
            "max_factors must be None or a positive integer; got 2.5",
        ),
        ({"row_locations": LOCATIONS[:5]}, "one location for each of the 30 rows; got 5"),
        ({"col_locations": np.zeros((20, 1))}, r"one dimension; got shape \(20, 1\)"),
        ({"col_locations": np.arange(3)}, "one location for each of the 20 columns; got 3"),
        ({"row_locations": np.r_[np.nan, 1:30]}, "must be finite; entry 0 is nan .*'unordered'"),
        (
            {"row_locations": "sorted"},
            "None .*, 'unordered' or an array of locations; got 'sorted'",
        ),
        ({"row_locations": ["a"] * 30}, "row_locations must hold numbers or dates"),
        ({"posterior": "dense"}, "one of 'chains', 'mean_field', 'coupled'; got 'dense'"),
        ({"solver": "newton"}, "one of 'exact', 'jacobi', 'jacobi_search'; got 'newton'"),
        ({"ties": "drop"}, "ties must be one of 'share', 'spread'; got 'drop'"),
        ({"unstored": 0}, "unstored must be one of None, 'zero', 'missing'; got 0"),
        ({"dtype": "int8"}, "dtype must be 'float32' or 'float64'; got 'int8'"),
        ({"max_sweeps": 0}, "max_sweeps must be a positive integer; got 0"),
        ({"tol": -1.0}, "tol must be a non-negative number; got -1.0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        model().set_params(**settings).fit(HOLES)


def changed(row, col, value):
    return np.where((np.arange(N) == row)[:, None] & (np.arange(M) == col)[None], value, X)


@pytest.mark.parametrize(
    ("x", "given", "message"),
    [
        (
            changed(3, 2, 0.5),
            {},
            "0, 1 or NaN .*; row 3, column 2 is 0.5. Compare with a threshold",
        ),
        (changed(3, 2, np.inf), {}, "row 3, column 2 is inf"),
        (sp.csr_array(changed(3, 2, -1)), {}, "row 3, column 2 is -1"),
        (X.astype(str), {}, "the entries of X must be 0, 1 or NaN; got <U"),
        (X[0], {}, r"two dimensions; got shape \(20,\)"),
        (X[:0], {}, r"Found array with 0 sample\(s\)"),
        (X[:, :0], {}, r"0 feature\(s\) \(shape=\(30, 0\)\) while a minimum of 1 is required"),
        (X, {"mask": SEEN[:3]}, r"mask must have the shape of X, \(30, 20\); got \(3, 20\)"),
        (X, {"weight": np.ones(N)}, r"weight must have the shape of X, \(30, 20\); got \(30,\)"),
        (X, {"weight": changed(1, 5, -2)}, "not negative; row 1, column 5 has -2.0"),
        (np.full((N, M), np.nan), {}, "at least one observed entry; all 600 are missing"),
        (X, {"mask": np.zeros((N, M))}, "at least one observed entry"),
        (_stored(SEEN), {}, "say unstored='zero' or unstored='missing'"),
    ],
)
def test_matrices_that_are_not_binary_are_refused_and_change_nothing(fitted, x, given, message):
    before = fitted.__dict__.copy()
    with pytest.raises(ValueError, match=message):
        fitted.fit(x, **given)
    assert fitted.__dict__ == before


def test_questions_that_make_no_sense_are_refused(fitted):
    refused = [
        ({"rows": [30]}, "numbers of the 30 rows; index 30 is out of bounds"),
        ({"rows": [1, 2], "cols": [3]}, "side by side and must be of one length; got 2 and 1"),
        ({"rows": [1], "row_locations": [1.0]}, "give rows or row_locations, not both"),
        ({"col_locations": [1.0]}, "fitted as 'unordered'; use cols"),
        ({"row_locations": [np.inf]}, "row_locations must be finite; entry 0 is inf"),
        ({"row_locations": []}, "at least one location; got none"),
    ]
    for asked, message in refused:
        with pytest.raises(ValueError, match=message):
            fitted.predict_proba(**asked)
    with pytest.raises(ValueError, match="row_locations or col_locations, one of them"):
        fitted.factors_at()
    with pytest.raises(ValueError, match=r"shape \(30, 20\); got \(2, 20\). Fit all rows"):
        fitted.score(X[:2])
    with pytest.raises(ValueError, match="must be 'unordered' where they were in fit"):
        fitted.transform(HOLES, row_locations="unordered")
    with pytest.raises(NotFittedError):
        model().predict_proba()
    with pytest.raises(AttributeError, match="exists only after fit"):
        _ = model().row_factors_


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("n_features_in_", 3, "columns"),
        ("posterior_", None, "posterior_"),
        ("_axes", (1, 2), "columns"),
        ("elbo_history_", np.zeros(0), "elbo_history_"),
    ],
)
def test_attributes_that_contradict_each_other_are_refused(fitted, name, wrong, message):
    with pytest.raises(ValueError, match=f"attributes that contradict each other: {message}"):
        kalvi.BinaryFactorization().__setstate__(fitted.__getstate__() | {name: wrong})
