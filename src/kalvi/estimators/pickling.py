"""Pickles of estimators: JAX arrays travel as NumPy arrays.

An array of JAX comes back in whatever precision JAX has by then; an array of NumPy stays what it was.
"""

from abc import abstractmethod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator

from kalvi.estimators.input_checks import check_feature_names
from kalvi.numerics.precision import matching_precision


class PickledAsNumPy(BaseEstimator):
    """An estimator whose pickles hold NumPy arrays, and which is checked when it comes out of one.

    An estimator of this kind says in `_restore` what it does with its attributes when they are back.
    """

    def __getstate__(self) -> dict[str, Any]:
        kept: Any = super().__getstate__()
        return as_numpy(kept)

    def __setstate__(self, kept: dict[str, Any]) -> None:
        super().__setstate__(kept)
        self._restore()

    @abstractmethod
    def _restore(self) -> None:
        """Check the attributes that came out of a pickle or a file, and refuse what no fit has left."""


class PickledInParts(PickledAsNumPy):
    """An estimator whose fit travels as its parts, under the names that they have in files of all versions.

    The fit says its parts in `parts`; the estimator has their names in `fit_parts`.
    """

    fit_parts: ClassVar[tuple[str, ...]]
    fit_: Any

    def __getstate__(self) -> dict[str, Any]:
        kept: Any = super().__getstate__()
        fit = kept.pop("fit_", None)
        return kept if fit is None else kept | as_numpy(fit.parts())

    def _restore(self) -> None:
        parts = {name: vars(self).pop(name) for name in self.fit_parts if name in vars(self)}
        if parts:
            check_feature_names(self)
            self.fit_ = self._fit_of(parts)

    @abstractmethod
    def _fit_of(self, parts: dict[str, Any]) -> Any:
        """The fit that these are parts of; what no fit has left is refused."""


def as_numpy(tree: Any) -> Any:
    """The tree with NumPy arrays in place of JAX's."""
    return jax.tree.map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, tree)


def as_jax(tree: Any, dtype: Any) -> Any:
    """The tree with JAX arrays in place of NumPy's, in the precision that a dtype needs."""
    with matching_precision(dtype):
        return jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, np.ndarray) else a, tree)
