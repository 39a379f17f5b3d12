"""Figure 3 of the L-RVGA paper: implicit L-RVGA for logistic regression, for several ranks p."""

from functools import cache, partial
from typing import NamedTuple

import numpy as np

from kalvi import plots
from kalvi.numerics import precision
from kalvi.numerics.projections import EM
from kalvi.rules.schemes import Implicit
from papers import parts, pictures
from papers.lrvga_data import seeds
from papers.lrvga_history import History
from papers.lrvga_logistic import Problem, References, mode, problem, references, shown
from papers.results import Claim, Result

SPREAD = 1e-3
STD = 4.0
VERSIONS = {
    "1 loop": "a row at a time, 1 loop",
    "3 loops": "a row at a time, 3 loops",
    "default": "eigen, growing blocks",
}


class Setting(NamedTuple):
    """A problem of the figure."""

    d: int
    n: int
    exponent: float  # classes are d^−exponent apart
    ranks: tuple[int, ...]
    thrice: tuple[int, ...]  # ranks that are run with three inner loops too
    draws: int
    largest_block: int = 256

    @property
    def label(self) -> str:
        """Its name."""
        return f"d = {self.d}, N = {self.n}"


SETTINGS = (
    Setting(100, 1000, 0.2, (1, 2, 5, 10, 50), (1, 2, 5, 10, 50), 5),
    Setting(1000, 1000, 0.26, (1, 10, 100), (1, 10, 100), 3),
)
MANY_ROWS = (Setting(1000, 10_000, 0.26, (1, 2, 5, 10, 100), (1, 10), 3),)
QUICK = (Setting(100, 400, 0.2, (1, 10), (10,), 2, 32),)


class Comparison(NamedTuple):
    """Histories by version and rank."""

    setting: Setting
    histories: dict[tuple[str, int], History]
    references: References
    map: np.ndarray  # the mode of the posterior
    others: list["Draw"]

    def final(self, version: str, rank: int) -> float:
        """The divergence at the end."""
        return self.histories[version, rank].final

    def draws(self) -> list["Draw"]:
        """What the paper compares, on the rows that are shown and on others."""
        s = self.setting
        own = {rank: self.final("1 loop", rank) for rank in (s.ranks[0], s.ranks[-1])}
        return [Draw(self.references.laplace, own), *self.others]


class Draw(NamedTuple):
    """Divergences of Laplace and of the lowest and the highest rank, one loop."""

    laplace: float
    ranks: dict[int, float]


def compare(setting: Setting) -> Comparison:
    """All versions and ranks on one problem, and what claims are about on further draws."""
    wanted = [("1 loop", rank) for rank in setting.ranks]
    wanted += [("3 loops", rank) for rank in setting.thrice]
    wanted += [("default", rank) for rank in setting.ranks]
    found = parts.each(history_of, [(setting, *case) for case in wanted])
    others = parts.each(draw_of, [(setting, seed) for seed in seeds(setting.draws)[1:]])
    ((centre, known),) = parts.each(references_of, [(setting,)])
    return Comparison(setting, dict(zip(wanted, found, strict=True)), known, centre, others)


def history_of(setting: Setting, version: str, rank: int) -> History:
    """One pass, with the mean at its end."""
    with precision.matching_precision("float64"):
        p = _problem(setting)
        if version == "default":
            found = p.growing(Implicit(), rank, setting.largest_block)
        else:
            loops = EM(1 if version == "1 loop" else 3)
            found = p.stream(Implicit(), p.low_rank(rank, SPREAD, loops))
    return found._replace(last=np.asarray(found.last.posterior.mean))


def references_of(setting: Setting) -> tuple[np.ndarray, References]:
    """The mode of the posterior, and what keeps every correlation."""
    with precision.matching_precision("float64"):
        p = _problem(setting)
        return np.asarray(mode(p).mean), references(p, Implicit())


def draw_of(setting: Setting, seed: int) -> Draw:
    """Another draw of the rows."""
    with precision.matching_precision("float64"):
        p = problem(setting.d, setting.n, setting.exponent, STD, seed)
        ranks = {
            rank: p.stream(Implicit(), p.low_rank(rank, SPREAD, EM(1))).final
            for rank in (setting.ranks[0], setting.ranks[-1])
        }
        return Draw(p.divergence_of(mode(p)), ranks)


@cache
def _problem(setting: Setting) -> Problem:
    return problem(setting.d, setting.n, setting.exponent, STD)


def figure_3(quick: bool) -> Result:
    """Sensitivity to the rank, with a thousand rows."""
    return _figure(3, QUICK if quick else SETTINGS)


def figure_3b(quick: bool) -> Result:
    """The same with as many rows as the paper has in its second panel, which take far longer."""
    return _figure("3b", QUICK if quick else MANY_ROWS)


