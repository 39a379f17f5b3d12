"""A stream of rows through a Bayesian logistic regression in one pass, and a picture of it.

The rows are generated, so the log loss of the true probabilities is known, and the excess of the posterior
over it is the price of learning. The picture also has a two-dimensional problem like those of figures 3-6
of the R-VGA paper, where the posterior can be drawn.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kalvi import plots
from kalvi.evaluation import metrics
from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli
from kalvi.numerics import precision
from kalvi.plots.maps import Ellipse, density_map
from kalvi.rules.laplace import laplace
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF, Implicit
from kalvi.streams import array_batches, datasets, run

DIM = 20
BLOCK_SIZE = 32
HELD_OUT = 20_000
PRIOR_STD = 3.0
PLANE = {"dim": 2, "n_samples": 60, "separation": 4.0, "decay": 1.0, "seed": 3}
PLANE_STD = 10.0
"""A nearly separable problem in two dimensions and its prior: a sharp, one-sided posterior."""

Progress = Callable[[int, float], None]


class Stream(NamedTuple):
    """Rows, labels, and the true probability of each label."""

    x: np.ndarray
    y: np.ndarray
    probability: np.ndarray


class Outcome(NamedTuple):
    """The result of one pass, and its speed."""

    rows: int
    seconds: float
    log_loss: float  # on new rows
    truth_loss: float  # of the true probabilities, on the same rows
    accuracy: float
    truth_accuracy: float
    calibration_error: float
    table: metrics.Calibration
    seen: np.ndarray  # rows seen at the times of `losses`
    losses: np.ndarray  # mean log loss so far, each row predicted before its label was seen
    truths: np.ndarray  # the truth's log loss on the same rows

    @property
    def rows_per_second(self) -> float:
        """The rows absorbed in a second, without compilation."""
        return self.rows / self.seconds


def generate(n_samples: int, seed: int) -> Stream:
    """`n_samples` rows for learning and HELD_OUT for testing, with labels from one coefficient vector."""
    if n_samples < 1:
        raise ValueError(f"the stream needs at least one row; got {n_samples}.")
    random = np.random.default_rng(seed)
    n_samples += HELD_OUT
    theta = random.normal(size=DIM) * 2 / np.sqrt(DIM)
    mixing = np.eye(DIM) + 0.4 * random.normal(size=(DIM, DIM)) / np.sqrt(DIM)
    x = random.normal(size=(n_samples, DIM)) @ mixing
    x[:, -1] = 1
    probability = 1 / (1 + np.exp(-x @ theta))
    return Stream(x, (random.random(n_samples) < probability).astype(float), probability)


def warm_up(stream: Stream) -> None:
    """Compile for every shape of the stream, so that the time of `learn` has no compilation."""
    n = _training_rows(stream)
    shapes: dict[tuple[int, ...], Batch] = {}
    with precision.matching_precision("float64"):
        for batch in array_batches(stream.x[:n], stream.y[:n], block_size=BLOCK_SIZE):
            shapes.setdefault(batch.y.shape, batch)
        run.fit(_rule(), _prior(), shapes.values())


def learn(stream: Stream, progress: Progress = lambda rows, loss: None) -> Outcome:
    """One pass over all rows except the last HELD_OUT; calls `progress(rows seen, progressive log
    loss)`."""
    n = _training_rows(stream)
    seen, losses = [], []

    def after_block(state):
        seen.append(int(state.rows))
        losses.append(-float(state.log_evidence) / seen[-1])
        progress(seen[-1], losses[-1])

    with precision.matching_precision("float64"):
        start = time.perf_counter()
        rows = array_batches(stream.x[:n], stream.y[:n], block_size=BLOCK_SIZE)
        state = run.fit(_rule(), _prior(), rows, after_block=after_block)
        seconds = time.perf_counter() - start
        probability = np.asarray(run.call(_predict, state.posterior, jnp.asarray(stream.x[n:])))
    return _outcome(stream, n, seconds, probability, np.array(seen), np.array(losses))


def draw(outcome: Outcome) -> plots.Figure:
    """A figure of the two-dimensional posterior, the reliability of the predictions, and the log loss over
    time."""
    x, y = datasets.two_classes(**PLANE)
    found = _plane(x, y)
    grid = density_map(
        lambda theta: _log_joint(x, y, theta), found["implicit"], [found["Laplace"], found["EKF"]]
    )
    table = outcome.table
    seen, losses, truths = (a[1:] for a in (outcome.seen / 1000, outcome.losses, outcome.truths))
    panels = [
        partial(plots.ellipses, grid, found, title="A posterior, and three Gaussians for it"),
        partial(
            plots.reliability,
            table.predicted,
            table.observed,
            table.count,
            title=f"Reliability on {HELD_OUT:,} new rows",
        ),
        partial(
            plots.lines,
            seen,
            {"the truth itself": truths, "one pass": losses},
            title="Mean log loss so far",
            xlabel="thousand rows",
            ylabel="nats per row",
        ),
    ]
    title = f"{outcome.rows:,} rows in one pass, {outcome.rows_per_second:,.0f} rows a second"
    return plots.compose([panels if len(seen) > 1 else panels[:2]], title=title, size=(15, 5.2))


def summary(outcome: Outcome) -> list[tuple[str, str]]:
    """The lines to print: names and values."""
    return [
        ("rows", f"{outcome.rows:,} of {DIM} features"),
        ("rows per second", f"{outcome.rows_per_second:,.0f} (compilation not counted)"),
        (
            "log loss, each row before its label",
            f"{outcome.losses[-1]:.4f}   (the truth itself: {outcome.truths[-1]:.4f})",
        ),
        (
            "log loss on new rows",
            f"{outcome.log_loss:.4f}   (the truth itself: {outcome.truth_loss:.4f})",
        ),
        (
            "accuracy on new rows",
            f"{outcome.accuracy:.4f}   (the truth itself: {outcome.truth_accuracy:.4f})",
        ),
        ("calibration error on new rows", f"{outcome.calibration_error:.4f}"),
    ]


def _rule() -> RVGA:
    return RVGA(Bernoulli(), block_size=BLOCK_SIZE)


def _prior() -> Dense:
    return Dense(jnp.zeros(DIM), PRIOR_STD**2 * jnp.eye(DIM))


def _training_rows(stream: Stream) -> int:
    return len(stream.y) - HELD_OUT


def _predict(posterior: Dense, x: jax.Array) -> jax.Array:
    mean, var = x @ posterior.mean, posterior.marginal_variance(x)
    return jax.vmap(lambda m, v: Bernoulli().predict(m, v)[0])(mean, var)


def _log_joint(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """log p(Y | θ) p₀(θ), up to a constant, at each row of θ."""
    log_likelihood = -np.sum(np.logaddexp(0, (1 - 2 * y) * (theta @ x.T)), axis=1)
    return log_likelihood - np.sum(theta**2, axis=1) / (2 * PLANE_STD**2)


def _plane(x: np.ndarray, y: np.ndarray) -> dict[str, Ellipse]:
    """Implicit R-VGA, EKF and Laplace on the two-dimensional problem."""
    likelihood = Bernoulli()
    with precision.matching_precision("float64"):
        batch = Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(len(y)))
        prior = Dense(jnp.zeros(2), PLANE_STD**2 * jnp.eye(2))
        found = {
            name: run.fit(RVGA(likelihood, scheme, block_size=1), prior, [batch]).posterior
            for name, scheme in (("implicit", Implicit()), ("EKF", EKF()))
        }
        found["Laplace"] = run.call(laplace, likelihood, prior, batch).posterior
        return {
            name: (np.asarray(q.mean), np.asarray(q.matvec(jnp.eye(2))))
            for name, q in found.items()
        }


def _outcome(stream, n_samples, seconds, probability, seen, losses) -> Outcome:
    y, truth = stream.y[n_samples:], stream.probability[n_samples:]
    surprise = -np.log(np.where(stream.y == 1, stream.probability, 1 - stream.probability))
    return Outcome(
        rows=n_samples,
        seconds=seconds,
        log_loss=metrics.log_loss(probability, y),
        truth_loss=metrics.log_loss(truth, y),
        accuracy=float(np.mean((probability > 0.5) == y)),
        truth_accuracy=float(np.mean((truth > 0.5) == y)),
        calibration_error=metrics.calibration_error(probability, y),
        table=metrics.calibration(probability, y),
        seen=seen,
        losses=losses,
        truths=np.cumsum(surprise)[seen - 1] / seen,
    )
