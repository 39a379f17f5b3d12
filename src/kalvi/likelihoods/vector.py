"""Likelihoods of several predictors: classes by a softmax, and vectors with normal noise.

The softmax has no closed forms. It depends only on differences of f, so its integrals are taken in the c −
1 dimensions of u = Hᵀf, where H is an orthonormal basis of the vectors of zero sum. They are averages over
fixed points z with u = Hᵀm + A z, A Aᵀ = Hᵀ V H: a product of trapezoidal rules in one or two dimensions,
an antithetic Sobol sequence with exact second moments in more. `Softmax` states the errors.
If V is so wide that the softmax changes sharply between neighbouring points, each point stands for a
Gaussian neighbourhood of variance h² = max(κ² v̄ − 4, 0), where v̄ is the mean variance of u and κ the
distance of the points in deviations, and the points spread over the rest of the variance. The softmax
averaged over a neighbourhood is nearly softmax(f/τ), τ² = 1 + π h²/4. Otherwise the curvature would depend
on the few points that happen to lie near a boundary between classes.
The curvature is an average of diag(p) − p pᵀ over the points and positive by construction; each diagonal
entry is minus the sum of the rest of its row, so that nothing cancels if one class is nearly certain.
"""

from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import ndtri

from kalvi.likelihoods.implicit import solve_implicit_vector
from kalvi.likelihoods.likelihood import CLASSES, Support, Unbounded
from kalvi.likelihoods.sites import Expected, Site, gain_after
from kalvi.numerics import linalg
from kalvi.numerics.namespaces import AnyArray, Scalar, as_setting, namespace_of

Vector = Float[Array, " c"]
Matrix = Float[Array, "c c"]
Label = Float[Array, "*o"]
Vectors = Float[AnyArray, "*n c"]
Matrices = Float[AnyArray, "*n c c"]
Differences = Float[AnyArray, "*n b"]  # of c predictors, b = c − 1
BetweenDifferences = Float[AnyArray, "*n b b"]

SHARE = 102.4
"""In more than two dimensions at least about so many points lie near a boundary between classes."""
REACH = (8.0, 6.0)
"""The number of deviations that the trapezoidal rules cover in one and in two dimensions."""


