"""Figure 5 of the L-RVGA paper: mirror prox in two dimensions, full covariances, ten rows."""

from functools import partial
from typing import NamedTuple

import numpy as np

from kalvi import plots
from kalvi.evaluation import metrics
from kalvi.gaussians import Dense
from kalvi.numerics import precision
from kalvi.rules.laplace import laplace
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF, Explicit, Implicit, MirrorProx, Scheme
from kalvi.rules.vga import vga
from kalvi.streams import run
from papers.lrvga_data import SEED, Rows, logistic_rows, seeds
from papers.lrvga_history import whole
from papers.lrvga_logistic import ACCURATE, PROBIT, PrintedMirrorProx, Problem
from papers.results import Claim, Result
from papers.rvga_data import SETTINGS, Setting, rows
from papers.rvga_filters import prior_of
from papers.rvga_plane import log_evidence, posterior_grid

N, STD, SEPARATIONS, DRAWS = 10, 10.0, (6.0, 3.0), 10
PRINTED, PARTLY = "mirror prox", "mirror prox, extra covariance skipped"
CORRECTED = "mirror prox, corrected"
SCHEMES: dict[str, Scheme] = {
    "EKF": EKF(),
    "explicit": Explicit(),
    "implicit": Implicit(),
    PRINTED: PrintedMirrorProx(),
    PARTLY: PrintedMirrorProx(extra_covariance=False),
    CORRECTED: MirrorProx(),
}
PANELS = (
    ("natural gradient (EKF)", ("EKF", "Laplace")),
    ("R-VGA", ("explicit", "implicit", "Laplace")),
    ("mirror prox, printed and corrected", (PRINTED, CORRECTED, "Laplace")),
)
COLOURS = {PRINTED: plots.COLOURS["QKF"], CORRECTED: plots.COLOURS["accurate integrals"]}


class Plane(NamedTuple):
    """Final Gaussians of every method on one set of rows, and their true divergences."""

    separation: float
    rows: Rows
    gaussians: dict[str, tuple[np.ndarray, np.ndarray]]
    kl: dict[str, float]  # unnormalised
    log_evidence: float

    @property
    def setting(self) -> Setting:
        """The prior, as the map of the posterior wants it."""
        return _setting(self.separation)


def _setting(separation: float) -> Setting:
    return Setting("", 5, 2, N, separation, 1.0, 1, STD)


def compare(separation: float, seed: int = SEED) -> Plane:
    """Every method on ten rows."""
    data = logistic_rows(2, N, separation, seed=seed)
    with precision.matching_precision("float64"):
        p = Problem(data, whole(*data), STD)
        prior = p.dense_prior()
        found = {name: _pass(scheme, prior, p) for name, scheme in SCHEMES.items()}
        newton = run.call(laplace, ACCURATE, prior, p.batch).posterior
        best = run.call(vga, ACCURATE, prior, p.batch, found["implicit"]).posterior
        found |= {"Laplace": newton, "best Gaussian": best}
        kl = {name: p.divergence_of(q) for name, q in found.items()}
        gaussians = {name: (np.asarray(q.mean), np.asarray(q.cov)) for name, q in found.items()}
    log_z = log_evidence(*data, _setting(separation), gaussians["best Gaussian"])
    return Plane(separation, data, gaussians, kl, log_z)


def _pass(scheme: Scheme, prior: Dense, p: Problem) -> Dense:
    last = run.fit(RVGA(PROBIT, scheme, block_size=1), prior, [p.batch]).posterior
    assert isinstance(last, Dense)
    return last


def figure_5(quick: bool) -> Result:
    """Ellipses of mirror prox beside the other schemes."""
    draws = seeds(2 if quick else DRAWS)
    found = [compare(separation) for separation in SEPARATIONS]
    others = [compare(separation, seed) for separation in SEPARATIONS for seed in draws[1:]]
    every = [*found, *others]
    claims = [_better(every), _true(every), _corrected(every), _best_of_all(every, wide_prior())]
    title = f"Mirror prox in two dimensions, N = 10, σ₀ = 10; claims on {len(draws)} draws of each"

    def draw() -> plots.Figure:
        grid = [_row(plane) for plane in found]
        return plots.compose(grid, title=f"Figure 5. {title}", size=(15, 9.6))

    return Result(5, title, [row for plane in every for row in _rows(plane)], claims, draw)


