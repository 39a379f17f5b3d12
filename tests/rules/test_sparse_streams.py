"""A stream of sparse rows gives the posterior of the same rows written out, for every likelihood."""

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from kalvi.numerics.namespaces import is_array
from kalvi.rules.rule import Batch
from kalvi.rules.schemes import EKF
from kalvi.streams import run
from kalvi.streams.sparse_batches import SparseBlocks
from tests.tables import LIKELIHOODS, STRUCTURES, name, rule_of, task

N, FEATURES, BLOCK = 8, 5, 4
WEIGHTS = np.array([1, 2, 0.5, 0, 1, 1, 3, 1.0])
UPDATABLE = [row for row in STRUCTURES if row.updatable]
SETTINGS = [{}, {"drift": 0.9}]


def learned(rule, prior, x, y):
    prior = jax.tree.map(lambda a: np.asarray(a) if is_array(a) else a, prior)
    return run.advance(rule, run.begin(rule, prior), Batch(x, y, WEIGHTS))


@pytest.mark.parametrize("observed", LIKELIHOODS, ids=name)
@pytest.mark.parametrize("structure", UPDATABLE, ids=name)
@pytest.mark.parametrize("settings", SETTINGS, ids=["still", "drift"])
def test_sparse_rows_are_learned_as_dense_ones(observed, structure, settings):
    """Two blocks with weights, one of them 0, by NumPy."""
    p, rng = task(observed, N, FEATURES), np.random.default_rng(4)
    x = sp.csr_array(np.where(rng.random(p.x.shape) < 0.5, p.x, 0))
    prior = structure.make(rng, observed.outputs * FEATURES).q
    rule = rule_of(observed, EKF(), block_size=BLOCK, **settings)
    rows = SparseBlocks(False, np.float64).make(x, N, BLOCK)
    sparse = learned(rule, prior, rows, np.asarray(p.y, float))
    dense = learned(rule, prior, x.toarray(), np.asarray(p.y, float))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9), sparse, dense)
