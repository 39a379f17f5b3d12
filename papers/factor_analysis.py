"""Figures 5.1 and 5.2 of Brownlie (2021), "Extending the Bayesian deep learning method MultiSWAG", MSc
thesis, University of Edinburgh: how well online algorithms learn factor-analysis models.

`FIGURES[name](quick)` gives the numbers, the thesis's claims about them judged by those numbers, and the
picture. The distance of 5.1 is |S − S₀|/|S₀| in the Frobenius norm; the thesis's "2-Wasserstein distance"
in 5.2 is W₂², as its later tables show, and so is ours. Trials differ in the model, the rows and the start.
"""

from collections.abc import Callable
from functools import cache, partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from kalvi import plots
from papers import parts, pictures
from papers.factor_analysis_fits import (
    LAPACK,
    METHODS,
    OPTIMUM,
    PRINTED,
    STREAMS,
    Fit,
    Setting,
    trial,
)
from papers.results import Claim, Result

SGA, EM, OURS, DEFAULT = STREAMS
SPECTRA = ((1, 10), (1, 100), (1, 1000))
TIMES = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
DIMS, TRIALS = (100, 1000), 10
QUICK_TIMES = (100, 500, 2000)
NEAR = 1.25
"""Distances within a quarter of each other are "on par"."""
COLOURS = {
    PRINTED: plots.COLOURS["explicit"],
    LAPACK: plots.QUIET,
    OPTIMUM: plots.INK,
    SGA: plots.COLOURS["accurate integrals"],
    EM: plots.COLOURS["EKF"],
    OURS: plots.COLOURS["QKF"],
    DEFAULT: plots.COLOURS["implicit"],
}


class Panel(NamedTuple):
    """All trials of a setting."""

    setting: Setting
    trials: list[dict[tuple[str, int], Fit]]

    def values(self, method: str, time: int, measure: str) -> np.ndarray:
        """One number for each trial that has it."""
        found = [trial[method, time] for trial in self.trials if (method, time) in trial]
        return np.array([getattr(fit, measure) for fit in found])

    def mean(self, method: str, time: int, measure: str = "distance") -> float:
        """The average over the trials; that of W₂² for "square"."""
        if measure == "square":
            return float(np.mean(self.values(method, time, "wasserstein") ** 2))
        return float(np.mean(self.values(method, time, measure)))

    def error(self, method: str, time: int, measure: str) -> float:
        """The standard error of the average."""
        square = measure == "square"
        values = self.values(method, time, "wasserstein" if square else measure)
        values = values**2 if square else values
        return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0

    def times(self, method: str) -> list[int]:
        """The sample sizes that a method was run with."""
        return [time for time in self.setting.times if (method, time) in self.trials[0]]

    @property
    def methods(self) -> list[str]:
        """Those that were run."""
        return [method for method in METHODS if self.times(method)]

    def excess(self, method: str) -> float:
        """The distance at the end over that of the maximum likelihood."""
        return self.mean(method, self.last) / self.mean(OPTIMUM, self.last)

    @property
    def last(self) -> int:
        return self.setting.times[-1]


@cache
def panels(quick: bool) -> list[Panel]:
    """Every setting; both figures are made of these."""
    wanted = settings(quick)
    each = [(setting, seed) for setting in wanted for seed in range(setting.trials)]
    found = iter(parts.each(trial, each))
    return [Panel(setting, list(islice(found, setting.trials))) for setting in wanted]


def settings(quick: bool) -> list[Setting]:
    """Rows of one spectrum, columns of one dimension."""
    if quick:
        return [Setting(20, 3, s, QUICK_TIMES, 2, QUICK_TIMES) for s in (SPECTRA[0], SPECTRA[2])]
    return [
        Setting(dim, 10, spectrum, TIMES, TRIALS, TIMES[-1:] if dim == 100 else ())
        for spectrum in SPECTRA
        for dim in DIMS
    ]


