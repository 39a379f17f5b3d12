"""Large matrices by LAPACK itself.

Roots take half the time that NumPy takes for them, which copies more; inverses of triangular matrices take
a third of the work of the systems that JAX writes for them.
"""

import numpy as np
import scipy.linalg

from kalvi.system.threads import algebra_on_one_thread

LARGE = 128
"""Matrices with more rows are large; larger systems are checked for an inverse as their solution."""


def large_root(a: np.ndarray) -> np.ndarray:
    """The lower Cholesky root; NaN for a matrix that is not positive definite."""
    (factorise,) = scipy.linalg.get_lapack_funcs(("potrf",), (a,))
    with algebra_on_one_thread():  # SciPy's threads would contend with NumPy's
        # LAPACK stores columns first, so it reads the transpose of an array of rows without a copy
        root, info = factorise(a.T, lower=False, clean=True)
    return np.full(a.shape, np.nan, a.dtype) if info else root.T


def is_large_identity(b: np.ndarray) -> bool:
    """Whether the solution of a system with this right-hand side is a large inverse."""
    n = len(b)
    if n <= LARGE or b.shape != (n, n) or b[0, 0] != 1 or b[0, 1:].any():  # the usual case
        return False
    return bool(np.count_nonzero(b) == n and np.all(np.diagonal(b) == 1))


def triangular_inverse(a: np.ndarray, lower: bool, unit: bool) -> np.ndarray:
    """The inverse of a triangular matrix; NaN if it is singular."""
    (invert,) = scipy.linalg.get_lapack_funcs(("trtri",), (a,))
    with algebra_on_one_thread():
        inverse, info = invert(a.T, lower=not lower, unitdiag=unit)
    if info > 0:
        return np.full(a.shape, np.nan, a.dtype)
    inverse = np.tril(inverse.T) if lower else np.triu(inverse.T)
    if unit:  # LAPACK leaves the diagonal unchanged
        np.fill_diagonal(inverse, 1)
    return inverse
