"""Factors of the covariance or of the precision? Brownlie (2021), "Extending the Bayesian deep learning
method MultiSWAG", has the first (4.3), SLANG and L-RVGA the second; this is what either can hold.

A covariance F Fᵀ + diag ψ has room for a few directions in which the posterior is wide, a precision
W Wᵀ + diag ψ for a few in which it is narrow. Two linear regressions in 50 dimensions, prior N(0, I) and
noise of variance 1, where the posterior p is known and KL(q ‖ p) is exact:

    shared   x = A h + ε: inputs that move together in 8 directions, which the data pin down
    open     x = ε without 0.98 of its part in 4 directions, of which the data say next to nothing

VIFA and its twin descend from all rows at once until they stay; those are the best q of their kind. (Rows
are replaced by R of X = Q R, which have the same likelihood.) The mean-field optimum has the diagonal of
the posterior's precision. The twin's projection is not quite the optimal one where many directions compete,
and VIFA is slow at the end: with SciPy's optimiser each can be bettered by a few per cent here.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from kalvi import plots
from kalvi.gaussians import Dense, Diagonal, LowRankPrecision
from kalvi.gaussians.divergences import kl
from kalvi.likelihoods import Normal
from kalvi.numerics import precision
from kalvi.predictors.models import Model
from kalvi.predictors.networks import make_network
from kalvi.rules import vifa
from kalvi.rules.rule import Batch
from kalvi.streams import run
from papers.results import Claim, Result

COVARIANCE, PRECISION, MEAN_FIELD = "factors of the covariance", "factors of the precision", "none"
COLOURS = {COVARIANCE: plots.CLASSES[1], PRECISION: plots.CLASSES[0], MEAN_FIELD: plots.QUIET}
LEFT = 0.02
"""What is left of the inputs in the open directions."""


class Size(NamedTuple):
    """Dimensions, rows, directions of either problem, numbers of factors, and steps of a descent."""

    dim: int = 50
    rows: int = 1000
    shared: int = 8
    open: int = 4
    ranks: tuple[int, ...] = (5, 10)
    steps: int = 10_000


QUICK = Size(20, 400, 4, 2, (4,), 3000)


class Problem(NamedTuple):
    """As many rows as dimensions, and what a posterior they have."""

    name: str
    batch: Batch
    posterior: Dense
    precision: np.ndarray


def shared_rows(size: Size, rng: np.random.Generator) -> np.ndarray:
    """Inputs with a few directions in common."""
    hidden = rng.normal(size=(size.rows, size.shared))
    return hidden @ rng.normal(size=(size.shared, size.dim)) + rng.normal(
        size=(size.rows, size.dim)
    )


def open_rows(size: Size, rng: np.random.Generator) -> np.ndarray:
    """Inputs that hardly move in a few directions."""
    directions = np.linalg.qr(rng.normal(size=(size.dim, size.open)))[0]
    x = rng.normal(size=(size.rows, size.dim))
    return x - (1 - LEFT) * (x @ directions) @ directions.T


def problems(size: Size) -> list[Problem]:
    """Both."""
    names = (f"{size.shared} shared directions", f"{size.open} open directions")
    return [
        _problem(name, rows(size, np.random.default_rng(0)))
        for name, rows in zip(names, (shared_rows, open_rows), strict=True)
    ]


def _problem(name: str, x: np.ndarray) -> Problem:
    rng = np.random.default_rng(1)
    y = x @ rng.normal(size=x.shape[1]) + rng.normal(size=len(x))
    turn, rows = np.linalg.qr(x)
    matrix = np.eye(x.shape[1]) + rows.T @ rows
    cov = np.linalg.inv(matrix)
    batch = Batch(jnp.asarray(rows), jnp.asarray(turn.T @ y), jnp.ones(len(rows)))
    return Problem(name, batch, Dense(cov @ (x.T @ y), (cov + cov.T) / 2), matrix)


def divergences(problem: Problem, rank: int, steps: int) -> dict[str, np.ndarray]:
    """KL(q ‖ p) along the descent of both kinds of q, and of the mean-field optimum."""
    batch, p = problem.batch, problem.posterior
    d = p.dim
    linear = make_network(_linear, jnp.zeros(d), jnp.zeros(d))[0]
    model, constant = Model(linear, Normal(1.0)), 1e9  # as good as no decay of the steps
    covariance = vifa.VIFA(
        model,
        float(d),
        estimator=vifa.GaussNewton(),
        step=vifa.Preconditioned(decay=constant),
    )
    # the mean is where it belongs: a step of it by a q that cannot hold the stiffest directions overshoots
    twin = vifa.PrecisionVI(model, float(d), decay=constant, step_size=0.9, mean_step=0.0)
    start = covariance.start(p.mean, rank, batch, key=jr.key(0))
    plain = LowRankPrecision(p.mean, jnp.zeros((d, rank)), jnp.ones(d))
    alone = kl(Diagonal(p.mean, 1 / np.diag(problem.precision)), p)
    return {
        COVARIANCE: np.asarray(run.call(_course, covariance, start, batch, p, steps)),
        PRECISION: np.asarray(run.call(_course, twin, plain, batch, p, steps)),
        MEAN_FIELD: np.asarray(alone)[None],
    }


def _linear(theta, x):
    return theta @ x


def _course(rule, start, batch: Batch, p: Dense, steps: int):
    """KL(q ‖ p) at a hundred times of a descent."""

    def hundredth(state, _):
        def step(_, state):
            return rule.update(state, batch, key=jr.key(0))

        state = jax.lax.fori_loop(0, steps // 100, step, state)
        return state, kl(state.posterior, p)

    return jax.lax.scan(hundredth, rule.init(start), None, length=100)[1]


def structure(quick: bool) -> Result:
    """The best divergence of each kind of q on each problem."""
    size = QUICK if quick else Size()
    with precision.matching_precision("float64"):
        both = problems(size)
        found = {(p.name, k): divergences(p, k, size.steps) for p in both for k in size.ranks}
    table = [
        {
            "problem": name,
            "factors": k,
            "q": method,
            "KL(q ‖ p)": float(course[-1]),
            "still to fall": float(course[len(course) // 2] - course[-1]),
        }
        for (name, k), courses in found.items()
        for method, course in courses.items()
    ]
    best = {(r["problem"], r["factors"], r["q"]): r["KL(q ‖ p)"] for r in table}
    chosen = zip(both, (size.ranks[-1], size.ranks[0]), strict=True)
    claims = [_holds(best, p.name, rank, size.ranks) for p, rank in chosen]
    title = "What factors of the covariance and of the precision can hold"

    def draw() -> plots.Figure:
        spectra = [partial(_spectrum, p, title=f"{p.name}: the posterior") for p in both]
        bars = [partial(_bars, best, p.name, size.ranks) for p in both]
        return plots.compose([spectra, bars], title=title, size=(12, 8.6))

    return Result("structure", title, table, claims, draw)


def _holds(best: dict, name: str, rank: int, ranks: tuple[int, ...]) -> Claim:
    numbers = {f"{q}, {k}": best[name, k, q] for k in ranks for q in (COVARIANCE, PRECISION)}
    numbers |= {"mean field": best[name, rank, MEAN_FIELD]}
    text = f"A covariance of {rank} factors holds the posterior of {name} (within 1 nat)"
    return Claim(text, numbers, best[name, rank, COVARIANCE] < 1, ours=True)


@plots.panel
def _spectrum(axes, problem: Problem, *, title: str = "") -> None:
    """Standard deviations of the posterior along its axes, the widest first."""
    deviations = np.linalg.eigvalsh(problem.precision) ** -0.5
    axes.semilogy(np.arange(1, len(deviations) + 1), deviations, "o", ms=5, color=plots.INK)
    axes.set(title=title, xlabel="principal axis, the widest first", ylabel="standard deviation")
    axes.grid(axis="y", color=plots.FAINT, lw=0.6)


@plots.panel
def _bars(axes, best: dict, name: str, ranks: tuple[int, ...]) -> None:
    """Divergences beside each other, their numbers above."""
    alone = best[name, ranks[0], MEAN_FIELD]
    for i, method in enumerate((COVARIANCE, PRECISION)):
        values = [best[name, k, method] for k in ranks]
        at = np.arange(len(ranks)) + 0.36 * (i - 0.5)
        axes.bar(at, values, 0.34, color=COLOURS[method], label=method)
        for x, value in zip(at, values, strict=True):
            tall = value > 0.2 * alone
            look = {"color": "white", "va": "top"} if tall else {"color": plots.INK, "va": "bottom"}
            axes.annotate(
                f"{value:.2f}",
                (x, value),
                (0, -5 if tall else 3),
                textcoords="offset points",
                ha="center",
                **look,
            )
    axes.axhline(alone, color=COLOURS[MEAN_FIELD], dashes=(4, 2), lw=1.6)
    axes.text(-0.57, 1.02 * alone, f"no factors: {alone:.1f}", color=plots.QUIET)
    axes.set_xticks(range(len(ranks)), [f"{k} factors" for k in ranks], color=plots.INK)
    axes.set(title=f"{name}: the best q", ylabel="KL(q ‖ p), nats", ylim=(0, 1.25 * alone))
    axes.set_xlim(-0.6, len(ranks) - 0.4)
    axes.legend(loc="upper center", ncols=2)
