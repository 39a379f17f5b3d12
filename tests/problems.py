"""Small data sets with fixed seeds, as NumPy arrays."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy import special

from kalvi.rules.rule import Batch


class Problem(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    mean: np.ndarray  # of the prior
    cov: np.ndarray


def _prior(rng, d):
    root = rng.normal(size=(d, d)) / np.sqrt(d) + np.eye(d)
    return rng.normal(size=d) / 2, root @ root.T


def linear(n=40, d=4, variance=0.5, seed=0) -> Problem:
    rng = np.random.default_rng(seed)
    x, theta = rng.normal(size=(n, d)), rng.normal(size=d)
    return Problem(x, x @ theta + np.sqrt(variance) * rng.normal(size=n), *_prior(rng, d))


def binary(n=40, d=4, seed=1) -> Problem:
    rng = np.random.default_rng(seed)
    x, theta = rng.normal(size=(n, d)), rng.normal(size=d)
    y = (rng.uniform(size=n) < special.expit(x @ theta)).astype(float)
    return Problem(x, y, *_prior(rng, d))


def counts(n=40, d=4, seed=2) -> Problem:
    rng = np.random.default_rng(seed)
    x, theta = rng.normal(size=(n, d)) / 2, rng.normal(size=d)
    return Problem(x, rng.poisson(np.exp(x @ theta)).astype(float), *_prior(rng, d))


def spd(rng, d, spread=2.0):
    """A random covariance with eigenvalues between e^−spread and e^spread."""
    vectors = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (vectors * np.exp(rng.uniform(-spread, spread, d))) @ vectors.T


def batch(x, y, weight=None, dtype=np.float64) -> Batch:
    weight = np.ones(len(y)) if weight is None else weight
    return Batch(*(jnp.asarray(a, dtype) for a in (x, y, weight)))
