"""Learns the smoothness prior of one side from its posterior.

Document 004, sections 5 and 6. Given the rate ρ the best mean and variance have closed forms,

    μ = 1ᵀΣ⁻¹m / 1ᵀΣ⁻¹1 = Σ loadᵣ mᵣ / Σ loadᵣ,     σ² = E eᵀ(σ²Σ⁻¹)e / n,

which leaves −½ (n log σ²(ρ) + Σ log(1 − πᵣ²)) to be maximised over ρ. `with_best_prior` searches for this ρ
for all factors at once, and so updates μ, σ² and ρ together. It never lowers the bound. The
document's two separate updates are in `papers.silk_priors`.

If locations are evenly spaced, the sums over them are three numbers, and trying a rate costs almost
nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.kernels.ornstein_uhlenbeck import link, load, log_innovation
from kalvi.rules.silk.model import Side, second_moments

GRID, CUTS = 24, 16
"""The number of rates tried over the whole range, and of steps that then shorten the best bracket."""
GOLDEN = (5**0.5 - 1) / 2
SMOOTHEST, ROUGHEST = 1e-3, 40.0
"""ρ times the span is at least the first number, and ρ times the smallest gap at most the second: beyond
these the factors of all locations are equal, or independent."""
LEAST_VARIANCE = 1e-10
"""The smallest prior variance, which factors that the data do not need would fall below."""

PerFactor = Float[Array, " k"]


class PriorMoments(NamedTuple):
    """The posterior's moments that the bound needs, summed over locations and gaps of the same kind."""

    before: Float[Array, " a"]  # the gaps before and after each kind of location
    after: Float[Array, " a"]
    gap: Float[Array, " g"]
    number: Float[Array, " a"]  # of locations and gaps of each kind
    count: Float[Array, " g"]
    centre: PerFactor  # the point about which the moments are taken
    mean: Float[Array, "a k"]
    square: Float[Array, "a k"]
    step_square: Float[Array, "g k"]


class PriorCandidates(NamedTuple):
    """A candidate prior for each factor, with its part of the bound."""

    value: PerFactor
    mean: PerFactor
    variance: PerFactor
    rate: PerFactor


def with_best_prior(side: Side) -> Side:
    """The side with the best mean, variance and, if it is ordered, rate."""
    return with_best_candidate(side, _best_at_rate)


def with_best_candidate(
    side: Side, at: Callable[[PriorMoments, PerFactor], PriorCandidates]
) -> Side:
    """The side with the best prior at any of several rates; without an order, at its own rate."""
    sums, rate = _sums(side), side.prior.rate
    found = (
        _search_rate(side.prior, lambda rate: at(sums, rate)) if side.ordered else at(sums, rate)
    )
    return _with_prior(side, _better(found, _current(side, sums)))


