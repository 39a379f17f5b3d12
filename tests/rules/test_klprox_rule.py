"""KL-proximal steps in weight space: minibatches, other starts, offsets, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from kalvi.archives import checkpoints
from kalvi.evaluation import metrics
from kalvi.gaussians import Dense, Diagonal, LowRankPrecision
from kalvi.likelihoods import Bernoulli, Normal, Poisson, StudentT
from kalvi.likelihoods.vector import Softmax
from kalvi.predictors import OffsetLinear, linear_predictor
from kalvi.rules.klprox.function_space import LatentPrior, klprox
from kalvi.rules.klprox.rule import KLProximal
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA
from kalvi.rules.vga import vga
from kalvi.streams import run
from papers import datasets
from tests import oracles, problems
from tests.laws import positive_definite, same_gaussian
from tests.problems import batch
from tests.tables import BY_NAME, NOISY, name, task


def cut(x, y, size, rng, weight=None, *, replace=False):
    """A pass over the rows in random order, the last batch padded."""
    n, missing = len(y), -len(y) % size
    order = rng.integers(0, n, n + missing) if replace else rng.permutation(n)
    weight = np.ones(n) if weight is None else weight
    w = weight[order]
    if not replace:
        order, w = np.pad(order, (0, missing)), np.pad(w, (0, missing))
    return [
        batch(x[rows], y[rows], part)
        for rows, part in zip(order.reshape(-1, size), w.reshape(-1, size), strict=True)
    ]


def below(best, q, prior, likelihood, rows):
    """How many nats the Gaussian's bound is below the optimum."""
    return float(best.elbo - run.call(metrics.elbo, q, prior, likelihood, rows))


