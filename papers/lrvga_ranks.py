"""Figure 3 of the L-RVGA paper: implicit L-RVGA for logistic regression, for several ranks p."""

from functools import partial
from typing import NamedTuple

import numpy as np

from kalvi import plots
from kalvi.numerics import precision
from kalvi.numerics.projections import EM
from kalvi.rules.schemes import Implicit
from papers import pictures
from papers.lrvga_history import History
from papers.lrvga_logistic import References, problem, references, shown
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
    largest_block: int = 256

    @property
    def label(self) -> str:
        """Its name."""
        return f"d = {self.d}, N = {self.n}"


SETTINGS = (
    Setting(100, 1000, 0.2, (1, 2, 5, 10, 50), (1, 2, 5, 10, 50)),
    Setting(1000, 10_000, 0.26, (1, 10), (1, 10)),
)
QUICK = (Setting(100, 400, 0.2, (1, 10), (10,), 32),)


class Comparison(NamedTuple):
    """Histories by version and rank."""

    setting: Setting
    histories: dict[tuple[str, int], History]
    references: References

    def final(self, version: str, rank: int) -> float:
        """The divergence at the end."""
        return self.histories[version, rank].final


def compare(setting: Setting) -> Comparison:
    """All versions and ranks on one problem."""
    with precision.matching_precision("float64"):
        p = problem(setting.d, setting.n, setting.exponent, STD)
        histories = {}
        for rank in setting.ranks:
            histories["1 loop", rank] = p.stream(Implicit(), p.low_rank(rank, SPREAD, EM(1)))
            if rank in setting.thrice:
                histories["3 loops", rank] = p.stream(Implicit(), p.low_rank(rank, SPREAD, EM(3)))
            histories["default", rank] = p.growing(Implicit(), rank, setting.largest_block)
        return Comparison(setting, histories, references(p, Implicit()))


def figure_3(quick: bool) -> Result:
    """Sensitivity to the rank."""
    found = [compare(setting) for setting in (QUICK if quick else SETTINGS)]
    claims = [_reaches(found), _even_one(found), _one_loop(found)]
    title = "Logistic regression, implicit L-RVGA, σ₀ = 4"

    def draw() -> plots.Figure:
        grid = [[_curves(c, version) for version in ("1 loop", "default")] for c in found]
        size = (13.5, 0.9 + 4.6 * len(grid))
        return plots.compose(grid, title=f"Figure 3. {title}", size=size)

    return Result(3, title, [row for c in found for row in _rows(c)], claims, draw)


def _rows(c: Comparison) -> list[dict]:
    known = {"d": c.setting.d, "n": c.setting.n, "prior_std": STD}
    rows = [
        known | {"version": version, "p": rank, "observations": int(time), "kl": value}
        for (version, rank), history in c.histories.items()
        for time, value in zip(history.times, history.values, strict=True)
    ]
    for name, value in c.references._asdict().items():
        rows.append(known | {"version": name, "observations": c.setting.n, "kl": value})
    return rows


def _finals(c: Comparison, version: str) -> dict[str, float]:
    return {
        f"{version}, p = {rank} ({c.setting.label})": history.final
        for (name, rank), history in c.histories.items()
        if name == version
    }


def _against(found: list[Comparison], *versions: str) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for c in found:
        numbers |= {f"{name} ({c.setting.label})": v for name, v in c.references._asdict().items()}
        for version in versions:
            numbers |= _finals(c, version)
    return numbers


def _reaches(found: list[Comparison]) -> Claim:
    held = all(min(_finals(c, "1 loop").values()) < c.references.laplace + 1 for c in found)
    text = "L-RVGA converges to the batch Laplace divergence or below (for some p within 1 nat)"
    return Claim(text, _against(found, "1 loop", "default"), held)


def _even_one(found: list[Comparison]) -> Claim:
    numbers = {
        f"p = 1 above Laplace ({c.setting.label})": c.final("1 loop", 1) - c.references.laplace
        for c in found
    }
    text = "Even with p = 1 the results are very good (within 10 nats of Laplace)"
    return Claim(text, numbers, max(numbers.values()) < 10)


def _one_loop(found: list[Comparison]) -> Claim:
    gains = {
        f"gain by 3 loops, p = {rank} ({c.setting.label})": c.final("1 loop", rank)
        - c.final("3 loops", rank)
        for c in found
        for rank in c.setting.thrice
    }
    text = "Only one inner loop proves sufficient (three gain less than 1 nat at every p)"
    return Claim(text, gains, max(gains.values()) < 1)


def _curves(c: Comparison, version: str) -> plots.Panel:
    chosen = {f"p = {rank}": c.histories[version, rank] for rank in c.setting.ranks}
    times = {name: np.maximum(history.times, 1) for name, history in chosen.items()}
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
