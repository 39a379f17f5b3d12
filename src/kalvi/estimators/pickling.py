"""Pickles of estimators: JAX arrays travel as NumPy arrays.

An array of JAX comes back in whatever precision JAX has by then; an array of NumPy stays what it was.
"""

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator

from kalvi.numerics.precision import matching


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


def as_numpy(tree: Any) -> Any:
    """The tree with NumPy arrays in place of JAX's."""
    return jax.tree.map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, tree)


def as_jax(tree: Any, dtype: Any) -> Any:
    """The tree with JAX arrays in place of NumPy's, in the precision that a dtype needs."""
    with matching(dtype):
        return jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, np.ndarray) else a, tree)
