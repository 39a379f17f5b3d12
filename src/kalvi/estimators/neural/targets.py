"""The targets of a network, numbers or classes, and its predictions in their units."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kalvi.likelihoods import Bernoulli, Normal
from kalvi.likelihoods.vector import MultiNormal, Softmax

FIRST_NOISE = 0.3
"""The first variance of the noise of standardised y."""

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Means, their variances due to the parameters, and their variances due to the noise."""


class Units(NamedTuple):
    """The means and standard deviations of columns; the deviation of a constant column is one."""

    mean: Any
    scale: Any

    @classmethod
    def of(cls, columns: np.ndarray, weight: np.ndarray) -> "Units":
        """The units of these rows."""
        largest = np.abs(columns).max(axis=0)
        unit = np.where(largest > 0, largest, 1.0)  # squares of the columns might overflow
        mean = np.average(columns / unit, axis=0, weights=weight)
        std = np.sqrt(np.average((columns / unit - mean) ** 2, axis=0, weights=weight))
        still = std <= 8 * np.finfo(float).eps
        return cls(mean * unit, np.where(still, 1.0, std * unit))

    def standardise(self, columns: np.ndarray) -> np.ndarray:
        """Columns in these units."""
        return (columns - self.mean) / self.scale


@dataclass(frozen=True, eq=False)
class NumberTargets:
    """Numbers, in one column or several."""

    units: Units
    columns: int | None  # None if y has one dimension

    @classmethod
    def of(cls, y: np.ndarray, weight: np.ndarray) -> "NumberTargets":
        """The targets of rows with these y, in their units."""
        return cls(Units.of(y, weight), None if y.ndim == 1 else y.shape[1])

    @property
    def outputs(self) -> int:
        """The number of outputs of the network."""
        return self.columns or 1

    def encode(self, y: np.ndarray) -> np.ndarray:
        """y in the form that the likelihood takes."""
        y = self.units.standardise(y)
        return y[:, 0] if self.columns == 1 else y

    def likelihood(self, noise_scale: Any) -> Any:
        """The likelihood that training begins with."""
        noise = np.full(self.outputs, FIRST_NOISE)
        if noise_scale != "auto":
            noise = np.broadcast_to((float(noise_scale) / self.units.scale) ** 2, noise.shape)
        return Normal(noise[0]) if self.outputs == 1 else MultiNormal(noise)

    def restore(self, mean: np.ndarray, epistemic: np.ndarray, aleatoric: np.ndarray) -> Parts:
        """The predictions of a network in the user's units."""
        parts = (mean, epistemic, aleatoric)
        mean, *variances = (part[:, 0] if self.columns is None else part for part in parts)
        epistemic, aleatoric = (part * self.units.scale**2 for part in variances)
        return mean * self.units.scale + self.units.mean, epistemic, aleatoric

    def parts(self) -> dict[str, Any]:
        """The parts of the targets for a file or a pickle, without the classes that an estimator
        publishes."""
        return {"y_mean_": self.units.mean, "y_scale_": self.units.scale, "_columns": self.columns}

    @classmethod
    def of_parts(cls, parts: dict[str, Any]) -> "NumberTargets":
        """The targets with these parts."""
        return cls(Units(parts["y_mean_"], parts["y_scale_"]), parts["_columns"])

    def noise_scale(self, variance: Any) -> Any:
        """The standard deviation of the noise in the units of y."""
        noise = np.sqrt(np.asarray(variance, np.float64)) * self.units.scale
        return float(noise[0]) if self.columns is None else noise


@dataclass(frozen=True, eq=False)
class ClassTargets:
    """Labels: two are modelled by one log-odds, more by a softmax."""

    classes: np.ndarray

    @property
    def outputs(self) -> int:
        return 1 if len(self.classes) == 2 else len(self.classes)

    def encode(self, y: np.ndarray) -> np.ndarray:
        unknown = np.setdiff1d(y, self.classes)
        if unknown.size:
            raise ValueError(
                f"y contains {unknown[:1].tolist()[0]!r}, which is not one of {self.classes.tolist()}."
            )
        return np.searchsorted(self.classes, y).astype(float)

    def likelihood(self, noise_scale: Any) -> Any:
        return Bernoulli() if self.outputs == 1 else Softmax.of(len(self.classes))

    def restore(self, mean: np.ndarray, epistemic: np.ndarray, aleatoric: np.ndarray) -> Parts:
        if self.outputs > 1:
            p = np.clip(mean, 0, None)
            return p / p.sum(axis=1, keepdims=True), epistemic, aleatoric
        p = np.clip(mean, 0, 1)
        epistemic, aleatoric = (np.hstack([part, part]) for part in (epistemic, aleatoric))
        return np.hstack([1 - p, p]), epistemic, aleatoric

    def parts(self) -> dict[str, Any]:
        return {}


Targets = NumberTargets | ClassTargets
"""The targets that a network learns to predict."""