class Softmax(Unbounded):
    """y ∈ {0, …, classes − 1} with P(y = k) ∝ exp(fₖ).

    The largest errors of the integrals with 512 points, in E[log p] and in probabilities and curvatures,
    over a few random Gaussians with variances of f about 0.01, 1, 10 and 100::

        2 classes     1e-13             1e-13            1e-13            1e-13
        3             5e-11, 2e-11      2e-9, 2e-10      2e-5, 2e-4       5e-2, 3e-3
        5             1e-7, 3e-7        2e-3, 1e-3       4e-3, 5e-3       4e-2, 1e-2
        10            1e-7, 3e-7        2e-3, 3e-3       3e-2, 1e-2       1e-1, 2e-2

    Twice the points about halve the errors. At a variance of 1e4, where E[log p] is about −100, they are
    1e-2 in probabilities and 2 in E[log p] (two classes: 2e-5 and 1e-2).

    Parameters
    ----------
    classes : int, at least 2
    points : int, default 512
        The number of integration points.
    """

    log_concave: ClassVar[bool] = True
    support: ClassVar[Support] = CLASSES

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
        """A softmax with 512 points, or more if there are very many classes."""
        return cls(classes, max(512, 1 << (4 * classes - 1).bit_length()))

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def label_shape(self) -> tuple[int, ...]:
        return ()

    def log_prob(self, f: Vector, y: Label) -> Scalar:
        return jax.nn.log_softmax(f)[y.astype(int)]

    def moments(self, f: Vector) -> tuple[Vector, Vector]:
        p = jax.nn.softmax(f)
        return p, jnp.diagonal(self.information(f))

    def information(self, f: Vector) -> Matrix:
        p = jax.nn.softmax(f)
        return _laplacian(jnp.outer(p, p))

    def expect(self, y: Label, mean: Vector, var: Matrix) -> Expected:
        return self._expect(y, *self._differences(mean, var))

    def implicit(
        self, y: Label, mean: Vector, var: Matrix, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        basis = self._basis(mean)

        def expect(mean: Differences, var: BetweenDifferences) -> Expected:
            value, gradient, curvature = self._expect(y, mean, var)
            return Expected(value, basis.T @ gradient, basis.T @ curvature @ basis)

        step, curvature, solved = solve_implicit_vector(
            expect, *self._differences(mean, var), weight
        )
        return Site(basis @ step, basis @ curvature @ basis.T, solved)

    def predict(self, mean: Vectors, var: Matrices) -> tuple[Vectors, Matrices]:
        around = self._spread(*self._differences(mean, var))
        p = around.p @ around.weights
        return p, _laplacian(p[..., :, None] * p[..., None, :])

    def noise(self, mean: Vector, var: Matrix) -> Vector:
        """E[p (1 − p)], the diagonal of the expected curvature."""
        return jnp.diagonal(self.expect(jnp.zeros((), mean.dtype), mean, var).curvature)

    def log_predictive(
        self, y: Label, mean: Vector, var: Matrix, weight: Scalar | float = 1.0
    ) -> Scalar:
        around = self._spread(*self._differences(mean, var))
        return weight * jax.nn.logsumexp(around.log_p(self._is_class(y)), b=around.weights)

    def _is_class(self, y: Label) -> Bool[Array, " c"]:
        return jnp.arange(self.classes) == y.astype(int)

    def _basis(self, like: Any) -> AnyArray:
        """H, in the library and dtype of an array."""
        return namespace_of(like).asarray(_rule(self.classes, self.points).basis, like.dtype)

    def _differences(self, mean: Vectors, var: Matrices) -> tuple[Differences, BetweenDifferences]:
        """The mean and covariance of u = Hᵀf."""
        basis = self._basis(mean)
        return mean @ basis, basis.T @ var @ basis

    def _expect(self, y: Label, mean: Differences, var: BetweenDifferences) -> Expected:
        """The expected terms of f, given the moments of u."""
        around = self._spread(mean, var)
        p, weights, width = around.p, around.weights, around.width
        # 1 − p of the true class as a sum, which is accurate even if small
        others = ~self._is_class(y)
        average = p @ weights
        gradient = jnp.where(others, -average, jnp.sum(jnp.where(others, average, 0)))
        curvature = _laplacian((p * weights[None, :]) @ p.T) / width
        return Expected(width * (weights @ around.log_p(self._is_class(y))), gradient, curvature)

    def _spread(self, mean: Differences, var: BetweenDifferences) -> "_Spread":
        """The softmax around the points, given the moments of u."""
        rule, xp = _rule(self.classes, self.points), namespace_of(mean, var)
        basis, points, weights = (xp.asarray(a, mean.dtype) for a in rule[:3])
        variance = xp.trace(var, axis1=-2, axis2=-1) / var.shape[-1]
        near = xp.clip(rule.distance**2 * variance - 4, 0, variance)
        left = 1 - near / xp.maximum(variance, 1)
        root = xp.sqrt(left)[..., None, None] * linalg.semidefinite_root(var)
        width = xp.sqrt(1 + float(np.pi / 4) * near)
        f = basis @ (mean[..., :, None] + root @ points.T)
        scaled = f / width[..., None, None]
        return _Spread(scaled - scaled.max(axis=-2, keepdims=True), weights, width)


class _Spread:
    """The softmax around integration points, a column for each: classes first, which NumPy adds up fast."""

    def __init__(self, logits: Any, weights: Any, width: Any):
        xp = namespace_of(logits)
        self.logits, self.weights, self.width = logits, weights, width  # the largest logit is 0; τ
        odds = xp.exp(logits)
        self._total = odds.sum(axis=-2)
        self.p: Float[AnyArray, "*n c s"] = odds / self._total[..., None, :]

    def log_p(self, which: Bool[Array, " c"]) -> Float[Array, " s"]:
        """log p of the marked class."""
        return jnp.sum(jnp.where(which[:, None], self.logits, 0), axis=0) - jnp.log(self._total)


class NormalVector(Unbounded):
    """A vector with normal noise: the curvature is the same for every f, so a site has a closed form."""

    log_concave: ClassVar[bool] = True
    closed: ClassVar[bool] = True

    @property
    def label_shape(self) -> tuple[int, ...]:
        return (self.outputs,)

    def implicit(
        self, y: Label, mean: Vector, var: Matrix, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        _, gradient, curvature = self.expect(y, mean, var)
        return gain_after(weight * gradient, weight * curvature, var)


class MultiNormal(NormalVector):
    """y = f + independent noise of the given variances; every scheme is then the Kalman filter.

    Parameters
    ----------
    variance : array of shape (c,), positive
    """

    noisy: ClassVar[bool] = True

    variance: Float[AnyArray, " c"] = eqx.field(converter=as_setting)

    def __check_init__(self):
        if self.variance.ndim != 1 or self.outputs < 2:
            raise ValueError(
                "MultiNormal needs the variances of two outputs or more, an array of shape (c,); "
                f"got shape {self.variance.shape}. For one output use Normal(variance)."
            )

    @property
    def outputs(self) -> int:
        return self.variance.shape[0]

    def log_prob(self, f: Vector, y: Label) -> Scalar:
        return -jnp.sum((y - f) ** 2 / self.variance + jnp.log(2 * np.pi * self.variance)) / 2

    def moments(self, f: Vector) -> tuple[Vector, Vector]:
        return f, jnp.asarray(self.variance)

    def information(self, f: Vector) -> Matrix:
        return jnp.diag(1 / self.variance)

    def expect(self, y: Label, mean: Vector, var: Matrix) -> Expected:
        value = self.log_prob(mean, y) - jnp.sum(jnp.diagonal(var) / self.variance) / 2
        return Expected(value, (y - mean) / self.variance, self.information(mean))

    def predict(self, mean: Vectors, var: Matrices) -> tuple[Vectors, Matrices]:
        return mean, var + namespace_of(self.variance).diag(self.variance)

    def noise(self, mean: Vector, var: Matrix) -> Vector:
        return jnp.asarray(self.variance, mean.dtype)

    def log_predictive(
        self, y: Label, mean: Vector, var: Matrix, weight: Scalar | float = 1.0
    ) -> Scalar:
        root = linalg.cholesky(jnp.diag(self.variance) + weight * var)
        away = jsl.solve_triangular(root, y - mean, lower=True)
        volume = 2 * jnp.log(jnp.diagonal(root)) + (weight - 1) * jnp.log(self.variance)
        constant = weight * len(mean) * float(np.log(2 * np.pi))
        return -(weight * (away @ away) + jnp.sum(volume) + constant) / 2


def _laplacian(together: Matrices) -> Matrices:
    """diag(p) − E[p pᵀ], given E[p pᵀ]; each of its rows sums to zero."""
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
    """The integration rule for the differences of so many classes."""
    dim = classes - 1
    basis = np.linalg.qr(np.eye(classes)[:, :dim] - 1 / classes)[0]
    if dim <= len(REACH):
        side = round(points ** (1 / dim)) + 2 * (dim - 1)
        grid = np.linspace(-REACH[dim - 1], REACH[dim - 1], side)
        axes = np.meshgrid(*[grid] * dim, indexing="ij")
        z = np.stack([axis.ravel() for axis in axes], axis=1)
        weights = np.exp(-np.sum(z**2, axis=1) / 2)
        return _Rule(basis, z, weights / weights.sum(), float(grid[1] - grid[0]) / dim)
    from scipy.stats import qmc  # takes longer to import than the rest of the library

    half = ndtri(qmc.Sobol(dim, rng=np.random.default_rng(0)).random(-(-points // 2)))
    z = np.concatenate([half, -half])
    z = np.linalg.solve(np.linalg.cholesky(z.T @ z / len(z)), z.T).T
    return _Rule(basis, z, np.full(len(z), 1 / len(z)), SHARE / len(z))
