"""The figures of Lambert, Bonnabel & Bach (2022), "The recursive variational Gaussian approximation".

`FIGURES[n](quick)` gives the numbers of figure n, the paper's claims about it judged by those numbers,
and the picture. KL means the unnormalised KL(q ‖ posterior) of eq. 93 (Z = 1), by exact integrals.
Besides the paper's filters there are two references: `accurate integrals`, the implicit scheme without
the inverse-probit approximation, and `best Gaussian`, the batch optimum that no Gaussian can beat.
"""

from collections.abc import Callable
from functools import cache, partial

import numpy as np

from kalvi import plots
from kalvi.likelihoods.logistic import BETA
from papers import pictures
from papers import rvga_claims as claims
from papers.results import Claim, Result, Table
from papers.rvga_claims import KALMAN
from papers.rvga_data import SETTINGS, Setting
from papers.rvga_filters import FILTERS, Comparison, compare
from papers.rvga_nuts import table_nuts
from papers.rvga_plane import Gaussian, divergences, log_evidence, posterior_grid
from papers.rvga_scalar import figure_1, figure_2, figure_12, figure_13

SNAPSHOTS = (0.05, 0.1, 0.2, 0.5)
"""Shares of the rows after which figures 14-16 show ellipses."""
PLANE_DRAWS, HIGH_DRAWS, QUICK_DRAWS = 20, 5, 2
"""Data sets, the figure's own among them, on which claims about the order of methods are judged."""


def figure_3(quick: bool) -> Result:
    """Two dimensions, a confident prior."""
    draws = _draws(3, quick)
    return _plane_result(3, draws, [claims.outperforms(draws), claims.close_second(draws)])


def figure_4(quick: bool) -> Result:
    """Two dimensions, a wide prior."""
    draws = _draws(4, quick)
    return _plane_result(4, draws, [claims.ekf_may_win(draws), claims.close_second(draws)])


def figure_5(quick: bool) -> Result:
    """Two dimensions, a very wide prior."""
    draws = _draws(5, quick)
    found = [claims.outperforms(draws), *claims.wide_prior(_draws(3, quick), draws)]
    return _plane_result(5, draws, [*found, claims.close_second(draws)])


def figure_6(quick: bool) -> Result:
    """Two dimensions, separable data: an asymmetric posterior."""
    draws = _draws(6, quick)
    found = [claims.outperforms(draws), claims.may_beat_laplace(draws), claims.close_second(draws)]
    first, *others = [c for (c,) in draws]
    measured = [_divergences(first, tuple(first.paths))]
    measured += [_divergences(c, ("implicit", "Laplace")) for c in others]
    result = _plane_result(6, draws, [*found, claims.other_divergences(draws, measured)])
    table = [row | measured[0].get(row["method"], {}) for row in result.table]
    return result._replace(table=table)


def figure_7(quick: bool) -> Result:
    """Up to 100 dimensions, a confident prior."""
    draws = _draws(7, quick)
    found = [claims.outperforms(draws), claims.moderate(draws, _draws(8, quick))]
    note = f"Dimension d, confident prior σ₀ = 1, N = {draws[0][0].setting.n_samples}"
    return _dimension_result(7, draws, note, [*found, claims.close_second(draws)])


def figure_8(quick: bool) -> Result:
    """Up to 100 dimensions, a flat prior."""
    draws = _draws(8, quick)
    found = [claims.outperforms(draws), claims.may_beat_laplace(draws)]
    found += [claims.close_second(draws), claims.indifferent(draws)]
    note = f"Dimension d, flat prior σ₀ = 30, N = {draws[0][0].setting.n_samples}"
    return _dimension_result(8, draws, note, found)


def figure_9(quick: bool) -> Result:
    """Separability in 100 dimensions; the caption's prior and that of the authors' script."""
    draws = _draws(9, quick)
    found = [claims.outperforms(draws), claims.close_second(draws)]
    for std in (10, 1):
        group = [[c for c in panels if c.setting.prior_std == std] for panels in draws]
        found.append(claims.may_beat_laplace(group, f" (σ₀ = {std})"))
    columns = len([c for c in draws[0] if c.setting.prior_std == 10])
    note = "Separation s of the classes, d = 100, N = 200"
    return _dimension_result(9, draws, note, found, columns=columns)


