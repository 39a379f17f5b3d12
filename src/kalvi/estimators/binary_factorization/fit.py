"""A fit of a binary matrix: the factors of its rows and columns, their predictions, and the bounds."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.estimators.binary_factorization.entries import Axes, ReadEntries
from kalvi.estimators.binary_factorization.locations import (
    UNORDERED,
    SortedAxis,
    group_numbers,
    locations_as_numbers,
    on_device,
)
from kalvi.estimators.binary_factorization.predictions import (
    as_numbers,
    predict_matrix,
    predict_pairs,
)
from kalvi.estimators.binary_factorization.sweeps import SweepSettings, transform_rows
from kalvi.estimators.input_checks import require_consistent
from kalvi.estimators.pickling import as_jax
from kalvi.numerics.precision import matching_precision
from kalvi.rules.silk import (
    Moments,
    Neighbours,
    Posterior,
    Side,
    Silk,
    bridge,
    find_neighbours,
    log_likelihood,
)
from kalvi.rules.silk.model import double_sum
from kalvi.rules.silk.priors import ROUGHEST
from kalvi.streams import run

NEAR_EDGE = 0.9
"""Rates above this share of the highest in the search count as being at the edge."""


class Wanted(NamedTuple):
    """A choice of rows or columns, by number or at new locations; all if neither is given."""

    index: Any
    locations: Any
    groups: Any


class FactorDraws(NamedTuple):
    """Draws of the factors, one after the other."""

    rows: Float[np.ndarray, "n r k"]
    cols: Float[np.ndarray, "n c k"]


class FittedSide(NamedTuple):
    """The factors of the rows or of the columns, in the form in which they are published."""

    side: Side
    axis: SortedAxis
    name: str  # "row" or "col", as in the parameters

    @property
    def factors(self) -> np.ndarray:
        """Posterior means, in the user's order."""
        return np.asarray(self.side.posterior.mean)[self.axis.location_numbers]

    @property
    def stds(self) -> np.ndarray:
        """Posterior standard deviations, in the user's order."""
        return np.sqrt(np.asarray(self.side.posterior.var))[self.axis.location_numbers]

    def complaints(self) -> list[str]:
        """Warnings about a poor optimum: repeated observations of groups without any smoothness."""
        prior = self.side.prior
        least = np.asarray(prior.gaps).min(initial=np.inf)
        if self.axis.groups is None or np.asarray(prior.rate)[0] * least < NEAR_EDGE * ROUGHEST:
            return []
        return [
            f"the strongest factor of the {self.name}s has a correlation length of "
            f"{2 / float(prior.rate[0]):.3g}, shorter than every gap: either the groups do not persist, "
            "or the optimum is poor. Try a start= from a fit of the groups, or fewer factors."
        ]

    def moments(self, index: Any, locations: Any, groups: Any) -> Moments:
        """The moments of some of the user's rows, or at new locations; of all rows if neither."""
        if locations is None:
            if groups is not None:
                raise ValueError(
                    f"{self.name}_groups say whose the {self.name}_locations are; give those too, "
                    f"or use {self.name}s for those of the matrix."
                )
            at = self.axis.location_numbers
            at = at if index is None else at[as_numbers(self.name, index, self.axis.n)]
            return run.call(_moments, self.side).at(jnp.asarray(at))
        if index is not None:
            raise ValueError(f"give {self.name}s or {self.name}_locations, not both.")
        return self.moments_at(locations, groups)[0]

    def moments_at(self, locations: Any, groups: Any) -> tuple[Moments, Float[Array, "t k"]]:
        """Moments and variances at new locations, of these groups if there are groups."""
        parameter = f"{self.name}_locations"
        if not self.side.ordered:
            raise ValueError(
                f"{parameter} need {self.name}s with locations, but these were fitted as {UNORDERED!r}; "
                f"use {self.name}s for those of the matrix."
            )
        new = locations_as_numbers(parameter, locations)
        if not len(new):
            raise ValueError(f"{parameter} must hold at least one location; got none.")
        chains = group_numbers(f"{self.name}_groups", groups, self.axis, len(new))
        size = 1 << (len(new) - 1).bit_length()  # few sizes to compile
        padded, chains = (np.pad(a, (0, size - len(new)), mode="edge") for a in (new, chains))
        known, dtype = self.axis.places, self.side.prior.mean.dtype
        of_chains = None if known.chain is None else (known.chain, chains)
        near = find_neighbours(known.locations, padded, dtype, of_chains)
        law, var = run.call(_moments_between, self.side, near)
        return law.at(jnp.arange(len(new))), var[: len(new)]


