"""The data sets of Khan, Baqué, Fleuret & Fua (2015), Table 1, and how they are cut and scaled.

Half of the rows train, drawn at random (a1a has its own 1605). The paper does not say how inputs were
scaled; `SCALINGS` are the ways tried, and the tables name the one in use. Statistics are those of the
training rows. Targets of regressions have mean 0 and variance 1 over the training rows.

Gisette is not at hand. `gisette_like` makes rows of the same kind and size from MNIST: digits 4 against 9,
half of the columns pixels and products of pairs of pixels, half of them probes (such columns with the rows
shuffled), all in random order. Its numbers stand beside the paper's, and are not comparable with them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from papers import datasets

A1A, COLON, GISETTE = "a1a", "Colon", "Gisette stand-in"
"""The sets of table 2."""
CROP = (slice(4, 19), slice(5, 24))
"""The middle of an image, where fours and nines differ."""


class Split(NamedTuple):
    """Training rows and new rows; y is 0 or 1, or a standardised target."""

    x: np.ndarray
    y: np.ndarray
    x_new: np.ndarray
    y_new: np.ndarray


def unscaled(x: np.ndarray, x_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As in the file."""
    return x, x_new


def standardised(x: np.ndarray, x_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean 0 and variance 1 in every column; constant columns become 0."""
    mean, std = x.mean(axis=0), x.std(axis=0)
    std = np.where(std > 0, std, 1.0)
    return (x - mean) / std, (x_new - mean) / std


def ranged(x: np.ndarray, x_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every column within −1 and 1, as LIBSVM distributes most of its sets."""
    low, high = x.min(axis=0), x.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    return 2 * (x - low) / width - 1, 2 * (x_new - low) / width - 1


def unit_rows(x: np.ndarray, x_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every row of length 1."""
    return tuple(a / np.linalg.norm(a, axis=1, keepdims=True) for a in (x, x_new))  # type: ignore[return-value]


def unit_largest(x: np.ndarray, x_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divided by the largest entry."""
    largest = np.abs(x).max()
    return x / largest, x_new / largest


Scaling = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
SCALINGS: dict[str, Scaling] = {
    "unscaled": unscaled,
    "standardised": standardised,
    "ranged": ranged,
    "unit rows": unit_rows,
    "unit largest": unit_largest,
}


def halves(
    x: np.ndarray, y: np.ndarray, seed: int, scaling: Scaling, *, targets: bool = False
) -> Split:
    """A random half to train on; `targets` are standardised, labels become 0 and 1."""
    order = np.random.default_rng(seed).permutation(len(y))
    rows, new = np.split(order, [len(y) // 2])
    y = (y - y[rows].mean()) / y[rows].std() if targets else (y > 0).astype(float)
    x_rows, x_new = scaling(x[rows], x[new])
    return Split(x_rows, y[rows], x_new, y[new])


def a1a(rows: int | None = None) -> Split:
    """The 1605 rows of a1a, and the 30956 others of the census."""
    stored = datasets.load("a1a")
    x, y = stored["X"].toarray(), (stored["y"] > 0).astype(float)
    ours = stored["split"] == 0
    return Split(x[ours][:rows], y[ours][:rows], x[~ours], y[~ours])


def gisette_like(n: int = 7000, d: int = 5000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A stand-in for Gisette: entries in [0, 1], labels +1 for a four and −1 for a nine."""
    rng, stored = np.random.default_rng(seed), datasets.load("mnist")
    chosen = [rng.permutation(np.flatnonzero(stored["y"] == digit))[: n // 2] for digit in (4, 9)]
    rows = np.concatenate(chosen)
    images = stored["X"][rows].reshape(-1, 28, 28)[(slice(None), *CROP)].reshape(len(rows), -1)
    pixels = images[:, images.any(axis=0)].astype(np.float32) / 255
    k, count = d // 2, pixels.shape[1]
    pairs = rng.integers(0, count, (k, 2))
    alone = min(count, k)
    pairs[:alone] = np.arange(alone)[:, None]
    left, right = pixels[:, pairs[:, 0]], pixels[:, pairs[:, 1]]
    real = np.where(pairs[:, 0] == pairs[:, 1], left, left * right)
    probes = rng.permuted(real[:, rng.integers(0, k, d - k)], axis=0)
    columns = np.concatenate([real, probes], axis=1)[:, rng.permutation(d)]
    y = np.where(np.arange(len(rows)) < len(chosen[0]), 1, -1)
    order = rng.permutation(len(rows))
    return np.round(999 * columns[order].astype(np.float64)) / 999, y[order]


def table_2_split(name: str, seed: int, quick: bool) -> Split:
    """One split of a set of table 2."""
    if name == A1A:
        whole = a1a(400 if quick else None)
        few = whole._replace(x_new=whole.x_new[:2000], y_new=whole.y_new[:2000])
        return few if quick else whole
    if name == COLON:
        stored = datasets.load("colon")
        return halves(stored["X_raw"].astype(float), stored["y"], seed, unit_rows)
    return halves(*gisette_like(*((62, 300) if quick else ())), seed, unit_rows)
