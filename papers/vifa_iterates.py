"""Do the iterates of SGD follow the posterior? Table 6.1 and figures 6.1 and 6.2 of Brownlie (2021),
"Extending the Bayesian deep learning method MultiSWAG".

1000 rows of a linear regression in two dimensions, x ~ N(0, [1 ½; ½ 1]), θ ~ N(0, I/α), noise of variance
1/β, α = 0.01, β = 0.1, so that the posterior is known: precision α I + β XᵀX. After 500 epochs at a
learning rate of 0.001 the iterates of 100 more are collected, θ ← θ − η (2/M Σ (xᵀθ − y) x + λ θ).

Corrections. The document's λ = α/β = 0.1 belongs to the sum of squares (6.4), but SGD has their mean: the
posterior mean is where λ = 2α/(βN) = 2e-4. Its column "Wasserstein distance" holds W₂².

Windows. The gradient noise of n rows drawn with replacement has a covariance ∝ 1/n. Means of windows of W
batches have the posterior's covariance where n = W M = N and W is long beside 1/(2 η λ_min), the memory of
SGD. Rows drawn without replacement have the finite-population factor (1/n)(1 − n/N): a window of a whole
epoch cancels its own noise, and 1/N is reached at n = N/2, which is why batches of 10 and windows of 50
work.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kalvi import plots
from kalvi.gaussians import Dense
from kalvi.gaussians.divergences import wasserstein
from kalvi.numerics import precision
from kalvi.streams import run
from papers import pictures
from papers.results import Claim, Result

N, ALPHA, BETA = 1000, 0.01, 0.1
RIGHT_DECAY = 2 * ALPHA / (BETA * N)
PRE_EPOCHS, PRE_RATE, PRE_BATCH = 500, 0.001, 100
SEEDS, QUICK_SEEDS = 10, 4
GROUPS, QUICK_GROUPS = 20, 2
"""So many tables of SEEDS trials tell what a table owes to its draw."""
LONG, QUICK_LONG = 1000, 200
"""Epochs of the rows that are not the document's: enough windows to tell a covariance."""
LEVELS, REACH = 4.5, 2.7
"""How many deviations a map reaches from the mean of the posterior, and of the samples, at least."""
SHOWN = 1000
"""Dots drawn at most."""
DOTS = plots.COLOURS["Laplace"]


COLUMNS = ("mean error", "covariance error", "W₂²")


class Setting(NamedTuple):
    """A row of the table: how iterates were made, and how many of them make a sample."""

    rate: float
    decay: float
    batch: int = 100
    window: int = 1
    replaced: bool = False
    long: bool = False

    @property
    def name(self) -> str:
        """In words."""
        words = f"η = {self.rate}, λ = {self.decay:g}"
        if (self.batch, self.window) != (100, 1):
            words += f", batch {self.batch}, window {self.window}"
        return words + (", replaced" if self.replaced else "")


class Problem(NamedTuple):
    """Rows, where training begins, and the posterior."""

    x: np.ndarray
    y: np.ndarray
    start: np.ndarray
    mean: np.ndarray
    cov: np.ndarray


class Score(NamedTuple):
    """Distances from the posterior: relative errors of mean and covariance, and W₂²."""

    mean: float
    cov: float
    square: float


class Trial(NamedTuple):
    """What one seed gave."""

    problem: Problem
    trained: np.ndarray
    samples: np.ndarray
    score: Score


