"""Factors of rows or columns as a tidy table: names, means and intervals, moved to fit anchors."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from kalvi.estimators.binary_factorization.fit import FittedSide
from kalvi.rules.silk import Coupled


def deviations_of(level: float) -> float:
    """The distance of the ends of a normal interval from the mean, in standard deviations."""
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1; got {level}.")
    return float(ndtri((1 + level) / 2))


def table_of(side: FittedSide, names: Any, anchors: Mapping[Any, Any] | None, level: float) -> Any:
    """The table, with a line for every row (or column) and factor."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("ideal_points needs pandas: pip install pandas.") from error
    z, axis = deviations_of(level), side.axis
    named = _names(side, names)
    mean, cov = side.factors, _covariances(side)
    if anchors is not None:
        by, shift = _map_to_anchors(mean, named, anchors)
        mean, cov = mean @ by + shift, np.einsum("ik,nij,jl->nkl", by, cov, by)
    std = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    n, k = mean.shape
    where = {"name": np.repeat(named, k)}
    if axis.groups is not None:
        assert axis.places.chain is not None
        groups = axis.groups[axis.places.chain[axis.location_numbers]]
        where["group"] = np.repeat(groups, k)
    if axis.places.ordered:
        where["location"] = np.repeat(axis.places.locations[axis.location_numbers], k)
    numbers = {"mean": mean, "std": std, "low": mean - z * std, "high": mean + z * std}
    flat = {name: part.ravel() for name, part in numbers.items()}
    return pd.DataFrame(where | {"factor": np.tile(np.arange(k) + 1, n)} | flat)


def _names(side: FittedSide, names: Any) -> np.ndarray:
    n = side.axis.n
    named = np.arange(n) if names is None else np.asarray(names)
    if named.shape != (n,):
        raise ValueError(
            f"names must hold one name for each of the {n} {side.name}s; got shape {named.shape}."
        )
    return named


def _covariances(side: FittedSide) -> Float[np.ndarray, "n k k"]:
    """The covariances of the factors of every row, in the user's order."""
    posterior = side.side.posterior
    if isinstance(posterior, Coupled):
        return np.asarray(posterior.cov)[side.axis.location_numbers]
    return side.stds[:, :, None] ** 2 * np.eye(side.stds.shape[1])


def _map_to_anchors(
    mean: np.ndarray, named: np.ndarray, anchors: Mapping[Any, Any]
) -> tuple[Float[np.ndarray, "k k"], Float[np.ndarray, " k"]]:
    """The linear map that brings the means of the anchors to their positions, by least squares."""
    k = mean.shape[1]
    if len(anchors) <= k:
        raise ValueError(
            f"anchors must be at least {k + 1}, one more than factors; got {len(anchors)}."
        )
    found = [np.flatnonzero(named == name) for name in anchors]
    lost = [name for name, at in zip(anchors, found, strict=True) if not len(at)]
    if lost:
        raise ValueError(f"anchors must be among the names; {lost[0]!r} is not.")
    # if a name has several rows, their mean is brought to the anchor
    here = np.array([mean[at].mean(axis=0) for at in found])
    there = np.array([np.atleast_1d(place) for place in anchors.values()], float)
    if there.shape != here.shape:
        raise ValueError(f"anchors must give {k} numbers for each name, one a factor.")
    design = np.column_stack([here, np.ones(len(here))])
    solution, _, rank, _ = np.linalg.lstsq(design, there, rcond=None)
    if rank <= k:
        raise ValueError("anchors must not lie on one line or plane: choose others, further apart.")
    return solution[:-1], solution[-1]
