import jax
import numpy as np
import pytest

from kalvi import run
from kalvi.algorithms.grid import SideBySide, stack, take
from kalvi.algorithms.rvga import RVGA
from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli
from tests import problems


@pytest.mark.slow
def test_each_entry_is_the_rule_alone():
    problem = problems.binary()
    batch = problems.batch(problem.x, problem.y)
    priors = [Dense(problem.mean, scale * problem.cov) for scale in (0.1, 1.0, 10.0)]
    together = run.fit(SideBySide(RVGA(Bernoulli())), stack(priors), [batch])
    for index, prior in enumerate(priors):
        alone = run.fit(RVGA(Bernoulli()), prior, [batch])
        for one, other in zip(
            jax.tree.leaves(take(together, index)), jax.tree.leaves(alone), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)