def _rows(plane: Plane) -> list[dict]:
    best = plane.kl["best Gaussian"]
    return [
        {"s": plane.separation, "method": name, "kl": kl, "above_best_gaussian": kl - best}
        | {"true_kl": kl + plane.log_evidence}
        for name, kl in plane.kl.items()
    ]


def _means(found: list[Plane], methods: tuple[str, ...], true: bool = False) -> dict[str, float]:
    """Divergences on the rows shown, and their means over all draws."""
    numbers = {}
    for separation in SEPARATIONS:
        planes = [plane for plane in found if plane.separation == separation]
        for method in methods:
            kl = [plane.kl[method] + true * plane.log_evidence for plane in planes]
            numbers[f"{method} (s = {separation:g})"] = kl[0]
            numbers[f"mean of {len(kl)}, {method} (s = {separation:g})"] = float(np.mean(kl))
    return numbers


def _true(found: list[Plane]) -> Claim:
    numbers = _means(found, (PRINTED, "implicit", "EKF", "Laplace"), true=True)
    held = [plane.kl[PRINTED] < plane.kl["EKF"] for plane in found]
    text = (
        "Mirror prox clearly better approximates the posterior than the natural gradient (true KL)"
    )
    return Claim(text, numbers, held)


def _better(found: list[Plane]) -> Claim:
    numbers = _means(found, (PRINTED, PARTLY, "implicit", "explicit"))
    held = [plane.kl[PRINTED] < min(plane.kl["implicit"], plane.kl["explicit"]) for plane in found]
    text = (
        "Mirror prox better approximates the posterior than R-VGA, implicit or explicit (left KL)"
    )
    return Claim(text, numbers, held)


def _corrected(found: list[Plane]) -> Claim:
    numbers = _means(found, (PRINTED, CORRECTED, "implicit"))
    held = [abs(plane.kl[PRINTED] - plane.kl["implicit"]) < 1 for plane in found]
    text = "Mirror prox as printed approximates the implicit scheme (KL within 1 nat of it)"
    return Claim(text, numbers, held)


def wide_prior() -> dict[str, float]:
    """The schemes on the rows of the R-VGA paper's figure 5: σ₀ = 100 and a wrong mean."""
    setting = SETTINGS[5][0]
    data = rows(setting)
    with precision.matching_precision("float64"):
        batch, prior = whole(data.x, data.y), prior_of(setting, 2)
        found = {}
        for name, scheme in SCHEMES.items():
            q = run.fit(RVGA(PROBIT, scheme, block_size=1), prior, [batch]).posterior
            found[name] = -float(run.call(metrics.elbo, q, prior, ACCURATE, batch))
    return found


def _best_of_all(found: list[Plane], wide: dict[str, float]) -> Claim:
    rivals = [name for name in SCHEMES if name != CORRECTED]
    numbers = {f"{m} (σ₀ = 100, |μ₀| = 10)": value for m, value in wide.items()}
    cases = [*(plane.kl for plane in found), wide]
    held = [case[CORRECTED] < min(case[name] for name in rivals) for case in cases]
    text = (
        "Corrected mirror prox is the best of all schemes (all draws of both panels; a wide prior)"
    )
    return Claim(text, numbers, held, ours=True)


def _row(plane: Plane) -> list[plots.Panel]:
    best = plane.gaussians["best Gaussian"]
    also = [plane.gaussians[name] for name in ("implicit", PRINTED, CORRECTED, "EKF", "Laplace")]
    grid = posterior_grid(*plane.rows, plane.setting, best, also)
    return [
        partial(
            plots.ellipses,
            grid,
            {name: plane.gaussians[name] for name in names},
            title=f"s = {plane.separation:g}: {title}",
            colours=COLOURS,
        )
        for title, names in PANELS
    ]
