"""Groups of rows at locations: chains that know nothing of each other, judged by dense Gaussians."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import kalvi
from kalvi.estimators.binary_factorization import starts, sweeps
from kalvi.rules.silk import find_neighbours, group_locations, separate_ties
from tests.estimators.test_binary_factorization import _chain_precision, _kl, law
from tests.laws import assert_close

N, M = 30, 20
rng = np.random.default_rng(1)
PEOPLE = np.array(["ada", "bo", "cy"])[rng.integers(0, 3, N)]
TIMES = rng.uniform(0, 10, N)
TIMES[4], PEOPLE[4] = TIMES[9], PEOPLE[9]  # they share their factor
X = (rng.random((N, M)) < 1 / (1 + np.exp(-2 * np.outer(np.sin(TIMES), rng.normal(size=M))))) * 1.0


def model(**settings):
    where = {"row_locations": TIMES, "row_groups": PEOPLE, "col_locations": "unordered"}
    usual = where | {"bound": "polya_gamma"}
    return kalvi.BinaryFactorization(1, random_state=0, **usual | settings)


@pytest.fixture(scope="module")
def fitted():
    return model().fit(X)


def covariance(prior, times, people, to_times, to_people):
    """Of the factor between rows: none between different people."""
    apart = np.abs(times[:, None] - to_times[None])
    cov = float(prior.variance[0]) * np.exp(-float(prior.rate[0]) * apart / 2)
    return np.where(people[:, None] == to_people[None], cov, 0)


def distinct():
    """The rows in the order of the places, one of each place."""
    order = np.lexsort((TIMES, PEOPLE))
    return order[np.append(True, np.diff(TIMES[order]) != 0)]


def test_the_bound_has_no_covariance_between_groups(fitted):
    mean, var = law(fitted)
    gamma = np.sqrt(mean**2 + var)
    total = np.sum((X - 0.5) * mean - np.log(2 * np.cosh(gamma / 2)))
    at, posterior, prior = distinct(), fitted.posterior_.rows.posterior, fitted.row_prior_
    precision = _chain_precision(np.asarray(posterior.var)[:, 0], np.asarray(posterior.lag)[:, 0])
    cov = covariance(prior, TIMES[at], PEOPLE[at], TIMES[at], PEOPLE[at])
    total -= _kl(fitted.row_factors_[at, 0], precision, float(prior.mean[0]), cov)
    own = np.diag(1 / fitted.col_stds_[:, 0] ** 2)
    spread = np.eye(M) * float(fitted.col_prior_.variance[0])
    total -= _kl(fitted.col_factors_[:, 0], own, float(fitted.col_prior_.mean[0]), spread)
    assert_close(fitted.elbo_, total, 1e-8)
    ends = np.flatnonzero(PEOPLE[at][1:] != PEOPLE[at][:-1])
    assert np.all(np.asarray(posterior.lag)[ends] == 0) and len(ends) == 2
    assert fitted.row_factors_[4] == fitted.row_factors_[9]


def test_new_locations_follow_from_their_own_group(fitted):
    at, prior = distinct(), fitted.row_prior_
    new, who = np.array([-3.0, 5.0, 5.0, 40.0]), np.array(["bo", "ada", "cy", "ada"])
    mean, std = fitted.factors_at(row_locations=new, row_groups=who)
    known = covariance(prior, TIMES[at], PEOPLE[at], TIMES[at], PEOPLE[at])
    across = covariance(prior, TIMES[at], PEOPLE[at], new, who)
    weights, level = np.linalg.solve(known, across), float(prior.mean[0])
    assert_close(mean[:, 0], level + weights.T @ (fitted.row_factors_[at, 0] - level), 1e-8)
    posterior = fitted.posterior_.rows.posterior
    lag = np.asarray(posterior.lag)[:, 0]
    spread = np.diag(np.asarray(posterior.var)[:, 0]) + np.diag(lag, 1) + np.diag(lag, -1)
    noise = float(prior.variance[0]) - np.sum(weights * across, axis=0)
    var = noise + np.einsum("nt,nm,mt->t", weights, spread, weights)
    assert_close(std[:, 0], np.sqrt(var), 1e-7)
    assert fitted.predict_proba(row_locations=new, row_groups=who).shape == (4, M)


@pytest.mark.slow(reason="compiles the sweeps of three fits")
def test_one_group_is_no_group_and_columns_are_as_rows(fitted):
    whole = model(row_groups=None).fit(X)
    one = model(row_groups=np.zeros(N, int)).fit(X)
    assert_close(one.elbo_, whole.elbo_, 1e-5)
    turned = model(
        row_locations="unordered", row_groups=None, col_locations=TIMES, col_groups=PEOPLE
    ).fit(X.T)
    assert_close(turned.elbo_, fitted.elbo_, 1e-5)
    found = fitted.transform(X, row_groups=PEOPLE)
    assert_close(found, fitted.row_factors_, 0.05)


@pytest.mark.slow(reason="compiles the sweeps of three fits")
def test_rows_that_share_few_columns_start_from_the_fit_of_their_groups():
    """Every term has columns of its own: singular vectors know the terms, and not the people."""
    rng = np.random.default_rng(0)
    people, terms, votes = 25, 8, 12
    who, when = np.repeat(np.arange(people), terms), np.tile(np.arange(terms), people)
    position = np.repeat(rng.normal(size=people), terms)
    columns = rng.normal(size=(2, terms * votes)) * [[3.0], [0.3]]
    truth = np.column_stack([position, np.ones(len(who))]) @ columns
    x = (rng.random(truth.shape) < 1 / (1 + np.exp(-truth))).astype(float)
    x[when[:, None] != np.repeat(np.arange(terms), votes)[None]] = np.nan
    where = {"row_locations": when, "col_locations": "unordered"}
    found = kalvi.BinaryFactorization(1, row_groups=who, **where, random_state=0).fit(x)
    alone = kalvi.BinaryFactorization(1, row_locations=who * 1e3 + when, col_locations="unordered")
    assert found.elbo_ > alone.set_params(random_state=0).fit(x).elbo_ - 1
    assert abs(np.corrcoef(found.row_factors_[:, 0], position)[0, 1]) > 0.95
    assert found.smoothness_.rows[0] > 10


def test_the_better_of_two_starts_is_taken(monkeypatch):
    tried = []

    def climbed(first, observed, settings, tell=None):
        tried.append(settings.max_sweeps)
        return sweeps.SweepResult(first, np.array([float(len(tried))]), True)

    monkeypatch.setattr(starts, "climb", climbed)
    model().set_params(max_sweeps=50).fit(X)
    assert tried == [starts.STATIC_SWEEPS, starts.TRIED_SWEEPS, starts.TRIED_SWEEPS]


def test_poor_optima_are_reported():
    wild = 9 * np.random.default_rng(3).normal(size=(N, 1)), np.ones((M, 1))
    with (
        pytest.warns(ConvergenceWarning, match="still rose after 1 sweeps"),
        pytest.warns(ConvergenceWarning, match="is below the log evidence of one probability for"),
    ):
        model(max_sweeps=1).fit(X, start=wild)
    flips = np.where(np.arange(N) % 2, 1.0, -1.0)
    logits = 3 * np.outer(flips, np.random.default_rng(4).normal(size=M))
    x = (np.random.default_rng(3).random((N, M)) < 1 / (1 + np.exp(-logits))) * 1.0
    groups = {"row_groups": np.repeat([0, 1], N // 2), "row_locations": np.arange(N)}
    with pytest.warns(
        ConvergenceWarning, match="strongest factor of the rows has a correlation le"
    ):
        model(**groups).fit(x)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"row_locations": "unordered"}, "row_groups need row_locations, numbers or dates or None"),
        (
            {"row_groups": PEOPLE[:-1]},
            "row_groups must hold one group for each of the 30 rows; got 29",
        ),
        (
            {"row_groups": TIMES},
            "row_groups must be an array of whole numbers or of texts; got float",
        ),
        ({"col_groups": PEOPLE}, "col_groups need col_locations"),
    ],
)
def test_groups_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        model(**settings).fit(X)


def test_groups_of_new_locations_are_those_of_fit(fitted):
    with pytest.raises(ValueError, match="row_groups are needed where those of fit were given"):
        fitted.predict_proba(row_locations=[1.0])
    with pytest.raises(ValueError, match=r"'dan' is none of its 3\. For new rows"):
        fitted.predict_proba(row_locations=[1.0], row_groups=["dan"])
    with pytest.raises(ValueError, match="row_groups say whose the row_locations are"):
        fitted.predict_proba(row_groups=["ann"])


def test_ties_and_neighbours_stay_in_their_chain():
    chains = np.array([0, 0, 0, 1, 1, 2])
    locations = np.array([1.0, 1.0, 3.0, 1.0, 1.0, 0.0])
    assert_close(separate_ties(locations, chains), [1, 2, 3, 1, 2, 0], 1e-12)
    places = group_locations(locations, chains)
    assert_close(places.gaps, [2, np.inf, np.inf], 0)
    assert list(places.spot) == [0, 0, 1, 2, 2, 3] and list(places.whole_chains().spot) == list(
        chains
    )
    assert places.chain is not None
    of = places.chain, np.array([0, 1, 2])
    near = find_neighbours(places.locations, np.array([2.0, 2.0, -1.0]), np.dtype("float32"), of)
    assert list(near.left) == [0, 2, 3] and list(near.right) == [1, 2, 3]
    assert_close(near.to_left, [1, 1, np.inf], 0)
    assert_close(near.to_right, [1, np.inf, 1], 0)
