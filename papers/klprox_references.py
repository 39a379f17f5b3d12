"""What the proximal method is compared with, for Gaussian processes: textbook methods in plain NumPy.

Rasmussen & Williams (2006), "Gaussian processes for machine learning", algorithms 3.1, 3.2, 3.5 and 3.6.
A posterior of the latents f ~ N(0, K) is given by sites Π exp(pull f − ½ curvature f²); s = √curvature,

    B = I + s K s,      mean = K a,  a = pull − s B⁻¹ s K pull,      var = diag(K − K s B⁻¹ s K).

Laplace. Sites at the mode. Where log p has a kink (the Laplace likelihood) the second derivative is zero
almost everywhere: GPML's likLaplace returns 0, so that the posterior keeps the prior's covariance. `kinked`
does the same at the true mode, which is a quadratic programme in a box: max yᵀa − ½ aᵀK a, |a| ≤ 1/b.

Expectation propagation. All sites at once, one factorisation a sweep, with a damping that falls when the
sweeps stop coming closer. Tilted moments of the logistic likelihood come from a mixture of steps,
σ(f) = ∫ σ'(t) 1[f > t] dt, so Z = ∫ σ'(t) Φ((m − t)/√v) dt, where the trapezoid rule is exact to rounding
for v ≥ ¼; below, Gauss–Hermite. Those of the Laplace likelihood are closed: two truncated normals.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import expit, log_expit, log_ndtr

SPACING, REACH = 0.4, 40.0
STEPS = np.arange(-REACH, REACH + SPACING / 2, SPACING)
LOG_WEIGHTS = np.log(SPACING) + log_expit(STEPS) + log_expit(-STEPS)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
WEIGHTS = WEIGHTS / np.sqrt(2 * np.pi)
NARROW = 0.25
"""Variances below which Gauss–Hermite takes over from the trapezoid rule."""
FAR = 30.0
"""Deviations beyond which a truncated normal is written as a series."""
TILTED_SERIES = np.array([1.0, -2.0, 10.0, -74.0, 706.0, -8162.0])
FIRST_DAMPING, LEAST_DAMPING = 0.4, 0.05


class Fit(NamedTuple):
    """A posterior by its sites, the method's log evidence, its sweeps or steps, and whether it settled."""

    pull: np.ndarray
    curvature: np.ndarray
    coefficients: np.ndarray
    mean: np.ndarray
    var: np.ndarray
    root: np.ndarray
    evidence: float
    passes: int
    converged: bool

    def predict(self, cross: np.ndarray, var: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at new points, from k(rows, new points) and the prior's variances."""
        half = solve_triangular(self.root, np.sqrt(self.curvature)[:, None] * cross, lower=True)
        return cross.T @ self.coefficients, np.maximum(var - np.sum(half**2, axis=0), 0.0)


Tilted = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


def tilted_logistic(y: np.ndarray, mean: np.ndarray, var: np.ndarray):
    """log Z, mean and variance of σ(±f) N(f; mean, var) for y = 1 or 0."""
    sign = 2 * np.asarray(y) - 1
    log_z, slope, bend = (np.empty_like(mean) for _ in range(3))
    wide = var >= NARROW
    for chosen, terms in ((wide, _steps), (~wide, _nodes)):
        if chosen.any():
            log_z[chosen], slope[chosen], bend[chosen] = terms(
                sign[chosen] * mean[chosen], var[chosen]
            )
    shrink = np.clip(1 + var * (bend - slope**2), 1e-12, 1.0)
    return log_z, mean + sign * var * slope, var * shrink


def _steps(mean: np.ndarray, var: np.ndarray):
    """log Z, Z'/Z and Z''/Z by the mixture of steps."""
    std = np.sqrt(var)[:, None]
    z = (mean[:, None] - STEPS) / std
    below = LOG_WEIGHTS + log_ndtr(z)
    top = below.max(axis=1, keepdims=True)
    total = np.exp(below - top).sum(axis=1)
    density = np.exp(LOG_WEIGHTS - z**2 / 2 - top) / (np.sqrt(2 * np.pi) * std)
    slope, bend = density.sum(axis=1), -(z / std * density).sum(axis=1)
    return np.log(total) + top[:, 0], slope / total, bend / total


def _nodes(mean: np.ndarray, var: np.ndarray):
    """The same by Gauss–Hermite."""
    p = expit(mean[:, None] + np.sqrt(var)[:, None] * NODES)
    total, slope = p @ WEIGHTS, (p * (1 - p)) @ WEIGHTS
    bend = (p * (1 - p) * (1 - 2 * p)) @ WEIGHTS
    return np.log(total), slope / total, bend / total


def expected_logistic(mean: np.ndarray, var: np.ndarray):
    """E softplus(f), E σ(f) and E σ'(f) for f ~ N(mean, var), all of one shape."""
    value, slope, bend = (np.empty_like(mean) for _ in range(3))
    wide = var >= NARROW
    if wide.any():
        std = np.sqrt(var[wide])[:, None]
        z, weights = (mean[wide][:, None] - STEPS) / std, np.exp(LOG_WEIGHTS)
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        below = np.exp(log_ndtr(z))
        value[wide], slope[wide] = (std * (z * below + density)) @ weights, below @ weights
        bend[wide] = (density / std) @ weights
    if not wide.all():
        f = mean[~wide][:, None] + np.sqrt(var[~wide])[:, None] * NODES
        p = expit(f)
        value[~wide], slope[~wide] = np.logaddexp(0, f) @ WEIGHTS, p @ WEIGHTS
        bend[~wide] = (p * (1 - p)) @ WEIGHTS
    return value, slope, bend


def tilted_laplace(scale: float) -> Tilted:
    """log Z, mean and variance of exp(−|y − f|/b)/(2b) N(f; mean, var)."""

    def tilted(y: np.ndarray, mean: np.ndarray, var: np.ndarray):
        std = np.sqrt(var)
        away, shift = (mean - y) / std, std / scale
        above = -away * shift + log_ndtr(away - shift)
        below = away * shift + log_ndtr(-away - shift)
        total = np.logaddexp(above, below)
        share = np.exp(above - total)
        first = [_truncated(shift - away), _truncated(shift + away)]
        move = share * first[0][0] - (1 - share) * first[1][0]
        square = share * first[0][1] + (1 - share) * first[1][1]
        log_z = total + shift**2 / 2 - np.log(2 * scale)
        return log_z, y + std * move, var * np.maximum(square - move**2, 1e-12 * square)

    return tilted


def _truncated(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[t] and E[t²] under ∝ exp(−x t − t²/2), t > 0; E[t²] = 1 − x E[t]."""
    near = np.minimum(x, FAR)
    first = np.exp(-(near**2) / 2 - log_ndtr(-near)) / np.sqrt(2 * np.pi) - near
    far = np.maximum(x, FAR)
    powers = far[:, None] ** -(2.0 * np.arange(len(TILTED_SERIES)))
    series = powers @ TILTED_SERIES
    rest = -(powers[:, :-1] @ TILTED_SERIES[1:]) / far**2
    return np.where(x < FAR, first, series / far), np.where(x < FAR, 1 - near * first, rest)


class Law(NamedTuple):
    """The Gaussian of given sites at the rows; `free` is the diagonal of B⁻¹ = 1 − curvature var."""

    coefficients: np.ndarray
    mean: np.ndarray
    var: np.ndarray
    root: np.ndarray
    free: np.ndarray


def conditioned(cov: np.ndarray, pull: np.ndarray, curvature: np.ndarray) -> Law:
    """The posterior under sites; where a site is much narrower than the prior, by forms that do not cancel.

    With T = L⁻¹ s K the product T s = Lᵀ − L⁻¹, so B⁻¹ has its diagonal from what is at hand.
    """
    s = np.sqrt(curvature)
    scaled, prior = s[:, None] * cov, np.diag(cov)
    root = _root_of_b(cov, s)
    half = solve_triangular(root, scaled, lower=True, check_finite=False)
    lower = np.tril(half, -1)
    free = np.diag(root) ** -2 + curvature * np.einsum("ij,ij->j", lower, lower)
    strong = curvature * prior > 1
    safe = np.where(strong, curvature, 1.0)
    wide = prior - np.einsum("ij,ij->j", half, half)
    var = np.where(strong, (1 - free) / safe, wide)
    mild = np.where(strong, 0, pull)
    side = np.where(strong, pull / np.sqrt(safe), 0) - scaled @ mild
    coefficients = mild + s * cho_solve((root, True), side, check_finite=False)
    return Law(coefficients, cov @ coefficients, var, root, free)


def cavities(pull: np.ndarray, curvature: np.ndarray, law: Law) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of the marginals without their own sites."""
    strong = law.free < 0.5
    direct = (law.mean - law.var * pull) / law.free
    left_out = (pull - law.coefficients / law.free) / np.where(strong, curvature, 1.0)
    return np.where(strong, left_out, direct), law.var / law.free


def ep(
    tilted: Tilted,
    cov: np.ndarray,
    y: np.ndarray,
    start: Fit | None = None,
    *,
    tolerance: float = 1e-4,
    max_sweeps: int = 100,
) -> Fit:
    """Expectation propagation until no marginal moves by more than `tolerance` deviations."""
    none = (np.zeros(len(y)), np.zeros(len(y)))
    pull, curvature = none if start is None else (start.pull, start.curvature)
    damping, last, sweeps = FIRST_DAMPING, np.inf, 0
    law = conditioned(cov, pull, curvature)
    while True:
        mean, var = cavities(pull, curvature, law)
        _, m, v = tilted(y, mean, var)
        shift = np.max(np.abs(m - law.mean) / np.sqrt(law.var))
        away = max(shift, np.max(np.abs(v / law.var - 1)))
        if away < tolerance or sweeps == max_sweeps:
            break
        sweeps += 1
        damping = max(0.6 * damping, LEAST_DAMPING) if away > last else min(1.2 * damping, 1.0)
        last = away
        pull = pull + damping * (m / v - mean / var - pull)
        curvature = curvature + damping * (np.maximum(1 / v - 1 / var, 0) - curvature)
        law = conditioned(cov, pull, curvature)
    evidence = ep_evidence(tilted, y, pull, curvature, law)
    return Fit(pull, curvature, *law[:4], evidence, sweeps, bool(away < tolerance))


def ep_evidence(tilted: Tilted, y, pull, curvature, law: Law) -> float:
    """log Z of expectation propagation (their eq. 3.65), the quadratic terms put together."""
    m, v = cavities(pull, curvature, law)
    sites = (2 * m * pull + pull**2 * v - m**2 * curvature) * law.free + np.log(law.free)
    total = np.sum(tilted(y, m, v)[0] - sites / 2)
    return float(total - np.log(np.diag(law.root)).sum() + pull @ law.mean / 2)


def laplace(
    cov: np.ndarray, y: np.ndarray, start: Fit | None = None, *, tolerance: float = 1e-8
) -> Fit:
    """Laplace's approximation with the logistic likelihood: Newton's steps, halved where they overshoot."""
    a = np.zeros(len(y))
    f, here, rise, steps = a, _height(y, a, a), np.inf, 0
    if start is not None:
        near = cov @ start.coefficients
        if (there := _height(y, start.coefficients, near)) > here:
            a, f, here = start.coefficients, near, there
    while rise > tolerance and steps < 100:
        toward = _newton(cov, y, f) - a
        length, moved = 1.0, cov @ toward
        while (there := _height(y, a + length * toward, f + length * moved)) < here:
            length /= 2
            if length < 1e-8:
                length, there = 0.0, here
                break
        rise, steps = there - here, steps + 1
        a, f, here = a + length * toward, f + length * moved, there
    p = expit(f)
    w = p * (1 - p)
    law = conditioned(cov, w * f + y - p, w)
    evidence = here - float(np.log(np.diag(law.root)).sum())
    return Fit(w * f + y - p, w, y - p, f, law.var, law.root, evidence, steps, rise <= tolerance)


def _height(y: np.ndarray, a: np.ndarray, f: np.ndarray) -> float:
    return float(y @ f - np.logaddexp(0, f).sum() - a @ f / 2)


def _newton(cov: np.ndarray, y: np.ndarray, f: np.ndarray) -> np.ndarray:
    """The coefficients a Newton step from f ends at (algorithm 3.1)."""
    p = expit(f)
    w = p * (1 - p)
    s, b = np.sqrt(w), w * f + y - p
    return b - s * cho_solve((_root_of_b(cov, s), True), s * (cov @ b), check_finite=False)


def _root_of_b(cov: np.ndarray, s: np.ndarray) -> np.ndarray:
    b = s[:, None] * cov * s
    b.flat[:: len(s) + 1] += 1
    return cholesky(b, lower=True, overwrite_a=True, check_finite=False)


class _Inside(NamedTuple):
    """A point inside the box, its distances to the walls are bound ∓ a, and their multipliers."""

    a: np.ndarray
    above: np.ndarray
    below: np.ndarray


def kinked(cov: np.ndarray, y: np.ndarray, scale: float, *, gap: float = 1e-3) -> Fit:
    """The mode under the Laplace likelihood, with the prior's covariance (second derivative zero).

    An interior-point method with Mehrotra's corrector, until the primal and the dual value are within `gap`
    nats, or a ten-millionth of what they may be.
    """
    bound, n = 1 / scale, len(y)
    here, steps = _Inside(np.zeros(n), np.ones(n), np.ones(n)), 0
    enough = gap + 1e-7 * bound * np.abs(y).sum()
    while True:
        walls = bound - here.a, bound + here.a
        residual = cov @ here.a - y + here.above - here.below
        apart = float(walls[0] @ here.above + walls[1] @ here.below)
        settled = apart < enough and np.max(np.abs(residual)) < 1e-6 * (1 + np.max(np.abs(y)))
        if settled or steps == 60:
            break
        here, steps = _corrected(cov, here, walls, residual, apart), steps + 1
    f = cov @ here.a
    evidence = float(-np.abs(y - f).sum() / scale - n * np.log(2 * scale) - here.a @ f / 2)
    flat = np.zeros(n)
    law = (here.a, f, np.diag(cov).copy(), np.eye(n))
    return Fit(here.a, flat, *law, evidence, steps, bool(settled))


def _corrected(cov, here: _Inside, walls, residual: np.ndarray, apart: float) -> _Inside:
    """A predictor step to see how far the walls let it go, then one towards the centre it suggests."""
    (up, down), n = walls, len(residual)
    matrix = cov.copy()
    matrix.flat[:: n + 1] += here.above / up + here.below / down
    root = cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)

    def moves(centre: float, bent_up: np.ndarray | float, bent_down: np.ndarray | float) -> _Inside:
        push, pull = (centre - bent_up) / up - here.above, (centre - bent_down) / down - here.below
        move = cho_solve((root, True), -residual - push + pull, check_finite=False)
        return _Inside(move, push + here.above / up * move, pull - here.below / down * move)

    def room(step: _Inside) -> float:
        pairs = ((up, -step.a), (down, step.a), (here.above, step.above), (here.below, step.below))
        return 1 / max(max(float(np.max(-change / value)) for value, change in pairs), 1.0)

    step = moves(0.0, 0.0, 0.0)
    length = room(step)
    later = (up - length * step.a) @ (here.above + length * step.above)
    later += (down + length * step.a) @ (here.below + length * step.below)
    centre = apart / (2 * n) * float(later / apart) ** 3
    step = moves(centre, -step.a * step.above, step.a * step.below)
    length = 0.995 * room(step)
    return _Inside(*(value + length * change for value, change in zip(here, step, strict=True)))
