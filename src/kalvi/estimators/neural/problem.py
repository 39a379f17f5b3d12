"""A network to be trained, with what the methods share: training, and batches of rows."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from tqdm import tqdm

from kalvi.gaussians import Dense, LowRankPrecision
from kalvi.predictors.models import Model
from kalvi.predictors.networks import Perceptron
from kalvi.rules import evidence
from kalvi.rules.base import Batch
from kalvi.rules.training import Training, TrainingState
from kalvi.streams import run


class NetworkProblem(NamedTuple):
    """A network, the rows to learn from, and the settings of the training."""

    perceptron: Perceptron
    likelihood: Any
    batch: Batch  # padded to whole batches
    n_samples: float
    batch_size: int
    epochs: int
    rate: float
    rank: int | None  # None for a full covariance
    learn_prior: bool
    learn_noise: bool
    prior_precision: float
    members: int
    dtype: np.dtype
    key: PRNGKeyArray
    verbose: bool

    def start(self, member: int = 0) -> tuple[Model, Array]:
        """The model, and random parameters."""
        network, theta = self.perceptron.network(jr.fold_in(self.key, member), self.dtype)
        return Model(network, self.likelihood), theta

    def prior(self, mean: Array, precision: Array) -> Dense | LowRankPrecision:
        """A Gaussian with these precisions, in the structure for the rank."""
        if self.rank is None:
            return Dense.from_root(mean, jnp.diag(1 / jnp.sqrt(precision)))
        factor = jnp.zeros((len(mean), self.rank), mean.dtype)
        return LowRankPrecision(mean, factor, precision)

    def first_hyper(self, model: Model, theta: Array) -> evidence.PriorAndNoise:
        """The first prior precisions and noise."""
        alpha = jnp.full_like(theta, self.prior_precision)
        noise = model.noise_variance()
        noise = jnp.ones(1, theta.dtype) if noise is None else noise.astype(theta.dtype)
        return evidence.PriorAndNoise(alpha, noise, jnp.zeros((), theta.dtype))

    def training(self, model: Model, hyper: evidence.PriorAndNoise) -> Training:
        """The rule that trains the network."""
        steps = self.epochs * (len(self.batch.weight) // self.batch_size)
        return Training(
            model,
            self.n_samples,
            hyper.prior_precision,
            rate=self.rate,
            horizon=float(max(steps, 1)),
            batch_size=self.batch_size,
        )

    def train(
        self, rule: Training, state: TrainingState, first: int, n: int, bar: tqdm
    ) -> TrainingState:
        """The state after n more epochs, of which the first has number `first`."""

        def shown(_: Any) -> None:
            bar.update()

        key = jr.fold_in(self.key, 2**20)
        return run.resume(
            rule, state, [self.batch] * n, key=key, first_block=first, after_block=shown
        )

    def blocks(self, size: int, bar: tqdm | None = None) -> Iterator[Batch]:
        """All rows, `size` of them at a time; the last block is padded."""
        for first in range(0, len(self.batch.weight), size):
            part = [a[first : first + size] for a in self.batch[:3]]
            short = size - len(part[2])
            yield Batch(*(jnp.pad(a, [(0, short)] + [(0, 0)] * (a.ndim - 1)) for a in part))
            if bar is not None:
                bar.update(size - short)

    def draw(self, size: int, many: int, key: PRNGKeyArray) -> Iterator[Batch]:
        """Random batches of rows."""
        real = np.flatnonzero(np.asarray(self.batch.weight) > 0)  # the others are padding
        rng = np.random.default_rng(np.asarray(jr.key_data(key)))
        for _ in range(many):
            few = len(real) < size
            which = real[rng.integers(0, len(real), size)] if few else rng.permutation(real)[:size]
            yield Batch(*(a[which] for a in self.batch[:3]))

    def progress(self, total: int, unit: str = " epochs") -> tqdm:
        """A progress bar, if `verbose`."""
        return tqdm(total=total, unit=unit, disable=not self.verbose)


class LearnedNetwork(NamedTuple):
    """A fitted model with its posterior and its evidence."""

    model: Model
    posterior: Any  # a Gaussian, or a mixture of them
    prior_precision: np.ndarray
    elbo: float | None
    state: Any = None  # of a stream that can continue

    def is_finite(self) -> bool:
        """Whether the posterior and the noise are finite."""
        noise = self.model.noise_variance()
        numbers = [self.posterior.mean, self.posterior.variance()]
        numbers += [] if noise is None else [noise]
        return all(np.all(np.isfinite(np.asarray(a))) for a in numbers)

    def complaints(self, learned_noise: bool) -> list[str]:
        """Warnings about the fit, as sentences."""
        found, noise = [], self.model.noise_variance()
        unsolved = 0 if self.state is None else int(self.state.unsolved)
        if unsolved:
            found.append(f"the implicit equations of {unsolved} rows were not solved to precision.")
        if learned_noise and noise is not None and np.any(noise <= evidence.SMALLEST_NOISE):
            found.append(
                "the network fits y exactly, so the noise cannot be learned and is taken as "
                f"{np.sqrt(evidence.SMALLEST_NOISE):g} deviations of y; give noise_scale= if it is known."
            )
        return found
