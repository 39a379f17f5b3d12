"""Gaussians with every correlation, or with none."""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi import checks, linalg
from kalvi.gaussians.base import (
    Block,
    Curvature,
    Gaussian,
    PerRow,
    Scalar,
    Updatable,
    View,
    scale_of,
    unchecked,
)
from kalvi.linalg import LowRankPlusDiagonal
from kalvi.namespaces import AnyArray, namespace_of
from kalvi.precision import own_precision


class Dense(Updatable):
    """N(mean, root rootᵀ): every correlation, d² numbers.

    Parameters
    ----------
    mean : array of shape (d,)
    cov : array of shape (d, d), symmetric and positive definite
    """

    mean: Float[Array, " d"]
    root: Float[Array, "d d"]

    def __init__(self, mean, cov):
        self.mean, cov = checks.floating(mean, cov)
        d = self.mean.shape[0] if self.mean.ndim == 1 else -1
        checks.need(
            cov.shape == (d, d),
            "Dense needs a mean of shape (d,) and a cov of shape (d, d)",
            mean,
            cov,
        )
        self.root = checks.checked_root(cov)

    @classmethod
    def from_root(cls, mean: Float[AnyArray, " d"], root: Float[AnyArray, "d d"]) -> "Dense":
        """N(mean, root rootᵀ) for any square root of the covariance."""
        return unchecked(cls, mean=mean, root=root)

    @property
    @own_precision
    def cov(self) -> Float[Array, "d d"]:
        """The covariance matrix."""
        return self.root @ self.root.T

    @property
    @own_precision
    def covariance(self) -> LowRankPlusDiagonal:
        return LowRankPlusDiagonal(jnp.zeros_like(self.mean), self.root)

    @property
    @own_precision
    def precision(self) -> LowRankPlusDiagonal:
        return LowRankPlusDiagonal(jnp.zeros_like(self.mean), linalg.inverse_root(self.root))

    def to_dense(self) -> "Dense":
        return self

    @own_precision
    def logdet(self) -> Scalar:
        return linalg.root_logdet(self.root)

    @own_precision
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        noise = jr.normal(key, (n, self.dim), self.mean.dtype)
        return self.mean[None, :] + noise @ self.root.T

    @own_precision
    def variance(self) -> Float[Array, " d"]:
        return jnp.sum(self.root**2, axis=1)

    @own_precision
    def marginal_variance(self, x: Block) -> PerRow:
        return ((x @ self.root) ** 2).sum(axis=1)

    def view(self, x: Block) -> View:
        rows = x @ self.root

        def absorb(coefficients: PerRow, curvature: Curvature) -> "Dense":
            mean = self.mean + self.root @ (rows.T @ coefficients)
            return Dense.from_root(mean, linalg.shrink_root(self.root, rows, scale_of(curvature)))

        return View(x @ self.mean, rows @ rows.T, absorb)

    def rescale(self, factor: Scalar) -> "Dense":
        return Dense.from_root(self.mean, self.root / namespace_of(factor, self.root).sqrt(factor))

    def temper(self, factor: Scalar) -> "Dense":
        root = self.rescale(factor).root
        std = jnp.sqrt(jnp.sum(root**2, axis=1))
        return Dense.from_root(
            self.mean, linalg.scale_rows(linalg.MAX_STD / jnp.maximum(std, linalg.MAX_STD), root)
        )

    def diffuse(self, variance: Scalar) -> "Dense":
        return Dense.from_root(self.mean, linalg.widen_root(self.root, variance))

    def among(self, others: "Dense", places: Int[Array, " d"]) -> "Dense":
        mean = others.mean.at[places].set(self.mean)
        return Dense.from_root(
            mean, others.root.at[places[:, None], places[None, :]].set(self.root)
        )


class Diagonal(Updatable):
    """N(mean, diag var): no correlations, d numbers; keeps the diagonal of the precision it is given.

    Parameters
    ----------
    mean : array of shape (d,)
    var : array of shape (d,), positive
    """

    mean: Float[Array, " d"]
    var: Float[Array, " d"]

    def __init__(self, mean, var):
        self.mean, self.var = checks.floating(mean, var)
        shapes = self.mean.ndim == 1 and self.var.shape == self.mean.shape
        checks.need(shapes, "Diagonal needs a mean and a var of the same shape (d,)", mean, var)
        checks.positive(self.var, "var")

    @property
    @own_precision
    def covariance(self) -> LowRankPlusDiagonal:
        return LowRankPlusDiagonal(self.var, jnp.zeros((self.dim, 0), self.var.dtype))

    @property
    @own_precision
    def precision(self) -> LowRankPlusDiagonal:
        return LowRankPlusDiagonal(1 / self.var, jnp.zeros((self.dim, 0), self.var.dtype))

    @own_precision
    def logdet(self) -> Scalar:
        return jnp.sum(jnp.log(self.var))

    @own_precision
    def to_dense(self) -> Dense:
        return written_out(self)

    @own_precision
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        noise = jr.normal(key, (n, self.dim), self.mean.dtype)
        return self.mean[None, :] + noise * jnp.sqrt(self.var)[None, :]

    def variance(self) -> Float[Array, " d"]:
        return self.var

    @own_precision
    def marginal_variance(self, x: Block) -> PerRow:
        return x**2 @ self.var

    def view(self, x: Block) -> View:
        def absorb(coefficients: PerRow, curvature: Curvature) -> "Diagonal":
            mean = self.mean + self.var * (x.T @ coefficients)
            if curvature.ndim == 1:
                added = curvature @ x**2
            else:
                added = jnp.sum(linalg.mix_transposed(curvature, x) ** 2, axis=0)
            var = self.var / (1 + self.var * added)
            return unchecked(Diagonal, mean=mean, var=var)

        return View(x @ self.mean, (x * self.var[None, :]) @ x.T, absorb)

    def rescale(self, factor: Scalar) -> "Diagonal":
        return unchecked(Diagonal, mean=self.mean, var=self.var / factor)

    def temper(self, factor: Scalar) -> "Diagonal":
        return unchecked(
            Diagonal, mean=self.mean, var=jnp.minimum(self.var / factor, linalg.MAX_STD**2)
        )

    def diffuse(self, variance: Scalar) -> "Diagonal":
        return unchecked(Diagonal, mean=self.mean, var=self.var + variance)

    def among(self, others: "Diagonal", places: Int[Array, " d"]) -> "Diagonal":
        mean, var = others.mean.at[places].set(self.mean), others.var.at[places].set(self.var)
        return unchecked(Diagonal, mean=mean, var=var)


def written_out(q: Gaussian) -> Dense:
    """The Gaussian with its covariance as a matrix."""
    return Dense.from_root(q.mean, linalg.cholesky(q.covariance.to_dense()))
