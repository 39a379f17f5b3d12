"""A 784-128-10 tanh network on MNIST: the rows, a trained point, posteriors about it, one pass, and scores.

Read from `$KALVI_DATA/mnist.npz` (X, y and split, 0 for training). Pixels are centred and scaled by one
number each. Inputs unlike the digits: the digits turned by 90°, and pixels drawn uniformly.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from kalvi.collectors import Collector
from kalvi.evaluation import metrics
from kalvi.evaluation.predictions import ensemble, linearised
from kalvi.gaussians import LowRankPrecision
from kalvi.likelihoods.vector import Softmax
from kalvi.predictors.models import Model
from kalvi.predictors.networks import Perceptron
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF
from kalvi.streams import run

RANK, BLOCK, POINTS, DRAWS = 20, 8, 512, 30
EPOCHS, BATCH, RATE, PRIOR = 20, 256, 2e-3, 1.0
"""Of Adam, for the point estimate, whose rate falls along a cosine; and the prior precision."""
CALM, COLLECTED, BETWEEN = 1.0, 60, 12_800
"""Iterates are collected at this share of the rate, so many of them, after so many rows each."""
STRANGE = 500
"""Inputs of each kind that are unlike the digits."""


class Digits(NamedTuple):
    """Standardised images and labels, and images that are no digits."""

    x: np.ndarray
    y: np.ndarray
    new_x: np.ndarray
    new_y: np.ndarray
    turned: np.ndarray
    noise: np.ndarray


class Quality(NamedTuple):
    """Of predicted probabilities; entropies in nats."""

    accuracy: float
    log_loss: float
    calibration_error: float
    entropy: float
    turned: float
    noise: float


def digits(tested: int = 10_000) -> Digits:
    """The rows in a fixed random order, and the first so many of those for tests."""
    stored = np.load(Path(os.environ["KALVI_DATA"]) / "mnist.npz")
    raw, y, new = stored["X"], stored["y"].astype(np.float32), stored["split"] == 1
    mean, std = np.float32(raw[~new].mean()), np.float32(raw[~new].std())
    rng = np.random.default_rng(0)
    order = rng.permutation(np.flatnonzero(~new))
    turned = np.rot90(raw[new][:STRANGE].reshape(-1, 28, 28), axes=(1, 2)).reshape(-1, 784)
    noise = rng.integers(0, 256, size=(STRANGE, 784))
    images = [(a.astype(np.float32) - mean) / std for a in (raw[order], raw[new], turned, noise)]
    return Digits(images[0], y[order], images[1][:tested], y[new][:tested], *images[2:])


def network() -> tuple[Perceptron, Model, jax.Array]:
    """The shape, the model and random parameters."""
    shape = Perceptron((784, 128, 10), jnp.tanh)
    predictor, theta = shape.network(jr.key(0), jnp.float32)
    return shape, Model(predictor, Softmax(10, POINTS)), theta


def trained(model: Model, theta, rows: Digits, epochs: int = EPOCHS):
    """The rule of training, and the parameters that it leads to."""
    from kalvi.rules.training import Training  # needs Optax, which the one pass does not

    n = len(rows.y) // BATCH * BATCH
    rule = Training(
        model, float(n), PRIOR, rate=RATE, horizon=float(epochs * n // BATCH), batch_size=BATCH
    )
    whole = _batch(rows.x[:n], rows.y[:n])
    state = run.resume(rule, rule.init(theta), [whole] * epochs, key=jr.key(1))
    return rule, jax.block_until_ready(state.theta)


def collected(rule, theta, rows: Digits, methods: tuple[str, ...], count: int = COLLECTED):
    """The posteriors of iterates at a constant rate, and the CPU seconds spent on collecting them."""
    calm = eqx.tree_at(lambda r: r.rate, rule, CALM * rule.rate)
    calm = eqx.tree_at(lambda r: r.horizon, calm, None)
    collectors = {name: Collector(name, rank=RANK) for name in methods}
    spent = dict.fromkeys(methods, 0.0)
    state, size = calm.init(theta), min(BETWEEN, len(rows.y) // BATCH * BATCH)
    for number in range(count):
        first = number * size % (len(rows.y) - size + 1)
        part = _batch(rows.x[first : first + size], rows.y[first : first + size])
        state = run.resume(calm, state, [part], key=jr.key(2), first_block=number)
        iterate = np.asarray(state.theta)
        for name, collector in collectors.items():
            start = time.process_time()
            collector.collect(iterate)
            jax.block_until_ready(collector._state)
            spent[name] += time.process_time() - start
    return {name: collector.posterior for name, collector in collectors.items()}, spent


def one_pass(
    model: Model, shape: Perceptron, theta, rows: Digits, chunk: int, after=None, directions=None
):
    """L-RVGA over the rows once, from the prior that the parameters were drawn from."""
    alpha = jnp.asarray(shape.fan_in(), jnp.float32)
    prior = LowRankPrecision(theta, jnp.zeros((len(theta), RANK), jnp.float32), alpha)
    rule = RVGA(
        model.likelihood,
        EKF(),
        predictor=model.predictor,
        block_size=BLOCK,
        directions=directions,
    )
    state = rule.init(prior)
    for first in range(0, len(rows.y) - chunk + 1, chunk):
        part = _batch(rows.x[first : first + chunk], rows.y[first : first + chunk])
        state = run.resume(rule, state, [part])
        if after is not None:
            jax.block_until_ready(state)
            after(first + chunk, state)
    return state


def point_probabilities(model: Model, theta, x, block: int = 1000) -> np.ndarray:
    """Of the network with these parameters."""
    return _in_blocks(lambda part: run.call(ensemble, model, theta[None, :], part).mean, x, block)


def drawn_probabilities(model: Model, q, x, block: int = 1000) -> np.ndarray:
    """Averaged over draws of the parameters."""
    draws = q.sample(jr.key(3), DRAWS)
    return _in_blocks(lambda part: run.call(ensemble, model, draws, part).mean, x, block)


def linearised_probabilities(model: Model, q, x, block: int = 8) -> np.ndarray:
    """Integrals over the predictors of the network made linear at the mean."""
    return _in_blocks(lambda part: run.call(linearised, model, q, part).mean, x, block)


def quality(probabilities, rows: Digits) -> Quality:
    """Scores on the test rows, and entropies; `probabilities` is a function of inputs."""
    p, label = probabilities(rows.new_x), rows.new_y.astype(int)
    right = p.argmax(axis=1) == label
    tiny = np.finfo(np.float32).tiny
    return Quality(
        float(right.mean()),
        float(-np.mean(np.log(np.maximum(p[np.arange(len(p)), label], tiny)))),
        metrics.calibration_error(p.max(axis=1), right, bins=15),
        *(_entropy(part) for part in (p, probabilities(rows.turned), probabilities(rows.noise))),
    )


def _entropy(p: np.ndarray) -> float:
    return float(-np.mean(np.sum(p * np.log(np.maximum(p, 1e-12)), axis=1)))


def _in_blocks(probabilities, x: np.ndarray, size: int) -> np.ndarray:
    parts = []
    for first in range(0, len(x), size):
        part = x[first : first + size]
        padded = jnp.asarray(np.pad(part, [(0, size - len(part)), (0, 0)]))
        parts.append(np.asarray(probabilities(padded))[: len(part)])
    p = np.clip(np.concatenate(parts).astype(float), 0, None)
    return p / p.sum(axis=1, keepdims=True)


def _batch(x: np.ndarray, y: np.ndarray) -> Batch:
    return Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(len(y), jnp.float32))
