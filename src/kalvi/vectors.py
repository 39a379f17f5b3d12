"""Observation models p(y | f) of a vector of predictors f: what `likelihoods` says of a scalar one.

For f ~ N(m, V) of c dimensions each knows E[log p], E[∇ log p], −E[∇² log p], the site of the Gaussian
closest to N(f) p(y | f)ʷ, the law of y and log ∫ p(y | f) N(f) df.

The softmax has no closed forms. It depends on differences of f only, so its integrals are taken in the
c − 1 dimensions of u = Hᵀf, H an orthonormal basis of the vectors of zero sum, as averages over fixed
points z with u = Hᵀm + A z, A Aᵀ = Hᵀ V H: a product of trapezoidal rules in one or two dimensions, and in
more an antithetic Sobol sequence whose second moments are made exact. `Softmax` states the errors.
Where V is so wide that the points are further apart than the softmax bends, each stands for a Gaussian
neighbourhood of variance h² = max(κ² v̄ − 4, 0) (v̄ the mean variance of u, κ the points' distance in
deviations) and the points spread over the rest; the softmax averaged over it is nearly softmax(f/τ),
τ² = 1 + π h²/4. Without it the curvature of wide laws would be that of the points that happen to be near
a boundary between classes.
The curvature is an average of diag(p) − p pᵀ over the points and positive by construction; its diagonal
is minus the sum of the rest of its row, so that nothing cancels where one class is nearly certain.

The optimal site (step ξ, curvature Γ, weight w) solves the implicit equations

    Γ = −w E[∇² log p],    ξ = w E[∇ log p]    at    N(m + V ξ, (V⁻¹ + Γ)⁻¹).

In the coordinates of a root of V they are those of a variational bound with one observation, which
`climbing` climbs.
"""

from abc import abstractmethod
from functools import lru_cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import ndtri
from scipy.stats import qmc

from kalvi import climbing, linalg
from kalvi.namespaces import AnyArray, as_array, namespace_of, scipy_of

Scalar = Float[Array, ""]
Vector = Float[Array, " c"]
Matrix = Float[Array, "c c"]
Label = Float[Array, "*o"]
Vectors = Float[AnyArray, "*n c"]
Matrices = Float[AnyArray, "*n c c"]

STEPS = 200
"""Natural-gradient steps at most."""
ROUGHNESS = 1e-2
"""The error of E[log p] of wide laws, relative to itself or to a nat."""
MEMORY = 5
"""Past steps that are combined."""
SHARE = 102.4
"""In more than two dimensions about so many points lie in the neighbourhood of a boundary, or more."""
REACH = (8.0, 6.0)
"""How many deviations the trapezoidal rules reach in one and in two dimensions."""


class VectorExpected(NamedTuple):
    """Of log p(y | f) under f ~ N(mean, cov)."""

    value: Scalar  # E[log p]
    gradient: Vector  # E[∇ log p]
    curvature: Matrix  # −E[∇² log p]


class VectorSite(NamedTuple):
    """What one observation does to its f: mean ← mean + cov·step, cov⁻¹ ← cov⁻¹ + curvature."""

    step: Vector
    curvature: Matrix
    solved: Bool[Array, ""]


class VectorLikelihood(eqx.Module):
    """p(y | f) for one observation with c predictors; `vmap` does the rest.

    `predict` takes any number of observations in arrays of NumPy, and one in those of JAX.
    """

    @property
    @abstractmethod
    def outputs(self) -> int:
        """c, the number of predictors."""

    @abstractmethod
    def log_prob(self, f: Vector, y: Label) -> Scalar:
        """log p(y | f)."""

    @abstractmethod
    def information(self, f: Vector) -> Matrix:
        """The Fisher information of f in one y."""

    def at(self, y: Label, f: Vector) -> VectorExpected:
        """Log-probability and gradient at f, and the Fisher information for the curvature."""
        value, gradient = jax.value_and_grad(lambda f: self.log_prob(f, y))(f)
        return VectorExpected(value, gradient, self.information(f))

    @abstractmethod
    def expect(self, y: Label, mean: Vector, cov: Matrix) -> VectorExpected:
        """Expected log-probability, gradient and curvature under f ~ N(mean, cov)."""

    @abstractmethod
    def implicit(self, y: Label, mean: Vector, cov: Matrix, weight: Scalar) -> VectorSite:
        """The site of the Gaussian closest in KL to N(f; mean, cov) p(y | f)^weight."""

    @abstractmethod
    def predict(self, mean: Vectors, cov: Matrices) -> tuple[Vectors, Matrices]:
        """Mean and covariance of y under f ~ N(mean, cov); a class counts as its indicator vector."""

    @abstractmethod
    def log_predictive(
        self, y: Label, mean: Vector, cov: Matrix, weight: Scalar | float = 1.0
    ) -> Scalar:
        """log ∫ p(y | f) N(f; mean, cov) df, times the weight."""


