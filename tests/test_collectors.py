import pickle
from collections import OrderedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import kalvi
from kalvi.rules.rule import Batch
from kalvi.streams import run
from tests.laws import same_gaussian
from tests.numerics.test_pytrees import Network, Tensor

N, D = 40, 6
PATH = np.random.default_rng(0).normal(size=(N, D))
KINDS = {
    "vector": lambda row: row,
    "dictionary": lambda row: {"a": row[:4].reshape(2, 2), "b": jnp.asarray(row[4:])},
    "equinox": lambda row: Network(jnp.asarray(row[:4].reshape(2, 2)), jnp.asarray(row[4:])),
    "tensors": lambda row: OrderedDict(z=Tensor(row[:2]), a=Tensor(row[2:].reshape(2, 2))),
    "generator": lambda row: (Tensor(part) for part in (row[:1], row[1:])),
}


def collected(method="swag", kind="vector", n=N, **options):
    collector = kalvi.networks.Collector(method, **({"rank": 3} | options))
    for row in PATH[:n]:
        assert collector.collect(KINDS[kind](row)) is collector
    return collector


def moments(q):
    return np.asarray(q.mean), np.asarray(q.covariance.to_dense())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_gaussian_of_the_vectors(kind):
    collector = collected(kind=kind)
    batch = Batch(jnp.asarray(PATH), jnp.zeros(N), jnp.ones(N))
    state = run.fit(kalvi.rules.SWAG(3), jnp.zeros(D), [batch])
    same_gaussian(collector.posterior, *moments(kalvi.rules.SWAG(3).posterior(state)), 1e-12)
    assert collector.n_collected == N


def test_methods_are_the_rules():
    rule = kalvi.rules.FASWAG(kalvi.rules.RecursiveFA(), 3)
    assert eqx.tree_equal(kalvi.networks.Collector("fa", rank=3).rule, rule)
    np.testing.assert_allclose(collected("swa").mean(), PATH.mean(axis=0), rtol=1e-12)
    windows = PATH.reshape(-1, 4, D).mean(axis=1)
    diagonal = collected(rank=0, window=4).posterior
    np.testing.assert_allclose(diagonal.variance(), windows.var(axis=0), rtol=1e-12)
    own = collected(kalvi.rules.SWA(variance=True)).posterior
    np.testing.assert_allclose(own.variance(), PATH.var(axis=0), rtol=1e-12)
    first, again, other = (collected("online_em", n=4, random_state=s).posterior for s in (0, 0, 1))
    assert jax.tree.all(jax.tree.map(np.array_equal, first, again))
    assert not np.allclose(first.variance(), other.variance(), rtol=1e-6)


def test_draws_are_of_the_users_kind():
    collector = collected(kind="equinox")
    draws = list(collector.sample(3, random_state=5))
    keys = jr.split(jr.key(5), 3)
    for draw, key in zip(draws, keys, strict=True):
        theta = collector.posterior.sample(key, 1)[0]
        np.testing.assert_allclose(collector.flat.flatten(draw), theta, rtol=1e-12)
        assert draw.activation is jax.nn.relu
    same = next(collector.sample(3, key=jr.key(5)))
    assert eqx.tree_equal(same, draws[0])
    mean = collector.mean()
    np.testing.assert_allclose(mean.weight.ravel(), PATH.mean(axis=0)[:4], rtol=1e-12)


def test_what_was_handed_out_stays():
    collector = collected(n=10)
    q, mean = collector.posterior, collector.mean()
    before = moments(q)
    assert collector.posterior is q
    collector.collect(PATH[10])
    np.testing.assert_array_equal(moments(q)[1], before[1])
    np.testing.assert_allclose(mean, PATH[:10].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(collector.posterior.mean, PATH[:11].mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize(
    "bad", [PATH[0] * np.nan, PATH[0, :5], {"a": PATH[0]}], ids=["nan", "shape", "structure"]
)
def test_a_refused_iterate_changes_nothing(bad):
    collector = collected(n=10)
    before = moments(collector.posterior)
    with pytest.raises(ValueError, match="parameters must"):
        collector.collect(bad)
    assert collector.n_collected == 10
    collector.collect(PATH[10])
    whole = collected(n=11)
    same_gaussian(collector.posterior, *moments(whole.posterior), 1e-15)
    assert not np.allclose(collector.posterior.mean, before[0])


def test_a_refused_first_iterate_leaves_a_fresh_collector():
    collector = kalvi.networks.Collector("swag", rank=20)
    with pytest.raises(ValueError, match="rank=20 exceeds the 6 parameters"):
        collector.collect(PATH[0])
    assert collector.n_collected == 0
    with pytest.raises(ValueError, match="nothing has been collected; call collect"):
        collector.mean()


def test_double_precision_and_pickling_whatever_the_global_setting():
    with jax.enable_x64(False):
        collector = pickle.loads(pickle.dumps(collected(n=10)))
        collector.collect(PATH[10])
        assert collector.posterior.mean.dtype == np.float64
    same_gaussian(collector.posterior, *moments(collected(n=11).posterior), 1e-15)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kalvi.networks.Collector("sgd"), "one of swa, swag, .* or a PathRule; got 'sgd'"),
        (
            lambda: kalvi.networks.Collector(rank=2.5),
            "rank must be an integer of at least 0; got 2.5",
        ),
        (
            lambda: kalvi.networks.Collector("fa", rank=0),
            "rank must be an integer of at least 1; got 0",
        ),
        (
            lambda: kalvi.networks.Collector(window=0),
            "window must be an integer of at least 1; got 0",
        ),
        (
            lambda: kalvi.networks.Collector(random_state=None),
            "random_state must be an integer .* got None",
        ),
        (lambda: collected(n=1).posterior, "at least 2 collected iterates; there are 1"),
        (lambda: collected(n=19, window=10).posterior, "at least 20 .* there are 19"),
        (lambda: collected(n=9).sample(0, random_state=0), "n must be an integer .* got 0"),
        (lambda: collected(n=9).sample(2), "either a key or a random_state; give one"),
        (lambda: collected("swa", n=9).posterior, "SWA keeps only the mean"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("method", "numbers"),
    [("swa", 1), ("swag", 7), ("fa", 23), ("online_em", 35)],
)
def test_what_is_kept_is_what_the_docstring_says(method, numbers):
    """Per parameter: 1, rank + 2, rank + 18 and 3 rank + 20, here for rank 5."""
    collector = kalvi.networks.Collector(method, rank=5).collect(np.zeros(400, np.float32))
    kept = sum(leaf.size for leaf in jax.tree.leaves(collector._state) if hasattr(leaf, "size"))
    assert kept == pytest.approx(400 * numbers, abs=40)  # counters, and p x p sums of online EM
