import jax
import numpy as np
import pytest

from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli
from kalvi.rules.grid import SideBySide, stack, take
from kalvi.rules.rvga import RVGA
from kalvi.streams import run
from tests import problems


@pytest.mark.slow(reason="compiles the rule alone and side by side")
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
