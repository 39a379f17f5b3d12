"""L-RVGA as an optimiser: the objective by differences, Adagrad in NumPy, and a quick run of the figure."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from kalvi.numerics import precision
from papers import lrvga_optimiser as optimiser
from papers.lrvga_data import Rows, logistic_rows

ROWS = Rows(*logistic_rows(4, 30, 0.5))


def test_the_objective_and_its_slope():
    objective, theta, h = optimiser.Objective(ROWS), np.array([0.3, -1.0, 2.0, 0.1]), 1e-6
    likelihood = np.prod(np.where(ROWS.y == 1, expit(ROWS.x @ theta), expit(-ROWS.x @ theta)))
    np.testing.assert_allclose(objective.value(theta), -np.log(likelihood) + theta @ theta / 32)
    numeric = [
        (objective.value(theta + e) - objective.value(theta - e)) / (2 * h) for e in h * np.eye(4)
    ]
    np.testing.assert_allclose(objective.slope(theta), numeric, rtol=1e-6, atol=1e-8)
    course, least = optimiser._lbfgs(objective)
    assert np.all(np.diff(course.excess) <= 0) and course.excess[-1] == least


def test_adagrad_is_adagrad():
    theta, square = np.zeros(4), np.full(4, 0.1)
    for x, y in zip(*ROWS, strict=True):
        slope = (expit(x @ theta) - y) * x + theta / (16 * 30)
        square += slope**2
        theta = theta - 0.3 * slope / np.sqrt(square + 1e-7)
    with precision.matching_precision("float64"):
        import optax

        zero = jnp.zeros(4)
        state = zero, optax.adagrad(0.3).init(zero)
        reach = jnp.asarray(0), jnp.asarray(30)
        found = optimiser._descend(0.3, state, *map(jnp.asarray, ROWS), reach)[0]
    np.testing.assert_allclose(found, theta, rtol=1e-6)


@pytest.mark.slow(reason="compiles two streams and a descent")
def test_quick_figure():
    result = optimiser.figure_optimiser(True)
    assert len(result.claims) == 3
    found = [row for row in result.table if row["method"] == optimiser.FIVE]
    assert found[-1]["passes"] == 5 and found[-1]["excess"] >= 0
    result.draw()
