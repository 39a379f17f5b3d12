"""VIFA where the posterior is known: table 6.2 and figure 6.3 of Brownlie (2021), "Extending the Bayesian
deep learning method MultiSWAG".

The rows are those of `vifa_iterates`: 1000 of a linear regression in two dimensions. With two factors
q = N(c, F Fᵀ + diag ψ) can be the posterior, so that all errors are those of the descent. Batches of 100,
ten steps an epoch, 2000 epochs in the document.

Corrections. Line 8 of Algorithm 3 prints 1/M where N/M belongs: the data count as one row, and q is on its
way to the posterior tempered by 1/N. After 2000 epochs its covariance is 700 times too large.

Table 6.2 is no target. The author's public code of that time had no gradient of the entropy, the mean
squared error for −log p (no β, no N) and η_F = 0.0001. Such a q shrinks to a point, and 2000 epochs are
where it passes the width of the posterior: `WithoutEntropy` comes close to the printed numbers
there, and is far from them at half and at twice as many epochs.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array

from kalvi import plots
from kalvi.gaussians import LowRankCovariance, LowRankPrecision
from kalvi.likelihoods import Normal
from kalvi.numerics import precision
from kalvi.predictors.models import Model
from kalvi.predictors.networks import make_network
from kalvi.rules import vifa
from kalvi.rules.rule import Batch
from kalvi.rules.vifa.gradients import Estimate, Estimator
from kalvi.rules.vifa.rule import divergence_slopes
from kalvi.streams import run
from papers import pictures
from papers.results import Claim, Result
from papers.vifa_iterates import ALPHA, BETA, N, Problem, Score, problem, score

SEEDS, QUICK_SEEDS = 10, 3
BATCH, FACTORS, EPOCHS = 100, 2, 2000
PRINTED = Score(0.0072, 0.2055, 0.0162)
BEST_SGD = 0.62
"""The smallest covariance error of table 6.1."""
COV_GOAL, MEAN_GOAL = 0.05, 0.001

TEMPERED, RATES, SLOW = "1/M, as printed", "N/M, the document's rates", "N/M, η_c = 0.001"
DRAWS = "N/M, η_c = 0.001, η_F = 0.0001, ten draws"
NO_ENTROPY = "no entropy, η_F = 0.0001"
ADAM, PAIR, ONE = "N/M, Adam", "ours: antithetic pairs", "ours, but single draws"
GAUSS_NEWTON, TWIN = "ours: Gauss–Newton", "ours: low-rank precision"
QUICK = (TEMPERED, RATES, NO_ENTROPY, GAUSS_NEWTON)
COLOURS = {
    TEMPERED: plots.COLOURS["Laplace"],
    RATES: plots.COLOURS["EKF"],
    NO_ENTROPY: plots.COLOURS["QKF"],
    ADAM: plots.QUIET,
    PAIR: plots.COLOURS["explicit"],
    GAUSS_NEWTON: plots.COLOURS["implicit"],
    TWIN: plots.COLOURS["accurate integrals"],
}


class WithoutEntropy(Estimator):
    """One draw, and a share of the entropy's gradient taken away again: all of it at 0, none at 1."""

    kept: Array = eqx.field(converter=jnp.asarray, default=1.0)

    def __call__(self, model, q, batch, total, *, key) -> Estimate:
        found = vifa.Single()(model, q, batch, total, key=key)
        zero = jnp.zeros((), q.mean.dtype)
        lost = jax.tree.map(lambda s: (1 - self.kept) * s, divergence_slopes(q, zero, zero))
        return found._replace(slopes=jax.tree.map(jnp.subtract, found.slopes, lost))


class Method(NamedTuple):
    """A way of descending, its first q, and the epochs after which its errors are told."""

    rule: Any
    start: Callable
    told: tuple[int, ...]


class Descents(NamedTuple):
    """q after each epoch, for each seed."""

    problems: list[Problem]
    mean: np.ndarray  # seed, epoch, 2
    cov: np.ndarray  # seed, epoch, 2, 2
    told: tuple[int, ...]

    def scores(self, epochs: int) -> np.ndarray:
        """Those of the seeds that have not diverged, one a row."""
        scores = [self.score(seed, epochs) for seed in range(len(self.problems))]
        return np.array([s for s in scores if np.isfinite(s).all()]).reshape(-1, 3)

    def score(self, seed: int, epochs: int) -> Score:
        """How far one seed is from its posterior."""
        mean, cov = self.gaussian(seed, epochs)
        finite = np.isfinite(mean).all() and np.isfinite(cov).all()
        return score(self.problems[seed], mean, cov) if finite else Score(*[np.inf] * 3)

    def gaussian(self, seed: int, epochs: int) -> tuple[np.ndarray, np.ndarray]:
        """q of one seed."""
        return self.mean[seed, epochs - 1], self.cov[seed, epochs - 1]

    def diverged(self) -> int:
        """Seeds without a q at the end."""
        return len(self.problems) - len(self.scores(self.told[-1]))


