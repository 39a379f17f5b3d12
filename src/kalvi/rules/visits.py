"""The terms of a batch at one Gaussian, which are all that batch algorithms need from the data.

Linearised at the mean of q, the predictors of a row are Gaussian under q. The expected gradient gᵢ and
curvature Γᵢ of its log-likelihood, with the rows Jᵢ = ∂f/∂θ, are all that an ascent of

    ELBO(q) = Σ wᵢ E_q[log p(yᵢ | fᵢ)] − KL(q ‖ prior)

needs: Σ wᵢ Jᵢᵀ gᵢ, and as much of H = Σ wᵢ Jᵢᵀ Γᵢ Jᵢ as the structure of q can hold.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.gaussians import Gaussian, Updatable
from kalvi.gaussians.ascents import RowSums
from kalvi.likelihoods import Likelihood
from kalvi.likelihoods.sites import Expected
from kalvi.numerics.natural_gradient import Rounding, rounding_of
from kalvi.numerics.rows import JacobianRows, apply_curvature
from kalvi.predictors import Linearised, moments_of
from kalvi.predictors.models import Model
from kalvi.rules.rule import Batch, weigh_rows

Vector = Float[Array, " d"]

ROUGHNESS = 1e-5
"""The error of the integrals over several predictors, in nats a row, by which the bound may fall."""


class BatchVisit(eqx.Module):
    """A batch at one Gaussian: its rows, and their expected terms times their weights.

    It also serves as the matrix H, with `matvec`, `diagonal` and `to_dense`.
    """

    rows: JacobianRows
    value: Float[Array, " n"]
    gradient: Float[Array, "n *c"]
    curvature: Float[Array, "n *cc"]

    def force(self) -> Vector:
        """Σ w Jᵀ g."""
        return self.rows.transposed_times(self.gradient)

    def matvec(self, v: Float[Array, "d *k"]) -> Float[Array, "d *k"]:
        """H v."""
        return self.rows.transposed_times(apply_curvature(self.curvature, self.rows.times(v)))

    def diagonal(self) -> Vector:
        """diag H."""
        return self.rows.gram_diagonal(self.curvature)

    def to_dense(self) -> Float[Array, "d d"]:
        """H."""
        return self.rows.gram(self.curvature)


def weigh(rows: JacobianRows, expected: Expected, weight: Float[Array, " n"]) -> BatchVisit:
    """A `BatchVisit` from rows and their expected terms."""
    return BatchVisit(rows, *(weigh_rows(weight, term) for term in expected))


def visit(model: Model, q: Gaussian, batch: Batch) -> BatchVisit:
    """The expected terms of the rows of a batch at q."""
    return _visit(model, q, model.predictor.linearise(q.mean, batch.x), batch)[0]


def sums(model: Model, q: Updatable, batch: Batch) -> RowSums:
    """The sums over a batch that an ascent needs; sums of several batches are added."""
    linearised = model.predictor.linearise(q.mean, batch.x)
    seen, rounding = _visit(model, q, linearised, batch)
    value, total = jnp.sum(seen.value), jnp.sum(batch.weight)
    roughness = roughness_of(model.likelihood) * total
    return RowSums(value, seen.force(), q.gather(seen), rounding, total, roughness)


def roughness_of(likelihood: Likelihood) -> float:
    """The error of the likelihood's integrals in the bound, in nats a row."""
    return ROUGHNESS if likelihood.outputs > 1 else 0.0


def _visit(
    model: Model, q: Gaussian, linearised: Linearised, batch: Batch
) -> tuple[BatchVisit, Rounding]:
    mean, var = moments_of(q, linearised)
    expected = jax.vmap(lambda y, m, v: model.likelihood.expect(y, m, v))(batch.y, mean, var)
    seen = weigh(linearised.rows, expected, batch.weight)
    terms = seen.value, seen.gradient, seen.curvature
    return seen, rounding_of(*terms, jnp.abs(mean), var)
