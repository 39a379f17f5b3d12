"""The fixed step sizes of Khan, Baqué, Fleuret & Fua (2015): how many iterations, and at what cost.

Section 6 runs Algorithm 1 with β = 0.25 for the logistic and β = 1 for the Laplace likelihood, and
section 5 with A for B, which saves a factorisation. The tables of this folder have the optimum itself, by
`kalvi.rules.klprox.klprox`; this one has the way there, from the prior: the iterations after which the
bound is within 0.01 nats of the optimum and stays there, and the seconds of one. All share an optimum.
"""

import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kalvi import plots
from kalvi.likelihoods import Bernoulli, Laplace, Likelihood
from kalvi.numerics.precision import matching_precision
from kalvi.rules.klprox.function_space import LatentPrior, klprox
from kalvi.streams import run
from papers import datasets, pictures
from papers import klprox_data as data
from papers.klprox_fixed import fixed
from papers.klprox_grid import distances, task
from papers.results import Claim, Result

CLOSE, STEPS, QUICK_STEPS = 0.01, 600, 100
BETAS = {"logistic": (0.25, 1.0), "Laplace": (1.0, 0.25)}
"""The document's first."""


class Case(NamedTuple):
    """A kernel matrix and answers."""

    name: str
    likelihood: Likelihood
    cov: np.ndarray
    y: np.ndarray

    @property
    def kind(self) -> str:
        """Which of the two step sizes the document has for it."""
        return "Laplace" if isinstance(self.likelihood, Laplace) else "logistic"


def cases(quick: bool) -> list[Case]:
    """A linear model with more columns than rows, one with fewer, and two Gaussian processes."""
    found = []
    stored = datasets.load("colon")
    split = data.halves(stored["X_raw"].astype(float), stored["y"], 0, data.unit_rows)
    found.append(Case("Colon, δ = 10", Bernoulli(), 10 * split.x @ split.x.T, split.y))
    for name, likelihood in (("ionosphere", Bernoulli()), ("housing", Laplace(np.exp(-2.0)))):
        stored = datasets.load(name)
        x, y = np.asarray(stored["X"], float), np.asarray(stored["y"], float)
        regression = isinstance(likelihood, Laplace)
        split = distances(data.halves(x, y, 0, data.standardised, targets=regression))
        cov = task(split, 1.0, 1.0).cov
        found.append(Case(f"{name.capitalize()}, l = σ = e", likelihood, cov, split.y))
    if not quick:
        split = data.a1a(400)
        found.append(
            Case("a1a, 400 rows, δ = .418", Bernoulli(), 0.418 * split.x @ split.x.T, split.y)
        )
    return found


class Way(NamedTuple):
    """One way to the optimum of a case."""

    iterations: float  # inf where it is not reached
    seconds: float  # of one iteration
    end: float  # nats below the optimum at the end


def ways(case: Case, steps: int) -> dict[str, Way]:
    """The optimum's own passes, and the fixed step with two sizes, with B and with A for B."""
    with matching_precision("float64"):
        y = jnp.asarray(case.y, dtype=np.float64)
        prior = LatentPrior(jnp.zeros_like(y), jnp.asarray(case.cov, dtype=np.float64))
        best, seconds = _timed(_optimum, case.likelihood, prior, y)
        passes = int(best.passes)
        found = {"klprox": Way(passes, seconds / passes, 0.0)}
        for beta in BETAS[case.kind]:
            for shared in (False, True):
                walk = partial(_walk, steps=steps, shared=shared)
                elbo, seconds = _timed(walk, case.likelihood, prior, y, jnp.asarray(beta))
                away = float(best.elbo) - np.asarray(elbo)
                outside = np.flatnonzero(~(away < CLOSE))
                first = float(outside[-1] + 1) if len(outside) else 0.0
                reached = first if first < len(away) else np.inf
                name = f"β = {beta:g}, {'A' if shared else 'B'}"
                found[name] = Way(reached, seconds / steps, float(away[-1]))
    return found


def _timed(function, *arguments):
    """The second call's outcome and seconds: the first compiles."""
    jax.block_until_ready(run.call(function, *arguments))
    began = time.process_time()
    outcome = jax.block_until_ready(run.call(function, *arguments))
    return outcome, time.process_time() - began


def _optimum(likelihood: Likelihood, prior: LatentPrior, y):
    return klprox(likelihood, prior, y, jnp.ones_like(y))


def _walk(likelihood: Likelihood, prior: LatentPrior, y, beta, *, steps: int, shared: bool):
    return fixed(likelihood, prior, y, jnp.ones_like(y), beta, steps=steps, shared=shared).elbo


def steps_table(quick: bool) -> Result:
    """Iterations and seconds of the fixed step."""
    steps = QUICK_STEPS if quick else STEPS
    given = cases(quick)
    found = [(case, ways(case, steps)) for case in given]
    rows = [
        {"case": case.name, "rows": len(case.y), "way": name} | way._asdict()
        for case, each in found
        for name, way in each.items()
    ]
    title = f"The fixed steps of Algorithm 1, {steps} at most"

    def draw() -> plots.Figure:
        size = (9.5, 0.9 + 0.34 * len(rows))
        shown = [_shown(row) for row in rows]
        return plots.compose([[partial(pictures.table, shown)]], title=title, size=size)

    return Result("steps", title, rows, [_converges(found), _shared(found), _cost(found)], draw)


def _shown(row: dict) -> dict[str, str]:
    away, far = float(row["end"]), f"{row['end']:,.0f}"
    return {
        "case": row["case"],
        "rows": str(row["rows"]),
        "way": row["way"],
        "iterations": f"{row['iterations']:.0f}" if np.isfinite(row["iterations"]) else "never",
        "ms an iteration": f"{1e3 * row['seconds']:.3g}",
        "nats away at the end": "0" if abs(away) < 1e-6 else far if away > 1 else f"{away:.2g}",
    }


def _named(found, name) -> dict[str, float]:
    return {f"{case.name}: {name(case)}": each[name(case)].iterations for case, each in found}


def _converges(found: list[tuple[Case, dict[str, Way]]]) -> Claim:
    numbers = _named(found, lambda case: f"β = {BETAS[case.kind][0]:g}, B")
    text = (
        "With β = 0.25 (logistic) and 1 (Laplace) the iteration converges (iterations to .01 nats)"
    )
    return Claim(text, numbers, [bool(np.isfinite(n)) for n in numbers.values()])


def _shared(found: list[tuple[Case, dict[str, Way]]]) -> Claim:
    numbers = _named(found, lambda case: f"β = {BETAS[case.kind][0]:g}, A")
    text = "A in place of B gives no convergence issues (iterations to .01 nats)"
    return Claim(text, numbers, [bool(np.isfinite(n)) for n in numbers.values()])


def _cost(found: list[tuple[Case, dict[str, Way]]]) -> Claim:
    numbers, held = {}, []
    for case, each in found:
        way, ours = each[f"β = {BETAS[case.kind][0]:g}, B"], each["klprox"]
        numbers |= {f"{case.name}: klprox": ours.iterations, f"{case.name}: fixed": way.iterations}
        held.append(ours.iterations < way.iterations)
    return Claim("The climb takes fewer iterations than the fixed step", numbers, held, ours=True)
