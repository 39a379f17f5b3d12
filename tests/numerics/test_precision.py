import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.gaussians.divergences import kl, wasserstein
from kalvi.numerics import precision
from tests.tables import STRUCTURES, name


def test_matching_follows_the_dtype():
    with jax.enable_x64(False):
        with precision.matching_precision(np.float64):
            assert jnp.asarray(0.1).dtype == np.float64
        with precision.matching_precision(np.float32):
            assert jnp.asarray(0.1).dtype == np.float32
    with precision.matching_precision("float32"):
        assert jnp.asarray(0.1).dtype == np.float32


def test_is_traced():
    seen = []
    jax.jit(lambda a: seen.append(precision.is_traced(a)) or a)(jnp.ones(()))
    assert seen == [True]
    assert not precision.is_traced(jnp.ones(()))


@pytest.mark.parametrize("structure", STRUCTURES, ids=name)
def test_float64_posteriors_answer_in_float64_though_jax_is_32_bit(structure):
    rng = np.random.default_rng(0)
    q, mean, cov = structure.make(rng)
    p = structure.make(rng).q
    x = np.random.default_rng(1).normal(size=(3, len(mean)))
    with jax.enable_x64(True):
        rows, v = jnp.asarray(x), jnp.asarray(x[0])
        close, far = kl(q, p), wasserstein(q, p)
    with jax.enable_x64(False):
        assert jnp.ones(()).dtype == np.float32
        answers = {
            "matvec": (q.matvec(v), cov @ x[0]),
            "solve": (q.solve(v), np.linalg.solve(cov, x[0])),
            "logdet": (q.logdet(), np.linalg.slogdet(cov)[1]),
            "variance": (q.variance(), np.diag(cov)),
            "marginal": (q.marginal(rows)[1], x @ cov @ x.T),
            "marginal_variance": (q.marginal_variance(rows), np.diag(x @ cov @ x.T)),
            "to_dense": (q.to_dense().cov, cov),
            "kl": (kl(q, p), close),
            "wasserstein": (wasserstein(q, p), far),
        }
        draws = q.sample(jax.random.key(0), 2)
        density = q.log_prob(v)
    for method, (found, wanted) in answers.items():
        assert found.dtype == np.float64, method
        np.testing.assert_allclose(found, wanted, rtol=1e-9, err_msg=method)
    assert draws.dtype == density.dtype == np.float64


def test_float32_posteriors_stay_float32_though_jax_is_64_bit():
    q = STRUCTURES[0].make(np.random.default_rng(0)).q
    single = jax.tree.map(lambda a: a.astype(jnp.float32), q)
    assert single.variance().dtype == single.logdet().dtype == np.float32
    np.testing.assert_allclose(single.variance(), q.variance(), rtol=1e-5)
