"""Figure 1 of the L-RVGA paper: the covariance of a stream of rows as W Wᵀ + Ψ, by KL(S ‖ W Wᵀ + Ψ).

S is the covariance of all rows about zero. Algorithm 1 is run as printed and with the start counted as
n₀ = 1 row; online EM as the authors coded it, and ours (the start counts, averages of the second half are
taken apart from the iteration); batch EM; and the library's own way: the eigen projection in blocks of 16,
which needs no random start, with n₀ = 1 and next to none (a row of variance 1/d is much where features
hardly vary about their mean, as in Madelon). Draws differ in rows and start; of real rows in the start.
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
from kalvi.rules.rule import Batch, Rule
from kalvi.streams import run
from papers import lrvga_data, parts, pictures
from papers.lrvga_algorithm1 import Algorithm1
from papers.lrvga_history import History, follow, whole
from papers.lrvga_online import OnlineEMAsCoded
from papers.results import Claim, Result

EPSILON = 1e-8
"""The share of the trace that the authors' start gives to W₀."""
BLOCK = 16
PASSES = (1, 5, 10, 100)
FIVE, DRAWS = 5, 5
COMPARED = ("recursive, 1 loop", "recursive, 3 loops", "online EM")
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
    "online EM, ours": "#e8b28a",
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

    def inputs(self, seed: int = lrvga_data.SEED) -> tuple[np.ndarray, np.ndarray]:
        """The rows, and the random W₀ of norm 1 that follows them in the authors' scripts."""
        if self.rows is None:
            return lrvga_data.synthetic_covariance(self.d, self.p, self.n, seed)
        return self.rows(), lrvga_data.random(seed).standard_normal((self.d, self.p))


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
    p = problem(panel)
    with precision.matching_precision("float64"):
        plain = fa.start(p.start.mean, p.start.covariance.diag / (1 - EPSILON), panel.p)
        rules: dict[str, tuple[Rule, LowRankCovariance, int]] = {
            name: (rule, p.start, 1) for name, rule in _rules(len(p.batch.y)).items()
        }
        rules |= {
            "eigen, n₀ = 1": (fa.RecursiveFA(centred=False), plain, BLOCK),
            "eigen, n₀ → 0": (fa.RecursiveFA(prior_rows=0.0, centred=False), plain, BLOCK),
        }
        histories = {
            name: follow(rule, prior, p.batch, p.divergence, block=block)._replace(last=None)
            for name, (rule, prior, block) in rules.items()
        }
        passes = {n: p.divergence_of(_batch(p.batch, p.start, n, False)) for n in PASSES}
        optimum = p.divergence_of(_batch(p.batch, p.start, 300, True))
        ranks = follow(Algorithm1(1), p.start, p.batch, _rank)
    seen = dict(zip(ranks.times.tolist(), ranks.values.tolist(), strict=True))
    return Factorisation(panel, histories, passes, optimum, seen)


class Problem(NamedTuple):
    """The rows of a panel, their covariance, and the paper's start."""

    batch: Batch
    target: Dense
    start: LowRankCovariance

    def divergence(self, state) -> float:
        """KL from the covariance of the rows."""
        return self.divergence_of(state.posterior)

    def divergence_of(self, q: LowRankCovariance) -> float:
        """The same of a Gaussian."""
        return float(run.call(kl, self.target, q))


def problem(panel: Panel, seed: int = lrvga_data.SEED) -> Problem:
    """One draw of a panel."""
    x, unit = panel.inputs(seed)
    d, p = x.shape[1], panel.p
    with precision.matching_precision("float64"):
        zero, level = jnp.zeros(d), jnp.full(d, 1 / d)
        factor = jnp.sqrt(EPSILON / p) * jnp.asarray(unit / np.linalg.norm(unit, axis=0))
        start = LowRankCovariance(zero, factor, (1 - EPSILON) * level)
        return Problem(whole(x, block=BLOCK), Dense(zero, jnp.asarray(x.T @ x / len(x))), start)


def _rules(n: int) -> dict[str, Rule]:
    """What goes through the rows one by one."""
    return {
        "recursive, 1 loop": Algorithm1(1),
        "recursive, 3 loops": Algorithm1(3),
        "n₀ = 1, 1 loop": _counted(1),
        "n₀ = 1, 3 loops": _counted(3),
        "online EM": OnlineEMAsCoded(),
        "online EM, ours": fa.OnlineEM(average_from=n / 2, centred=False),
    }


class Ends(NamedTuple):
    """Divergences at the end of one draw."""

    one: float  # Algorithm 1 as printed with one inner loop
    three: float
    online: float
    batch: dict[int, float]


