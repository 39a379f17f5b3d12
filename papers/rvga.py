"""The figures of Lambert, Bonnabel & Bach (2022), "The recursive variational Gaussian approximation".

`FIGURES[n](quick)` gives the numbers of figure n, the paper's claims about it judged by those numbers,
and the picture. KL means the unnormalised KL(q ‖ posterior) of eq. 93 (Z = 1), by exact integrals.
Besides the paper's filters there are two references: `accurate integrals`, the implicit scheme without
the inverse-probit approximation, and `best Gaussian`, the batch optimum that no Gaussian can beat.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from kalvi import plots
from kalvi.likelihoods.logistic import BETA
from papers import pictures
from papers.results import Claim, Result, Table
from papers.rvga_data import SETTINGS
from papers.rvga_filters import FILTERS, Comparison, compare
from papers.rvga_plane import Gaussian, log_evidence, posterior_grid
from papers.rvga_scalar import figure_1, figure_2, figure_12, figure_13

KALMAN = ("EKF", "QKF")
SNAPSHOTS = (0.05, 0.1, 0.2, 0.5)
"""Shares of the rows after which figures 14-16 show ellipses."""


def figure_3(quick: bool) -> Result:
    """Two dimensions, a confident prior."""
    c = _comparisons(3)[0]
    return _plane_result(3, c, "σ₀ = 1, |μ₀| = 0.1", [_outperforms([c]), _close_second([c])])


def figure_4(quick: bool) -> Result:
    """Two dimensions, a wide prior."""
    c = _comparisons(4)[0]
    beaten = _claim("The EKF might even beat R-VGA sometimes", [c], ("EKF", "implicit"))
    return _plane_result(4, c, "σ₀ = 10, |μ₀| = 1", [beaten, _close_second([c])])


def figure_5(quick: bool) -> Result:
    """Two dimensions, a very wide prior."""
    confident, c = _comparisons(3)[0], _comparisons(5)[0]
    excess = {
        m: c.final(m) - c.final("best Gaussian") for m in ("implicit", "explicit", "EKF", "QKF")
    }
    gaps = {
        f"σ₀ = {x.setting.prior_std:g}": x.final("explicit") - x.final("implicit")
        for x in (confident, c)
    }
    claims = [
        _outperforms([c]),
        Claim(
            "The EKF may prove unreliable (1000 times R-VGA's excess)",
            excess,
            excess["EKF"] > 1e3 * excess["implicit"],
        ),
        Claim(
            "R-VGA is much less sensitive to large μ₀ or σ₀ (within 1 nat of the best Gaussian)",
            excess,
            excess["implicit"] < 1,
        ),
        Claim(
            "The explicit scheme degrades for large σ₀ (KL above the implicit one)",
            gaps,
            gaps["σ₀ = 100"] > gaps["σ₀ = 1"],
        ),
        _close_second([c]),
    ]
    return _plane_result(5, c, "σ₀ = 100, |μ₀| = 10", claims)


def figure_6(quick: bool) -> Result:
    """Two dimensions, separable data: an asymmetric posterior."""
    c = _comparisons(6)[0]
    return _plane_result(
        6,
        c,
        "Separable data, σ₀ = 10",
        [_outperforms([c]), _beats_laplace([c]), _close_second([c])],
    )


def figure_7(quick: bool) -> Result:
    """Up to 100 dimensions, a confident prior."""
    comparisons = _comparisons(7, quick)
    flat = _comparisons(8, quick)
    spreads = {
        f"{x.setting.label}, σ₀ = {x.setting.prior_std:g}": x.final("EKF") - x.final("implicit")
        for x in comparisons + flat
    }
    n = len(comparisons)
    moderate = max(list(spreads.values())[:n]) < min(list(spreads.values())[n:])
    claims = [
        _outperforms(comparisons),
        Claim(
            "With a weighty prior discrepancies are more moderate (EKF above R-VGA)",
            spreads,
            moderate,
        ),
        _close_second(comparisons),
    ]
    return _dimension_result(7, comparisons, "Dimension d, confident prior σ₀ = 1", claims)


def figure_8(quick: bool) -> Result:
    """Up to 100 dimensions, a flat prior."""
    comparisons = _comparisons(8, quick)
    change = {
        x.setting.label: x.final("accurate integrals") - x.final("implicit") for x in comparisons
    }
    claims = [
        _outperforms(comparisons),
        _beats_laplace(comparisons),
        _close_second(comparisons),
        Claim(
            "The inverse probit may be used indifferently (accurate integrals change KL by < 1 nat)",
            change,
            max(map(abs, change.values())) < 1,
        ),
    ]
    return _dimension_result(8, comparisons, "Dimension d, flat prior σ₀ = 30", claims)


def figure_9(quick: bool) -> Result:
    """Separability in 100 dimensions; the caption's prior and that of the authors' script."""
    comparisons = _comparisons(9, quick)
    groups = [[x for x in comparisons if x.setting.prior_std == std] for std in (10, 1)]
    claims = [_outperforms(comparisons), _close_second(comparisons)]
    claims += [_beats_laplace(group) for group in groups]
    return _dimension_result(
        9, comparisons, "Separation s of the classes, d = 100", claims, columns=len(groups[0])
    )


def figure_10(quick: bool) -> Result:
    """Ill-conditioned inputs in 100 dimensions."""
    comparisons = _comparisons(10, quick)
    claims = [_outperforms(comparisons), _beats_laplace(comparisons), _close_second(comparisons)]
    return _dimension_result(
        10, comparisons, "Ill-conditioning c of the inputs, d = 100, σ₀ = 10", claims
    )


def figure_11(quick: bool) -> Result:
    """Iso-probabilities of predictions on separable data (eq. 62)."""
    c = _comparisons(11)[0]
    reach = 1.6 * np.abs(c.x).max()
    a = np.linspace(-reach, reach, 61 if quick else 161)
    inputs = np.stack(np.meshgrid(a, a), axis=-1).reshape(-1, 2)
    methods = ("implicit", "explicit", "EKF", "QKF", "Laplace", "best Gaussian")
    maps = {m: predictions(inputs, *_last(c, m)) for m in methods}
    confidence = {m: float(np.mean(np.maximum(p, 1 - p))) for m, p in maps.items()}
    plugged = {m: 1 / (1 + np.exp(-inputs @ _last(c, m)[0])) for m in methods}
    excess = max(float(np.max(np.abs(maps[m] - 0.5) - np.abs(plugged[m] - 0.5))) for m in methods)
    ordered = confidence["Laplace"] < confidence["implicit"] < confidence["QKF"]
    claims = [
        Claim(
            "Laplace predicts with low probabilities, the QKF with high, R-VGA between (mean confidence)",
            confidence,
            ordered,
        ),
        Claim(
            "A Bayesian prediction is never more confident than the plug-in (eq. 122)",
            {"largest excess": excess},
            excess <= 1e-12,
        ),
    ]
    table = [
        {"method": m, "mean_confidence": value, "rows": c.source} for m, value in confidence.items()
    ]
    shape = (len(a), len(a))
    panels = [
        partial(pictures.probability_map, a, a, maps[m].reshape(shape), points=(c.x, c.y), title=m)
        for m in methods
    ]
    title = "Iso-probabilities of predictions, σ₀ = 10, N = 300, s = 5"
    return Result(
        11,
        title,
        table,
        claims,
        lambda: plots.compose(
            [panels[:3], panels[3:]], title=f"Figure 11. {title}", size=(13, 8.8)
        ),
    )


def figure_14(quick: bool) -> Result:
    """Two dimensions, overlapping classes, ellipses over time."""
    c = _comparisons(14)[0]
    return _time_result(14, c, [_outperforms([c]), _close_second([c])])


def figure_15(quick: bool) -> Result:
    """Two dimensions, separated classes, ellipses over time."""
    c = _comparisons(15)[0]
    return _time_result(15, c, [_outperforms([c]), _beats_laplace([c]), _close_second([c])])


def figure_16(quick: bool) -> Result:
    """Two dimensions, far separated classes, ellipses over time."""
    c = _comparisons(16)[0]
    return _time_result(16, c, [_outperforms([c]), _beats_laplace([c]), _close_second([c])])


FIGURES: dict[int, Callable[[bool], Result]] = {
    1: figure_1,
    2: figure_2,
    3: figure_3,
    4: figure_4,
    5: figure_5,
    6: figure_6,
    7: figure_7,
    8: figure_8,
    9: figure_9,
    10: figure_10,
    11: figure_11,
    12: figure_12,
    13: figure_13,
    14: figure_14,
    15: figure_15,
    16: figure_16,
}


def predictions(inputs: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """E σ(xᵀθ) by the paper's closed form (eq. 62)."""
    k = BETA / np.sqrt(np.einsum("ni,ij,nj->n", inputs, cov, inputs) + BETA**2)
    return 1 / (1 + np.exp(-k * (inputs @ mean)))


