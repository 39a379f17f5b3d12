import jax
import numpy as np
import pytest

from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli, Normal
from kalvi.rules.grid import SideBySide, stack, take
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF
from kalvi.streams import run
from tests import oracles, problems
from tests.laws import assert_close, same_gaussian


def test_each_entry_is_the_exact_posterior_and_evidence_of_its_prior():
    p, variance = problems.linear(n=5, d=2), 0.5
    scales = (0.1, 10.0)
    priors = [Dense(p.mean, scale * p.cov) for scale in scales]
    rule = SideBySide(RVGA(Normal(variance), EKF(), block_size=5))
    together = run.fit(rule, stack(priors), [problems.batch(p.x, p.y)])
    for index, scale in enumerate(scales):
        given, found = (p.mean, scale * p.cov, p.x, p.y, variance), take(together, index)
        mean, cov, innovations = oracles.kalman_filter(*given)
        same_gaussian(found.posterior, mean, cov)
        assert_close(found.log_evidence, oracles.linear_log_evidence(*given), 1e-10)
        assert_close(found.innovations, innovations, 1e-10)
        assert float(found.rows) == 5


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