class Softmax(VectorLikelihood):
    """y ∈ {0, …, classes − 1} with P(y = k) ∝ exp(fₖ).

    Errors of the integrals with 512 points, in E[log p] and in probabilities and curvatures, largest
    over a few random laws with variances of f about 0.01, 1, 10 and 100::

        2 classes     1e-13             1e-13            1e-13            1e-13
        3             5e-11, 2e-11      2e-9, 2e-10      2e-5, 2e-4       5e-2, 3e-3
        5             1e-7, 3e-7        2e-3, 1e-3       4e-3, 5e-3       4e-2, 1e-2
        10            1e-7, 3e-7        2e-3, 3e-3       3e-2, 1e-2       1e-1, 2e-2

    and twice the points about halve them. At 1e4, where E[log p] is of the order of −100, they are 1e-2 in
    probabilities and 2 in E[log p] (two classes: 2e-5 and 1e-2).

    Parameters
    ----------
    classes : int, at least 2
    points : int, default 512
        Integration points.
    """

    classes: int = eqx.field(static=True)
    points: int = eqx.field(static=True, default=512)

    def __check_init__(self):
        if self.classes < 2:
            raise ValueError(f"Softmax needs two classes or more; got classes={self.classes}.")
        if self.points < 4 * self.classes:
            raise ValueError(
                f"Softmax needs four points a class or more; got points={self.points} "
                f"for {self.classes} classes."
            )

    @classmethod
    def of(cls, classes: int) -> "Softmax":
        """With 512 points, or more where there are very many classes."""
        return cls(classes, max(512, 1 << (4 * classes - 1).bit_length()))

    @property
    def outputs(self) -> int:
        return self.classes

    def log_prob(self, f: Vector, y: Label) -> Scalar:
        return jax.nn.log_softmax(f)[y.astype(int)]

    def information(self, f: Vector) -> Matrix:
        p = jax.nn.softmax(f)
        return _laplacian(jnp.outer(p, p))

    def expect(self, y: Label, mean: Vector, cov: Matrix) -> VectorExpected:
        log_p, weights, width = self._spread(mean, cov)
        p = jnp.exp(log_p)
        # 1 − p of the true class as a sum, which is exact where it is small
        others = jnp.arange(self.classes) != y.astype(int)
        average = weights @ p
        gradient = jnp.where(others, -average, jnp.sum(jnp.where(others, average, 0)))
        curvature = _laplacian(p.T @ linalg.scale_rows(weights, p)) / width
        return VectorExpected(width * (weights @ log_p[:, y.astype(int)]), gradient, curvature)

    def implicit(self, y: Label, mean: Vector, cov: Matrix, weight: Scalar) -> VectorSite:
        return solve_implicit(self, y, mean, cov, weight)

    def predict(self, mean: Vectors, cov: Matrices) -> tuple[Vectors, Matrices]:
        log_p, weights, _ = self._spread(mean, cov)
        p = weights @ namespace_of(log_p).exp(log_p)
        return p, _laplacian(p[..., :, None] * p[..., None, :])

    def log_predictive(
        self, y: Label, mean: Vector, cov: Matrix, weight: Scalar | float = 1.0
    ) -> Scalar:
        log_p, weights, _ = self._spread(mean, cov)
        return weight * jax.nn.logsumexp(log_p[:, y.astype(int)], b=weights)

    def _spread(
        self, mean: Vectors, cov: Matrices
    ) -> tuple[Float[AnyArray, "*n s c"], Float[AnyArray, " s"], Float[AnyArray, "*n"]]:
        """log p around the points, their weights, and τ."""
        rule, xp = _rule(self.classes, self.points), namespace_of(mean, cov)
        basis, points, weights = (xp.asarray(a, mean.dtype) for a in rule[:3])
        reduced = basis.T @ cov @ basis
        variance = xp.trace(reduced, axis1=-2, axis2=-1) / reduced.shape[-1]
        near = xp.clip(rule.distance**2 * variance - 4, 0, variance)
        left = 1 - near / xp.maximum(variance, 1)
        root = xp.sqrt(left)[..., None, None] * linalg.semidefinite_root(reduced)
        width = xp.sqrt(1 + float(np.pi / 4) * near)
        f = mean[..., None, :] + (points @ root.swapaxes(-1, -2)) @ basis.T
        scaled = f / width[..., None, None]
        return scipy_of(scaled).special.log_softmax(scaled, axis=-1), weights, width


