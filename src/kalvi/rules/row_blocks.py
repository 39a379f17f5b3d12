"""Blocks of rows in a stream, before and after their predictors are linearised."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kalvi.gaussians import Updatable, View
from kalvi.likelihoods import Likelihood
from kalvi.numerics.rows import JacobianRows
from kalvi.predictors.predictor import Inputs
from kalvi.rules.recursion import BlockSites

Vector = Float[Array, " d"]


class RowBlock(NamedTuple):
    """A block of rows, the share of each row's information that is left at its end, and draws for sampled
    expectations."""

    x: Inputs
    y: Float[Array, "b *o"]
    weight: Float[Array, " b"]
    elapsed: Float[Array, " b"] | None
    discount: Float[Array, " b"]
    draws: Array | None


class SeenBlock(NamedTuple):
    """A block with linearised predictors: its Jacobian rows, the distribution of the predictors, and the
    sites."""

    rows: JacobianRows
    view: View
    sites: BlockSites
    likelihood_of: Callable[[Any], Likelihood]

    def centre(self, q: Updatable) -> Vector:
        """The mean after the block."""
        return q.mean + q.matvec(self.rows.transposed_times(self.sites.coefficient))

    def taking(self, taken: Bool[Array, " b"], at_once: Bool[Array, ""]) -> "SeenBlock":
        """The block with the sites of only the rows in `taken`, absorbed together or one by one."""
        sites = self.sites
        coefficient = jnp.where(at_once, sites.coefficient, sites.step)
        kept = sites._replace(
            coefficient=_where(taken, coefficient), curvature=_where(taken, sites.curvature)
        )
        return self._replace(sites=kept)

    def posterior(self) -> Updatable:
        return self.view.absorb(self.sites.coefficient.ravel(), self.sites.curvature)


def _where(taken: Bool[Array, " b"], a: Float[Array, "b *k"]) -> Float[Array, "b *k"]:
    return jnp.where(taken.reshape(taken.shape + (1,) * (a.ndim - 1)), a, 0)
