"""Figures 1, 2, 12 and 13 of the R-VGA paper: approximations and equations in one or two scalars.

The implicit step asks for a root of F = (f, g) (eqs. 69-70), equivalently a fixed point of (eqs. 125-126)

    f̃(α, ν) = α₀ + ν₀ y − ν₀ σ(α k(ν)),      g̃(α, ν) = ν₀/(1 + ν₀ k(ν) σ′(α k(ν))).
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, log_expit, ndtr

from kalvi import plots
from kalvi.likelihoods import Bernoulli
from kalvi.likelihoods.logistic import BETA, InverseProbit
from kalvi.numerics import precision
from kalvi.streams import run
from papers import pictures
from papers.results import Claim, Result

Values = np.ndarray | float
Pair = tuple[Values, Values]


class Step(NamedTuple):
    """The law N(α₀, ν₀) of a predictor before a label y."""

    mean: float
    var: float
    y: float


def figure_1(quick: bool) -> Result:
    """The logistic function against the inverse probit."""
    a = np.linspace(-8, 8, 2001 if quick else 20001)
    sigmoid, probit = expit(a), ndtr(a / BETA)
    slope = sigmoid * expit(-a)
    bump = np.exp(-((a / BETA) ** 2) / 2) / (BETA * np.sqrt(2 * np.pi))
    errors = {
        "sup |σ − Φ|": np.abs(sigmoid - probit).max(),
        "sup |σ′ − Φ′|": np.abs(slope - bump).max(),
    }
    tail = {
        "σ(−6)": expit(-6.0),
        "Φ(−6/β)": ndtr(-6 / BETA),
        "ratio": expit(-6.0) / ndtr(-6 / BETA),
    }
    claims = [
        Claim(
            "The inverse probit matches the logistic function well (to 0.02)",
            errors,
            errors["sup |σ − Φ|"] < 0.02,
        ),
        Claim(
            "The two may be used indifferently (tails within a factor 2)", tail, tail["ratio"] < 2
        ),
    ]
    table = [
        {"a": point, "sigma": s, "probit": p, "sigma_slope": ds, "probit_slope": dp}
        for point, s, p, ds, dp in zip(
            a[::100], sigmoid[::100], probit[::100], slope[::100], bump[::100], strict=True
        )
    ]
    name = "inverse probit"
    panels = [
        partial(plots.lines, a, {"logistic": sigmoid, name: probit}, title="Function", xlabel="a"),
        partial(plots.lines, a, {"logistic": slope, name: bump}, title="Derivative", xlabel="a"),
        partial(
            plots.lines,
            a,
            {"σ − Φ": sigmoid - probit, "σ′ − Φ′": slope - bump},
            title="Difference",
            xlabel="a",
        ),
    ]
    title = "The logistic function and the inverse probit"
    return Result(
        1, title, table, claims, lambda: plots.compose([panels], title=f"Figure 1. {title}")
    )


def figure_2(quick: bool) -> Result:
    """The quadratic bounds of Jaakkola and Jordan."""
    a = np.linspace(-8, 8, 801 if quick else 8001)
    touching = (1.0, 2.5, 5.0)
    bounds = {
        xi: log_expit(xi) + (a - xi) / 2 - np.tanh(xi / 2) / (4 * xi) * (a**2 - xi**2)
        for xi in touching
    }
    gaps = {f"ξ = {xi:g}": float((log_expit(a) - bound).min()) for xi, bound in bounds.items()}
    looseness = {f"ξ = {xi:g}": float((log_expit(a) - bound).max()) for xi, bound in bounds.items()}
    claims = [
        Claim(
            "The quadratic never exceeds log σ (eq. 82; smallest gap)",
            gaps,
            min(gaps.values()) > -1e-12,
        ),
        Claim("It touches at ξ (smallest gap below 1e-4)", gaps, max(gaps.values()) < 1e-4),
    ]
    table = [
        {
            "xi": xi,
            "smallest_gap": gaps[f"ξ = {xi:g}"],
            "largest_gap_on_[-8,8]": looseness[f"ξ = {xi:g}"],
        }
        for xi in touching
    ]
    lower = {"σ": expit(a)} | {f"ξ = {xi:g}": np.exp(bound) for xi, bound in bounds.items()}
    upper = {"loss": -log_expit(a)} | {f"ξ = {xi:g}": -bound for xi, bound in bounds.items()}
    bound, plane = _plane_bound(np.linspace(-6, 6, 61 if quick else 161))
    claims.append(
        Claim(
            "In two dimensions the quadratic bounds the loss too, and touches it where it was made to",
            {"smallest gap": float(bound.min()), "largest": float(bound.max())},
            bool(bound.min() > -1e-12 and bound.min() < 1e-2),
        )
    )
    panels = [
        partial(plots.lines, a, lower, title="Lower bounds on the logistic function", xlabel="a"),
        partial(plots.lines, a, upper, title="Upper bounds on the logistic loss", xlabel="a"),
        plane,
    ]
    title = "Quadratic bounds in one and two dimensions"
    return Result(
        2,
        title,
        table,
        claims,
        lambda: plots.compose([panels], title=f"Figure 2. {title}", size=(15, 4.6)),
    )


PLANE_ROWS = np.array([[1.0, 0.5], [-0.6, 1.0], [0.8, -1.2]])
"""Three observations of y = 1 in two dimensions."""
TOUCHED = np.array([1.5, 1.0])
"""The θ at which their bounds touch."""


def _plane_bound(a: np.ndarray) -> tuple[np.ndarray, plots.Panel]:
    """Q − loss of three observations over the plane of θ, and both as contours."""
    f = np.stack(np.meshgrid(a, a), axis=-1) @ PLANE_ROWS.T
    xi = np.abs(PLANE_ROWS @ TOUCHED)
    quadratic = log_expit(xi) + (f - xi) / 2 - np.tanh(xi / 2) / (4 * xi) * (f**2 - xi**2)
    loss, bound = (-values.sum(axis=-1) for values in (log_expit(f), quadratic))
    mark = {"touches": (float(TOUCHED[0]), float(TOUCHED[1]))}
    title = "Loss of three rows, its bound dashed"
    return bound - loss, partial(pictures.heights, a, a, loss, bound, marks=mark, title=title)


def figure_12(quick: bool) -> Result:
    """F of the implicit scheme over its domain, for a prior that is wide and wrong."""
    step = Step(100.0, 300.0, 0.0)
    (a_low, a_high), (v_low, v_high) = coarse_bounds(step)
    alpha, nu = np.linspace(a_low, a_high, 201), np.linspace(v_low, v_high, 201)
    f, g = _residuals(step, alpha[None, :], nu[:, None])
    root = solve(step)
    residual = [float(part) for part in _residuals(step, *root)]
    crossings = _sign_changes(step, 201 if quick else 2001)
    claims = [
        Claim(
            "The start (α₀, ν₀) lies on the bound of the domain",
            {"α₀": step.mean, "α max": a_high, "ν₀": step.var, "ν max": v_high},
            step.mean == a_high and step.var == v_high,
        ),
        Claim(
            "The implicit equations have a root, found to rounding",
            {"α": root[0], "ν": root[1], "f": residual[0], "g": residual[1]},
            max(map(abs, residual)) < 1e-10,
        ),
        Claim(
            "The root is the only one (sign changes of f along g = 0)",
            {"sign changes": crossings},
            crossings == 1,
        ),
    ]
    marks = {"start": (step.mean, step.var), "root": root}
    panels = [
        partial(pictures.surface, alpha, nu, f, marks=marks, title="f(α, ν), zero in black"),
        partial(pictures.surface, alpha, nu, g, marks=marks, title="g(α, ν), zero in black"),
    ]
    table = [{"quantity": name, "alpha": point[0], "nu": point[1]} for name, point in marks.items()]
    title = "The implicit equations at α₀ = 100, ν₀ = 300, y = 0"
    return Result(
        12,
        title,
        table,
        claims,
        lambda: plots.compose([panels], title=f"Figure 12. {title}", size=(11.5, 4.8)),
    )


def figure_13(quick: bool) -> Result:
    """Plain fixed-point iteration, and the bounds that shrink around the root."""
    widths = (1.0, 5.0, 10.0, 300.0)
    means = np.linspace(-20, 20, 41 if quick else 401)
    converging = {f"ν₀ = {var:g}": _converging(means, var) for var in widths}
    draws = 200 if quick else 1500
    violations = count_violations(draws, rounds=5)
    left = {f"ν₀ = {var:g}": _relative_width(Step(1.0, var, 0.0), 30) for var in widths}
    claims = [
        Claim(
            f"Fixed-point iterations oscillate and do not converge at {name} (each α₀ in ±20)",
            {"share that converges": float(np.mean(settled))},
            (~settled).tolist(),
        )
        for name, settled in converging.items()
    ]
    claims += [
        Claim(
            "The bounds (127-136) hold for the root",
            {"draws": draws, "violations": violations},
            violations == 0,
        ),
        Claim(
            "For moderate ν₀ they shrink fast, for wide priors they do not (width left after 30 rounds)",
            left,
            left["ν₀ = 1"] < 1e-3 and left["ν₀ = 10"] > 0.05,
        ),
    ]
    table = [
        {
            "nu0": var,
            "share_converging": float(np.mean(converging[f"ν₀ = {var:g}"])),
            "width_left": left[f"ν₀ = {var:g}"],
        }
        for var in widths
    ]
    panels = [[_bounds_panel(Step(1.0, var, 0.0), axis) for var in widths[:3]] for axis in (0, 1)]
    title = "Fixed-point iteration and bounds, α₀ = 1, y = 0"
    return Result(
        13,
        title,
        table,
        claims,
        lambda: plots.compose(panels, title=f"Figure 13. {title}", size=(13, 7.4)),
    )


def solve(step: Step) -> tuple[float, float]:
    """The root (α, ν) of F."""
    alpha, nu = solve_many([step])
    return float(alpha[0]), float(nu[0])


def solve_many(steps: Sequence[Step]) -> tuple[np.ndarray, np.ndarray]:
    """The roots (α, ν) for many steps at once."""
    mean, var, y = np.array(steps, float).T
    with precision.matching_precision("float64"):
        xi, gamma = map(np.asarray, run.call(_sites, *map(jnp.asarray, (y, mean, var))))
    return mean + var * xi, var / (1 + var * gamma)


def _sites(y: jax.Array, mean: jax.Array, var: jax.Array) -> tuple[jax.Array, jax.Array]:
    likelihood = Bernoulli(InverseProbit())
    site = jax.vmap(lambda y, m, v: likelihood.implicit(y, m, v, jnp.ones(())))(y, mean, var)
    return site.step, site.curvature


def fixed_point(step: Step, alpha: Values, nu: Values) -> Pair:
    """(f̃, g̃) of eqs. 125-126."""
    k = BETA / np.sqrt(nu + BETA**2)
    slope = expit(alpha * k) * expit(-alpha * k)
    return step.mean + step.var * (step.y - expit(alpha * k)), step.var / (1 + step.var * k * slope)


def coarse_bounds(step: Step) -> tuple[tuple[float, float], tuple[float, float]]:
    """Eqs. 127-128."""
    ends = step.mean + step.var * (step.y - 1), step.mean + step.var * step.y
    return ends, (step.var * (1 - step.var / (4 + step.var)), step.var)


def refine(step: Step, alpha: tuple[float, float], nu: tuple[float, float]):
    """Eqs. 129-136: bounds on α and ν from bounds on α and ν."""
    k_low, k_high = (BETA / np.sqrt(v + BETA**2) for v in (nu[1], nu[0]))
    a1 = alpha[0] * (k_low if alpha[0] >= 0 else k_high)
    a2 = alpha[1] * (k_high if alpha[1] >= 0 else k_low)
    centre = step.mean + step.var * step.y
    slopes = [float(expit(a) * expit(-a)) for a in (a1, a2)]
    b1, b2 = min(slopes), max(slopes) if a1 * a2 > 0 else 0.25
    new_alpha = float(centre - step.var * expit(a2)), float(centre - step.var * expit(a1))
    return new_alpha, (
        step.var / (1 + step.var * k_high * b2),
        step.var / (1 + step.var * k_low * b1),
    )


def count_violations(draws: int, rounds: int) -> int:
    """How often a root lies outside its bounds, over random steps with ν₀ from 1e-3 to 1e5."""
    random = np.random.default_rng(0)
    var = 10 ** random.uniform(-3, 5, draws)
    mean = random.normal(size=draws) * 3 * np.sqrt(var)
    steps = [
        Step(*numbers) for numbers in zip(mean, var, random.integers(2, size=draws), strict=True)
    ]
    count = 0
    for step, alpha, nu in zip(steps, *solve_many(steps), strict=True):
        for bounds in _rounds(step, rounds):
            count += not (_within(alpha, bounds[0]) and _within(nu, bounds[1]))
    return count


def _within(value: float, bounds: np.ndarray) -> bool:
    slack = 1e-9 * (abs(bounds[0]) + abs(bounds[1]))
    return bool(bounds[0] - slack <= value <= bounds[1] + slack)


def _residuals(step: Step, alpha: Values, nu: Values) -> Pair:
    """F = (f, g), eqs. 69-70."""
    f, g = fixed_point(step, alpha, nu)
    return alpha - f, nu - g


def _sign_changes(step: Step, points: int) -> int:
    """Of f along the curve g = 0, found by iterating ν ← g̃(α, ν), which contracts."""
    (low, high), (_, top) = coarse_bounds(step)
    alpha, nu = np.linspace(low, high, points), np.full(points, top)
    for _ in range(200):
        nu = fixed_point(step, alpha, nu)[1]
    f = np.asarray(_residuals(step, alpha, nu)[0])
    return int(np.sum(np.sign(f[1:]) != np.sign(f[:-1])))


def _converging(means: np.ndarray, var: float, y: float = 0.0) -> np.ndarray:
    """The α₀ from which 500 plain iterations started at (α₀, ν₀) have settled."""
    alpha, nu = means.copy(), np.full(len(means), var)
    for _ in range(500):
        last = alpha, nu
        alpha, nu = fixed_point(Step(means, var, y), alpha, nu)  # type: ignore[arg-type]
    moved = np.abs(alpha - last[0]) + np.abs(nu - last[1])
    return moved < 1e-8 * (1 + var)


def _rounds(step: Step, rounds: int) -> np.ndarray:
    """Bounds after each round: (rounds + 1, 2 unknowns, 2 ends)."""
    bounds = [coarse_bounds(step)]
    for _ in range(rounds):
        bounds.append(refine(step, *bounds[-1]))
    return np.array(bounds)


def _relative_width(step: Step, rounds: int) -> float:
    """The width of α's bounds after some rounds, relative to the first."""
    width = np.diff(_rounds(step, rounds)[:, 0], axis=1)[:, 0]
    return float(width[-1] / width[0])


def _bounds_panel(step: Step, axis: int, rounds: int = 15) -> plots.Panel:
    """Bounds on one unknown and two iterations towards it, from the corners of the domain."""
    bounds = _rounds(step, rounds)
    tracks = {}
    for name, corner in (("from the top corner", 1), ("from the bottom corner", 0)):
        point = [bounds[0, :, corner]]
        for _ in range(rounds):
            point.append(np.array(fixed_point(step, *point[-1])))
        tracks[name] = np.array(point)[:, axis]
    label = "αν"[axis]
    title = f"ν₀ = {step.var:g}" if axis == 0 else ""
    low, high = bounds[:, axis].T
    steps = np.arange(rounds + 1)
    return partial(
        pictures.bands,
        steps,
        low,
        high,
        tracks,
        target=solve(step)[axis],
        title=title,
        ylabel=label,
        legend=axis == 0 and step.var == 1,
    )
