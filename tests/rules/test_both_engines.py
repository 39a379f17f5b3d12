"""A rule says the same whether NumPy runs it or a compiled program does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.numerics.namespaces import is_array, is_number
from kalvi.predictors import linear_predictor
from kalvi.predictors.models import Model
from kalvi.rules.klprox.rule import KLProximal
from kalvi.rules.revisit import Revisit
from kalvi.rules.rule import Batch
from kalvi.rules.vga import vga
from kalvi.streams import run
from tests.laws import assert_close, same_gaussian, same_state
from tests.tables import BY_NAME, DIM, FILTERS, LIKELIHOODS, STRUCTURES, rule_of, serves, task

ROUNDING = {np.float64: 1e-9, np.float32: 2e-3}
"""Sites are searched for to 1e-13, and flat priors lose four digits more."""
UPDATABLE = {row.name: row for row in STRUCTURES if row.updatable}
SCHEMES = {row.name: row for row in FILTERS}

QUICK = {  # each structure, scheme and likelihood once; searches are long to compile
    ("dense", "bernoulli", "implicit"),
    ("diagonal", "normal", "qkf"),
    ("low-rank precision", "poisson", "mirror prox"),
    ("arrow", "multinormal", "explicit"),
    ("dense", "softmax", "ekf"),
    ("diagonal", "probit", "ekf"),
    ("diagonal", "laplace", "ekf"),
    ("diagonal", "student", "ekf"),
    ("diagonal", "custom", "ekf"),
}
QUICK_SINGLE = {("dense", "bernoulli", "ekf"), ("diagonal", "normal", "qkf")}


def marked(quick):
    return () if quick else (pytest.mark.slow(reason="compiles a program of its own"),)


PRODUCT = [
    pytest.param(
        *(structure, observed.name, scheme.name, dtype),
        id=f"{structure}-{observed.name}-{scheme.name}-{dtype.__name__}",
        marks=marked((structure, observed.name, scheme.name) in quick),
    )
    for dtype, quick in ((np.float64, QUICK), (np.float32, QUICK_SINGLE))
    for structure in UPDATABLE
    for observed in LIKELIHOODS
    for scheme in FILTERS
    if serves(scheme.scheme, observed)
]


def host(tree, dtype=np.float64):
    """The tree with arrays of NumPy."""
    return jax.tree.map(lambda a: np.asarray(a, dtype) if is_array(a) else a, tree)


def device(tree):
    """The tree with arrays of JAX."""
    return jax.tree.map(lambda a: jnp.asarray(a) if is_number(a) else a, tree)


def rows_of(observed, n, dtype=np.float64):
    p = task(observed, n, features=DIM // observed.outputs)
    weight = np.where(np.arange(n) == 2, 0.0, 1.5)
    return Batch(*(np.asarray(a, dtype) for a in (p.x, p.y, weight)))


def by_both(function, *args):
    """What NumPy and a compiled program make of it, both as arrays of JAX for the formulas of the laws."""
    found = run.call(function, *args)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(found))
    expected = run.call(function, *device(args))
    assert any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(expected))
    return device(found), expected


def learn(rule, prior, rows):
    return rule.update(rule.init(prior), rows)


@pytest.mark.parametrize("structure, likelihood, scheme, dtype", PRODUCT)
def test_streams(structure, likelihood, scheme, dtype):
    observed = BY_NAME[likelihood]
    prior = host(UPDATABLE[structure].make(np.random.default_rng(1)).q, dtype)
    rule = host(rule_of(observed, SCHEMES[scheme].scheme, block_size=4), dtype)
    found, expected = by_both(learn, rule, prior, rows_of(observed, 6, dtype))
    same_state(found, expected, ROUNDING[dtype])
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


def passes(rule, state, rows):
    return rule.turn(rule.update(rule.turn(rule.update(state, rows)), rows))


@pytest.mark.parametrize(
    "structure, likelihood",
    [
        pytest.param(
            s,
            o.name,
            marks=marked((s, o.name) in {("dense", "bernoulli"), ("diagonal", "poisson")}),
        )
        for s in UPDATABLE
        for o in LIKELIHOODS
    ],
)
def test_further_passes(structure, likelihood):
    observed = BY_NAME[likelihood]
    prior = host(UPDATABLE[structure].make(np.random.default_rng(1)).q)
    rule = host(Revisit(Model(linear_predictor(observed.outputs), observed.likelihood)))
    state = run.begin(rule, prior)
    found, expected = by_both(passes, rule, state, rows_of(observed, 6))
    same_gaussian(
        found.posterior, expected.posterior.mean, expected.posterior.covariance.to_dense()
    )


def climb(likelihood, prior, rows):
    predictor = linear_predictor(likelihood.outputs)
    return vga(likelihood, prior, rows, prior, predictor=predictor)


@pytest.mark.parametrize(
    "likelihood", [pytest.param(o.name, marks=marked(o.name == "bernoulli")) for o in LIKELIHOODS]
)
def test_the_optimum(likelihood):
    observed = BY_NAME[likelihood]
    prior = host(UPDATABLE["dense"].make(np.random.default_rng(1)).q)
    found, expected = by_both(climb, host(observed.likelihood), prior, rows_of(observed, 6))
    q = expected.posterior
    same_gaussian(found.posterior, q.mean, q.covariance.to_dense())
    assert_close(found.elbo, expected.elbo, 1e-9)


def steps(rule, prior, rows):
    return rule.update(rule.update(rule.init(prior), rows), rows)


@pytest.mark.parametrize(
    "likelihood", [pytest.param(o.name, marks=marked(o.name == "poisson")) for o in LIKELIHOODS]
)
def test_proximal_steps(likelihood):
    observed = BY_NAME[likelihood]
    prior = host(UPDATABLE["dense"].make(np.random.default_rng(1)).q)
    rule = host(KLProximal(observed.likelihood, predictor=linear_predictor(observed.outputs)))
    found, expected = by_both(steps, rule, prior, rows_of(observed, 6))
    q = expected.posterior
    same_gaussian(found.posterior, q.mean, q.covariance.to_dense())