@dataclass(frozen=True, eq=False)
class MatrixFit:
    """The factors of a binary matrix."""

    silk: Silk  # rows and columns sorted by location
    axes: Axes
    history: Float[np.ndarray, " s"]  # the bound before every sweep, and after the last
    converged: bool

    @property
    def rows(self) -> FittedSide:
        """The factors of the rows."""
        return FittedSide(self.silk.rows, self.axes[0], "row")

    @property
    def cols(self) -> FittedSide:
        """The factors of the columns."""
        return FittedSide(self.silk.cols, self.axes[1], "col")

    @property
    def dtype(self) -> np.dtype:
        """The precision of the fit, whatever the parameter is now."""
        return np.dtype(self.silk.rows.posterior.mean.dtype)

    def predict(self, rows: Wanted, cols: Wanted, z: float | None = None) -> np.ndarray:
        """Probabilities that entries are 1; of single entries if numbers of rows and columns are given.

        With `z` their quantiles, so many deviations of the logit from the median.
        """
        predict = predict_matrix if rows.index is None or cols.index is None else predict_pairs
        with matching_precision(self.dtype):
            u, v = self.rows.moments(*rows), self.cols.moments(*cols)
            return predict(u, v, self.silk.rows.posterior.adds_mean, z)

    def sample(self, n_samples: int, key: PRNGKeyArray) -> FactorDraws:
        """Draws of the factors of both sides, in the user's order."""
        with matching_precision(self.dtype):
            sides = zip((self.rows, self.cols), jr.split(key), strict=True)
            drawn = [
                np.asarray(run.call(_draws, side.side.posterior, key, n_samples))[
                    :, side.axis.location_numbers
                ]
                for side, key in sides
            ]
        return FactorDraws(*drawn)

    def factors_at(
        self, side: FittedSide, locations: Any, groups: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of the factors of a side at new locations."""
        with matching_precision(self.dtype):
            law, var = side.moments_at(locations, groups)
            return np.asarray(law.mean), np.sqrt(np.asarray(var))

    def mean_log_likelihood(self, entries: ReadEntries) -> float:
        """The mean log predictive probability of entries of the matrix."""
        with matching_precision(self.dtype):
            return double_sum(run.call(log_likelihood, self.silk, entries.observed)) / entries.total

    def transform(
        self, entries: ReadEntries, rows: SortedAxis, settings: SweepSettings
    ) -> tuple[np.ndarray, bool]:
        """The factors of other rows with the same columns, and whether the search converged."""
        if rows.places.ordered != self.silk.rows.ordered:
            raise ValueError(
                "row_locations must be 'unordered' where they were in fit, and only there; call fit again."
            )
        with matching_precision(self.dtype):
            layout = on_device(rows, self.axes[1], self.dtype.name)
            how = settings._replace(dtype=self.dtype.name)
            found, converged = transform_rows(self.silk, entries.observed, layout, how)
        return np.asarray(found.rows.posterior.mean)[rows.location_numbers], converged

    def complaints(self, entries: ReadEntries) -> list[str]:
        """Warnings about a poor optimum, with remedies."""
        found, elbo, constant = [], float(self.history[-1]), entries.constant_evidence()
        if elbo < constant:
            found.append(
                f"the bound, {elbo:.0f}, is below the log evidence of one probability for all entries, "
                f"{constant:.0f}: either the factors explain nothing, or the optimum is "
                "poor. Try fewer factors, a start= from another fit, or row_groups= where rows are of "
                "the same people again."
            )
        return found + [text for side in (self.rows, self.cols) for text in side.complaints()]

    def parts(self) -> dict[str, Any]:
        """The parts of the fit for a file or a pickle."""
        return dict(zip(PARTS, (self.silk, self.axes, self.history, self.converged), strict=True))


def _draws(posterior: Posterior, key: PRNGKeyArray, n: int) -> Float[Array, "n r k"]:
    noise = jr.normal(key, (n, *posterior.mean.shape), posterior.mean.dtype)
    return jax.vmap(lambda one: posterior.draw(one))(noise)


def _moments(side: Side) -> Moments:
    return side.posterior.moments()


def _moments_between(side: Side, near: Neighbours) -> tuple[Moments, Array]:
    return side.posterior.interpolate(bridge(side.prior, near))


PARTS = ("posterior_", "_axes", "elbo_history_", "converged_")
"""The parts of a fit in a file or a pickle."""


def restore_fit(parts: dict[str, Any], model: Any) -> MatrixFit:
    """The fit with these parts; parts that no fit of `model` can have are refused."""
    known: Any = [parts.get(name) for name in PARTS]
    silk, axes, history, converged = known
    sides = isinstance(silk, Silk) and isinstance(axes, tuple) and len(axes) == 2
    require_consistent(sides, model, "posterior_")
    places = all(isinstance(axis, SortedAxis) for axis in axes)
    require_consistent(places and axes[1].n == model.n_features_in_, model, "columns")
    bound = isinstance(history, np.ndarray) and history.ndim == 1 and len(history) > 0
    require_consistent(bound, model, "elbo_history_")
    dtype = np.asarray(silk.rows.posterior.mean).dtype
    return MatrixFit(as_jax(silk, dtype), axes, history, bool(converged))
