"""The recursion of `rvga` where an observation has c predictors: c × c curvatures in place of numbers.

The rows of n observations come in groups of c. From the law of all n·c predictors, means a and covariance
K, with V = K[j, j] the covariance of group j by itself and Γ = R Rᵀ the curvature of its site,

    k = K[:, j],  (ξ, Γ) = site(aⱼ, V),  a ← a + k ξ,  K ← K − k S kᵀ,   S = Γ (I + V Γ)⁻¹ = Q Qᵀ,

and the structure then absorbs all of them: Σ⁻¹ ← Σ⁻¹ + Xᵀ diag(Γ) X, μ ← μ + Σ Xᵀ c, with N strictly
upper block triangular in

    (I + N) c = ξ,      N[i, j] = Sᵢ kᵢ[j]ᵀ = Qᵢ Uᵢ[j]ᵀ,      Uᵢ = kᵢ Qᵢ.

K is never rewritten: k = K₀[:, j] − U U[j]ᵀ. Nothing here knows what the rows are, nor whether the means
are linear in θ.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from kalvi import linalg
from kalvi.algorithms.sites import Scheme
from kalvi.climbing import Rounding, rounding_of
from kalvi.gaussians import Dense, Gaussian
from kalvi.namespaces import AnyArray, map_blocks, namespace_of
from kalvi.predictors import MultiLinear
from kalvi.vectors import VectorLikelihood, shrinkage

AT_ONCE = 8
"""Observations whose covariances with each other are made as well, where a structure has no cheaper way."""

PerGroup = Float[Array, " n"]


class Groups(NamedTuple):
    """Per observation: the law of its predictors before it, ξ, c and a root of Γ, and how it was found."""

    mean: Float[Array, "n c"]
    cov: Float[Array, "n c c"]
    step: Float[Array, "n c"]
    coefficient: Float[Array, "n c"]
    root: Float[Array, "n c c"]
    solved: PerGroup  # 1 where it is so, 0 where not


def solve_groups(
    scheme: Scheme,
    likelihood: VectorLikelihood,
    mean: Float[Array, "n c"],
    cov: Float[Array, "nc nc"],
    y: Float[Array, "n *o"],
    weight: PerGroup,
    discount: PerGroup,
) -> Groups:
    """The sites of n observations one after the other, and what a structure absorbs of them all.

    A discounted observation counts for that share at the end of the block, as where a stream forgets.
    """
    n, c = mean.shape

    def visit(j, carry):
        running, spread, halves, found = carry
        own = jax.lax.dynamic_slice_in_dim(spread, j * c, c)
        column = jax.lax.dynamic_slice_in_dim(cov, j * c, c, axis=1) - spread @ own.T
        m = jax.lax.dynamic_slice_in_dim(running, j * c, c)
        half = linalg.semidefinite_root(jax.lax.dynamic_slice_in_dim(column, j * c, c))
        v, share = half @ half.T, discount[j]
        site = scheme.group(likelihood, y[j], m, share * v, weight[j])
        root = linalg.semidefinite_root(share * site.curvature)
        shrink, step = shrinkage(root, v), share * site.step
        new = Groups(m, v, step, step, root, site.solved.astype(m.dtype))
        spread = jax.lax.dynamic_update_slice_in_dim(spread, column @ shrink, j * c, axis=1)
        found = jax.tree.map(lambda all_, one: all_.at[j].set(one), found, new)
        return running + column @ step, spread, halves.at[j].set(shrink), found

    vectors, matrices = jnp.zeros_like(mean), jnp.zeros((n, c, c), mean.dtype)
    empty = Groups(vectors, matrices, vectors, vectors, matrices, vectors[:, 0])
    start = mean.ravel(), jnp.zeros_like(cov), matrices, empty
    _, spread, halves, found = jax.lax.fori_loop(0, n, visit, start)
    group = jnp.arange(n * c) // c
    later = group[:, None] < group[None, :]
    upper = linalg.identity_like(cov) + jnp.where(later, linalg.mix(halves, spread.T), 0)
    coefficient = jsl.solve_triangular(upper, found.step.ravel())
    return found._replace(coefficient=coefficient.reshape(n, c))


def group_covariances(cov: Float[AnyArray, "nc nc"], c: int) -> Float[AnyArray, "n c c"]:
    """The covariance of each group by itself."""
    n = cov.shape[0] // c
    return namespace_of(cov).einsum("ncnk->nck", cov.reshape(n, c, n, c))


def laws(
    q: Gaussian, predictor: MultiLinear, x: Float[AnyArray, "n i"]
) -> tuple[Float[AnyArray, "n c"], Float[AnyArray, "n c c"]]:
    """Mean and covariance of the predictors of each observation by itself."""
    if isinstance(q, Dense):
        half = predictor.spread(x, q.root)
        return predictor.mean(q.mean, x), half @ half.swapaxes(1, 2)
    n = x.shape[0]
    blocks = namespace_of(x).pad(x, [(0, -n % AT_ONCE), (0, 0)]).reshape(-1, AT_ONCE, x.shape[1])

    def visit(block):
        rows = predictor.linearise(q.mean, block)[1]
        return group_covariances(q.marginal(rows)[1], predictor.outputs)

    cov = map_blocks(visit, blocks)
    return predictor.mean(q.mean, x), cov.reshape(-1, *cov.shape[2:])[:n]


def rounding_of_groups(
    value: PerGroup,
    gradient: Float[Array, "n c"],
    curvature: Float[Array, "n c c"],
    mean: Float[Array, "n c"],
    cov: Float[Array, "n c c"],
) -> Rounding:
    """What rounding is relative to in the sums over observations with several predictors."""
    bend = jnp.sum(jnp.abs(curvature), axis=2)
    return rounding_of(value, gradient, bend, jnp.abs(mean), jnp.einsum("ncc->nc", cov))
