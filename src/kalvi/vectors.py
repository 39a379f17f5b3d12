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

With V = A Aᵀ and the new law N(m + A t, A P⁻¹ Aᵀ) they are stationarity of

    J(t, P) = (|t|² + tr P⁻¹ + log|P|)/2 − w E[log p],

and are solved by natural-gradient steps of length ρ ≤ 1, which follows the secant of the slope of J; one
that lowers neither J nor the norm of the gradient is taken back:

    P ← (1 − ρ) P + ρ (I + Aᵀ Γ A),    t ← t + ρ P⁻¹ r,    r = w Aᵀ E[∇ log p] − t.
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

from kalvi import linalg

Scalar = Float[Array, ""]
Vector = Float[Array, " c"]
Matrix = Float[Array, "c c"]
Label = Float[Array, "*o"]

STEPS = 100
"""Natural-gradient steps at most."""
SHORTEST = 1e-4
"""No step is shorter than this share of a whole one."""
SHARE = 51.2
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
    """p(y | f) for one observation with c predictors; `vmap` does the rest."""

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

    @abstractmethod
    def expect(self, y: Label, mean: Vector, cov: Matrix) -> VectorExpected:
        """Expected log-probability, gradient and curvature under f ~ N(mean, cov)."""

    @abstractmethod
    def implicit(self, y: Label, mean: Vector, cov: Matrix, weight: Scalar) -> VectorSite:
        """The site of the Gaussian closest in KL to N(f; mean, cov) p(y | f)^weight."""

    @abstractmethod
    def predict(self, mean: Vector, cov: Matrix) -> tuple[Vector, Matrix]:
        """Mean and covariance of y under f ~ N(mean, cov); a class counts as its indicator vector."""

    @abstractmethod
    def log_predictive(
        self, y: Label, mean: Vector, cov: Matrix, weight: Scalar | float = 1.0
    ) -> Scalar:
        """log ∫ p(y | f) N(f; mean, cov) df, times the weight."""


