"""Kernel, likelihood and prior mean of a Gaussian process, and their free numbers as one vector."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from kalvi.estimators.gaussian_process.covariances import REACH, Covariance
from kalvi.likelihoods import Likelihood

MEAN_REACH = 100.0
"""The search for the constant of the mean stays within this distance of its start, in its unit."""


class PriorMean(NamedTuple):
    """The prior mean of the latent function: a constant, learned or not, and perhaps a function."""

    constant: float
    learned: bool
    unit: float = 1.0  # of the constant in the search
    function: Callable[[np.ndarray], Any] | None = None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if self.function is None:
            return np.full(len(x), self.constant)
        values = np.asarray(self.function(x), float)
        if values.shape != (len(x),):
            raise ValueError(
                f"mean must give one number for each of the {len(x)} rows; got shape {values.shape}."
            )
        return values + self.constant


class Hyperparameters(NamedTuple):
    """The parts of a Gaussian process, and their free numbers as one vector."""

    covariance: Covariance
    likelihood: Likelihood
    mean: PriorMean

    @property
    def theta(self) -> np.ndarray:
        """The free numbers for a search: logarithms, and the constant in its unit."""
        constant = [self.mean.constant / self.mean.unit] if self.mean.learned else []
        return np.concatenate([self.covariance.theta, self._logs, constant])

    @property
    def names(self) -> list[str]:
        """The name of each entry of `theta`."""
        paths = jax.tree_util.tree_flatten_with_path(self._numbers)[0]
        kind = type(self.likelihood).__name__
        likelihood = [kind + jax.tree_util.keystr(path) for path, _ in paths]
        return self.covariance.names + likelihood + ["mean"] * self.mean.learned

    @property
    def _logs(self) -> np.ndarray:
        return np.log([float(leaf) for leaf in jax.tree.leaves(self._numbers)])

    @property
    def _numbers(self) -> Likelihood:
        return eqx.filter(self.likelihood, eqx.is_inexact_array_like)

    @property
    def values(self) -> dict[str, float]:
        """The free numbers by name."""
        shown = np.exp(np.concatenate([self.covariance.theta, self._logs]))
        shown = np.append(shown, [self.mean.constant] if self.mean.learned else [])
        return {name: float(v) for name, v in zip(self.names, shown, strict=True)}

    @property
    def bounds(self) -> np.ndarray:
        """The least and the largest value of each entry of `theta` in a search."""
        rest = self.theta[len(self.covariance.theta) :]
        reach = np.full(len(rest), REACH)
        if self.mean.learned:
            reach[-1] = MEAN_REACH
        return np.concatenate(
            [self.covariance.bounds, np.column_stack([rest - reach, rest + reach])]
        )

    def at(self, theta: np.ndarray) -> "Hyperparameters":
        """A copy with other free numbers."""
        cov, logs, constant = np.split(
            theta, np.cumsum([len(self.covariance.theta), len(self._logs)])
        )
        leaves, structure = jax.tree.flatten(self._numbers)
        values = [
            np.asarray(np.exp(log), leaf.dtype) for log, leaf in zip(logs, leaves, strict=True)
        ]
        mean = self.mean
        if mean.learned:
            mean = mean._replace(constant=float(constant[0]) * mean.unit)
        likelihood = eqx.combine(jax.tree.unflatten(structure, values), self.likelihood)
        return Hyperparameters(self.covariance.at(cov), likelihood, mean)

    def gradient(self, by_cov: np.ndarray, likelihood: Likelihood, by_mean: float) -> np.ndarray:
        """The gradient with respect to `theta`, from the gradients of the parts."""
        pairs = zip(jax.tree.leaves(self._numbers), jax.tree.leaves(likelihood), strict=True)
        logs = [float(value) * float(slope) for value, slope in pairs]
        constant = [by_mean * self.mean.unit] if self.mean.learned else []
        return np.concatenate([by_cov, logs, constant])
