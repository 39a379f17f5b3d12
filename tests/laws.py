"""Checks that any structure, likelihood or scheme can be put through."""

import equinox as eqx
import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from kalvi.gaussians import Gaussian
from tests.problems import batch


@eqx.filter_jit
def absorb(rule, state, rows):
    return rule.update(state, rows)


def stream(rule, prior, x, y, weight=None, dtype=np.float64):
    """The state of a streaming rule after all rows."""
    return absorb(rule, rule.init(prior), batch(x, y, weight, dtype))


def same_gaussian(q: Gaussian, mean, cov, rtol=1e-9):
    """The Gaussian has this mean and covariance, errors measured in its own standard deviations."""
    std = np.sqrt(np.diag(cov))
    assert_close(np.asarray(q.mean) / std, np.asarray(mean) / std, rtol)
    found = np.asarray(q.covariance.to_dense())
    assert_close(found / np.outer(std, std), np.asarray(cov) / np.outer(std, std), rtol)


def assert_close(actual, desired, rtol):
    """Equal up to rtol, relative or (near zero) absolute."""
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=rtol)


def same_state(first, second, rtol):
    """Two states of a stream agree in everything they hold."""
    same_gaussian(
        first.posterior, second.posterior.mean, second.posterior.covariance.to_dense(), rtol
    )
    assert_close(first.log_evidence, second.log_evidence, rtol * 10)
    assert_close(first.rows, second.rows, rtol)
    assert_close(first.innovations, second.innovations, rtol * 10)
    assert (int(first.unsolved), int(first.clipped)) == (int(second.unsolved), int(second.clipped))


def positive_definite(q: Gaussian, tolerance=0.0):
    """Mean and covariance are finite, and the correlation matrix has no eigenvalue below tolerance."""
    mean, cov = np.asarray(q.mean, np.float64), np.asarray(q.covariance.to_dense(), np.float64)
    assert np.all(np.isfinite(mean)) and np.all(np.isfinite(cov))
    std = np.sqrt(np.diag(cov))
    assert np.all(std > 0)
    assert np.linalg.eigvalsh(cov / np.outer(std, std))[0] > -tolerance


def largest_array(fn, *args) -> int:
    """The number of entries of the largest array in a computation, inner loops included."""
    return max(_sizes(jax.make_jaxpr(fn)(*args).jaxpr))


def _sizes(jaxpr: Jaxpr):
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            yield int(np.prod(getattr(variable.aval, "shape", ())))
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda v: isinstance(v, Jaxpr | ClosedJaxpr)
        ):
            if isinstance(value, ClosedJaxpr):
                yield from _sizes(value.jaxpr)
            elif isinstance(value, Jaxpr):
                yield from _sizes(value)
