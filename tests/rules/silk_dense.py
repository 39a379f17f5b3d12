"""Smooth binary factorisation in dense NumPy: covariances of whole sides, sums entry by entry."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.rules.silk import Chains, Coupled, MeanField, Side, Silk, Table, list_entries
from tests.oracles import gaussian_kl

N, M, K = 11, 9, 2
FAMILIES = {"mean-field": MeanField, "chains": Chains, "coupled": Coupled}


class Data(NamedTuple):
    x: np.ndarray  # 0 or 1
    seen: np.ndarray  # whether observed
    weight: np.ndarray

    def table(self, weighted=True):
        weight = jnp.asarray(self.weight) if weighted else None
        return Table(jnp.asarray(self.signs), weight)

    def list(self, weighted=True):
        row, col = np.nonzero(self.seen)
        weight = self.weight[self.seen] if weighted else None
        return list_entries(row, col, self.signs[self.seen], weight, self.x.shape)

    @property
    def signs(self):
        return np.where(self.seen, 2 * self.x - 1, 0).astype(np.int8)

    @property
    def share(self):
        """What every entry counts."""
        return np.where(self.seen, self.weight, 0)

    def unweighted(self):
        return self._replace(weight=np.ones_like(self.weight))

    def transpose(self):
        return Data(self.x.T, self.seen.T, self.weight.T)


def data(seed=0, seen=0.8):
    rng = np.random.default_rng(seed)
    return Data(
        rng.integers(0, 2, (N, M)), rng.random((N, M)) < seen, rng.uniform(0.2, 2.0, (N, M))
    )


# Gaussians over a whole side, (location, factor) in this order -----------------------------------


def prior_cov(prior):
    """σ² exp(−½ ρ |lᵣ − lₛ|) of independent factors."""
    places = np.concatenate([[0.0], np.cumsum(prior.gaps)])
    apart = np.abs(places[:, None] - places[None])
    n, k = len(places), len(prior.mean)
    cov = np.zeros((n, k, n, k))
    for j in range(k):
        cov[:, j, :, j] = float(prior.variance[j]) * np.exp(-float(prior.rate[j]) * apart / 2)
    return cov.reshape(n * k, n * k)


def blocks(posterior):
    """Covariances of the factors at every location."""
    if isinstance(posterior, Coupled):
        return np.asarray(posterior.cov)
    var = np.asarray(posterior.var)
    return var[:, :, None] * np.eye(var.shape[1])


def posterior_cov(posterior):
    """The covariance of all locations, which neighbours determine as it is a Markov chain."""
    n, k = posterior.mean.shape
    own = blocks(posterior)
    cov = np.zeros((n, k, n, k))
    for r in range(n):
        cov[r, :, r] = own[r]
    if not isinstance(posterior, MeanField):
        lag = np.asarray(posterior.lag)
        lag = lag if lag.ndim == 3 else np.array([np.diag(part) for part in lag])
        for s in range(1, n):
            across = np.eye(k)
            for r in range(s - 1, -1, -1):
                across = lag[r] @ np.linalg.inv(own[r + 1]) @ (across if r < s - 1 else own[s])
                cov[r, :, s], cov[s, :, r] = across, across.T
    return cov.reshape(n * k, n * k)


def posterior(family, mean, cov):
    """A posterior of the library with the moments of a dense Gaussian, which has to be of that family."""
    n, k = mean.shape
    blocks = cov.reshape(n, k, n, k)
    own = np.array([blocks[r, :, r] for r in range(n)])
    lag = np.array([blocks[r, :, r + 1] for r in range(n - 1)])
    steps = own[1:] + own[:-1] - lag - lag.swapaxes(1, 2)
    parts = [own, lag, steps]
    if family is not Coupled:
        parts = [np.diagonal(part, axis1=1, axis2=2) for part in parts]
    if family is MeanField:
        return MeanField(jnp.asarray(mean), jnp.asarray(parts[0]))
    logdet = jnp.asarray(-np.linalg.slogdet(cov)[1])
    return family(jnp.asarray(mean), *map(jnp.asarray, parts), logdet)


def some_posterior(family, n, k, rng):
    """Any Gaussian of the family."""
    mean, root = rng.normal(size=(n, k)), rng.normal(size=(n, k, 2 * k))
    own = root @ root.swapaxes(1, 2) + np.eye(k)
    precision = np.zeros((n, k, n, k))
    for r in range(n):
        precision[r, :, r] = own[r] if family is Coupled else np.diag(np.diag(own[r]))
    if family is not MeanField:
        for r in range(n - 1):
            stiff = np.diag(rng.uniform(0.5, 5.0, k))
            precision[r, :, r] += stiff
            precision[r + 1, :, r + 1] += stiff
            precision[r, :, r + 1] = precision[r + 1, :, r] = -stiff
    cov = np.linalg.inv(precision.reshape(n * k, n * k))
    return posterior(family, mean, (cov + cov.T) / 2)


def some_prior(n, k, rng, rates=(-1.5, 1.0), even=False):
    gaps = np.full(n - 1, 0.7) if even else rng.uniform(0.1, 2.0, n - 1)
    numbers = rng.normal(size=k) / 2, np.exp(rng.normal(size=k) / 2), np.exp(rng.uniform(*rates, k))
    return OrnsteinUhlenbeck(jnp.asarray(gaps), *map(jnp.asarray, numbers), even)


def some_silk(family, seed=0, **settings):
    rng = np.random.default_rng(seed)
    sides = [
        Side(some_prior(n, K, rng, **settings), some_posterior(family, n, K, rng)) for n in (N, M)
    ]
    return Silk(*sides)


# The model ---------------------------------------------------------------------------------------


def second_moments(side):
    """E uuᵀ of every location."""
    mean = np.asarray(side.posterior.mean)
    return mean[:, :, None] * mean[:, None] + blocks(side.posterior)


def logits(silk):
    """E ψ and E ψ²."""
    mean = np.asarray(silk.rows.posterior.mean) @ np.asarray(silk.cols.posterior.mean).T
    square = np.einsum("rij,cij->rc", second_moments(silk.rows), second_moments(silk.cols))
    return mean, square


def strength(gamma):
    return np.tanh(gamma / 2) / (2 * gamma)


def statistics(silk, data):
    """Pull, Ψ and bound of every row, entry by entry."""
    mean, square = logits(silk)
    gamma, share = np.sqrt(square), data.share
    alpha, second = np.asarray(silk.cols.posterior.mean), second_moments(silk.cols)
    n, m = data.x.shape
    pull, blocks, loss = np.zeros((n, K)), np.zeros((n, K, K)), np.zeros(n)
    for r in range(n):
        for c in range(m):
            pull[r] += share[r, c] * (data.x[r, c] - 0.5) * alpha[c]
            blocks[r] += share[r, c] * strength(gamma[r, c]) * second[c]
            bound = (data.x[r, c] - 0.5) * mean[r, c] - np.log(2 * np.cosh(gamma[r, c] / 2))
            loss[r] += share[r, c] * bound
    return pull, blocks, loss


def block_diagonal(blocks):
    n, k = blocks.shape[:2]
    whole = np.zeros((n, k, n, k))
    for r in range(n):
        whole[r, :, r] = blocks[r]
    return whole.reshape(n * k, n * k)


def system(silk, data):
    """Λ and b of the rows."""
    pull, blocks, _ = statistics(silk, data)
    inverse = np.linalg.inv(prior_cov(silk.rows.prior))
    mean = np.tile(silk.rows.prior.mean, len(pull))
    return inverse + block_diagonal(blocks), inverse @ mean + pull.ravel()


def side_kl(side):
    mean = np.tile(side.prior.mean, len(side.posterior.mean))
    cov = posterior_cov(side.posterior)
    return gaussian_kl(np.ravel(side.posterior.mean), cov, mean, prior_cov(side.prior))


def elbo(silk, data):
    return np.sum(statistics(silk, data)[2]) - side_kl(silk.rows) - side_kl(silk.cols)
