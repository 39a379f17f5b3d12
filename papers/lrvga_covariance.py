"""Figure 1 of the L-RVGA paper: the covariance of a stream of rows as W Wᵀ + Ψ, by KL(S ‖ W Wᵀ + Ψ).

S is the covariance of all rows about zero. Algorithm 1 is run as printed and with the start counted as
n₀ = 1 row; beside it stand online EM (averaged over the second half), batch EM, and the library's own way:
the eigen projection in blocks of 16, which needs no random start, with n₀ = 1 and next to none (a row of
variance 1/d is much where features hardly vary about their mean, as in Madelon).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from kalvi import plots
from kalvi.gaussians import Dense, LowRankCovariance
from kalvi.gaussians.divergences import kl
from kalvi.numerics import precision
from kalvi.numerics.projections import EM
from kalvi.rules import factor_analysis as fa
from kalvi.rules.base import Batch, Rule
from kalvi.streams import run
from papers import lrvga_data, pictures
from papers.lrvga_algorithm1 import Algorithm1
from papers.lrvga_history import History, follow, whole
from papers.results import Claim, Result

EPSILON = 1e-8
"""The share of the trace that the authors' start gives to W₀."""
BLOCK = 16
PASSES = (1, 5, 10, 100)
SMALL_GAIN = 1e-6
"""Nats a row: the accelerated batch climb ends where a pass gains less."""
SHOWN, FROM = 4, 10
"""The picture has so many panels, and begins after so many observations."""
RANK_SHARE = 1e-12
"""Singular values below this share of the largest do not count towards the rank of W."""
COLOURS = {
    "recursive, 1 loop": plots.COLOURS["explicit"],
    "recursive, 3 loops": plots.COLOURS["implicit"],
    "n₀ = 1, 1 loop": "#d9a5cd",
    "n₀ = 1, 3 loops": plots.COLOURS["QKF"],
    "online EM": plots.COLOURS["EKF"],
    "eigen, n₀ = 1": "#8fc9b8",
    "eigen, n₀ → 0": plots.COLOURS["accurate integrals"],
    "batch, 5 passes": plots.COLOURS["Laplace"],
    "batch optimum": plots.INK,
}


