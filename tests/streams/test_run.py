import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from kalvi.gaussians import Dense
from kalvi.likelihoods import Normal, StudentT
from kalvi.rules.rule import Batch, Rule
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import Explicit
from kalvi.streams import run
from tests import oracles, problems
from tests.laws import same_gaussian, same_state
from tests.problems import batch


class Dice(Rule):
    """A rule that adds a random number per block; its state is the sum."""

    scale: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def init(self, prior, *, key=None):
        return prior

    def update(self, state, batch: Batch, *, key=None):
        return state + self.scale * (jr.uniform(key) if key is not None else 1.0)


def pieces(p, size=10):
    return [batch(p.x[i : i + size], p.y[i : i + size]) for i in range(0, len(p.y), size)]


def test_fit_over_batches_is_the_closed_form():
    p = problems.linear()
    seen = []
    state = run.fit(
        RVGA(Normal(0.5)),
        Dense(p.mean, p.cov),
        pieces(p),
        after_block=lambda s: seen.append(float(s.rows)),
    )
    same_gaussian(state.posterior, *oracles.linear_posterior(p.mean, p.cov, p.x, p.y, 0.5), 1e-10)
    assert seen == [10, 20, 30, 40]


def test_resume_is_an_uninterrupted_fit_and_leaves_its_state_intact():
    p = problems.linear()
    rule, prior = RVGA(Normal(0.5)), Dense(p.mean, p.cov)
    blocks = pieces(p)
    whole = run.fit(rule, prior, blocks)
    half = run.fit(rule, prior, blocks[:2])
    before = jax.tree.map(np.array, half)
    first, second = (run.resume(rule, half, blocks[2:]) for _ in range(2))
    same_state(first, whole, rtol=1e-13)
    same_state(second, whole, rtol=1e-13)
    for kept, was in zip(jax.tree.leaves(half), jax.tree.leaves(before), strict=True):
        np.testing.assert_array_equal(kept, was)
    np.testing.assert_array_equal(prior.mean, p.mean)


def test_the_block_number_is_folded_into_the_key():
    key, blocks = jr.key(3), [batch(np.zeros((1, 1)), np.zeros(1))] * 4
    rule, start = Dice(2.0), jnp.zeros(())
    whole = run.fit(rule, start, blocks, key=key)
    wanted = sum(2 * jr.uniform(jr.fold_in(key, i)) for i in range(4))
    np.testing.assert_allclose(whole, wanted, rtol=1e-14)
    half = run.fit(rule, start, blocks[:2], key=key)
    np.testing.assert_array_equal(run.resume(rule, half, blocks[2:], key=key, first_block=2), whole)
    assert run.resume(rule, half, blocks[2:], key=key) != whole
    assert run.fit(rule, start, blocks) == 8


def test_new_numbers_do_not_recompile():
    p = problems.linear(20)

    def fit(variance, forgetting, scale):
        rule = RVGA(Normal(variance), forgetting=forgetting, process_noise=0.1, block_size=10)
        return run.fit(rule, Dense(scale * p.mean, scale * p.cov), pieces(p))

    fit(0.5, 0.9, 1.0)
    compiled = run._advance._cache_size()
    states = [fit(0.7, 0.9, 1.0), fit(0.5, 0.8, 1.0), fit(0.5, 0.9, 3.0)]
    assert run._advance._cache_size() == compiled
    assert len({float(s.log_evidence) for s in states}) == 3
    run.fit(RVGA(Normal(0.5), block_size=5), Dense(p.mean, p.cov), pieces(p))
    assert run._advance._cache_size() == compiled + 1  # a new loop length does


def test_new_parameters_of_a_likelihood_do_not_recompile():
    p = problems.linear(10)
    for df, scale in ((4.0, 1.0), (5.0, 2.0)):
        run.fit(
            RVGA(StudentT(df, scale), Explicit(), block_size=10), Dense(p.mean, p.cov), pieces(p)
        )
        compiled = run._advance._cache_size() if df == 4.0 else compiled
    assert run._advance._cache_size() == compiled


def test_no_batches_return_the_start():
    p = problems.linear()
    state = run.fit(RVGA(Normal(0.5)), Dense(p.mean, p.cov), [])
    same_gaussian(state.posterior, p.mean, p.cov, rtol=1e-13)
    assert float(state.rows) == 0


def test_call_compiles_once_per_function_and_shape():
    traces = []

    def double(a):
        traces.append(1)
        return 2 * a

    assert [float(run.call(double, jnp.asarray(v))) for v in (1.0, 2.5)] == [2, 5]
    assert len(traces) == 1
