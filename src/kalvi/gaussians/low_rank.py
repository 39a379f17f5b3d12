"""Gaussians whose precision is of low rank plus a diagonal."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi.gaussians import checks, low_rank_sparse
from kalvi.gaussians.ascents import QuasiNewtonAscent
from kalvi.gaussians.dense import Dense, written_out
from kalvi.gaussians.draws import draw_terms
from kalvi.gaussians.gaussian import (
    Between,
    Block,
    Curvature,
    Gathered,
    Gaussian,
    PerRow,
    Scalar,
    Updatable,
    Values,
    View,
    no_such_rank,
    scale_of,
    unchecked,
)
from kalvi.gaussians.low_rank_merging import merge_low_rank
from kalvi.numerics import linalg, projections
from kalvi.numerics.linalg import LowRankPlusDiagonal, times_vector
from kalvi.numerics.namespaces import AnyArray, choose, namespace_of
from kalvi.numerics.precision import in_double, is_traced, matching_precision, own_precision
from kalvi.numerics.projections import Eigen, Projection
from kalvi.numerics.rows import Curvature as RowCurvature
from kalvi.numerics.rows import JacobianRows
from kalvi.numerics.sparse_rows import SparseRows

CANCELLED = 0.1
"""The share of the digits of a variance that a subtraction may lose."""
LATE_WIDTH, MOST_LATE = 2**15, 32
"""With at least the first number of parameters, a sweep over all of them follows only every second number
of blocks of sparse rows. With fewer parameters a sweep costs less than late updates."""


class LowRankPrecision(Updatable):
    """N(mean, (W Wᵀ + diag)⁻¹): the factor-analysis precision of L-RVGA, d (p + 2) numbers.

    Parameters
    ----------
    mean : array of shape (d,)
    factor : array of shape (d, p); may start as zeros
    diag : array of shape (d,), positive
    projection : Projection, default Eigen()
        How the precision returns to this form after a block of rows.
    """

    mean: Float[Array, " d"]
    precision: LowRankPlusDiagonal
    projection: Projection
    pending: low_rank_sparse.Pending | None = None  # if it is `prepared`

    def __init__(self, mean, factor, diag, projection: Projection | None = None):
        self.mean, self.precision = checks.low_rank_parts(mean, factor, diag, "LowRankPrecision")
        self.projection = Eigen() if projection is None else projection
        self.pending = None

    @classmethod
    def from_parts(
        cls,
        mean: Float[AnyArray, " d"],
        factor: Float[AnyArray, "d p"],
        diag: Float[AnyArray, " d"],
        projection: Projection | None = None,
    ) -> "LowRankPrecision":
        """A Gaussian of parts that are known to be valid, as arrays of JAX or NumPy as they come."""
        precision = LowRankPlusDiagonal(diag, factor)
        projection = Eigen() if projection is None else projection
        return unchecked(cls, mean=mean, precision=precision, projection=projection, pending=None)

    @classmethod
    def scattered(
        cls,
        mean,
        var,
        rank: int,
        *,
        key: PRNGKeyArray,
        share: float = 1e-3,
        projection: Projection | None = None,
    ) -> "LowRankPrecision":
        """About N(mean, diag var), with a share of its precision in random factors.

        The start of Algorithm 1 (section 5.1.2): Ψ = (1 − share)/var and columns of W in random
        directions u, W = √(share d/p) u/√var, so that E[W Wᵀ + Ψ] = 1/var. (The paper has the deviation
        under the root, which gives the right trace for unit variances only.)
        """
        mean, var = checks.floating(mean, var)
        directions = jr.normal(key, (len(mean), rank), mean.dtype)
        unit = directions / jnp.linalg.norm(directions, axis=0)[None, :]
        size = float(np.sqrt(share * len(mean) / max(rank, 1)))
        factor = size * linalg.scale_rows(1 / jnp.sqrt(var), unit)
        return cls(mean, factor, (1 - share) / var, projection)

    @property
    def rank(self) -> int:
        return self.precision.factor.shape[1]

    def has_correlations(self) -> bool:
        return bool(jnp.any(self.precision.factor != 0))

    def widths(self) -> tuple[Float[AnyArray, "*g d"]]:
        return (self.precision.diag,)

    def with_rank(self, rank: int) -> "LowRankPrecision":
        if rank != self.rank:
            raise no_such_rank(self, rank)
        return self

    @property
    @own_precision
    def covariance(self) -> LowRankPlusDiagonal:
        return self.precision.inverse()

    @own_precision
    def logdet(self) -> Scalar:
        return -self.precision.logdet()

    @own_precision
    def to_dense(self) -> Dense:
        return written_out(self)

    @own_precision
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """Ensemble sampling: θ = μ + Σ (W ε + Ψ^{1/2} z) has covariance Σ (W Wᵀ + Ψ) Σ = Σ."""
        common, own = draw_terms(self.precision, key, n)
        forces = common + own
        moves = self._in_double(lambda covariance, f: covariance.matvec(f), forces.T)
        return self.mean[None, :] + moves.T

    @own_precision
    def variance(self) -> Float[Array, " d"]:
        return self._in_double(lambda covariance: covariance.diagonal())

    def _in_double(self, function: Callable, *args: Array) -> Array:
        """function(Σ, *args) in float64, because 1/ψ − U Uᵀ cancels if factors are strong.

        Inside a traced computation the caller's precision is kept.
        """
        if is_traced(self.mean) or self.mean.dtype == np.float64:
            return function(self.covariance, *args)
        with matching_precision(np.float64):
            wide, args = jax.tree.map(lambda a: a.astype(np.float64), (self.precision, args))
            found = function(wide.inverse(), *args)
            return found.astype(self.mean.dtype)

    @own_precision
    def marginal_variance(self, x: Block) -> PerRow:
        if isinstance(x, SparseRows):
            return self._sparse_moments(x)[1]
        loading = self._loading(
            projections.gram(self.precision.factor, self.precision.diag, x, False)
        )

        def visit(total, read, wide, _, fresh):
            residual = wide - loading.T @ read[0].T
            return total + residual**2 @ (fresh / read[1]), ()

        none = namespace_of(x, loading).zeros(x.shape[0], x.dtype)
        return self._sweep(visit, none, x) + (loading**2).sum(axis=0)

    @own_precision
    def predictor_covariances(self, rows: JacobianRows) -> RowCurvature:
        # not J Σ Jᵀ by a product with Σ, which cancels if factors are strong
        if rows.outputs == 1:
            return self.marginal_variance(rows.matrix())
        return rows.own_covariances(lambda x: self.marginal(x)[1])

    def view(self, x: Block) -> View:
        """With C = M⁻¹ Wᵀ Ψ⁻¹ xᵀ, R = xᵀ − W C: Σ xᵀ = Ψ⁻¹ R."""
        if isinstance(x, SparseRows):
            return self._sparse_view(x)
        w, diag = self.precision.factor, self.precision.diag
        gram = projections.gram(w, diag, x)
        loading = self._loading(gram)

        def absorb(coefficients: PerRow, curvature: Curvature) -> "LowRankPrecision":
            target = projections.ProjectionTarget(w, diag, x, scale_of(curvature), gram)
            plan = self.projection.plan(target)
            force, excess = self._pull(x, coefficients, loading @ coefficients, gram)

            def replace(total, read, wide, written, fresh):
                (force, diags), (mean, w, diag) = read, written
                mean = mean + (force - times_vector(w, excess)) / diag
                return total, (mean, *plan.rows(w, diag, wide, diags))

            old = (self.mean, w, diag)
            return self.with_parts(*linalg.sweep(replace, None, (force, plan.diags), x, old)[1])

        return View(times_vector(x, self.mean), self._between(x, gram, loading), absorb)

    def _between(
        self, x: Block, gram: projections.Gram, loading: Float[AnyArray, "p b"]
    ) -> Between:
        """x Σ xᵀ = x Ψ⁻¹ xᵀ − (x Ψ⁻¹ W) C.

        If factors are so strong that this cancels, it is computed as Rᵀ Ψ⁻¹ R + Cᵀ C, with one more
        sweep.
        """

        def visit(total, read, wide, _, fresh):
            residual = wide - loading.T @ read[0].T
            return total + (residual * (fresh / read[1])[None, :]) @ residual.T, ()

        xp = namespace_of(gram.rows)
        difference = gram.rows - gram.mixed.T @ loading
        least = float(jnp.finfo(gram.rows.dtype).eps) ** CANCELLED * xp.diagonal(gram.rows)
        return choose(
            (xp.diagonal(difference) >= least).all(),
            lambda: difference,
            lambda: self._sweep(visit, xp.zeros_like(gram.rows), x) + loading.T @ loading,
        )

    def _sparse_view(self, x: SparseRows) -> View:
        """The view of sparse rows (`low_rank_sparse`), made dense if the projection needs that."""
        if not self._takes_sparse():
            return self.view(x.toarray())
        projection: Any = self.projection
        shrink, pending = projection.shrink, self.prepared().pending
        assert pending is not None
        whole = low_rank_sparse.Parts.of(self.mean, self.precision)
        with in_double():
            seen = low_rank_sparse.look(whole, pending, x)
            mean, cov = (a.astype(self.mean.dtype) for a in low_rank_sparse.marginal(seen))

        def absorb(coefficients: PerRow, curvature: Curvature) -> "LowRankPrecision":
            with in_double():
                given = x, coefficients, scale_of(curvature), shrink
                return self._holding(*low_rank_sparse.absorb(whole, pending, seen, *given))

        return View(mean, cov, absorb)

    def _sparse_moments(self, x: SparseRows) -> tuple[PerRow, PerRow]:
        """The mean and variance of each predictor of sparse rows."""
        settled = self.unprepared()
        whole = low_rank_sparse.Parts.of(settled.mean, settled.precision)
        with in_double():
            found = low_rank_sparse.variances(whole, low_rank_sparse.inner_products(whole), x)
            return found[0].astype(self.mean.dtype), found[1].astype(self.mean.dtype)

    def _takes_sparse(self) -> bool:
        """Whether the projection works on sparse rows; the other projections need them dense."""
        return isinstance(self.projection, Eigen) and not self.projection.polish

    def prepared(self, blocks: int = 1) -> "LowRankPrecision":
        if self.pending is not None or not self._takes_sparse():
            return self
        blocks = min(blocks, MOST_LATE) if self.dim >= LATE_WIDTH and self.rank else 1
        whole = low_rank_sparse.Parts.of(self.mean, self.precision)
        return self._holding(whole, low_rank_sparse.Pending.begin(whole, blocks))

    def unprepared(self) -> "LowRankPrecision":
        if self.pending is None:
            return self
        whole = low_rank_sparse.Parts.of(self.mean, self.precision)
        if not self.pending.at_once:
            with in_double():
                whole, _ = low_rank_sparse.settle(whole, self.pending)
        return self._holding(whole, None)

    def _holding(
        self, parts: low_rank_sparse.Parts, pending: low_rank_sparse.Pending | None
    ) -> "LowRankPrecision":
        """A Gaussian with the same projection and these parts."""
        kept = {"projection": self.projection, "pending": pending}
        precision = LowRankPlusDiagonal(parts.diag, parts.factor)
        return unchecked(LowRankPrecision, mean=parts.mean, precision=precision, **kept)

    def _pull(
        self, x: Block, coefficients: PerRow, pull: Float[Array, " p"], gram: projections.Gram
    ) -> tuple[Float[Array, " d"], Float[Array, " p"]]:
        """r = R c and e, with Σ xᵀ c = Ψ⁻¹ (r − W e).

        In exact arithmetic Wᵀ Ψ⁻¹ r = C c and e is zero. By rounding r keeps a part along W, which Ψ⁻¹
        would amplify until the mean diverges if factors are strong; e = M⁻¹ (Wᵀ Ψ⁻¹ r − C c) removes it.
        """

        def visit(total, read, wide, _, fresh):
            w, diag = read
            force = times_vector(wide.T, coefficients) - times_vector(w, pull)
            return total + times_vector(w.T, fresh * force / diag), force

        read = (self.precision.factor, self.precision.diag)
        along, force = linalg.sweep(visit, jnp.zeros_like(pull), read, x, jnp.zeros_like(self.mean))
        return force, linalg.cho_solve(self._capacitance(gram), along - pull)

    def absorb_exactly(
        self, x: Block, coefficients: PerRow, curvature: PerRow
    ) -> "LowRankPrecision":
        """Add one column to the factor for each row."""
        mean = self.mean + self.matvec(x.T @ coefficients)
        rows = linalg.scale_rows(jnp.sqrt(curvature), x).T
        factor = jnp.concatenate([self.precision.factor, rows], axis=1)
        return self.with_parts(mean, factor, self.precision.diag)

    def compact(self) -> "LowRankPrecision":
        factor = self.precision.factor
        filled = np.flatnonzero(np.any(np.asarray(factor) != 0, axis=0))
        return self.with_parts(self.mean, factor[:, filled], self.precision.diag)

    def merged_with(
        self, others: Sequence["LowRankPrecision"], prior: Gaussian
    ) -> "LowRankPrecision":
        return merge_low_rank([self, *others], prior)

    def rescale(self, factor: Scalar) -> "LowRankPrecision":
        loading = namespace_of(factor, self.mean).sqrt(factor) * self.precision.factor
        return self.with_parts(self.mean, loading, factor * self.precision.diag)

    def anchor(self) -> "LowRankPrecision":
        """This prior without its factor, which a drift would have to project at every step."""
        empty = self.precision.factor[:, :0]
        return self.with_parts(self.mean, empty, self.precision.diag)

    def blocks_per_step(self) -> int:
        return 1

    def fade(self, keep: Scalar, anchor: "Updatable", strength: Scalar) -> "LowRankPrecision":
        """W ← √keep W, ψ ← keep ψ + strength ψ₀, μ ← μ + strength Λ'⁻¹ ψ₀ (μ₀ − μ)."""
        own = strength * anchor.precision.diagonal()
        faded = self.rescale(keep).precision
        new = LowRankPlusDiagonal(faded.diag + own, faded.factor)
        mean = self.mean + new.solve(own * (anchor.mean - self.mean))
        return self.with_parts(mean, new.factor, new.diag)

    def relax(self, keep: Values, anchor: "Updatable") -> "LowRankPrecision":
        """With q = (1 − a²)/ψ₀ and e = a² + q ψ: ψ ← ψ/e, W ← (a/e) W L^{-T}, L Lᵀ = I + Wᵀ (q/e) W.

        No subtraction, so no cancellation.
        """
        w, added = self.precision.factor, (1 - keep**2) / anchor.precision.diagonal()
        wider = keep**2 + added * self.precision.diag
        gram = linalg.inner(w, linalg.scale_rows(added / wider, w))
        root = linalg.steady_cholesky(linalg.identity_like(gram) + gram)
        factor = linalg.scale_rows(keep / wider, w) @ linalg.triangular_inverse(root).T
        mean = anchor.mean + keep * (self.mean - anchor.mean)
        return self.with_parts(mean, factor, self.precision.diag / wider)

    def gather(self, matrix: Any) -> Gathered:
        """diag S and S U, U = Ψ⁻¹ W."""
        return Gathered(matrix.diagonal(), matrix.matvec(self._scaled_factor()))

    def toward(self, target: Gathered, prior: Gaussian) -> "LowRankPrecision":
        """One step of parameter-expanded EM (Liu, Rubin & Wu 1998) for the factor analysis of S.

        M = I + Wᵀ U,  Θ = M⁻¹ + M⁻¹ (Uᵀ S U) M⁻¹,  W ← S U M⁻¹ Θ^{-1/2},  ψ ← diag(S − W Wᵀ).
        """
        w, diag, product = self.precision.factor, self.precision.diag, target.rest
        u = self._scaled_factor()
        inner, identity = w.T @ u, jnp.eye(w.shape[1], dtype=w.dtype)
        inverse = linalg.cho_solve(linalg.steady_cholesky(identity + inner), identity)
        second = inverse + inverse @ (u.T @ product) @ inverse
        root = linalg.steady_cholesky((second + second.T) / 2)
        factor = product @ jsl.solve_triangular(root, inverse, lower=True).T
        own = prior.precision.diagonal_part()
        least = own * diag / (own + diag)  # no less in exact arithmetic
        least = jnp.where(least > 0, least, linalg.least_diag(factor))
        diag = jnp.maximum(target.diagonal - jnp.sum(factor**2, axis=1), least)
        return self.with_parts(self.mean, factor, diag)

    def ascent(self, prior: Updatable) -> Any:
        return QuasiNewtonAscent.begin(prior, self)

    def _scaled_factor(self) -> Float[Array, "d p"]:
        """U = Ψ⁻¹ W."""
        return linalg.scale_rows(1 / self.precision.diag, self.precision.factor)

    def embed(self, others: "LowRankPrecision", places: Int[AnyArray, " d"]) -> "LowRankPrecision":
        factor = others.precision.factor.at[places].set(self.precision.factor)
        diag = others.precision.diag.at[places].set(self.precision.diag)
        return self.with_parts(others.mean.at[places].set(self.mean), factor, diag)

    def with_parts(self, mean, factor, diag) -> "LowRankPrecision":
        return LowRankPrecision.from_parts(mean, factor, diag, self.projection)

    def _loading(self, gram: projections.Gram) -> Float[AnyArray, "p b"]:
        """C = (I + Wᵀ Ψ⁻¹ W)⁻¹ Wᵀ Ψ⁻¹ xᵀ."""
        return linalg.cho_solve(self._capacitance(gram), gram.mixed)

    def _capacitance(self, gram: projections.Gram) -> Float[AnyArray, "p p"]:
        """The root of M = I + Wᵀ Ψ⁻¹ W."""
        return linalg.steady_cholesky(linalg.identity_like(gram.factor) + gram.factor)

    def _sweep(self, visit: Callable, total: AnyArray, x: Block) -> AnyArray:
        return linalg.sweep(visit, total, (self.precision.factor, self.precision.diag), x)[0]
