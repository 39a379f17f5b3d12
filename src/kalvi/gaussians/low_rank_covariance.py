"""Gaussians whose covariance is of low rank plus a diagonal."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.gaussians import checks
from kalvi.gaussians.dense import Dense, written_out
from kalvi.gaussians.draws import draw_terms
from kalvi.gaussians.gaussian import Between, Block, Gaussian, PerRow, Scalar, no_such_rank
from kalvi.numerics.linalg import LowRankPlusDiagonal
from kalvi.numerics.namespaces import AnyArray
from kalvi.numerics.precision import own_precision
from kalvi.numerics.rows import Curvature as RowCurvature
from kalvi.numerics.rows import JacobianRows


class LowRankCovariance(Gaussian):
    """N(mean, F Fᵀ + diag): the factor-analysis covariance, d (p + 2) numbers.

    Parameters
    ----------
    mean : array of shape (d,)
    factor : array of shape (d, p)
    diag : array of shape (d,), positive
    """

    mean: Float[Array, " d"]
    covariance: LowRankPlusDiagonal

    def __init__(self, mean, factor, diag):
        self.mean, self.covariance = checks.low_rank_parts(mean, factor, diag, "LowRankCovariance")

    @property
    def rank(self) -> None:
        return None

    def has_correlations(self) -> bool:
        return bool(jnp.any(self.covariance.factor != 0))

    def widths(self) -> tuple[Float[AnyArray, "*g d"]]:
        return (self.covariance.diag,)

    def with_rank(self, rank: int) -> Any:
        raise no_such_rank(self, rank)

    @property
    @own_precision
    def precision(self) -> LowRankPlusDiagonal:
        return self.covariance.inverse()

    @own_precision
    def logdet(self) -> Scalar:
        return self.covariance.logdet()

    @own_precision
    def to_dense(self) -> Dense:
        return written_out(self)

    @own_precision
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        common, own = draw_terms(self.covariance, key, n)
        return self.mean[None, :] + common + own

    @own_precision
    def marginal(self, x: Block) -> tuple[PerRow, Between]:
        rows = x @ self.covariance.factor
        return x @ self.mean, rows @ rows.T + (x * self.covariance.diag[None, :]) @ x.T

    @own_precision
    def variance(self) -> Float[Array, " d"]:
        return self.covariance.diagonal()

    @own_precision
    def marginal_variance(self, x: Block) -> PerRow:
        return ((x @ self.covariance.factor) ** 2).sum(axis=1) + x**2 @ self.covariance.diag

    @own_precision
    def predictor_covariances(self, rows: JacobianRows) -> RowCurvature:
        if rows.outputs == 1:
            return self.marginal_variance(rows.matrix())
        return rows.own_covariances(lambda x: self.marginal(x)[1])
