"""How many sweeps a fit takes: the document's damped Jacobi steps against the exact solution for the means.

Figure 3. A sweep updates rows and columns once, statistics recomputed each time, priors held at the truth,
from the singular vectors. The smoother the paths, the less a Jacobi step gets done: news travels one
location a sweep. What counts is the sweep after which the bound is within 0.1 nats of its best. The
posterior is the coupled one: mean field has to turn its factors to the axes, which takes hundreds of sweeps
whatever the solver.
"""

from functools import partial
from typing import Any

import numpy as np

from kalvi import plots
from kalvi.rules.silk import Exact, Jacobi
from papers import silk_pictures as pictures
from papers.results import Claim, Result
from papers.silk_data import synthetic
from papers.silk_fits import COUPLED, Settings, fit

SHAPE, K, RATES = (60, 45), 3, (0.5, 0.02)
CLOSE = 0.1
"""Nats below the best bound that count as arrived."""
LEAST = 1e-4
"""And the least that the picture shows."""
SOLVERS = {
    "Jacobi, c = 2/3": (Jacobi(2 / 3), 0),
    "Jacobi, best c": (Jacobi(None), 0),
    "exact": (Exact(), 0),
    "exact, combined": (Exact(), 5),
}
"""How means are solved for, and how many past sweeps are combined."""
MOST, FURTHER = 500, 1000
"""Sweeps followed, and sweeps to the best bound."""
GOAL = 10

Gaps = dict[str, np.ndarray]


def figure_3(quick: bool) -> Result:
    """Distances to the best bound over sweeps, at two smoothnesses."""
    rates, most = (RATES[1:] if quick else RATES), (200 if quick else MOST)
    seeds = range(1 if quick else 3)
    gaps = {rate: [_gaps(rate, seed, most) for seed in seeds] for rate in rates}
    rows = [
        {"rate": rate, "solver": name, "seed": seed, "sweeps": arrival(found[name])}
        for rate in rates
        for seed, found in enumerate(gaps[rate])
        for name in SOLVERS
    ]
    claims = [_few(rows), _many(rows)]
    title = "Sweeps to the optimum"
    return Result(3, title, rows, claims, partial(_draw, {r: gaps[r][0] for r in rates}, title))


def _gaps(rate: float, seed: int, most: int) -> Gaps:
    """Nats below the best bound after every sweep, by solver."""
    made = synthetic(SHAPE, K, (rate, rate), seed=seed)
    settings = Settings(COUPLED, learn=False, gain=-np.inf, sweeps=most)
    priors = made.rows, made.cols
    found = {
        name: fit(
            made.matrix, K, settings._replace(solver=solver, memory=memory), priors=priors
        ).elbos
        for name, (solver, memory) in SOLVERS.items()
    }
    longer = settings._replace(gain=1e-9, sweeps=FURTHER)
    best = fit(made.matrix, K, longer, priors=priors).elbo
    best = max(best, *(elbos.max() for elbos in found.values()))
    return {name: best - elbos for name, elbos in found.items()}


def arrival(gaps: np.ndarray) -> float:
    """After how many sweeps the bound is close, infinite if it never is."""
    near = np.flatnonzero(gaps < CLOSE)
    return float(near[0]) if len(near) else np.inf


def _at(rows: list[dict[str, Any]], name: str) -> list[float]:
    return [row["sweeps"] for row in rows if row["rate"] == RATES[1] and row["solver"] == name]


def _few(rows: list[dict[str, Any]]) -> Claim:
    found = _at(rows, "exact, combined")
    numbers = {f"seed {i}": n for i, n in enumerate(found)}
    text = f"At ρ d = {RATES[1]} exact solves, combined, arrive within {GOAL} sweeps (median)"
    return Claim(text, numbers, float(np.median(found)) <= GOAL, ours=True)


def _many(rows: list[dict[str, Any]]) -> Claim:
    numbers = {name: float(np.median(_at(rows, name))) for name in SOLVERS}
    text = "There Jacobi steps take ten times as many sweeps, of whatever length (median)"
    least = min(numbers["Jacobi, c = 2/3"], numbers["Jacobi, best c"])
    return Claim(text, numbers, least > 10 * numbers["exact"], ours=True)


def _draw(gaps: dict[float, Gaps], title: str) -> plots.Figure:
    def panel(rate: float):
        tracks = {
            name: (np.arange(1, len(g)), np.where(g[1:] > LEAST, g[1:], np.nan))
            for name, g in gaps[rate].items()
        }
        return partial(
            pictures.curves, tracks, title=f"rate × gap = {rate}", xlabel="sweeps",
            ylabel=f"nats below the best bound, to {LEAST:g}", logarithms="xy", levels={"0.1 nats": CLOSE},
        )  # fmt: skip

    panels = [panel(rate) for rate in gaps]
    return plots.compose([panels], title=f"3. {title}", size=(6.2 * len(panels), 4.6))
