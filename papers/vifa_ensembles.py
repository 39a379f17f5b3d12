"""Predictions of averaged and of sampled SGD iterates: figure 6.4 and table A.1 of Brownlie (2021),
"Extending the Bayesian deep learning method MultiSWAG".

Linear regressions with an intercept on four data sets, ten folds: 500 epochs at a learning rate of 0.001,
then 100 at 0.1 whose iterates are averaged (SWA) and fitted by factor analysis with three factors, by
gradients (Algorithm 1) and by online EM (Algorithm 2). An ensemble is the mean prediction of 30 draws. An
epoch is ten equal batches of the training rows; the few rows left over differ from epoch to epoch.

Both algorithms begin at ψ = 1 with orthonormal factors, whatever the units. Gradient steps of 0.001 barely
leave that start in a thousand iterates, and draws of variance ψ add |x|² ψ/30 to the errors of the SGA
ensemble. "scaled" is the same ascent from a start, and with steps, in the units of the iterates.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from kalvi import plots
from kalvi.numerics import precision
from kalvi.rules import factor_analysis as fa
from kalvi.rules.rule import Batch, Rule
from kalvi.streams import run
from papers import datasets, pictures
from papers.results import Claim, Result
from papers.vifa_iterates import orders, paths

FOLDS, BATCHES, FACTORS, DRAWS = 10, 10, 3, 30
PRE_EPOCHS, PRE_RATE, EPOCHS, RATE, DECAY = 500, 0.001, 100, 0.1, 0.001
NAMES = {
    "energy": "Energy Efficiency",
    "housing": "Boston Housing",
    "concrete": "Concrete Strength",
    "yacht": "Yacht Hydro.",
}
METHODS = ("pre-trained", "SWA", "SGA-FA", "EM-FA")
PRINTED = {
    "energy": ((10.13, 0.55), (8.74, 0.54), (8.93, 0.53), (8.73, 0.54)),
    "housing": ((23.69, 2.25), (23.27, 2.07), (23.69, 2.06), (23.46, 2.06)),
    "concrete": ((112.44, 6.93), (109.83, 6.44), (109.84, 6.30), (109.79, 6.41)),
    "yacht": ((82.43, 7.28), (82.54, 7.27), (83.35, 7.78), (82.83, 7.42)),
}
"""Mean squared errors and their standard errors, a pair for each of METHODS."""
QUICK = ("energy",)


class Folds(NamedTuple):
    """A data set as often as there are folds, each time standardised by its training rows."""

    x: np.ndarray  # fold, row, feature; ones last
    y: np.ndarray  # row
    held_out: list[np.ndarray]


def folds(name: str) -> Folds:
    """The folds of a data set."""
    stored = datasets.load(name)
    x, y = np.asarray(stored["X"]), np.asarray(stored["y"], np.float64).ravel()
    held_out = np.array_split(np.random.default_rng(0).permutation(len(y)), FOLDS)
    standardised = []
    for rows in held_out:
        kept = np.delete(x, rows, axis=0)
        spread = kept.std(axis=0)
        scaled = (x - kept.mean(axis=0)) / np.where(spread > 0, spread, 1)
        standardised.append(np.column_stack([scaled, np.ones(len(y))]))
    return Folds(np.stack(standardised), y, held_out)


def parameters(data: Folds) -> dict[str, np.ndarray]:
    """What each method predicts with, a vector for each fold: linear models predict as their mean does."""
    rng = np.random.default_rng(1)
    n, d = data.x.shape[1:]
    training = [np.delete(np.arange(n), rows) for rows in data.held_out]
    batch = min(map(len, training)) // BATCHES
    y = np.broadcast_to(data.y, data.x.shape[:2])
    starts = rng.uniform(-(d**-0.5), d**-0.5, (FOLDS, d))
    before = np.stack([t[orders(rng, len(t), batch, PRE_EPOCHS, False)] for t in training])
    after = np.stack([t[orders(rng, len(t), batch, EPOCHS, False)] for t in training])
    trained = paths(data.x, y, starts, before.astype(np.int32), PRE_RATE, DECAY)[:, -1]
    path = paths(data.x, y, trained, after.astype(np.int32), RATE, DECAY)
    rules: dict[str, tuple[Rule, Callable]] = {
        "SGA-FA": (fa.SGA.plain(), _unit),
        "EM-FA": (fa.OnlineEM.incremental(), _unit),
        "SGA-FA, scaled": (fa.SGA(), _own),
    }
    found = {"pre-trained": trained, "SWA": path.mean(axis=1)}
    found |= {name: ensemble(path, rule, start) for name, (rule, start) in rules.items()}
    return found | {"ridge, exact": np.stack([_ridge(data, i) for i in range(FOLDS)])}


def ensemble(path: np.ndarray, rule: Rule, start: Callable) -> np.ndarray:
    """The mean of the draws from a factor analysis of each fold's iterates."""
    with precision.matching_precision("float64"):
        iterates = jnp.asarray(path, dtype=np.float64)
        return np.asarray(run.call(_draws, rule, start, iterates, jr.split(jr.key(0), FOLDS)))


