"""Gaussians q(θ) = N(μ, Σ) over a flat parameter vector, one class per covariance structure.

Every structure says what its covariance and its precision are as diag(d) ± F Fᵀ (`linalg`); the rest
of the protocol follows from that. Structures that a stream can update (`Updatable`) add verbs:

    view(x):          mean x μ and covariance x Σ xᵀ of the predictors of a block of rows, and its
    absorb(c, γ):     Σ⁻¹ ← Σ⁻¹ + xᵀ diag(γ) x  and  μ ← μ + Σ xᵀ c, sharing the work of the two
    temper(λ):        Σ⁻¹ ← λ Σ⁻¹                                        (forgetting)
    diffuse(q):       Σ ← Σ + q I                                        (process noise)

`Dense` keeps a square root of Σ instead of Σ itself: after any number of updates in any precision the
covariance R Rᵀ is symmetric and positive, and variances of predictors are sums of squares.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi import checks, linalg, projections
from kalvi.linalg import LowRankPlusDiagonal
from kalvi.precision import is_traced, matching, own_precision
from kalvi.projections import Eigen, Projection

Scalar = Float[Array, ""]
Block = Float[Array, "b d"]
PerRow = Float[Array, " b"]


class Gaussian(eqx.Module):
    """N(mean, covariance); the covariance and the precision are low-rank-plus-diagonal matrices."""

    mean: eqx.AbstractVar[Float[Array, " d"]]
    covariance: eqx.AbstractVar[LowRankPlusDiagonal]
    precision: eqx.AbstractVar[LowRankPlusDiagonal]

    @abstractmethod
    def logdet(self) -> Scalar:
        """log|Σ|."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n independent draws."""

    @abstractmethod
    def marginal(self, x: Block) -> tuple[PerRow, Float[Array, "b b"]]:
        """Mean and covariance of the predictors x θ of a block of rows."""

    @abstractmethod
    def to_dense(self) -> "Dense":
        """The same distribution with its covariance written out."""

    def __getstate__(self) -> dict[str, Any]:
        """NumPy arrays, so that unpickling does not depend on JAX's global precision."""
        return jax.tree.map(np.asarray, dict(self.__dict__))

    def __setstate__(self, state: dict[str, Any]) -> None:
        with matching(state["mean"].dtype):
            for name, value in jax.tree.map(jnp.asarray, state).items():
                object.__setattr__(self, name, value)

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return self.mean.shape[0]

    @own_precision
    def matvec(self, v: Float[Array, "d *k"]) -> Float[Array, "d *k"]:
        """Σ v."""
        return self.covariance.matvec(v)

    @own_precision
    def solve(self, v: Float[Array, "d *k"]) -> Float[Array, "d *k"]:
        """Σ⁻¹ v."""
        return self.precision.matvec(v)

    @abstractmethod
    def variance(self) -> Float[Array, " d"]:
        """diag Σ."""

    @abstractmethod
    def marginal_variance(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        """The variance of each predictor xᵢ θ, without their covariances."""

    @own_precision
    def log_prob(self, theta: Float[Array, " d"]) -> Scalar:
        """The log density at theta."""
        away = theta - self.mean
        square = away @ self.precision.matvec(away)
        return -(square + self.logdet() + self.dim * float(np.log(2 * np.pi))) / 2


class View(NamedTuple):
    """A block of rows as a Gaussian sees it: the law of its predictors, and how to learn from them."""

    mean: PerRow
    cov: Float[Array, "b b"]
    absorb: Callable[[PerRow, PerRow], "Updatable"]  # of coefficients c and curvature γ


class Updatable(Gaussian):
    """A structure that a stream of rows can update in place of itself."""

    @abstractmethod
    def view(self, x: Block) -> View:
        """The predictors of the rows, and the verb that adds xᵀ diag(γ) x to Σ⁻¹ and Σ xᵀ c to μ."""

    @own_precision
    def marginal(self, x: Block) -> tuple[PerRow, Float[Array, "b b"]]:
        return self.view(x)[:2]

    @own_precision
    def absorb(self, x: Block, coefficients: PerRow, curvature: PerRow) -> "Updatable":
        """Add xᵀ diag(curvature) x to the precision and Σ xᵀ coefficients to the mean."""
        return self.view(x).absorb(coefficients, curvature)

    @abstractmethod
    def rescale(self, factor: Scalar) -> "Updatable":
        """Multiply the precision by factor, exactly: a change of units."""

    @abstractmethod
    def temper(self, factor: Scalar) -> "Updatable":
        """Multiply the precision by factor, standard deviations never beyond `linalg.MAX_STD`."""

    @abstractmethod
    def diffuse(self, variance: Scalar) -> "Updatable":
        """Add variance · I to the covariance."""


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
    def from_root(cls, mean: Float[Array, " d"], root: Float[Array, "d d"]) -> "Dense":
        """N(mean, root rootᵀ) for any square root of the covariance."""
        return _unchecked(cls, mean=mean, root=root)

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
    def marginal_variance(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return jnp.sum((x @ self.root) ** 2, axis=1)

    def view(self, x: Block) -> View:
        rows = x @ self.root

        def absorb(coefficients: PerRow, curvature: PerRow) -> "Dense":
            mean = self.mean + self.root @ (rows.T @ coefficients)
            return Dense.from_root(mean, linalg.shrink_root(self.root, rows, curvature))

        return View(x @ self.mean, rows @ rows.T, absorb)

    def rescale(self, factor: Scalar) -> "Dense":
        return Dense.from_root(self.mean, self.root / jnp.sqrt(factor))

    def temper(self, factor: Scalar) -> "Dense":
        root = self.rescale(factor).root
        std = jnp.sqrt(jnp.sum(root**2, axis=1))
        return Dense.from_root(
            self.mean, linalg.scale_rows(linalg.MAX_STD / jnp.maximum(std, linalg.MAX_STD), root)
        )

    def diffuse(self, variance: Scalar) -> "Dense":
        return Dense.from_root(self.mean, linalg.widen_root(self.root, variance))


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
        return _written_out(self)

    @own_precision
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        noise = jr.normal(key, (n, self.dim), self.mean.dtype)
        return self.mean[None, :] + noise * jnp.sqrt(self.var)[None, :]

    def variance(self) -> Float[Array, " d"]:
        return self.var

    @own_precision
    def marginal_variance(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return x**2 @ self.var

    def view(self, x: Block) -> View:
        def absorb(coefficients: PerRow, curvature: PerRow) -> "Diagonal":
            mean = self.mean + self.var * (x.T @ coefficients)
            var = self.var / (1 + self.var * (curvature @ x**2))
            return _unchecked(Diagonal, mean=mean, var=var)

        return View(x @ self.mean, (x * self.var[None, :]) @ x.T, absorb)

    def rescale(self, factor: Scalar) -> "Diagonal":
        return _unchecked(Diagonal, mean=self.mean, var=self.var / factor)

    def temper(self, factor: Scalar) -> "Diagonal":
        return _unchecked(
            Diagonal, mean=self.mean, var=jnp.minimum(self.var / factor, linalg.MAX_STD**2)
        )

    def diffuse(self, variance: Scalar) -> "Diagonal":
        return _unchecked(Diagonal, mean=self.mean, var=self.var + variance)


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
    @own_precision
    def precision(self) -> LowRankPlusDiagonal:
        return self.covariance.inverse()

    @own_precision
    def logdet(self) -> Scalar:
        return self.covariance.logdet()

    @own_precision
    def to_dense(self) -> Dense:
        return _written_out(self)

    @own_precision
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        factor, diag = self.covariance.factor, self.covariance.diag
        key_factor, key_diag = jr.split(key)
        hidden = jr.normal(key_factor, (n, factor.shape[1]), diag.dtype)
        noise = jr.normal(key_diag, (n, self.dim), diag.dtype)
        return self.mean[None, :] + hidden @ factor.T + noise * jnp.sqrt(diag)[None, :]

    @own_precision
    def marginal(self, x: Block) -> tuple[PerRow, Float[Array, "b b"]]:
        rows = x @ self.covariance.factor
        return x @ self.mean, rows @ rows.T + (x * self.covariance.diag[None, :]) @ x.T

    @own_precision
    def variance(self) -> Float[Array, " d"]:
        return self.covariance.diagonal()

    @own_precision
    def marginal_variance(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return jnp.sum((x @ self.covariance.factor) ** 2, axis=1) + x**2 @ self.covariance.diag


class LowRankPrecision(Updatable):
    """N(mean, (W Wᵀ + diag)⁻¹): the factor-analysis precision of L-RVGA, d (p + 2) numbers.

    Parameters
    ----------
    mean : array of shape (d,)
    factor : array of shape (d, p); zeros are a fine start
    diag : array of shape (d,), positive
    projection : Projection, default Eigen()
        How the precision returns to this form after a block of rows.
    """

    mean: Float[Array, " d"]
    precision: LowRankPlusDiagonal
    projection: Projection

    def __init__(self, mean, factor, diag, projection: Projection | None = None):
        self.mean, self.precision = checks.low_rank_parts(mean, factor, diag, "LowRankPrecision")
        self.projection = Eigen() if projection is None else projection

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
        """Nearly N(mean, diag var), with a share of its precision in random factors.

        The start of Algorithm 1 (section 5.1.2): Ψ = (1 − share)/var and columns of W in random
        directions u, W = √(share d/p) u/√var, so that E[W Wᵀ + Ψ] = 1/var. (Printed with the deviation
        under the root, where the trace is right for unit variances only.)
        """
        mean, var = checks.floating(mean, var)
        directions = jr.normal(key, (len(mean), rank), mean.dtype)
        unit = directions / jnp.linalg.norm(directions, axis=0)[None, :]
        size = float(np.sqrt(share * len(mean) / max(rank, 1)))
        factor = size * linalg.scale_rows(1 / jnp.sqrt(var), unit)
        return cls(mean, factor, (1 - share) / var, projection)

    @property
    @own_precision
    def covariance(self) -> LowRankPlusDiagonal:
        return self.precision.inverse()

    @own_precision
    def logdet(self) -> Scalar:
        return -self.precision.logdet()

    @own_precision
    def to_dense(self) -> Dense:
        return _written_out(self)

    @own_precision
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """Ensemble sampling: θ = μ + Σ (W ε + Ψ^{1/2} z) has covariance Σ (W Wᵀ + Ψ) Σ = Σ."""
        factor, diag = self.precision.factor, self.precision.diag
        key_factor, key_diag = jr.split(key)
        hidden = jr.normal(key_factor, (n, factor.shape[1]), diag.dtype)
        noise = jr.normal(key_diag, (n, self.dim), diag.dtype)
        forces = hidden @ factor.T + noise * jnp.sqrt(diag)[None, :]
        moves = self._in_double(lambda covariance, f: covariance.matvec(f), forces.T)
        return self.mean[None, :] + moves.T

    @own_precision
    def variance(self) -> Float[Array, " d"]:
        return self._in_double(lambda covariance: covariance.diagonal())

    def _in_double(self, function: Callable, *args: Array) -> Array:
        """function(Σ, *args) in float64: 1/ψ − U Uᵀ cancels where factors are strong.

        Inside a traced computation the caller's precision rules.
        """
        if is_traced(self.mean) or self.mean.dtype == np.float64:
            return function(self.covariance, *args)
        with matching(np.float64):
            wide, args = jax.tree.map(lambda a: a.astype(np.float64), (self.precision, args))
            found = function(wide.inverse(), *args)
            return found.astype(self.mean.dtype)

    @own_precision
    def marginal_variance(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        loading = self._loading(
            projections.gram(self.precision.factor, self.precision.diag, x, False)
        )

        def visit(total, read, wide, _, fresh):
            residual = wide - loading.T @ read[0].T
            return total + residual**2 @ (fresh / read[1]), ()

        return self._sweep(visit, jnp.zeros(x.shape[0], x.dtype), x) + jnp.sum(loading**2, axis=0)

    def view(self, x: Block) -> View:
        """With C = M⁻¹ Wᵀ Ψ⁻¹ xᵀ, R = xᵀ − W C: Σ xᵀ = Ψ⁻¹ R and x Σ xᵀ = Rᵀ Ψ⁻¹ R + Cᵀ C."""
        w, diag = self.precision.factor, self.precision.diag
        gram = projections.gram(w, diag, x)
        loading = self._loading(gram)

        def visit(total, read, wide, _, fresh):
            residual = wide - loading.T @ read[0].T
            return total + (residual * (fresh / read[1])[None, :]) @ residual.T, ()

        def absorb(coefficients: PerRow, curvature: PerRow) -> "LowRankPrecision":
            target = projections.Target(w, diag, x, jnp.sqrt(curvature), gram)
            plan = self.projection.plan(target)
            force, excess = self._pull(x, coefficients, loading @ coefficients, gram)

            def replace(total, read, wide, written, fresh):
                (force, diags), (mean, w, diag) = read, written
                mean = mean + (force - w @ excess) / diag
                return total, (mean, *plan.rows(w, diag, wide, diags))

            old = (self.mean, w, diag)
            return self.with_parts(*linalg.sweep(replace, None, (force, plan.diags), x, old)[1])

        own = self._sweep(visit, jnp.zeros_like(gram.rows), x)
        return View(x @ self.mean, own + loading.T @ loading, absorb)

    def _pull(
        self, x: Block, coefficients: PerRow, pull: Float[Array, " p"], gram: projections.Gram
    ) -> tuple[Float[Array, " d"], Float[Array, " p"]]:
        """r = R c and e, with Σ xᵀ c = Ψ⁻¹ (r − W e).

        In exact arithmetic Wᵀ Ψ⁻¹ r = C c and e is zero. In rounding r keeps a part along W, which Ψ⁻¹
        would amplify until the mean runs away where factors are strong; e = M⁻¹ (Wᵀ Ψ⁻¹ r − C c).
        """

        def visit(total, read, wide, _, fresh):
            force = wide.T @ coefficients - read[0] @ pull
            return total + (fresh * force / read[1]) @ read[0], force

        read = (self.precision.factor, self.precision.diag)
        along, force = linalg.sweep(visit, jnp.zeros_like(pull), read, x, jnp.zeros_like(self.mean))
        return force, linalg.cho_solve(self._capacitance(gram), along - pull)

    def rescale(self, factor: Scalar) -> "LowRankPrecision":
        loading = jnp.sqrt(factor) * self.precision.factor
        return self.with_parts(self.mean, loading, factor * self.precision.diag)

    def temper(self, factor: Scalar) -> "LowRankPrecision":
        faded = self.rescale(factor).precision
        diag = jnp.maximum(faded.diag, linalg.least_diag(faded.factor))
        return self.with_parts(self.mean, faded.factor, diag)

    def diffuse(self, variance: Scalar) -> "LowRankPrecision":
        """With E = I + q Ψ: ψ ← ψ/E, W ← E⁻¹ W L^{-T}, L Lᵀ = I + q Wᵀ E⁻¹ W; nothing is subtracted."""
        w, wider = self.precision.factor, 1 + variance * self.precision.diag
        scaled = linalg.scale_rows(1 / wider, w)
        gram = variance * linalg.inner(w, scaled)
        root = linalg.steady_cholesky(linalg.identity_like(gram) + gram)
        factor = jsl.solve_triangular(root, scaled.T, lower=True).T
        return self.with_parts(self.mean, factor, self.precision.diag / wider)

    def with_parts(self, mean, factor, diag) -> "LowRankPrecision":
        precision = LowRankPlusDiagonal(diag, factor)
        return _unchecked(
            LowRankPrecision, mean=mean, precision=precision, projection=self.projection
        )

    def _loading(self, gram: projections.Gram) -> Float[Array, "p b"]:
        """C = (I + Wᵀ Ψ⁻¹ W)⁻¹ Wᵀ Ψ⁻¹ xᵀ."""
        return linalg.cho_solve(self._capacitance(gram), gram.mixed)

    def _capacitance(self, gram: projections.Gram) -> Float[Array, "p p"]:
        """The root of M = I + Wᵀ Ψ⁻¹ W."""
        return linalg.steady_cholesky(linalg.identity_like(gram.factor) + gram.factor)

    def _sweep(self, visit: Callable, total: Array, x: Float[Array, "n d"]) -> Array:
        return linalg.sweep(visit, total, (self.precision.factor, self.precision.diag), x)[0]


def _written_out(q: Gaussian) -> Dense:
    return Dense.from_root(q.mean, linalg.cholesky(q.covariance.to_dense()))


def _unchecked(cls, **fields):
    """An instance whose fields are known to be right: no conversion, no checks, also under tracing."""
    new = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(new, name, value)
    return new
