"""KL-proximal variational inference in function space: one Gaussian over the latents of all rows.

Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference", eqs. (18)-(20), as a
natural-gradient step of the sites. With the prior f ~ N(μ, K) and the likelihood replaced by
Π exp(lᵢ fᵢ − ½ γᵢ fᵢ²),

    q = N(m, V),   V = (K⁻¹ + Γ)⁻¹,   m = μ + K c,   c = (I + Γ K)⁻¹ (l − Γ μ),
    ELBO = Σ wᵢ E_q[log p(yᵢ | fᵢ)] − ½ log|I + K Γ| + ½ γᵀv − ½ cᵀK c,      v = diag V,

and the sites that q's own marginals ask for are γ* = −w E[∂² log p], l* = w E[∂ log p] + γ* m. A step goes
part of the way from (l, γ) to (l*, γ*), the ELBO never falling (`climbing`). γ = 0 is the prior.

Nothing is divided by a small γ and K is never inverted: with S = Γ^{1/2}, L Lᵀ = B = I + S K S has
eigenvalues ≥ 1 and T = L⁻¹ S K gives V = K − TᵀT. Where γ K is large that difference has lost its digits
and vᵢ = (1 − (B⁻¹)ᵢᵢ)/γᵢ has not; (L⁻¹)ᵢⱼ = −Tᵢⱼ sⱼ below the diagonal, so it costs nothing more. For the
same reason the pulls of such rows enter c = S B⁻¹ S⁻¹ l in this form. Likelihoods that are not log-concave
have rows with γ < 0; these are taken away in a second step, V = V₁ + T₂ᵀT₂, L₂ L₂ᵀ = I − S₂ V₁ S₂,
T₂ = L₂⁻¹ S₂ V₁, which exists only if V is positive.

The ascent stops where |e|²_V + ½ (Σ |γ* − γ| v)², e = w E[∂ log p] − c, an upper bound on the squared
natural-gradient norm in nats, is below the tolerance.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kalvi import climbing, linalg
from kalvi.algorithms.base import weighted
from kalvi.implicit import Expected
from kalvi.likelihoods import Likelihood

Scalar = Float[Array, ""]
PerRow = Float[Array, " n"]
Gram = Float[Array, "n n"]

TOLERANCE = 1e-8
"""Default stopping value of the bound on the squared natural-gradient norm, in nats."""
MOST_PASSES = 500


class Latent(NamedTuple):
    """The prior N(mean, cov) of the latents of the rows."""

    mean: PerRow
    cov: Gram


class Sites(NamedTuple):
    """The likelihood as Π exp(pull f − ½ curvature f²)."""

    pull: PerRow
    curvature: PerRow


class KLProx(NamedTuple):
    """The optimal Gaussian, its bound, the passes it took and how far it is from stationary."""

    sites: Sites
    coefficients: PerRow  # c: the posterior mean is mean + cov c, at a new point mean* + k*ᵀ c
    mean: PerRow  # of the latents of the rows
    var: PerRow
    elbo: Scalar
    gap: Scalar  # a bound on the squared natural-gradient norm, in nats
    passes: Int[Array, ""]
    converged: Bool[Array, ""]


class Conditioned(NamedTuple):
    """The factors by which sites shrink, and then widen, a covariance."""

    scale: PerRow  # S, √γ where γ > 0
    root: Gram  # L
    excess: PerRow  # S₂, √−γ where γ < 0
    widening: Gram  # L₂; I where no γ is negative


def klprox(
    likelihood: Likelihood,
    prior: Latent,
    y: PerRow,
    weight: PerRow,
    start: Sites | None = None,
    *,
    max_passes: int | Int[Array, ""] = MOST_PASSES,
    tolerance: float | Scalar = TOLERANCE,
) -> KLProx:
    """The Gaussian over the latents that maximises the bound.

    It is sought from given sites or, for a log-concave likelihood, where the optimum is the only one, from
    the information that rows would have at the prior mean; for others from the prior.
    """
    start = _first_sites(likelihood, prior.mean, weight) if start is None else start
    here, passes, converged = climbing.climb(
        lambda natural: _at(likelihood, prior, y, weight, natural),
        jnp.concatenate(start),
        rows=jnp.sum(weight),
        tolerance=tolerance,
        max_passes=max_passes,
    )
    return KLProx(
        here.sites,
        here.coefficients,
        here.mean,
        here.var,
        here.elbo,
        here.gap,
        passes,
        converged,
    )


def sites_at(likelihood: Likelihood, mean: PerRow, var: PerRow, y: PerRow, weight: PerRow) -> Sites:
    """The sites that the marginals of a Gaussian ask for, such as those of a stream's posterior."""
    expected = _expect(likelihood, mean, var, y, weight)
    return Sites(expected.gradient + expected.curvature * mean, expected.curvature)