def _figure(number: int | str, settings: tuple[Setting, ...]) -> Result:
    found = [compare(setting) for setting in settings]
    claims = [*(_reaches(c) for c in found), *(_even_one(c) for c in found)]
    claims += [_aligned(found), _one_loop(found)]
    title = "Logistic regression, implicit L-RVGA, σ₀ = 4"

    def draw() -> plots.Figure:
        grid = [[_curves(c, version) for version in ("1 loop", "default")] for c in found]
        size = (13.5, 0.9 + 4.6 * len(grid))
        return plots.compose(grid, title=f"Figure {number}. {title}", size=size)

    return Result(number, title, [row for c in found for row in _rows(c)], claims, draw)


def _rows(c: Comparison) -> list[dict]:
    known = {"d": c.setting.d, "n": c.setting.n, "prior_std": STD}
    rows = [
        known | {"version": version, "p": rank, "observations": int(time), "kl": value}
        for (version, rank), history in c.histories.items()
        for time, value in zip(history.times, history.values, strict=True)
    ]
    for name, value in c.references._asdict().items():
        rows.append(known | {"version": name, "observations": c.setting.n, "kl": value})
    for i, draw in enumerate(c.draws()):
        finals = {"laplace": draw.laplace} | {f"1 loop, p = {r}": v for r, v in draw.ranks.items()}
        for name, value in finals.items():
            row = {"version": name, "observations": c.setting.n, "kl": value, "draw": i}
            rows.append(known | row)
    return rows


def _above(draws: list[Draw], rank: int) -> dict[str, float]:
    """Nats above Laplace, over the draws."""
    above = [draw.ranks[rank] - draw.laplace for draw in draws]
    return {f"p = {rank} above Laplace": above[0], "mean": float(np.mean(above))} | {
        "±": float(np.std(above))
    }


def _reaches(c: Comparison) -> Claim:
    rank, draws = c.setting.ranks[-1], c.draws()
    share = [draw.ranks[rank] / draw.laplace for draw in draws]
    text = f"{c.setting.label}: L-RVGA converges to the divergence of Laplace (2 %) or below (p = {rank})"
    known = {"Laplace": c.references.laplace, "full R-VGA": c.references.full}
    numbers = known | {"default": c.final("default", rank)} | _above(draws, rank)
    return Claim(text, numbers, [ratio < 1.02 for ratio in share])


def _even_one(c: Comparison) -> Claim:
    rank, draws = c.setting.ranks[0], c.draws()
    start = float(c.histories["1 loop", rank].values[0])
    numbers = {"prior": start, "Laplace": c.references.laplace} | _above(draws, rank)
    text = (
        f"{c.setting.label}: even with p = {rank} the results are very good (a tenth above Laplace)"
    )
    return Claim(text, numbers, [draw.ranks[rank] < 1.1 * draw.laplace for draw in draws])


def _aligned(found: list[Comparison]) -> Claim:
    numbers = {}
    for c in found:
        for rank in c.setting.ranks:
            mean = c.histories["1 loop", rank].last
            cosine = mean @ c.map / (np.linalg.norm(mean) * np.linalg.norm(c.map))
            numbers[f"p = {rank} ({c.setting.label})"] = float(cosine)
    text = "The estimated mean is roughly aligned with the maximum a posteriori (a cosine of .9)"
    return Claim(text, numbers, [cosine > 0.9 for cosine in numbers.values()])


def _one_loop(found: list[Comparison]) -> Claim:
    gains = {
        f"gain by 3 loops, p = {rank} ({c.setting.label})": c.final("1 loop", rank)
        - c.final("3 loops", rank)
        for c in found
        for rank in c.setting.thrice
    }
    text = "Only one inner loop proves sufficient (three gain less than 1 % at every p)"
    held = [
        c.final("1 loop", rank) < 1.01 * c.final("3 loops", rank)
        for c in found
        for rank in c.setting.thrice
    ]
    return Claim(text, gains, held)


def _curves(c: Comparison, version: str) -> plots.Panel:
    chosen = {f"p = {rank}": c.histories[version, rank] for rank in c.setting.ranks}
    times = {name: history.times for name, history in chosen.items()}
    best = c.references.best
    curves = {name: shown(history, best) for name, history in chosen.items()}
    levels = {"Laplace": c.references.laplace - best, "full R-VGA": c.references.full - best}
    look = {
        "levels": levels,
        "colours": dict(
            zip(chosen, pictures.RAMP[:: len(pictures.RAMP) // len(chosen)], strict=False)
        )
        | {"full R-VGA": plots.COLOURS["accurate integrals"]},
        "xscale": "log",
    }
    return partial(
        pictures.kl_curves, times, curves, title=f"{c.setting.label}: {VERSIONS[version]}", **look
    )
