"""KL-proximal variational inference in function space: one Gaussian over the latents of all rows.

Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference", eqs. (18)-(20), as a
natural-gradient step of the sites. With the prior f ~ N(μ, K) and the likelihood replaced by
Π exp(lᵢ fᵢ − ½ γᵢ fᵢ²),

    q = N(m, V),   V = (K⁻¹ + Γ)⁻¹,   m = μ + K c,   c = (I + Γ K)⁻¹ (l − Γ μ),
    ELBO = Σ wᵢ E_q[log p(yᵢ | fᵢ)] − ½ log|I + K Γ| + ½ γᵀv − ½ cᵀK c,      v = diag V,

and the best sites given q's own marginals are γ* = −w E[∂² log p], l* = w E[∂ log p] + γ* m. A
natural-gradient step goes part of the way from (l, γ) to (l*, γ*), and the ELBO never falls
(`numerics.natural_gradient`). γ = 0 is the prior. If a likelihood has closed forms, the step goes towards
better sites: those of the Gaussians closest to the cavities (q without the row's site) times p(yᵢ | fᵢ)^wᵢ.
This is R-VGA's implicit step for all rows at once. The fixed points are the same, and rows that share
little are solved in one pass under any prior (8 passes instead of 86 for almost independent binary rows, 13
instead of 29 for large counts).

K is never inverted: with S = Γ^{1/2}, L Lᵀ = B = I + S K S has eigenvalues ≥ 1,

    vᵢ = (1 − (B⁻¹)ᵢᵢ)/γᵢ,        V = K − TᵀT,   T = L⁻¹ S K,

the first of which keeps its digits unless γ v is tiny. Rows with a tiny γ v use the second, at the cost of
one more solve. For the same reason the pulls of rows with γ K > 1 enter c as S B⁻¹ S⁻¹ l. Likelihoods that
are not log-concave have rows with γ < 0; these are treated in a second step,
V = V₁ + T₂ᵀT₂, L₂ L₂ᵀ = I − S₂ V₁ S₂, T₂ = L₂⁻¹ S₂ V₁, which exists only if V is positive.

The ascent stops when |e|²_V + ½ (Σ |γ* − γ| v)², e = w E[∂ log p] − c, an upper bound on the squared
natural-gradient norm in nats, is below the tolerance. The gap of the ELBO is then below it too, up to a
small factor (3.7 was seen, for counts under a very wide prior).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kalvi.likelihoods import Likelihood
from kalvi.likelihoods.likelihood import need_one_output
from kalvi.likelihoods.sites import Expected
from kalvi.numerics import linalg, natural_gradient
from kalvi.numerics.namespaces import Scalar
from kalvi.rules.rule import weigh_rows

PerRow = Float[Array, " n"]
Gram = Float[Array, "n n"]

TOLERANCE = 1e-8
"""The default tolerance for the bound on the squared natural-gradient norm, in nats."""
MOST_PASSES = 500
HEARD = 0.4
"""If γ v is below this power of the rounding unit, the variance of a row is a difference from the prior's;
otherwise it comes from B⁻¹, which keeps at least 0.6 of the digits."""


class LatentPrior(NamedTuple):
    """The prior N(mean, cov) of the latents of the rows."""

    mean: PerRow
    cov: Gram


class Sites(NamedTuple):
    """The likelihood as Π exp(pull f − ½ curvature f²)."""

    pull: PerRow
    curvature: PerRow


class KLProx(NamedTuple):
    """The optimal Gaussian, its bound, the number of passes, and its distance from stationarity."""

    sites: Sites
    coefficients: PerRow  # c: the posterior mean is mean + cov c, at a new point mean* + k*ᵀ c
    mean: PerRow  # of the latents of the rows
    var: PerRow
    elbo: Scalar
    gap: Scalar  # a bound on the squared natural-gradient norm, in nats
    passes: Int[Array, ""]
    converged: Bool[Array, ""]


class ConditioningFactors(NamedTuple):
    """The factors by which sites shrink a covariance and then, for negative curvatures, widen it."""

    scale: PerRow  # S: √γ if γ > 0
    root: Gram  # L
    excess: PerRow | None  # S₂: √−γ if γ < 0; None if γ cannot be negative
    widening: Gram | None  # L₂


class KeptFactors(NamedTuple):
    """The factorisations of the last pass, so that they need not be computed again."""

    factors: ConditioningFactors
    inverse: Gram  # L⁻¹


def klprox(
    likelihood: Likelihood,
    prior: LatentPrior,
    y: PerRow,
    weight: PerRow,
    start: Sites | None = None,
    *,
    max_passes: int | Int[Array, ""] = MOST_PASSES,
    tolerance: float | Scalar = TOLERANCE,
) -> KLProx:
    """The Gaussian over the latents that maximises the bound.

    The search starts from the given sites, if any. Otherwise it starts, for a log-concave likelihood, which
    has a single optimum, from the information of the rows at the prior mean, and for other likelihoods from
    the prior.
    """
    need_one_output(likelihood, "klprox")
    start = first_sites(likelihood, prior.mean, y, weight) if start is None else start
    limits = {"max_passes": max_passes, "tolerance": tolerance}
    return climb_sites(likelihood, prior, y, weight, start, **limits)[0]


def climb_sites(
    likelihood: Likelihood,
    prior: LatentPrior,
    y: PerRow,
    weight: PerRow,
    start: Sites,
    *,
    max_passes: int | Int[Array, ""],
    tolerance: float | Scalar,
    keep: bool = False,
) -> tuple[KLProx, KeptFactors | None]:
    """`klprox` from given sites; with `keep`, and a log-concave likelihood, also its factorisations."""
    here, passes, converged = natural_gradient.climb(
        lambda natural: _at(likelihood, prior, y, weight, natural, keep),
        jnp.concatenate(start),
        rows=jnp.sum(weight),
        tolerance=tolerance,
        max_passes=max_passes,
    )
    found = KLProx(
        here.sites,
        here.coefficients,
        here.mean,
        here.var,
        here.elbo,
        here.gap,
        passes,
        converged,
    )
    return found, here.kept


def sites_at(likelihood: Likelihood, mean: PerRow, var: PerRow, y: PerRow, weight: PerRow) -> Sites:
    """The best sites given the marginals of a Gaussian, such as the posterior of a stream."""
    return _asked(expect_rows(likelihood, mean, var, y, weight), mean)


def condition(cov: Gram, curvature: PerRow, *, log_concave: bool = False) -> ConditioningFactors:
    """The factors of the covariance (cov⁻¹ + diag curvature)⁻¹; NaN if it is not positive.

    For a log-concave likelihood they take only one factorisation.
    """
    scale = jnp.sqrt(jnp.maximum(curvature, 0))
    scaled = linalg.scale_rows(scale, cov)
    root = linalg.cholesky(linalg.identity_like(cov) + scaled * scale[None, :])
    if log_concave:
        return ConditioningFactors(scale, root, None, None)
    excess = jnp.sqrt(jnp.maximum(-curvature, 0))

    wide = jax.lax.cond(
        jnp.any(excess > 0),
        lambda: _widening(cov, scale, root, excess)[1],
        lambda: linalg.identity_like(cov),
    )
    return ConditioningFactors(scale, root, excess, wide)


def predict(
    prior: LatentPrior,
    found: KLProx,
    factors: ConditioningFactors,
    cross: Float[Array, "m n"],
    mean: Float[Array, " m"],
    var: Float[Array, " m"],
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """The mean and variance of the latents at m new points, given their prior moments and covariances with
    the rows."""
    reached = covariance_change(prior.cov, factors, cross.T)
    var = var - jnp.sum(reached.lost**2, axis=0) + jnp.sum(reached.gained**2, axis=0)
    return mean + cross @ found.coefficients, var


class CovarianceChange(NamedTuple):
    """A change of the covariance of new points: prior covariance − lostᵀ lost + gainedᵀ gained."""

    lost: Float[Array, "n m"]
    gained: Float[Array, "n m"]


def covariance_change(
    cov: Gram, factors: ConditioningFactors, cross: Float[Array, "n m"]
) -> CovarianceChange:
    """The change of the covariance of new points, or of any combinations of the latents, by sites."""
    scale, root, excess, widening = factors
    lost = _solve(root, linalg.scale_rows(scale, cross))
    if excess is None or widening is None:
        return CovarianceChange(lost, jnp.zeros_like(lost))

    def widen() -> Float[Array, "n m"]:
        back = jsl.solve_triangular(root, lost, lower=True, trans=1)
        between = cross - cov @ linalg.scale_rows(scale, back)
        return _solve(widening, linalg.scale_rows(excess, between))

    return CovarianceChange(
        lost, jax.lax.cond(jnp.any(excess > 0), widen, lambda: jnp.zeros_like(lost))
    )


class _Law(NamedTuple):
    """The Gaussian q that follows from sites."""

    mean: PerRow
    var: PerRow
    coefficients: PerRow
    log_volume: Scalar  # log|I + K Γ|
    factors: ConditioningFactors
    inverse: Gram | None  # L⁻¹, if L is the only factor


class _SitePoint(natural_gradient.AscentIterate):
    """Sites, their Gaussian, and the best sites given this Gaussian."""

    sites: Sites
    mean: PerRow
    var: PerRow
    coefficients: PerRow
    expected: Expected  # with the weights of the rows
    target: Sites
    kept: KeptFactors | None

    @property
    def natural(self) -> Float[Array, " k"]:
        return jnp.concatenate(self.sites)

    def direction(self, greedy: Bool[Array, ""]) -> Float[Array, " k"]:
        targets = jnp.concatenate(self.target), jnp.concatenate(_asked(self.expected, self.mean))
        return jnp.where(greedy, *targets) - self.natural

    @property
    def moments(self) -> tuple[PerRow, PerRow]:
        return self.mean, self.var

    @property
    def slopes(self) -> tuple[PerRow, PerRow]:
        bend = self.expected.curvature - self.sites.curvature
        return self.expected.gradient - self.coefficients, -bend / 2


def _at(
    likelihood: Likelihood,
    prior: LatentPrior,
    y: PerRow,
    weight: PerRow,
    natural: Float[Array, " k"],
    keep: bool,
) -> _SitePoint:
    pull, curvature = jnp.split(natural, 2)
    # Anderson's method may step below zero, which the optimum is not
    sites = Sites(pull, jnp.maximum(curvature, 0) if likelihood.log_concave else curvature)
    law = _law(prior, sites, likelihood.log_concave)
    expected = expect_rows(likelihood, law.mean, law.var, y, weight)
    away = expected.gradient - law.coefficients
    bend = (expected.curvature - sites.curvature) * law.var
    whitened_direction = jnp.concatenate([away * jnp.sqrt(law.var), bend * float(np.sqrt(0.5))])
    square = law.coefficients @ (law.mean - prior.mean)
    elbo = jnp.sum(expected.value) - (law.log_volume - sites.curvature @ law.var + square) / 2
    gap = _spread(prior.cov, law.factors, away) + jnp.sum(jnp.abs(bend)) ** 2 / 2
    rounding_error = _rounding_error(law.coefficients, sites, prior.cov, likelihood.log_concave)
    floor = jnp.maximum(rounding_error, natural_gradient.sum_rounding(jnp.sum(weight)) ** 2)
    target = _target(likelihood, sites, law, expected, y, weight)
    kept = KeptFactors(law.factors, law.inverse) if keep and law.inverse is not None else None
    found = (sites, law.mean, law.var, law.coefficients, expected, target, kept)
    return _SitePoint(
        elbo, whitened_direction, gap, rounding_error, jnp.zeros_like(rounding_error), floor, *found
    )


def _target(
    likelihood: Likelihood, sites: Sites, law: _Law, expected: Expected, y: PerRow, weight: PerRow
) -> Sites:
    """The next sites: the optimum of each row given the others, or the best site given its marginal."""
    asked = _asked(expected, law.mean)
    if not likelihood.closed:
        return asked
    rest = 1 - sites.curvature * law.var  # the share of the row's precision without its site
    known = rest > float(jnp.finfo(rest.dtype).eps) ** 0.5
    safe = jnp.where(known, rest, 1)
    var, mean = law.var / safe, (law.mean - law.var * sites.pull) / safe
    step, curvature, solved = jax.vmap(lambda *row: likelihood.implicit(*row))(y, mean, var, weight)
    good = known & solved & jnp.isfinite(step) & (weight > 0)
    pull = step + curvature * (mean + step * var)
    return Sites(
        *(jnp.where(good, new, old) for new, old in zip((pull, curvature), asked, strict=True))
    )


def _rounding_error(coefficients: PerRow, sites: Sites, cov: Gram, log_concave: bool) -> Scalar:
    """The rounding error of cᵀK c, whose terms may be far larger than their sum, and of differences."""
    eps, prior_var = float(jnp.finfo(cov.dtype).eps), jnp.diagonal(cov)
    terms = jnp.sum(jnp.abs(coefficients) * jnp.sqrt(prior_var)) ** 2
    square = 0.5 * eps * terms / float(np.sqrt(cov.shape[0]))
    return square if log_concave else square + eps * jnp.sum(jnp.abs(sites.curvature) * prior_var)


def first_sites(likelihood: Likelihood, mean: PerRow, y: PerRow, weight: PerRow) -> Sites:
    """The sites at which the ascent begins, given the prior mean; for normal noise these are the
    optimum."""
    if likelihood.noisy:
        return sites_at(likelihood, mean, jnp.zeros_like(mean), y, weight)
    if not likelihood.log_concave:
        return Sites(jnp.zeros_like(mean), jnp.zeros_like(mean))
    curvature = weigh_rows(weight, jax.vmap(lambda f: likelihood.information(f))(mean))
    return Sites(curvature * mean, curvature)


def _asked(expected: Expected, mean: PerRow) -> Sites:
    """l* and γ*."""
    return Sites(expected.gradient + expected.curvature * mean, expected.curvature)


def expect_rows(
    likelihood: Likelihood, mean: PerRow, var: PerRow, y: PerRow, weight: PerRow
) -> Expected:
    """The expected terms of each row, times its weight."""
    expected = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v))(y, mean, var)
    return Expected(*(weigh_rows(weight, term) for term in expected))


def _spread(cov: Gram, factors: ConditioningFactors, e: PerRow) -> Scalar:
    """eᵀ V e."""
    along = cov @ e
    reached = covariance_change(cov, factors, along[:, None])
    return jnp.maximum(e @ along - jnp.sum(reached.lost**2) + jnp.sum(reached.gained**2), 0)


def _law(prior: LatentPrior, sites: Sites, log_concave: bool) -> _Law:
    """The Gaussian of the sites, with the second step only if some curvature is negative."""
    gamma = jnp.maximum(sites.curvature, 0)
    factors = condition(prior.cov, gamma, log_concave=True)
    inverse = linalg.triangular_inverse(factors.root)
    var = _variances(prior.cov, gamma, factors, inverse)
    pull = sites.pull - sites.curvature * prior.mean
    coefficients = _coefficients(prior.cov, gamma, pull, factors)
    volume = 2 * jnp.sum(jnp.log(jnp.diagonal(factors.root)))
    mean = prior.mean + prior.cov @ coefficients
    if log_concave:
        return _Law(mean, var, coefficients, volume, factors, inverse)
    excess = jnp.sqrt(jnp.maximum(-sites.curvature, 0))
    factors = factors._replace(excess=excess, widening=linalg.identity_like(prior.cov))
    first = _Law(mean, var, coefficients, volume, factors, None)
    some = jnp.any(excess > 0)
    return jax.lax.cond(some, lambda: _widened(prior, sites, first, excess), lambda: first)


def _variances(cov: Gram, gamma: PerRow, factors: ConditioningFactors, inverse: Gram) -> PerRow:
    """diag V, by the formula that keeps more digits."""
    prior_var = jnp.diagonal(cov)
    known = 1 - jnp.sum(inverse**2, axis=0)  # γ v
    heard = known > float(jnp.finfo(cov.dtype).eps) ** HEARD
    by_inverse = known / jnp.where(heard, gamma, 1)

    def by_difference() -> PerRow:
        lost = _solve(factors.root, linalg.scale_rows(factors.scale, cov))
        return jnp.where(heard, by_inverse, prior_var - jnp.sum(lost**2, axis=0))

    return jax.lax.cond(jnp.all(heard | (prior_var == 0)), lambda: by_inverse, by_difference)


def _coefficients(cov: Gram, gamma: PerRow, pull: PerRow, factors: ConditioningFactors) -> PerRow:
    """(I + Γ K)⁻¹ pull, with each row in the form that keeps more digits."""
    scale, root = factors.scale, factors.root
    strong = gamma * jnp.diagonal(cov) > 1
    mild = jnp.where(strong, 0, pull)
    side = jnp.where(strong, pull / jnp.where(strong, scale, 1), 0) - scale * (cov @ mild)
    return mild + scale * linalg.cho_solve(root, side)


def _widened(prior: LatentPrior, sites: Sites, law: _Law, excess: PerRow) -> _Law:
    """The Gaussian with the negative curvatures added."""
    scaled, root = _widening(prior.cov, law.factors.scale, law.factors.root, excess)
    gained = _solve(root, scaled)
    shift = law.mean - prior.mean
    shift = shift + gained.T @ jsl.solve_triangular(root, excess * shift, lower=True)
    mean = prior.mean + shift
    return _Law(
        mean,
        law.var + jnp.sum(gained**2, axis=0),
        sites.pull - sites.curvature * mean,
        law.log_volume + 2 * jnp.sum(jnp.log(jnp.diagonal(root))),
        law.factors._replace(widening=root),
        None,
    )


def _widening(cov: Gram, scale: PerRow, root: Gram, excess: PerRow) -> tuple[Gram, Gram]:
    """S₂ V₁ and L₂."""
    lost = _solve(root, linalg.scale_rows(scale, cov))
    scaled = linalg.scale_rows(excess, cov - lost.T @ lost)
    return scaled, linalg.cholesky(linalg.identity_like(cov) - scaled * excess[None, :])


def _solve(root: Gram, rows: Float[Array, "n m"]) -> Float[Array, "n m"]:
    return jsl.solve_triangular(root, rows, lower=True)