def _comparisons(number: int, quick: bool = False) -> list[Comparison]:
    """The panels of a figure; of each prior only the first where it should be quick."""
    settings = SETTINGS[number]
    if quick:
        firsts = {setting.prior_std: setting for setting in reversed(settings)}
        settings = [setting for setting in settings if setting in firsts.values()]
    return [compare(setting, 1 if setting.dim == 2 else 5) for setting in settings]


def _claim(text: str, comparisons: Sequence[Comparison], order: Sequence[str]) -> Claim:
    """That final divergences increase in the given order, in every panel."""
    numbers = {_named(c, m): c.final(m) for c in comparisons for m in order}
    held = all(c.final(m) < c.final(n) for c in comparisons for m, n in pairwise(order))
    return Claim(text, numbers, held)


def _outperforms(comparisons: Sequence[Comparison]) -> Claim:
    numbers = {_named(c, m): c.final(m) for c in comparisons for m in ("implicit", *KALMAN)}
    held = all(c.final("implicit") < c.final(m) for c in comparisons for m in KALMAN)
    return Claim("R-VGA outperforms the EKF and the QKF", numbers, held)


def _close_second(comparisons: Sequence[Comparison]) -> Claim:
    numbers = {
        _named(c, m): c.final(m) for c in comparisons for m in ("implicit", "explicit", *KALMAN)
    }
    held = all(
        c.final("implicit") < c.final("explicit") < min(c.final(m) for m in KALMAN)
        for c in comparisons
    )
    return Claim("The explicit scheme runs second, before the EKF and the QKF", numbers, held)


