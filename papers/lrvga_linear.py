"""Figure 2 of the L-RVGA paper: linear regression, KL(q ‖ exact posterior) for several ranks p.

Three versions. The paper's: a row at a time, three inner loops of EM, and the mean moved by the projected
covariance (eqs. 24, 26). The same with the mean of eq. 30, μₜ = μₜ₋₁ + ξ Pₜ₋₁ x, which the projection does
not touch; the library has only this one. And the library's default: growing blocks, the eigen projection.
The precision does not depend on the mean, so the first two are one run.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi import plots
from kalvi.gaussians import Dense, LowRankPrecision
from kalvi.gaussians.divergences import kl
from kalvi.likelihoods import Normal
from kalvi.numerics import precision
from kalvi.numerics.projections import EM, Eigen
from kalvi.rules import factor_analysis as fa
from kalvi.rules.rule import Batch, Rule
from kalvi.rules.rvga import RVGA, Streaming
from kalvi.streams import Schedule, run
from papers import parts, pictures
from papers.lrvga_data import SEED, Rows, linear_rows
from papers.lrvga_history import History, follow, follow_growing, whole
from papers.results import Claim, Result

EPSILON = 1e-8
PAPER, UNPROJECTED, DEFAULT = "paper's mean", "unprojected mean", "default"
VERSIONS = {
    PAPER: "3 loops, the paper's mean",
    UNPROJECTED: "3 loops, unprojected mean",
    DEFAULT: "eigen, growing blocks",
}
EXACT = 1e-6
"""Nats: a divergence below this is that of the Kalman filter."""
FLOOR = 1.0
"""Nats: the least that the picture shows. The Kalman filter ends at zero."""
TIMES, NOTABLE = 60, 1.01
"""How often one looks, and by how much a divergence must rise for it to count."""


class Setting(NamedTuple):
    """A problem of the figure."""

    d: int
    n: int
    ranks: tuple[int, ...]
    largest_block: int = 256

    @property
    def label(self) -> str:
        """Its name."""
        return f"d = {self.d}, N = {self.n}"


SETTINGS = (
    Setting(100, 10_000, (1, 2, 5, 10, 20, 50, 100)),
    Setting(100, 1000, (100,)),  # p = d
    Setting(1000, 3000, (1, 2, 5, 10, 20, 100)),
)
QUICK = (Setting(20, 300, (2, 20), 32),)


class Two(eqx.Module):
    """A posterior, and the mean that the paper's update would give it."""

    streaming: Streaming
    mean: Float[Array, " d"]


class BothMeans(Rule[Two]):
    """One row at a time: R-VGA, and beside it μ ← μ + Pₜ x (y − xᵀμ) with the projected Pₜ."""

    rule: RVGA

    def init(self, prior: LowRankPrecision, *, key: PRNGKeyArray | None = None) -> Two:
        return Two(self.rule.init(prior), prior.mean)

    def update(self, state: Two, batch: Batch, *, key: PRNGKeyArray | None = None) -> Two:
        streaming = self.rule.update(state.streaming, batch)
        x, residual = batch.x[0], batch.y[0] - batch.x[0] @ state.mean
        move = streaming.posterior.matvec(x) * (batch.weight[0] * residual)
        return Two(streaming, state.mean + move)


class Comparison(NamedTuple):
    """Histories by version and rank."""

    setting: Setting
    histories: dict[tuple[str, int], History]
    kalman: History

    def final(self, version: str, rank: int) -> float:
        """The divergence at the end."""
        return self.histories[version, rank].final


def exact(rows: Rows) -> LowRankPrecision:
    """The posterior under the prior N(0, I) and noise of variance 1: its precision is XᵀX + I."""
    gram = rows.x.T @ rows.x
    root = np.linalg.cholesky(gram)
    mean = np.linalg.solve(gram + np.eye(len(gram)), rows.x.T @ rows.y)
    return LowRankPrecision(mean, root, np.ones(len(gram)))


def start(d: int, rank: int, loops: int) -> LowRankPrecision:
    """The paper's start for σ₀ = 1 (section 5.1.2): a share EPSILON of the precision in random factors."""
    parts = fa.start(jnp.zeros(d), jnp.ones(d), rank, key=jr.key(SEED), share=EPSILON).covariance
    return LowRankPrecision(jnp.zeros(d), parts.factor, parts.diag, EM(loops))