def _draws(rule: Rule, start: Callable, paths, keys):
    def one(path, key):
        key_start, key_draws = jr.split(key)
        batch = Batch(path, jnp.zeros(len(path), path.dtype), jnp.ones(len(path), path.dtype))
        state = rule.update(rule.init(start(batch, key_start)), batch)
        return jnp.mean(state.posterior.sample(key_draws, DRAWS), axis=0)

    return jax.vmap(one)(paths, keys)


def _unit(batch: Batch, key):
    """The document's start: ψ = 1 and orthonormal factors."""
    zero = jnp.zeros_like(batch.x[0])
    return fa.orthogonal_start(zero, jnp.ones_like(zero), FACTORS, key=key, share=1.0)


def _own(batch: Batch, key):
    """A start in the units of the iterates."""
    zero = jnp.zeros_like(batch.x[0])
    return fa.orthogonal_start(zero, fa.feature_variances(batch), FACTORS, key=key)


def _ridge(data: Folds, fold: int) -> np.ndarray:
    """Where the gradient of the training loss vanishes: 2/n Σ (xᵀθ − y) x + λ θ = 0."""
    x, y = (np.delete(a, data.held_out[fold], axis=0) for a in (data.x[fold], data.y))
    return np.linalg.solve(x.T @ x + len(y) * DECAY / 2 * np.eye(x.shape[1]), x.T @ y)


def errors(name: str) -> dict[str, np.ndarray]:
    """The test mean squared error of each fold, for each method."""
    data = folds(name)

    def tested(theta: np.ndarray) -> np.ndarray:
        each = zip(data.x, theta, data.held_out, strict=True)
        return np.array([np.mean((x[rows] @ t - data.y[rows]) ** 2) for x, t, rows in each])

    return {method: tested(theta) for method, theta in parameters(data).items()}


def table_a_1(quick: bool) -> Result:
    """Test errors of four ways to predict."""
    found = _all(quick)
    title = "Test mean squared error of linear regressions"
    shown = [row for name in found for row in _shown(name, found[name])]

    def draw() -> plots.Figure:
        panel = partial(pictures.table, shown)
        return plots.compose(
            [[panel]], title=f"Table A.1. {title}", size=(12, 1.8 + 0.35 * len(shown))
        )

    return Result("tableA.1", title, _rows(found), [_printed(found)], draw)


def figure_6_4(quick: bool) -> Result:
    """The same as a picture, with what the document says of it."""
    found = _all(quick)
    claims = [_alike(found), _improved(found), _energy(found), _em(found), _start(found)]
    title = "Test mean squared error of linear regressions"

    def draw() -> plots.Figure:
        drawn = [partial(_bars, found[name], name) for name in found]
        grid = [drawn[i : i + 2] for i in range(0, len(drawn), 2)]
        return plots.compose(grid, title=f"Figure 6.4. {title}", size=(12.5, 0.8 + 4.2 * len(grid)))

    return Result("6.4", title, _rows(found), claims, draw)


def _all(quick: bool) -> dict[str, dict[str, np.ndarray]]:
    return {name: errors(name) for name in (QUICK if quick else NAMES)}


def _rows(found: dict[str, dict[str, np.ndarray]]) -> list[dict]:
    return [
        {"data": NAMES[name], "method": method, "mse": float(v.mean()), "standard error": _error(v)}
        | dict(zip(("printed", "printed error"), _printed_pair(name, method), strict=True))
        for name, methods in found.items()
        for method, v in methods.items()
    ]


