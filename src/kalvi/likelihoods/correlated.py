"""Vectors with correlated normal noise: the full noise covariance R of a Kalman filter."""

import equinox as eqx
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

from kalvi.likelihoods.sites import Expected
from kalvi.likelihoods.vector import NormalVector
from kalvi.numerics import linalg
from kalvi.numerics.namespaces import AnyArray, Scalar, as_setting, namespace_of
from kalvi.numerics.precision import is_traced

Vector = Float[Array, " c"]
Matrix = Float[Array, "c c"]
Label = Float[Array, "*o"]
Vectors = Float[AnyArray, "*n c"]
Matrices = Float[AnyArray, "*n c c"]


class CorrelatedNormal(NormalVector):
    """y = f + noise of a given covariance; every scheme is then the Kalman filter.

    Parameters
    ----------
    cov : array of shape (c, c), symmetric and positive definite
    """

    cov: Float[AnyArray, "c c"] = eqx.field(converter=as_setting)

    def __check_init__(self):
        shape = self.cov.shape
        if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 2:
            raise ValueError(
                "CorrelatedNormal needs the noise covariance of two outputs or more, an array of shape "
                f"(c, c); got shape {shape}. For independent noise use MultiNormal(variance)."
            )
        if not is_traced(self.cov):
            _need_covariance(np.asarray(self.cov))

    @property
    def outputs(self) -> int:
        return self.cov.shape[0]

    def log_prob(self, f: Vector, y: Label) -> Scalar:
        return self.log_predictive(y, f, jnp.zeros_like(self._root()))

    def moments(self, f: Vector) -> tuple[Vector, Vector]:
        return f, jnp.diagonal(jnp.asarray(self.cov))

    def information(self, f: Vector) -> Matrix:
        return linalg.cho_solve(self._root(), linalg.identity_like(self._root()))

    def expect(self, y: Label, mean: Vector, var: Matrix) -> Expected:
        precision = self.information(mean)
        value = self.log_prob(mean, y) - jnp.sum(precision * var) / 2
        return Expected(value, precision @ (y - mean), precision)

    def predict(self, mean: Vectors, var: Matrices) -> tuple[Vectors, Matrices]:
        return mean, var + namespace_of(var).asarray(self.cov, var.dtype)

    def noise(self, mean: Vector, var: Matrix) -> Vector:
        return jnp.asarray(jnp.diagonal(jnp.asarray(self.cov)), mean.dtype)

    def log_predictive(
        self, y: Label, mean: Vector, var: Matrix, weight: Scalar | float = 1.0
    ) -> Scalar:
        root = linalg.cholesky(self.cov + weight * var)
        away = jsl.solve_triangular(root, y - mean, lower=True)
        volume = jnp.log(jnp.diagonal(root)) + (weight - 1) * jnp.log(jnp.diagonal(self._root()))
        constant = weight * len(mean) * float(np.log(2 * np.pi)) / 2
        return -weight * (away @ away) / 2 - jnp.sum(volume) - constant

    def _root(self) -> Matrix:
        return linalg.cholesky(jnp.asarray(self.cov))


def _need_covariance(cov: np.ndarray) -> None:
    """Refuse a matrix that is not a covariance."""
    symmetric = np.all(np.isfinite(cov)) and np.allclose(cov, cov.T)
    if not symmetric or np.linalg.eigvalsh(cov)[0] <= 0:
        raise ValueError(
            "CorrelatedNormal needs a finite, symmetric and positive definite noise covariance; "
            f"got {cov.tolist()}."
        )
