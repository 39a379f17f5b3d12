"""L-RVGA as an optimiser: its mean alone, the covariance an adaptive step.

The L-RVGA paper leaves this to future work, to be "compared to … Adagrad or even L-BFGS". All minimise the
negative log posterior of the logistic problems of figure 3, prior N(0, 4² I), from θ = 0, and are judged by
its height above the minimum:

    L-RVGA    one pass or five; rows counted five times need a prior five times as narrow, N(0, 4²/5 I)
    Adagrad   a row at a time for five passes, with the best of `RATES`, chosen with the result known
    L-BFGS    SciPy's; one pass for every evaluation of the gradient

A pass is a look at every row.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import minimize
from scipy.special import expit

from kalvi import plots
from kalvi.numerics import precision
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import Implicit
from kalvi.streams import run
from papers import parts, pictures
from papers.lrvga_data import Rows, seeds
from papers.lrvga_history import follow, whole
from papers.lrvga_logistic import PROBIT, Problem, problem
from papers.results import Claim, Result

RANK, BLOCK, STD, PASSES = 10, 16, 4.0, 5
RATES = (0.03, 0.1, 0.3, 1.0, 3.0)
SETTINGS = {"d = 100, N = 10000": (100, 10_000, 0.2), "d = 1000, N = 10000": (1000, 10_000, 0.26)}
QUICK = {"d = 20, N = 400": (20, 400, 0.2)}
DRAWS, LOOKS = 3, 12
ONE, FIVE, ADAGRAD, LBFGS = (
    "L-RVGA, one pass",
    "L-RVGA, five passes",
    "Adagrad, best rate",
    "L-BFGS",
)
COLOURS = {
    ONE: plots.COLOURS["explicit"],
    FIVE: plots.COLOURS["implicit"],
    ADAGRAD: plots.COLOURS["EKF"],
    LBFGS: plots.INK,
}


class Course(NamedTuple):
    """Passes, and nats above the minimum after them."""

    passes: np.ndarray
    excess: np.ndarray


class Objective(NamedTuple):
    """The negative log posterior of a logistic model, but for a constant."""

    rows: Rows

    def value(self, theta: np.ndarray) -> float:
        """Its value."""
        f = self.rows.x @ theta
        fit = np.logaddexp(0, f).sum() - self.rows.y @ f
        return float(fit + theta @ theta / (2 * STD**2))

    def slope(self, theta: np.ndarray) -> np.ndarray:
        """Its gradient."""
        away = expit(self.rows.x @ theta) - self.rows.y
        return self.rows.x.T @ away + theta / STD**2


def courses(d: int, n: int, exponent: float, seed: int) -> dict[str, Course]:
    """Every method on one draw of the rows."""
    with precision.matching_precision("float64"):
        p = problem(d, n, exponent, STD, seed)
        found = {ONE: _lrvga(p, 1), FIVE: _lrvga(p, PASSES)}
        found[ADAGRAD] = min((_adagrad(p, rate) for rate in RATES), key=lambda c: c.excess[-1])
    found[LBFGS], least = _lbfgs(Objective(p.rows))
    return {name: course._replace(excess=course.excess - least) for name, course in found.items()}


def _lrvga(p: Problem, passes: int) -> Course:
    """The mean over so many passes; heights and not yet excesses."""
    objective, n = Objective(p.rows), len(p.rows.y)
    prior = p._replace(std=p.std / np.sqrt(passes)).low_rank(RANK, 0.0, None)
    rows = whole(np.tile(p.rows.x, (passes, 1)), np.tile(p.rows.y, passes), BLOCK)

    def height(state) -> float:
        return objective.value(np.asarray(state.posterior.mean))

    history = follow(RVGA(PROBIT, Implicit(), block_size=BLOCK), prior, rows, height, block=BLOCK)
    return Course(np.minimum(history.times / n, passes), history.values)


def _adagrad(p: Problem, rate: float) -> Course:
    """Row by row, each row with its share of the prior."""
    objective, n = Objective(p.rows), len(p.rows.y)
    looks = np.unique(np.geomspace(1, PASSES * n, LOOKS).astype(int))
    adagrad = optax.adagrad(rate)
    theta = jnp.zeros(p.dim)
    state, heights = (theta, adagrad.init(theta)), [objective.value(np.zeros(p.dim))]
    rows = jnp.asarray(p.rows.x), jnp.asarray(p.rows.y)
    for start, stop in pairwise([0, *looks]):
        reach = jnp.asarray(start), jnp.asarray(stop)
        state = run.call(_descend, rate, state, *rows, reach)
        heights.append(objective.value(np.asarray(state[0])))
    return Course(np.array([0, *looks]) / n, np.array(heights))


def _descend(rate, state, x, y, reach):
    adagrad = optax.adagrad(rate)

    def step(i, state):
        theta, memory = state
        row = x[i % len(y)]
        slope = (jax.nn.sigmoid(row @ theta) - y[i % len(y)]) * row + theta / (STD**2 * len(y))
        move, memory = adagrad.update(slope, memory)
        return theta + move, memory

    return jax.lax.fori_loop(reach[0], reach[1], step, state)


def _lbfgs(objective: Objective) -> tuple[Course, float]:
    """The best height after every evaluation, and the minimum, where the climb is led on."""
    heights: list[float] = []

    def both(theta):
        value = objective.value(theta)
        heights.append(min([value, *heights[-1:]]))
        return value, objective.slope(theta)

    found = minimize(
        both, np.zeros(objective.rows.x.shape[1]), jac=True, method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-15, "gtol": 1e-8},
    )  # fmt: skip
    return Course(np.arange(len(heights)) + 1.0, np.array(heights)), float(found.fun)


def figure_optimiser(quick: bool) -> Result:
    """Nats above the minimum over passes."""
    settings, count = (QUICK, 2) if quick else (SETTINGS, DRAWS)
    wanted = [(*setting, seed) for setting in settings.values() for seed in seeds(count)]
    found = parts.each(courses, wanted)
    draws = {name: found[i * count : (i + 1) * count] for i, name in enumerate(settings)}
    title = "L-RVGA as an optimiser: height above the least negative log posterior"
    rows = [
        {"data": name, "draw": i, "method": m, "passes": float(t), "excess": float(e)}
        for name, each in draws.items()
        for i, one in enumerate(each)
        for m, course in one.items()
        for t, e in zip(*course, strict=True)
    ]
    claims = [_one_pass(draws), _five_passes(draws), _lbfgs_claim(draws)]

    def draw() -> plots.Figure:
        panels = [[_panel(name, each[0]) for name, each in draws.items()]]
        return plots.compose(panels, title=title, size=(0.6 + 7 * len(draws), 5.0))

    return Result("optimiser", title, rows, claims, draw)


def _panel(name: str, found: dict[str, Course]) -> plots.Panel:
    times = {m: c.passes for m, c in found.items()}
    curves = {m: np.maximum(c.excess, 1e-3) for m, c in found.items()}
    look = {"colours": COLOURS, "xscale": "log", "ylabel": "nats above the minimum (from 0.001)"}
    return partial(_labelled, times, curves, title=name, **look)


@plots.panel
def _labelled(axes, times, curves, **look) -> None:
    shown = {m: t > 0.005 for m, t in times.items()}
    pictures.kl_curves(
        {m: t[shown[m]] for m, t in times.items()},
        {m: curves[m][shown[m]] for m in curves},
        axes=axes,
        **look,
    )
    axes.set_xlabel("passes over the rows")


Draws = dict[str, list[dict[str, Course]]]


def _at(course: Course, passes: float | int) -> float:
    """The excess when so many passes are over."""
    return float(course.excess[course.passes <= passes + 1e-9][-1])


def _pairs(
    draws: Draws, one: str, other: str, passes: float | int
) -> tuple[dict[str, float], list[bool]]:
    numbers, held = {}, []
    for name, each in draws.items():
        for method in (one, other):
            numbers[f"{method} ({name})"] = float(np.mean([_at(f[method], passes) for f in each]))
        held += [_at(f[one], passes) < _at(f[other], passes) for f in each]
    return numbers, held


def _one_pass(draws: Draws) -> Claim:
    numbers, held = _pairs(draws, ONE, ADAGRAD, 1)
    text = (
        "After one pass the mean of L-RVGA (p = 10) is lower than Adagrad with its best rate (nats)"
    )
    return Claim(text, numbers, held, ours=True)


def _five_passes(draws: Draws) -> Claim:
    numbers, held = _pairs(draws, FIVE, ADAGRAD, PASSES)
    text = "After five passes it is (nats; rows counted five times, the prior five times as narrow)"
    return Claim(text, numbers, held, ours=True)


def _lbfgs_claim(draws: Draws) -> Claim:
    numbers, held = {}, []
    for name, each in draws.items():
        needed = []
        for found in each:
            reached = found[LBFGS].excess <= _at(found[ONE], 1)
            needed.append(float(found[LBFGS].passes[np.argmax(reached)]))
            held.append(needed[-1] >= PASSES)
        numbers[f"passes of L-BFGS to the height of one pass ({name})"] = float(np.mean(needed))
    text = "L-BFGS needs five passes or more to come as low as L-RVGA comes in one"
    return Claim(text, numbers, held, ours=True)