def compare(setting: Setting) -> Comparison:
    """All versions and ranks on one problem."""
    found = parts.each(histories_of, [(setting, rank) for rank in setting.ranks])
    histories = {
        (version, rank): history
        for rank, own in zip(setting.ranks, found, strict=True)
        for version, history in own.items()
    }
    (kalman,) = parts.each(kalman_of, [(setting,)])
    return Comparison(setting, histories, kalman)


def histories_of(setting: Setting, rank: int) -> dict[str, History]:
    """Every version at one rank."""
    rows = linear_rows(setting.d, setting.n)
    with precision.matching_precision("float64"):
        target, batch = exact(rows), whole(*rows)
        both = follow(
            _rule(1), start(setting.d, rank, 3), batch, partial(_both, target), times=TIMES
        )
        return {
            UNPROJECTED: History(both.times, both.values[:, 0]),
            PAPER: History(both.times, both.values[:, 1]),
            DEFAULT: _default(setting, rank, rows, target)._replace(last=None),
        }


def _rule(block: int) -> "BothMeans":
    return BothMeans(RVGA(Normal(1.0), block_size=block))


def _both(target: LowRankPrecision, state: Two) -> np.ndarray:
    return np.asarray(run.call(_divergences, target, state))


def _divergences(target: LowRankPrecision, state: Two) -> Array:
    q = state.streaming.posterior
    assert isinstance(q, LowRankPrecision)
    projected = q.with_parts(state.mean, q.precision.factor, q.precision.diag)
    away, back = target.mean - q.mean, target.mean - projected.mean
    first = kl(q, target)
    change = back @ target.precision.matvec(back) - away @ target.precision.matvec(away)
    return jnp.stack([first, first + change / 2])


def _default(setting: Setting, rank: int, rows: Rows, target: LowRankPrecision) -> History:
    prior = LowRankPrecision(
        jnp.zeros(setting.d), jnp.zeros((setting.d, rank)), jnp.ones(setting.d), Eigen()
    )
    rule = RVGA(Normal(1.0), block_size=setting.largest_block)

    def divergence(state: Streaming) -> float:
        return float(run.call(kl, state.posterior, target))

    return follow_growing(rule, prior, *rows, Schedule(setting.largest_block), divergence)


def kalman_of(setting: Setting) -> History:
    """The Kalman filter, row by row."""
    rows = linear_rows(setting.d, setting.n)
    with precision.matching_precision("float64"):
        target, prior = exact(rows), Dense(jnp.zeros(setting.d), jnp.eye(setting.d))

        def divergence(state: Streaming) -> float:
            return float(run.call(kl, state.posterior, target))

        found = follow(RVGA(Normal(1.0), block_size=1), prior, whole(*rows), divergence)
        return found._replace(last=None)


def figure_2(quick: bool) -> Result:
    """Sensitivity to the rank."""
    found = [compare(setting) for setting in (QUICK if quick else SETTINGS)]
    claims = [_kalman_claim(found), _decreases(found), _rises(found), _faster(found)]
    claims += [_second(found), _factor_200(found), _equals_kalman(found), _projected_mean(found)]
    title = "Linear regression, KL to the exact posterior, σ₀ = 1"

    def draw() -> plots.Figure:
        grid = [
            [_curves(c, version) for version in VERSIONS] for c in found if len(c.setting.ranks) > 1
        ]
        size = (18.5, 0.9 + 4.6 * len(grid))
        return plots.compose(grid, title=f"Figure 2. {title}", size=size)

    return Result(2, title, [row for c in found for row in _rows(c)], claims, draw)


def _rows(c: Comparison) -> list[dict]:
    problem = {"d": c.setting.d, "n": c.setting.n}
    rows = [
        problem | {"version": version, "p": rank, "observations": int(time), "kl": value}
        for (version, rank), history in c.histories.items()
        for time, value in zip(history.times, history.values, strict=True)
    ]
    return rows + [
        problem | {"version": "Kalman", "observations": int(time), "kl": value}
        for time, value in zip(c.kalman.times, c.kalman.values, strict=True)
    ]


def _finals(found: list[Comparison], version: str) -> dict[str, float]:
    return {
        f"p = {rank} ({c.setting.label})": c.final(version, rank)
        for c in found
        for rank in c.setting.ranks
    }


def _kalman_claim(found: list[Comparison]) -> Claim:
    numbers = {c.setting.label: c.kalman.final for c in found}
    text = f"The Kalman filter finds the posterior exactly (KL below {EXACT:g})"
    return Claim(text, numbers, max(map(abs, numbers.values())) < EXACT)


