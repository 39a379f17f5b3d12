"""Site schemes: what one observation does to the law N(m₀, v₀) of its own predictor.

Every filter of Lambert, Bonnabel & Bach (2022) for p(y | xᵀθ) has the form

    μ ← μ + ξ Σ x,      Σ⁻¹ ← Σ⁻¹ + γ x xᵀ

and differs only in the scalar map (y, m₀, v₀) → (ξ, γ), a `Scheme`. With g(m, v) and γ(m, v) the
expected gradient and curvature of log p and r = g/(1 + γ v₀) for a gain taken after the update:

    Implicit    γ, ξ = γ, g at (m₀ + ξ v₀, v₀/(1 + γ v₀))         eqs. 28-29, the KL optimum
    Explicit    γ, ξ = γ, r at (m₀, v₀)                            eqs. 30-31
    MirrorProx  explicit step to (m̂, v̂), then γ̂ and ξ = (ĝ + γ̂ (m̂ − m₀))/(1 + γ̂ v₀), repeated
    EKF         γ = Fisher information at m₀, ξ = r                eqs. 55, 81: online natural gradient
    QKF         γ = λ(z), z² = E(f − c)², ξ from the bound         eqs. 89-90, Jaakkola–Jordan

For c predictors of one observation (`group`) ξ is a vector, γ and v₀ are matrices, and 1/(1 + γ v₀)
reads (I + Γ V₀)⁻¹.

MirrorProx carries the term γ̂ (m̂ − m₀) that eqs. 139-140 of Lambert, Bonnabel & Bach (2023) drop; with
it the implicit scheme is the fixed point and linear models are exact.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from kalvi import linalg
from kalvi.implicit import Site
from kalvi.likelihoods import Likelihood, SuperGaussian
from kalvi.vectors import VectorLikelihood, VectorSite, gain_after

Scalar = Float[Array, ""]
Label = Float[Array, "*o"]
Vector = Float[Array, " c"]
Matrix = Float[Array, "c c"]


class Scheme(eqx.Module):
    """The map (y, mean, var) → site of one row of the given weight."""

    @abstractmethod
    def site(
        self, likelihood: Likelihood, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar
    ) -> Site:
        """Step ξ and curvature γ of the row."""

    def group(
        self, likelihood: VectorLikelihood, y: Label, mean: Vector, cov: Matrix, weight: Scalar
    ) -> VectorSite:
        """Step ξ and curvature Γ of an observation with c predictors."""
        raise TypeError(
            f"{type(self).__name__} is for likelihoods of one predictor and {type(likelihood).__name__} "
            f"has {likelihood.outputs}; use Implicit()."
        )

    @abstractmethod
    def quick(self) -> "Scheme":
        """The same scheme, allowed to leave an unusual row unsolved."""


class Implicit(Scheme):
    """The R-VGA optimum: the Gaussian closest in KL to q(θ) p(y | θ)."""

    thorough: bool = eqx.field(static=True, default=True)

    def site(
        self, likelihood: Likelihood, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar
    ) -> Site:
        return likelihood.implicit(y, mean, var, weight, thorough=self.thorough)

    def group(
        self, likelihood: VectorLikelihood, y: Label, mean: Vector, cov: Matrix, weight: Scalar
    ) -> VectorSite:
        return likelihood.implicit(y, mean, cov, weight)

    def quick(self) -> "Implicit":
        return Implicit(thorough=False)


class Explicit(Scheme):
    """Expectations under the previous Gaussian."""

    def site(
        self, likelihood: Likelihood, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar
    ) -> Site:
        _, gradient, curvature = likelihood.expect(y, mean, var)
        return _gain_after(weight * gradient, weight * curvature, var)

    def group(
        self, likelihood: VectorLikelihood, y: Label, mean: Vector, cov: Matrix, weight: Scalar
    ) -> VectorSite:
        _, gradient, curvature = likelihood.expect(y, mean, cov)
        return gain_after(weight * gradient, weight * curvature, cov)

    def quick(self) -> "Explicit":
        return self


class MirrorProx(Scheme):
    """Explicit look-ahead steps; more iterations approach the implicit scheme.

    With `extra_covariance=False` the covariance of the first look-ahead is kept.
    """

    iterations: int = eqx.field(static=True, default=1)
    extra_covariance: bool = eqx.field(static=True, default=True)

    def site(
        self, likelihood: Likelihood, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar
    ) -> Site:
        _, gradient, first = likelihood.expect(y, mean, var)
        start = _gain_after(weight * gradient, weight * first, var)

        def look_ahead(_, site):
            ahead = mean + site.step * var
            _, gradient, curvature = likelihood.expect(y, ahead, var / (1 + site.curvature * var))
            curvature = weight * (curvature if self.extra_covariance else first)
            return _gain_after(weight * gradient + curvature * (ahead - mean), curvature, var)

        return jax.lax.fori_loop(0, self.iterations, look_ahead, start)

    def group(
        self, likelihood: VectorLikelihood, y: Label, mean: Vector, cov: Matrix, weight: Scalar
    ) -> VectorSite:
        _, gradient, first = likelihood.expect(y, mean, cov)
        start = gain_after(weight * gradient, weight * first, cov)

        def look_ahead(_, site):
            shift = cov @ site.step
            _, gradient, curvature = likelihood.expect(y, mean + shift, _narrowed(cov, site))
            curvature = weight * (curvature if self.extra_covariance else first)
            return gain_after(weight * gradient + curvature @ shift, curvature, cov)

        return jax.lax.fori_loop(0, self.iterations, look_ahead, start)

    def quick(self) -> "MirrorProx":
        return self


class EKF(Scheme):
    """The extended Kalman filter, which is the online natural gradient with rate 1/(t + 1)."""

    def site(
        self, likelihood: Likelihood, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar
    ) -> Site:
        gradient = jax.grad(lambda f: likelihood.log_prob(f, y))(mean)
        return _gain_after(weight * gradient, weight * likelihood.information(mean), var)

    def group(
        self, likelihood: VectorLikelihood, y: Label, mean: Vector, cov: Matrix, weight: Scalar
    ) -> VectorSite:
        _, gradient, information = likelihood.at(y, mean)
        return gain_after(weight * gradient, weight * information, cov)

    def quick(self) -> "EKF":
        return self


class QKF(Scheme):
    """The quadratic Kalman filter: the Jaakkola–Jordan bound, tight at the predictor's second moment."""

    def site(
        self, likelihood: Likelihood, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar
    ) -> Site:
        if not isinstance(likelihood, SuperGaussian):
            raise TypeError(
                f"QKF needs a likelihood with a quadratic bound and {type(likelihood).__name__} has none; "
                "use Implicit()."
            )
        centre, slope = likelihood.bound(y)
        curvature = weight * likelihood.bound_curvature(jnp.sqrt(var + (mean - centre) ** 2))
        return _gain_after(weight * slope - curvature * (mean - centre), curvature, var)

    def quick(self) -> "QKF":
        return self


def _gain_after(gradient: Scalar, curvature: Scalar, var: Scalar) -> Site:
    """The site of a scheme whose printed gain is the new covariance."""
    return Site(gradient / (1 + curvature * var), curvature, jnp.asarray(True))


def _narrowed(cov: Matrix, site: VectorSite) -> Matrix:
    """(V⁻¹ + Γ)⁻¹ = A (I + Aᵀ Γ A)⁻¹ Aᵀ, A Aᵀ = V."""
    root = linalg.semidefinite_root(cov)
    inner = root.T @ site.curvature @ root
    lower = linalg.steady_cholesky(linalg.identity_like(inner) + inner)
    half = jsl.solve_triangular(lower, root.T, lower=True)
    return half.T @ half
