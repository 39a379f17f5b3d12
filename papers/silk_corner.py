"""The document's held-out corner, 400 × 300: kalvi, 2000 sweeps of Gibbs sampling, NumPyro's AutoNormal.

Figure 2. Three tenths of the rows and of the columns are chosen, and where they meet nothing is seen. All
learn their priors: Gibbs samples them, AutoNormal has a Gaussian for them too. kalvi's seconds are those of
all sweeps, after compilation; AutoNormal's, of the steps until its loss comes within 0.001 nats of its
lowest, so that it pays nothing for knowing when to stop. The rate of Adam is the best of those tried.
"""

import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kalvi import plots
from kalvi.evaluation import metrics
from papers import silk_pictures as pictures
from papers.results import Claim, Result
from papers.silk_autonormal import auto_normal
from papers.silk_data import Prior, Synthetic, corner, synthetic
from papers.silk_fits import CHAINS, COUPLED, MEAN_FIELD, NEITHER, Settings, fit
from papers.silk_gibbs import gibbs

SHAPE, K, RATES, SHARE = (400, 300), 4, (0.02, 0.1), 0.3
QUICK_SHAPE = (80, 60)
SWEEPS, BURN_IN, STEPS, SEEDS = 2000, 500, 10_000, 5
GAIN = 0.1
"""Nats: a fit ends where five sweeps gain less."""
ADAM = (0.01, 0.03)
NEAR = 0.001
SAME = 0.0005
"""Nats of log loss that make no difference."""
GIBBS, AUTO_NORMAL, TRUTH = "Gibbs", "AutoNormal", "truth"
GOAL = 5


class Run(NamedTuple):
    """A method on one matrix: its loss, what it cost, and the loss along the way where known."""

    loss: float
    seconds: float
    path: tuple[np.ndarray, np.ndarray] | None = None


def figure_2(quick: bool) -> Result:
    """Losses and seconds on the hidden corner."""
    runs = [of_all(problem(seed, quick), seed, quick) for seed in range(1 if quick else SEEDS)]
    rows = [
        {"method": name, "seed": seed, "log loss": run.loss, "seconds": run.seconds}
        for seed, found in enumerate(runs)
        for name, run in found.items()
    ]
    claims = [_as_good(rows), _faster(rows), _smooth(rows)]
    rows_of, columns = QUICK_SHAPE if quick else SHAPE
    title = f"A hidden corner of a {rows_of} × {columns} matrix, mean of {len(runs)}"
    return Result(2, title, rows, claims, partial(_draw, runs, rows, title))


def problem(seed: int, quick: bool) -> Synthetic:
    """A matrix with its corner hidden."""
    made = synthetic(QUICK_SHAPE if quick else SHAPE, K, RATES, seed=seed)
    return made._replace(matrix=corner(made.matrix, SHARE, np.random.default_rng(seed)))


def of_all(made: Synthetic, seed: int, quick: bool) -> dict[str, Run]:
    """Every method on one matrix; a quick run leaves AutoNormal out, which compiles for long."""
    matrix, found = made.matrix, {}
    truth = metrics.log_loss(made.probability[matrix.hidden], matrix.answers)
    for name in (MEAN_FIELD, CHAINS, COUPLED):
        f = fit(matrix, K, Settings(name, gain=GAIN))
        found[name] = Run(f.loss, f.seconds)
    f = fit(matrix, K, Settings(COUPLED, NEITHER, gain=GAIN))
    found["no smoothness"] = Run(f.loss, f.seconds)
    found[GIBBS] = _gibbs(made, seed, 200 if quick else SWEEPS, 50 if quick else BURN_IN)
    if not quick:
        found[AUTO_NORMAL] = _auto_normal(made, seed)
    return found | {TRUTH: Run(truth, np.nan)}


def _gibbs(made: Synthetic, seed: int, sweeps: int, burn_in: int) -> Run:
    began = time.process_time()
    priors = (_rough(made.rows), _rough(made.cols))
    draws = gibbs(made.matrix, *priors, sweeps=sweeps, burn_in=burn_in, seed=seed, learn=True)
    seconds = time.process_time() - began
    spent = seconds * np.arange(burn_in + 1, sweeps + 1) / sweeps
    return Run(float(draws.losses[-1]), seconds, (spent, draws.losses))


