"""Sites that explain a posterior, for rows of which nothing else is known."""

import jax
import jax.numpy as jnp

from kalvi.rules.silk.model import Side
from kalvi.rules.silk.moments import diagonal
from kalvi.rules.silk.observed import Statistics


def sites_of_posterior(side: Side) -> Statistics:
    """Sites that, with the prior, give the posterior's means and nearly its variances."""
    prior, posterior = side.prior, side.posterior
    held = jnp.maximum(1 / posterior.var - prior.phi(), 0)
    pull = prior.precision(posterior.mean) + held * posterior.mean
    pull = pull - prior.loads() * prior.mean[None]
    n, k = held.shape
    curvature = jnp.zeros((n, k * (k + 1) // 2), held.dtype).at[:, diagonal(k)].set(held)
    found = Statistics(pull, curvature, jnp.zeros(n, held.dtype))
    spot = side.spot
    if spot is None:
        return found
    # rows at one location share its site
    count = jax.ops.segment_sum(jnp.ones(len(spot), held.dtype), spot, n)
    share = 1 / count[spot]
    return jax.tree.map(lambda a: a[spot] * share.reshape((-1,) + (1,) * (a.ndim - 1)), found)