@pytest.mark.parametrize("observed", NOISY, ids=name)
def test_one_pass_is_exact_for_a_linear_model_however_it_is_cut(observed):
    p = task(observed, 50, 4 // observed.outputs)
    wanted = oracles.linear_posterior(*p.linear)
    rng, likelihood = np.random.default_rng(0), observed.likelihood
    how = {"predictor": linear_predictor(observed.outputs)}
    for rule, parts in (
        (KLProximal(likelihood, np.inf, **how), [batch(p.x, p.y)]),
        (KLProximal(likelihood, np.inf, rows=50, **how), cut(p.x, p.y, 8, rng)),
    ):
        found = run.fit(rule, p.prior, parts)
        same_gaussian(found.posterior, *wanted, 1e-10)
        assert (int(found.passes), int(found.refused)) == (1, 0)


def test_classes_reach_the_optimum_and_its_bound():
    """Three classes: the steps end at `vga`'s Gaussian, whose bound is that of `metrics.elbo`."""
    observed = BY_NAME["softmax"]
    p, likelihood = task(observed, 12), observed.likelihood
    rows = batch(p.x, p.y)
    best = run.call(_optimum, likelihood, p.prior, rows)
    assert best.converged
    np.testing.assert_allclose(
        run.call(metrics.elbo, best.posterior, p.prior, likelihood, rows), best.elbo, rtol=1e-12
    )
    rule = KLProximal(likelihood, np.inf, predictor=linear_predictor(3))
    found = run.fit(rule, p.prior, [rows] * 12)
    same_gaussian(found.posterior, best.posterior.mean, best.posterior.cov, 1e-6)
    assert (int(found.passes), int(found.refused), int(found.clipped)) == (12, 0, 0)
    assert below(best, found.posterior, p.prior, likelihood, rows) < 1e-9


def _optimum(likelihood, prior, rows):
    return vga(likelihood, prior, rows, prior, predictor=linear_predictor(likelihood.outputs))


def test_minibatches_of_few_rows_reach_the_optimum():
    """SciPy's bound of SciPy's optimum, which every pass comes nearer to."""
    p, rng = problems.binary(40, 2), np.random.default_rng(0)

    def log_prob(f, y):
        return special.log_expit((2 * y - 1) * f)

    given = np.zeros(2), np.eye(2), p.x, p.y
    best = oracles.batch_vga(
        log_prob,
        lambda f, y: y - special.expit(f),
        lambda f, y: -special.expit(f) * special.expit(-f),
        *given,
    )[2]
    rule = KLProximal.stochastic(Bernoulli(), rows=40)
    state, gaps = rule.init(Dense(*given[:2])), []
    for _ in range(4):
        state = run.resume(rule, state, cut(p.x, p.y, 16, rng))
        q = np.asarray(state.posterior.mean), np.asarray(state.posterior.cov)
        gaps.append(best - oracles.batch_elbo(log_prob, *q, *given))
    assert gaps[0] > gaps[-1] > -1e-7
    assert gaps[-1] < 1e-3
    assert (int(state.passes), int(state.refused), int(state.clipped)) == (4, 0, 0)


@pytest.mark.slow(reason="the optimum of 2000 rows, and three passes")
def test_minibatches_reach_the_batch_optimum_in_a_few_passes():
    """Measured: 0.5, 0.004 and 0.002 nats after one, two and three passes."""
    p, rng = problems.binary(2000, 20), np.random.default_rng(0)
    prior, rows = Dense(np.zeros(20), np.eye(20)), batch(p.x, p.y)
    best = run.call(vga, Bernoulli(), prior, rows, prior)
    rule = KLProximal.stochastic(Bernoulli(), rows=2000)
    state, gaps = rule.init(prior), []
    for _ in range(3):
        state = run.resume(rule, state, cut(p.x, p.y, 100, rng))
        gaps.append(below(best, state.posterior, prior, Bernoulli(), rows))
    assert gaps[1] < 0.05 and gaps[2] < 0.02
    assert (int(state.passes), int(state.refused), int(state.clipped)) == (3, 0, 0)


@pytest.mark.slow(reason="the optimum of 600 rows, and seven passes")
def test_a_wild_beginning_is_not_averaged():
    """A wide prior puts e^{v/2} into the first sites of counts: averaged in, they would cost many nats."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 12))
    y = rng.poisson(np.exp(0.3 * x @ rng.normal(size=12))).astype(float)
    prior, rows = Dense(np.zeros(12), np.eye(12)), batch(x, y)
    best = run.call(vga, Poisson(), prior, rows, prior)
    rule = KLProximal.stochastic(Poisson(), rows=600)
    state, gaps = rule.init(prior), []
    for _ in range(7):
        state = run.resume(rule, state, cut(x, y, 50, rng))
        gaps.append(below(best, state.posterior, prior, Poisson(), rows))
    assert gaps[0] > 100 > 0.05 > gaps[-1]
    assert 0 < int(state.settled) < int(state.passes) == 7


@pytest.mark.slow(reason="the optimum of 2000 rows, and twenty passes")
def test_batches_drawn_with_replacement_leave_noise_that_passes_average():
    """t passes err as t tables' worth of draws do: d/2t nats, a χ² of d degrees, here within a factor 3."""
    p, rng = problems.binary(2000, 20), np.random.default_rng(1)
    prior, rows = Dense(np.zeros(20), np.eye(20)), batch(p.x, p.y)
    best = run.call(vga, Bernoulli(), prior, rows, prior)
    rule = KLProximal(Bernoulli(), np.inf, rows=2000, decay=1.0)
    state, gaps = rule.init(prior), []
    for _ in range(20):
        state = run.resume(rule, state, cut(p.x, p.y, 100, rng, replace=True))
        gaps.append(below(best, state.posterior, prior, Bernoulli(), rows))
    assert 3 < gaps[0] < 30
    assert gaps[-1] < 3 * 20 / (2 * 20)


@pytest.mark.slow(reason="the optimum in 123 dimensions, and a stream")
def test_a_real_table_by_minibatches(data):
    """a1a, its 1605 training rows; measured 0.011 nats two passes after R-VGA's."""
    table, rng = datasets.load("a1a"), np.random.default_rng(0)
    train = np.asarray(table["split"]) == 0
    train = train if train.sum() == 1605 else ~train
    x, y = table["X"].toarray()[train].astype(float), (np.asarray(table["y"])[train] > 0) * 1.0
    prior, rows = Dense(np.zeros(123), 0.574 * np.eye(123)), batch(x, y)
    best = run.call(vga, Bernoulli(), prior, rows, prior)
    np.testing.assert_allclose(best.elbo, -592.12, atol=0.01)
    state = KLProximal(Bernoulli()).start(
        prior, run.fit(RVGA(Bernoulli()), prior, [rows]).posterior
    )
    rule = KLProximal.stochastic(Bernoulli(), rows=1605)
    for _ in range(2):
        state = run.resume(rule, state, cut(x, y, 100, rng))
    assert below(best, state.posterior, prior, Bernoulli(), rows) < 0.05


def test_it_takes_over_from_the_stream_and_hands_back():
    """Half of the rows twice by minibatches, the rest by the stream: the exact posterior of all."""
    p, rng = problems.linear(60), np.random.default_rng(0)
    prior = Dense(p.mean, p.cov)
    first = run.fit(RVGA(Normal(0.5)), prior, [batch(p.x[:20], p.y[:20])]).posterior
    rule = KLProximal.stochastic(Normal(0.5), rows=30)
    state = rule.start(prior, first)
    for _ in range(2):
        state = run.resume(rule, state, cut(p.x[:30], p.y[:30], 10, rng))
    last = run.fit(RVGA(Normal(0.5)), state.posterior, [batch(p.x[30:], p.y[30:])]).posterior
    same_gaussian(last, *oracles.linear_posterior(p.mean, p.cov, p.x, p.y, 0.5), 1e-9)


def test_any_gaussian_starts():
    mean, var = np.array([0.3, -1.0]), np.array([0.5, 2.0])
    low = LowRankPrecision(mean, np.array([[1.0], [0.5]]), np.array([0.7, 0.2]))
    found = KLProximal(Normal()).start(Diagonal(mean, var), low)
    same_gaussian(found.posterior, low.mean, np.linalg.inv(low.precision.to_dense()), 1e-12)
    same_gaussian(
        KLProximal(Normal()).init(Diagonal(mean, var)).posterior, mean, np.diag(var), 1e-12
    )


def test_offsets_and_extra_variances_of_rows():
    """An offset shifts y of a linear model; an extra variance e is an offset e/2 of a count's log-rate."""
    rng, p = np.random.default_rng(0), problems.linear(30)
    offset, extra = rng.normal(size=30), rng.uniform(size=30)
    prior = Dense(p.mean, p.cov)

    def fit(rule, y, *columns):
        return run.fit(rule, prior, [batch(np.column_stack([p.x / 4, *columns]), y)] * 3).posterior

    linear = KLProximal(Normal(0.5), np.inf, predictor=OffsetLinear())
    wanted = oracles.linear_posterior(p.mean, p.cov, p.x / 4, p.y - offset, 0.5)
    same_gaussian(fit(linear, p.y, offset, extra), *wanted, 1e-9)
    counts, y = KLProximal(Poisson(), 1.0, predictor=OffsetLinear()), rng.poisson(2, 30) * 1.0
    one, other = fit(counts, y, offset, extra), fit(counts, y, offset + extra / 2, 0 * extra)
    same_gaussian(one, other.mean, other.cov, 1e-10)
    plain = fit(counts, y, offset, 0 * extra)
    assert np.max(np.abs(plain.mean - other.mean)) > 0.01


@pytest.mark.parametrize("natural", [True, False])
def test_weights_are_rows_and_padding_changes_nothing(natural):
    p = problems.binary(12)
    prior, rule = Dense(p.mean, p.cov), KLProximal(Bernoulli(), 0.5, natural=natural)
    twice = np.array([0, 1, 1, 2, 2, 2])
    one = run.fit(rule, prior, [batch(p.x[twice], p.y[twice])])
    other = run.fit(rule, prior, [batch(p.x[:6], p.y[:6], np.array([1.0, 2, 3, 0, 0, 0]))])
    same_gaussian(one.posterior, other.posterior.mean, other.posterior.cov, 1e-11)
    still = run.resume(rule, one, [batch(p.x[:6], p.y[:6], np.zeros(6))])
    same_gaussian(still.posterior, one.posterior.mean, one.posterior.cov, 1e-12)
    assert int(still.passes) == int(one.passes)


def heavy_tailed():
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.5, size=(200, 3))
    return batch(x, x @ [1.0, -1.0, 0.5] + 0.3 * rng.standard_t(3, size=200))