def ends(panel: Panel, seed: int) -> Ends:
    """What the paper compares, on one draw."""
    p = problem(panel, seed)
    with precision.matching_precision("float64"):
        rules = _rules(len(p.batch.y))

        def final(name: str) -> float:
            return follow(rules[name], p.start, p.batch, p.divergence).final

        batch = {n: p.divergence_of(_batch(p.batch, p.start, n, False)) for n in (1, FIVE)}
        one, three, online = map(final, COMPARED)
    return Ends(one, three, online, batch)


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
            (found[name],) = parts.each(factorised, [(name, quick)])
        except FileNotFoundError as error:
            skipped.append({"data": panel.label, "method": f"skipped: {error}"})
    draws = {name: _draws(name, f, quick) for name, f in found.items()}
    claims = [_superior(draws["synthetic"]), _first_pass(draws["synthetic"])]
    claims += [_similar(draws["synthetic, higher"])] if not quick else []
    real = {name: draws[name] for name, f in found.items() if f.panel.rows is not None}
    claims += [_better(real)] if real else []
    claims += [_converged(draws), _five(found), _stable(found), _nearer(found)]
    title = "Factorisation of a covariance, KL(S ‖ W Wᵀ + Ψ)"
    note = "; ".join(f"{row['data']} skipped" for row in skipped)

    def draw() -> plots.Figure:
        drawn = [_curves(f) for f in list(found.values())[:SHOWN]]
        grid = [drawn[i : i + 2] for i in range(0, len(drawn), 2)]
        size = (0.6 + 7.4 * len(grid[0]), 0.8 + 4.6 * len(grid))
        return plots.compose(grid, title=f"Figure 1. {title} {note}".rstrip(), size=size)

    table = [row for f in found.values() for row in _rows(f)]
    table += [row for name in draws for row in _end_rows(found[name].panel, draws[name])] + skipped
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


def factorised(name: str, quick: bool) -> Factorisation:
    """A panel by its name."""
    return factorise((QUICK if quick else PANELS)[name])


def ends_of(name: str, quick: bool, seed: int) -> Ends:
    """Another draw of a panel."""
    return ends((QUICK if quick else PANELS)[name], seed)


def _draws(name: str, f: Factorisation, quick: bool) -> list[Ends]:
    """The draw that is shown, and further ones."""
    one, three, online = map(f.final, COMPARED)
    further = lrvga_data.seeds(2 if quick else DRAWS)[1:]
    first = Ends(one, three, online, f.batch)
    return [first, *parts.each(ends_of, [(name, quick, seed) for seed in further])]


def _end_rows(panel: Panel, draws: list[Ends]) -> list[dict]:
    known = {"data": panel.label, "d": panel.d, "p": panel.p, "n": panel.n}
    return [
        known | {"method": name, "observations": panel.n, "kl": kl, "draw": draw}
        for draw, end in enumerate(draws)
        for name, kl in (
            *zip(COMPARED, end[:3], strict=True),
            (f"batch EM, {FIVE} passes", end.batch[FIVE]),
        )
    ]


def _spread(draws: list[Ends], *names: str) -> dict[str, float]:
    """Means and deviations over the draws."""
    numbers: dict[str, float] = {}
    for name in names:
        values = [getattr(end, name) for end in draws]
        words = {"one": "1 loop", "three": "3 loops"}.get(name, name)
        numbers |= {f"{words}, mean": float(np.mean(values)), f"± ({words})": float(np.std(values))}
    return numbers


def _superior(draws: list[Ends]) -> Claim:
    return Claim(
        "With 3 inner loops at d = 100 it is clearly superior to online EM (half its KL)",
        _spread(draws, "three", "online"),
        [end.three < end.online / 2 for end in draws],
    )


def _first_pass(draws: list[Ends]) -> Claim:
    numbers = {f"batch, {n} passes": value for n, value in draws[0].batch.items()}
    return Claim(
        "With 3 inner loops at d = 100 it is superior to batch EM after the first pass",
        _spread(draws, "three") | numbers,
        [end.three < end.batch[1] for end in draws],
    )


def _similar(draws: list[Ends]) -> Claim:
    return Claim(
        "At d = 1000 one inner loop gives a loss similar to online EM (within a half)",
        _spread(draws, "one", "online"),
        [abs(end.one / end.online - 1) < 0.5 for end in draws],
    )


def _better(real: dict[str, list[Ends]]) -> Claim:
    numbers: dict[str, float] = {}
    for name, draws in real.items():
        numbers |= {f"{key} ({name})": v for key, v in _spread(draws, "three", "online").items()}
        numbers |= {f"batch, {FIVE} passes ({name})": draws[0].batch[FIVE]}
    held = [
        end.three < min(end.online, end.batch[FIVE]) for draws in real.values() for end in draws
    ]
    text = "On the real data sets recursive EM (3 loops) is better than online EM and batch EM"
    return Claim(text, numbers, held)


def _converged(draws: dict[str, list[Ends]]) -> Claim:
    numbers, held = {}, []
    for name, found in draws.items():
        three = np.mean([end.three for end in found])
        numbers |= {f"3 loops ({name})": float(three)}
        numbers |= {f"batch, {FIVE} passes ({name})": found[0].batch[FIVE]}
        held += [end.three < 1.1 * end.batch[FIVE] for end in found]
    text = (
        "Recursive EM generally converges to the result of batch EM (5 passes) after only one pass"
    )
    return Claim(text, numbers, held)


def _five(found: dict[str, Factorisation]) -> Claim:
    numbers = {}
    for name, f in found.items():
        numbers |= {f"{n} passes ({name})": f.batch[n] for n in (FIVE, 100)}
        numbers |= {f"optimum ({name})": f.optimum}
    held = [f.batch[FIVE] < 1.5 * f.optimum for f in found.values()]
    return Claim("Five passes are enough for batch EM to converge (a half)", numbers, held)


def _nearer(found: dict[str, Factorisation]) -> Claim:
    numbers, held = {}, []
    for name, f in found.items():
        ours, theirs = f.final("eigen, n₀ → 0"), f.final("recursive, 3 loops")
        numbers |= {f"eigen ({name})": ours, f"recursive, 3 loops ({name})": theirs}
        numbers |= {f"optimum ({name})": f.optimum}
        held.append(ours < theirs)
    text = "The eigen projection in blocks of 16 comes nearer to the optimum than recursive EM"
    return Claim(text, numbers, held, ours=True)


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
