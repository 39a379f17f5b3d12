"""The implicit R-VGA step: the site (step ξ, curvature Γ, weight w) that solves

    Γ = −w E[∇² log p],    ξ = w E[∇ log p]    at    N(m + V ξ, (V⁻¹ + Γ)⁻¹).

For one predictor, the Gaussian closest in KL to N(f; m₀, v₀) p(y | f)^w is N(m₀ + √v₀ t, v₀ r²), where
t and r minimise

    J(t, r) = (t² + r²)/2 − log r − w E[log p],

convex when log p is concave in f. With g = E[∂ log p], γ = −E[∂² log p] and Price's theorem
(∂/∂v = ½ ∂²/∂m²) its derivatives are

    J_t = t − √v₀ w g,        J_r = r − 1/r + r v₀ w γ,        J_tt = 1 + v₀ w γ,
    J_tr = r v₀^{3/2} w γ′,   J_rr = 1 + 1/r² + v₀ w γ + 2 r² v₀² w ∂γ/∂v.

The search takes Levenberg–Marquardt steps: a step that does not lower J is rejected and damped more. When
the equations hold to half of the digits, one more step gives the other half and ends the search.

For several predictors, in the coordinates of a root of V, the equations are those of a variational bound of
one observation, which `natural_gradient` climbs.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kalvi.likelihoods.sites import Expected, Site, gain_after
from kalvi.numerics import linalg, natural_gradient
from kalvi.numerics.expectations import panels
from kalvi.numerics.loops import search
from kalvi.numerics.namespaces import Scalar

Vector = Float[Array, " c"]
Matrix = Float[Array, "c c"]

STEPS = 40
QUICK_STEPS = 10  # enough unless the prior is very far from y or very wide
VECTOR_STEPS = 200
"""The most natural-gradient steps for several predictors."""
ROUGHNESS = 1e-2
"""The error of E[log p] for several predictors with wide distributions, relative to itself or to a nat."""
MEMORY = 5
"""The number of past steps that are combined."""
STARTS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6)


def average(
    terms: Callable[[Scalar], Expected], mean: Scalar, var: Scalar, centre: Scalar, width: Scalar
) -> Expected:
    """The expected terms by quadrature, `terms` bending at centre ± width."""
    points, weights = panels(mean, jnp.sqrt(var), centre, width)
    return Expected(*(weights @ values for values in jax.vmap(terms)(points)))


class _Point(NamedTuple):
    t: Scalar
    r: Scalar
    height: Scalar
    grad: tuple[Scalar, Scalar]
    hess: tuple[Scalar, Scalar, Scalar]
    curvature: Scalar

    def is_solved(self) -> Bool[Array, ""]:
        """Whether the equations hold to half of the digits."""
        first, second = (jnp.abs(slope) for slope in self.grad)
        off = jnp.maximum(first / (1 + jnp.abs(self.t)), second * self.r)
        return off < jnp.sqrt(jnp.finfo(off.dtype).eps)


def solve_implicit(
    expect: Callable[[Scalar, Scalar], Expected],
    mean: Scalar,
    var: Scalar,
    weight: Scalar,
    peak: Scalar,
    thorough: bool = True,
) -> Site:
    """The site of the optimal Gaussian, for `expect(mean, var)` of one observation.

    The search starts at the current mean or at `peak`, where the likelihood is highest.
    """
    tiny = jnp.finfo(mean.dtype).tiny
    std = jnp.sqrt(jnp.maximum(var, tiny))

    def at(t: Scalar, r: Scalar) -> _Point:
        m, v = mean + std * t, (std * r) ** 2
        value, gradient, curvature = expect(m, v)
        bend, spread = jax.grad(lambda m, v: expect(m, v).curvature, (0, 1))(m, v)
        height = (t**2 + r**2) / 2 - jnp.log(r) - weight * value
        growth = weight * var * curvature
        grad = (t - std * weight * gradient, r - 1 / r + r * growth)
        j_tr = r * weight * var * std * bend
        j_rr = 1 + 1 / r**2 + growth + 2 * weight * (r * var) ** 2 * spread
        return _Point(t, r, height, grad, (1 + growth, j_tr, j_rr), curvature)

    def advance(state):
        here, damping, _ = state
        there = at(*_damped_newton(here, damping))
        slack = 4 * jnp.finfo(mean.dtype).eps * jnp.abs(here.height)
        better = there.height <= here.height + slack
        finite = jnp.isfinite(there.grad[0] + there.grad[1] + sum(there.hess))
        new = jax.tree.map(lambda a, b: jnp.where(better & finite, a, b), there, here)
        return new, jnp.where(better & finite, damping / 8, 4 * damping + 1e-3), here.is_solved()

    start = _start(at, jnp.stack([jnp.zeros_like(mean), (peak - mean) / std]))
    most = STEPS if thorough else QUICK_STEPS
    state = start, jnp.zeros_like(mean), jnp.asarray(False)
    here, _, _ = search(lambda state: ~state[2], advance, state, most)
    # t/√v₀ rather than w g: the next mean is then as accurate as t, even if v₀ γ is enormous
    return Site(here.t / std, weight * here.curvature, here.is_solved())


def _damped_newton(here: _Point, damping: Scalar) -> tuple[Scalar, Scalar]:
    """(t, r) after one step with the Hessian's diagonal made positive and enlarged."""
    (g1, g2), (h11, h12, h22) = here.grad, here.hess
    h11 = jnp.maximum(h11, 1) * (1 + damping)
    h22 = jnp.maximum(h22, 1) * (1 + damping)
    h12 = jnp.clip(h12, -0.99 * jnp.sqrt(h11 * h22), 0.99 * jnp.sqrt(h11 * h22))
    determinant = h11 * h22 - h12**2
    t = here.t - (h22 * g1 - h12 * g2) / determinant
    r = here.r - (h11 * g2 - h12 * g1) / determinant
    return t, jnp.clip(r, here.r / 4, 4 * here.r)