def _printed_pair(name: str, method: str) -> tuple[float | None, float | None]:
    return PRINTED[name][METHODS.index(method)] if method in METHODS else (None, None)


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _shown(name: str, methods: dict[str, np.ndarray]) -> list[dict[str, str]]:
    """A row of ours and a row of those printed."""
    ours = {m: f"{v.mean():.2f} ± {_error(v):.2f}" for m, v in methods.items()}
    printed = dict.fromkeys(methods, "") | {
        m: f"{a:.2f} ± {e:.2f}" for m, (a, e) in zip(METHODS, PRINTED[name], strict=True)
    }
    return [{"data": NAMES[name]} | ours, {"data": "    printed"} | printed]


def _means(found, *methods: str) -> dict[str, float]:
    return {f"{m} ({n})": float(found[n][m].mean()) for n in found for m in methods}


def _printed(found) -> Claim:
    numbers, held = _means(found, *METHODS), True
    for name in found:
        for method, (printed, error) in zip(METHODS, PRINTED[name], strict=True):
            held &= abs(found[name][method].mean() - printed) < 2 * error
    return Claim(
        "The printed errors are met within two of their standard errors", numbers, bool(held)
    )


def _alike(found) -> Claim:
    ratios = [abs(f["EM-FA"].mean() / f["SWA"].mean() - 1) for f in found.values()]
    text = "SWA and the EM ensemble are almost identical on all data sets (within 2 %)"
    return Claim(text, _means(found, "SWA", "EM-FA"), max(ratios) < 0.02)


def _improved(found) -> Claim:
    better = [n for n, f in found.items() if f["SWA"].mean() < f["pre-trained"].mean()]
    text = "SWA has a lower error than the pre-trained parameters on all data sets but Yacht"
    return Claim(
        text, _means(found, "pre-trained", "SWA"), better == [n for n in found if n != "yacht"]
    )


def _energy(found) -> Claim:
    gains = {n: f["pre-trained"].mean() - f["SWA"].mean() for n, f in found.items()}
    shares = {n: float(gain / _error(found[n]["SWA"])) for n, gain in gains.items()}
    text = "Only on Energy Efficiency is the gain large (above two standard errors; in standard errors)"
    return Claim(text, shares, [n for n, s in shares.items() if s > 2] == ["energy"])


def _em(found) -> Claim:
    held = all(f["EM-FA"].mean() < f["SGA-FA"].mean() for f in found.values())
    text = "The EM ensemble is better than the SGA ensemble on all data sets"
    return Claim(text, _means(found, "SGA-FA", "EM-FA"), held)


def _start(found) -> Claim:
    held = all(f["EM-FA"].mean() < 0.99 * f["SGA-FA, scaled"].mean() for f in found.values())
    text = (
        "It is EM's better fit that makes the better ensemble (1 % better than SGA in their units)"
    )
    numbers = _means(found, "EM-FA", "SGA-FA, scaled", "ridge, exact")
    return Claim(text, numbers, held, ours=True)


@plots.panel
def _bars(axes, methods: dict[str, np.ndarray], name: str) -> None:
    """Errors with their standard errors, those printed beside them."""
    for i, (method, values) in enumerate(methods.items()):
        colour = pictures.RAMP[4] if method in METHODS else plots.QUIET
        look = {"fmt": "o", "ms": 7, "color": colour, "elinewidth": 2, "capsize": 3}
        axes.errorbar(
            i - 0.12 * (method in METHODS),
            values.mean(),
            _error(values),
            **look,
            label="here" * (i == 0),
        )
        printed, error = _printed_pair(name, method)
        if printed is not None:
            look |= {"fmt": "D", "color": plots.COLOURS["EKF"], "alpha": 0.75}
            axes.errorbar(i + 0.12, printed, error, **look, label="printed" * (i == 0))
    axes.set_xticks(range(len(methods)), [m.replace(", ", ",\n") for m in methods], color=plots.INK)
    axes.set(title=NAMES[name], ylabel="test mean squared error")
    axes.grid(axis="y", color=plots.FAINT, lw=0.6)
    axes.margins(y=0.16)
    axes.legend(loc="upper right", ncols=2)
