"""Rows of the R-VGA paper's experiments (section 6): its settings, and its recipe for two classes."""

from typing import NamedTuple

import numpy as np

from kalvi.streams.datasets import two_classes as classes
from papers import datasets


class Setting(NamedTuple):
    """One panel: its rows, and the prior N(mean_norm · 1/√d, std² I)."""

    label: str
    rows_of: int  # the figure whose rows these are
    dim: int
    n_samples: int
    separation: float  # s
    decay: float  # c
    seed: int
    prior_std: float  # σ₀
    prior_norm: float = 0.0  # |μ₀|

    @property
    def name(self) -> str:
        """The name under which the rows are stored."""
        shape = f"d{self.dim}_N{self.n_samples}_s{self.separation:g}_c{self.decay:g}"
        return f"fig{self.rows_of}_{shape}_seed{self.seed}"


def _plane(rows_of, s, c, seed, std, norm=0.0, n=100):
    return (Setting("", rows_of, 2, n, s, c, seed, std, norm),)


def _high(rows_of, n, std, panels, note=""):
    """Panels given as (label, dim, s, c)."""
    return tuple(Setting(label + note, rows_of, d, n, s, c, 10, std) for label, d, s, c in panels)


_DIMENSIONS = [(f"d = {d}", d, 2, 0) for d in (30, 70, 100)]
_SEPARATIONS = [(f"s = {s}", 100, s, 0) for s in (1, 3, 5)]
_DECAYS = [(f"c = {c}", 100, 2, c) for c in (0, 1, 2)]

SETTINGS = {
    3: _plane(3, 2, 2, 10, 1, 0.1),
    4: _plane(3, 2, 2, 10, 10, 1),
    5: _plane(3, 2, 2, 10, 100, 10),
    6: _plane(6, 5, 2, 10, 10),
    7: _high(7, 500, 1, _DIMENSIONS),
    8: _high(7, 500, 30, _DIMENSIONS),
    # the caption says σ₀ = 10, the authors' script runs 1
    9: _high(9, 200, 10, _SEPARATIONS, ", σ₀ = 10") + _high(9, 200, 1, _SEPARATIONS, ", σ₀ = 1"),
    10: _high(10, 200, 10, _DECAYS),
    11: _plane(11, 5, 1, 1, 10, n=300),
    14: _plane(14, 2, 1, 1, 10),
    15: _plane(15, 5, 1, 1, 10),
    16: _plane(16, 10, 1, 1, 10),
}


class Rows(NamedTuple):
    """Inputs, 0/1 labels, and whether they are the stored ones or freshly generated."""

    x: np.ndarray
    y: np.ndarray
    source: str


def rows(setting: Setting) -> Rows:
    """The stored rows of a setting where KALVI_DATA has them, otherwise rows from its seed."""
    try:
        return Rows(*datasets.figure_rows(setting.name), "stored")
    except FileNotFoundError:
        return Rows(*two_classes(setting), "generated")


def two_classes(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two Gaussian classes, in random order, determined by the setting's seed."""
    shape = float(setting.separation), float(setting.decay)
    return classes(setting.dim, setting.n_samples, *shape, setting.seed)
