"""Gaussians without correlations."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi.gaussians import checks
from kalvi.gaussians.ascents import QuasiNewtonAscent
from kalvi.gaussians.dense import Dense
from kalvi.gaussians.gaussian import (
    Block,
    Curvature,
    Gathered,
    Gaussian,
    PerRow,
    Scalar,
    Updatable,
    Values,
    View,
    added_shifts,
    unchecked,
)
from kalvi.gaussians.low_rank import LowRankPrecision
from kalvi.numerics import linalg
from kalvi.numerics.linalg import LowRankPlusDiagonal
from kalvi.numerics.namespaces import AnyArray
from kalvi.numerics.precision import own_precision
from kalvi.numerics.rows import Curvature as RowCurvature
from kalvi.numerics.rows import JacobianRows
from kalvi.numerics.sparse_rows import SparseRows, put_rows


class Diagonal(Updatable):
    """N(mean, diag var): no correlations, d numbers. Of each update it keeps the diagonal of the precision.

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

    @classmethod
    def from_parts(cls, mean: Float[AnyArray, " d"], var: Float[AnyArray, " d"]) -> "Diagonal":
        """A Gaussian of parts that are known to be valid, as arrays of JAX or NumPy as they come."""
        return unchecked(cls, mean=mean, var=var)

    @property
    def rank(self) -> int:
        return 0

    def has_correlations(self) -> bool:
        return False

    def widths(self) -> tuple[Float[AnyArray, "*g d"]]:
        return (self.var,)

    def with_rank(self, rank: int) -> LowRankPrecision:
        factor = jnp.zeros((self.dim, rank), self.var.dtype)
        return LowRankPrecision(self.mean, factor, 1 / self.var)

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
        return Dense.from_root(self.mean, jnp.diag(jnp.sqrt(self.var)))

    @own_precision
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        noise = jr.normal(key, (n, self.dim), self.mean.dtype)
        return self.mean[None, :] + noise * jnp.sqrt(self.var)[None, :]

    def variance(self) -> Float[Array, " d"]:
        return self.var

    @own_precision
    def marginal_variance(self, x: Block) -> PerRow:
        return x**2 @ self.var

    @own_precision
    def predictor_covariances(self, rows: JacobianRows) -> RowCurvature:
        if rows.outputs == 1:
            return self.marginal_variance(rows.matrix())
        return rows.own_covariances(lambda x: (x * self.var[None, :]) @ x.T)

    def view(self, x: Block) -> View:
        if isinstance(x, SparseRows):
            return self._sparse_view(x)

        def absorb(coefficients: PerRow, curvature: Curvature) -> "Diagonal":
            mean = self.mean + self.var * (x.T @ coefficients)
            if curvature.ndim == 1:
                added = curvature @ x**2
            else:
                added = jnp.sum(linalg.scale_blocks_transposed(curvature, x) ** 2, axis=0)
            var = self.var / (1 + self.var * added)
            return Diagonal.from_parts(mean, var)

        return View(x @ self.mean, (x * self.var[None, :]) @ x.T, absorb)

    def _sparse_view(self, x: SparseRows) -> View:
        """The view of sparse rows, which only involves their active columns."""
        m, v = x.on_active(self.mean), x.on_active(self.var)
        local = x.over_active()

        def absorb(coefficients: PerRow, curvature: Curvature) -> "Diagonal":
            scaled = local if curvature.ndim == 1 else local.mixed(curvature)
            weight = curvature if curvature.ndim == 1 else jnp.ones_like(coefficients)
            mean = m + v * (local.T @ coefficients)
            var = v / (1 + v * ((scaled**2).T @ weight))
            return Diagonal.from_parts(
                put_rows(self.mean, x.columns, mean), put_rows(self.var, x.columns, var)
            )

        return View(local @ m, (local * v[None, :]) @ local.T, absorb)

    def prepared(self, blocks: int = 1) -> "Diagonal":
        return self

    def unprepared(self) -> "Diagonal":
        return self

    def absorb_exactly(self, x: Block, coefficients: PerRow, curvature: PerRow) -> LowRankPrecision:
        return self.with_rank(0).absorb_exactly(x, coefficients, curvature)

    def compact(self) -> "Diagonal":
        return self

    def merged_with(self, others: Sequence["Diagonal"], prior: Gaussian) -> "Diagonal":
        found = (self, *others)
        precision = sum(q.precision.diag for q in found) - len(others) * prior.precision.diagonal()
        shift = added_shifts(found, prior)
        return unchecked(
            Diagonal, mean=jnp.where(precision > 0, shift / precision, jnp.nan), var=1 / precision
        )

    def rescale(self, factor: Scalar) -> "Diagonal":
        return Diagonal.from_parts(self.mean, self.var / factor)

    def anchor(self) -> "Diagonal":
        return self

    def blocks_per_step(self) -> int:
        return 1

    def fade(self, keep: Scalar, anchor: "Diagonal", strength: Scalar) -> "Diagonal":
        var = self.var / (keep + strength * self.var / anchor.var)
        share = strength * var / anchor.var
        return Diagonal.from_parts(self.mean + share * (anchor.mean - self.mean), var)

    def relax(self, keep: Values, anchor: "Diagonal") -> "Diagonal":
        mean = anchor.mean + keep * (self.mean - anchor.mean)
        return Diagonal.from_parts(mean, keep**2 * self.var + (1 - keep**2) * anchor.var)

    def gather(self, matrix: Any) -> Gathered:
        return Gathered(matrix.diagonal())

    def toward(self, target: Gathered, prior: Gaussian) -> "Diagonal":
        return Diagonal.from_parts(self.mean, 1 / target.diagonal)

    def ascent(self, prior: Updatable) -> Any:
        return QuasiNewtonAscent.begin(prior, self)

    def embed(self, others: "Diagonal", places: Int[AnyArray, " d"]) -> "Diagonal":
        mean, var = others.mean.at[places].set(self.mean), others.var.at[places].set(self.var)
        return unchecked(Diagonal, mean=mean, var=var)
