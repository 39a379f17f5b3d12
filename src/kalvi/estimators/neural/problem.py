"""A network to be trained, with what the methods share: training, and batches of rows."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from tqdm import tqdm

from kalvi.gaussians import Dense, LowRankPrecision
from kalvi.numerics.interpreter import interpret
from kalvi.numerics.namespaces import AnyArray, is_jax, namespace_of, on_host
from kalvi.predictors.models import Model
from kalvi.predictors.networks import Perceptron, make_network
from kalvi.rules import evidence
from kalvi.rules.rule import Batch
from kalvi.rules.training import Training, TrainingState
from kalvi.streams import engines, run


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
    seed: int
    verbose: bool

    @property
    def key(self) -> PRNGKeyArray:
        """The random key of the training."""
        return jr.key(self.seed)

    def on_host(self) -> "NetworkProblem":
        """The problem with NumPy arrays, unless its rows are on an accelerator."""
        rows, likelihood = on_host((self.batch, self.likelihood))
        return self._replace(batch=rows, likelihood=likelihood)

    def place(self, tree: Any) -> Any:
        """The tree with arrays of NumPy or JAX, like those of this problem."""
        return engines.placed(tree, not is_jax(self.batch.weight))

    def start(self, member: int = 0) -> tuple[Model, AnyArray]:
        """The model, and random parameters."""
        # by NumPy, because compiling the draws of each layer takes far longer than making them
        params = interpret(_draw_parameters, self.perceptron, self.seed, member, self.dtype)
        example = np.zeros(self.perceptron.sizes[0], self.dtype)
        network, theta = make_network(self.perceptron, params, example)
        return Model(network, self.likelihood), self.place(theta)

    def prior(self, mean: AnyArray, precision: AnyArray) -> Dense | LowRankPrecision:
        """A Gaussian with these precisions, in the structure for the rank."""
        xp = namespace_of(mean, precision)
        if self.rank is None:
            return Dense.from_root(mean, xp.diag(1 / xp.sqrt(precision)))
        factor = xp.zeros((len(mean), self.rank), mean.dtype)
        return LowRankPrecision(mean, factor, precision)

    def first_hyper(self, model: Model, theta: AnyArray) -> evidence.PriorAndNoise:
        """The first prior precisions and noise."""
        alpha, noise = np.full_like(theta, self.prior_precision), noise_of(model)
        noise = np.ones(1) if noise is None else noise
        parts: Any = alpha, noise.astype(theta.dtype), np.zeros((), theta.dtype)
        return self.place(evidence.PriorAndNoise(*parts))

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
            xp = namespace_of(*part)
            yield Batch(*(xp.pad(a, [(0, short)] + [(0, 0)] * (a.ndim - 1)) for a in part))
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
        q, noise = on_host(self.posterior), noise_of(self.model)
        numbers = [q.mean, run.call(_variance_of, q)]
        numbers += [] if noise is None else [noise]
        return all(np.all(np.isfinite(np.asarray(a))) for a in numbers)

    def complaints(self, learned_noise: bool) -> list[str]:
        """Warnings about the fit, as sentences."""
        found, noise = [], noise_of(self.model)
        unsolved = 0 if self.state is None else int(self.state.unsolved)
        if unsolved:
            found.append(f"the implicit equations of {unsolved} rows were not solved to precision.")
        if learned_noise and noise is not None and np.any(noise <= evidence.SMALLEST_NOISE):
            found.append(
                "the network fits y exactly, so the noise cannot be learned and is taken as "
                f"{np.sqrt(evidence.SMALLEST_NOISE):g} deviations of y; give noise_scale= if it is known."
            )
        return found


def noise_of(model: Model) -> np.ndarray | None:
    """The variance of normal noise in each output, computed without compilation; None without noise."""
    likelihood: Any = model.likelihood
    return np.atleast_1d(np.asarray(likelihood.variance)) if likelihood.noisy else None


def _variance_of(q: Any) -> Any:
    return q.variance()


def _draw_parameters(perceptron: Perceptron, seed: int, member: int, dtype: np.dtype) -> Any:
    return perceptron.init(jr.fold_in(jr.key(seed), member), dtype)
