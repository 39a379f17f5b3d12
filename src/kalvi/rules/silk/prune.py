"""The contributions of factors, and factorisations with fewer factors or in another order.

A factor adds u_k α_k to the logits, with mean square E u_k² E α_k². Learned priors switch off factors that
the data do not need (document 004, section 5: their variances fall), and the contributions of these are
almost zero.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.rules.silk.model import Side, Silk
from kalvi.rules.silk.posteriors import Family

PerFactor = Float[Array, " k"]


def contributions(silk: Silk) -> PerFactor:
    """The mean of E (u_k α_k)² over the entries of the matrix, for each factor k."""
    return _mean_squares(silk.rows) * _mean_squares(silk.cols)


def sort_factors(silk: Silk) -> Silk:
    """The factorisation with its factors ordered, the largest contribution first, and with fixed signs.

    The sum of the cubes of each column factor is positive.

    The order and the signs of factors have no meaning in the model.
    """
    order = jnp.argsort(-contributions(silk))
    sign = jnp.where(jnp.sum(silk.cols.posterior.mean**3, axis=0) < 0, -1, 1)[order]
    return Silk(_turned(silk.rows, order, sign), _turned(silk.cols, order, sign))


def select_factors(silk: Silk, chosen: Int[Array, " q"], family: Family) -> Silk:
    """The factorisation with only some of its factors; the next sweep finds their covariances."""
    return Silk(_kept(silk.rows, chosen, family), _kept(silk.cols, chosen, family))


def _mean_squares(side: Side) -> PerFactor:
    square = side.posterior.mean**2 + side.posterior.var
    return jnp.mean(square if side.spot is None else square[side.spot], axis=0)


def _turned(side: Side, order: Int[Array, " k"], sign: Int[Array, " k"]) -> Side:
    def ordered(a: Array) -> Array:  # a number, vector or matrix for each location
        if a.ndim < 3:
            return a[..., order] if a.ndim else a
        return a[:, order][:, :, order] * (sign[:, None] * sign[None]).astype(a.dtype)[None]

    posterior = jax.tree.map(ordered, side.posterior)
    signs = sign.astype(posterior.mean.dtype)
    posterior = eqx.tree_at(lambda q: q.mean, posterior, posterior.mean * signs[None])
    prior = _chosen(side.prior, order)
    prior = eqx.tree_at(lambda p: p.mean, prior, prior.mean * signs)
    return side.with_prior(prior).with_posterior(posterior)


def _kept(side: Side, chosen: Int[Array, " q"], family: Family) -> Side:
    posterior = family(side.posterior.mean[:, chosen], side.posterior.var[:, chosen])
    return side.with_prior(_chosen(side.prior, chosen)).with_posterior(posterior)


def _chosen(prior: OrnsteinUhlenbeck, chosen: Int[Array, " q"]) -> OrnsteinUhlenbeck:
    mean, variance, rate = (part[chosen] for part in (prior.mean, prior.variance, prior.rate))
    return OrnsteinUhlenbeck(prior.gaps, mean, variance, rate, prior.even)