def figure_10(quick: bool) -> Result:
    """Ill-conditioned inputs in 100 dimensions."""
    draws = _draws(10, quick)
    found = [claims.outperforms(draws), claims.may_beat_laplace(draws)]
    note = "Ill-conditioning c of the inputs, d = 100, N = 200, σ₀ = 10"
    return _dimension_result(10, draws, note, [*found, claims.close_second(draws)])


def figure_11(quick: bool) -> Result:
    """Iso-probabilities of predictions on separable data (eq. 62)."""
    draws = [c for (c,) in _draws(11, quick, HIGH_DRAWS)]
    c, methods = draws[0], ("implicit", "explicit", "EKF", "QKF", "Laplace", "best Gaussian")
    reach = 1.6 * np.abs(c.x).max()
    a = np.linspace(-reach, reach, 61 if quick else 161)
    inputs = np.stack(np.meshgrid(a, a), axis=-1).reshape(-1, 2)
    maps = [{m: predictions(inputs, *_last(d, m)) for m in methods} for d in draws]
    confidence = [
        {m: float(np.mean(np.maximum(p, 1 - p))) for m, p in drawn.items()} for drawn in maps
    ]
    plugged = {m: 1 / (1 + np.exp(-inputs @ _last(c, m)[0])) for m in methods}
    excess = [np.max(np.abs(maps[0][m] - 0.5) - np.abs(plugged[m] - 0.5)) for m in methods]
    found = [
        Claim(
            "Laplace predicts with low probabilities, the QKF with high, R-VGA between (mean confidence)",
            confidence[0],
            [one["Laplace"] < one["implicit"] < one["QKF"] for one in confidence],
        ),
        Claim(
            "A Bayesian prediction is never more confident than the plug-in (eq. 122)",
            {"largest excess": float(max(excess))},
            bool(max(excess) <= 1e-12),
        ),
    ]
    table = [
        {"method": m, "mean_confidence": value, "rows": c.source}
        for m, value in confidence[0].items()
    ]
    shape = (len(a), len(a))
    panels = [
        partial(
            pictures.probability_map, a, a, maps[0][m].reshape(shape), points=(c.x, c.y), title=m
        )
        for m in methods
    ]
    title = f"Iso-probabilities of predictions, σ₀ = 10, N = {len(c.y)}, s = 5"
    return Result(
        11,
        title,
        table,
        found,
        lambda: plots.compose(
            [panels[:3], panels[3:]], title=f"Figure 11. {title}", size=(13, 8.8)
        ),
    )


def figure_14(quick: bool) -> Result:
    """Two dimensions, overlapping classes, ellipses over time."""
    return _time_result(14, _draws(14, quick))


def figure_15(quick: bool) -> Result:
    """Two dimensions, separated classes, ellipses over time."""
    return _time_result(15, _draws(15, quick))


def figure_16(quick: bool) -> Result:
    """Two dimensions, far separated classes, ellipses over time."""
    return _time_result(16, _draws(16, quick))


FIGURES: dict[int | str, Callable[[bool], Result]] = {
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
    "nuts": table_nuts,
}


