"""Merging of low-rank precisions: the factors of all shards side by side, projected back to the rank."""

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from kalvi.gaussians.gaussian import Gaussian, added_shifts
from kalvi.numerics import projections
from kalvi.numerics.linalg import LowRankPlusDiagonal

MOST_FACTORS = 1024
"""The most columns of factors that are projected at once, which bounds the size of their Gram matrix."""
LEAST = 0.5
"""A merged ψ is at least this share of the largest ψ of the shards. In exact arithmetic it would be at
least that ψ itself, but EM may have moved a part of the prior's ψ into the factors."""
MOST_RAISED = 1.0
"""If this floor adds E to the diagonal and tr(E Σ) is larger than this, the posteriors are refused.
Otherwise the sum itself is positive definite, and the result is about tr(E Σ)/2 nats from it."""


def merge_low_rank(posteriors: Sequence[Any], prior: Gaussian) -> Any:
    """The posterior of all shards, from their `LowRankPrecision`s of one rank and their common prior.

    At most `MOST_FACTORS` columns are projected at once; more are merged in groups.
    """
    size = max(MOST_FACTORS // max(posteriors[0].rank, 1), 2)
    while len(posteriors) > 1:
        starts = range(0, len(posteriors), size)
        posteriors = [_merge_group(posteriors[i : i + size], prior) for i in starts]
    return posteriors[0]


def _merge_group(posteriors: Sequence[Any], prior: Gaussian) -> Any:
    """The merge of one group: the mean by the sum of the precisions, and then the projection of this
    sum."""
    first, others = posteriors[0], len(posteriors) - 1
    if not others:
        return first
    if first.rank == 0:
        return _merge_diagonals(posteriors, prior)
    own, parts = prior.precision.diagonal(), [q.precision for q in posteriors]
    summed = sum(part.diag for part in parts) - others * own
    least = LEAST * functools.reduce(jnp.maximum, [part.diag for part in parts])
    diag = jnp.maximum(summed, least)
    shift = added_shifts(posteriors, prior)
    w, *rest = (part.factor for part in parts)
    x = jnp.concatenate(rest, axis=1).T
    covariance = LowRankPlusDiagonal(diag, jnp.concatenate([w, x.T], axis=1)).inverse()
    contained = (diag - summed) @ covariance.diagonal() <= MOST_RAISED
    mean = jnp.where(contained, covariance.matvec(shift), jnp.nan)
    gram = projections.gram(w, diag, x)
    target = projections.ProjectionTarget(w, diag, x, jnp.ones(x.shape[0], diag.dtype), gram)
    return first.with_parts(mean, *first.projection(target))


def _merge_diagonals(posteriors: Sequence[Any], prior: Gaussian) -> Any:
    """Precisions of rank 0, which need no projection."""
    first, others = posteriors[0], len(posteriors) - 1
    diag = sum(q.precision.diag for q in posteriors) - others * prior.precision.diagonal()
    mean = jnp.where(diag > 0, added_shifts(posteriors, prior) / diag, jnp.nan)
    return first.with_parts(mean, first.precision.factor, diag)
