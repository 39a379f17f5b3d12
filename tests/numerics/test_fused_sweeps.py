"""The kernels, interpreted, against matrix products of NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.numerics.fused_sweeps import fused_gram, fused_rows, supports

SIZES = [(300, 10, 7), (2900, 16, 33)]  # of d, p and b


def block(d, p, b):
    rng = np.random.default_rng(0)
    return rng.normal(size=(d, p)), rng.normal(size=(b, d)), rng.uniform(size=d)


def single(*arrays):
    return [jnp.asarray(a, jnp.float32) for a in arrays]


def near(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize(("d", "p", "b"), SIZES)
def test_gram_matrices(d, p, b):
    w, x, weight = block(d, p, b)
    with jax.enable_x64(False):
        found = fused_gram(*single(w, weight, x), interpret=True)
    scaled = weight[:, None] * w
    for mine, wanted in zip(found, (w.T @ scaled, scaled.T @ x.T, x * weight @ x.T), strict=True):
        near(mine, wanted)


@pytest.mark.parametrize(("d", "p", "b"), SIZES)
def test_projected_rows(d, p, b):
    w, x, _ = block(d, p, b)
    rng = np.random.default_rng(1)
    scale, shared = rng.uniform(size=b), rng.uniform(size=p)
    kept = np.linalg.qr(rng.normal(size=(p + b, p)))[0]
    with jax.enable_x64(False):
        found = fused_rows(*single(w, x, kept, scale, shared), interpret=True)
    z = np.hstack([w, (scale[:, None] * x).T])
    rows = z @ kept
    dropped = np.sum(z**2, axis=1) - np.sum(rows**2, axis=1)
    for mine, wanted in zip(
        found, (rows * np.sqrt(1 - shared), dropped, rows**2 @ shared), strict=True
    ):
        near(mine, wanted)


def test_they_serve_single_precision_of_few_columns_on_a_gpu(monkeypatch):
    w, x = single(np.zeros((20, 3)), np.zeros((5, 20)))
    with jax.enable_x64(False):
        assert not supports(w, x)
        monkeypatch.setattr("kalvi.numerics.fused_sweeps.platform", lambda: "gpu")
        assert supports(w, x)
        assert not supports(w[:, :0], x)
        assert not supports(w, jnp.zeros((129, 20), jnp.float32))
        assert not supports(w.astype(jnp.float16), x)
        assert not supports(np.asarray(w), np.asarray(x))
    with jax.enable_x64(True):
        assert not supports(w, x)
