"""Gaussian processes of many rows, through inducing points: all rows at once, or by minibatches."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from kalvi import kernels, streams
from kalvi.estimators.gaussian_process.covariances import KalviKernel, padded_size
from kalvi.estimators.gaussian_process.hyperparameters import Hyperparameters
from kalvi.estimators.gaussian_process.parameters import ProcessSettings
from kalvi.estimators.gaussian_process.placement import computing, is_small_sparse, placed
from kalvi.estimators.gaussian_process.predictions import latent_moments
from kalvi.estimators.gaussian_process.problem import GAP, NOWHERE, Problem, TrainingRows
from kalvi.gaussians import Dense
from kalvi.gaussians.divergences import kl
from kalvi.numerics.namespaces import is_jax
from kalvi.predictors import Linearised, OffsetLinear, Predictor
from kalvi.predictors.linear import OneLinear
from kalvi.rules.klprox.rule import KLProximal
from kalvi.rules.klprox.sparse import (
    InducingFeatures,
    choose_inducing,
    inducing_rows,
    sparse_elbo,
    sparse_klprox,
    sparse_predict,
    standard_prior,
)
from kalvi.rules.rule import Batch
from kalvi.rules.vga import VGA, informed_start
from kalvi.streams import engines, run

SAMPLE, PASSES = 20, 10
"""With minibatches: the number of rows for each inducing point from which hyperparameters are learned, and
of passes over all rows that refine the posterior."""
AMONG = 4
"""The number of rows, for each inducing point, among which they are chosen."""


class SparseFit(NamedTuple):
    """A fit through inducing points."""

    hyper: Hyperparameters
    posterior: Dense  # of the whitened values at the inducing points
    inducing: np.ndarray
    elbo: float
    gap: float
    converged: bool

    regime = "sparse"

    @property
    def points(self) -> np.ndarray:
        """The rows that predictions are made from."""
        return self.inducing

    def latent(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the latent function at new points."""
        dtype, kernel = self.inducing.dtype, self.hyper.covariance.kernel
        small = not is_jax(self.posterior)

        def law(block: np.ndarray):
            rows, mean = (placed(a, dtype, small) for a in (block, self.hyper.mean(block)))
            return run.call(sparse_predict, kernel, mean, self.inducing, self.posterior, rows)

        with computing(dtype, small):
            return latent_moments(law, x)


