"""The filters of the R-VGA paper on one set of rows: their posteriors and divergences over time.

KL(qₜ ‖ p(θ | Y_N)) is computed by exact one-dimensional integrals instead of the paper's samples
(eq. 94), unnormalised as there (Z = 1). In two dimensions log Z comes from a grid, so that the true
divergence is known as well.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kalvi.evaluation import metrics
from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli
from kalvi.likelihoods.logistic import InverseProbit
from kalvi.numerics import precision
from kalvi.rules.laplace import laplace
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF, QKF, Explicit, Implicit
from kalvi.rules.vga import vga
from kalvi.streams import run
from papers.rvga_data import Setting, rows

PROBIT, ACCURATE = Bernoulli(InverseProbit()), Bernoulli()
FILTERS = {
    "implicit": (PROBIT, Implicit()),
    "explicit": (PROBIT, Explicit()),
    "EKF": (PROBIT, EKF()),
    "QKF": (PROBIT, QKF()),
    "accurate integrals": (ACCURATE, Implicit()),
}
"""The four filters of the paper with its inverse-probit integrals, and ours with accurate ones."""
PLANE, PADDED = (300, 2), (500, 100)
"""Rows and columns of the largest problems, figures 11 and 8."""
BATCH = ("Laplace", "best Gaussian")


class Path(NamedTuple):
    """A filter's Gaussians at the observed times."""

    mean: np.ndarray  # (times, d)
    cov: np.ndarray  # (times, d, d)
    kl: np.ndarray  # (times,), to the posterior of all rows, unnormalised


class Comparison(NamedTuple):
    """Every filter on one setting; a batch method is a path of one time."""

    setting: Setting
    source: str
    x: np.ndarray
    y: np.ndarray
    times: np.ndarray  # observations seen, from 0
    paths: dict[str, Path]

    def final(self, method: str) -> float:
        """The unnormalised divergence of a method's last Gaussian."""
        return float(self.paths[method].kl[-1])

    def finals(self) -> dict[str, float]:
        """The last divergence of every method."""
        return {method: self.final(method) for method in self.paths}


def compare(setting: Setting, every: int = 1) -> Comparison:
    """All filters and both batch methods on the rows of a setting, looked at `every` so many rows."""
    data = rows(setting)
    times = np.arange(0, len(data.y) + 1, every)
    with precision.matching_precision("float64"):
        batch, prior = _padded(data.x, data.y), prior_of(setting, _shape(setting.dim)[1])
        states = {
            method: run.call(_history, RVGA(likelihood, scheme, block_size=1), prior, batch, every)
            for method, (likelihood, scheme) in FILTERS.items()
        }
        last = jax.tree.map(lambda leaf: leaf[-1], states["accurate integrals"])
        states |= dict(zip(BATCH, run.call(_batch_methods, prior, batch, last), strict=True))
        stacked = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *states.values())
        scored = [np.asarray(part) for part in run.call(_path, prior, batch, stacked)]
    ends = np.cumsum([len(gaussians.mean) for gaussians in states.values()])[:-1]
    paths = {
        method: Path(
            mean[: len(times), : setting.dim],
            cov[: len(times), : setting.dim, : setting.dim],
            kl[: len(times)],
        )
        for method, mean, cov, kl in zip(
            states, *(np.split(part, ends) for part in scored), strict=True
        )
    }
    return Comparison(setting, data.source, data.x, data.y, times, paths)


def _shape(dim: int) -> tuple[int, int]:
    """Columns and rows of zeros are inert, so all problems share two compiled shapes."""
    return PLANE if dim == 2 else PADDED


def _padded(x: np.ndarray, y: np.ndarray) -> Batch:
    """The rows as a batch, enlarged by zeros."""
    rows, columns = _shape(x.shape[1])
    enlarged, labels, weight = np.zeros((rows, columns)), np.zeros(rows), np.zeros(rows)
    enlarged[: x.shape[0], : x.shape[1]] = x
    labels[: len(y)], weight[: len(y)] = y, 1
    return Batch(jnp.asarray(enlarged), jnp.asarray(labels), jnp.asarray(weight))


def prior_of(setting: Setting, width: int) -> Dense:
    """N(|μ₀| 1/√d, σ₀² I), with inert coordinates up to the given width."""
    mean = np.zeros(width)
    mean[: setting.dim] = setting.prior_norm / np.sqrt(setting.dim)
    return Dense(jnp.asarray(mean), setting.prior_std**2 * jnp.eye(width))


def _history(rule: RVGA, prior: Dense, batch: Batch, every: int) -> Dense:
    """The prior and the posteriors after each `every` rows, stacked."""
    chunks = jax.tree.map(lambda a: a.reshape(-1, every, *a.shape[1:]), batch)

    def advance(state, chunk):
        state = rule.update(state, chunk)
        return state, state.posterior

    _, path = jax.lax.scan(advance, rule.init(prior), chunks)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), prior, path)


def _batch_methods(prior: Dense, batch: Batch, start: Dense) -> tuple[Dense, Dense]:
    """Laplace and the optimal Gaussian, each as a path of one time."""
    found = laplace(ACCURATE, prior, batch).posterior, vga(ACCURATE, prior, batch, start).posterior
    return jax.tree.map(lambda leaf: leaf[None], found)


def _path(prior: Dense, batch: Batch, gaussians: Dense) -> tuple[jax.Array, jax.Array, jax.Array]:
    def divergence(q: Dense) -> jax.Array:
        return -metrics.elbo(q, prior, ACCURATE, batch)

    cov = jax.vmap(lambda q: q.cov)(gaussians)
    return gaussians.mean, cov, jax.lax.map(divergence, gaussians)
