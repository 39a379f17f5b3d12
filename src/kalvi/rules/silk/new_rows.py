"""Factors of new rows, given the columns and the priors.

Document 004, sections 3 and 4, with everything fixed except Γ and the rows: alternating updates of the two
lead to the best rows.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from kalvi.numerics.namespaces import Scalar
from kalvi.rules.silk.expected import SHARE, expected, mix
from kalvi.rules.silk.first_sites import sites_of_posterior
from kalvi.rules.silk.locations import DeviceLocations
from kalvi.rules.silk.model import Side, Silk, statistics, update_rows
from kalvi.rules.silk.observed import Observed, Statistics
from kalvi.rules.silk.posteriors import Exact, Family
from kalvi.rules.silk.start import prior

Round = tuple[Side, Statistics, Scalar, Scalar, Array]
"""The rows, their sites, the bound, its gain, and the number of the round."""


def side_from_prior(side: Side, places: DeviceLocations, family: Family) -> Side:
    """New rows at these locations without known entries: their means and variances are those of the
    prior."""
    old, n = side.prior, places.n
    mean, var = (jnp.broadcast_to(a, (n, len(a))) for a in (old.mean, old.variance))
    new = prior(places, old.mean, old.variance, old.rate)
    return Side(new, family(mean, var), places.spot, places.ordered)


def fit_rows(
    silk: Silk,
    observed: Observed,
    tolerance: Scalar,
    max_rounds: Int[Array, ""],
    *,
    unbounded: bool = False,
) -> tuple[Silk, Bool[Array, ""]]:
    """The best rows, and whether the last round gained less than the tolerance, in nats.

    `unbounded` uses expectations as in `ExpectedSILK`.
    """
    ask, share = (expected, SHARE) if unbounded else (statistics, 1.0)

    def round_(state: Round) -> Round:
        rows, sites, last, _, i = state
        now = Silk(rows, silk.cols)
        found = ask(now, observed)
        bound = jnp.sum(found.loss) - rows.kl()
        sites = mix(sites, found, share)
        return update_rows(now, sites, Exact()).rows, sites, bound, bound - last, i + 1

    def going(state: Round) -> Array:
        _, _, bound, gain, i = state
        # the rounding of a sum, which bounds the tolerance from below
        least = jnp.maximum(tolerance, 4 * float(jnp.finfo(bound.dtype).eps) * jnp.abs(bound))
        return (i < max_rounds) & ((gain > least) | (i < 2))

    nothing = jnp.asarray(-jnp.inf, tolerance.dtype)
    said = sites_of_posterior(silk.rows)
    first = silk.rows, said, nothing, -nothing, jnp.zeros((), jnp.int32)
    rows, _, _, _, rounds = jax.lax.while_loop(going, round_, first)
    return Silk(rows, silk.cols), rounds < max_rounds