class Softmax(VectorLikelihood):
    """y ∈ {0, …, classes − 1} with P(y = k) ∝ exp(fₖ).

    Errors of the integrals with 512 points, in E[log p] and in probabilities and curvatures, largest
    over random laws with variances of f about

                      0.01              1                10               100
        2 classes     1e-14             1e-14            1e-13            1e-13
        3             3e-11, 1e-11      2e-9, 2e-10      2e-5, 2e-4       3e-3, 4e-3
        5             1e-7, 3e-7        2e-4, 8e-4       4e-3, 5e-3       4e-2, 1e-2
        10            1e-7, 3e-7        2e-3, 7e-4       1e-2, 1e-2       1e-1, 2e-2

    and twice the points roughly halve those of five classes or more.

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

    def predict(self, mean: Vector, cov: Matrix) -> tuple[Vector, Matrix]:
        log_p, weights, _ = self._spread(mean, cov)
        p = weights @ jnp.exp(log_p)
        return p, _laplacian(jnp.outer(p, p))

    def log_predictive(
        self, y: Label, mean: Vector, cov: Matrix, weight: Scalar | float = 1.0
    ) -> Scalar:
        log_p, weights, _ = self._spread(mean, cov)
        return weight * jax.nn.logsumexp(log_p[:, y.astype(int)], b=weights)

    def _spread(
        self, mean: Vector, cov: Matrix
    ) -> tuple[Float[Array, "s c"], Float[Array, " s"], Scalar]:
        """log p around the points, their weights, and τ."""
        rule = _rule(self.classes, self.points)
        basis, points, weights = (jnp.asarray(a, mean.dtype) for a in rule[:3])
        reduced = basis.T @ cov @ basis
        variance = jnp.trace(reduced) / len(reduced)
        near = jnp.maximum(rule.distance**2 * variance - 4, 0)
        left = 1 - near / jnp.maximum(variance, 1)
        root = jnp.sqrt(left) * linalg.semidefinite_root(reduced)
        width = jnp.sqrt(1 + float(np.pi / 4) * near)
        f = mean[None, :] + (points @ root.T) @ basis.T
        return jax.nn.log_softmax(f / width), weights, width


class MultiNormal(VectorLikelihood):
    """y = f + independent noise of the given variances; every scheme is then the Kalman filter.

    Parameters
    ----------
    variance : array of shape (c,), positive
    """

    variance: Vector = eqx.field(converter=jnp.asarray)

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

    def predict(self, mean: Vector, cov: Matrix) -> tuple[Vector, Matrix]:
        return mean, cov + jnp.diag(self.variance)

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


class _Point(NamedTuple):
    shift: Vector  # t
    precision: Matrix  # P
    narrow: Matrix  # P⁻¹
    height: Scalar  # J
    gradient: Vector  # w E[∇ log p]
    curvature: Matrix  # −w E[∇² log p]
    uphill: Vector  # r = −∂J/∂t
    target: Matrix  # I + Aᵀ Γ A
    off: Scalar  # the squared norm of the natural gradient, in nats


def solve_implicit(
    likelihood: VectorLikelihood, y: Label, mean: Vector, cov: Matrix, weight: Scalar
) -> VectorSite:
    """The site of the optimal Gaussian, for a likelihood that is log-concave in f."""
    root, eps = linalg.semidefinite_root(cov), float(jnp.finfo(mean.dtype).eps)
    identity = linalg.identity_like(cov)

    def at(shift: Vector, precision: Matrix) -> _Point:
        lower = linalg.steady_cholesky(precision)
        half = jsl.solve_triangular(lower, identity, lower=True)
        narrow = half.T @ half
        moved = mean + root @ shift
        value, gradient, curvature = likelihood.expect(y, moved, root @ narrow @ root.T)
        gradient, curvature = weight * gradient, weight * curvature
        uphill, target = root.T @ gradient - shift, identity + root.T @ curvature @ root
        spread = (jnp.trace(narrow) - len(shift)) / 2 + jnp.sum(jnp.log(jnp.diagonal(lower)))
        height = shift @ shift / 2 + spread - weight * value
        change = half @ (target - precision) @ half.T
        off = jnp.sum((half @ uphill) ** 2) + jnp.sum(change**2) / 2
        return _Point(shift, precision, narrow, height, gradient, curvature, uphill, target, off)

    def advance(state):
        here, length, steps = state
        precision = here.precision + length * (here.target - here.precision)
        move = linalg.cho_solve(linalg.steady_cholesky(precision), here.uphill)
        there = at(here.shift + length * move, precision)
        better = (there.height < here.height) | (there.off < here.off)
        share = _secant(here, there)
        length = length * jnp.where(better, jnp.clip(share, 0.3, 2), jnp.clip(share, 0.1, 0.5))
        here = jax.tree.map(lambda a, b: jnp.where(better, a, b), there, here)
        return here, jnp.clip(length, SHORTEST, 1), steps + 1

    def going(state):
        return (state[0].off > eps**1.25) & (state[2] < STEPS)

    start = (at(jnp.zeros_like(mean), identity), jnp.ones((), mean.dtype), 0)
    here, _, _ = jax.lax.while_loop(going, advance, start)
    pull = here.gradient + here.curvature @ (root @ here.shift)
    site = gain_after(pull, here.curvature, root @ root.T)
    return site._replace(solved=here.off < eps)


def _secant(here: _Point, there: _Point) -> Scalar:
    """The share of the step at which the slope of −J along it vanishes; 2 if it does not."""
    move, spread = there.shift - here.shift, there.narrow - here.narrow

    def slope(at: _Point) -> Scalar:
        return at.uphill @ move + jnp.sum((at.precision - at.target) * spread) / 2

    first, last = slope(here), slope(there)
    bounded = first > last
    return jnp.where(bounded, first / jnp.where(bounded, first - last, 1), 2)


def _laplacian(together: Matrix) -> Matrix:
    """diag(p) − E[p pᵀ], given E[p pᵀ]: a row of it sums to zero."""
    apart = together * (1 - linalg.identity_like(together))
    return jnp.diag(jnp.sum(apart, axis=1)) - apart


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