def methods(quick: bool) -> dict[str, Method]:
    """All rows of the table; the numbers of plain descents are arguments of one program."""
    linear = make_network(_linear, jnp.zeros(FACTORS), jnp.zeros(FACTORS))[0]
    model, squares = Model(linear, Normal(1 / BETA)), Model(linear, Normal(0.5))
    rule = partial(vifa.VIFA, batch_size=BATCH)

    def plain(n_samples: float, rates: tuple, model=model, estimator=None, told=(EPOCHS,)):
        step, estimator = vifa.Plain(*rates), estimator or WithoutEntropy()
        descent = rule(model, n_samples, ALPHA, estimator=estimator, step=step)
        return Method(descent, document_start, told)

    n = float(N)  # an integer would be another program
    twice = (EPOCHS,) if quick else (EPOCHS, 2 * EPOCHS)
    adam = vifa.Transform(optax.adam(optax.cosine_decay_schedule(0.02, EPOCHS * N // BATCH)))
    newton = rule(model, n, ALPHA, estimator=vifa.GaussNewton())
    found = {
        TEMPERED: plain(1.0, (0.01, 0.001, 0.01)),
        RATES: plain(n, (0.01, 0.001, 0.01)),
        SLOW: plain(n, (0.001, 0.001, 0.01)),
        DRAWS: plain(n, (0.001, 0.0001, 0.01), estimator=vifa.Single(10)),
        NO_ENTROPY: plain(1.0, (0.01, 0.0001, 0.01), squares, WithoutEntropy(0.0), twice),
        ADAM: Method(
            rule(model, n, ALPHA, estimator=vifa.Single(), step=adam), document_start, (EPOCHS,)
        ),
        ONE: Method(rule(model, n, ALPHA, estimator=vifa.Single(2)), own_start, (100,)),
        PAIR: Method(rule(model, n, ALPHA), own_start, (100,)),
        GAUSS_NEWTON: Method(newton, own_start, (20, 100)),
        TWIN: Method(
            vifa.PrecisionVI(model, n, ALPHA, batch_size=BATCH), precision_start, (20, 100)
        ),
    }
    return {name: found[name] for name in QUICK} if quick else found


def _linear(theta, x):
    return theta @ x


def document_start(rule, batch: Batch, key) -> LowRankCovariance:
    """c = 0, orthonormal factors, ψ = 1."""
    factor = jnp.linalg.qr(jr.normal(key, (FACTORS, FACTORS), batch.x.dtype))[0]
    zero = jnp.zeros_like(batch.x[0])
    return LowRankCovariance(zero, factor, jnp.ones_like(zero))


def own_start(rule, batch: Batch, key) -> LowRankCovariance:
    """c = 0, and widths from the curvature of the first rows."""
    first = jax.tree.map(lambda a: a[:BATCH], batch)
    return rule.start(jnp.zeros_like(batch.x[0]), FACTORS, first, key=key)


def precision_start(rule, batch: Batch, key) -> LowRankPrecision:
    """The prior."""
    zero = jnp.zeros_like(batch.x[0])
    return LowRankPrecision(zero, jnp.zeros((len(zero), FACTORS), zero.dtype), zero + ALPHA)


@cache
def descents(quick: bool) -> dict[str, Descents]:
    """Every method on every seed."""
    problems = [problem(seed) for seed in range(QUICK_SEEDS if quick else SEEDS)]
    found = {}
    with precision.matching_precision("float64"):
        x, y = (jnp.asarray(np.stack([p[i] for p in problems])) for i in range(2))
        for name, (rule, start, told) in methods(quick).items():
            keys = jr.split(jr.key(0), len(problems))
            keys = jax.vmap(lambda key, n=told[-1]: jr.split(key, n + 1))(keys)
            mean, cov = run.call(_descents, rule, start, x, y, keys)
            found[name] = Descents(problems, np.asarray(mean), np.asarray(cov), told)
    return found


def _descents(rule, start, x, y, keys):
    def one(x, y, keys):
        batch = Batch(x, y, jnp.ones_like(y))

        def epoch(state, key):
            state = rule.update(state, batch, key=key)
            q = state.posterior
            return state, (q.mean, q.covariance.to_dense())

        return jax.lax.scan(epoch, rule.init(start(rule, batch, keys[0])), keys[1:])[1]

    return jax.vmap(one)(x, y, keys)


def table_6_2(quick: bool) -> Result:
    """Distances of VIFA from the posterior."""
    found = descents(quick)
    table = [_row(name, found[name], n) for name in found for n in found[name].told]
    claims = [_approximates(found), _better_than_sgd(found), _converged(found)]
    claims += [] if quick else [_one_draw(found)]
    claims += [_squares(found), _goal(found)]
    title = "Variational inference against the posterior of a linear regression"
    printed = {"method": "printed in table 6.2", "steps": str(EPOCHS * N // BATCH), "diverged": ""}
    printed |= {name: f"{value:.4f}" for name, value in zip(NAMES, _told(PRINTED), strict=True)}
    shown = [_shown(row) for row in table] + [printed]

    def draw() -> plots.Figure:
        size = (14.5, 1.2 + 0.36 * len(shown))
        return plots.compose(
            [[partial(pictures.table, shown)]], title=f"Table 6.2. {title}", size=size
        )

    return Result("table6.2", title, table, claims, draw)


NAMES = ("mean error", "covariance error", "W₂", "W₂²")


def _told(values) -> np.ndarray:
    """Errors of mean and covariance, W₂ and W₂²."""
    mean, cov, square = np.asarray(values).T
    return np.stack([mean, cov, np.sqrt(square), square], axis=-1)


def _row(name: str, found: Descents, epochs: int) -> dict:
    """Means over the seeds that have not diverged, with standard errors."""
    values = _told(found.scores(epochs))
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    diverged = len(found.problems) - len(values)
    row: dict = {"method": name, "steps": epochs * N // BATCH, "diverged": diverged}
    for i, column in enumerate(NAMES):
        row |= {column: float(values[:, i].mean()), f"± ({column})": float(error[i])}
    return row


def _shown(row: dict) -> dict[str, str]:
    cells = {"method": row["method"], "steps": str(row["steps"])}
    cells |= {"diverged": str(row["diverged"] or "")}
    return cells | {c: f"{_plain(row[c], 2)} ± {_plain(row[f'± ({c})'], 1)}" for c in NAMES}


def _plain(value: float, digits: int) -> str:
    """So many digits that count, without a power of ten."""
    return np.format_float_positional(value, digits, fractional=False, trim="-")


def _cov(found: dict[str, Descents], name: str) -> float:
    return float(found[name].scores(found[name].told[-1])[:, 1].mean())


def _approximates(found) -> Claim:
    numbers = {f"covariance error ({name})": _cov(found, name) for name in (TEMPERED, GAUSS_NEWTON)}
    text = "Algorithm 3 as printed approximates the posterior directly (a covariance error below 1)"
    return Claim(text, numbers, numbers[f"covariance error ({TEMPERED})"] < 1)


def _better_than_sgd(found) -> Claim:
    numbers = {f"covariance error ({name})": _cov(found, name) for name in (RATES, GAUSS_NEWTON)}
    numbers |= {"diverged": found[RATES].diverged(), "best of SGD, printed": BEST_SGD}
    text = (
        "With N/M, variational inference at the document's learning rates has a much better covariance "
        "than SGD iterates, and no trial diverges"
    )
    held = numbers["diverged"] == 0 and _cov(found, RATES) < BEST_SGD
    return Claim(text, numbers, held, ours=True)


def _converged(found) -> Claim:
    """What the printed numbers are like, and what becomes of them."""
    at = {n: found[NO_ENTROPY].scores(n) for n in (EPOCHS // 2, *found[NO_ENTROPY].told)}
    numbers = {f"covariance error (epoch {n})": float(v[:, 1].mean()) for n, v in at.items()}
    numbers |= {"printed": PRINTED.cov}
    first, second, *_ = numbers.values()
    text = (
        "The printed errors are those of a converged q (as they come about, without entropy: half of the "
        "epochs give no more than twice the error)"
    )
    return Claim(text, numbers, first < 2 * second, ours=True)


def _one_draw(found) -> Claim:
    """Two independent draws against a pair: as many gradients."""
    numbers = {f"covariance error ({name})": _cov(found, name) for name in (ONE, PAIR)}
    text = "Plain draws suffice (two independent ones have no more than twice the error of a pair c ± δ)"
    return Claim(text, numbers, _cov(found, ONE) < 2 * _cov(found, PAIR), ours=True)


def _squares(found) -> Claim:
    square = float(found[NO_ENTROPY].scores(EPOCHS)[:, 2].mean())
    numbers = {"W₂": square**0.5, "W₂²": square, "printed": PRINTED.square}
    text = "The last column holds the Wasserstein distance W₂, not its square (as the numbers come about)"
    return Claim(text, numbers, abs(square**0.5 - PRINTED.square) < abs(square - PRINTED.square))


def _goal(found) -> Claim:
    names = [name for name in (GAUSS_NEWTON, TWIN) if name in found]
    values = {name: found[name].scores(100).mean(axis=0) for name in names}
    numbers = {f"mean error ({name})": float(v[0]) for name, v in values.items()}
    numbers |= {f"covariance error ({name})": float(v[1]) for name, v in values.items()}
    text = f"Ours: errors below {COV_GOAL} (covariance) and {MEAN_GOAL} (mean) within 1000 steps"
    held = all(v[0] < MEAN_GOAL and v[1] < COV_GOAL for v in values.values())
    return Claim(text, numbers, held, ours=True)


def figure_6_3(quick: bool) -> Result:
    """The posterior and q of one trial, and how the errors fall."""
    found = descents(quick)
    names = (TEMPERED, NO_ENTROPY, GAUSS_NEWTON)
    ends = {name: found[name].gaussian(0, found[name].told[0]) for name in names[:2]}
    ends |= {GAUSS_NEWTON: found[GAUSS_NEWTON].gaussian(0, 100)}
    posterior = found[TEMPERED].problems[0]
    curves = {name: _course(found[name]) for name in COLOURS if name in found}
    table = [
        {"method": name, "step": int(step), "covariance error": float(value)}
        for name, (steps, values) in curves.items()
        for step, value in zip(steps, values, strict=True)
    ]
    title = "The posterior of a linear regression and its approximations"

    def draw() -> plots.Figure:
        far = {"the posterior": (posterior.mean, posterior.cov), TEMPERED: ends[TEMPERED]}
        wide = partial(_map, posterior, far, title="Algorithm 3 as printed")
        near = {NO_ENTROPY: ends[NO_ENTROPY], GAUSS_NEWTON: ends[GAUSS_NEWTON]}
        close = partial(
            _map, posterior, near, title="Where the printed numbers come from, and ours"
        )
        panels = [[wide, close], [partial(_falling, curves)]]
        return plots.compose(panels, title=f"Figure 6.3. {title}", size=(12.5, 10.5))

    return Result("6.3", title, table, [_entries(ends, posterior)], draw)


def _entries(ends: dict[str, tuple[np.ndarray, np.ndarray]], p: Problem) -> Claim:
    numbers, worst = {}, {}
    for name, (mean, cov) in ends.items():
        away = mean - p.mean
        worst[name] = float(np.abs(cov / p.cov - 1).max())
        numbers[f"worst entry of the covariance, relative ({name})"] = worst[name]
        numbers[f"deviations between the means ({name})"] = float(
            np.sqrt(away @ np.linalg.solve(p.cov, away))
        )
    text = (
        "All entries of the covariance are similar to the posterior's and the means close (as printed: "
        "within a half)"
    )
    return Claim(text, numbers, worst[TEMPERED] < 0.5)


def _course(found: Descents) -> tuple[np.ndarray, np.ndarray]:
    """Median covariance errors over the seeds, at some thirty epochs; without those that diverged."""
    last = found.told[-1]
    epochs = np.unique(np.geomspace(1, last, 30).astype(int))
    values = [np.median(found.scores(int(n))[:, 1]) for n in epochs]
    return epochs * N // BATCH, np.array(values)


@plots.panel
def _map(axes, p: Problem, gaussians: dict, *, title: str = "") -> None:
    """95 % ellipses on the posterior."""
    covs = [p.cov, *(cov for _, cov in gaussians.values())]
    reach = 3.5 * np.sqrt(np.max([np.diag(cov) for cov in covs], axis=0))
    a, b = (np.linspace(p.mean[i] - reach[i], p.mean[i] + reach[i], 400) for i in range(2))
    away = np.stack(np.meshgrid(a, b), axis=-1) - p.mean
    density = -0.5 * np.einsum("...i,ij,...j", away, np.linalg.inv(p.cov), away)
    plots.ellipses((a, b, density), gaussians, title=title, axes=axes, colours=COLOURS)
    said = "lines: 95 %; shaded: 50, 80, 95 and 99 % of the posterior"
    axes.text(0.02, 0.02, said, transform=axes.transAxes, fontsize=10, color=plots.QUIET)


@plots.panel
def _falling(axes, curves: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Errors over steps, both on logarithmic scales."""
    steps = {name: steps for name, (steps, _) in curves.items()}
    pictures.kl_curves(
        steps,
        {name: values for name, (_, values) in curves.items()},
        title="Covariance error, median over the trials that did not diverge",
        ylabel="relative error of the covariance",
        colours=COLOURS,
        xscale="log",
        axes=axes,
    )
    axes.set(xlabel="steps (batches of 100)")
