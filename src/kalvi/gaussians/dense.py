"""Gaussians with every correlation."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi.gaussians import checks
from kalvi.gaussians.ascents import NaturalAscent
from kalvi.gaussians.gaussian import (
    Block,
    Curvature,
    Gaussian,
    PerRow,
    Scalar,
    Updatable,
    Values,
    View,
    added_shifts,
    no_such_rank,
    scale_of,
    unchecked,
)
from kalvi.numerics import linalg
from kalvi.numerics.linalg import LowRankPlusDiagonal
from kalvi.numerics.namespaces import AnyArray, namespace_of
from kalvi.numerics.precision import own_precision
from kalvi.numerics.rows import Curvature as RowCurvature
from kalvi.numerics.rows import JacobianRows

STEP_WIDTH = 8
"""A step of a drift costs one block of rows for every so many parameters, and serves so many blocks."""


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
    def rank(self) -> None:
        return None

    def has_correlations(self) -> bool:
        return True

    def widths(self) -> tuple[()]:
        return ()

    def with_rank(self, rank: int) -> Any:
        raise no_such_rank(self, rank)

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

    @own_precision
    def predictor_covariances(self, rows: JacobianRows) -> RowCurvature:
        return outer_products(rows.times(self.root))

    def view(self, x: Block) -> View:
        rows = x @ self.root
        cov = rows @ rows.T

        def absorb(coefficients: PerRow, curvature: Curvature) -> "Dense":
            mean = self.mean + self.root @ (rows.T @ coefficients)
            root = linalg.shrink_root(self.root, rows, cov, scale_of(curvature))
            return Dense.from_root(mean, root)

        return View(x @ self.mean, cov, absorb)

    def prepared(self, blocks: int = 1) -> "Dense":
        return self

    def unprepared(self) -> "Dense":
        return self

    def absorb_exactly(self, x: Block, coefficients: PerRow, curvature: PerRow) -> Updatable:
        return self.view(x).absorb(coefficients, curvature)

    def compact(self) -> "Dense":
        return self

    def merged_with(self, others: Sequence["Dense"], prior: Gaussian) -> "Dense":
        precision = sum(q.precision.to_dense() for q in (self, *others))
        precision = precision - len(others) * prior.precision.to_dense()
        shift = added_shifts((self, *others), prior)
        root = linalg.root_from_precision((precision + precision.T) / 2)
        return Dense.from_root(root @ (root.T @ shift), root)

    def rescale(self, factor: Scalar) -> "Dense":
        return Dense.from_root(self.mean, self.root / namespace_of(factor, self.root).sqrt(factor))

    def anchor(self) -> "Dense":
        return self

    def blocks_per_step(self) -> int:
        return 1 + self.dim // STEP_WIDTH

    def fade(self, keep: Scalar, anchor: Gaussian, strength: Scalar) -> "Dense":
        """R ← R L^{-T}, L Lᵀ = keep I + strength Rᵀ Λ₀ R."""
        seen = strength * (self.root.T @ anchor.solve(self.root))
        root = linalg.fade_root(self.root, keep, (seen + seen.T) / 2)
        pull = root.T @ anchor.solve(anchor.mean - self.mean)
        return Dense.from_root(self.mean + strength * (root @ pull), root)

    def relax(self, keep: Values, anchor: Gaussian) -> "Dense":
        share, none = jnp.sqrt(1 - keep**2), jnp.zeros_like(self.mean)
        kept = linalg.scale_rows(keep + none, self.root)
        added = linalg.scale_rows(share + none, anchor.to_dense().root)
        mean = anchor.mean + keep * (self.mean - anchor.mean)
        return Dense.from_root(mean, linalg.add_roots(kept, added))

    def gather(self, matrix: Any) -> Float[Array, "d d"]:
        return matrix.to_dense()

    def toward(self, target: Float[Array, "d d"], prior: Gaussian) -> "Dense":
        precision = (target + target.T) / 2
        # scaled to a unit diagonal, so that rounding is relative to each parameter's own precision
        size = 1 / jnp.sqrt(jnp.diagonal(precision))
        root = linalg.steady_cholesky(precision * size[:, None] * size[None, :])
        return Dense.from_root(self.mean, linalg.inverse_root(root) * size[:, None])

    def ascent(self, prior: Gaussian) -> Any:
        return NaturalAscent.begin(prior.to_dense(), self)

    def embed(self, others: "Dense", places: Int[AnyArray, " d"]) -> "Dense":
        mean = others.mean.at[places].set(self.mean)
        return Dense.from_root(
            mean, others.root.at[places[:, None], places[None, :]].set(self.root)
        )


def outer_products(half: Float[AnyArray, "n *ck"]) -> RowCurvature:
    """h hᵀ of each observation, given the roots h of its predictors."""
    return (half**2).sum(axis=1) if half.ndim == 2 else half @ half.swapaxes(1, 2)


def written_out(q: Gaussian) -> Dense:
    """The Gaussian with its covariance as a matrix."""
    return Dense.from_root(q.mean, linalg.cholesky(q.covariance.to_dense()))
