"""Smooth binary factorisation as a user of NumPyro would write it: a model, AutoNormal, Adam.

The paths are non-centred: standard normal innovations z, u_r = π_r u_{r−1} + √(1 − π_r²) z_r, scaled and
shifted; hyperparameters have wide priors and are learned with the rest. The guide is one Gaussian for every
innovation, which cannot see how neighbours go together after the data are in. One sample of the gradient
a step; the whole chunk of steps is one compiled scan.
"""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kalvi.evaluation import metrics
from papers.silk_data import Matrix

RATE, CHUNK, SAMPLES = 0.01, 500, 200


class Fit(NamedTuple):
    """Probabilities of the hidden entries, and after every chunk: seconds of steps, the loss, the ELBO."""

    probability: np.ndarray
    seconds: np.ndarray
    losses: np.ndarray
    elbos: np.ndarray
    compilation: float


def auto_normal(
    matrix: Matrix, k: int, *, steps: int, seed: int, rate: float = RATE, chunk: int = CHUNK
) -> Fit:
    """SVI for `steps` steps; what is predicted is judged after every chunk, outside the clock."""
    key, spent, rows, probability = jax.random.key(seed), 0.0, [], None
    with jax.numpy_rank_promotion("allow"):  # NumPyro relies on it
        start, advance, predict = _compiled(matrix, k, rate, chunk)
        state = start(key)
        began = time.process_time()
        advance = advance.lower(state).compile()
        compilation = time.process_time() - began
        for _ in range(steps // chunk):
            began = time.process_time()
            state, losses = jax.block_until_ready(advance(state))
            spent += time.process_time() - began
            probability = np.asarray(predict(state, key), float)
            loss = metrics.log_loss(probability, matrix.answers)
            rows.append((spent, loss, -float(losses[-chunk // 5 :].mean())))
    assert probability is not None, "steps must be at least chunk"
    seconds, losses, elbos = np.array(rows).T
    return Fit(probability, seconds, losses, elbos, compilation)


def _compiled(matrix: Matrix, k: int, rate: float, chunk: int) -> tuple[Any, Any, Any]:
    """The start, a chunk of steps, and the probabilities of the hidden entries."""
    numpyro = _numpyro()
    sides = tuple(map(_gaps, (matrix.row_locations, matrix.col_locations)))
    data = jnp.asarray(matrix.x, jnp.float32), jnp.asarray(matrix.seen)
    where = tuple(map(jnp.asarray, np.nonzero(matrix.hidden)))
    guide = numpyro.infer.autoguide.AutoNormal(
        _model, init_loc_fn=numpyro.infer.init_to_sample, init_scale=0.1
    )
    svi = numpyro.infer.SVI(_model, guide, numpyro.optim.Adam(rate), numpyro.infer.Trace_ELBO())

    def advance(state):
        def step(state, _):
            return svi.update(state, sides, *data, k)

        return jax.lax.scan(step, state, None, length=chunk)

    def predict(state, key):
        params = svi.get_params(state)
        draws = guide.sample_posterior(key, params, sample_shape=(SAMPLES,))
        return jax.lax.map(lambda d: _probability(d, sides, where), draws).mean(axis=0)

    return lambda key: svi.init(key, sides, *data, k), jax.jit(advance), jax.jit(predict)


def _numpyro():
    try:
        import numpyro
        import numpyro.infer.autoguide
    except ImportError as error:
        raise ImportError(
            "this comparison needs NumPyro: pip install 'kalvi[experiments]'."
        ) from error
    return numpyro


def _gaps(locations: np.ndarray | None) -> jnp.ndarray:
    assert locations is not None
    return jnp.asarray(np.diff(locations), jnp.float32)


def _model(sides, x, seen, k):
    import numpyro
    from numpyro import distributions as dist

    factors = []
    for name, gaps in zip(("row", "col"), sides, strict=True):
        usual = -jnp.log(jnp.median(gaps))
        mean = numpyro.sample(f"{name}_mean", dist.Normal(0, 3).expand([k]).to_event(1))
        scale = numpyro.sample(f"{name}_scale", dist.LogNormal(0, 1).expand([k]).to_event(1))
        rate = numpyro.sample(f"{name}_rate", dist.LogNormal(usual, 3).expand([k]).to_event(1))
        shape = (len(gaps) + 1, k)
        noise = numpyro.sample(f"{name}_noise", dist.Normal().expand(shape).to_event(2))
        factors.append(_paths(noise, mean, scale, rate, gaps))
    log_odds = factors[0] @ factors[1].T
    with numpyro.handlers.mask(mask=seen):
        numpyro.sample("x", dist.Bernoulli(logits=log_odds), obs=x)


def _paths(noise, mean, scale, rate, gaps):
    stay = jnp.exp(-rate * gaps[:, None] / 2)
    fresh = jnp.sqrt(-jnp.expm1(-rate * gaps[:, None]))

    def step(before, given):
        noise, stay, fresh = given
        now = stay * before + fresh * noise
        return now, now

    first = noise[0]
    rest = jax.lax.scan(step, first, (noise[1:], stay, fresh))[1]
    return mean + scale * jnp.concatenate([first[None], rest])


def _probability(draw, sides, where):
    def paths(name, gaps):
        noise, mean, scale, rate = (draw[f"{name}_{p}"] for p in ("noise", "mean", "scale", "rate"))
        return _paths(noise, mean, scale, rate, gaps)

    u, v = paths("row", sides[0]), paths("col", sides[1])
    return jax.nn.sigmoid(jnp.sum(u[where[0]] * v[where[1]], axis=1))
