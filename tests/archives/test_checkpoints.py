import os

import jax
import numpy as np
import pytest

from kalvi.archives import checkpoints
from kalvi.gaussians import Dense, LowRankPrecision
from kalvi.likelihoods import Bernoulli
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF
from kalvi.streams import run
from tests import problems

PROBLEM = problems.binary()
HALVES = [
    problems.batch(PROBLEM.x[:20], PROBLEM.y[:20]),
    problems.batch(PROBLEM.x[20:], PROBLEM.y[20:]),
]
PRIORS = [
    Dense(np.zeros(4), np.eye(4)),
    LowRankPrecision(np.zeros(4), np.zeros((4, 2)), np.ones(4)),
]


@pytest.mark.parametrize("prior", PRIORS, ids=lambda p: type(p).__name__)
def test_save_load_continue_is_uninterrupted(prior, tmp_path):
    rule = RVGA(Bernoulli(), EKF())
    straight = run.fit(rule, prior, HALVES)
    path = tmp_path / "state.safetensors"
    checkpoints.save(path, run.fit(rule, prior, HALVES[:1]), rows="20")
    back = checkpoints.load(path, rule.init(prior))
    assert checkpoints.metadata(path) == {"rows": "20"}
    resumed = run.resume(rule, back, HALVES[1:], first_block=1)
    for one, other in zip(jax.tree.leaves(resumed), jax.tree.leaves(straight), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state.safetensors"
    checkpoints.save(path, PRIORS[0])
    before = path.read_bytes()

    def full_disk(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        checkpoints.save(path, PRIORS[1])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]


def test_refusals(tmp_path):
    path = tmp_path / "state.safetensors"
    checkpoints.save(path, PRIORS[0])
    with pytest.raises(
        ValueError, match=r"holds no '.precision.diag'; it was saved from another kind"
    ):
        checkpoints.load(path, PRIORS[1])
    with pytest.raises(ValueError, match=r"'.mean' in .* is float64\[4\]; needed float64\[3\]"):
        checkpoints.load(path, Dense(np.zeros(3), np.eye(3)))
    path.write_bytes(b"not a state")
    with pytest.raises(ValueError, match="is not a saved state"):
        checkpoints.load(path, PRIORS[0])
