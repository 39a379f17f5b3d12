"""R-VGA as the start of a sampler, "used to initialize more precise" methods as the R-VGA paper has it.

One pass of R-VGA gives NUTS its first point and its (dense) mass matrix; only the step size is left to
adapt. Beside it is BlackJAX's window adaptation, which learns the mass matrix too, dense and diagonal, from
the mode. What counts is the gradients of the log posterior, adaptation included, until the coordinate with
the fewest has an effective sample size of `GOAL`; one pass over the rows counts as one gradient. The
effective draws of a gradient are measured over `DRAWS` draws after the adaptation.
"""

from functools import partial
from typing import Any, NamedTuple, cast

import blackjax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from blackjax.adaptation.step_size import dual_averaging_adaptation

from kalvi import plots
from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli
from kalvi.numerics import precision
from kalvi.rules.laplace import laplace
from kalvi.rules.rvga import RVGA
from kalvi.streams import run
from papers import parts, pictures
from papers.lrvga_history import whole
from papers.results import Claim, Result
from papers.rvga_data import Setting, two_classes

STEPS, WINDOW, DRAWS, GOAL, ACCEPTANCE, BLOCK = 150, 1000, 1500, 1000, 0.8, 32
RVGA_START, DENSE, DIAGONAL = "R-VGA", "window adaptation, dense", "window adaptation, diagonal"
CASES = {
    "d = 30, c = 0": Setting("", 7, 30, 500, 2, 0, 10, 5),
    "d = 30, c = 2": Setting("", 7, 30, 500, 2, 2, 10, 5),
    "d = 100, c = 1": Setting("", 7, 100, 500, 2, 1, 10, 5),
}
QUICK = {"d = 3, c = 1": Setting("", 7, 3, 60, 2, 1, 10, 5)}
SEEDS = 3


class Run(NamedTuple):
    """One chain: the gradients of its adaptation; effective draws (worst coordinate), their gradients."""

    adaptation: float
    effective: float
    gradients: float

    @property
    def total(self) -> float:
        """Gradients to `GOAL` effective draws."""
        return self.adaptation + GOAL * self.gradients / self.effective


def chain(setting: Setting, how: str, seed: int, sizes: tuple[int, int, int]) -> Run:
    """One chain on the rows of a setting; `sizes` are steps, window and draws."""
    steps, window, draws = sizes
    with precision.matching_precision("float64"), jax.numpy_rank_promotion("allow"):
        x, y = two_classes(setting._replace(seed=seed))
        batch, dim = whole(x, y, BLOCK), x.shape[1]
        prior = Dense(jnp.zeros(dim), setting.prior_std**2 * jnp.eye(dim))
        density = partial(_log_posterior, jnp.asarray(x), jnp.asarray(y), setting.prior_std)
        keys = jr.split(jr.key(seed), 3)
        if how == RVGA_START:
            q = run.fit(RVGA(Bernoulli(), block_size=BLOCK), prior, [batch]).posterior
            assert isinstance(q, Dense)
            begin = q.sample(keys[0], 1)[0]
            adapted = jax.jit(partial(_step_size, density, steps))(keys[1], begin, q.cov)
        else:
            mode = run.call(laplace, Bernoulli(), prior, batch).posterior.mean
            adapt: Any = cast(Any, blackjax.window_adaptation)(
                blackjax.nuts,
                density,
                is_mass_matrix_diagonal=how == DIAGONAL,
                target_acceptance_rate=ACCEPTANCE,
            )
            adapted, info = jax.jit(partial(adapt.run, num_steps=window))(keys[1], mode)
            spent = jnp.sum(info.info.num_integration_steps)
            adapted = adapted[0].position, adapted[1], spent
        return _sampled(density, adapted, keys[2], draws, one_pass=how == RVGA_START)


def _log_posterior(x, y, std, theta):
    f = x @ theta
    return y @ f - jnp.sum(jnp.logaddexp(0.0, f)) - theta @ theta / (2 * std**2)


