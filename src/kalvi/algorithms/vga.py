"""Batch variational Gaussian approximation: the optimum that one pass of R-VGA approaches.

The bound ELBO(q) = Σ wᵢ E_q[log p(yᵢ | xᵢᵀθ)] − KL(q ‖ prior) is climbed by natural-gradient steps
(`climbing`). At the optimum every row's site is consistent with the marginal of its predictor,

    Λ = Σ₀⁻¹ + Σ wᵢ γᵢ xᵢ xᵢᵀ,      h = Σ₀⁻¹ μ₀ + Σ wᵢ (gᵢ + γᵢ xᵢᵀμ) xᵢ,      Λ μ = h,

so a pass over the rows at the present q gives target natural parameters (Λ*, h*). Where a row has c
predictors f = B x, θ the rows of B one after the other, gᵢ is a vector, γᵢ a c × c matrix, and xᵢ xᵢᵀ γᵢ
reads γᵢ ⊗ xᵢ xᵢᵀ.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kalvi import climbing, linalg
from kalvi.algorithms.base import Batch, weighted
from kalvi.algorithms.groups import laws, rounding_of_groups
from kalvi.climbing import Rounding, Sums
from kalvi.gaussians import Dense
from kalvi.likelihoods import Likelihood
from kalvi.predictors import MultiLinear
from kalvi.vectors import VectorLikelihood

Scalar = Float[Array, ""]
Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]
PerRow = Float[Array, " n"]

ROWS_AT_ONCE = 2048
TOLERANCE = 1e-18
"""Default stopping value of the squared natural-gradient norm, in nats: means to 1e-9 deviations."""

ROUGHNESS = 1e-5
"""Nats a row by which the bound may fall where the integrals of several predictors disagree with it."""


class VGA(NamedTuple):
    """The optimal Gaussian, its bound, the passes it took and how far it is from stationary."""

    posterior: Dense
    elbo: Scalar
    passes: Int[Array, ""]
    gap: Scalar  # squared natural-gradient norm, in nats
    converged: Bool[Array, ""]


def vga(
    likelihood: Likelihood | VectorLikelihood,
    prior: Dense,
    batch: Batch,
    start: Dense,
    *,
    offset: PerRow | None = None,
    extra: PerRow | None = None,
    max_passes: int | Int[Array, ""] = 1000,
    tolerance: float | Scalar = TOLERANCE,
) -> VGA:
    """The Gaussian that maximises the bound, from a Gaussian `start` (the prior, or one R-VGA pass).

    The predictor of a row is xᵀθ + offset, with a variance of `extra` beside that of θ.
    """
    vector = isinstance(likelihood, VectorLikelihood)
    rows = [jnp.zeros_like(batch.weight) if a is None else a for a in (offset, extra)]
    visit = _groups(likelihood, prior, batch) if vector else _rows(likelihood, prior, batch, *rows)
    unroot = linalg.inverse_root(prior.root).T
    whitened = jnp.linalg.solve(start.root, prior.root)
    precision = whitened.T @ whitened
    here, passes, converged = climbing.climb_gaussian(
        visit,
        precision,
        precision @ (unroot @ (start.mean - prior.mean)),
        rows=jnp.sum(batch.weight),
        tolerance=tolerance,
        max_passes=max_passes,
        rough=ROUGHNESS if vector else 0.0,
    )
    posterior = Dense.from_root(
        prior.mean + prior.root @ here.mean, prior.root @ linalg.root_from_precision(here.precision)
    )
    return VGA(posterior, here.elbo, passes, here.gap, converged)


def informed(
    likelihood: Likelihood | VectorLikelihood,
    prior: Dense,
    batch: Batch,
    offset: PerRow | None = None,
) -> Dense:
    """The prior with the information that rows have at its mean: a start for wide priors.

    Where the likelihood is not log-concave, or of several predictors, it is the prior.
    """
    if isinstance(likelihood, VectorLikelihood) or not likelihood.log_concave:
        return prior
    mean = batch.x @ prior.mean + (jnp.zeros_like(batch.weight) if offset is None else offset)
    curvature = weighted(batch.weight, jax.vmap(lambda f: likelihood.information(f))(mean))
    rows = linalg.scale_rows(jnp.sqrt(curvature), batch.x @ prior.root)
    gained = linalg.root_from_precision(linalg.identity_like(prior.root) + rows.T @ rows)
    return Dense.from_root(prior.mean, prior.root @ gained)


def _blocks(size: int, *arrays: Array) -> tuple[Array, ...]:
    """The rows of each array in blocks, the last padded with zeros (weight 0)."""
    n = arrays[0].shape[0]
    size = min(size, n)
    missing = -n % size

    def cut(a: Array) -> Array:
        return jnp.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1)).reshape(-1, size, *a.shape[1:])

    return tuple(cut(a) for a in arrays)


def _rows(
    likelihood: Likelihood, prior: Dense, batch: Batch, offset: PerRow, extra: PerRow
) -> Callable[[Vector, Matrix], Sums]:
    """One pass over the rows, in the prior's own coordinates."""
    offset, z = offset + batch.x @ prior.mean, batch.x @ prior.root
    reach = jnp.sqrt(jnp.sum(z**2, axis=1))
    blocks = _blocks(ROWS_AT_ONCE, z, reach, offset, extra, batch.y, batch.weight)
    expect = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v))

    def visit(mean: Vector, root: Matrix) -> Sums:
        def add(total, block):
            z, reach, offset, extra, y, weight = block
            var = jnp.sum((z @ root) ** 2, axis=1) + extra
            expected = expect(y, offset + z @ mean, var)
            value, pull, bend = (weighted(weight, a) for a in expected)
            size = jnp.abs(offset) + reach * jnp.sqrt(mean @ mean)
            rounding = climbing.rounding_of(value, pull, bend, size, var)
            curvature = z.T @ linalg.scale_rows(bend, z)
            sums = Sums(jnp.sum(value), z.T @ pull, curvature, rounding)
            return jax.tree.map(jnp.add, total, sums), None

        return jax.lax.scan(add, _nothing(mean), blocks)[0]

    return visit