def _decreases(found: list[Comparison]) -> Claim:
    numbers = {}
    for c in found:
        first = c.histories[PAPER, c.setting.ranks[0]].values[0]
        numbers |= {f"prior ({c.setting.label})": float(first)}
    held = all(
        c.final(PAPER, rank) < c.histories[PAPER, rank].values[0]
        for c in found
        for rank in c.setting.ranks
    )
    text = "The divergence decreases globally for all latent dimensions (its end below its start)"
    return Claim(text, numbers | _finals(found, PAPER), held)


def _rises(found: list[Comparison]) -> Claim:
    """Section 5.2 and the caption: "may temporary increase", "oscillations occur"."""
    numbers = {}
    for c in found:
        for rank in c.setting.ranks:
            values = c.histories[PAPER, rank].values
            rises = int(np.sum(values[1:] > NOTABLE * values[:-1]))
            numbers[f"rises, p = {rank} ({c.setting.label})"] = rises
    low = [
        count
        for name, count in numbers.items()
        if name.startswith(("rises, p = 1 ", "rises, p = 2 "))
    ]
    text = "At low p (1, 2) the divergence may temporarily increase: it oscillates (rises of 1 %)"
    return Claim(text, numbers, bool(max(low, default=0) > 1))


def _second(found: list[Comparison]) -> Claim:
    c = found[-1]
    rank, others = c.setting.ranks[-1], c.setting.ranks[:-1]
    first = float(c.histories[PAPER, rank].values[0])
    numbers = {"prior": first} | _finals([c], PAPER)
    text = f"After the Kalman filter p = {rank} runs a close second (a twentieth of the prior's KL)"
    own = c.final(PAPER, rank)
    return Claim(
        text, numbers, bool(own < min(c.final(PAPER, r) for r in others) and own < first / 20)
    )


def _factor_200(found: list[Comparison]) -> Claim:
    c = found[-1]
    rank = min(c.setting.ranks, key=lambda r: abs(r - c.setting.d / 200))
    first, last = (float(c.histories[PAPER, rank].values[at]) for at in (0, -1))
    numbers = {"prior": first, f"p = {rank}": last, "share": last / first}
    text = (
        f"Reduced by a factor of 200 (p = {rank}, {c.setting.label}) the solution is still quite close to "
        "the optimal one (a fifth of the prior's KL)"
    )
    return Claim(text, numbers, last < first / 5)


def _faster(found: list[Comparison]) -> Claim:
    held = all(
        c.final(PAPER, high) < c.final(PAPER, low)
        for c in found
        for low, high in pairwise(c.setting.ranks)
    )
    text = "Convergence is faster for higher p (every p ends below the one before)"
    return Claim(text, _finals(found, PAPER), held)


def _equals_kalman(found: list[Comparison]) -> Claim:
    c = next(c for c in reversed(found) if c.setting.ranks[-1] == c.setting.d)
    rank = c.setting.d
    numbers = {name: c.final(version, rank) for version, name in VERSIONS.items()}
    text = (
        f"With p = d = {rank} the algorithm matches the Kalman filter exactly (KL below {EXACT:g})"
    )
    return Claim(text, numbers, abs(numbers[VERSIONS[PAPER]]) < EXACT)


def _projected_mean(found: list[Comparison]) -> Claim:
    numbers = {}
    for c in found:
        for rank in (c.setting.ranks[0], c.setting.ranks[-1]):
            for version in VERSIONS:
                numbers[f"{version}, p = {rank} ({c.setting.label})"] = c.final(version, rank)
    held = all(
        c.final(PAPER, rank) <= c.final(UNPROJECTED, rank)
        for c in found
        for rank in c.setting.ranks
    )
    text = (
        "The mean may be moved with the projected precision (eq. 24: KL not above that of eq. 30)"
    )
    return Claim(text, numbers, held, ours=True)


def _curves(c: Comparison, version: str) -> plots.Panel:
    ranks = c.setting.ranks
    chosen = {f"p = {rank}": c.histories[version, rank] for rank in ranks}
    chosen["Kalman"] = c.kalman
    times = {name: history.times for name, history in chosen.items()}
    curves = {name: np.maximum(history.values, FLOOR) for name, history in chosen.items()}
    step = max(len(pictures.RAMP) // len(ranks), 1)
    colours = dict(zip(chosen, pictures.RAMP[::step], strict=False)) | {"Kalman": plots.INK}
    look = {"colours": colours, "xscale": "log", "ylabel": f"KL, nats ({FLOOR:g} for all below)"}
    return partial(
        pictures.kl_curves, times, curves, title=f"{c.setting.label}: {VERSIONS[version]}", **look
    )
