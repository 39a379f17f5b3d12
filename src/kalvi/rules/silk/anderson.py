"""Anderson's combination of sweeps.

A sweep takes a point x to g(x). From the last few sweeps, with moves f = g(x) − x, the combination

    x ← g − Σ γⱼ (g − gⱼ),      γ = argmin ‖f − Σ γⱼ (f − fⱼ)‖,

is the point where the move would vanish if moves were linear in x. A point consists of the means of the
factors and the parameters of the priors (logarithms of variances and rates); covariances are those of the
last sweep. Moves are measured in posterior deviations, and moves of the priors by their information.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.rules.silk.model import Side, Silk
from kalvi.rules.silk.priors import LEAST_VARIANCE, limits

RIDGE = 1e-10
"""Keeps the least squares solvable when sweeps repeat; it changes the path, not the optimum."""

FORGOTTEN = 100.0
"""Half of rate times gap beyond which neighbours say nothing about the rate; gaps may be infinite."""

Point = Float[Array, " d"]


class SweepHistory(NamedTuple):
    """The last sweeps, the newest first."""

    ends: Float[Array, "m d"]  # g
    ways: Float[Array, "m d"]  # f, times the weights of `_units`
    count: Int[Array, ""]


def empty_history(silk: Silk, memory: int) -> SweepHistory:
    """The history before the first sweep."""
    width = 0 if memory == 0 else len(_point(silk))
    empty = jnp.zeros((memory + 1, width), silk.rows.posterior.mean.dtype)
    return SweepHistory(empty, empty, jnp.zeros((), jnp.int32))


def remember_sweep(
    past: SweepHistory, here: Silk, there: Silk, forget: Bool[Array, ""]
) -> SweepHistory:
    """The history with one more sweep, or an empty one if it is to be forgotten."""
    if past.ends.shape[1] == 0:
        return past
    end = _point(there)
    way = (end - _point(here)) * _units(there)
    ends = jnp.roll(past.ends, 1, axis=0).at[0].set(end)
    ways = jnp.roll(past.ways, 1, axis=0).at[0].set(way)
    return SweepHistory(ends, ways, jnp.where(forget, 0, past.count + 1))


def combine_sweeps(past: SweepHistory, there: Silk, rests: Bool[Array, ""]) -> Silk:
    """The combination of the sweeps in the history, or the result of the last one if it is the only one."""
    known = jnp.arange(1, len(past.ends)) < past.count
    ways = jnp.where(known[:, None], past.ways[:1] - past.ways[1:], 0)
    ends = jnp.where(known[:, None], past.ends[:1] - past.ends[1:], 0)
    gram = ways @ ways.T
    ridge = RIDGE * jnp.trace(gram) + jnp.finfo(gram.dtype).tiny
    share = jnp.linalg.solve(
        gram + ridge * jnp.eye(len(gram), dtype=gram.dtype), ways @ past.ways[0]
    )
    point = past.ends[0] - share @ ends
    plain = rests | (past.count < 2) | ~jnp.all(jnp.isfinite(point))
    return _at(jnp.where(plain, past.ends[0], point), there)


def _point(silk: Silk) -> Point:
    parts = []
    for side in (silk.rows, silk.cols):
        prior, mean = side.prior, side.posterior.mean.ravel()
        parts += [mean, prior.mean, jnp.log(prior.variance)]
        parts += [jnp.log(prior.rate)] if side.ordered else []
    return jnp.concatenate(parts)


def _units(silk: Silk) -> Point:
    """A weight for each coordinate, which makes steps comparable."""
    parts = []
    for side in (silk.rows, silk.cols):
        prior = side.prior
        half = jnp.minimum(prior.rate[None] * prior.gaps[:, None] / 2, FORGOTTEN)
        known = half**2 * jnp.exp(-2 * half) / -jnp.expm1(-2 * half)
        parts += [
            1 / jnp.sqrt(side.posterior.var).ravel(),
            jnp.sqrt(jnp.sum(prior.loads(), axis=0)),
        ]
        parts += [jnp.full_like(prior.mean, (prior.n / 2) ** 0.5)]
        parts += [jnp.sqrt(jnp.sum(known, axis=0))] if side.ordered else []
    return jnp.concatenate(parts)


def _at(point: Point, silk: Silk) -> Silk:
    """The factorisation with the means and priors of a point."""
    sides = []
    for side in (silk.rows, silk.cols):
        new, point = _side_at(point, side)
        sides.append(new)
    return Silk(*sides)


def _side_at(point: Point, side: Side) -> tuple[Side, Array]:
    prior, k = side.prior, len(side.prior.mean)
    sizes = [prior.n * k, k, k] + ([k] if side.ordered else [])
    cuts = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = jnp.split(point, cuts)
    mean, centre, log_variance = parts[:3]
    variance = jnp.maximum(jnp.exp(log_variance), LEAST_VARIANCE)
    rate = jnp.exp(jnp.clip(parts[3], *limits(prior))) if side.ordered else prior.rate
    posterior = eqx.tree_at(lambda p: p.mean, side.posterior, mean.reshape(prior.n, k))
    moved = OrnsteinUhlenbeck(prior.gaps, centre, variance, rate, prior.even)
    return side.with_posterior(posterior).with_prior(moved), parts[-1]
