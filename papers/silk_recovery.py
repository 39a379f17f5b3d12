"""What is recovered of matrices drawn from the model: probabilities, paths and smoothness, and the bounds.

Figure 1: one matrix, its paths and the rates found. Table 1: the bounds of three families of posteriors,
prior held at the truth and learned. All factors of a side have one rate, so that they are found up to
a rotation only: the paths are turned to the true ones by least squares before they are compared.
"""

from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from kalvi import plots
from kalvi.evaluation import metrics
from papers import silk_pictures as pictures
from papers.pictures import table as draw_table
from papers.results import Claim, Result
from papers.silk_data import Synthetic, synthetic
from papers.silk_fits import FAMILIES, NEITHER, Fit, Settings, fit, predicted

SHAPE, K, RATES, SEEDS = (300, 200), 3, (0.05, 0.2), 3
QUICK_SHAPE = (80, 60)
NO_SMOOTHNESS = "no smoothness"
BOUNDS = {
    "80 × 60, K = 3": ((80, 60), 3, (0.02, 0.1)),
    "200 × 40, K = 3": ((200, 40), 3, (0.01, 5.0)),
    "60 × 300, K = 4": ((60, 300), 4, (0.05, 5.0)),
}
"""Size, factors and rates of table 1; the third has nearly independent columns and short rows."""
FACTOR = 2.0
"""Rates this far from the truth count as recovered."""

Fits = dict[str, list[Fit]]


def figure_1(quick: bool) -> Result:
    """A matrix, what is found of it, and the rates of several."""
    shape = QUICK_SHAPE if quick else SHAPE
    made = [synthetic(shape, K, RATES, seed=seed) for seed in range(1 if quick else SEEDS)]
    fits: Fits = {
        name: [fit(m.matrix, K, Settings(family=name)) for m in made] for name in FAMILIES
    }
    fits[NO_SMOOTHNESS] = [fit(m.matrix, K, Settings("coupled", NEITHER)) for m in made]
    rows = [row for name in fits for row in _rows(name, fits[name], made)]
    rough = [fit(m.matrix, K, Settings("coupled", rough=True)) for m in made]
    claims = [_rates(fits, made), _bias(fits), _loss(rows), _cover(made, fits["coupled"])]
    claims += [_start(fits["coupled"], rough)]
    title = f"Recovery of smooth factors, {shape[0]} × {shape[1]}, K = {K}, {len(made)} matrices"
    return Result(1, title, rows, claims, partial(_draw, made[0], fits, title))


def _rows(name: str, found: list[Fit], made: list[Synthetic]) -> list[dict[str, Any]]:
    return [
        {
            "posterior": name,
            "seed": seed,
            "bound": f.elbo,
            "log loss": f.loss,
            "log loss of the truth": metrics.log_loss(
                m.probability[m.matrix.hidden], m.matrix.answers
            ),
            "error of probabilities": float(np.sqrt(np.mean((f.probability - truth) ** 2))),
            "rates of rows": _listed(f.rates[0]),
            "rates of columns": _listed(f.rates[1]),
            "sweeps": len(f.elbos) - 1,
            "seconds": f.seconds,
        }
        for seed, (f, m) in enumerate(zip(found, made, strict=True))
        for truth in [m.probability[m.matrix.hidden]]
    ]


def _listed(values: np.ndarray) -> str:
    return " ".join(f"{v:.3g}" for v in values)


def _off(found: list[Fit]) -> np.ndarray:
    """log₂ of rate over truth: fits, sides, factors."""
    return np.log2(
        [[rates / true for rates, true in zip(f.rates, RATES, strict=True)] for f in found]
    )


def _rates(fits: Fits, made: list[Synthetic]) -> Claim:
    off = _off(fits["coupled"])
    numbers = {"typical, rows": 2 ** off[:, 0].mean(), "typical, columns": 2 ** off[:, 1].mean()}
    numbers |= {"share of single rates within it": float(np.mean(np.abs(off) < np.log2(FACTOR)))}
    best = np.log2([likeliest_rate(path) / true for m in made for path, true in _true_paths(m)])
    numbers |= {"share of those of the true paths": float(np.mean(np.abs(best) < np.log2(FACTOR)))}
    text = "The coupled posterior finds the smoothness within a factor 2 (geometric mean of the factors)"
    return Claim(
        text, numbers, bool(np.all(np.abs(off.mean(axis=(0, 2))) < np.log2(FACTOR))), ours=True
    )


