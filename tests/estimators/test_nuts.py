"""Posteriors against NUTS, which shares nothing with them, on real data."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kalvi

DRAWS, BURN, CHAINS = 1200, 200, 4


def table(data, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised features and 0/1 labels of a stored set, at most 2000 rows of it."""
    with np.load(data / f"{name}.npz") as file:
        x, y = file["X"].astype(float)[:2000], file["y"][:2000]
    return (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1), (y == y.max()).astype(float)


def nuts(x: np.ndarray, y: np.ndarray, near: kalvi.Gaussian) -> np.ndarray:
    """Draws from the exact posterior; `near` only sets the scale of the coordinates."""
    design = jnp.asarray(np.column_stack([x, np.ones(len(x))]))
    deviations = jnp.asarray([1.0] * x.shape[1] + [10.0])
    root = jnp.linalg.cholesky(near.to_dense().cov)

    def log_density(u):
        theta = near.mean + root @ u
        fit = jnp.sum(jax.nn.log_sigmoid(jnp.asarray(2 * y - 1) * (design @ theta)))
        return fit - jnp.sum((theta / deviations) ** 2) / 2

    dim = design.shape[1]
    sampler = blackjax.nuts(log_density, step_size=0.35, inverse_mass_matrix=jnp.ones(dim))

    def chain(key):
        def step(state, key):
            state, _ = sampler.step(key, state)
            return state, state.position

        return jax.lax.scan(step, sampler.init(jnp.zeros(dim)), jax.random.split(key, DRAWS))[1]

    draws = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), CHAINS))
    return np.asarray(near.mean) + np.asarray(draws[:, BURN:].reshape(-1, dim) @ root.T)


@pytest.mark.slow(reason="samples with NUTS")
@pytest.mark.filterwarnings("ignore")  # of the sampler's own
@pytest.mark.parametrize("name", ["weather_noaa", "sonar", "ionosphere"])
def test_fit_agrees_with_nuts(data, name, record_property):
    x, y = table(data, name)
    model = kalvi.LogisticRegression().fit(x, y)
    draws = nuts(x, y, model.posterior_)
    mean_gap = np.abs(np.asarray(model.posterior_.mean) - draws.mean(0)) / draws.std(0)
    std_ratio = np.sqrt(np.asarray(model.posterior_.variance())) / draws.std(0)
    one_pass = kalvi.LogisticRegression(passes=1).fit(x, y).posterior_
    away = np.abs(np.asarray(one_pass.mean) - draws.mean(0)) / draws.std(0)
    record_property("one_pass_mean_gap_in_deviations", float(np.max(away)))
    assert np.max(mean_gap) < 0.1
    assert np.max(np.abs(std_ratio - 1)) < 0.1