def test_far_rows_that_bend_the_wrong_way_are_clipped_and_counted():
    """Three rows far from the Gaussian and one on it, their integrals by quadrature."""
    observed = BY_NAME["student"]
    prior, y = Dense(np.zeros(1), np.eye(1)), np.array([0.2, 4.0, 4.5, 5.0])
    terms = [observed.expected(label, 0.0, 1.0)[1:] for label in y]
    gradient, gamma = (np.array(part) for part in zip(*terms, strict=True))
    weight = np.array([0.1, 9.0, 9.0, 9.0])
    assert 1 + weight @ gamma < 0  # no Gaussian
    precision = 1 + weight @ np.maximum(gamma, 0)
    found = run.fit(
        KLProximal(observed.likelihood, np.inf), prior, [batch(np.ones((4, 1)), y, weight)]
    )
    mean = np.array([weight @ gradient / precision])
    same_gaussian(found.posterior, mean, np.array([[1 / precision]]), 1e-9)
    assert (int(found.clipped), int(found.refused)) == (1, 0)


@pytest.mark.slow(reason="compiles a Student likelihood's integrals twice")
def test_negative_curvatures_that_leave_no_gaussian_are_clipped_and_counted():
    """A Student likelihood far from its rows bends the wrong way."""
    prior, rows, likelihood = (
        Dense(20 * np.ones(3), 10 * np.eye(3)),
        heavy_tailed(),
        StudentT(3.0, 0.3),
    )
    x = np.asarray(rows.x)
    terms = jax.vmap(likelihood.expect)(
        rows.y, rows.x @ prior.mean, prior.marginal_variance(rows.x)
    )
    gradient, gamma = np.asarray(terms.gradient), np.asarray(terms.curvature)
    assert np.linalg.eigvalsh(np.eye(3) / 10 + x.T @ (gamma[:, None] * x))[0] < 0
    kept = np.maximum(gamma, 0)
    cov = np.linalg.inv(np.eye(3) / 10 + x.T @ (kept[:, None] * x))
    mean = cov @ (
        np.asarray(prior.mean) / 10 + x.T @ (gradient + kept * (x @ np.asarray(prior.mean)))
    )
    found = run.fit(KLProximal(likelihood, np.inf), prior, [rows])
    same_gaussian(found.posterior, mean, cov, 1e-9)
    assert (int(found.clipped), int(found.refused)) == (1, 0)


