"""Gaussian process posteriors against NUTS and expectation propagation, on real data."""

from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import kalvi
from kalvi import kernels
from papers import klprox_references as references
from papers.datasets import load

pytestmark = [
    pytest.mark.slow(reason="samples hundreds of latents with NUTS"),
    pytest.mark.filterwarnings("ignore"),  # of the sampler's own
]

DRAWS, BURN, CHAINS = 2000, 400, 4
MOST_ROWS = 300
SCALE = 0.3  # of the Laplace noise
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)


class Case(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    x_new: np.ndarray
    y_new: np.ndarray


def halves(name: str) -> Case:
    """Standardised inputs, labels 0 and 1 or a standardised target; every other row is held out."""
    stored = load(name)
    some = np.random.default_rng(0).permutation(len(stored["y"]))[:MOST_ROWS]
    x, y = np.asarray(stored["X"], float)[some], np.asarray(stored["y"], float)[some]
    x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)
    y = (y - y.mean()) / y.std() if name == "housing" else (y == y.max()).astype(float)
    return Case(x[::2], y[::2], x[1::2], y[1::2])


def gram(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """4 exp(−d²/(2 D)) for D inputs."""
    square = ((x[:, None] - z[None]) ** 2).sum(axis=-1)
    return 4 * np.exp(-square / (2 * x.shape[1]))


def log_likelihood(name: str, y, f):
    if name == "housing":
        return -jnp.abs(y - f) / SCALE - float(np.log(2 * SCALE))
    return jax.nn.log_sigmoid((2 * y - 1) * f)


def nuts(name: str, case: Case, curvature: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Draws of the latents; a Gaussian near their law only sets the scale of the coordinates."""
    n = len(case.y)
    root = np.linalg.cholesky(gram(case.x, case.x) + 1e-8 * np.eye(n))
    centre = np.linalg.solve(root, mean)
    precision = np.eye(n) + root.T @ (curvature[:, None] * root)
    scale = jnp.asarray(np.linalg.inv(np.linalg.cholesky(precision)).T)
    paths, y = jnp.asarray(root), jnp.asarray(case.y)

    def log_density(u):
        a = centre + scale @ u
        return jnp.sum(log_likelihood(name, y, paths @ a)) - jnp.sum(a**2) / 2

    sampler = blackjax.nuts(log_density, step_size=0.3, inverse_mass_matrix=jnp.ones(n))

    def chain(key):
        def step(state, key):
            state, _ = sampler.step(key, state)
            return state, state.position

        return jax.lax.scan(step, sampler.init(jnp.zeros(n)), jax.random.split(key, DRAWS))[1]

    draws = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), CHAINS))
    kept = np.asarray(draws[:, BURN:].reshape(-1, n))
    return (centre + kept @ np.asarray(scale).T) @ root.T


def log_loss(name: str, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> float:
    """−E log p(y) of new rows; mean is (rows,) or, for a mixture, (draws, rows)."""
    f = np.atleast_2d(mean)[..., None] + np.sqrt(np.maximum(var, 0))[:, None] * NODES
    values = np.asarray(log_likelihood(name, y[:, None], f))
    inside = special.logsumexp(values, axis=-1, b=WEIGHTS / WEIGHTS.sum())
    return -float(np.mean(special.logsumexp(inside, axis=0) - np.log(len(inside))))


@pytest.mark.parametrize("name", ["ionosphere", "sonar", "housing"])
@pytest.mark.usefixtures("data")
def test_latents_agree_with_nuts_and_predictions_with_ep(name, record_property):
    case = halves(name)
    prior = {"kernel": 4 * kernels.RBF(np.sqrt(case.x.shape[1])), "optimizer": None, "mean": 0.0}
    if name == "housing":
        model = kalvi.GaussianProcessRegressor(likelihood=kalvi.likelihoods.Laplace(SCALE), **prior)
        tilted = references.tilted_laplace(SCALE)
    else:
        model, tilted = kalvi.GaussianProcessClassifier(**prior), references.tilted_logistic
    model.fit(case.x, case.y)
    mean, std = model.predict_latent(case.x)
    curvature = np.asarray(model.fits_[0].found.sites.curvature)[: len(case.y)]
    draws = nuts(name, case, curvature, mean)
    away = (mean - draws.mean(0)) / draws.std(0)
    ratio = std / draws.std(0)

    cov, cross = gram(case.x, case.x), gram(case.x_new, case.x)
    solved = np.linalg.solve(cov + 1e-8 * np.eye(len(cov)), cross.T)
    left = 4 - np.einsum("ij,ji->i", cross, solved)
    ep = references.ep(tilted, cov, case.y)
    s = np.sqrt(ep.curvature)
    lost = np.linalg.solve(np.eye(len(s)) + s[:, None] * cov * s, s[:, None] * cross.T)
    ep_var = 4 - np.einsum("ij,ji->i", cross * s, lost)
    ours = model.predict_latent(case.x_new)
    losses = {
        "klprox": log_loss(name, case.y_new, ours[0], ours[1] ** 2),
        "ep": log_loss(name, case.y_new, cross @ ep.coefficients, ep_var),
        "nuts": log_loss(name, case.y_new, draws[::20] @ solved, left),
    }
    ep_away = (ep.mean - draws.mean(0)) / draws.std(0)
    figures = {
        "largest_mean_error": np.max(np.abs(away)),
        "mean_error": np.sqrt(np.mean(away**2)),
        "least_ratio": ratio.min(),
        "ratio": ratio.mean(),
        "ep_mean_error": np.sqrt(np.mean(ep_away**2)),
        "ep_ratio": np.mean(np.sqrt(ep.var) / draws.std(0)),
        **losses,
    }
    for key, value in figures.items():
        record_property(key, float(value))
    print({key: round(float(value), 4) for key, value in figures.items()})
    assert figures["mean_error"] < 0.15
    assert 0.9 < figures["ratio"] < 1.02
    assert losses["klprox"] < losses["ep"] + 0.01
