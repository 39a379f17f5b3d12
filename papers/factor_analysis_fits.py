"""Factor models drawn at random, and every way of learning them from the same stream of rows.

Seven fits of each model: scikit-learn's batch SVD as the thesis ran it (randomised, the default tolerance)
and with LAPACK and a tolerance of 1e-4, where it may still end on a plateau of the likelihood; the maximum
likelihood, by `batch_em`; SGA and online EM with the thesis's start, steps and warm-up;
`FactorAnalysis(method="online_em")`, and `FactorAnalysis()` as it comes. The streaming ones go on from one
sample size to the next, and no row is kept.

A batch fit sees its rows only through their mean and scatter S, so that beyond 2 d rows it is given d + 1
others with mean zero and scatter S, √(d + 1) Hᵀ R with Rᵀ R = S and H Helmert's orthonormal rows that add
up to zero: every iteration gives what it would give for all rows. scikit-learn's tolerance is
for the sum over the rows and scaled with their number.
"""

import time
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.linalg
from sklearn import decomposition
from sklearn.exceptions import ConvergenceWarning

from kalvi.estimators.factor_analysis import FactorAnalysis
from kalvi.gaussians import LowRankCovariance
from kalvi.gaussians.divergences import wasserstein
from kalvi.numerics import precision
from kalvi.rules.factor_analysis import random_factor_model
from kalvi.streams import run

STREAMS = {
    "SGA as printed": {"method": "sga", "scaled": False, "step_size": 0.001, "step_decay": 0.0},
    "online EM as printed": {"method": "incremental_em", "scaled": False},
    "online EM, ours": {"method": "online_em"},
    "eigen, our default": {},
}
PRINTED, LAPACK, OPTIMUM = "batch SVD as printed", "batch SVD, LAPACK", "maximum likelihood"
BATCHES = {
    PRINTED: {"svd_method": "randomized", "tol": 1e-2},
    LAPACK: {"svd_method": "lapack", "tol": 1e-4},
}
SMALL_GAIN = 1e-7
"""Nats a row: the climb to the maximum likelihood ends where a pass gains less."""
METHODS = (PRINTED, LAPACK, OPTIMUM, *STREAMS)


class Setting(NamedTuple):
    """A panel of the figures."""

    dim: int
    rank: int
    spectrum: tuple[int, int]
    times: tuple[int, ...]
    trials: int
    lapack_at: tuple[int, ...]  # the sample sizes at which that costly fit is made

    @property
    def label(self) -> str:
        low, high = self.spectrum
        return f"D = {self.dim}, K = {self.rank}, s² ~ U({low}, {high})"


class Fit(NamedTuple):
    """How far a fit is from the model, and how fast it was."""

    distance: float  # of the covariances, relative, in the Frobenius norm
    wasserstein: float  # W₂, not squared
    speed: float  # rows a second since the last sample size


class Rows:
    """The first rows themselves, then their mean and scatter about the model's mean."""

    def __init__(self, mean: np.ndarray):
        self.origin, self.n = mean, 0
        self.first = np.zeros((0, len(mean)))
        self.sum, self.squares = np.zeros(len(mean)), np.zeros((len(mean),) * 2)

    def add(self, x: np.ndarray) -> None:
        """Take further rows."""
        away = x - self.origin
        self.n, self.sum = self.n + len(x), self.sum + away.sum(axis=0)
        self.squares += away.T @ away
        if self.n <= 2 * len(self.origin):
            self.first = np.concatenate([self.first, x])

    def equivalent(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows with this mean and scatter, at most 2 d of them, and the mean to add to theirs."""
        if self.n <= 2 * len(self.origin):
            return self.first, 0 * self.origin
        mean = self.sum / self.n
        scatter = self.squares / self.n - np.outer(mean, mean)
        rows = scipy.linalg.helmert(len(mean) + 1).T @ np.linalg.cholesky(scatter).T
        return np.sqrt(len(rows)) * rows, self.origin + mean


def trial(setting: Setting, seed: int) -> dict[tuple[str, int], Fit]:
    """Every method on one random model, after each sample size."""
    with precision.matching_precision("float64"):
        keys = jr.split(jr.key(seed))
        truth = random_factor_model(
            setting.dim, setting.rank, spectrum=setting.spectrum, key=keys[0]
        )
        streams = {
            name: FactorAnalysis(setting.rank, random_state=seed, **_warmed(settings, setting.dim))
            for name, settings in STREAMS.items()
        }
        rows, found, before = Rows(np.asarray(truth.mean)), {}, 0
        for part, now in enumerate(setting.times):
            x = np.asarray(truth.sample(jr.fold_in(keys[1], part), now - before))
            rows.add(x)
            for name, model in streams.items():
                begun = time.process_time()
                q = jax.block_until_ready(model.partial_fit(x).gaussian_)
                speed = (now - before) / (time.process_time() - begun)
                found[name, now] = _judged(q, truth, speed)
            for name in BATCHES:
                if name == PRINTED or now in setting.lapack_at:
                    found[name, now] = _judged(_batch(name, rows, setting.rank, seed), truth)
            found[OPTIMUM, now] = _judged(_optimum(rows, setting.rank), truth)
            before = now
    return found


def _warmed(settings: dict, dim: int) -> dict:
    """Ours keeps to its start for as many rows as features, where one row says little of weak factors."""
    return settings | ({"warm_up": max(100, dim)} if settings.get("method") == "online_em" else {})


def _batch(name: str, rows: Rows, rank: int, seed: int) -> LowRankCovariance:
    """scikit-learn's fit of the rows so far."""
    x, mean = rows.equivalent()
    settings = BATCHES[name] | {"tol": BATCHES[name]["tol"] * len(x) / rows.n}
    model = decomposition.FactorAnalysis(rank, random_state=seed, **settings)
    with warnings.catch_warnings():
        # with a randomised SVD the likelihood may wander until the last iteration
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x)
    diag = np.maximum(model.noise_variance_, np.finfo(float).tiny)
    return LowRankCovariance(mean + model.mean_, model.components_.T, diag)


def _optimum(rows: Rows, rank: int) -> LowRankCovariance:
    """The maximum likelihood of the rows so far."""
    x, mean = rows.equivalent()
    q = FactorAnalysis(rank, method="batch_em", tol=SMALL_GAIN).fit(x).gaussian_
    return LowRankCovariance(mean + q.mean, q.covariance.factor, q.covariance.diag)


def _judged(q: LowRankCovariance, truth: LowRankCovariance, speed: float = np.nan) -> Fit:
    distance, w2 = run.call(_distances, q, truth)
    return Fit(float(distance), float(w2), speed)


def _distances(q: LowRankCovariance, truth: LowRankCovariance):
    """|S − S₀|/|S₀| by traces of products, without S; and W₂."""
    a, b = q.covariance, truth.covariance
    whole = b.trace_product(b)
    square = a.trace_product(a) - 2 * a.trace_product(b) + whole
    return jnp.sqrt(jnp.maximum(square / whole, 0)), wasserstein(q, truth)