def test_steps_to_numbers_that_are_not_finite_are_refused_and_counted():
    p = problems.counts()
    prior = Dense(p.mean, 1e4 * p.cov)  # e^{v/2} overflows
    rule = KLProximal(Poisson(), np.inf, rows=80)
    found = run.fit(rule, prior, [batch(p.x, p.y)] * 2)
    same_gaussian(found.posterior, prior.mean, prior.cov, 1e-12)
    assert (int(found.clipped), int(found.refused), int(found.passes)) == (0, 2, 1)
    # once the Gaussian is a sensible one the same batches lead somewhere
    narrow = rule.start(prior, Dense(np.zeros(4), np.eye(4) / 100))
    assert int(run.resume(rule, narrow, [batch(p.x, p.y)] * 2).passes) == 1


@pytest.mark.slow(reason="compiles the stream and the optimum of a Student likelihood")
@pytest.mark.parametrize("streamed", [True, False])
def test_negative_curvatures_on_the_way_to_the_optimum(streamed):
    """Far from the rows some batches are clipped, which takes passes to mend; near the optimum none is."""
    likelihood, rows, rng = StudentT(3.0, 0.3), heavy_tailed(), np.random.default_rng(0)
    prior = Dense(np.zeros(3), 4 * np.eye(3))
    stream = run.fit(RVGA(likelihood), prior, [rows]).posterior
    best = run.call(vga, likelihood, prior, rows, stream)
    rule = KLProximal.stochastic(likelihood, rows=200)
    state = rule.start(prior, stream if streamed else Dense(5 * np.ones(3), np.eye(3)))
    for _ in range(2 if streamed else 12):
        state = run.resume(rule, state, cut(np.asarray(rows.x), np.asarray(rows.y), 20, rng))
    assert (int(state.clipped + state.refused) == 0) == streamed
    assert below(best, state.posterior, prior, likelihood, rows) < 0.05