class MultiNormal(VectorLikelihood):
    """y = f + independent noise of the given variances; every scheme is then the Kalman filter.

    Parameters
    ----------
    variance : array of shape (c,), positive
    """

    variance: Float[AnyArray, " c"] = eqx.field(converter=as_array)

    @property
    def outputs(self) -> int:
        return self.variance.shape[0]

    def log_prob(self, f: Vector, y: Label) -> Scalar:
        return -jnp.sum((y - f) ** 2 / self.variance + jnp.log(2 * np.pi * self.variance)) / 2

    def information(self, f: Vector) -> Matrix:
        return jnp.diag(1 / self.variance)

    def expect(self, y: Label, mean: Vector, cov: Matrix) -> VectorExpected:
        value = self.log_prob(mean, y) - jnp.sum(jnp.diagonal(cov) / self.variance) / 2
        return VectorExpected(value, (y - mean) / self.variance, self.information(mean))

    def implicit(self, y: Label, mean: Vector, cov: Matrix, weight: Scalar) -> VectorSite:
        _, gradient, curvature = self.expect(y, mean, cov)
        return gain_after(weight * gradient, weight * curvature, cov)

    def predict(self, mean: Vectors, cov: Matrices) -> tuple[Vectors, Matrices]:
        return mean, cov + namespace_of(self.variance).diag(self.variance)

    def log_predictive(
        self, y: Label, mean: Vector, cov: Matrix, weight: Scalar | float = 1.0
    ) -> Scalar:
        root = linalg.cholesky(self.predict(mean, cov)[1])
        away = jsl.solve_triangular(root, y - mean, lower=True)
        spread = 2 * jnp.sum(jnp.log(jnp.diagonal(root))) + len(mean) * float(np.log(2 * np.pi))
        return -weight * (away @ away + spread) / 2


def gain_after(gradient: Vector, curvature: Matrix, cov: Matrix) -> VectorSite:
    """The site whose step is (I + Γ V)⁻¹ g: a gain taken after the update."""
    half = shrinkage(linalg.semidefinite_root(curvature), cov)

    def solve(g: Vector) -> Vector:
        return g - half @ (half.T @ (cov @ g))

    step = solve(gradient)
    # what cancels in the subtraction where Γ V is large, once more
    step = step + solve(gradient - step - curvature @ (cov @ step))
    return VectorSite(step, curvature, jnp.asarray(True))


def shrinkage(root: Matrix, cov: Matrix) -> Matrix:
    """Q with Q Qᵀ = Γ (I + V Γ)⁻¹, given R Rᵀ = Γ: what the observation takes away is V Q Qᵀ V."""
    inner = root.T @ cov @ root
    lower = linalg.steady_cholesky(linalg.identity_like(inner) + inner)
    return jsl.solve_triangular(lower, root.T, lower=True).T


def solve_implicit(
    likelihood: VectorLikelihood, y: Label, mean: Vector, cov: Matrix, weight: Scalar
) -> VectorSite:
    """The site of the optimal Gaussian, for a likelihood that is log-concave in f."""
    root, eps = linalg.semidefinite_root(cov), float(jnp.finfo(mean.dtype).eps)

    def visit(shift: Vector, half: Matrix) -> climbing.Sums:
        wide = root @ half
        expected = likelihood.expect(y, mean + root @ shift, wide @ wide.T)
        value, gradient, curvature = (weight * term for term in expected)
        return climbing.Sums(value, root.T @ gradient, root.T @ curvature @ root)

    here, _, _ = climbing.climb_gaussian(
        visit,
        linalg.identity_like(cov),
        jnp.zeros_like(mean),
        rows=weight,
        tolerance=eps**1.25,
        max_passes=STEPS,
        rough=ROUGHNESS,
        memory=MEMORY,
    )
    wide = root @ linalg.root_from_precision(here.precision)
    shift = root @ here.mean
    _, gradient, curvature = likelihood.expect(y, mean + shift, wide @ wide.T)
    curvature = weight * curvature
    site = gain_after(weight * gradient + curvature @ shift, curvature, root @ root.T)
    return site._replace(solved=here.gap < eps)


def _laplacian(together: Matrices) -> Matrices:
    """diag(p) − E[p pᵀ], given E[p pᵀ]: a row of it sums to zero."""
    identity = linalg.identity_like(together)
    apart = together * (1 - identity)
    return apart.sum(axis=-1)[..., None] * identity - apart


class _Rule(NamedTuple):
    basis: np.ndarray  # H
    points: np.ndarray  # z
    weights: np.ndarray
    distance: float  # κ


@lru_cache
def _rule(classes: int, points: int) -> _Rule:
    """The integration rule in the differences of so many classes."""
    dim = classes - 1
    basis = np.linalg.qr(np.eye(classes)[:, :dim] - 1 / classes)[0]
    if dim <= len(REACH):
        side = round(points ** (1 / dim)) + 2 * (dim - 1)
        grid = np.linspace(-REACH[dim - 1], REACH[dim - 1], side)
        axes = np.meshgrid(*[grid] * dim, indexing="ij")
        z = np.stack([axis.ravel() for axis in axes], axis=1)
        weights = np.exp(-np.sum(z**2, axis=1) / 2)
        return _Rule(basis, z, weights / weights.sum(), float(grid[1] - grid[0]) / dim)
    half = ndtri(qmc.Sobol(dim, rng=np.random.default_rng(0)).random(-(-points // 2)))
    z = np.concatenate([half, -half])
    z = np.linalg.solve(np.linalg.cholesky(z.T @ z / len(z)), z.T).T
    return _Rule(basis, z, np.full(len(z), 1 / len(z)), SHARE / len(z))
