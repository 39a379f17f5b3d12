"""Figure 4 and table 3 of the L-RVGA paper: expectations by samples.

Figure 4 is mirror prox without the extra covariance update in three forms. "as coded" is what the authors'
scripts run: projected between the halves, the mean moved with what was projected, the same normal numbers
at every row (`lrvga_as_coded`). "printed" projects a row once, after both halves, and moves the mean with
the unprojected covariance (eqs. 141-143); "corrected" adds the term that these equations lack. Both draw
afresh for every row. Table 3 samples N(μ, (W Wᵀ + Ψ)⁻¹) with W and Ψ of the authors' test.
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from kalvi import plots
from kalvi.gaussians import Gaussian, LowRankPrecision
from kalvi.numerics import precision
from kalvi.numerics.projections import EM
from kalvi.rules.schemes import Implicit, MirrorProx
from papers import pictures
from papers.lrvga_data import SEED, random, seeds
from papers.lrvga_history import History
from papers.lrvga_logistic import (
    ACCURATE,
    PrintedMirrorProx,
    References,
    mode,
    problem,
    references,
    shown,
)
from papers.results import Claim, Result

RANK, SPREAD, EXPONENT = 10, 1e-2, 0.15
CODED = "as coded"
SCHEMES = {"printed": PrintedMirrorProx, "corrected": MirrorProx}
DRAWS = {100: 5, 1000: 3}
COLOURS = {
    "analytic": plots.COLOURS["accurate integrals"],
    "K = 1": plots.COLOURS["QKF"],
    "K = 10": plots.COLOURS["EKF"],
    "K = 100": plots.COLOURS["explicit"],
}


class Draw(NamedTuple):
    """What the paper compares, on one draw of the rows: divergences at the end."""

    laplace: float
    analytic: float
    ten: float  # K = 10
    twice: float  # with the extra covariance update
    implicit: float


class Comparison(NamedTuple):
    """Histories by scheme ("as coded", "printed", …) and expectations ("analytic", "K = 10", …)."""

    d: int
    n: int
    std: float
    histories: dict[tuple[str, str], History]
    references: References
    others: list[Draw]

    @property
    def label(self) -> str:
        """Its name."""
        return f"d = {self.d}, σ₀ = {self.std:g}"

    def final(self, scheme: str, expectations: str) -> float:
        """The divergence at the end."""
        return self.histories[scheme, expectations].final

    def draws(self) -> list[Draw]:
        """Those shown first."""
        own = Draw(
            laplace=self.references.laplace,
            analytic=self.final(CODED, "analytic"),
            ten=self.final(CODED, "K = 10"),
            twice=self.final(CODED, "covariance twice"),
            implicit=self.final("implicit", "analytic"),
        )
        return [own, *self.others]


def compare(d: int, n: int, std: float, draws: tuple[int, ...], quick: bool) -> Comparison:
    """Every scheme on one problem."""
    with precision.matching_precision("float64"):
        p = problem(d, n, EXPONENT, std)
        prior = p.low_rank(RANK, SPREAD, EM(1))
        histories = {(CODED, "analytic"): p.stream_as_coded(prior)}
        histories[CODED, "covariance twice"] = p.stream_as_coded(prior, extra_covariance=True)
        for name, scheme in SCHEMES.items():
            histories[name, "analytic"] = p.stream(scheme(extra_covariance=False), prior)
            histories[name, "covariance twice"] = p.stream(scheme(), prior)
        for k in draws:
            histories[CODED, f"K = {k}"] = p.stream_as_coded(prior, k)
            for name, scheme in SCHEMES.items():
                skipping = scheme(extra_covariance=False)
                histories[name, f"K = {k}"] = p.stream(skipping, prior, samples=k)
        histories["implicit", "analytic"] = p.stream(Implicit(), prior)
        others = [_draw(d, n, std, seed) for seed in seeds(2 if quick else DRAWS[d])[1:]]
        return Comparison(d, n, std, histories, references(p, Implicit()), others)


def _draw(d: int, n: int, std: float, seed: int) -> Draw:
    p = problem(d, n, EXPONENT, std, seed)
    prior = p.low_rank(RANK, SPREAD, EM(1))
    return Draw(
        p.divergence_of(mode(p)),
        p.stream_as_coded(prior).final,
        p.stream_as_coded(prior, 10).final,
        p.stream_as_coded(prior, extra_covariance=True).final,
        p.stream(Implicit(), prior).final,
    )


def figure_4(quick: bool) -> Result:
    """Sampled expectations under three priors."""
    sizes, draws = ((100, 400),) if quick else ((100, 1000), (1000, 1000)), (1, 10, 100)
    stds, draws = ((1.0, 3.0), (1, 10)) if quick else ((1.0, 2.0, 3.0), draws)
    found = [compare(d, n, std, draws, quick) for d, n in sizes for std in stds]
    claims = [_enough(found), _analytic(found), _skipping(found), _unstable(found)]
    claims += [_implicit(found), _correction(found)]
    title = "Mirror prox with sampled expectations, p = 10, N = " + str(sizes[0][1])

    def draw() -> plots.Figure:
        panels = [_curves(c, draws, scheme) for scheme in (CODED, "corrected") for c in found]
        grid = [panels[i : i + len(stds)] for i in range(0, len(panels), len(stds))]
        size = (0.6 + 6 * len(grid[0]), 0.9 + 4.6 * len(grid))
        return plots.compose(grid, title=f"Figure 4. {title}", size=size)

    return Result(4, title, [row for c in found for row in _rows(c)], claims, draw)


def _rows(c: Comparison) -> list[dict]:
    known = {"d": c.d, "n": c.n, "prior_std": c.std}
    rows = [
        known | {"scheme": scheme, "expectations": how, "observations": int(time), "kl": value}
        for (scheme, how), history in c.histories.items()
        for time, value in zip(history.times, history.values, strict=True)
    ]
    for name, value in c.references._asdict().items():
        rows.append(known | {"scheme": name, "observations": c.n, "kl": value})
    for i, draw in enumerate(c.draws()):
        for name, value in draw._asdict().items():
            rows.append(
                known | {"scheme": f"draw: {name}", "observations": c.n, "kl": value, "draw": i}
            )
    return rows


def _numbers(found: list[Comparison], one: str, other: str) -> dict[str, float]:
    """Of two columns of the draws: the first above the second, mean and deviation."""
    numbers = {}
    for c in found:
        above = [getattr(draw, one) - getattr(draw, other) for draw in c.draws()]
        numbers |= {c.label: float(np.mean(above)), f"± ({c.label})": float(np.std(above))}
    return numbers


def _within(found: list[Comparison], one: str, other: str, share: float) -> list[bool]:
    return [
        getattr(draw, one) < (1 + share) * getattr(draw, other) for c in found for draw in c.draws()
    ]


def _enough(found: list[Comparison]) -> Claim:
    hardest = [c for c in found if c.std == max(other.std for other in found)]
    text = (
        "K = 10 samples are sufficient even in the most difficult case to converge to the divergence of "
        "Laplace (within a tenth; nats above it)"
    )
    numbers = _numbers(hardest, "ten", "laplace")
    return Claim(text, numbers, _within(hardest, "ten", "laplace", 0.1))


def _analytic(found: list[Comparison]) -> Claim:
    text = (
        "Mirror prox with K = 10 samples reaches the baseline by integrals (a tenth; nats above it)"
    )
    numbers = _numbers(found, "ten", "analytic")
    return Claim(text, numbers, _within(found, "ten", "analytic", 0.1))


def _skipping(found: list[Comparison]) -> Claim:
    text = "Skipping the extra covariance update helps convergence (a lower KL; nats gained)"
    numbers = _numbers(found, "twice", "analytic")
    return Claim(text, numbers, _within(found, "analytic", "twice", 0.0))


def _unstable(found: list[Comparison]) -> Claim:
    numbers = {
        f"{name} ({c.label})": max(getattr(draw, name) for draw in c.draws())
        for c in found
        for name in ("twice", "analytic")
    }
    text = "The extra covariance update can make mirror prox unstable (twice the KL; largest of the draws)"
    held = any(draw.twice > 2 * draw.analytic for c in found for draw in c.draws())
    return Claim(text, numbers, held)


def _implicit(found: list[Comparison]) -> Claim:
    text = "Mirror prox approximates the implicit scheme (within a tenth of its KL; nats above it)"
    numbers = _numbers(found, "analytic", "implicit")
    held = _within(found, "analytic", "implicit", 0.1)
    return Claim(text, numbers, held)


def _correction(found: list[Comparison]) -> Claim:
    numbers = {}
    for c in found:
        for scheme in (CODED, *SCHEMES):
            numbers[f"{scheme} ({c.label})"] = c.final(scheme, "analytic")
        numbers |= {f"implicit ({c.label})": c.final("implicit", "analytic")}
    held = [c.final("corrected", "analytic") < c.final(CODED, "analytic") for c in found]
    text = (
        "Corrected and projected once, mirror prox (one covariance update) ends lower than as coded"
    )
    return Claim(text, numbers, held, ours=True)


def _curves(c: Comparison, draws: tuple[int, ...], scheme: str) -> plots.Panel:
    names = ["analytic", *(f"K = {k}" for k in draws)]
    histories = {name: c.histories[scheme, name] for name in names}
    histories["implicit"] = c.histories["implicit", "analytic"]
    best = c.references.best
    return partial(
        pictures.kl_curves,
        {name: history.times for name, history in histories.items()},
        {name: shown(history, best) for name, history in histories.items()},
        levels={"Laplace": c.references.laplace - best},
        colours=COLOURS,
        xscale="log",
        title=f"{c.label}, {scheme}",
    )


def table_3(quick: bool) -> Result:
    """Ensemble sampling against the closed form and against the dense Cholesky root."""
    d, p, m, repeats = (500, 10, 10, 100) if quick else (10_000, 10, 10, 100)
    before, numbers = random(), random()
    before.standard_normal((m, d))  # the scripts draw their samples before x
    with precision.matching_precision("float64"):
        x = 5 * before.uniform(size=d) / d
        factor, mean = numbers.uniform(size=(d, p)), numbers.uniform(size=d)
        q = LowRankPrecision(mean, factor, np.arange(1, d + 1.0))
        truth = _closed_form(q, x)
        sampled = {
            "ensemble sampling": _sampled(q, x, m, repeats),
            "Cholesky sampling": _sampled(q.to_dense(), x, m, repeats),
        }
    rows = [{"method": "closed form", "trace": truth[0], "expectation": truth[1]}]
    for name, draws in sampled.items():
        first, spread = draws[0], draws.std(axis=0)
        row = {"method": name, "trace": first[0], "expectation": first[1]}
        rows.append(row | {"sd_of_trace": spread[0], "sd_of_expectation": spread[1]})
    claims = [_unbiased(sampled, truth), _similar(sampled, truth)]
    claims += [] if quick else [_baseline(truth)]
    title = f"Ensemble sampling, d = {d}, p = {p}, {m} samples"
    words = [{k: v if isinstance(v, str) else f"{v:.6g}" for k, v in row.items()} for row in rows]
    words[0] |= {"sd_of_trace": "", "sd_of_expectation": ""}
    return Result(
        "table3",
        title,
        rows,
        claims,
        lambda: plots.compose(
            [[partial(pictures.table, words)]], title=f"Table 3. {title}", size=(10, 2.6)
        ),
    )


def _closed_form(q: LowRankPrecision, x: np.ndarray) -> np.ndarray:
    """tr Σ and E σ(xᵀθ)."""
    mean, cov = q.marginal(jnp.asarray(x)[None, :])
    expected, _ = ACCURATE.predict(mean[0], cov[0, 0])
    return np.array([float(jnp.sum(q.variance())), float(expected)])


def _sampled(q: Gaussian, x: np.ndarray, m: int, repeats: int) -> np.ndarray:
    """The same two from m draws, so many times over."""
    theta = np.asarray(q.sample(jr.key(SEED), m * repeats))
    square = np.sum((theta - np.asarray(q.mean)) ** 2, axis=1)
    chance = 1 / (1 + np.exp(-theta @ x))
    return np.stack([square, chance], axis=1).reshape(repeats, m, 2).mean(axis=1)


def _unbiased(sampled: dict[str, np.ndarray], truth: np.ndarray) -> Claim:
    draws = sampled["ensemble sampling"]
    error = (draws.mean(axis=0) - truth) / (draws.std(axis=0) / np.sqrt(len(draws)))
    numbers = {"trace, standard errors away": error[0], "expectation": error[1]}
    text = (
        "Ensemble sampling draws from N(μ, (W Wᵀ + Ψ)⁻¹) (Proposition 1: within 4 standard errors)"
    )
    return Claim(text, numbers, bool(np.max(np.abs(error)) < 4))


def _baseline(truth: np.ndarray) -> Claim:
    numbers = {"trace": truth[0], "printed trace": 9.24, "E σ": truth[1], "printed E σ": 0.773801}
    held = bool(abs(truth[0] - 9.24) < 0.01 and abs(truth[1] - 0.773801) < 1e-6)
    return Claim("The baseline has the printed trace (.01) and expectation (1e-6)", numbers, held)


def _similar(sampled: dict[str, np.ndarray], truth: np.ndarray) -> Claim:
    numbers = {"closed form": truth[1]}
    spread = sampled["Cholesky sampling"].std(axis=0)
    for name, draws in sampled.items():
        numbers |= {f"{name}, trace": draws[0, 0], f"{name}, expectation": draws[0, 1]}
    away = np.abs(sampled["ensemble sampling"][0] - sampled["Cholesky sampling"][0]) / spread
    text = "It achieves similar results as Cholesky sampling (10 samples, within 4 deviations)"
    return Claim(text, numbers, bool(np.all(away < 4 * np.sqrt(2))))
