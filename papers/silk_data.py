"""Binary matrices for smooth factorisation: drawn from its model, or real ones with entries held out.

The model (Loper 2019, "Scaleable inference for logistic Kalmans", section 1.2), for rows r and columns c,

    x_rc ~ Bernoulli(σ(⟨u_r, α_c⟩)),    cov(u_rk, u_sk) = variance_k exp(−rate_k |l_r − l_s| / 2),

and the same for the columns. A `Matrix` says which entries may be seen and which are to be predicted; the
document's corner is `corner`, entries hidden at random `scattered`, the future of some columns `future`.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from papers import datasets


class Prior(NamedTuple):
    """The Ornstein–Uhlenbeck prior of one side: locations in order, and a number for every factor."""

    locations: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    rate: np.ndarray

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """A path for every factor, (n, k)."""
        noise = rng.normal(size=(len(self.locations), len(self.mean)))
        path = noise.copy()
        for r, stay in enumerate(self.correlations(), start=1):
            path[r] = stay * path[r - 1] + np.sqrt(1 - stay**2) * noise[r]
        return self.mean + np.sqrt(self.variance) * path

    def correlations(self) -> np.ndarray:
        """π = exp(−rate gap / 2) of neighbours, (n − 1, k); nothing is shared at an infinite rate."""
        gaps = np.diff(self.locations)[:, None]
        with np.errstate(invalid="ignore"):
            exponent = np.where(np.isinf(self.rate), np.inf, self.rate * gaps)
        return np.exp(-exponent / 2)


class Matrix(NamedTuple):
    """Entries 0 and 1; those `seen`, those `hidden` to be predicted (others are missing); the locations."""

    x: np.ndarray
    seen: np.ndarray
    hidden: np.ndarray
    row_locations: np.ndarray | None
    col_locations: np.ndarray | None

    @property
    def given(self) -> np.ndarray:
        """What a fit may look at: 0, 1, or NaN."""
        return np.where(self.seen, self.x.astype(float), np.nan)

    @property
    def answers(self) -> np.ndarray:
        """The hidden entries."""
        return self.x[self.hidden].astype(float)


class Synthetic(NamedTuple):
    """A matrix from the model, and what it was made of."""

    matrix: Matrix
    rows: Prior
    cols: Prior
    row_factors: np.ndarray
    col_factors: np.ndarray

    @property
    def probability(self) -> np.ndarray:
        """P(x = 1) at the true factors."""
        return expit(self.row_factors @ self.col_factors.T)


def synthetic(
    shape: tuple[int, int],
    k: int,
    rates: tuple[float, float],
    *,
    seed: int,
    scale: float = 1.0,
    missing: float = 0.1,
    ordinary: bool = True,
) -> Synthetic:
    """A draw of the model with variances `scale` on both sides, and a share of entries hidden.

    The locations are 0, 1, 2, …, or (`ordinary=False`) as many points of the same stretch at random.
    """
    rng = np.random.default_rng(seed)
    rows, cols = (
        Prior(_locations(rng, n, ordinary), np.zeros(k), np.full(k, scale), np.full(k, rate))
        for n, rate in zip(shape, rates, strict=True)
    )
    u, v = rows.sample(rng), cols.sample(rng)
    x = (rng.random(shape) < expit(u @ v.T)).astype(np.int8)
    locations = rows.locations, cols.locations
    matrix = scattered(x, np.ones(shape, bool), locations, missing, rng)
    return Synthetic(matrix, rows, cols, u, v)


def _locations(rng: np.random.Generator, n: int, ordinary: bool) -> np.ndarray:
    return np.arange(n, dtype=float) if ordinary else np.sort(rng.uniform(0, n - 1, n))


Locations = tuple[np.ndarray | None, np.ndarray | None]


def scattered(
    x: np.ndarray,
    observed: np.ndarray,
    locations: Locations,
    share: float,
    rng: np.random.Generator,
) -> Matrix:
    """A share of the observed entries hidden at random."""
    hidden = observed & (rng.random(x.shape) < share)
    return Matrix(x, observed & ~hidden, hidden, *locations)


def corner(matrix: Matrix, share: float, rng: np.random.Generator) -> Matrix:
    """The document's test data: where a chosen row meets a chosen column, a share of each."""
    rows, cols = (rng.random(n) < share for n in matrix.x.shape)
    observed, cut = matrix.seen | matrix.hidden, np.outer(rows, cols)
    return matrix._replace(seen=observed & ~cut, hidden=observed & cut)


def future(matrix: Matrix, share: float, cols: np.ndarray) -> Matrix:
    """The last share of the rows hidden for the chosen columns; rows with one location are not parted."""
    assert matrix.row_locations is not None
    n = len(matrix.x)
    late = matrix.row_locations >= matrix.row_locations[n - int(share * n)]
    observed, cut = matrix.seen | matrix.hidden, np.outer(late, cols)
    return matrix._replace(seen=observed & ~cut, hidden=observed & cut)


def real(name: str, **options) -> Matrix:
    """A stored binary matrix with nothing hidden yet."""
    stored = datasets.binary_matrix(name, **options)
    observed = stored.entries >= 0
    nothing = np.zeros_like(observed)
    x = np.where(observed, stored.entries, 0).astype(np.int8)
    return Matrix(x, observed, nothing, stored.row_locations, stored.col_locations)