def _rough(prior: Prior) -> Prior:
    """What a sampler starts from: neighbours hardly alike."""
    return prior._replace(rate=np.ones_like(prior.rate))


def _auto_normal(made: Synthetic, seed: int) -> Run:
    """The quickest rate of Adam to come near the lowest loss of any."""
    fits = [auto_normal(made.matrix, K, steps=STEPS, seed=seed, rate=rate) for rate in ADAM]
    lowest = min(f.losses.min() for f in fits)
    arrivals = [f.seconds[f.losses < lowest + NEAR] for f in fits]
    best = int(np.argmin([a[0] if len(a) else np.inf for a in arrivals]))
    f = fits[best]
    return Run(float(f.losses[-1]), float(arrivals[best][0]), (f.seconds, f.losses))


def _mean(rows: list[dict[str, Any]], method: str, what: str) -> float:
    return float(np.mean([row[what] for row in rows if row["method"] == method]))


def _as_good(rows: list[dict[str, Any]]) -> Claim:
    numbers = {m: _mean(rows, m, "log loss") for m in (CHAINS, COUPLED, GIBBS)}
    apart = [
        a["log loss"] - b["log loss"]
        for a in rows
        for b in rows
        if a["method"] == COUPLED and b["method"] == GIBBS and a["seed"] == b["seed"]
    ]
    error = float(np.std(apart, ddof=1) / np.sqrt(len(apart))) if len(apart) > 1 else np.nan
    mean = float(np.mean(apart))
    numbers |= {"coupled − Gibbs": mean, "its standard error": error}
    text = (
        "The loss of the coupled posterior is that of Gibbs sampling (within two errors or .0005)"
    )
    return Claim(text, numbers, abs(mean) < max(2 * error, SAME), ours=True)


def _faster(rows: list[dict[str, Any]]) -> Claim:
    numbers = {f"{m}, s": _mean(rows, m, "seconds") for m in (CHAINS, COUPLED, GIBBS)}
    if not any(row["method"] == AUTO_NORMAL for row in rows):
        return Claim("kalvi is faster than Gibbs sampling", numbers,
                     numbers[f"{COUPLED}, s"] < numbers[f"{GIBBS}, s"], ours=True)  # fmt: skip
    numbers |= {f"{AUTO_NORMAL}, s": _mean(rows, AUTO_NORMAL, "seconds")}
    ratio = numbers[f"{AUTO_NORMAL}, s"] / numbers[f"{COUPLED}, s"]
    text = f"kalvi is {GOAL} times faster than AutoNormal with a lower loss (coupled)"
    lower = _mean(rows, COUPLED, "log loss") < _mean(rows, AUTO_NORMAL, "log loss")
    numbers |= {"ratio": ratio, f"loss, {AUTO_NORMAL}": _mean(rows, AUTO_NORMAL, "log loss")}
    return Claim(text, numbers, ratio > GOAL and lower, ours=True)


def _smooth(rows: list[dict[str, Any]]) -> Claim:
    names = (MEAN_FIELD, CHAINS, COUPLED, "no smoothness")
    numbers = {m: _mean(rows, m, "log loss") for m in names}
    text = "Without smoothness the loss is higher (by 0.003 nats or more)"
    return Claim(text, numbers, numbers["no smoothness"] > numbers[COUPLED] + 0.003, ours=True)


def _draw(runs: list[dict[str, Run]], rows: list[dict[str, Any]], title: str) -> plots.Figure:
    first = runs[0]
    tracks = {name: run.path for name, run in first.items() if run.path is not None}
    for name in (MEAN_FIELD, CHAINS, COUPLED):
        tracks[name] = (np.array([first[name].seconds]), np.array([first[name].loss]))
    truth, worst = first[TRUTH].loss, first["no smoothness"].loss
    above = {name: np.array([r[name].loss - r[TRUTH].loss for r in runs]) for name in first}
    panels = [
        partial(pictures.curves, tracks, title="loss over time (first matrix)", xlabel="seconds",
                ylabel="log loss of the corner", logarithms="x", levels={"truth": truth},
                limits=(truth - 0.002, 2 * worst - truth)),
        partial(pictures.spreads, {n: v for n, v in above.items() if n != TRUTH},
                title="above the loss of the truth, and means"),
    ]  # fmt: skip
    return plots.compose([panels], title=f"2. {title}", size=(12.5, 4.8))