def conditioned(cov: Gram, curvature: PerRow) -> Conditioned:
    """The factors of the covariance (cov⁻¹ + diag curvature)⁻¹; NaN where it is not positive."""
    nothing = jnp.zeros_like(curvature)
    return _law(Latent(nothing, cov), Sites(nothing, curvature), False).factors


def predict(
    prior: Latent,
    found: KLProx,
    factors: Conditioned,
    cross: Float[Array, "m n"],
    mean: Float[Array, " m"],
    var: Float[Array, " m"],
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """Mean and variance of the latents at m new points, given their prior law and that with the rows'."""
    reached = reduce(prior, factors, cross)
    return mean + cross @ found.coefficients, var - jnp.sum(reached.lost**2, axis=0) + jnp.sum(
        reached.gained**2, axis=0
    )


class Reached(NamedTuple):
    """The covariance of new points is their prior one − lostᵀ lost + gainedᵀ gained."""

    lost: Float[Array, "n m"]
    gained: Float[Array, "n m"]


def reduce(prior: Latent, factors: Conditioned, cross: Float[Array, "m n"]) -> Reached:
    """What the sites do to the covariance of new points."""
    lost = _solve(factors.root, linalg.scale_rows(factors.scale, cross.T))

    def widen() -> Float[Array, "n m"]:
        shrunk = _solve(factors.root, linalg.scale_rows(factors.scale, prior.cov))
        between = cross.T - shrunk.T @ lost
        return _solve(factors.widening, linalg.scale_rows(factors.excess, between))

    gained = jax.lax.cond(jnp.any(factors.excess > 0), widen, lambda: jnp.zeros_like(lost))
    return Reached(lost, gained)


class _Law(NamedTuple):
    """q, given its sites."""

    mean: PerRow
    var: PerRow
    coefficients: PerRow
    log_volume: Scalar  # log|I + K Γ|
    lost: Gram  # T
    gained: Gram  # T₂
    factors: Conditioned

    def spread(self, prior: Latent, e: PerRow) -> Scalar:
        """eᵀ V e."""
        square = e @ (prior.cov @ e) - jnp.sum((self.lost @ e) ** 2)
        return jnp.maximum(square + jnp.sum((self.gained @ e) ** 2), 0)


class _Point(climbing.Place):
    """Sites, the Gaussian they make, and the sites it asks for."""

    sites: Sites
    mean: PerRow
    var: PerRow
    coefficients: PerRow
    expected: Expected  # with the weights of the rows

    @property
    def natural(self) -> Float[Array, " k"]:
        return jnp.concatenate(self.sites)

    @property
    def way(self) -> Float[Array, " k"]:
        pull = self.expected.gradient + self.expected.curvature * self.mean
        return jnp.concatenate([pull, self.expected.curvature]) - self.natural

    @property
    def moments(self) -> tuple[PerRow, PerRow]:
        return self.mean, self.var

    @property
    def slopes(self) -> tuple[PerRow, PerRow]:
        bend = self.expected.curvature - self.sites.curvature
        return self.expected.gradient - self.coefficients, -bend / 2


def _at(
    likelihood: Likelihood, prior: Latent, y: PerRow, weight: PerRow, natural: Float[Array, " k"]
) -> _Point:
    pull, curvature = jnp.split(natural, 2)
    # Anderson's method may step beyond zero, where the optimum is not
    sites = Sites(pull, jnp.maximum(curvature, 0) if likelihood.log_concave else curvature)
    law = _law(prior, sites, likelihood.log_concave)
    expected = _expect(likelihood, law.mean, law.var, y, weight)
    away = expected.gradient - law.coefficients
    bend = (expected.curvature - sites.curvature) * law.var
    felt = jnp.concatenate([away * jnp.sqrt(law.var), bend * float(np.sqrt(0.5))])
    square = law.coefficients @ (law.mean - prior.mean)
    elbo = jnp.sum(expected.value) - (law.log_volume - sites.curvature @ law.var + square) / 2
    gap = law.spread(prior, away) + jnp.sum(jnp.abs(bend)) ** 2 / 2
    blur = _blur(law.coefficients, prior.cov)
    return _Point(elbo, felt, gap, blur, sites, law.mean, law.var, law.coefficients, expected)


def _blur(coefficients: PerRow, cov: Gram) -> Scalar:
    """The rounding error of cᵀK c, whose terms may be far larger than their sum."""
    terms = jnp.sum(jnp.abs(coefficients) * jnp.sqrt(jnp.diagonal(cov))) ** 2
    return 0.5 * float(jnp.finfo(cov.dtype).eps) * terms / float(np.sqrt(cov.shape[0]))


def _first_sites(likelihood: Likelihood, mean: PerRow, weight: PerRow) -> Sites:
    if not likelihood.log_concave:
        return Sites(jnp.zeros_like(mean), jnp.zeros_like(mean))
    curvature = weighted(weight, jax.vmap(lambda f: likelihood.information(f))(mean))
    return Sites(curvature * mean, curvature)


def _expect(
    likelihood: Likelihood, mean: PerRow, var: PerRow, y: PerRow, weight: PerRow
) -> Expected:
    expected = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v))(y, mean, var)
    return Expected(*(weighted(weight, term) for term in expected))


