"""A structure from outside the library, in every rule and with every likelihood.

Rows have one level each, so the posterior precision is an arrow, and a full covariance must say the same.
The laws of structures run over it too: it has a row in tests/tables.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kalvi
from kalvi.evaluation.metrics import elbo
from kalvi.predictors import Linear
from kalvi.predictors.models import Model
from kalvi.predictors.networks import make_network
from kalvi.rules import schemes
from kalvi.rules.general import GeneralRVGA
from kalvi.rules.klprox.rule import KLProximal
from kalvi.rules.revisit import Revisit
from kalvi.rules.rvga import RVGA
from kalvi.rules.vga import informed_start, vga
from tests.arrow import Arrow
from tests.laws import absorb, assert_close, same_gaussian, same_state
from tests.problems import batch
from tests.tables import BY_NAME, FILTERS, LIKELIHOODS, name, serves

LEVELS, CORNER, ROWS = 4, 2, 12


def effects(outputs):
    """Predictors that meet one level and the corner: their sum, or a mixture of them for each output."""
    if outputs == 1:
        return Linear()
    turn = jnp.asarray(np.random.default_rng(3).normal(size=(outputs, 1 + CORNER)))

    def function(theta, x):
        level = x[:LEVELS] @ theta[:LEVELS]
        return turn @ jnp.concatenate([level[None], x[LEVELS:] * theta[LEVELS:]])

    return make_network(function, jnp.zeros(LEVELS + CORNER), jnp.zeros(LEVELS + CORNER))[0]


def prior_of(scale=0.8):
    """Levels around a line in the corner."""
    rng = np.random.default_rng(1)
    slopes, own = rng.normal(size=(LEVELS, CORNER)) / 3, np.full(LEVELS, scale)
    mean, root = rng.normal(size=LEVELS + CORNER) / 3, scale * np.eye(CORNER)
    return Arrow(*(jnp.asarray(a) for a in (mean, slopes, own, root)))


def problem(observed, n=ROWS):
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [np.eye(LEVELS)[rng.integers(0, LEVELS, n)], rng.normal(size=(n, CORNER))], 1
    )
    predictor, theta = effects(observed.outputs), rng.normal(size=LEVELS + CORNER)
    f = np.asarray(predictor.values(jnp.asarray(theta), jnp.asarray(x)))
    return predictor, batch(x, observed.draw(rng, f))


QUICK = {"ekf-normal", "ekf-bernoulli", "ekf-softmax", "implicit-bernoulli"}
PRODUCT = [
    pytest.param(
        row.scheme,
        observed,
        id=f"{row.name}-{observed.name}",
        marks=[pytest.mark.slow(reason="each scheme and likelihood is a program of its own")]
        * (f"{row.name}-{observed.name}" not in QUICK),
    )
    for row in FILTERS
    for observed in LIKELIHOODS
    if serves(row.scheme, observed)
]


@pytest.mark.parametrize(("scheme", "observed"), PRODUCT)
def test_streams(scheme, observed):
    predictor, rows = problem(observed)
    rule = RVGA(observed.likelihood, scheme, block_size=5, predictor=predictor)
    prior = prior_of()
    found = absorb(rule, rule.init(prior), rows)
    assert isinstance(found.posterior, Arrow)
    same_state(found, absorb(rule, rule.init(prior.to_dense()), rows), rtol=1e-8)


def test_a_stream_that_forgets():
    observed = BY_NAME["bernoulli"]
    _, rows = problem(observed)
    rule = RVGA(observed.likelihood, schemes.Explicit(), forgetting=0.95, block_size=5)
    prior = prior_of()
    found = absorb(rule, rule.init(prior), rows)
    same_state(found, absorb(rule, rule.init(prior.to_dense()), rows), rtol=1e-9)


@pytest.mark.parametrize(
    "observed",
    [
        pytest.param(
            o,
            id=o.name,
            marks=[pytest.mark.slow(reason="compiles two ascents")]
            * (o.name not in ("bernoulli", "softmax")),
        )
        for o in LIKELIHOODS
    ],
)
def test_passes_end_at_the_optimum_of_a_full_covariance(observed):
    predictor, rows = problem(observed)
    prior = prior_of()
    rule = Revisit(Model(predictor, observed.likelihood))
    state = rule.init(prior, start=prior)

    @jax.jit
    def one_pass(state):
        return rule.turn(rule.update(state, rows))

    for _ in range(60):
        state = one_pass(state)
    dense = prior.to_dense()
    start = informed_start(observed.likelihood, dense, rows, predictor)
    best = vga(observed.likelihood, dense, rows, start, predictor=predictor)
    assert isinstance(state.posterior, Arrow)
    # the bound is flat at its optimum: means to the root of the nats
    assert_close(state.ascent.elbo, best.elbo, 1e-7)
    same_gaussian(state.posterior, best.posterior.mean, best.posterior.cov, rtol=1e-4)
    bound = elbo(state.posterior, prior, observed.likelihood, rows, predictor)
    assert_close(bound, state.ascent.elbo, 1e-9)


@pytest.mark.parametrize("observed", [BY_NAME["bernoulli"]], ids=name)
def test_rules_of_a_full_covariance_begin_at_it(observed):
    _, rows = problem(observed)
    prior = prior_of()
    for rule in (
        KLProximal(observed.likelihood),
        GeneralRVGA(lambda theta, x, y: jax.nn.log_sigmoid((2 * y - 1) * (x @ theta))),
    ):
        one, other = (absorb(rule, rule.init(p), rows).posterior for p in (prior, prior.to_dense()))
        same_gaussian(one, other.mean, other.cov, rtol=1e-9)


def test_shards_are_merged():
    observed = BY_NAME["normal"]
    _, rows = problem(observed)
    rule, prior = RVGA(observed.likelihood), prior_of()
    halves = [jax.tree.map(lambda a, p=part: a[p], rows) for part in (slice(0, 6), slice(6, None))]
    parts = [absorb(rule, rule.init(prior), half).posterior for half in halves]
    whole = absorb(rule, rule.init(prior), rows).posterior
    merged = kalvi.merge(parts, prior)
    assert isinstance(merged, Arrow)
    same_gaussian(merged, whole.mean, whole.covariance.to_dense(), rtol=1e-9)


def test_new_levels():
    q, more = prior_of(), Arrow(jnp.zeros(8), jnp.zeros((6, 2)), jnp.full(6, 4.0), jnp.eye(2))
    places = jnp.asarray([0, 2, 3, 5, 6, 7])
    wider = q.embed(more, places)
    known = np.asarray(wider.covariance.to_dense())[np.ix_(places, places)]
    assert_close(known, q.covariance.to_dense(), 1e-12)
    assert_close(np.asarray(wider.variance())[[1, 4]], [4.0, 4.0], 1e-12)