def figure_5_1(quick: bool) -> Result:
    """Relative distances of the covariances."""
    found = panels(quick)
    claims = [_better(panel, _from(panel)) for panel in found]
    claims += [_on_par(panel) for panel in found]
    claims += [] if quick else [_both_on_par(found[0])]
    claims += [_stuck(next((p for p in found if p.setting.dim == 1000), found[0]))]
    claims += [_conditioning(found), _precise(found), _one_pass(found)]
    title = "Distance of the learned covariance from the true one, |S − S₀|/|S₀|"
    return _result("5.1", title, found, claims, "distance", "relative distance")


def figure_5_2(quick: bool) -> Result:
    """Wasserstein distances."""
    found = panels(quick)
    claims = [_same_order(found)]
    title = "Squared 2-Wasserstein distance of the learned Gaussian from the true one"
    return _result("5.2", title, found, claims, "square", "W₂²")


def _from(panel: Panel) -> int:
    """The sample size from which the thesis finds online EM ahead of SGA."""
    return 100 if panel.setting.spectrum == SPECTRA[0] and panel.setting.dim == 100 else 200


def _better(panel: Panel, first: int) -> Claim:
    """Online EM against SGA; at D = 100 and [1, 10] only below 20,000 rows."""
    easy = panel.setting.spectrum == SPECTRA[0] and panel.setting.dim == 100
    times = [t for t in panel.setting.times if first <= t and not (easy and t >= 20_000)]
    ratios = {f"T = {t}": panel.mean(EM, t) / panel.mean(SGA, t) for t in times}
    text = f"{panel.setting.label}: online EM beats SGA from T = {first} to {times[-1]}"
    return Claim(f"{text} (ratio of distances)", ratios, max(ratios.values()) < 1)


def _on_par(panel: Panel) -> Claim:
    """At the end online EM has caught up with batch SVD, except for the last spectrum."""
    numbers = {m: panel.mean(m, panel.last) for m in panel.methods}
    hard = panel.setting.spectrum == SPECTRA[2]
    matched = _near(panel, EM, panel.last)
    says = "does not match" if hard else "matches"
    label, last = panel.setting.label, panel.last
    text = f"{label}: at T = {last} online EM {says} batch SVD (within a quarter; each trial)"
    return Claim(text, numbers, [one != hard for one in matched])


def _near(panel: Panel, method: str, time: int) -> list[bool]:
    """In which trials a method is on par with batch SVD."""
    own, batch = (panel.values(m, time, "distance") for m in (method, PRINTED))
    return (own < NEAR * batch).tolist()


def _both_on_par(panel: Panel) -> Claim:
    """At D = 100 on [1, 10]."""
    times = [t for t in panel.setting.times if t >= 50_000]
    numbers = {f"{m}, T = {t}": panel.mean(m, t) for t in times for m in (SGA, EM, PRINTED)}
    both = np.all([_near(panel, m, t) for t in times for m in (SGA, EM)], axis=0)
    text = "both online algorithms are on par with batch SVD from T = 50000 (within a quarter; each trial)"
    return Claim(f"{panel.setting.label}: {text}", numbers, both.tolist())


def _stuck(panel: Panel) -> Claim:
    """SGA no longer improves."""
    early, late = panel.last // 5, panel.last
    numbers = {f"T = {t}": panel.mean(SGA, t) for t in panel.setting.times if t >= early}
    text = f"{panel.setting.label}: SGA gets stuck (less than a tenth better than at a fifth of the rows)"
    return Claim(text, numbers, panel.mean(SGA, late) > 0.9 * next(iter(numbers.values())))


def _conditioning(found: list[Panel]) -> Claim:
    """Were the condition to blame, a start in the rows' own scale would not help."""
    easy, hard = found[0], next(p for p in found if p.setting.spectrum == SPECTRA[2])
    numbers = {
        f"{m} {p.setting.spectrum}": p.mean(m, p.last) for m in (EM, OURS) for p in (easy, hard)
    }
    text = (
        "[1, 1000] is harder because of the covariance's condition (ours: by a quarter, at least)"
    )
    ours = [p.mean(OURS, p.last) for p in (easy, hard)]
    return Claim(text, numbers, ours[1] > NEAR * ours[0])


