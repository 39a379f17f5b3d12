"""Schemes: how one observation updates the distribution N(m₀, v₀) of its own predictor.

Every filter of Lambert, Bonnabel & Bach (2022) for p(y | xᵀθ) has the form

    μ ← μ + ξ Σ x,      Σ⁻¹ ← Σ⁻¹ + γ x xᵀ

and they differ only in the map (y, m₀, v₀) → (ξ, γ), a `Scheme`. With the expected gradient g(m, v) and
curvature γ(m, v) of log p, and r = g/(1 + γ v₀) for a gradient applied after the update of v:

    Implicit    γ, ξ = γ, g at (m₀ + ξ v₀, v₀/(1 + γ v₀))         eqs. 28-29, the KL optimum
    Explicit    γ, ξ = γ, r at (m₀, v₀)                            eqs. 30-31
    MirrorProx  explicit step to (m̂, v̂), then γ̂ and ξ = (ĝ + γ̂ (m̂ − m₀))/(1 + γ̂ v₀), repeated
    EKF         γ = Fisher information at m₀, ξ = r                eqs. 55, 81: online natural gradient
    QKF         γ = λ(z), z² = E(f − c)², ξ from the bound         eqs. 89-90, Jaakkola–Jordan

For an observation with c predictors ξ is a vector, γ and v₀ are matrices, and 1/(1 + γ v₀) becomes (I + Γ
V₀)⁻¹ (`likelihoods.sites`).

MirrorProx carries the term γ̂ (m̂ − m₀) that eqs. 139-140 of Lambert, Bonnabel & Bach (2023) drop; with
it the implicit scheme is the fixed point and linear models are exact.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from kalvi.likelihoods import Likelihood
from kalvi.likelihoods.likelihood import Label, need_one_output
from kalvi.likelihoods.sites import Between, Predictors, Site, at, gain_after, narrowed, product
from kalvi.numerics.namespaces import Scalar


class Scheme(eqx.Module):
    """The map (y, mean, var) → site for one observation of a given weight."""

    searches: ClassVar[bool] = False
    """Whether a site is found by a search, which is faster if it is not thorough."""
    takes_samples: ClassVar[bool] = False
    """Whether expectations may be averages over draws."""

    @abstractmethod
    def site(
        self,
        likelihood: Likelihood,
        y: Label,
        mean: Predictors,
        var: Between,
        weight: Scalar,
        *,
        thorough: bool = True,
    ) -> Site:
        """The step ξ and curvature γ of an observation; if not `thorough`, an unusual one may stay
        unsolved."""


class Implicit(Scheme):
    """The R-VGA optimum: the Gaussian closest in KL to q(θ) p(y | θ)."""

    searches: ClassVar[bool] = True

    def site(self, likelihood, y, mean, var, weight, *, thorough: bool = True) -> Site:
        return likelihood.implicit(y, mean, var, weight, thorough=thorough)


class Explicit(Scheme):
    """Expectations under the previous Gaussian."""

    takes_samples: ClassVar[bool] = True

    def site(self, likelihood, y, mean, var, weight, *, thorough: bool = True) -> Site:
        _, gradient, curvature = likelihood.expect(y, mean, var)
        return gain_after(weight * gradient, weight * curvature, var)


class MirrorProx(Scheme):
    """Explicit look-ahead steps; with more iterations they approach the implicit scheme.

    With `extra_covariance=False` the covariance of the first look-ahead is kept.
    """

    takes_samples: ClassVar[bool] = True
    iterations: int = eqx.field(static=True, default=1)
    extra_covariance: bool = eqx.field(static=True, default=True)

    def site(self, likelihood, y, mean, var, weight, *, thorough: bool = True) -> Site:
        _, gradient, first = likelihood.expect(y, mean, var)
        start = gain_after(weight * gradient, weight * first, var)

        def look_ahead(_, site):
            shift = product(var, site.step)
            _, gradient, curvature = likelihood.expect(
                y, mean + shift, narrowed(var, site.curvature)
            )
            curvature = weight * (curvature if self.extra_covariance else first)
            return gain_after(weight * gradient + product(curvature, shift), curvature, var)

        return jax.lax.fori_loop(0, self.iterations, look_ahead, start)


class EKF(Scheme):
    """The extended Kalman filter, which is the online natural gradient with rate 1/(t + 1)."""

    def site(self, likelihood, y, mean, var, weight, *, thorough: bool = True) -> Site:
        _, gradient, information = at(likelihood, y, mean)
        return gain_after(weight * gradient, weight * information, var)


class QKF(Scheme):
    """The quadratic Kalman filter: the Jaakkola–Jordan bound, tight at the predictor's second moment."""

    def site(self, likelihood, y, mean, var, weight, *, thorough: bool = True) -> Site:
        need_one_output(likelihood, "QKF", "use Implicit().")
        centre, slope = likelihood.bound(y)
        curvature = weight * likelihood.bound_curvature(jnp.sqrt(var + (mean - centre) ** 2))
        return gain_after(weight * slope - curvature * (mean - centre), curvature, var)
