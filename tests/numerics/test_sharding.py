"""Eight virtual devices, and two processes, give what one device gives."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kalvi
from kalvi.numerics import linalg, sharding
from kalvi.numerics.precision import matching_precision
from kalvi.rules import factor_analysis as fa
from kalvi.rules.silk import Table
from kalvi.rules.silk.entries import list_entries
from kalvi.rules.silk.moments import factorised_moments
from kalvi.streams import run
from tests.numerics import two_processes

RNG = np.random.default_rng(0)
D, P, N = 1600, 6, 48
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] + RNG.normal(size=N) > 0).astype(np.float32)
RULE = kalvi.RVGA(kalvi.likelihoods.Bernoulli(), block_size=16)


def gaussian(dim: int = D, rank: int = P) -> kalvi.LowRankPrecision:
    return kalvi.LowRankPrecision(jnp.zeros(dim), jnp.zeros((dim, rank)), 4 * jnp.ones(dim))


def rows(x, y) -> kalvi.Batch:
    return kalvi.Batch(sharding.columns(x), jnp.asarray(y), jnp.ones(len(y), x.dtype))


def close(a, b, tolerance):
    a, b = np.asarray(a), np.asarray(b)
    np.testing.assert_allclose(b, a, rtol=0, atol=tolerance * np.max(np.abs(a)))


@pytest.fixture(scope="module")
def both():
    """The states of one device and of eight, in float32, and the compiled step of the eight."""
    with matching_precision(np.float32):
        one = kalvi.fit(RULE, gaussian(), [rows(X, Y)])
        with sharding.over():
            prior, batch = sharding.spread(gaussian), rows(X, Y)
            eight = kalvi.fit(RULE, prior, [batch])
            state = RULE.init(prior)
            step = jax.jit(RULE.update).lower(state, batch).compile()
    return one, eight, step


def test_eight_devices_give_what_one_gives_in_float32(both):
    one, eight, _ = both
    assert jax.device_count() == 8
    close(one.posterior.mean, eight.posterior.mean, 1e-6)
    close(one.posterior.variance(), eight.posterior.variance(), 1e-6)
    close(one.log_evidence, eight.log_evidence, 1e-6)
    # beside the prior's 4 the factors say the same: rows of W Wᵀ, whatever its columns' signs
    w, v = (np.asarray(s.posterior.precision.factor, np.float64) for s in (one, eight))
    # each is 1e-5 to 2.4e-5 from float64's, as the order of its sums has it
    close(w[:50] @ w.T, v[:50] @ v.T, 5e-5)


def test_every_device_holds_an_eighth(both):
    _, eight, step = both
    for leaf in (
        eight.posterior.precision.factor,
        eight.posterior.mean,
        eight.posterior.precision.diag,
    ):
        parts = leaf.addressable_shards
        assert len({part.device for part in parts}) == 8
        assert {part.data.shape[0] for part in parts} == {D // 8}
    whole = 4 * D * (P + 2 + N)  # the state and the block
    assert step.memory_analysis().argument_size_in_bytes < whole / 8 + 2000
    assert step.memory_analysis().temp_size_in_bytes < whole / 2


def test_only_small_matrices_travel(both):
    sent = [
        int(np.prod([int(n) for n in shape.split(",") if n] or [1]))
        for line in both[2].as_text().splitlines()
        if re.search(
            r"(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)\(", line
        )
        for shape in re.findall(r"f32\[([\d,]*)\]", line.split("=")[1])
    ]
    assert sent and max(sent) <= (P + 16) ** 2


def test_the_exact_posterior_of_a_linear_model():
    x = np.random.default_rng(1).normal(size=(6, 40))
    y = x[:, 0] - x[:, 3]
    with sharding.over(jax.devices()[:4]):
        prior = sharding.spread(lambda: gaussian(40, 6))
        state = kalvi.fit(kalvi.RVGA(kalvi.likelihoods.Normal(0.5)), prior, [rows(x, y)])
        variance = state.posterior.variance()
    precision = 4 * np.eye(40) + x.T @ x / 0.5
    np.testing.assert_allclose(
        state.posterior.mean, np.linalg.solve(precision, x.T @ y / 0.5), atol=1e-10
    )
    np.testing.assert_allclose(variance, np.diag(np.linalg.inv(precision)), atol=1e-10)


def test_factor_analysis():
    x = np.random.default_rng(2).normal(size=(64, 2)) @ np.random.default_rng(3).normal(
        size=(2, 64)
    )
    x += np.random.default_rng(4).normal(size=x.shape)
    one = kalvi.FactorAnalysis(2).partial_fit(x)
    with sharding.over():
        eight = kalvi.FactorAnalysis(2).partial_fit(x)
        assert len(eight.fit_.state.posterior.mean.addressable_shards) == 8
    close(one.get_covariance(), eight.get_covariance(), 1e-10)


@pytest.mark.slow(reason="compiles a thousand passes, on one device and on eight")
def test_the_maximum_likelihood_of_factor_analysis():
    x = np.random.default_rng(2).normal(size=(64, 64)) * np.linspace(1, 3, 64)
    start = fa.start(jnp.zeros(64), jnp.ones(64), 2, key=jax.random.key(0))
    table = kalvi.Batch(jnp.asarray(x), jnp.ones(64), jnp.ones(64))
    # the first pass adds directions of rounding to its basis: the paths differ, the optimum does not
    limits = {"max_passes": 1000, "tolerance": 1e-13}
    alone = fa.batch_em(table, start, **limits)
    with sharding.over():
        shared = run.call(lambda t, s: fa.batch_em(t, s, **limits), table, sharding.spread(start))
    assert alone.converged and shared.converged
    close(alone.posterior.covariance.to_dense(), shared.posterior.covariance.to_dense(), 1e-6)


def test_an_orthonormal_basis():
    a = np.random.default_rng(5).normal(size=(48, 3)) * [1, 1e-4, 1e3]
    with sharding.over():
        q = np.asarray(linalg.orthonormal_basis(sharding.rows(a)))
    np.testing.assert_allclose(q.T @ q, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(q @ (q.T @ a), a, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "weighed",
    [
        pytest.param(
            False, marks=pytest.mark.slow(reason="compiles for eight devices, as the other does")
        ),
        True,
    ],
)
def test_what_binary_entries_say(weighed):
    rng = np.random.default_rng(6)
    signs = rng.integers(-1, 2, size=(21, 10)).astype(np.int8)  # 21 rows on 8 devices
    weight = rng.random((21, 10)) if weighed else None
    u, a = (
        factorised_moments(jnp.asarray(rng.normal(size=(n, 2))), jnp.ones((n, 2))) for n in (21, 10)
    )
    row, col = np.nonzero(signs)
    with sharding.over():
        table = Table.of(signs, weight)
        listed = list_entries(
            row, col, signs[row, col], None if weight is None else weight[row, col], signs.shape
        )
        assert table.shape == (21, 10)
        assert {part.data.shape for part in table.signs.addressable_shards} == {(3, 10)}
        assert len({part.device for part in listed.by_row.sign.addressable_shards}) == 8
        found = run.call(
            lambda kinds: [
                (kind.statistics(u, a, True), kind.transpose().statistics(a, u, True))
                for kind in kinds
            ],
            (table, listed),
        )
    weights = np.where(signs != 0, np.ones((21, 10)) if weight is None else weight, 0)
    psi = np.asarray(u.mean @ a.mean.T)
    gamma = np.sqrt(psi**2 + np.asarray(u.left @ a.right.T))
    pull, cost = weights * signs / 2, weights * np.log(2 * np.cosh(gamma / 2))
    held = weights * np.tanh(gamma / 2) / (2 * gamma)
    for of_rows, of_cols in found:
        for side, other, turn in ((of_rows, a, lambda m: m), (of_cols, u, lambda m: m.T)):
            np.testing.assert_allclose(side.pull, turn(pull) @ other.mean, atol=1e-12)
            np.testing.assert_allclose(side.curvature, turn(held) @ other.second, atol=1e-12)
            np.testing.assert_allclose(side.loss, turn(pull * psi - cost).sum(1), atol=1e-12)


@pytest.mark.slow(reason="compiles a fit, on one device and on eight")
@pytest.mark.filterwarnings("ignore:.*:sklearn.exceptions.ConvergenceWarning")
def test_a_whole_binary_factorisation():
    z = np.random.default_rng(7).integers(0, 2, size=(45, 30)).astype(float)
    one = kalvi.BinaryFactorization(2, random_state=0, max_sweeps=30).fit(z)
    with sharding.over():
        eight = kalvi.BinaryFactorization(2, random_state=0, max_sweeps=30).fit(z)
        assert eight.elbo_ == pytest.approx(one.elbo_, rel=1e-10)
        close(one.predict_proba(), eight.predict_proba(), 1e-8)


def test_estimators_make_no_whole_prior():
    with sharding.over():
        model = kalvi.PoissonRegression(rank=2, fit_intercept=False)
        given = kalvi.PoissonRegression(rank=2, prior=gaussian(16, 2), fit_intercept=False)
        for prior in (one.settings().make_prior(1.0, 16, 1) for one in (model, given)):
            for leaf in jax.tree.leaves(prior):
                assert {part.data.shape[0] for part in leaf.addressable_shards} == {2}


def _written_out(theta, x):
    found = kalvi.predictors.MultiLinear(3).linearise(theta, x)
    return found.mean, found.rows.matrix()


def test_rows_of_several_classes_are_made_where_they_are():
    x = np.random.default_rng(8).normal(size=(5, 8))
    theta = np.random.default_rng(9).normal(size=24)
    with sharding.over():
        mean, rows = run.call(_written_out, sharding.rows(theta), jnp.asarray(x))
        assert {part.data.shape for part in rows.addressable_shards} == {(15, 3)}
    np.testing.assert_allclose(mean, x @ theta.reshape(3, 8).T, atol=1e-12)
    np.testing.assert_allclose(
        rows, np.kron(np.eye(3), x).reshape(3, 5, 24).swapaxes(0, 1).reshape(15, 24)
    )


@pytest.mark.slow(reason="compiles a low-rank stream, on one device and on eight")
def test_linear_estimators():
    x, y = X[:, :15], Y.astype(int)
    one = kalvi.LogisticRegression(rank=2).partial_fit(x, y, classes=[0, 1])
    with sharding.over():
        eight = kalvi.LogisticRegression(rank=2).partial_fit(x, y, classes=[0, 1])
        assert len(eight.state_.posterior.mean.addressable_shards) == 8
        close(one.predict_proba(x), eight.predict_proba(x), 1e-12)
        close(one.posterior_.variance(), eight.posterior_.variance(), 1e-12)


def test_what_cannot_be_shared():
    remedy = "14 parameters, which 8 devices cannot share evenly. Add 2 columns of zeros"
    with pytest.raises(ValueError, match="there are 8 devices"), sharding.over(9):
        pass
    with sharding.over(8):
        with pytest.raises(ValueError, match=re.escape(remedy)):
            kalvi.LogisticRegression(rank=2).partial_fit(X[:, :13], Y.astype(int), classes=[0, 1])
        with pytest.raises(ValueError, match="a function and the shape"):
            sharding.columns(lambda part: X[part])
    with pytest.raises(ValueError, match="at least one device"), sharding.over([]):
        pass


def test_two_processes(tmp_path):
    """Each holds half of the parameters, and both have the result of one process."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    flags = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=2")
    program = [sys.executable, "-m", "tests.numerics.two_processes", address, "2"]
    started = [
        subprocess.Popen(
            [*program, str(number), str(tmp_path / "found")],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"XLA_FLAGS": flags},
            stderr=subprocess.PIPE,
        )
        for number in range(2)
    ]
    try:
        for process in started:
            _, said = process.communicate(timeout=300)
            assert process.returncode == 0, said.decode()
    finally:
        for process in started:
            process.kill()
    alone = two_processes.learned()
    for number in range(2):
        found = np.load(tmp_path / f"found.{number}.npz")
        assert found["held"] == 0.5 and found["devices"] == 4
        close(alone.posterior.mean, found["mean"], 1e-12)
        close(alone.posterior.precision.diag, found["diag"], 1e-12)
        close(alone.log_evidence, found["log_evidence"], 1e-12)
        w = np.asarray(alone.posterior.precision.factor)
        close(w @ w.T, found["factor"] @ found["factor"].T, 1e-12)