class Panel(NamedTuple):
    """One data set of the figure."""

    label: str
    d: int
    p: int
    n: int
    rows: Callable[[], np.ndarray] | None  # None: made by the recipe
    loops: int  # the inner loops that the caption speaks of

    def inputs(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows, and the random W₀ of norm 1 that follows them in the authors' scripts."""
        if self.rows is None:
            return lrvga_data.synthetic_covariance(self.d, self.p, self.n)
        return self.rows(), lrvga_data.random().standard_normal((self.d, self.p))


class Factorisation(NamedTuple):
    """Every method on one panel."""

    panel: Panel
    histories: dict[str, History]
    batch: dict[int, float]  # passes of EM and the divergence after them
    optimum: float
    ranks: dict[int, int]  # of W after so many rows, 1 loop as printed

    def final(self, method: str) -> float:
        """The divergence at the end of the stream."""
        return self.histories[method].final


PANELS = {
    "synthetic": Panel("d = 100, p = 10", 100, 10, 10_000, None, 3),
    "synthetic, higher": Panel("d = 1000, p = 10", 1000, 10, 10_000, None, 1),
    "Madelon": Panel(
        "Madelon, d = 500, p = 20", 500, 20, 2000, partial(lrvga_data.real_inputs, "madelon"), 3
    ),
    "Breast Cancer": Panel(
        "Breast Cancer, d = 10, p = 5",
        10,
        5,
        683,
        partial(lrvga_data.real_inputs, "breast_cancer"),
        3,
    ),
    "Breast Cancer, p = 2": Panel(
        "Breast Cancer, d = 10, p = 2",
        10,
        2,
        683,
        partial(lrvga_data.real_inputs, "breast_cancer"),
        3,
    ),
}
QUICK = {
    "synthetic": Panel("d = 10, p = 5", 10, 5, 683, None, 3),  # the shapes of the other
    "Breast Cancer": PANELS["Breast Cancer"],
}


def factorise(panel: Panel) -> Factorisation:
    """All methods on the rows of a panel."""
    x, unit = panel.inputs()
    d, p = x.shape[1], panel.p
    with precision.matching_precision("float64"):
        zero, level = jnp.zeros(d), jnp.full(d, 1 / d)
        factor = jnp.sqrt(EPSILON / p) * jnp.asarray(unit / np.linalg.norm(unit, axis=0))
        start = LowRankCovariance(zero, factor, (1 - EPSILON) * level)
        plain = fa.start(zero, level, p)
        target = Dense(zero, jnp.asarray(x.T @ x / len(x)))

        def divergence(state) -> float:
            return float(run.call(kl, target, state.posterior))

        batch = whole(x, block=BLOCK)
        rules: dict[str, tuple[Rule, LowRankCovariance, int]] = {
            "recursive, 1 loop": (Algorithm1(1), start, 1),
            "recursive, 3 loops": (Algorithm1(3), start, 1),
            "n₀ = 1, 1 loop": (_counted(1), start, 1),
            "n₀ = 1, 3 loops": (_counted(3), start, 1),
            "online EM": (fa.OnlineEM(average_from=len(x) / 2, centred=False), start, 1),
            "eigen, n₀ = 1": (fa.RecursiveFA(centred=False), plain, BLOCK),
            "eigen, n₀ → 0": (fa.RecursiveFA(prior_rows=0.0, centred=False), plain, BLOCK),
        }
        histories = {
            name: follow(rule, prior, batch, divergence, block=block)
            for name, (rule, prior, block) in rules.items()
        }
        passes = {n: float(run.call(kl, target, _batch(batch, start, n, False))) for n in PASSES}
        optimum = float(run.call(kl, target, _batch(batch, start, 300, True)))
        ranks = follow(Algorithm1(1), start, batch, _rank)
    seen = dict(zip(ranks.times.tolist(), ranks.values.tolist(), strict=True))
    return Factorisation(panel, histories, passes, optimum, seen)


def _counted(loops: int) -> Rule:
    return fa.RecursiveFA(EM(loops), 1.0, centred=False, block_size=1)


def _batch(batch: Batch, start: LowRankCovariance, passes: int, accelerated: bool):
    return run.call(_climb, batch, start, jnp.asarray(np.int64(passes)), accelerated)


def _climb(batch: Batch, start: LowRankCovariance, passes, accelerated: bool) -> LowRankCovariance:
    options = {"tolerance": SMALL_GAIN if accelerated else 0.0, "accelerated": accelerated}
    return fa.batch_em(batch, start, max_passes=passes, centred=False, **options).posterior


def _rank(state) -> int:
    values = np.linalg.svd(np.asarray(state.posterior.covariance.factor), compute_uv=False)
    return int(np.sum(values > RANK_SHARE * values[0]))


def figure_1(quick: bool) -> Result:
    """Covariances of synthetic and real rows."""
    panels, skipped = dict(QUICK if quick else PANELS), []
    found: dict[str, Factorisation] = {}
    for name, panel in panels.items():
        try:
            found[name] = factorise(panel)
        except FileNotFoundError as error:
            skipped.append({"data": panel.label, "method": f"skipped: {error}"})
    real = {name: f for name, f in found.items() if f.panel.rows is not None}
    claims = [_superior(found["synthetic"]), _first_pass(found["synthetic"])]
    claims += [_similar(found["synthetic, higher"])] if not quick else []
    claims += [_better(real)] if real else []
    claims += [_converged(found), _stable(found)]
    title = "Factorisation of a covariance, KL(S ‖ W Wᵀ + Ψ)"
    note = "; ".join(f"{row['data']} skipped" for row in skipped)

    def draw() -> plots.Figure:
        drawn = [_curves(f) for f in list(found.values())[:SHOWN]]
        grid = [drawn[i : i + 2] for i in range(0, len(drawn), 2)]
        size = (0.6 + 7.4 * len(grid[0]), 0.8 + 4.6 * len(grid))
        return plots.compose(grid, title=f"Figure 1. {title} {note}".rstrip(), size=size)

    table = [row for f in found.values() for row in _rows(f)] + skipped
    return Result(1, title, table, claims, draw)


def _rows(f: Factorisation) -> list[dict]:
    panel = {"data": f.panel.label, "d": f.panel.d, "p": f.panel.p, "n": f.panel.n}
    rows = [
        panel | {"method": name, "observations": int(time), "kl": value}
        for name, history in f.histories.items()
        for time, value in zip(history.times, history.values, strict=True)
    ]
    rows += [panel | {"method": f"batch EM, {n} passes", "kl": kl} for n, kl in f.batch.items()]
    rows += [panel | {"method": "batch optimum", "kl": f.optimum}]
    rows += [
        panel
        | {"method": "rank of W, recursive as printed, 1 loop", "observations": t, "rank": rank}
        for t, rank in f.ranks.items()
    ]
    return rows


def _superior(f: Factorisation) -> Claim:
    numbers = {m: f.final(m) for m in ("recursive, 3 loops", "online EM")}
    return Claim(
        f"With 3 inner loops at d = {f.panel.d} it is clearly superior to online EM (half its KL)",
        numbers,
        numbers["recursive, 3 loops"] < numbers["online EM"] / 2,
    )


def _first_pass(f: Factorisation) -> Claim:
    numbers = {"recursive, 3 loops": f.final("recursive, 3 loops")}
    numbers |= {f"batch, {n} passes": f.batch[n] for n in PASSES} | {"optimum": f.optimum}
    return Claim(
        f"With 3 inner loops at d = {f.panel.d} it is superior to batch EM after the first pass",
        numbers,
        numbers["recursive, 3 loops"] < f.batch[1],
    )


def _similar(f: Factorisation) -> Claim:
    numbers = {m: f.final(m) for m in ("recursive, 1 loop", "n₀ = 1, 1 loop", "online EM")}
    return Claim(
        "At d = 1000 one inner loop gives a loss similar to online EM (within a quarter)",
        numbers,
        abs(numbers["recursive, 1 loop"] / numbers["online EM"] - 1) < 0.25,
    )


def _better(found: dict[str, Factorisation]) -> Claim:
    numbers, held = {}, True
    for name, f in found.items():
        ours = f.final("recursive, 3 loops")
        others = {"online": f.final("online EM"), "batch, 5 passes": f.batch[5]}
        numbers |= {f"recursive ({name})": ours}
        numbers |= {f"{m} ({name})": value for m, value in others.items()}
        held &= ours < min(others.values())
    text = "On the real data sets recursive EM (3 loops) is better than online EM and batch EM"
    return Claim(text, numbers, bool(held))


def _converged(found: dict[str, Factorisation]) -> Claim:
    numbers = {}
    for name, f in found.items():
        numbers |= {f"recursive, 3 loops ({name})": f.final("recursive, 3 loops")}
        numbers |= {f"batch optimum ({name})": f.optimum}
        numbers |= {f"eigen, n₀ → 0 ({name})": f.final("eigen, n₀ → 0")}
    held = all(f.final("recursive, 3 loops") < 1.5 * f.optimum for f in found.values())
    text = "Recursive EM converges to the batch result after one pass (KL within a half of the optimum's)"
    return Claim(text, numbers, held)


def _stable(found: dict[str, Factorisation]) -> Claim:
    numbers = {f"rank at t = 1 ({name})": f.ranks[1] for name, f in found.items()}
    numbers |= {
        f"KL with n₀ = {n} ({name})": f.final(method)
        for name, f in found.items()
        for n, method in enumerate(("recursive, 1 loop", "n₀ = 1, 1 loop"))
    }
    return Claim(
        "The start S₀ makes the procedure more stable (W keeps a rank above 1 after the first row)",
        numbers,
        all(f.ranks[1] > 1 for f in found.values()),
    )


def _curves(f: Factorisation) -> plots.Panel:
    levels = {"batch, 5 passes": f.batch[5], "batch optimum": f.optimum}
    late = {name: history.times >= FROM for name, history in f.histories.items()}
    times = {name: history.times[late[name]] for name, history in f.histories.items()}
    curves = {name: history.values[late[name]] for name, history in f.histories.items()}
    look = {"levels": levels, "colours": COLOURS, "xscale": "log", "ylabel": "KL, nats"}
    return partial(pictures.kl_curves, times, curves, title=f.panel.label, **look)
