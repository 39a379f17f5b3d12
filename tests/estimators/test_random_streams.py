"""A campaign of random streams: whatever comes, predictions are finite and every equation is solved.

Columns are collinear, of scales from 1e-6 to 1e6 (of counts, whose rate is an exponential, 1e-2 to 1e2),
separable, or levels that vanish and return; coefficients stand still, drift or jump; models have any rank,
precision, and drift and prior scale that are given or, for two streams in five, learned on the way.
"""

import warnings

import numpy as np
import pytest

import kalvi

ROWS, COLUMNS = 240, 6


def columns(rng, widest):
    """Rows of one of several unpleasant kinds."""
    kind = rng.integers(0, 5)
    x = rng.normal(size=(ROWS, COLUMNS))
    if kind == 1:  # collinear
        x[:, 3:] = x[:, :3] + 10.0 ** rng.integers(-12, -2) * x[:, 3:]
    elif kind == 2:  # of every scale
        x *= 10.0 ** rng.integers(-widest, widest + 1, COLUMNS)
    elif kind == 3:  # levels beside a constant, all but one of which vanish for long
        level = rng.integers(0, COLUMNS - 1, ROWS)
        level[ROWS // 4 : -ROWS // 4] = 0
        x = np.column_stack([np.eye(COLUMNS - 1)[level], np.ones(ROWS)])
    elif kind == 4:  # rare and huge
        x = np.where(rng.random(x.shape) < 0.02, 10.0 ** (widest - 2) * x, 0.0)
    return x


def labels(rng, x, model):
    """What the model observes, of coefficients that stand still, walk or jump; or something separable."""
    steps = rng.choice([0.0, 0.1]) * rng.normal(size=(ROWS, COLUMNS))
    steps[rng.integers(0, ROWS)] += rng.choice([0.0, 3.0]) * rng.normal(size=COLUMNS)
    theta = rng.normal(size=COLUMNS) + np.cumsum(steps, axis=0)
    f = np.sum(x * theta, axis=1)
    if isinstance(model, kalvi.LinearRegression):
        return f + 10.0 ** rng.integers(-6, 2) * rng.normal(size=ROWS)
    if isinstance(model, kalvi.PoissonRegression):
        return rng.poisson(np.exp(np.clip(f, -5, 3))).astype(float)
    if rng.random() < 0.3:
        return (f > 0).astype(int)
    return (rng.random(ROWS) < 1 / (1 + np.exp(-np.clip(f, -30, 30)))).astype(int)


def random_model(rng):
    drifts = (
        None,
        0.9,
        0.99,
        0.9999,
        kalvi.drifts.OrnsteinUhlenbeck(0.99),
        kalvi.drifts.RandomWalk(1e-3),
    )
    kind = (kalvi.LogisticRegression, kalvi.LinearRegression, kalvi.PoissonRegression)
    model = kind[rng.integers(0, 3)](
        rank=[None, 0, 2][rng.integers(0, 3)],
        drift=drifts[rng.integers(0, len(drifts))],
        prior_scale=float(10.0 ** rng.integers(-1, 3)),
        dtype=["float64", "float32"][rng.integers(0, 2)],
    )
    if rng.random() < 0.4:
        model.set_params(drift=None, prior_scale=None)
    return model


def go_through(seed):
    """One stream, predicted piece by piece before it is learned."""
    rng = np.random.default_rng(seed)
    model = random_model(rng)
    x = columns(rng, 2 if isinstance(model, kalvi.PoissonRegression) else 6)
    y = labels(rng, x, model)
    more = {"classes": [0, 1]} if isinstance(model, kalvi.LogisticRegression) else {}
    cuts = np.unique(rng.integers(1, ROWS, 4))
    for i, part in enumerate(np.split(np.arange(ROWS), cuts)):
        if i:
            found = model.predict_proba(x[part]) if more else model.predict(x[part])
            # a Poisson rate whose logarithm is uncertain may be infinite
            assert not np.any(np.isnan(found)), model
        model.partial_fit(x[part], y[part], **more)
    q = model.posterior_
    assert np.all(np.isfinite(q.mean)) and np.all(np.isfinite(q.variance())), model
    assert np.all(np.asarray(q.variance()) >= 0), model
    # quadrature finds no density of a count where the logarithm of its rate is 1e4 wide
    lost = isinstance(model, kalvi.PoissonRegression) and model.log_evidence_ == -np.inf
    assert np.isfinite(model.log_evidence_) or lost, model
    assert int(model.fit_.current.best.unsolved) == 0, model


@pytest.mark.parametrize("seed", range(6))
def test_some_random_streams(seed):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "overflow encountered")  # of rates
        go_through(seed)


@pytest.mark.slow(reason="five hundred streams")
@pytest.mark.parametrize("seed", range(6, 500))
def test_five_hundred_random_streams(seed):
    test_some_random_streams(seed)