PRINTED = {
    Setting(0.1, 0.1): Score(0.0666, 0.6200, 1.3480),
    Setting(0.1, 0.001): Score(0.0006, 0.8065, 0.0078),
    Setting(0.01, 0.1): Score(0.0620, 1.7110, 1.1776),
    Setting(0.01, 0.001): Score(0.0010, 0.9870, 0.0219),
}
PRINTED_ERRORS = {
    Setting(0.1, 0.1): Score(0.0078, 0.0750, 0.5087),
    Setting(0.01, 0.1): Score(0.0070, 0.6187, 0.4434),
}
"""Where λ = 0.1 distances scale with |θ|², which is drawn anew in each trial."""
RIGHT = Setting(0.1, RIGHT_DECAY)
EPOCH, HALF = Setting(0.1, 0.001, 100, 10), Setting(0.1, 0.001, 10, 50)
WHOLE = Setting(0.1, 0.001, 10, 100)
REPLACED = {
    batch: Setting(0.1, RIGHT_DECAY, batch, N // batch, replaced=True, long=True)
    for batch in (100, 10)
}
SETTINGS = (*PRINTED, RIGHT, EPOCH, HALF, WHOLE, *REPLACED.values())


def problem(seed: int) -> Problem:
    """The rows of one trial and their posterior."""
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(np.zeros(2), [[1, 0.5], [0.5, 1]], N)
    y = x @ rng.normal(0, ALPHA**-0.5, 2) + rng.normal(0, BETA**-0.5, N)
    cov = np.linalg.inv(ALPHA * np.eye(2) + BETA * x.T @ x)
    start = rng.uniform(-(0.5**0.5), 0.5**0.5, 2)
    return Problem(x, y, start, BETA * cov @ (x.T @ y), cov)


def orders(rng: np.random.Generator, n: int, batch: int, epochs: int, replaced: bool) -> np.ndarray:
    """The rows of each batch; an epoch has whole batches only, and without replacement no row twice."""
    shape = (epochs, n // batch * batch)
    rows = rng.integers(n, size=shape) if replaced else rng.permuted(_rows(n, epochs), axis=1)
    return rows[:, : shape[1]].reshape(-1, batch).astype(np.int32)


def _rows(n: int, epochs: int) -> np.ndarray:
    return np.broadcast_to(np.arange(n, dtype=np.int32), (epochs, n)).copy()


def sgd(x, y, theta, order, rate, decay):
    """Every iterate of SGD on the mean squared error with weight decay."""

    def step(theta, rows):
        error = x[rows] @ theta - y[rows]
        theta = theta - rate * (2 * (error @ x[rows]) / rows.shape[0] + decay * theta)
        return theta, theta

    return jax.lax.scan(step, theta, order)[1]


def paths(x, y, starts, order, rate: float, decay: float) -> np.ndarray:
    """The iterates of several runs side by side, each with rows of its own."""
    with precision.matching_precision("float64"):
        arrays = [jnp.asarray(a, dtype=np.float64) for a in (x, y, starts)]
        numbers = [jnp.asarray(a, dtype=np.float64) for a in (rate, decay)]
        return np.asarray(run.call(_paths, *arrays, jnp.asarray(order), *numbers))


def _paths(x, y, starts, order, rate, decay):
    return jax.vmap(sgd, (0, 0, 0, 0, None, None))(x, y, starts, order, rate, decay)


def trials(
    settings: tuple[Setting, ...], quick: bool, groups: int = 1
) -> dict[Setting, list[Trial]]:
    """All seeds in every setting, of one table or of several."""
    problems = [problem(seed) for seed in range(groups * (QUICK_SEEDS if quick else SEEDS))]
    x, y, starts = (np.stack([p[i] for p in problems]) for i in range(3))
    trained = paths(x, y, starts, _orders(problems, PRE_BATCH, PRE_EPOCHS, False), PRE_RATE, 0.0)
    found = {}
    for setting in settings:
        epochs = 100 if not setting.long else QUICK_LONG if quick else LONG
        order = _orders(problems, setting.batch, epochs, setting.replaced)
        path = paths(x, y, trained[:, -1], order, setting.rate, setting.decay)
        windows = path.shape[1] // setting.window
        means = path[:, : windows * setting.window].reshape(len(path), windows, -1, 2).mean(axis=2)
        ends = zip(problems, trained[:, -1], means, strict=True)
        found[setting] = [Trial(p, end, mean, _scored(p, mean)) for p, end, mean in ends]
    return found


def _orders(problems: list[Problem], batch: int, epochs: int, replaced: bool) -> np.ndarray:
    generators = [np.random.default_rng([seed, batch]) for seed in range(len(problems))]
    return np.stack([orders(rng, N, batch, epochs, replaced) for rng in generators])


def _scored(p: Problem, samples: np.ndarray) -> Score:
    return score(p, samples.mean(axis=0), np.cov(samples.T))


def score(p: Problem, mean: np.ndarray, cov: np.ndarray) -> Score:
    """How far a Gaussian is from the posterior."""
    with precision.matching_precision("float64"):
        distance = float(wasserstein(Dense(mean, cov), Dense(p.mean, p.cov)))
    norm = np.linalg.norm
    relative = norm(mean - p.mean) / norm(p.mean), norm(cov - p.cov) / norm(p.cov)
    return Score(float(relative[0]), float(relative[1]), distance**2)


def average(found: list[Trial]) -> Score:
    """The mean over the seeds."""
    return Score(*np.mean([t.score for t in found], axis=0).tolist())


def table_6_1(quick: bool) -> Result:
    """Distances of SGD iterates from the posterior."""
    found = trials(SETTINGS, quick)
    scores = {setting: average(found[setting]) for setting in SETTINGS}
    table = [_row(setting, found[setting]) for setting in SETTINGS]
    claims = [_weak_decay(scores), _all_large(scores), _motivated(scores), _squares(scores)]
    claims += [_impossible(scores), _printed(found), *_other_tables(quick)]
    title = "SGD iterates against the posterior of a linear regression"
    shown = [_shown(row) for row in table]

    def draw() -> plots.Figure:
        return plots.compose(
            [[partial(pictures.table, shown)]], title=f"Table 6.1. {title}", size=(15.5, 5.2)
        )

    return Result("table6.1", title, table, claims, draw)


def _row(setting: Setting, found: list[Trial]) -> dict:
    values = np.array([t.score for t in found])
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    row: dict = {"setting": setting.name, "samples": len(found[0].samples)}
    for i, name in enumerate(COLUMNS):
        row |= {name: float(values[:, i].mean()), f"± ({name})": float(error[i])}
        row |= {f"printed ({name})": PRINTED[setting][i] if setting in PRINTED else None}
    return row


def _shown(row: dict) -> dict[str, str]:
    cells = {"setting": row["setting"], "samples": str(row["samples"])}
    for name in COLUMNS:
        cells |= {name: f"{row[name]:.4f} ± {row[f'± ({name})']:.4f}"}
        printed = row[f"printed ({name})"]
        cells |= {f"printed {name}": "" if printed is None else f"{printed:.4f}"}
    return cells


def _weak_decay(scores: dict[Setting, Score]) -> Claim:
    numbers = {f"mean error ({s.name})": scores[s].mean for s in (*PRINTED, RIGHT)}
    ratios = [scores[Setting(r, 0.1)].mean / scores[Setting(r, 0.001)].mean for r in (0.1, 0.01)]
    text = (
        "The mean of the iterates is far from the posterior's at λ = 0.1, 20 times closer at 0.001"
    )
    return Claim(text, numbers, min(ratios) > 20)


def _all_large(scores: dict[Setting, Score]) -> Claim:
    numbers = {s.name: scores[s].cov for s in PRINTED}
    text = "The covariance of the iterates is far from the posterior's in all four settings (half of it)"
    return Claim(text, numbers, min(numbers.values()) > 0.5)


def _motivated(scores: dict[Setting, Score]) -> Claim:
    chosen = [Setting(0.1, 0.1), Setting(0.1, 0.001), RIGHT]
    numbers = {f"mean error ({s.name})": scores[s].mean for s in chosen}
    text = "λ = α/β = 0.1 is the regularisation under which SGD should follow the posterior"
    return Claim(text, numbers, scores[chosen[0]].mean < scores[RIGHT].mean)


def _squares(scores: dict[Setting, Score]) -> Claim:
    setting = Setting(0.01, 0.001)
    square, printed = scores[setting].square, PRINTED[setting].square
    numbers = {"W₂": square**0.5, "W₂²": square, "printed": printed}
    text = "The last column holds the Wasserstein distance W₂, not its square (η = 0.01, λ = 0.001)"
    return Claim(text, numbers, abs(square**0.5 - printed) < abs(square - printed))


def _impossible(scores: dict[Setting, Score]) -> Claim:
    numbers = {s.name: scores[s].cov for s in SETTINGS[len(PRINTED) :]}
    text = (
        "Even with tuning SGD gives no samples of the posterior, and what works is not motivated by theory "
        "(windows of N/M batches drawn with replacement: a covariance error above a fifth)"
    )
    return Claim(text, numbers, scores[REPLACED[10]].cov > 0.2)


def _printed(found: dict[Setting, list[Trial]]) -> Claim:
    """Rows with λ = 0.1 scale with |θ|² and depend on the seeds; the others can be compared."""
    numbers, held = {}, True
    for setting in (s for s in PRINTED if s.decay == 0.001):
        ours, printed = average(found[setting]), PRINTED[setting]
        numbers |= {f"{n} ({setting.name})": v for n, v in zip(Score._fields, ours, strict=True)}
        held &= (
            abs(ours.cov / printed.cov - 1) < 0.05 and abs(ours.square / printed.square - 1) < 0.15
        )
    text = "The printed covariance errors (5 %) and W₂² (15 %) at λ = 0.001 are met"
    return Claim(text, numbers, bool(held))


def _other_tables(quick: bool) -> list[Claim]:
    """The four printed settings again and again, ten trials each."""
    groups = QUICK_GROUPS if quick else GROUPS
    found = trials(tuple(PRINTED), quick, groups)
    scores = {s: np.array([t.score for t in each]) for s, each in found.items()}
    tables = {s: v.reshape(groups, -1, len(COLUMNS)) for s, v in scores.items()}
    mean = {s: v.mean(axis=1) for s, v in tables.items()}
    error = {s: v.std(axis=1, ddof=1) / np.sqrt(v.shape[1]) for s, v in tables.items()}
    numbers, met = {}, np.ones(groups, bool)
    for s, printed_error in PRINTED_ERRORS.items():
        near = np.abs(mean[s] - np.array(PRINTED[s])) < 2 * np.hypot(error[s], printed_error)
        met &= near.all(axis=1)
        for column, name in enumerate(COLUMNS):
            numbers |= {f"{name} ({s.name})": float(mean[s][:, column].mean())}
            numbers |= {f"± over tables ({name}, {s.name})": float(mean[s][:, column].std())}
    least = np.argmin([mean[s][:, 1] for s in PRINTED], axis=0)
    return [
        Claim(
            "The printed rows at λ = 0.1 are met (two standard errors of both; tables of ten trials)",
            numbers,
            met.tolist(),
        ),
        Claim(
            "The best covariance is at η = 0.1, λ = 0.1 (tables of ten trials)",
            {s.name: float(mean[s][:, 1].mean()) for s in PRINTED},
            (least == 0).tolist(),
        ),
    ]


def figure_6_1(quick: bool) -> Result:
    """Iterates of one trial on the contours of the posterior."""
    found = {s: t[0] for s, t in trials((*PRINTED, RIGHT), quick).items()}
    numbers = {s: _angle(np.cov(t.samples.T), t.problem.cov) for s, t in found.items()}
    claims = [_away(found), _wrong_way(found, numbers), _narrow(found)]
    title = "Iterates of SGD on the posterior of a linear regression"
    return _pictured("6.1", title, found, claims, [[0, 1], [2, 3]])


def figure_6_2(quick: bool) -> Result:
    """Means of windows of iterates."""
    settings = (EPOCH, HALF, REPLACED[10], WHOLE)
    found = trials(settings, quick)
    scores = {s: average(found[s]).cov for s in settings}
    numbers = {s.name: scores[s] for s in settings}
    fails = Claim(
        "Windows of an epoch, N/M = 10 batches of 100, do not sample the posterior (error above a half)",
        numbers,
        scores[EPOCH] > 0.5,
    )
    works = Claim(
        "Batches of 10 and windows of 50 give better samples (a third of the error)",
        numbers,
        scores[HALF] < scores[EPOCH] / 3,
    )
    luck = Claim(
        "That they do is not motivated by theory (an error above a fifth where theory puts the window: "
        "half an epoch without replacement, a whole one with)",
        numbers,
        max(scores[HALF], scores[REPLACED[10]]) > 0.2,
    )
    title = "Means of windows of SGD iterates"
    first = {s: t[0] for s, t in found.items()}
    return _pictured("6.2", title, first, [fails, works, luck], [[0, 1], [3, 2]])


def _away(found: dict[Setting, Trial]) -> Claim:
    numbers = {s.name: _deviations(t, t.samples.mean(axis=0)) for s, t in found.items()}
    numbers |= {"pre-trained": _deviations(*(t := next(iter(found.values())), t.trained))}
    near = [numbers[s.name] for s in found if s.decay <= 0.001]
    far = [numbers[s.name] for s in found if s.decay == 0.1]
    text = "At λ = 0.1 SGD moves away, at 0.001 its mean is right on the posterior's (deviations)"
    return Claim(text, numbers, min(far) > 3 > 1 > max(near))


def _deviations(trial: Trial, theta: np.ndarray) -> float:
    """How far a vector is from the posterior mean, in standard deviations."""
    away = theta - trial.problem.mean
    return float(np.sqrt(away @ np.linalg.solve(trial.problem.cov, away)))


def _wrong_way(found: dict[Setting, Trial], angles: dict[Setting, float]) -> Claim:
    setting = Setting(0.1, 0.001)
    covs = (np.cov(found[setting].samples.T), found[setting].problem.cov)
    numbers = {"degrees between the long axes": angles[setting]}
    names = ("correlation of the iterates", "correlation of the posterior")
    numbers |= {n: c[0, 1] / np.sqrt(c[0, 0] * c[1, 1]) for n, c in zip(names, covs, strict=True)}
    text = "At η = 0.1, λ = 0.001 the covariance points in the wrong direction (by more than 45 degrees)"
    return Claim(text, numbers, angles[setting] > 45)


def _narrow(found: dict[Setting, Trial]) -> Claim:
    ratios = {
        s.name: float(np.sqrt(np.trace(np.cov(t.samples.T)) / np.trace(t.problem.cov)))
        for s, t in found.items()
    }
    text = "At η = 0.01, λ = 0.001 the covariance is far too narrow (a third of the posterior's deviation)"
    return Claim(text, ratios, ratios[Setting(0.01, 0.001).name] < 1 / 3)


def _angle(cov: np.ndarray, other: np.ndarray) -> float:
    """Between the longest axes, in degrees."""
    first, second = (np.linalg.eigh(c)[1][:, -1] for c in (cov, other))
    return float(np.degrees(np.arccos(min(abs(first @ second), 1.0))))


def _pictured(number: str, title: str, found: dict[Setting, Trial], claims, layout) -> Result:
    table = [
        {"setting": s.name, "sample": i, "theta_1": row[0], "theta_2": row[1]}
        for s, t in found.items()
        for i, row in enumerate(t.samples[:SHOWN])
    ]

    def draw() -> plots.Figure:
        drawn = [partial(_map, t, title=s.name) for s, t in found.items()]
        grid = [[drawn[i] for i in row] for row in layout]
        return plots.compose(grid, title=f"Figure {number}. {title}", size=(11.5, 10.5))

    return Result(number, title, table, claims, draw)


@plots.panel
def _map(axes, trial: Trial, *, title: str = "") -> None:
    """Samples on the posterior, with the pre-trained parameters and the samples' own mean."""
    p, samples = trial.problem, trial.samples
    reach = LEVELS * np.sqrt(np.diag(p.cov))
    mean, own = samples.mean(axis=0), REACH * samples.std(axis=0)
    low = np.min([p.mean - reach, mean - own, samples.min(axis=0) - 0.05], axis=0)
    high = np.max([p.mean + reach, mean + own, samples.max(axis=0) + 0.05], axis=0)
    a, b = (np.linspace(low[i], high[i], 200) for i in range(2))
    away = np.stack(np.meshgrid(a, b), axis=-1) - p.mean
    density = -0.5 * np.einsum("...i,ij,...j", away, np.linalg.inv(p.cov), away)
    drawn = {"95 % of their Gaussian": (mean, np.cov(samples.T))}
    plots.ellipses(
        (a, b, density), drawn, title=title, axes=axes, colours=dict.fromkeys(drawn, DOTS)
    )
    dots = {"s": 8, "c": DOTS, "alpha": 0.3, "linewidths": 0, "zorder": 1.5}
    axes.scatter(*samples[:SHOWN].T, **dots, label="samples")
    white = {"ms": 9, "color": "white", "mec": plots.INK, "mew": 1.4, "ls": "", "zorder": 4}
    axes.plot(*trial.trained, "o", **white, label="pre-trained")
    star = {"ms": 13, "color": plots.INK, "mec": "white", "mew": 0.8, "ls": "", "zorder": 5}
    axes.plot(*mean, "*", **star, label="mean of the samples")
    said = f"shaded: 50, 80, 95 and 99 % of the posterior\ncovariance error {trial.score.cov:.2f}"
    axes.text(0.02, 0.02, said, transform=axes.transAxes, fontsize=10, color=plots.QUIET)
    axes.legend(loc="upper right", fontsize=9)