def _start(at: Callable[[Scalar, Scalar], _Point], shifts: Float[Array, " k"]) -> _Point:
    """The one of a few (t, r) with the lowest J, among those where all derivatives are finite."""
    t, r = jnp.meshgrid(shifts, jnp.asarray(STARTS, shifts.dtype))
    points = jax.vmap(at)(t.ravel(), r.ravel())
    finite = jnp.isfinite(points.height + points.grad[0] + points.grad[1] + sum(points.hess))
    best = jnp.argmin(jnp.where(finite, points.height, jnp.inf))
    return jax.tree.map(lambda values: values[best], points)


def solve_poisson(
    y: Scalar, mean: Scalar, var: Scalar, weight: Scalar, thorough: bool = True
) -> Site:
    """The site of the optimal Gaussian for a count y of expected rate e^τ: with g = weight·var, τ is the
    root of the increasing

    h(τ) = τ + g e^τ − var/(2 (1 + g e^τ)) − mean − g y.

    Newton steps inside a bracket; the start solves τ + g e^τ = c, the two ends of whose solution
    bound the root because the middle term lies in [0, var/2].
    """
    gain = weight * var
    tiny = jnp.finfo(var.dtype).tiny
    log_gain = jnp.log(jnp.maximum(gain, tiny))
    low, high = _balance(mean + gain * y, log_gain), _balance(mean + gain * y + var / 2, log_gain)

    def imbalance(tau):
        """h(τ), the size of its terms, and g e^τ."""
        grown = jnp.exp(log_gain + tau)
        value = tau + grown - var / (2 * (1 + grown)) - mean - gain * y
        return value, 1 + jnp.abs(tau) + grown + var + jnp.abs(mean) + gain * y, grown

    def narrow(state):
        low, high, tau, _ = state
        value, size, grown = imbalance(tau)
        low, high = jnp.where(value < 0, tau, low), jnp.where(value < 0, high, tau)
        move = tau - value / (1 + grown + var * grown / (2 * (1 + grown) ** 2))
        new = jnp.where((move < low) | (move > high), (low + high) / 2, move)
        return low, high, new, jnp.abs(value) <= eps**0.75 * size  # the step gives the other digits

    eps, most = float(jnp.finfo(var.dtype).eps), STEPS if thorough else QUICK_STEPS
    start = low, high, high, jnp.asarray(False)
    tau = search(lambda state: ~state[3], narrow, start, most)[2]
    value, size, grown = imbalance(tau)
    largest = jnp.log(jnp.finfo(var.dtype).max)
    rate, shift = jnp.exp(jnp.minimum(tau, largest)), tau - var / (2 * (1 + grown)) - mean
    # if the site outweighs the prior, τ gives the new mean more accurately than y − e^τ
    step = jnp.where(grown > 1, shift / jnp.maximum(var, tiny), weight * (y - rate))
    counts, solved = weight > 0, jnp.abs(value) <= 100 * eps * size
    step, curvature = (jnp.where(counts, part, 0) for part in (step, weight * rate))
    return Site(step, curvature, solved | ~counts)


def _balance(c: Scalar, log_gain: Scalar) -> Scalar:
    """τ with τ + g e^τ = c; s = log(g e^τ) solves s + e^s = c + log g."""
    target = c + log_gain
    s = jnp.where(target > 1, jnp.log(jnp.maximum(target, 1)), target)

    def newton(_, s):
        grown = jnp.exp(jnp.minimum(s, 700.0))
        return s - (s + grown - target) / (1 + grown)

    return jax.lax.fori_loop(0, 6, newton, s) - log_gain


def solve_implicit_vector(
    expect: Callable[[Vector, Matrix], Expected], mean: Vector, cov: Matrix, weight: Scalar
) -> Site:
    """The site of the optimal Gaussian, for `expect(mean, cov)` of one log-concave observation."""
    root, eps = linalg.semidefinite_root(cov), float(jnp.finfo(mean.dtype).eps)

    def visit(shift: Vector, half: Matrix) -> natural_gradient.WhitenedSums:
        wide = root @ half
        expected = expect(mean + root @ shift, wide @ wide.T)
        value, gradient, curvature = (weight * term for term in expected)
        return natural_gradient.WhitenedSums(value, root.T @ gradient, root.T @ curvature @ root)

    here, _, _ = natural_gradient.climb_gaussian(
        visit,
        linalg.identity_like(cov),
        jnp.zeros_like(mean),
        rows=weight,
        tolerance=eps**1.25,
        max_passes=VECTOR_STEPS,
        roughness=ROUGHNESS,
        memory=MEMORY,
    )
    wide = root @ linalg.root_from_precision(here.precision)
    shift = root @ here.mean
    _, gradient, curvature = expect(mean + shift, wide @ wide.T)
    curvature = weight * curvature
    site = gain_after(weight * gradient + curvature @ shift, curvature, root @ root.T)
    return site._replace(solved=here.gap < eps)
