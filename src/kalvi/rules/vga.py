"""The batch variational Gaussian approximation: the optimum that one pass of R-VGA approximates.

The bound ELBO(q) = Σ wᵢ E_q[log p(yᵢ | fᵢ)] − KL(q ‖ prior) is maximised by natural-gradient steps
(`numerics.natural_gradient`), with all rows in memory, in coordinates where the prior is N(0, I). At the
optimum the site of every row is consistent with the marginal of its predictor; for f = xᵀθ

    Λ = Σ₀⁻¹ + Σ wᵢ γᵢ xᵢ xᵢᵀ,      h = Σ₀⁻¹ μ₀ + Σ wᵢ (gᵢ + γᵢ xᵢᵀμ) xᵢ,      Λ μ = h,

so a pass over the rows at the current q (`visits`) gives target natural parameters (Λ*, h*).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kalvi.gaussians import Dense
from kalvi.gaussians.ascents import whitened_natural
from kalvi.likelihoods import Likelihood
from kalvi.numerics import linalg, natural_gradient
from kalvi.numerics.namespaces import Scalar
from kalvi.numerics.natural_gradient import Rounding
from kalvi.predictors import Linear, Predictor
from kalvi.predictors.models import Model, need_same_outputs
from kalvi.rules.rule import Batch, in_blocks, weigh_rows
from kalvi.rules.visits import roughness_of, sums

Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]

ROWS_AT_ONCE = 2048
TOLERANCE = 1e-18
"""Default stopping value of the squared natural-gradient norm, in nats: means to 1e-9 deviations."""


class VGA(NamedTuple):
    """The optimal Gaussian, its bound, the passes it took and how far it is from stationary."""

    posterior: Dense
    elbo: Scalar
    passes: Int[Array, ""]
    gap: Scalar  # squared natural-gradient norm, in nats
    converged: Bool[Array, ""]


def vga(
    likelihood: Likelihood,
    prior: Dense,
    batch: Batch,
    start: Dense,
    *,
    predictor: Predictor | None = None,
    max_passes: int | Int[Array, ""] = 1000,
    tolerance: float | Scalar = TOLERANCE,
) -> VGA:
    """The Gaussian that maximises the bound, starting from `start`, such as the prior or the result of
    R-VGA."""
    predictor = predictor or Linear()
    need_same_outputs(predictor, likelihood)
    inner, x = predictor.whitened(prior, batch.x)
    model = Model(inner, likelihood)
    size = min(max(ROWS_AT_ONCE // likelihood.outputs, 1), len(batch.weight))
    blocks = in_blocks(Batch(x, batch.y, batch.weight), size)

    def visit(mean: Vector, root: Matrix) -> natural_gradient.WhitenedSums:
        q = Dense.from_root(mean, root)

        def add(total, block):
            found = sums(model, q, block)
            here = natural_gradient.WhitenedSums(*found[:4])
            return jax.tree.map(jnp.add, total, here), None

        return jax.lax.scan(add, _zero_sums(mean), blocks)[0]

    natural = whitened_natural(prior, start)
    here, passes, converged = natural_gradient.climb(
        lambda natural: natural_gradient.iterate_at(natural, prior.dim, visit),
        natural,
        rows=jnp.sum(batch.weight),
        tolerance=tolerance,
        max_passes=max_passes,
        roughness=roughness_of(likelihood),
    )
    posterior = Dense.from_root(
        prior.mean + prior.root @ here.mean, prior.root @ linalg.root_from_precision(here.precision)
    )
    return VGA(posterior, here.elbo, passes, here.gap, converged)


def informed_start(
    likelihood: Likelihood, prior: Dense, batch: Batch, predictor: Predictor | None = None
) -> Dense:
    """A start for wide priors: the prior with the information of the rows at its mean added.

    If the likelihood is not log-concave, it is the prior.
    """
    if not likelihood.log_concave:
        return prior
    inner, x = (predictor or Linear()).whitened(prior, batch.x)
    mean, rows, _ = inner.linearise(jnp.zeros_like(prior.mean), x)
    information = jax.vmap(lambda f: jnp.asarray(likelihood.information(f), f.dtype))(mean)
    curvature = rows.gram(weigh_rows(batch.weight, information))
    gained = linalg.root_from_precision(linalg.identity_like(prior.root) + curvature)
    return Dense.from_root(prior.mean, prior.root @ gained)


def _zero_sums(mean: Vector) -> natural_gradient.WhitenedSums:
    zero = jnp.zeros_like(mean[0])
    matrix = jnp.zeros((mean.size,) * 2, mean.dtype)
    return natural_gradient.WhitenedSums(zero, jnp.zeros_like(mean), matrix, Rounding(zero, zero))
