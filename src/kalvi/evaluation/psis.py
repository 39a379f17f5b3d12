"""Pareto-smoothed importance sampling: how far an approximation is from its target, judged by draws of it.

Vehtari, Simpson, Gelman, Yao & Gabry (2024), "Pareto smoothed importance sampling"; Yao, Vehtari, Simpson
& Gelman (2018), "Yes, but did it work?".

Draws θ of q have importance ratios r = p(θ)/q(θ) to a target p known up to a constant. The largest
M = min(S/5, 3√S) of S ratios follow a generalised Pareto law beyond a cutoff u,

    P(r > u + t) = (1 + k t/σ)^{−1/k},

whose shape k says how many moments the ratios have: 1/k of them. Below 1/2, q is a good approximation. Up
to min(1 − 1/log₁₀ S, 0.7), averages weighted by the ratios are right in practice. Beyond that neither they
nor q can be relied upon. The smoothed ratios replace the M largest by quantiles of the fitted law.

k is the shape of a tail, not its size. The best Gaussian of a logistic posterior has nearly equal ratios,
with a faint tail of any shape where the prior outweighs the likelihood. So if weighting costs less than a
tenth of the draws and the ratios have a mean (k < 1), q is called good whatever k is.

Nor does k say where the centre is: a Gaussian that is too wide and half a deviation off has ratios with a
short tail. So q is good only if weighting moves no mean by more than 0.2 deviations. Chance alone moves the
largest of d means by about √(2 log 2d) times the error √(Σ (w − 1/S)²) of each, for weights w of S draws;
this much is allowed for.

The law is fitted by Zhang & Stephens (2009), "A new and efficient estimation method for the generalized
Pareto distribution": with b = −k/σ, the mean of b under the profile likelihood on a grid of values

    bⱼ = 1/t_max + (1 − √(m/(j − ½)))/(3 t_quartile),        k(b) = mean log(1 − b t),

and k is shrunk towards ½ as if by ten more observations.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

GOOD, USABLE = 0.5, 0.7
PRIOR_DRAWS, PRIOR_SHAPE = 10, 0.5
"""So many additional observations shrink the shape towards `PRIOR_SHAPE`."""
EVEN = 0.9
"""Ratios count as even if weighting keeps at least this share of the draws."""
SPREAD = 3
GRID = 30
FEWEST = 100
"""The smallest number of draws: fewer have too short a tail."""
MOVED = 0.2
"""In a good approximation weighting moves no mean by more than so many standard deviations."""
EQUAL = 1e-6
"""Ratios whose tail spreads by less than this share are equal up to rounding, and have no tail."""


class SmoothedWeights(NamedTuple):
    """Normalised importance weights in logarithms, the largest smoothed, and the shape of their tail."""

    log_weights: Float[np.ndarray, " s"]
    pareto_k: float


class Diagnosis(NamedTuple):
    """How good a Gaussian posterior is, judged by the ratios of the true posterior's density to its own."""

    pareto_k: float
    """The shape of the ratios' tail; 0 if they are equal, so that the Gaussian is exact."""
    verdict: str
    """"good", "usable" or "poor"."""
    ess: float
    """The effective number of draws: how many draws of the true posterior the weighted ones are worth."""
    n_draws: int
    n_rows: int
    shift: float = 0.0
    """The largest move of any mean when the draws are weighted, in standard deviations."""


def psis(log_ratios: Float[np.ndarray, " s"]) -> SmoothedWeights:
    """Smoothed weights, from the logarithms of importance ratios."""
    ratios = np.asarray(log_ratios, np.float64)
    n = len(ratios)
    if n < FEWEST or not np.all(np.isfinite(ratios)):
        raise ValueError(
            f"the ratios must be finite and at least {FEWEST}; got {n}, "
            f"{int(np.sum(~np.isfinite(ratios)))} of them not finite."
        )
    found, order = ratios - ratios.max(), np.argsort(ratios)
    tail = order[n - int(min(n / 5, 3 * np.sqrt(n))) :]
    cutoff = np.exp(found[order[n - len(tail) - 1]])
    if 1 - cutoff < EQUAL:
        return SmoothedWeights(found - logsumexp(found), 0.0)
    k, scale = fit_pareto(np.exp(found[tail]) - cutoff)
    places = np.arange(0.5, len(tail)) / len(tail)
    smooth = cutoff + scale * _quantiles(places, k)
    found[tail] = np.minimum(np.log(smooth), 0.0)  # none above the largest ratio
    return SmoothedWeights(found - logsumexp(found), k)


def fit_pareto(excess: Float[np.ndarray, " m"]) -> tuple[float, float]:
    """Shape k and scale σ of a generalised Pareto law, from increasing excesses over a cutoff."""
    n = len(excess)
    m = GRID + int(np.sqrt(n))
    quartile = max(excess[int(n / 4 + 0.5) - 1], np.finfo(float).tiny)
    grid = 1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))
    b = grid / (SPREAD * quartile) + 1 / excess[-1]
    k = np.mean(np.log1p(-b[:, None] * excess), axis=1)
    profile = n * (np.log(-b / k) - k - 1)
    weight = np.exp(profile - logsumexp(profile))
    weight[weight < 10 * np.finfo(float).eps] = 0
    best = float(weight @ b / weight.sum())
    shape = float(np.mean(np.log1p(-best * excess)))
    drawn = (n * shape + PRIOR_DRAWS * PRIOR_SHAPE) / (n + PRIOR_DRAWS)
    return drawn, -shape / best


def _quantiles(places: np.ndarray, k: float) -> np.ndarray:
    """Quantiles of the generalised Pareto law of shape k and scale 1."""
    logs = -np.log1p(-places)
    return logs if k == 0 else np.expm1(k * logs) / k


def diagnosis(
    log_ratios: Float[np.ndarray, " s"], n_rows: int, shifts: Float[np.ndarray, " d"] | None = None
) -> Diagnosis:
    """The diagnosis of an approximation to the posterior of `n_rows` rows, from its importance ratios.

    `shifts` are the moves of the means under the weights, in standard deviations.
    """
    log_weights, k = psis(log_ratios)
    n = len(log_weights)
    limit = min(1 - 1 / math.log10(n), USABLE)
    ess = 1 / float(np.sum(np.exp(2 * log_weights)))
    moved = np.zeros(1) if shifts is None else np.abs(shifts)
    error = np.sqrt(max(1 / ess - 1 / n, 0) * 2 * np.log(2 * len(moved)))
    there = bool(moved.max() <= MOVED + error)
    good = there and (k < min(GOOD, limit) or (k < 1 and ess > EVEN * n))
    verdict = "good" if good else "usable" if k <= limit else "poor"
    return Diagnosis(float(k), verdict, ess, n, n_rows, float(moved.max()))