def _true_paths(made: Synthetic) -> list[tuple[np.ndarray, float]]:
    factors = made.row_factors, made.col_factors
    return [(path, rate) for u, rate in zip(factors, RATES, strict=True) for path in u.T]


def likeliest_rate(path: np.ndarray) -> float:
    """The rate of the greatest likelihood of a path at 0, 1, 2, …, its mean and variance at their best."""

    def cost(log_rate: float) -> float:
        stay, n = np.exp(-np.exp(log_rate) / 2), len(path)
        ends, inside = 1 / (1 + stay), (1 - stay) / (1 + stay)
        weight = np.array([ends, *[inside] * (n - 2), ends])
        e = path - weight @ path / weight.sum()
        square = e[0] ** 2 + np.sum((e[1:] - stay * e[:-1]) ** 2) / (1 - stay**2)
        return float(n * np.log(square) + (n - 1) * np.log(1 - stay**2))

    found: Any = minimize_scalar(cost, bounds=(-9.0, 3.0), method="bounded")
    return float(np.exp(found.x))


def _bias(fits: Fits) -> Claim:
    numbers = {name: float(2 ** _off(fits[name])[:, 0].mean()) for name in FAMILIES}
    text = "Mean field takes rows for rougher than they are, more so than coupled (rate over truth)"
    return Claim(text, numbers, numbers["mean field"] > max(1.0, numbers["coupled"]), ours=True)


def _loss(rows: list[dict[str, Any]]) -> Claim:
    names = (*FAMILIES, NO_SMOOTHNESS)
    numbers = {
        name: float(
            np.mean(
                [r["log loss"] - r["log loss of the truth"] for r in rows if r["posterior"] == name]
            )
        )
        for name in names
    }
    text = "Smoothness brings hidden entries closer to the truth (log loss above that of the truth)"
    return Claim(
        text, numbers, max(numbers[n] for n in FAMILIES) < numbers[NO_SMOOTHNESS], ours=True
    )


def _cover(made: list[Synthetic], found: list[Fit]) -> Claim:
    inside = []
    for m, f in zip(made, found, strict=True):
        mean, std = aligned(f, m)
        inside.append(np.abs(m.row_factors - mean) < 1.96 * std)
    numbers = {"share inside": float(np.mean(inside))}
    text = "95 % bands of the row paths hold 95 % of the true path (within two points; the turn is fitted)"
    return Claim(text, numbers, abs(numbers["share inside"] - 0.95) < 0.02, ours=True)


def aligned(found: Fit, made: Synthetic) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations of the rows' coupled posterior, turned to the true paths."""
    side = found.silk.rows.posterior
    mean, cov = np.asarray(side.mean), np.asarray(side.cov)  # type: ignore[attr-defined]
    turn = np.linalg.lstsq(mean, made.row_factors, rcond=None)[0]
    return mean @ turn, np.sqrt(np.einsum("ki,nkl,li->ni", turn, cov, turn))


def _start(usual: list[Fit], rough: list[Fit]) -> Claim:
    """Section 7 of the document begins with "ρ essentially infinite"; ours with rates from the factors."""
    numbers = {}
    for i, (ours, theirs) in enumerate(zip(usual, rough, strict=True)):
        numbers |= {f"bound from ρ ≈ ∞, above ours, matrix {i}": theirs.elbo - ours.elbo}
        numbers |= {f"its sweeps, {i}": len(theirs.elbos) - 1, f"ours, {i}": len(ours.elbos) - 1}
    away = [abs(a.elbo - b.elbo) < 1 for a, b in zip(usual, rough, strict=True)]
    text = "Started at ρ ≈ ∞, as in section 7, the fit ends at the same bound (within 1 nat)"
    return Claim(text, numbers, away, ours=True)


