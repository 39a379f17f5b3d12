"""The two kinds of variance of a prediction, for every likelihood."""

import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.evaluation.predictions import linearised
from kalvi.predictors import linear_predictor
from kalvi.predictors.models import Model
from kalvi.streams import run
from tests.tables import LIKELIHOODS, diagonal, name, squared, task


@pytest.mark.parametrize("observed", LIKELIHOODS, ids=name)
def test_epistemic_and_aleatoric_variances_against_quadrature(observed):
    """Var E[y | f] and E[Var y | f] of each output, f under the posterior of a linear predictor."""
    p, c = task(observed, 2), observed.outputs
    found = run.call(
        linearised, Model(linear_predictor(c), observed.likelihood), p.prior, jnp.asarray(p.x)
    )
    assert [part.shape for part in found] == [(2, c)] * 3
    for i, row in enumerate(p.design):
        law = row @ p.mean, row @ p.cov @ row.T
        mean = observed.average(lambda f: observed.moments(f)[0], *law)
        own = observed.average(lambda f: diagonal(observed.moments(f)[1]), *law)
        away = observed.average(lambda f, e=mean: squared(observed.moments(f)[0] - e, c), *law)
        # a difference of two integrals, each with the errors of the table
        size = float(np.mean(diagonal(law[1])))
        error = max(observed.error(size) + observed.blur(size), 1e-10)
        np.testing.assert_allclose(found.mean[i], np.atleast_1d(mean), rtol=1e-8, atol=error)
        np.testing.assert_allclose(found.aleatoric[i], np.atleast_1d(own), rtol=1e-8, atol=error)
        wanted = np.atleast_1d(diagonal(away))
        np.testing.assert_allclose(found.epistemic[i], wanted, rtol=1e-7, atol=error)
