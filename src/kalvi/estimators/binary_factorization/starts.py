"""The start of a fit of a binary matrix: the best of several first guesses."""

from jaxtyping import PRNGKeyArray

from kalvi.estimators.binary_factorization.entries import Axes
from kalvi.estimators.binary_factorization.locations import laid_out
from kalvi.estimators.binary_factorization.sweeps import (
    SweepSettings,
    climb,
    guess_factors,
    take_guess,
)
from kalvi.rules.silk import Observed, Silk
from kalvi.streams import run

STATIC_SWEEPS, TRIED_SWEEPS = 100, 10
"""The sweeps of the factorisation with fixed factors, and those from every guess before one is chosen."""


def best_start(
    observed: Observed, axes: Axes, n_factors: int, settings: SweepSettings, key: PRNGKeyArray
) -> Silk:
    """The first guess by singular vectors or, with groups, the better of this and one with fixed factors.

    Rows of different locations, such as terms of a senate, share few columns, so singular vectors say
    little about them. The rows of a group together share many columns with other groups.
    """
    layout = laid_out(axes, settings.dtype, observed)
    first = guess_factors(observed, layout, n_factors, settings, key)
    if settings.piece is not None or all(axis.groups is None for axis in axes):
        return first
    guess = _static_factors(observed, axes, n_factors, settings, key)
    short = settings._replace(max_sweeps=min(TRIED_SWEEPS, settings.max_sweeps))
    starts = first, take_guess(guess, layout, settings)
    return max((climb(start, observed, short) for start in starts), key=lambda r: r.elbo).silk


def _static_factors(
    observed: Observed, axes: Axes, n_factors: int, settings: SweepSettings, key: PRNGKeyArray
):
    """Factors of every row and every column that do not change within a group."""
    whole = [
        axis if axis.groups is None else axis._replace(places=axis.places.whole_chains())
        for axis in axes
    ]
    layout = laid_out((whole[0], whole[1]), settings.dtype, observed)
    first = guess_factors(observed, layout, n_factors, settings, key)
    found = climb(first, observed, settings._replace(max_sweeps=STATIC_SWEEPS))
    return run.call(_means, found.silk)


def _means(silk: Silk):
    return silk.rows.moments().mean, silk.cols.moments().mean