def _groups(
    likelihood: VectorLikelihood, prior: Dense, batch: Batch
) -> Callable[[Vector, Matrix], Sums]:
    """The same for several predictors a row; sums are taken in θ, where the design is I ⊗ x."""
    predictor = MultiLinear(likelihood.outputs)
    size = max(ROWS_AT_ONCE // likelihood.outputs, 1)
    blocks = _blocks(size, batch.x, batch.y, batch.weight)
    expect = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v))

    def visit(mean: Vector, root: Matrix) -> Sums:
        q = Dense.from_root(prior.mean + prior.root @ mean, prior.root @ root)

        def add(total, block):
            x, y, weight = block
            law = laws(q, predictor, x)
            value, pull, bend = (weighted(weight, a) for a in expect(y, *law))
            rounding = rounding_of_groups(value, pull, bend, *law)
            curvature = jnp.einsum("nck,ni,nj->cikj", bend, x, x).reshape(len(mean), -1)
            sums = Sums(jnp.sum(value), predictor.gather(x, pull), curvature, rounding)
            return jax.tree.map(jnp.add, total, sums), None

        fit, gradient, curvature, rounding = jax.lax.scan(add, _nothing(mean), blocks)[0]
        own = prior.root.T @ gradient, prior.root.T @ curvature @ prior.root
        return Sums(fit, *own, rounding)

    return visit


def _nothing(mean: Vector) -> Sums:
    zero = jnp.zeros_like(mean[0])
    matrix = jnp.zeros((mean.size,) * 2, mean.dtype)
    return Sums(zero, jnp.zeros_like(mean), matrix, Rounding(zero, zero))