def _step_size(density, steps: int, key, begin, cov):
    """Dual averaging of the step size, the mass matrix as given."""
    start, update, final = dual_averaging_adaptation(ACCEPTANCE)
    kernel = blackjax.nuts.build_kernel()

    def step(carry, key):
        state, averages, spent = carry
        size = jnp.exp(averages.log_step_size)
        state, info = kernel(key, state, density, size, cov)
        averages = update(averages, info.acceptance_rate)
        return (state, averages, spent + info.num_integration_steps), None

    first = blackjax.nuts.init(begin, density), start(len(begin) ** -0.25), 0
    (state, averages, spent), _ = jax.lax.scan(step, first, jr.split(key, steps))
    return state.position, {"step_size": final(averages), "inverse_mass_matrix": cov}, spent


def _sampled(density, adapted, key, draws: int, one_pass: bool) -> Run:
    position, parameters, spent = adapted

    @jax.jit
    def sample(position, parameters, key):
        kernel = cast(Any, blackjax.nuts(density, **parameters))

        def step(state, key):
            state, info = kernel.step(key, state)
            return state, (state.position, info.num_integration_steps)

        return jax.lax.scan(step, kernel.init(position), jr.split(key, draws))[1]

    positions, lengths = sample(position, parameters, key)
    effective = blackjax.ess(positions[None])
    return Run(float(spent) + one_pass, float(jnp.min(effective)), float(jnp.sum(lengths)))


def table_nuts(quick: bool) -> Result:
    """Gradients to a given effective sample size, by what adapts the sampler."""
    cases, seeds = (QUICK, 1) if quick else (CASES, SEEDS)
    sizes = (50, 200, 200) if quick else (STEPS, WINDOW, DRAWS)
    methods = (RVGA_START, DENSE, DIAGONAL)
    wanted = [(c, m, s, sizes) for c in cases.values() for m in methods for s in range(seeds)]
    runs = iter(parts.each(chain, wanted))
    found = {(name, m): [next(runs) for _ in range(seeds)] for name in cases for m in methods}
    rows = [_row(*key, each) for key, each in found.items()]
    title = f"NUTS: gradients to an effective sample size of {GOAL}"

    def draw() -> plots.Figure:
        shown = [{k: v if isinstance(v, str) else f"{v:,.0f}" for k, v in r.items()} for r in rows]
        size = (11.5, 0.9 + 0.34 * len(rows))
        return plots.compose([[partial(pictures.table, shown)]], title=title, size=size)

    return Result("nuts", title, rows, [_cheaper(found), _adapts(found)], draw)


Found = dict[tuple[str, str], list[Run]]


def _row(case: str, method: str, runs: list[Run]) -> dict[str, Any]:
    totals = np.array([run.total for run in runs])
    return {
        "case": case,
        "adapted by": method,
        "gradients of the adaptation": float(np.mean([r.adaptation for r in runs])),
        "a hundred effective draws": 100
        * float(np.mean([r.gradients / r.effective for r in runs])),
        f"in all to {GOAL}": float(totals.mean()),
        "±": float(totals.std(ddof=1)) if len(totals) > 1 else 0.0,
    }


def _cheaper(found: Found) -> Claim:
    numbers, held = {}, []
    for (case, method), runs in found.items():
        if method == RVGA_START:
            continue
        ratios = [b.total / a.total for a, b in zip(found[case, RVGA_START], runs, strict=True)]
        numbers[f"{method} over R-VGA ({case})"] = float(np.mean(ratios))
        held += [ratio > 1 for ratio in ratios]
    text = f"Started by R-VGA, NUTS needs fewer gradients to an effective sample size of {GOAL}"
    return Claim(text, numbers, held, ours=True)


def _adapts(found: Found) -> Claim:
    """Whether the mass matrix of one pass is as good as one learned from draws."""
    numbers, held = {}, []
    for case in dict.fromkeys(case for case, _ in found):
        own, dense = (
            np.array([r.gradients / r.effective for r in found[case, m]])
            for m in (RVGA_START, DENSE)
        )
        numbers |= {f"R-VGA ({case})": float(own.mean()), f"dense ({case})": float(dense.mean())}
        held += list(own < 1.1 * dense)
    text = (
        "Its covariance is as good a mass matrix as a dense one learned from 1000 draws (gradients an "
        "effective draw, within a tenth)"
    )
    return Claim(text, numbers, [bool(h) for h in held], ours=True)