def limits(prior: OrnsteinUhlenbeck) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The logarithms of the lowest and the highest rate of the search; infinite for a single location."""
    if prior.n == 1:
        anything = jnp.asarray(jnp.inf, prior.rate.dtype)
        return -anything, anything
    span = jnp.sum(jnp.where(jnp.isinf(prior.gaps), 0, prior.gaps))  # infinite between chains
    lowest = jnp.log(SMOOTHEST / span)
    return lowest, jnp.log(ROUGHEST / jnp.min(prior.gaps, initial=jnp.inf))


def _sums(side: Side) -> PriorMoments:
    prior = side.prior
    mean = side.posterior.mean - prior.mean[None]
    square, step_square = second_moments(side.posterior, prior.mean)
    gaps, end = prior.gaps, jnp.full(1, jnp.inf, prior.gaps.dtype)
    before, after = jnp.concatenate([end, gaps]), jnp.concatenate([gaps, end])
    number, count = jnp.ones_like(before), jnp.ones_like(gaps)
    if prior.even and prior.n > 3:

        def grouped(a: Array) -> Array:  # the first, the inner ones, the last
            return jnp.concatenate([a[:1], jnp.sum(a[1:-1], axis=0)[None], a[-1:]])

        before, after = before[jnp.array([0, 1, -1])], after[jnp.array([0, 1, -1])]
        number, mean, square = grouped(number), grouped(mean), grouped(square)
        gaps, count = gaps[:1], jnp.sum(count)[None]
        step_square = jnp.sum(step_square, axis=0)[None]
    return PriorMoments(before, after, gaps, number, count, prior.mean, mean, square, step_square)


def _current(side: Side, sums: PriorMoments) -> PriorCandidates:
    return evaluate_prior(sums, side.prior.mean, side.prior.variance, side.prior.rate)


def _best_at_rate(sums: PriorMoments, rate: PerFactor) -> PriorCandidates:
    """The best mean and variance at a rate."""
    loads, _ = _springs(sums, rate)
    held = jnp.sum(sums.number[:, None] * loads, axis=0)
    mean = sums.centre + jnp.sum(loads * sums.mean, axis=0) / held
    quadratic = _quadratic(sums, mean, rate)
    variance = jnp.maximum(quadratic / jnp.sum(sums.number), LEAST_VARIANCE)
    return evaluate_prior(sums, mean, variance, rate)


def evaluate_prior(
    sums: PriorMoments, mean: PerFactor, variance: PerFactor, rate: PerFactor
) -> PriorCandidates:
    """A prior with its part of the bound."""
    logs = log_innovation(-sums.gap[:, None] * rate[None] / 2)
    logdet = jnp.sum(sums.number) * jnp.log(variance) + jnp.sum(sums.count[:, None] * logs, axis=0)
    value = -(_quadratic(sums, mean, rate) / variance + logdet) / 2
    return PriorCandidates(value, mean, variance, rate)


def _quadratic(sums: PriorMoments, mean: PerFactor, rate: PerFactor) -> PerFactor:
    """E eᵀ(σ²Σ⁻¹)e."""
    loads, links = _springs(sums, rate)
    moved = (mean - sums.centre)[None]
    square = sums.square - 2 * moved * sums.mean + moved**2 * sums.number[:, None]
    return jnp.sum(loads * square, axis=0) + jnp.sum(links * sums.step_square, axis=0)


def _springs(
    sums: PriorMoments, rate: PerFactor
) -> tuple[Float[Array, "a k"], Float[Array, "g k"]]:
    def log(gaps: Array) -> Array:
        return -gaps[:, None] * rate[None] / 2

    return load(log(sums.before), log(sums.after)), link(log(sums.gap))


def _search_rate(
    prior: OrnsteinUhlenbeck, at: Callable[[PerFactor], PriorCandidates]
) -> PriorCandidates:
    """The best of a grid of rates, then golden sections between its neighbours."""
    if prior.n == 1:
        return at(prior.rate)
    lowest, highest = limits(prior)
    apart = (highest - lowest) / (GRID - 1)

    def rated(i: Array) -> PerFactor:
        return jnp.full_like(prior.rate, jnp.exp(lowest + i * apart))

    values = jax.lax.map(lambda i: at(rated(i)).value, jnp.arange(GRID))
    best = lowest + jnp.argmax(values, axis=0) * apart
    low, high = jnp.maximum(best - apart, lowest), jnp.minimum(best + apart, highest)

    def cut(_: Array, bracket: tuple[PerFactor, PerFactor]) -> tuple[PerFactor, PerFactor]:
        low, high = bracket
        inner = GOLDEN * (high - low)
        upper, lower = low + inner, high - inner
        rising = at(jnp.exp(upper)).value > at(jnp.exp(lower)).value
        return jnp.where(rising, lower, low), jnp.where(rising, high, upper)

    low, high = jax.lax.fori_loop(0, CUTS, cut, (low, high))
    return at(jnp.exp((low + high) / 2))


def _better(new: PriorCandidates, old: PriorCandidates) -> PriorCandidates:
    """For each factor, the candidate with the higher bound."""
    higher = new.value > old.value
    return PriorCandidates(*(jnp.where(higher, a, b) for a, b in zip(new, old, strict=True)))


def _with_prior(side: Side, found: PriorCandidates) -> Side:
    prior = side.prior
    new = OrnsteinUhlenbeck(prior.gaps, found.mean, found.variance, found.rate, prior.even)
    return side.with_prior(new)
