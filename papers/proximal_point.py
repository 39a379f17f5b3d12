"""KL proximal-point inference of conditionally conjugate models, whole or by minibatches.

Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference", section 3.

A factor q(z) = h(z) exp(λᵀT(z) − A(λ)) has the expected statistics t = E T = ∇A(λ), and

    KL(λ ‖ λ') = A(λ') − A(λ) − tᵀ(λ' − λ).                                            (4 of the supplement)

A model is conditionally conjugate in factors z₁ … z_m if the expected log joint is affine in each of their
expected statistics,

    E_q[log p(y, z)] = F(t₁, …, t_m) + Σ E_q[log hᵢ],     ELBO = F(t) − Σ (λᵢᵀtᵢ − Aᵢ(λᵢ)),

so that with the other factors held the best one has λ*ᵢ = ∂F/∂tᵢ: the mean-field update, here by
automatic differentiation of F. Theorem 1: the proximal point of one factor, the others held,

    argmax ELBO(λ) − (1/β) KL(λ ‖ λ_k) = (λ_k + β λ*)/(1 + β),

is a natural-gradient step of length ρ = β/(1 + β). (The supplement's (5), (7) and (8) have the sign of ∇KL
reversed; its conclusion (9) is right.) The ELBO never falls. Factors take their steps in turn: moved
together their proximal point is implicit, and not the natural-gradient step of each.

With minibatches, whose weights are scaled to stand for all rows, and ρ_t falling as 1/t this is
stochastic variational inference (Hoffman, Blei, Wang & Paisley 2013).
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi.numerics.namespaces import Scalar, Setting, as_setting
from kalvi.rules.klprox.rule import check_steps, step_length
from kalvi.rules.rule import Batch, Rule

Vector = Float[Array, " k"]
Factors = tuple[Vector, ...]  # one vector each: natural parameters, or expected statistics


class Family(eqx.Module):
    """An exponential family h(z) exp(λᵀT(z) − A(λ)), known by its log-partition A."""

    @abstractmethod
    def log_partition(self, natural: Vector) -> Scalar:
        """A(λ)."""

    def expectations(self, natural: Vector) -> Vector:
        """E T(z) = ∇A(λ)."""
        return jax.grad(lambda at: self.log_partition(at))(natural)

    def kl(self, natural: Vector, other: Vector) -> Scalar:
        """KL(λ ‖ λ')."""
        change = other - natural
        gained = self.log_partition(other) - self.log_partition(natural)
        return gained - self.expectations(natural) @ change


class NormalFamily(Family):
    """N(m, v) of a scalar: T = (z, z²), λ = (m/v, −1/2v)."""

    def log_partition(self, natural: Vector) -> Scalar:
        pull, bend = natural
        return -(pull**2) / (4 * bend) - jnp.log(-2 * bend) / 2


class GammaFamily(Family):
    """Gamma(shape a, rate b) of a positive scalar: T = (log z, z), h = 1/z, λ = (a, −b)."""

    def log_partition(self, natural: Vector) -> Scalar:
        shape, rate = natural[0], -natural[1]
        return gammaln(shape) - shape * jnp.log(rate)


class ConjugateModel(eqx.Module):
    """A joint p(y, z) whose expected logarithm is affine in each factor's expected statistics."""

    @property
    @abstractmethod
    def families(self) -> tuple[Family, ...]:
        """What the factors are."""

    @abstractmethod
    def joint(self, expectations: Factors, batch: Batch) -> Scalar:
        """F: E[log p(y, z)] without the base measures hᵢ of the factors."""

    def expectations(self, naturals: Factors) -> Factors:
        pairs = zip(self.families, naturals, strict=True)
        return tuple(family.expectations(natural) for family, natural in pairs)

    def target(self, i: int, expectations: Factors, batch: Batch) -> Vector:
        """λ*ᵢ given the other factors' expectations; its own do not matter."""

        def along(own: Vector) -> Scalar:
            return self.joint((*expectations[:i], own, *expectations[i + 1 :]), batch)

        return jax.grad(along)(expectations[i])

    def elbo(self, naturals: Factors, batch: Batch) -> Scalar:
        expectations = self.expectations(naturals)
        entropy = sum(
            family.log_partition(natural) - natural @ expected
            for family, natural, expected in zip(self.families, naturals, expectations, strict=True)
        )
        return self.joint(expectations, batch) + entropy


class NormalMeanPrecision(ConjugateModel):
    """y ~ N(μ, 1/τ), μ | τ ~ N(mean, 1/(strength τ)), τ ~ Gamma(shape, rate); factors of μ − mean and τ.

    The exact posterior is a normal-gamma law. The product of a normal and a gamma law has its means of μ
    and τ. It loses that μ spreads more where τ is small, and with it a share 1/shape of the posterior's
    variance of μ and ½/(shape + ½) of that of τ, `shape` being the posterior's. (μ and τ are uncorrelated
    under the exact posterior too: what is lost is dependence.)

    Rows are the y of a batch; its x is not looked at.
    """

    mean: Scalar = eqx.field(converter=jnp.asarray, default=0.0)
    strength: Scalar = eqx.field(converter=jnp.asarray, default=1.0)
    shape: Scalar = eqx.field(converter=jnp.asarray, default=1.0)
    rate: Scalar = eqx.field(converter=jnp.asarray, default=1.0)

    @property
    def families(self) -> tuple[Family, ...]:
        return NormalFamily(), GammaFamily()

    def joint(self, expectations: Factors, batch: Batch) -> Scalar:
        (centre, square), (log_tau, tau) = expectations
        away, weight = batch.y - self.mean, batch.weight
        n, k = jnp.sum(weight), self.strength
        scatter = weight @ away**2 - 2 * (weight @ away) * centre + (n + k) * square
        normals = (n + 1) * log_tau - tau * scatter + jnp.log(k) - n * float(np.log(2 * np.pi))
        gamma = self.shape * log_tau - self.rate * tau
        return normals / 2 + gamma + self.shape * jnp.log(self.rate) - gammaln(self.shape)

    def start(self, y_mean: Any, y_variance: Any) -> Factors:
        """Factors for rows of about this mean and variance, known as well as one row tells."""
        v = jnp.asarray(y_variance, float)
        return jnp.stack([(y_mean - self.mean) / v, -0.5 / v]), jnp.stack([jnp.ones_like(v), -v])

    def moments(self, naturals: Factors) -> tuple[Vector, Vector]:
        """The means and the variances of μ and τ."""
        (pull, bend), (shape, rate) = naturals[0], (naturals[1][0], -naturals[1][1])
        means = jnp.stack([self.mean - pull / (2 * bend), shape / rate])
        return means, jnp.stack([-0.5 / bend, shape / rate**2])


class Approached(eqx.Module):
    """The factors, the bound that the last batch says they have, and the steps so far."""

    naturals: Factors
    elbo: Scalar
    steps: Int[Array, ""]


class ProximalPoint(Rule[Approached]):
    """One KL proximal-point step of every factor in turn, batch by batch.

    Parameters
    ----------
    model : ConjugateModel
    beta : float, default 1
        The step is β/(1 + β) of the way to the mean-field update; infinity is coordinate ascent.
    rows : float or None, default None
        The total weight of the rows of which a batch is a sample; None where a batch is all of them.
    decay : float, default 0
        1/β_t = 1/β + decay · t. With 1 and minibatches all targets so far are averaged, which needs no
        tuning; with 0 the steps keep their length.
    """

    model: ConjugateModel
    beta: Scalar = eqx.field(converter=jnp.asarray, default=1.0)
    rows: Setting | None = eqx.field(converter=as_setting, default=None)
    decay: Scalar = eqx.field(converter=jnp.asarray, default=0.0)

    def __check_init__(self):
        check_steps(self.beta, self.decay, self.rows)

    def init(self, prior: Factors, *, key: PRNGKeyArray | None = None) -> Approached:
        """From the natural parameters of the factors."""
        unknown = jnp.full((), -jnp.inf, prior[0].dtype)
        return Approached(tuple(prior), unknown, jnp.zeros((), jnp.int32))

    def update(
        self, state: Approached, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Approached:
        batch = batch._replace(weight=standing_for(self.rows, batch.weight))
        length = step_length(self.beta, self.decay, state.steps)
        naturals = state.naturals
        for i in range(len(naturals)):
            naturals = proximal_step(self.model, naturals, i, batch, length)
        return Approached(naturals, self.model.elbo(naturals, batch), state.steps + 1)


def proximal_step(
    model: ConjugateModel, naturals: Factors, i: int, batch: Batch, length: Scalar
) -> Factors:
    """The factors with the i-th at its proximal point, `length` = β/(1 + β)."""
    target = model.target(i, model.expectations(naturals), batch)
    moved = naturals[i] + length.astype(target.dtype) * (target - naturals[i])
    return (*naturals[:i], moved, *naturals[i + 1 :])


def standing_for(rows: Setting | None, weight: Float[Array, " b"]) -> Float[Array, " b"]:
    """Weights that sum to `rows`; as they are if that is None or if there are none."""
    if rows is None:
        return weight
    total = jnp.sum(weight)
    return weight * (jnp.asarray(rows, weight.dtype) / jnp.where(total > 0, total, 1))