def test_single_precision_on_inputs_of_very_different_units():
    """Columns from 1e-3 to 1e3 under a prior to match: float32 keeps what float64 says, within 1 %."""
    p = problems.binary(200, 4)
    units = np.array([1e-3, 1.0, 30.0, 1e3])
    found = {}
    for dtype in (np.float32, np.float64):
        prior = Dense(np.zeros(4, dtype), np.diag(units**-2.0).astype(dtype))
        rows = batch(p.x * units, p.y, dtype=dtype)
        rule = KLProximal.stochastic(Bernoulli(), rows=200)
        parts = [Batch(*(a[i : i + 50] for a in rows[:3])) for i in range(0, 200, 50)]
        found[dtype] = run.fit(rule, prior, parts * 4).posterior
    single, double = found[np.float32], found[np.float64]
    assert single.mean.dtype == np.float32
    positive_definite(single)
    std = np.sqrt(np.diag(double.cov))
    assert np.max(np.abs(single.mean - double.mean) / std) < 0.01
    np.testing.assert_allclose(np.sqrt(np.diag(single.cov)), std, rtol=0.01)


def test_new_numbers_do_not_recompile_and_states_are_saved(tmp_path):
    p = problems.binary(12)
    prior, rows = Dense(p.mean, p.cov), batch(p.x, p.y)
    state = run.fit(KLProximal(Bernoulli(), 0.5, rows=20), prior, [rows])
    compiled = run._advance._cache_size()
    run.fit(KLProximal(Bernoulli(), 2.0, rows=40, decay=1.0), prior, [rows])
    assert run._advance._cache_size() == compiled
    checkpoints.save(tmp_path / "state.safetensors", state)
    again = checkpoints.load(tmp_path / "state.safetensors", state)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="beta must be positive"):
        KLProximal(Normal(), -1.0)
    with pytest.raises(ValueError, match="rows must be the number of rows"):
        KLProximal(Normal(), rows=jnp.nan)
    with pytest.raises(ValueError, match="infinite beta needs natural=True"):
        KLProximal(Normal(), np.inf, natural=False)
    with pytest.raises(ValueError, match="the same number of parameters; got 2 and 3"):
        KLProximal(Normal()).start(
            Diagonal(np.zeros(2), np.ones(2)), Diagonal(np.zeros(3), np.ones(3))
        )


def test_several_outputs_are_refused_where_there_is_one_latent():
    rows, cov = jnp.zeros(2), jnp.eye(2)
    with pytest.raises(
        TypeError, match="klprox takes likelihoods of one predictor and Softmax has 3"
    ):
        klprox(Softmax(3), LatentPrior(rows, cov), rows, jnp.ones(2))
    with pytest.raises(ValueError, match="gives 1 numbers for an input and Softmax needs 3"):
        KLProximal(Softmax(3))
