"""Kernels as the Gaussian process estimators use them: the library's own, or scikit-learn's.

Both give the covariance matrix of rows, take the derivative of a bound with respect to that matrix back to
the hyperparameters, and serve predictions. Matrices of rows are padded with zeros to a few sizes, so that
tables of nearly the same length share what is compiled.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.gaussian_process import kernels as sklearn_kernels

from kalvi import kernels
from kalvi.estimators.gaussian_process.placement import is_small, placed
from kalvi.numerics.linalg import cholesky
from kalvi.numerics.namespaces import AnyArray
from kalvi.streams import run

INDEFINITE, INDEFINITE_SINGLE = 1e-8, 1e-3
"""The largest negative eigenvalues of a kernel matrix that count as rounding, in float64 and in float32, as
a share of its largest entry."""
CHECKED_ROWS = 512
"""The number of rows on which a kernel is checked to be a covariance."""
REACH = float(np.log(1e5))
"""The search for hyperparameters stays within this distance of its start, in logarithms."""


def padded_size(n: int) -> int:
    """The number of rows to which n rows are padded: beyond 64, at most a thirty-second more."""
    step = max(16, 1 << max(n.bit_length() - 6, 0))
    return -(-n // step) * step


class KalviKernel:
    """A kernel of the library; derivatives by automatic differentiation."""

    def __init__(self, kernel: kernels.Kernel, dtype: Any):
        self.dtype = dtype
        # NumPy arrays, so that unpickling does not depend on JAX's global precision
        self.kernel: Any = jax.tree.map(lambda a: np.asarray(a, dtype), kernel)
        self.theta = np.asarray(kernels.flatten(self.kernel)[0], np.float64)
        self.bounds = np.column_stack([self.theta - REACH, self.theta + REACH])
        self.names = kernels.names(kernel)

    def at(self, theta: np.ndarray) -> "KalviKernel":
        """The same kernel with other hyperparameters."""
        rebuild = kernels.flatten(self.kernel)[1]
        new = KalviKernel(rebuild(np.asarray(theta, self.dtype)), self.dtype)
        new.bounds = self.bounds
        return new

    def gram(self, x: np.ndarray, size: int) -> AnyArray:
        """The covariance matrix of the rows, padded with zeros."""
        return run.call(_gram, self.kernel, *_padded(x, size, self.dtype))

    def pull(self, x: np.ndarray, slope: AnyArray) -> np.ndarray:
        """∂/∂theta of a bound whose derivative with respect to the padded matrix is `slope`."""
        rows, mask = _padded(x, len(slope), self.dtype)
        slopes = run.call(_pull, self.kernel, rows, mask, slope)
        return kernels.log_slopes(self.kernel, slopes)

    def cross(self, x: np.ndarray, rows: np.ndarray, size: int) -> AnyArray:
        """The covariances of new points x with the rows, padded with zeros."""
        new = _placed(x, size, self.dtype)
        return run.call(_cross, self.kernel, new, *_padded(rows, size, self.dtype))

    def diagonal(self, x: np.ndarray, size: int) -> AnyArray:
        """The variance at each new point, for rows padded to a size."""
        return run.call(_diagonal, self.kernel, _placed(x, size, self.dtype))


class SklearnKernel:
    """A kernel of scikit-learn, with its derivatives of (n, n, p) numbers."""

    def __init__(self, kernel: Any, dtype: Any):
        self.kernel, self.dtype = kernel, dtype
        self.theta, self.bounds = np.asarray(kernel.theta), np.asarray(kernel.bounds).reshape(-1, 2)
        free = [h for h in kernel.hyperparameters if not h.fixed]
        self.names = [
            h.name if h.n_elements == 1 else f"{h.name}[{k}]"
            for h in free
            for k in range(h.n_elements)
        ]

    def at(self, theta: np.ndarray) -> "SklearnKernel":
        return SklearnKernel(self.kernel.clone_with_theta(theta), self.dtype)

    def gram(self, x: np.ndarray, size: int) -> AnyArray:
        missing = size - len(x)
        gram = np.pad(self.kernel(x), [(0, missing), (0, missing)])
        return _placed(gram, size, self.dtype)

    def pull(self, x: np.ndarray, slope: AnyArray) -> np.ndarray:
        _, slopes = self.kernel(x, eval_gradient=True)
        return np.einsum("ij,ijp->p", np.asarray(slope)[: len(x), : len(x)], slopes)

    def cross(self, x: np.ndarray, rows: np.ndarray, size: int) -> AnyArray:
        cross = np.pad(self.kernel(x, rows), [(0, 0), (0, size - len(rows))])
        return _placed(cross, size, self.dtype)

    def diagonal(self, x: np.ndarray, size: int) -> AnyArray:
        return _placed(self.kernel.diag(x), size, self.dtype)


Covariance = KalviKernel | SklearnKernel
"""A kernel, and its hyperparameters as a vector of logarithms."""


def make_covariance(kernel: Any, dtype: Any) -> Covariance:
    """The covariance of a kernel of kalvi or scikit-learn."""
    if isinstance(kernel, kernels.Kernel):
        return KalviKernel(kernel, dtype)
    if isinstance(kernel, sklearn_kernels.Kernel):
        return SklearnKernel(kernel, dtype)
    raise TypeError(
        "kernel must be one of kalvi.kernels, one of sklearn.gaussian_process.kernels or None; got "
        f"{type(kernel).__name__}. A function of your own goes into kalvi.kernels.Function."
    )


def derivative_squares(kernel: Any) -> int:
    """The number of N × N arrays for the derivatives of a kernel; those of scikit-learn take two a
    parameter."""
    return 2 * kernel.n_dims if isinstance(kernel, sklearn_kernels.Kernel) else 0


def check_covariance(cov: Covariance, x: np.ndarray) -> None:
    """Refuse a kernel that is not a covariance, as checked on a few hundred rows."""
    some = x[:: -(-len(x) // CHECKED_ROWS)]
    gram = cov.gram(some, padded_size(len(some)))
    finite, symmetric, positive = run.call(_covariance_signs, gram)
    if not finite:
        raise ValueError("the kernel gives NaN or infinity for some pairs of rows.")
    if not (symmetric and positive):
        matrix = np.asarray(gram, np.float64)[: len(some), : len(some)]
        least = float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[0])
        raise ValueError(
            "the kernel must be symmetric and positive semidefinite; the matrix of "
            f"{len(some)} rows has the eigenvalue {least:.3g} and differs from its transpose by "
            f"{float(np.max(np.abs(matrix - matrix.T))):.3g}."
            + " In float32 distances between far rows are rounded: dtype='float64' may do."
            * (np.dtype(cov.dtype) == np.float32)
        )


def _padded(x: np.ndarray, size: int, dtype: Any) -> tuple[AnyArray, AnyArray]:
    """The rows padded with copies of the first, and a mask of the rows."""
    n = len(x)
    rows = np.concatenate([x, np.broadcast_to(x[:1], (size - n, x.shape[1]))])
    return _placed(rows, size, dtype), _placed(np.arange(size) < n, size, dtype)


def _placed(array: np.ndarray, size: int, dtype: Any) -> AnyArray:
    """An array on the engine of a fit whose matrices have `size` rows."""
    return placed(array, dtype, is_small(size))


def _gram(kernel: kernels.Kernel, rows, mask):
    return kernel.gram(rows) * mask[:, None] * mask[None, :]


def _pull(kernel: kernels.Kernel, rows, mask, slope):
    return jax.vjp(lambda kernel: _gram(kernel, rows, mask), kernel)[1](slope)[0]


def _cross(kernel: kernels.Kernel, x, rows, mask):
    return kernel(x, rows) * mask[None, :]


def _diagonal(kernel: kernels.Kernel, x):
    return kernel.diagonal(x)


def _covariance_signs(gram):
    """Signs of a covariance: whether a matrix is finite, symmetric, and positive semidefinite up to
    rounding."""
    size, largest = gram.shape[0], jnp.max(jnp.abs(gram))
    share = INDEFINITE if gram.dtype == jnp.float64 else INDEFINITE_SINGLE
    raised = (gram + gram.T) / 2 + share * largest * jnp.eye(size, dtype=gram.dtype)
    symmetric = jnp.max(jnp.abs(gram - gram.T)) <= share * largest
    return jnp.isfinite(largest), symmetric, jnp.all(jnp.isfinite(cholesky(raised)))
