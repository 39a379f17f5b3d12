"""A structure that is not in the library, to show what a new one costs: its own file, a row of tables.py.

Levels of a group beside a small corner of other parameters, as in a model with random intercepts. Given the
corner c ~ N(·, R Rᵀ) the levels are independent, u = A c + e, e ~ N(0, diag r): the precision is an arrow,

    Λ = [[diag a, B], [Bᵀ, C]],     a = 1/r,   B = −diag(a) A,   C = (R Rᵀ)⁻¹ + Aᵀ diag(a) A,

of O(levels) numbers. A row with one level adds to these entries alone and is absorbed exactly.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from kalvi.gaussians import Dense, Updatable
from kalvi.gaussians.ascents import QuasiNewtonAscent
from kalvi.gaussians.dense import written_out
from kalvi.gaussians.gaussian import Gathered, View, added_shifts, no_such_rank, scale_of
from kalvi.numerics import linalg
from kalvi.numerics.linalg import LowRankPlusDiagonal, SymmetricMatrix
from kalvi.numerics.namespaces import namespace_of
from kalvi.numerics.precision import own_precision
from kalvi.numerics.sparse_rows import as_matrix


class ArrowMatrix(SymmetricMatrix):
    levels: Float[Array, " m"]
    coupling: Float[Array, "m k"]
    corner: Float[Array, "k k"]

    def matvec(self, v):
        u, c = v[: len(self.levels)], v[len(self.levels) :]
        top = linalg.scale_rows(self.levels, u) + self.coupling @ c
        return jnp.concatenate([top, self.coupling.T @ u + self.corner @ c])

    def diagonal(self):
        return jnp.concatenate([self.levels, jnp.diagonal(self.corner)])

    def diagonal_part(self):
        return 0 * self.diagonal()

    def quadratic_trace(self, v):
        return jnp.sum(v * self.matvec(v))

    def to_dense(self):
        top = jnp.concatenate([jnp.diag(self.levels), self.coupling], axis=1)
        return jnp.concatenate([top, jnp.concatenate([self.coupling.T, self.corner], axis=1)])


class Arrow(Updatable):
    """N(mean, Λ⁻¹), the corner's parameters last."""

    mean: Float[Array, " d"]
    slopes: Float[Array, "m k"]  # A
    own: Float[Array, " m"]  # r
    root: Float[Array, "k k"]  # R

    @classmethod
    def of_precision(cls, mean: Array, entries: ArrowMatrix) -> "Arrow":
        """From entries of Λ; couplings that no Gaussian could have are weakened."""
        own = 1 / entries.levels
        pulled = entries.coupling.T @ linalg.scale_rows(own, entries.coupling)
        unroot = linalg.triangular_inverse(linalg.cholesky(entries.corner))
        share = jnp.linalg.eigvalsh(unroot @ pulled @ unroot.T)[-1]
        keep = jnp.where(share < 1, 1.0, 0.5 / share)
        root = linalg.root_from_precision(entries.corner - keep * pulled)
        slopes = -jnp.sqrt(keep) * linalg.scale_rows(own, entries.coupling)
        return cls(mean, slopes, own, root)

    @property
    @own_precision
    def covariance(self) -> LowRankPlusDiagonal:
        xp = namespace_of(self.mean)
        diag = xp.concatenate([self.own, 0 * self.root[0]])
        return LowRankPlusDiagonal(diag, xp.concatenate([self.slopes @ self.root, self.root]))

    @property
    @own_precision
    def precision(self) -> ArrowMatrix:
        coupling = -linalg.scale_rows(1 / self.own, self.slopes)
        unroot = linalg.inverse_root(self.root)
        return ArrowMatrix(1 / self.own, coupling, unroot @ unroot.T - self.slopes.T @ coupling)

    @property
    def rank(self) -> None:
        return None

    def has_correlations(self) -> bool:
        return True

    def widths(self) -> tuple[()]:
        return ()

    def with_rank(self, rank: int) -> Any:
        raise no_such_rank(self, rank)

    @own_precision
    def logdet(self):
        return jnp.sum(jnp.log(self.own)) + linalg.root_logdet(self.root)

    @own_precision
    def to_dense(self) -> Dense:
        return written_out(self)

    @own_precision
    def sample(self, key, n):
        corner, levels = (jr.fold_in(key, i) for i in range(2))
        hidden = jr.normal(corner, (n, len(self.root)), self.own.dtype)
        noise = jr.normal(levels, (n, self.dim), self.own.dtype)
        spread = self.covariance
        away = hidden @ spread.factor.T + noise * jnp.sqrt(spread.diag)[None, :]
        return self.mean[None, :] + away

    @own_precision
    def variance(self):
        return self.covariance.diagonal()

    @own_precision
    def marginal_variance(self, x):
        spread = self.covariance
        return ((x @ spread.factor) ** 2).sum(axis=1) + x**2 @ spread.diag

    @own_precision
    def predictor_covariances(self, rows):
        if rows.outputs == 1:
            return self.marginal_variance(rows.matrix())
        return rows.own_covariances(lambda x: self.view(x).cov)

    def view(self, x) -> View:
        spread, x = self.covariance, as_matrix(x)
        rows, own = x @ spread.factor, x * spread.diag[None, :]

        def absorb(coefficients, curvature) -> "Arrow":
            mean = self.mean + spread.factor @ (rows.T @ coefficients) + own.T @ coefficients
            scaled = linalg.scale_blocks_transposed(scale_of(curvature), x)
            added = self.gather(LowRankPlusDiagonal(0 * mean, scaled.T))
            target = jax.tree.map(jnp.add, self.gather(self.precision), added)
            return self._at(mean).toward(target, self)

        return View(x @ self.mean, rows @ rows.T + own @ x.T, absorb)

    def prepared(self, blocks: int = 1) -> "Arrow":
        return self

    def unprepared(self) -> "Arrow":
        return self

    def absorb_exactly(self, x, coefficients, curvature) -> Any:
        return self.to_dense().absorb_exactly(x, coefficients, curvature)

    def compact(self) -> "Arrow":
        return self

    def merged_with(self, others, prior) -> "Arrow":
        gathered = (self.gather(q.precision) for q in (*others, self, prior))
        target = jax.tree.map(lambda *a: sum(a[:-1]) - len(others) * a[-1], *gathered)
        merged = self.toward(target, prior)
        return merged._at(merged.matvec(added_shifts((self, *others), prior)))

    def rescale(self, factor) -> "Arrow":
        return Arrow(self.mean, self.slopes, self.own / factor, self.root / jnp.sqrt(factor))

    def anchor(self) -> "Arrow":
        return self

    def blocks_per_step(self) -> int:
        return 1

    def fade(self, keep, anchor, strength) -> "Arrow":
        own, other = self.gather(self.precision), self.gather(anchor.precision)
        target = jax.tree.map(lambda a, b: keep * a + strength * b, own, other)
        faded = self.toward(target, anchor)
        force = anchor.solve(anchor.mean - self.mean)
        return faded._at(self.mean + strength * faded.matvec(force))

    def relax(self, keep, anchor) -> "Arrow":
        """Keep the covariance of each level with the corner: given that, levels stay independent."""
        keep, m = keep * jnp.ones_like(self.mean), len(self.own)
        root = linalg.scale_rows(jnp.sqrt(1 - keep[m:] ** 2), anchor.to_dense().root[m:])
        root = jnp.linalg.qr(
            jnp.concatenate([linalg.scale_rows(keep[m:], self.root).T, root.T]), mode="r"
        ).T
        other = anchor.covariance.to_dense()[:, m:]
        cross = linalg.scale_rows(keep[:m], self.slopes @ self.root @ self.root.T) * keep[None, m:]
        share = jnp.sqrt(1 - keep**2)
        cross = cross + linalg.scale_rows(share[:m], other[:m]) * share[None, m:]
        unroot = linalg.inverse_root(root)
        slopes = cross @ unroot @ unroot.T
        total = keep**2 * self.variance() + (1 - keep**2) * anchor.variance()
        own = total[:m] - jnp.sum((slopes @ root) ** 2, axis=1)
        mean = anchor.mean + keep * (self.mean - anchor.mean)
        return Arrow(mean, slopes, own, root)

    def gather(self, matrix) -> Gathered:
        corner = jnp.eye(self.dim, dtype=self.mean.dtype)[:, len(self.own) :]
        return Gathered(matrix.diagonal(), matrix.matvec(corner))

    def toward(self, target: Gathered, prior) -> "Arrow":
        m = len(self.own)
        entries = ArrowMatrix(target.diagonal[:m], target.rest[:m], target.rest[m:])
        return Arrow.of_precision(self.mean, entries)

    def ascent(self, prior) -> Any:
        return QuasiNewtonAscent.begin(prior, self)

    def embed(self, others: "Arrow", places) -> "Arrow":
        m = len(self.own)
        levels, corner = places[:m], places[m:] - len(others.own)
        slopes = others.slopes.at[levels[:, None], corner[None, :]].set(self.slopes)
        own = others.own.at[levels].set(self.own)
        root = others.root.at[corner[:, None], corner[None, :]].set(self.root)
        return Arrow(others.mean.at[places].set(self.mean), slopes, own, root)

    def _at(self, mean) -> "Arrow":
        return Arrow(mean, self.slopes, self.own, self.root)
