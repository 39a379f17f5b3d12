"""Binary factorisation by NumPy and by compiled programs: small fits compile nothing, and results agree."""

import jax
import numpy as np
import pytest

import kalvi
from kalvi.estimators.binary_factorization import placement
from kalvi.numerics.namespaces import is_jax
from kalvi.rules.silk import Table
from kalvi.streams import run

N, M, K = 30, 20, 2
rng = np.random.default_rng(0)
WAVES = 3 * np.column_stack([np.sin(np.arange(N) / 4), np.cos(np.arange(N) / 5)])
X = (rng.random((N, M)) < 1 / (1 + np.exp(-WAVES @ rng.normal(size=(K, M))))).astype(float)


def fitted(**settings):
    given = {"col_locations": "unordered", "random_state": 0, **settings}
    return kalvi.BinaryFactorization(K, **given).fit(X)


@pytest.mark.parametrize("settings", [{}, {"posterior": "coupled", "solver": "jacobi"}])
def test_small_matrices_compile_nothing(settings, monkeypatch):
    def refuse(*args):
        raise AssertionError("a program was compiled")

    monkeypatch.setattr(run, "_call", refuse)
    monkeypatch.setattr(run, "_advance", refuse)
    found = fitted(**settings)
    assert found.converged_ and is_jax(found.fit_.silk)


def test_large_matrices_are_compiled():
    def entries(rows, cols):
        return Table(np.ones((rows, cols), np.int8))

    assert placement.is_small(entries(1000, 10), 2)
    assert not placement.is_small(entries(1000, 100), 2)
    assert not placement.is_small(entries(1000, 10), 5)


@pytest.mark.slow(reason="compiles the programs of sweeps for two posteriors")
@pytest.mark.parametrize("settings", [{}, {"posterior": "coupled"}])
def test_the_engines_agree(settings, monkeypatch):
    """All by NumPy, all compiled, and what begins by NumPy and goes on compiled."""
    found = [fitted(**settings)]
    monkeypatch.setattr(placement, "MOST_SWEEPS", 3)
    found.append(fitted(**settings))
    monkeypatch.setattr(placement, "MOST_ENTRIES", 0)
    found.append(fitted(**settings))
    first, *others = found
    for other in others:
        np.testing.assert_allclose(other.elbo_, first.elbo_, rtol=1e-9)
        for one, two in zip(*(jax.tree.leaves(m.fit_.silk) for m in (first, other)), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