def _beats_laplace(comparisons: Sequence[Comparison]) -> Claim:
    std = comparisons[0].setting.prior_std
    return _claim(
        f"R-VGA beats the batch Laplace approximation (σ₀ = {std:g})",
        comparisons,
        ("implicit", "Laplace"),
    )


def _named(c: Comparison, method: str) -> str:
    return f"{method} ({c.setting.label})" if c.setting.label else method


def _last(c: Comparison, method: str) -> Gaussian:
    path = c.paths[method]
    return path.mean[-1], path.cov[-1]


def _table(comparisons: Sequence[Comparison]) -> Table:
    """Final divergences, with the true ones where log Z is known."""
    table = []
    for c in comparisons:
        s, best = c.setting, c.final("best Gaussian")
        log_z = log_evidence(c.x, c.y, s, _last(c, "best Gaussian")) if s.dim == 2 else np.nan
        for method, kl in c.finals().items():
            row = {"rows": c.source, "d": s.dim, "n": s.n_samples, "s": s.separation, "c": s.decay}
            row |= {
                "prior_std": s.prior_std,
                "prior_norm": s.prior_norm,
                "method": method,
                "kl": kl,
            }
            table.append(row | {"above_best_gaussian": kl - best, "true_kl": kl + log_z})
    return table