def _precise(found: list[Panel]) -> Claim:
    """The baseline of the thesis."""
    numbers = {p.setting.label: p.excess(PRINTED) for p in found}
    text = "The randomised SVD is sufficiently precise (at the end within a quarter of the optimum)"
    return Claim(text, numbers, max(numbers.values()) < NEAR)


def _one_pass(found: list[Panel]) -> Claim:
    """What one pass can do."""
    numbers = {p.setting.label: p.excess(DEFAULT) for p in found}
    text = "[1, 1000] would take more rows to catch up with batch SVD (our default to the optimum)"
    hard = [p.excess(DEFAULT) for p in found if p.setting.spectrum == SPECTRA[2]]
    return Claim(text, numbers, max(hard) > NEAR, ours=True)


def _same_order(found: list[Panel]) -> Claim:
    """The online algorithms and the batch in the order of their distances, by both measures."""
    compared = (SGA, EM, PRINTED)
    numbers, same = {}, True
    for panel in found:
        both = [
            sorted(compared, key=lambda m, by=by, p=panel: p.mean(m, p.last, by))
            for by in ("distance", "square")
        ]
        same &= both[0] == both[1]
        numbers |= {
            f"{m}, {panel.setting.label}": panel.mean(m, panel.last, "square") for m in compared
        }
    text = "The Wasserstein distances look like those of figure 5.1 (the same order of methods at the end)"
    return Claim(text, numbers, bool(same))


def _result(
    name: str, title: str, found: list[Panel], claims: list[Claim], measure: str, ylabel: str
) -> Result:
    def draw() -> plots.Figure:
        drawn = [_curves(panel, measure, ylabel) for panel in found]
        grid = [drawn[i : i + 2] for i in range(0, len(drawn), 2)]
        size = (0.8 + 7.6 * len(grid[0]), 0.8 + 4.4 * len(grid))
        return plots.compose(grid, title=f"Figure {name}. {title}", size=size)

    return Result(name, title, [row for panel in found for row in _rows(panel)], claims, draw)


def _rows(panel: Panel) -> list[dict]:
    low, high = panel.setting.spectrum
    rows = []
    for method in METHODS:
        for time in panel.times(method):
            row = {"D": panel.setting.dim, "K": panel.setting.rank, "spectrum": f"[{low}, {high}]"}
            row |= {"method": method, "T": time, "trials": len(panel.trials)}
            for measure in ("distance", "wasserstein"):
                values = panel.values(method, time, measure)
                error = (
                    float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else ""
                )
                row |= {measure: float(np.mean(values)), f"{measure} standard error": error}
            row |= {"wasserstein squared": panel.mean(method, time, "square")}
            speed = panel.mean(method, time, "speed")
            rows.append(row | {"rows a second": speed if np.isfinite(speed) else ""})
    return rows


def _curves(panel: Panel, measure: str, ylabel: str) -> plots.Panel:
    times = {m: np.array(panel.times(m)) for m in panel.methods}
    curves = {m: np.array([panel.mean(m, t, measure) for t in times[m]]) for m in times}
    # what was run with the last sample size alone is a level
    levels = {m: float(curves.pop(m)[0]) for m in times if len(times[m]) == 1}
    times = {m: times[m] for m in curves}
    bars = {m: np.array([panel.error(m, t, measure) for t in times[m]]) for m in times}
    title = f"{panel.setting.label}, {len(panel.trials)} trials"
    look = {"colours": COLOURS, "xscale": "log", "ylabel": ylabel, "title": title, "bars": bars}
    return partial(pictures.kl_curves, times, curves, levels=levels, **look)


FIGURES: dict[int | str, Callable[[bool], Result]] = {"5.1": figure_5_1, "5.2": figure_5_2}
