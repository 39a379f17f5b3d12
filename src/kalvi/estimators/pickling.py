"""Pickling of estimators, with NumPy arrays in place of JAX arrays.

A JAX array is unpickled in JAX's precision at that time; a NumPy array keeps its own.
"""

from abc import abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator

from kalvi.estimators.input_checks import check_feature_names
from kalvi.numerics.precision import matching_precision

Fit = TypeVar("Fit")


class PickledAsNumPy(BaseEstimator):
    """An estimator that is pickled with NumPy arrays, and checked when it is unpickled."""

    n_features_in_: int

    def __getstate__(self) -> dict[str, Any]:
        kept: Any = super().__getstate__()
        return as_numpy(kept)

    def __setstate__(self, kept: dict[str, Any]) -> None:
        super().__setstate__(kept)
        self._restore()

    @abstractmethod
    def _restore(self) -> None:
        """Check the attributes from a pickle or a file; refuse those that no fit can have."""


class PickledInParts(PickledAsNumPy, Generic[Fit]):
    """An estimator that is pickled with the parts of its fit, by names that are the same in all versions.

    The fit returns the parts from `parts()`, and `fit_parts` has their names.
    """

    fit_parts: ClassVar[tuple[str, ...]]
    fit_: Fit

    def __getstate__(self) -> dict[str, Any]:
        kept: Any = super().__getstate__()
        fit: Any = kept.pop("fit_", None)
        return kept if fit is None else kept | as_numpy(fit.parts())

    def _restore(self) -> None:
        parts = {name: vars(self).pop(name) for name in self.fit_parts if name in vars(self)}
        if parts:
            check_feature_names(self)
            self.fit_ = self._fit_of(parts)

    def _fitted(self, name: str) -> Fit:
        """The fit, for reading the attribute `name`."""
        if "fit_" not in vars(self):
            streams = hasattr(self, "partial_fit")
            raise AttributeError(
                f"{name} exists only after fit{' or partial_fit' if streams else ''}."
            )
        return self.fit_

    @abstractmethod
    def _fit_of(self, parts: dict[str, Any]) -> Fit:
        """Make the fit from its parts; refuse parts that no fit can have."""


def as_numpy(tree: Any) -> Any:
    """The tree with NumPy arrays in place of JAX arrays."""
    return jax.tree.map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, tree)


def as_jax(tree: Any, dtype: Any) -> Any:
    """The tree with JAX arrays in place of NumPy arrays, in the precision that `dtype` needs."""
    with matching_precision(dtype):
        return jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, np.ndarray) else a, tree)
