"""Further passes over the rows for a low-rank precision: from one pass of L-RVGA to its optimum.

Where the rows can be visited again, the bound ELBO(q) = Σ wᵢ E_q[log p(yᵢ | xᵢᵀθ)] − KL(q ‖ prior) has an
optimum among the Gaussians q = N(μ, (W Wᵀ + Ψ)⁻¹). There every row's site is consistent with the marginal
of its predictor, and W Wᵀ + Ψ is the factor analysis of the whole precision

    S = Σ₀⁻¹ + Σ wᵢ γᵢ xᵢ xᵢᵀ.

Where a row has c predictors (`MultiLinear`), gᵢ is a vector and γᵢ a c × c matrix.

A pass visits every row at the present q: its predictor's law gives the expected gradient gᵢ and
curvature γᵢ, and with U = Ψ⁻¹ W the pass adds up

    ∇ = Σ wᵢ gᵢ xᵢ − Σ₀⁻¹ (μ − μ₀),      S U,      diag S.

One step of parameter-expanded EM (Liu, Rubin & Wu 1998) then moves W and Ψ uphill for this S,

    M = I + Wᵀ U,  Θ = M⁻¹ + M⁻¹ (Uᵀ S U) M⁻¹,  W ← S U M⁻¹ Θ^{-1/2},  ψ ← diag(S − W Wᵀ),

and μ takes a quasi-Newton step (limited-memory BFGS) that starts from Σ = (W Wᵀ + Ψ)⁻¹ for the inverse
Hessian. A step that lowers the bound is taken back and shortened. S itself is never formed, and nothing
is kept of a row.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from kalvi import climbing, linalg
from kalvi.algorithms.base import Batch, Rule, weighted
from kalvi.algorithms.groups import laws, rounding_of_groups
from kalvi.divergences import kl
from kalvi.gaussians import LowRankPrecision
from kalvi.likelihoods import Likelihood
from kalvi.predictors import MultiLinear
from kalvi.vectors import VectorLikelihood

Scalar = Float[Array, ""]
Vector = Float[Array, " d"]

MEMORY = 8
"""Past steps that the quasi-Newton method remembers."""
SHORTEST = 1e-3
"""A mean step shortened to less than this share of itself ends the climb."""


class Sums(NamedTuple):
    """What a pass adds up over the rows at one Gaussian."""

    value: Scalar  # Σ w E log p
    gradient: Vector  # Σ w g x
    bend: Vector  # Σ w γ x²
    product: Float[Array, "d p"]  # Σ w γ x (xᵀ U)
    rounding: Scalar | float = 0.0  # `climbing.Rounding.bound`


class Point(NamedTuple):
    """A Gaussian and the bound there, with all that a step from it needs."""

    posterior: LowRankPrecision
    elbo: Scalar
    gradient: Vector
    diagonal: Vector  # of S
    product: Float[Array, "d p"]  # S U
    rounding: Scalar | float = 0.0


class Climb(eqx.Module):
    """The best Gaussian so far, the one that the present pass visits, and the steps that led there."""

    prior: LowRankPrecision
    here: Point
    visited: LowRankPrecision
    sums: Sums
    moved: Float[Array, "m d"]
    turned: Float[Array, "m d"]
    length: Scalar  # of the last step, 1 unless it was shortened
    gained: Scalar  # nats of the last pass; infinite before there is one
    passes: Int[Array, ""]

    @property
    def posterior(self) -> LowRankPrecision:
        return self.here.posterior


class Revisit(Rule[Climb]):
    """Passes over the same rows: `update` visits a block, `turn` ends a pass and starts the next."""

    likelihood: Likelihood | VectorLikelihood

    def init(
        self,
        prior: LowRankPrecision,
        *,
        start: LowRankPrecision,
        key: PRNGKeyArray | None = None,
    ) -> Climb:
        """Before the first pass. EM never fills an empty column: start from a streaming posterior."""
        dim, dtype = start.dim, start.mean.dtype
        sums, zero = _nothing(start), jnp.zeros((), dtype)
        here = Point(start, -jnp.inf + zero, *sums[1:])
        empty = jnp.zeros((MEMORY, dim), dtype)
        passes = jnp.zeros((), jnp.int32)
        one = jnp.ones((), dtype)
        return Climb(prior, here, start, sums, empty, empty, one, jnp.inf + zero, passes)

    def update(self, state: Climb, batch: Batch, *, key: PRNGKeyArray | None = None) -> Climb:
        sums = self.visit(state.visited, batch)
        return eqx.tree_at(lambda s: s.sums, state, jax.tree.map(jnp.add, state.sums, sums))

    def visit(self, q: LowRankPrecision, batch: Batch) -> Sums:
        """What the rows say at one Gaussian; sums of parts of the rows are those of all of them."""
        if isinstance(self.likelihood, VectorLikelihood):
            return _visit_groups(self.likelihood, q, batch)
        return _visit_rows(self.likelihood, q, batch)

    def turn(self, state: Climb) -> Climb:
        """Judge the Gaussian that was visited, and choose the next."""
        there, old = _point(state), state.here.elbo
        rises = there.elbo >= old - climbing.unseen(old, state.here.rounding)
        moved, turned = _remember(state, there)  # also of a step that is taken back
        here = jax.tree.map(lambda a, b: jnp.where(rises, a, b), there, state.here)
        length = jnp.where(rises, 1.0, state.length / 1.5)
        return Climb(
            state.prior,
            here,
            _candidate(state.prior, here, moved, turned, length),
            _nothing(here.posterior),
            moved,
            turned,
            length,
            jnp.where(rises, there.elbo - old, state.gained),
            state.passes + 1,
        )


def _visit_rows(likelihood: Likelihood, q: LowRankPrecision, batch: Batch) -> Sums:
    expect = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v))
    x, mean, var = batch.x, batch.x @ q.mean, q.marginal_variance(batch.x)
    expected = expect(batch.y, mean, var)
    value, gradient, curvature = (weighted(batch.weight, a) for a in expected)
    rows = linalg.scale_rows(curvature, x @ _scaled_factor(q))
    rounding = climbing.rounding_of(value, gradient, curvature, jnp.abs(mean), var).bound
    return Sums(jnp.sum(value), x.T @ gradient, curvature @ x**2, x.T @ rows, rounding)


def _visit_groups(likelihood: VectorLikelihood, q: LowRankPrecision, batch: Batch) -> Sums:
    predictor, x = MultiLinear(likelihood.outputs), batch.x
    expect = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v))
    law = laws(q, predictor, x)
    value, gradient, curvature = (weighted(batch.weight, a) for a in expect(batch.y, *law))
    rows = jnp.einsum("nck,nkp->ncp", curvature, predictor.spread(x, _scaled_factor(q)))
    bend = predictor.gather(x**2, jnp.einsum("ncc->nc", curvature))
    rounding = rounding_of_groups(value, gradient, curvature, *law).bound
    sums = predictor.gather(x, gradient), bend, predictor.gather(x, rows)
    return Sums(jnp.sum(value), *sums, rounding)


def going(state: Climb, tolerance: float) -> Bool[Array, ""]:
    """Whether another pass may gain more than `tolerance` nats."""
    return (state.gained > tolerance) & (state.length > SHORTEST)


def converged(state: Climb, tolerance: float) -> Bool[Array, ""]:
    """Whether the last pass gained no more than `tolerance` nats, or than the bound is known to."""
    least = jnp.maximum(tolerance, climbing.unseen(state.here.elbo, state.here.rounding))
    return jnp.isfinite(state.here.elbo) & (state.gained <= least) & (state.length > SHORTEST)


def _nothing(q: LowRankPrecision) -> Sums:
    zero = jnp.zeros_like(q.mean)
    return Sums(zero[0], zero, zero, jnp.zeros_like(q.precision.factor), zero[0])


def _scaled_factor(q: LowRankPrecision) -> Float[Array, "d p"]:
    return linalg.scale_rows(1 / q.precision.diag, q.precision.factor)


def _point(state: Climb) -> Point:
    """What the pass found at the Gaussian it visited."""
    q, prior, sums = state.visited, state.prior, state.sums
    away = prior.precision.matvec(q.mean - prior.mean)
    return Point(
        q,
        sums.value - kl(q, prior),
        sums.gradient - away,
        sums.bend + prior.precision.diagonal(),
        sums.product + prior.precision.matvec(_scaled_factor(q)),
        sums.rounding,
    )


def _candidate(
    prior: LowRankPrecision,
    here: Point,
    moved: Float[Array, "m d"],
    turned: Float[Array, "m d"],
    length: Scalar,
) -> LowRankPrecision:
    """EM for the precision, and a quasi-Newton step of the given length for the mean."""
    q = here.posterior
    # a step that was taken back is tried again with the mean alone, in case the sites moved too far
    whole = length == 1
    moved_factor, moved_diag = _expanded_em(here, prior.precision.diag)
    factor = jnp.where(whole, moved_factor, q.precision.factor)
    diag = jnp.where(whole, moved_diag, q.precision.diag)
    step = _quasi_newton(here, moved, turned)
    return q.with_parts(q.mean + length * step, factor, diag)


def _expanded_em(here: Point, prior_diag: Vector) -> tuple[Float[Array, "d p"], Vector]:
    w, diag = here.posterior.precision.factor, here.posterior.precision.diag
    u = _scaled_factor(here.posterior)
    inner, identity = w.T @ u, jnp.eye(w.shape[1], dtype=w.dtype)
    inverse = linalg.cho_solve(linalg.steady_cholesky(identity + inner), identity)
    second = inverse + inverse @ (u.T @ here.product) @ inverse
    root = linalg.steady_cholesky((second + second.T) / 2)
    half = jax.scipy.linalg.solve_triangular(root, inverse, lower=True).T
    factor = here.product @ half
    least = prior_diag * diag / (prior_diag + diag)  # no less in exact arithmetic
    return factor, jnp.maximum(here.diagonal - jnp.sum(factor**2, axis=1), least)


def _quasi_newton(here: Point, moved, turned) -> Vector:
    """The two-loop recursion, newest pair first; empty pairs do nothing."""
    products = jnp.sum(moved * turned, axis=1)
    good = products > 0
    rho = jnp.where(good, 1 / jnp.where(good, products, 1), 0)

    def down(v, pair):
        s, y, r = pair
        a = r * (s @ v)
        return v - a * y, a

    v, alphas = jax.lax.scan(down, here.gradient, (moved, turned, rho))

    def up(v, pair):
        s, y, r, a = pair
        return v + (a - r * (y @ v)) * s, None

    v = here.posterior.covariance.matvec(v)
    return jax.lax.scan(up, v, (moved, turned, rho, alphas), reverse=True)[0]


def _remember(state: Climb, there: Point) -> tuple[Float[Array, "m d"], Float[Array, "m d"]]:
    """The steps so far and how the gradient turned along each, the newest first."""
    step = there.posterior.mean - state.here.posterior.mean
    turn = state.here.gradient - there.gradient
    usable = (state.passes > 0) & jnp.all(jnp.isfinite(step) & jnp.isfinite(turn))
    new = (jnp.where(usable, a, 0) for a in (step, turn))
    pairs = zip((state.moved, state.turned), new, strict=True)
    moved, turned = (jnp.roll(old, 1, axis=0).at[0].set(a) for old, a in pairs)
    return moved, turned