def _law(prior: Latent, sites: Sites, log_concave: bool) -> _Law:
    """The Gaussian of the sites; its second step is taken only if some curvature is negative."""
    mean, cov = prior
    gamma = jnp.maximum(sites.curvature, 0)
    scale, prior_var = jnp.sqrt(gamma), jnp.diagonal(cov)
    scaled = linalg.scale_rows(scale, cov)
    root = linalg.cholesky(linalg.identity_like(cov) + scaled * scale[None, :])
    lost = _solve(root, scaled)
    strong = gamma * prior_var > 1
    below = jnp.sum(jnp.tril(lost, -1) ** 2, axis=0)
    inverse = jnp.diagonal(root) ** -2 + gamma * below  # of B
    var = jnp.where(
        strong,
        (1 - inverse) / jnp.where(strong, gamma, 1),
        prior_var - jnp.sum(lost**2, axis=0),
    )
    pull = sites.pull - sites.curvature * mean
    mild = jnp.where(strong, 0, pull)
    side = jnp.where(strong, pull / jnp.where(strong, scale, 1), 0) - scaled @ mild
    coefficients = mild + scale * linalg.cho_solve(root, side)
    shift = cov @ coefficients
    excess = jnp.sqrt(jnp.maximum(-sites.curvature, 0))
    factors = Conditioned(scale, root, excess, linalg.identity_like(cov))
    volume = 2 * jnp.sum(jnp.log(jnp.diagonal(root)))
    first = _Law(mean + shift, var, coefficients, volume, lost, jnp.zeros_like(cov), factors)
    if log_concave:
        return first
    return jax.lax.cond(
        jnp.any(sites.curvature < 0), lambda: _widened(prior, sites, first), lambda: first
    )


def _widened(prior: Latent, sites: Sites, law: _Law) -> _Law:
    """The law with the negative curvatures added."""
    excess = law.factors.excess
    scaled = linalg.scale_rows(excess, prior.cov - law.lost.T @ law.lost)
    root = linalg.cholesky(linalg.identity_like(prior.cov) - scaled * excess[None, :])
    gained = _solve(root, scaled)
    shift = law.mean - prior.mean
    shift = shift + gained.T @ jsl.solve_triangular(root, excess * shift, lower=True)
    mean = prior.mean + shift
    return _Law(
        mean,
        law.var + jnp.sum(gained**2, axis=0),
        sites.pull - sites.curvature * mean,
        law.log_volume + 2 * jnp.sum(jnp.log(jnp.diagonal(root))),
        law.lost,
        gained,
        law.factors._replace(widening=root),
    )


def _solve(root: Gram, rows: Float[Array, "n m"]) -> Float[Array, "n m"]:
    return jsl.solve_triangular(root, rows, lower=True)