class SparseProblem(Problem):
    """The bound of a table through inducing points; every ascent continues to `GAP`."""

    def __init__(
        self,
        table: TrainingRows,
        hyper: Hyperparameters,
        settings: ProcessSettings,
        rng: np.random.RandomState,
    ):
        if not isinstance(hyper.covariance, KalviKernel):
            raise ValueError(
                "sparse=True needs a kernel of kalvi.kernels; got scikit-learn's "
                f"{hyper.covariance.kernel!r}."
            )
        self.table, self.rng, self.dtype = table, rng, settings.dtype
        self.n_inducing, self.batch_size = settings.n_inducing, settings.batch_size
        self.max_passes = np.asarray(settings.max_passes)
        self.some = self._sample()
        self.small = is_small_sparse(len(self.some.y), self.n_inducing)
        self.candidates = self._candidates()
        self.inducing = self._chosen(hyper)
        self.posterior: Dense | None = None

    def evaluate(self, hyper: Hyperparameters, gap: float) -> tuple[float, np.ndarray]:
        found, batch, mean = self._solve(hyper)
        if not np.isfinite(found.elbo):
            return -NOWHERE, np.zeros_like(hyper.theta)
        args = mean, self.inducing, batch, found.posterior
        parts = hyper.covariance.kernel, hyper.likelihood
        slopes = run.call(_slopes, *parts, *args)
        kernel, likelihood, by_mean = slopes
        return float(found.elbo), hyper.gradient(
            kernels.log_slopes(hyper.covariance.kernel, kernel), likelihood, float(by_mean)
        )

    def value(self, hyper: Hyperparameters) -> float:
        return float(self._solve(hyper)[0].elbo)

    def fit(self, hyper: Hyperparameters) -> SparseFit:
        """The optimum at given hyperparameters, with new inducing points if these are better."""
        found, before = self._solve(hyper)[0], self.inducing
        self.inducing, self.posterior = self._chosen(hyper), None
        again = self._solve(hyper)[0]
        if not float(again.elbo) >= float(found.elbo):
            self.inducing, again = before, found
        if self.batch_size is not None:
            return self._streamed(hyper, again)
        ending = float(again.elbo), float(again.gap), bool(again.converged)
        return SparseFit(hyper, again.posterior, self.inducing, *ending)

    def _streamed(self, hyper: Hyperparameters, start: VGA) -> SparseFit:
        """Minibatches of all rows, from the posterior of the sample."""
        small = is_small_sparse(len(self.table.y), self.n_inducing)
        inducing, begin = engines.placed((self.inducing, start.posterior), small)
        predictor = run.call(_centred, hyper.covariance.kernel, inducing)
        rule = KLProximal.stochastic(
            hyper.likelihood, float(self.table.weight.sum()), predictor=predictor
        )
        prior = standard_prior(inducing)
        state = run.call(KLProximal.start, rule, prior, begin)
        for _ in range(PASSES):
            state = run.resume(rule, state, self._minibatches(hyper))
        q, bounds = state.posterior, []
        for batch in self._minibatches(hyper):
            rows, mean = Batch(batch.x[:, :-1], batch.y, batch.weight), batch.x[:, -1]
            parts = hyper.likelihood, hyper.covariance.kernel, mean, inducing, rows, q
            bounds.append(float(run.call(sparse_elbo, *parts)))
        # each has subtracted the divergence from the prior
        elbo = sum(bounds) + (len(bounds) - 1) * float(run.call(kl, q, prior))
        return SparseFit(hyper, q, self.inducing, elbo, np.nan, int(state.refused) == 0)

    def _minibatches(self, hyper: Hyperparameters) -> Iterator[Batch]:
        """The rows in a new random order, with the prior mean as last column."""
        order = self.rng.permutation(len(self.table.y))
        for start in range(0, len(order), int(self.batch_size or 0)):
            rows = order[start : start + int(self.batch_size or 0)]
            x = np.column_stack([self.table.x[rows], hyper.mean(self.table.x[rows])])
            yield from streams.array_batches(
                x,
                self.table.y[rows],
                self.table.weight[rows],
                block_size=int(self.batch_size or 0),
                intercept=False,
                dtype=self.dtype,
            )

    def _sample(self) -> TrainingRows:
        n, most = len(self.table.y), SAMPLE * self.n_inducing
        if self.batch_size is None or n <= most:
            return self.table
        rows = np.sort(self.rng.choice(n, most, replace=False))
        share = self.table.weight.sum() / self.table.weight[rows].sum()
        return TrainingRows(self.table.x[rows], self.table.y[rows], self.table.weight[rows] * share)

    def _candidates(self) -> np.ndarray:
        """The rows that may become inducing points, a sample, because among very many the most uncertain
        are outliers."""
        n, most = len(self.some.y), AMONG * self.n_inducing
        if n <= most:
            return self.some.x
        return self.some.x[np.sort(self.rng.choice(n, most, replace=False))]

    def _chosen(self, hyper: Hyperparameters) -> np.ndarray:
        x = placed(self.candidates, self.dtype, self.small)
        found = run.call(choose_inducing, hyper.covariance.kernel, x, min(self.n_inducing, len(x)))
        if not int(found.count):
            raise ValueError(
                "sparse=True needs a kernel that correlates different rows; "
                f"{hyper.covariance.kernel!r} gives only independent noise."
            )
        return self.candidates[np.asarray(found.rows)[: int(found.count)]].astype(self.dtype)

    def _solve(self, hyper: Hyperparameters) -> tuple[VGA, Batch, Any]:
        batch, mean = self._batch(hyper)
        start = self.posterior or standard_prior(self.inducing)
        for fresh in (self.posterior is None, True):
            args = hyper.likelihood, hyper.covariance.kernel, mean, self.inducing, batch, start
            found: VGA = run.call(_solved, *args, np.asarray(fresh), self.max_passes)
            if np.isfinite(found.elbo):
                self.posterior = found.posterior
                break
        return found, batch, mean

    def _batch(self, hyper: Hyperparameters) -> tuple[Batch, Any]:
        """The rows, padded to one of a few sizes, and the prior mean at them."""
        missing = padded_size(len(self.some.y)) - len(self.some.y)
        x, y = (np.concatenate([a, np.repeat(a[:1], missing, axis=0)]) for a in self.some[:2])
        weight = np.pad(self.some.weight, (0, missing))
        parts = (placed(a, self.dtype, self.small) for a in (x, y, weight, hyper.mean(x)))
        *rows, mean = parts
        return Batch(*rows), mean


class Centred(OneLinear):
    """Inducing features of inputs whose last column is the prior mean."""

    features: InducingFeatures

    def values(self, theta, x) -> Array:
        return self.linearise(theta, x).mean

    def linearise(self, theta, x) -> Linearised:
        return OffsetLinear().linearise(theta, self.features.offset_inputs(x[:, :-1], x[:, -1]))

    def whitened(self, prior: Dense, x) -> tuple[Predictor, Array]:
        return OffsetLinear().whitened(prior, self.features.offset_inputs(x[:, :-1], x[:, -1]))


def _centred(kernel: kernels.Kernel, inducing: Array) -> Centred:
    return Centred(InducingFeatures(kernel, inducing))


def _solved(likelihood, kernel, mean, inducing, batch, start, fresh, max_passes) -> VGA:
    """The optimum from `start`, or if `fresh` from the information of the rows at the prior mean."""
    limits = {"max_passes": max_passes, "tolerance": GAP}
    rows = inducing_rows(kernel, inducing, batch.x, mean)
    start = jax.lax.cond(
        fresh,
        lambda: informed_start(
            likelihood, standard_prior(inducing), batch._replace(x=rows), OffsetLinear()
        ),
        lambda: start,
    )
    return sparse_klprox(likelihood, kernel, mean, inducing, batch, start, **limits)


def _slopes(kernel, likelihood, mean, inducing, batch, q):
    def bound(parts):
        kernel, likelihood, constant = parts
        return sparse_elbo(likelihood, kernel, mean + constant, inducing, batch, q)

    nothing = jnp.zeros((), batch.y.dtype)
    return eqx.filter_grad(bound)((kernel, likelihood, nothing))
