"""Resident memory of a step of every method, for networks of up to a million parameters, in float32.

One hidden layer on 998 inputs, batches of 8 rows. Each measurement is a process of its own; what it took at
most over what there was before, the compiler's own memory included. The last column has the growth with
d over that of W, the d x rank numbers of a posterior: constant where memory is linear.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import kalvi
from benchmarks.memory import apart, forget_peak, peak, resident
from kalvi.gaussians import LowRankPrecision
from kalvi.likelihoods import Normal
from kalvi.predictors.models import Model
from kalvi.predictors.networks import Perceptron
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA
from kalvi.rules.vifa import VIFA, GaussNewton, PrecisionVI
from kalvi.streams import run

RANK, ROWS, INPUTS, STEPS = 20, 8, 998, 4
WIDTHS, QUICK_WIDTHS = (250, 500, 1000), (50, 100)
METHODS = ("VIFA", "VIFA, Gauss-Newton", "PrecisionVI", "RVGA", "SWAG", "FA-SWAG")
COLLECTED = {"SWAG": "swag", "FA-SWAG": "fa"}


def network_memory(report, quick):
    """A table of methods and sizes."""
    report.heading(f"Memory of a step, rank {RANK}, batches of {ROWS} rows, float32")
    widths = QUICK_WIDTHS if quick else WIDTHS
    dims = [_shape(width).n_parameters() for width in widths]
    sizes = np.array(dims) * RANK * 4e-6
    lines = []
    for method in METHODS:
        most = np.array([apart(measure, method, width) for width in widths])
        growth = (most[-1] - most[0]) / (sizes[-1] - sizes[0])
        lines.append([method, *(f"{mb:.0f}" for mb in most), f"{growth:.1f}"])
    lines.append(["W", *(f"{mb:.0f}" for mb in sizes), "1"])
    report.table(["MB", *(f"d = {d:,}" for d in dims), "growth / W"], lines)


def measure(method: str, width: int) -> float:
    """The MB that some steps took at most."""
    jax.block_until_ready(jnp.zeros(8) + 1)
    forget_peak()
    before = resident()
    predictor, theta = _shape(width).network(jr.key(0), jnp.float32)
    if method in COLLECTED:
        collector = kalvi.networks.Collector(COLLECTED[method], rank=RANK)
        for number in range(STEPS + RANK):
            collector.collect(np.asarray(theta) + np.float32(0.01 * number))
        jax.block_until_ready(collector._state)
        return peak() - before
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, INPUTS)), rng.normal(size=ROWS)
    batch = Batch(*(jnp.asarray(a, jnp.float32) for a in (x, y, np.ones(ROWS))))
    rule, prior = _rule(method, Model(predictor, Normal(0.1)), theta, batch)
    state = rule.init(prior)
    del prior
    jax.block_until_ready(run.resume(rule, state, [batch] * STEPS, key=jr.key(1)))
    return peak() - before


def _rule(method: str, model: Model, theta, batch: Batch):
    """The rule, and what it starts from."""
    if method.startswith("VIFA"):
        rule = VIFA(model, 1e4, INPUTS)
        if method != "VIFA":
            rule = VIFA(model, 1e4, INPUTS, estimator=GaussNewton())
        return rule, run.call(_start, rule, theta, batch)
    prior = LowRankPrecision(
        theta, jnp.zeros((len(theta), RANK), theta.dtype), jnp.full_like(theta, INPUTS)
    )
    if method == "PrecisionVI":
        return PrecisionVI(model, 1e4, INPUTS), prior
    one_pass = RVGA(model.likelihood, predictor=model.predictor, look_ahead=1, block_size=ROWS)
    return one_pass, prior


def _start(rule: VIFA, theta, batch: Batch):
    return rule.start(theta, RANK, batch, key=jr.key(2))


def _shape(width: int) -> Perceptron:
    return Perceptron((INPUTS, width, 1), jnp.tanh)