def predictions(inputs: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """E σ(xᵀθ) by the paper's closed form (eq. 62)."""
    k = BETA / np.sqrt(np.einsum("ni,ij,nj->n", inputs, cov, inputs) + BETA**2)
    return 1 / (1 + np.exp(-k * (inputs @ mean)))


@cache
def _draws(number: int, quick: bool, count: int | None = None) -> list[list[Comparison]]:
    """The panels of a figure on its own rows and on others by the same recipe."""
    settings = _settings(number, quick)
    plane = settings[0].dim == 2
    count = QUICK_DRAWS if quick else count or (PLANE_DRAWS if plane else HIGH_DRAWS)
    return [
        [compare(s._replace(seed=s.seed + 100 * draw), 1 if plane else 5) for s in settings]
        for draw in range(count)
    ]


def _settings(number: int, quick: bool) -> tuple[Setting, ...]:
    """The panels of a figure; of each prior only the first where it should be quick."""
    settings = SETTINGS[number]
    firsts = {setting.prior_std: setting for setting in reversed(settings)}
    return tuple(s for s in settings if not quick or s in firsts.values())


def _divergences(c: Comparison, methods: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Left, right and Jensen-Shannon divergence of some methods from the true posterior."""
    best = _last(c, "best Gaussian")
    return {m: divergences(c.x, c.y, c.setting, best, _last(c, m)) for m in methods}


def _last(c: Comparison, method: str) -> Gaussian:
    path = c.paths[method]
    return path.mean[-1], path.cov[-1]


def _table(draws: list[list[Comparison]]) -> Table:
    """Final divergences, with the true ones where log Z is known; draw 0 is the one of the picture."""
    return [
        row | {"draw": draw}
        for draw, panels in enumerate(draws)
        for c in panels
        for row in _rows(c, log_z=draw == 0 and c.setting.dim == 2)
    ]


def _rows(c: Comparison, log_z: bool) -> Table:
    s, best = c.setting, c.final("best Gaussian")
    known = {"rows": c.source, "seed": s.seed, "d": s.dim, "n": s.n_samples, "s": s.separation}
    known |= {"c": s.decay, "prior_std": s.prior_std, "prior_norm": s.prior_norm}
    shift = log_evidence(c.x, c.y, s, _last(c, "best Gaussian")) if log_z else None
    return [
        known
        | {"method": method, "kl": kl, "above_best_gaussian": kl - best}
        | {"true_kl": None if shift is None else kl + shift}
        for method, kl in c.finals().items()
    ]


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


def _both_curves(c: Comparison) -> list[plots.Panel]:
    """Above the best Gaussian, and as the paper has it: unnormalised, with Z = 1."""
    raw = {method: c.paths[method].kl for method in FILTERS}
    levels = {method: c.final(method) for method in ("Laplace", "best Gaussian")}
    look = {"levels": levels, "title": "as in the paper, Z = 1", "ylabel": "unnormalised KL, nats"}
    return [_curves(c, "KL to the posterior"), partial(pictures.kl_curves, c.times, raw, **look)]


def _plane_result(number: int, draws: list[list[Comparison]], found: list[Claim]) -> Result:
    """Data and curves above, final ellipses on the true posterior below."""
    c = draws[0][0]
    s = c.setting
    note = f"σ₀ = {s.prior_std:g}, |μ₀| = {s.prior_norm:g}, s = {s.separation:g}, N = {len(c.y)}"

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
        above = [partial(plots.scatter, c.x, c.y, title="Data"), *_both_curves(c)]
        return plots.compose([above, below], title=f"Figure {number}. {note}", size=(16.5, 8.8))

    return Result(number, note, _table(draws), found, draw)


def _dimension_result(
    number: int,
    draws: list[list[Comparison]],
    note: str,
    found: list[Claim],
    columns: int = 3,
) -> Result:
    """One panel of curves for each setting."""

    def draw() -> plots.Figure:
        panels = [_curves(c, c.setting.label) for c in draws[0]]
        grid = [panels[i : i + columns] for i in range(0, len(panels), columns)]
        size = (0.6 + 5.2 * len(grid[0]), 0.8 + 4.0 * len(grid))
        return plots.compose(grid, title=f"Figure {number}. {note}", size=size)

    return Result(number, note, _table(draws), found, draw)


def _time_result(number: int, draws: list[list[Comparison]]) -> Result:
    """Data and curves above, ellipses over time below."""
    c = draws[0][0]
    found = [claims.outperforms(draws), claims.close_second(draws), *claims.good_performance(draws)]
    note = f"s = {c.setting.separation:g}, σ₀ = 10, N = {len(c.y)}"
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
        above = [partial(plots.scatter, c.x, c.y, title="Data"), *_both_curves(c)]
        return plots.compose([above, below], title=f"Figure {number}. {note}", size=(16.5, 9.6))

    return Result(number, note, _table(draws), found, draw)