def _curves(c: Comparison, title: str) -> plots.Panel:
    best = c.final("best Gaussian")
    curves = {method: c.paths[method].kl - best for method in FILTERS}
    return partial(
        pictures.kl_curves,
        c.times,
        curves,
        levels={"Laplace": c.final("Laplace") - best},
        title=title,
    )


def _plane_result(number: int, c: Comparison, note: str, claims: list[Claim]) -> Result:
    """Data and curves above, final ellipses on the true posterior below."""

    def draw() -> plots.Figure:
        grid = posterior_grid(
            c.x,
            c.y,
            c.setting,
            _last(c, "best Gaussian"),
            [_last(c, m) for m in ("implicit", "Laplace")],
        )
        groups = (("implicit", "explicit"), ("EKF",), ("QKF",))
        below = [
            partial(
                plots.ellipses, grid, {m: _last(c, m) for m in (*group, "Laplace")}, title=title
            )
            for group, title in zip(groups, ("R-VGA", "EKF", "QKF"), strict=True)
        ]
        above = [partial(plots.scatter, c.x, c.y, title="Data"), _curves(c, "KL to the posterior")]
        return plots.compose([above, below], title=f"Figure {number}. {note}", size=(13, 8.6))

    return Result(number, note, _table([c]), claims, draw)


def _dimension_result(
    number, comparisons, note: str, claims: list[Claim], columns: int = 3
) -> Result:
    """One panel of curves for each setting."""

    def draw() -> plots.Figure:
        panels = [_curves(c, c.setting.label) for c in comparisons]
        grid = [panels[i : i + columns] for i in range(0, len(panels), columns)]
        size = (0.6 + 5.2 * len(grid[0]), 0.8 + 4.0 * len(grid))
        return plots.compose(grid, title=f"Figure {number}. {note}", size=size)

    return Result(number, note, _table(comparisons), claims, draw)


def _time_result(number: int, c: Comparison, claims: list[Claim]) -> Result:
    """Data and curves above, ellipses over time below."""
    excess = {m: c.final(m) - c.final("best Gaussian") for m in ("implicit", "Laplace")}
    claims = [
        *claims,
        Claim(
            "R-VGA consistently yields good performance (within 2 nats of the best Gaussian)",
            excess,
            excess["implicit"] < 2,
        ),
        Claim(
            "The batch Laplace covariance is accurate (within 2 nats of the best Gaussian)",
            excess,
            excess["Laplace"] < 2,
        ),
    ]
    moments = [int(share * c.setting.n_samples) for share in SNAPSHOTS]

    def past(method: str) -> list[Gaussian]:
        return [(c.paths[method].mean[t], c.paths[method].cov[t]) for t in moments]

    def draw() -> plots.Figure:
        grid = posterior_grid(
            c.x,
            c.y,
            c.setting,
            _last(c, "best Gaussian"),
            [_last(c, m) for m in ("implicit", "Laplace", "EKF")],
        )
        below = [
            partial(
                plots.ellipses,
                grid,
                {m: _last(c, m) for m in (*group, "Laplace")},
                history={m: past(m) for m in group},
                title=f"{title}, after {', '.join(map(str, moments))} and all rows",
            )
            for group, title in ((("implicit", "explicit"), "R-VGA"), (KALMAN, "EKF and QKF"))
        ]
        above = [partial(plots.scatter, c.x, c.y, title="Data"), _curves(c, "KL to the posterior")]
        return plots.compose(
            [above, below],
            title=f"Figure {number}. s = {c.setting.separation:g}, σ₀ = 10",
            size=(13, 9.6),
        )

    return Result(number, f"Separability s = {c.setting.separation:g}", _table([c]), claims, draw)
