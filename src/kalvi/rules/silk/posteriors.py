"""Gaussian posteriors of the factors of one side, and their update from data and prior.

With the other side and Γ fixed, the bound is quadratic in the factors u of one side,

    ⟨b, u⟩ − ½ uᵀΛu,     Λ = Σ⁻¹ + Ψ,     b = Σ⁻¹μ + pull,     Ψ block diagonal with k × k blocks,

so in every family the mean solves Λ m = b, and the best covariance is

    MeanField   1/Λᵢᵢ                                    (document 004, section 4.2)
    Chains      for every factor, the inverse of its own tridiagonal part of Λ
    Coupled     Λ⁻¹, without restriction.

A family gives the moments E uᵣ, var uᵣ, E uᵣuᵣᵀ, var(uᵣ₊₁ − uᵣ) and log|precision|, which are all that the
bound and the other side need.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.numerics import tridiagonal
from kalvi.numerics.linalg import semidefinite_root
from kalvi.rules.silk.interpolation import Bridge
from kalvi.rules.silk.moments import (
    Blocks,
    Moments,
    Sequence,
    Upper,
    coupled_moments,
    diagonal,
    factorised_moments,
    unpack_triangles,
)


class SideSites(NamedTuple):
    """The sites of one side, which stand for the data: exp(⟨pull, u⟩ − ½ Σ uᵣᵀ Ψᵣ uᵣ)."""

    pull: Sequence
    curvature: Upper  # of Ψᵣ

    def blocks(self) -> Blocks:
        """Ψ."""
        return unpack_triangles(self.curvature)


class MeanSolver(eqx.Module):
    """A method to solve Λ m = b, or to approach the solution from the current mean."""

    @abstractmethod
    def __call__(
        self, prior: OrnsteinUhlenbeck, blocks: Blocks, b: Sequence, mean: Sequence
    ) -> Sequence:
        """The next mean."""

    @abstractmethod
    def with_inverse(
        self, prior: OrnsteinUhlenbeck, blocks: Blocks, b: Sequence, mean: Sequence
    ) -> tuple[Sequence, tridiagonal.Inverse]:
        """The next mean and the blocks of Λ⁻¹."""


class Exact(MeanSolver):
    """The exact solution, by block elimination."""

    def __call__(
        self, prior: OrnsteinUhlenbeck, blocks: Blocks, b: Sequence, mean: Sequence
    ) -> Sequence:
        return tridiagonal.solve(prior.links(), _loads(prior, blocks), b)

    def with_inverse(
        self, prior: OrnsteinUhlenbeck, blocks: Blocks, b: Sequence, mean: Sequence
    ) -> tuple[Sequence, tridiagonal.Inverse]:
        return tridiagonal.solve_and_invert(prior.links(), _loads(prior, blocks), b)


class Jacobi(MeanSolver):
    """One damped Jacobi step (4.1), Δ = (Φ + Ψ)⁻¹(b + D m) − m, with a fixed length or the best one.

    Any length in (0, 1] raises the bound, because the spectrum of (Φ + Ψ)⁻¹D is symmetric and within (−1,
    1).
    """

    step_size: float | None = eqx.field(static=True, default=2 / 3)  # None: the best length

    def __call__(
        self, prior: OrnsteinUhlenbeck, blocks: Blocks, b: Sequence, mean: Sequence
    ) -> Sequence:
        whole = blocks + jax.vmap(jnp.diag)(prior.phi())
        there = jnp.linalg.solve(whole, (b + prior.neighbours(mean))[..., None])[..., 0]
        way = there - mean
        if self.step_size is not None:
            return mean + self.step_size * way
        turned = tridiagonal.matvec(prior.links(), _loads(prior, blocks), way)
        length = jnp.sum(way * turned)
        still = length <= 0  # zero at the solution
        best = (jnp.sum(way * b) - jnp.sum(mean * turned)) / jnp.where(still, 1, length)
        return mean + jnp.where(still, 0, best) * way

    def with_inverse(
        self, prior: OrnsteinUhlenbeck, blocks: Blocks, b: Sequence, mean: Sequence
    ) -> tuple[Sequence, tridiagonal.Inverse]:
        found = tridiagonal.invert(prior.links(), _loads(prior, blocks))
        return self(prior, blocks, b, mean), found


class Posterior(eqx.Module):
    """A Gaussian over the factors of one side."""

    mean: eqx.AbstractVar[Sequence]
    adds_mean: ClassVar[bool]  # whether the features give var ψ, without (E ψ)²
    rotates: ClassVar[bool]  # whether the family is closed under linear maps of the factors

    @property
    @abstractmethod
    def var(self) -> Sequence:
        """The variances of the factors."""

    @property
    @abstractmethod
    def step_var(self) -> Float[Array, "m k"]:
        """The variances of the differences between neighbours."""

    @property
    @abstractmethod
    def log_precision(self) -> Float[Array, ""]:
        """log|precision|."""

    @abstractmethod
    def moments(self) -> Moments:
        """The moments at each location, in the form that entries need."""

    @abstractmethod
    def interpolate(self, over: Bridge) -> tuple[Moments, Float[Array, "t k"]]:
        """The moments and variances at new locations."""

    @abstractmethod
    def draw(self, noise: Sequence) -> Sequence:
        """A draw of the factors, from standard normal numbers."""

    @staticmethod
    @abstractmethod
    def independent(mean: Sequence, var: Sequence) -> "Posterior":
        """The posterior with these means and variances and no correlations."""

    @abstractmethod
    def update(self, prior: OrnsteinUhlenbeck, sites: SideSites, solver: MeanSolver) -> "Posterior":
        """The posterior from a prior and the sites of the data."""


class IndependentFactors(Posterior):
    """Factors that are independent of one another, with the variance of each at every location."""

    mean: Sequence
    variance: Sequence
    adds_mean: ClassVar[bool] = True
    rotates: ClassVar[bool] = False

    @property
    def var(self) -> Sequence:
        return self.variance

    def moments(self) -> Moments:
        return factorised_moments(self.mean, self.variance)


class MeanField(IndependentFactors):
    """All factors of all rows are independent."""

    @property
    def step_var(self) -> Float[Array, "m k"]:
        return self.variance[1:] + self.variance[:-1]

    @property
    def log_precision(self) -> Float[Array, ""]:
        return -jnp.sum(jnp.log(self.variance))

    def interpolate(self, over: Bridge) -> tuple[Moments, Float[Array, "t k"]]:
        return _bridged(self.mean, self.variance, jnp.zeros_like(self.mean), over)

    def draw(self, noise: Sequence) -> Sequence:
        return self.mean + jnp.sqrt(self.variance) * noise

    def update(self, prior: OrnsteinUhlenbeck, sites: SideSites, solver: MeanSolver) -> "MeanField":
        own = sites.curvature[:, diagonal(self.mean.shape[1])]
        mean = solver(prior, sites.blocks(), _right_side(prior, sites), self.mean)
        return MeanField(mean, 1 / (prior.phi() + own))

    @staticmethod
    def independent(mean: Sequence, var: Sequence) -> "MeanField":
        return MeanField(mean, var)


class Chains(IndependentFactors):
    """Each factor is a Gauss–Markov chain along the locations; different factors are independent."""

    lag: Float[Array, "m k"]  # cov(uᵣ, uᵣ₊₁)
    steps: Float[Array, "m k"]
    logdet: Float[Array, ""]

    @property
    def step_var(self) -> Float[Array, "m k"]:
        return self.steps

    @property
    def log_precision(self) -> Float[Array, ""]:
        return self.logdet

    def interpolate(self, over: Bridge) -> tuple[Moments, Float[Array, "t k"]]:
        lag = jnp.pad(self.lag, ((0, 1), (0, 0)))
        return _bridged(self.mean, self.variance, lag, over)

    def draw(self, noise: Sequence) -> Sequence:
        here, there = self.variance[:-1], self.variance[1:]
        # var var′ − lag², from the variance of the step, which does not cancel if neighbours are similar
        left = (2 * self.steps * (here + there) - self.steps**2 - (here - there) ** 2) / (4 * here)
        spread = jnp.sqrt(jnp.maximum(left, 0)) * noise[1:]

        def onward(away: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            away = step[0] * away + step[1]
            return away, away

        first = jnp.sqrt(self.variance[0]) * noise[0]
        later = jax.lax.scan(onward, first, (self.lag / here, spread))[1]
        return self.mean + jnp.concatenate([first[None], later])

    def update(self, prior: OrnsteinUhlenbeck, sites: SideSites, solver: MeanSolver) -> "Chains":
        own = sites.curvature[:, diagonal(self.mean.shape[1])] + prior.loads()
        found = jax.vmap(tridiagonal.invert)(prior.links().T[..., None], own.T[..., None, None])
        mean = solver(prior, sites.blocks(), _right_side(prior, sites), self.mean)
        lag, steps = found.lag[..., 0, 0].T, found.step_cov[..., 0, 0].T
        return Chains(mean, found.cov[..., 0, 0].T, lag, steps, jnp.sum(found.logdet))

    @staticmethod
    def independent(mean: Sequence, var: Sequence) -> "Chains":
        steps, logdet = var[1:] + var[:-1], -jnp.sum(jnp.log(var))
        return Chains(mean, var, jnp.zeros_like(steps), steps, logdet)


class Coupled(Posterior):
    """The unrestricted Gaussian: a Gauss–Markov chain of k-vectors."""

    mean: Sequence
    cov: Blocks
    lag: Float[Array, "m k k"]  # cov(uᵣ, uᵣ₊₁)
    steps: Float[Array, "m k k"]  # cov(uᵣ₊₁ − uᵣ)
    logdet: Float[Array, ""]
    adds_mean: ClassVar[bool] = False
    rotates: ClassVar[bool] = True

    @property
    def var(self) -> Sequence:
        return jnp.diagonal(self.cov, axis1=1, axis2=2)

    @property
    def step_var(self) -> Float[Array, "m k"]:
        return jnp.diagonal(self.steps, axis1=1, axis2=2)

    @property
    def log_precision(self) -> Float[Array, ""]:
        return self.logdet

    def moments(self) -> Moments:
        return coupled_moments(self.mean, self.cov)

    def interpolate(self, over: Bridge) -> tuple[Moments, Float[Array, "t k"]]:
        a, b = (jax.vmap(jnp.diag)(part) for part in (over.from_left, over.from_right))
        lag = jnp.pad(self.lag, ((0, 1), (0, 0), (0, 0)))[over.left]
        across = a @ lag @ b
        spread = a @ self.cov[over.left] @ a + b @ self.cov[over.right] @ b
        cov = spread + across + jnp.swapaxes(across, 1, 2) + jax.vmap(jnp.diag)(over.noise)
        return coupled_moments(_mean(self.mean, over), cov), jnp.diagonal(cov, axis1=1, axis2=2)

    def draw(self, noise: Sequence) -> Sequence:
        back = jnp.swapaxes(jnp.linalg.solve(self.cov[:-1], self.lag), 1, 2)
        left = self.cov[1:] - back @ self.lag
        roots = semidefinite_root(jnp.concatenate([self.cov[:1], left]))
        spread = jnp.einsum("nij,nj->ni", roots, noise)

        def onward(away: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            away = step[0] @ away + step[1]
            return away, away

        later = jax.lax.scan(onward, spread[0], (back, spread[1:]))[1]
        return self.mean + jnp.concatenate([spread[:1], later])

    def rotate(self, by: Float[Array, "k k"]) -> "Coupled":
        """The posterior of the factors R u."""

        def both(a: Blocks) -> Blocks:
            return jnp.einsum("ik,nkl,jl->nij", by, a, by)

        logdet = self.logdet - 2 * len(self.mean) * jnp.linalg.slogdet(by)[1]
        return Coupled(self.mean @ by.T, both(self.cov), both(self.lag), both(self.steps), logdet)

    def update(self, prior: OrnsteinUhlenbeck, sites: SideSites, solver: MeanSolver) -> "Coupled":
        b = _right_side(prior, sites)
        mean, found = solver.with_inverse(prior, sites.blocks(), b, self.mean)
        return Coupled(mean, found.cov, found.lag, found.step_cov, found.logdet)

    @staticmethod
    def independent(mean: Sequence, var: Sequence) -> "Coupled":
        cov, logdet = jax.vmap(jnp.diag)(var), -jnp.sum(jnp.log(var))
        return Coupled(mean, cov, jnp.zeros_like(cov[1:]), cov[1:] + cov[:-1], logdet)


Family = Callable[[Sequence, Sequence], Posterior]
"""The method `independent` of a family: a posterior from means and variances."""


def _loads(prior: OrnsteinUhlenbeck, blocks: Blocks) -> Blocks:
    return blocks + jax.vmap(jnp.diag)(prior.loads())


def _right_side(prior: OrnsteinUhlenbeck, sites: SideSites) -> Sequence:
    """b, where Σ⁻¹ of a constant is its loads."""
    return sites.pull + prior.loads() * prior.mean[None]


def _mean(mean: Sequence, over: Bridge) -> Float[Array, "t k"]:
    away = mean - over.mean[None]
    return over.mean[None] + over.from_left * away[over.left] + over.from_right * away[over.right]


def _bridged(
    mean: Sequence, var: Sequence, lag: Sequence, over: Bridge
) -> tuple[Moments, Float[Array, "t k"]]:
    a, b = over.from_left, over.from_right
    spread = a**2 * var[over.left] + b**2 * var[over.right] + 2 * a * b * lag[over.left]
    return factorised_moments(_mean(mean, over), spread + over.noise), spread + over.noise