def _draw(made: Synthetic, fits: Fits, title: str) -> plots.Figure:
    matrix, everything = made.matrix, np.ones(made.matrix.x.shape, bool)
    mean, std = aligned(fits["coupled"][0], made)

    def estimate(name: str) -> np.ndarray:
        return predicted(fits[name][0].silk, everything).reshape(everything.shape)

    rates = {
        side: {name: np.concatenate([f.rates[i] for f in fits[name]]) for name in FAMILIES}
        for i, side in enumerate(("rows", "columns"))
    }
    labels = {"xlabel": "column", "ylabel": "row"}
    images = {
        "true probabilities": made.probability,
        "what is seen": matrix.given,
        "coupled posterior": estimate("coupled"),
        NO_SMOOTHNESS: estimate(NO_SMOOTHNESS),
    }
    top = [partial(plots.image, v, title=t, **labels) for t, v in images.items()]
    low = [
        partial(plots.paths, made.rows.locations, mean, std, truth=made.row_factors,
                title="row factors, 95 % bands; truth dashed", xlabel="row"),
        *(partial(pictures.dots, rates[side], truth=true, title=f"rates of {side}", xlabel="rate")
          for side, true in zip(rates, RATES, strict=True)),
    ]  # fmt: skip
    return plots.compose([top, low], title=f"1. {title}", size=(15, 8.4))


def table_1(quick: bool) -> Result:
    """Bounds of the families above that of mean field."""
    cases = dict(list(BOUNDS.items())[:1]) if quick else BOUNDS
    rows = [
        _bounds(name, seed, learn)
        for (name, seed), learn in product(
            product(cases, range(1 if quick else SEEDS)), (False, True)
        )
    ]
    claims = [_tighter(rows), _margin(rows)]
    shown = [_shown(rows, name, learn) for name, learn in product(cases, (False, True))]
    n = 1 if quick else SEEDS
    title = f"Bounds of three families of posteriors, nats above mean field, mean of {n} matrices"

    def draw() -> plots.Figure:
        panel = partial(draw_table, shown)
        return plots.compose(
            [[panel]], title=f"Table 1. {title}", size=(11, 0.9 + 0.34 * len(shown))
        )

    return Result("table1", title, rows, claims, draw)


def _bounds(name: str, seed: int, learn: bool) -> dict[str, Any]:
    shape, k, rates = BOUNDS[name]
    made = synthetic(shape, k, rates, seed=seed)
    priors = None if learn else (made.rows, made.cols)
    settings = Settings(learn=learn, gain=1e-3, sweeps=1000)
    found = {f: fit(made.matrix, k, settings._replace(family=f), priors=priors) for f in FAMILIES}
    row: dict[str, Any] = {"data": name, "seed": seed, "prior": "learned" if learn else "held"}
    for family, f in found.items():
        row |= {f"bound, {family}": f.elbo, f"log loss, {family}": f.loss}
    return row


def _gains(rows: list[dict[str, Any]], family: str) -> np.ndarray:
    return np.array([r[f"bound, {family}"] - r["bound, mean field"] for r in rows])


def _tighter(rows: list[dict[str, Any]]) -> Claim:
    chains, coupled = _gains(rows, "chains"), _gains(rows, "coupled")
    numbers = {
        "least gain of chains": chains.min(),
        "least of coupled over chains": (coupled - chains).min(),
    }
    text = "Chains are tighter than mean field and coupled tighter than chains, on every matrix"
    return Claim(text, numbers, min(numbers.values()) > 0, ours=True)


def _margin(rows: list[dict[str, Any]]) -> Claim:
    smooth = [r for r in rows if r["data"] == next(iter(BOUNDS))]
    held = [r for r in smooth if r["prior"] == "held"]
    learned = [r for r in smooth if r["prior"] == "learned"]
    numbers = {
        "held": float(_gains(held, "coupled").mean()),
        "learned": float(_gains(learned, "coupled").mean()),
    }
    text = "On smooth 80 × 60 matrices coupled is tens of nats above mean field (20, held; 10, learned)"
    return Claim(text, numbers, numbers["held"] > 20 and numbers["learned"] > 10, ours=True)


def _shown(rows: list[dict[str, Any]], name: str, learn: bool) -> dict[str, str]:
    prior = "learned" if learn else "held"
    ours = [r for r in rows if r["data"] == name and r["prior"] == prior]
    row = {"data": name, "rates": str(BOUNDS[name][2]), "prior": prior}
    row["mean field"] = f"{np.mean([r['bound, mean field'] for r in ours]):.1f}"
    for family in ("chains", "coupled"):
        row[family] = f"{_gains(ours, family).mean():+.1f}"
        apart = np.mean([r["log loss, mean field"] - r[f"log loss, {family}"] for r in ours])
        row[f"log loss, {family}"] = f"{-apart:+.4f}"
    return row
