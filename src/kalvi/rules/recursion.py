"""The recursion of R-VGA inside a block: the sites of its observations, one after the other.

A block needs the Gaussian only through the law of its predictors, means a and covariance K. For one
predictor an observation,

    k = K[:, j],  (ξⱼ, γⱼ) = site(aⱼ, kⱼ),  sⱼ = γⱼ/(1 + γⱼ kⱼ),  a ← a + ξⱼ k,  K ← K − sⱼ k kᵀ,

and the structure then absorbs the block at once:

    Σ⁻¹ ← Σ⁻¹ + Xᵀ diag(γ) X,   μ ← μ + Σ Xᵀ c,   (I + triu(s kᵀ, 1)) c = ξ.

For c predictors the rows come in groups, ξ is a vector and γ = Γ = R Rᵀ a matrix: with V = K[j, j],

    S = Γ (I + V Γ)⁻¹ = Q Qᵀ,   (I + N) c = ξ,   N[i, j] = Sᵢ kᵢ[j]ᵀ = Qᵢ Uᵢ[j]ᵀ,   Uᵢ = kᵢ Qᵢ,

N strictly upper block triangular. K is never rewritten: column j is made of K₀[:, j] and the columns
before it (left-looking). Nothing here knows what the rows are, nor whether the means are linear in θ.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Bool, Float, Int

from kalvi.likelihoods import Likelihood
from kalvi.likelihoods.sites import shrinkage
from kalvi.numerics import linalg
from kalvi.numerics.loops import compact_loop
from kalvi.numerics.platforms import platform
from kalvi.numerics.rows import group_covariances
from kalvi.rules.schemes import Scheme

PerRow = Float[Array, " n"]

SETTLED, MOST_ROUNDS = 16.0, 40
"""Sites found together are settled when no predictor's law moves by more than so many ulps of its first
one; after so many rounds they are found one after the other."""
ROUNDING = 100.0
"""Negative eigenvalues of a curvature are rounding up to so many ulps of its largest."""


class Observations(NamedTuple):
    """The labels of a block, their weights, and how much of each will be left at its end.

    A discounted observation counts for that share then, as where a stream forgets.
    """

    y: Float[Array, "n *o"]
    weight: PerRow
    discount: PerRow


class BlockSites(NamedTuple):
    """Per observation: the law of its predictors before it, ξ, c and γ, and how its site was found.

    γ is a number, or of several predictors a root R of the matrix Γ = R Rᵀ.
    """

    mean: Float[Array, "n *c"]
    cov: Float[Array, "n *cc"]
    step: Float[Array, "n *c"]
    coefficient: Float[Array, "n *c"]
    curvature: Float[Array, "n *cc"]
    solved: PerRow  # 1 where it is so, 0 where not
    clipped: PerRow  # 1 where a negative curvature was set to zero

    def strength(self, cov: Float[Array, "m m"]) -> PerRow:
        """γ x Σ xᵀ of each observation, under the covariance before the block."""
        if self.curvature.ndim == 1:
            return self.curvature * jnp.diagonal(cov)
        alone = group_covariances(cov, self.curvature.shape[1])
        return jnp.einsum("nij,nik,nkj->n", self.curvature, alone, self.curvature)


def find_sites(
    scheme: Scheme,
    likelihood_of: Callable[[Any], Likelihood],
    mean: Float[Array, "n *c"],
    cov: Float[Array, "m m"],
    observed: Observations,
) -> BlockSites:
    """The sites of n observations one after the other, and what a structure absorbs of them all.

    likelihood_of(j) is that of observation j. With one predictor an observation an accelerator, where every
    small step of the recursion waits for the one before, first finds them in rounds by the scheme's quick
    search, and one after the other where a row was not solved.
    """
    if mean.ndim == 2:
        return _find_vectors(scheme, likelihood_of, mean, cov, observed)
    if platform() == "cpu" or len(mean) == 1:
        return _find_numbers(scheme, likelihood_of, mean, cov, observed)
    quick, settled = find_together(scheme, likelihood_of, mean, cov, observed)
    return jax.lax.cond(
        settled & jnp.all((quick.solved == 1) | (observed.weight == 0)),
        lambda: quick,
        lambda: _find_numbers(scheme, likelihood_of, mean, cov, observed),
    )


class _Rounds(NamedTuple):
    """All sites of a block, and how far their laws are from those of the round before."""

    mean: PerRow
    var: PerRow
    columns: Float[Array, "n n"]  # kᵢ[j] on and above the diagonal
    found: tuple[Array, ...]  # ξ, γ, and the flags of `BlockSites`
    off: Float[Array, ""]
    count: Int[Array, ""]

    def next_mean(self, mean: PerRow) -> PerRow:
        """The means that follow from the first ones, ξ taken as a linear function of them."""
        above, (step, curvature, *_) = jnp.triu(self.columns, 1), self.found
        shrink = _shrink(curvature, self.var)
        target = mean + linalg.times_vector(above.T, step + shrink * self.mean)
        return jsl.solve_triangular(_upper(above, shrink), target, trans=1)


def find_together(
    scheme: Scheme,
    likelihood_of: Callable[[Any], Likelihood],
    mean: PerRow,
    cov: Float[Array, "n n"],
    observed: Observations,
) -> tuple[BlockSites, Bool[Array, ""]]:
    """The sites in rounds of all at once, by the quick search, and whether the rounds settled.

    Given the sites, the law of each predictor follows from those before it,

        L Lᵀ = I + γ^½ K γ^½,  T = triu(L⁻¹ γ^½ K, 1),  kᵢ[j] = (K − TᵀT)ᵢⱼ,  m = a + triu(k, 1)ᵀ ξ,

    and given the laws, the sites do. A site depends only on those before it, so that nothing but the
    recursion's result stays as it is. Along the means ξ is taken as ξ₀ − s (m − m₀), as in Newton's method.
    """
    own = jnp.maximum(jnp.diagonal(cov), 0)
    tiny, eps = jnp.finfo(mean.dtype).tiny, float(jnp.finfo(mean.dtype).eps)
    size = jnp.abs(mean) + jnp.sqrt(own) + tiny
    find = jax.vmap(partial(_find_quick_site, scheme, likelihood_of, observed))
    places = jnp.arange(len(mean))

    def advance(past: _Rounds) -> _Rounds:
        columns = _columns(cov, past.found[1])
        var = jnp.maximum(jnp.diagonal(columns), 0)
        m = past._replace(columns=columns, var=var).next_mean(mean)
        moved = jnp.abs(m - past.mean) / size, jnp.abs(var - past.var) / (own + tiny)
        off = jnp.max(jnp.maximum(*moved))
        return _Rounds(m, var, columns, find(places, m, var), off, past.count + 1)

    def goes_on(past: _Rounds) -> Bool[Array, ""]:
        return (past.off > SETTLED * eps) & (past.count < MOST_ROUNDS)

    far, none = jnp.asarray(jnp.inf, mean.dtype), jnp.zeros((), jnp.int32)
    start = _Rounds(mean, own, cov, find(places, mean, own), far, none)
    end = jax.lax.while_loop(goes_on, advance, start)
    step, curvature, solved, clipped = end.found
    upper = _upper(end.columns, _shrink(curvature, end.var))
    coefficient = jsl.solve_triangular(upper, step)
    sites = BlockSites(end.mean, end.var, step, coefficient, curvature, solved, clipped)
    return sites, end.off <= SETTLED * eps


def _find_quick_site(scheme, likelihood_of, observed: Observations, j, m, v) -> tuple[Array, ...]:
    """ξ, γ, whether it is solved and whether γ was clipped, of observation j at N(m, v)."""
    share = observed.discount[j]
    site = scheme.site(
        likelihood_of(j), observed.y[j], m, share * v, observed.weight[j], thorough=False
    )
    flags = site.solved.astype(m.dtype), (site.curvature < 0).astype(m.dtype)
    return share * site.step, share * jnp.maximum(site.curvature, 0), *flags


def _shrink(curvature: Float[Array, "*n"], var: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """s."""
    return curvature / (1 + curvature * var)


def _upper(columns: Float[Array, "n n"], shrink: PerRow) -> Float[Array, "n n"]:
    """I + triu(s kᵀ, 1)."""
    return linalg.identity_like(columns) + jnp.triu(linalg.scale_rows(shrink, columns), 1)


def _columns(cov: Float[Array, "n n"], curvature: PerRow) -> Float[Array, "n n"]:
    """On and above the diagonal, kᵢ[j] of sites with these curvatures."""
    half = jnp.sqrt(curvature)
    scaled = linalg.scale_rows(half, cov)
    root = linalg.cholesky(linalg.identity_like(cov) + scaled * half[None, :])
    before = jnp.triu(jsl.solve_triangular(root, scaled, lower=True), 1)
    return cov - before.T @ before


def _find_numbers(
    scheme: Scheme,
    likelihood_of: Callable[[Any], Likelihood],
    mean: PerRow,
    cov: Float[Array, "n n"],
    observed: Observations,
) -> BlockSites:
    """One predictor an observation."""

    def visit(j, carry):
        columns, rows = carry
        past = _entry(columns, j, axis=1)
        column = _entry(cov, j) - linalg.times_vector(columns.T, rows[:, 0] * past)
        m = _entry(mean, j) + linalg.times_vector(rows[:, 1], past)
        v = jnp.maximum(_entry(column, j), 0)
        label, weight, share = (_entry(each, j) for each in observed)
        site = scheme.site(likelihood_of(j), label, m, share * v, weight)
        step, curvature = share * site.step, share * jnp.maximum(site.curvature, 0)
        shrink = _shrink(curvature, v)
        flags = site.solved.astype(m.dtype), (site.curvature < 0).astype(m.dtype)
        row = jnp.stack([shrink, step, curvature, m, v, *flags])
        return _with_entry(columns, column, j), _with_entry(rows, row, j)

    empty = jnp.zeros_like(cov), jnp.zeros((len(mean), 7), mean.dtype)
    columns, rows = compact_loop(len(mean), visit, empty)
    shrink, step, curvature, m, v, solved, clipped = rows.T
    coefficient = jsl.solve_triangular(_upper(columns, shrink), step)
    return BlockSites(m, v, step, coefficient, curvature, solved, clipped)


def _entry(a: Float[Array, "n *k"], j: Any, axis: int = 0) -> Float[Array, "*m"]:
    return jax.lax.dynamic_index_in_dim(a, j, axis, keepdims=False)


def _with_entry(a: Float[Array, "n k"], row: Float[Array, " k"], j: Any) -> Float[Array, "n k"]:
    """The rows with another in place of row j."""
    return jax.lax.dynamic_update_index_in_dim(a, row, j, 0)


def _find_vectors(
    scheme: Scheme,
    likelihood_of: Callable[[Any], Likelihood],
    mean: Float[Array, "n c"],
    cov: Float[Array, "m m"],
    observed: Observations,
) -> BlockSites:
    """Several predictors an observation; their likelihoods are log-concave, or their curvatures clipped."""
    (n, c), (y, weight, discount) = mean.shape, observed

    def visit(j, carry):
        running, spread, halves, found = carry
        own = jax.lax.dynamic_slice_in_dim(spread, j * c, c)
        column = jax.lax.dynamic_slice_in_dim(cov, j * c, c, axis=1) - spread @ own.T
        m = jax.lax.dynamic_slice_in_dim(running, j * c, c)
        half = linalg.semidefinite_root(jax.lax.dynamic_slice_in_dim(column, j * c, c))
        v, share = half @ half.T, discount[j]
        likelihood = likelihood_of(j)
        site = scheme.site(likelihood, y[j], m, share * v, weight[j])
        root = linalg.semidefinite_root(share * site.curvature)
        shrink, step = shrinkage(root, v), share * site.step
        flags = site.solved, _is_clipped(likelihood, site.curvature)
        new = BlockSites(m, v, step, step, root, *(flag.astype(m.dtype) for flag in flags))
        spread = jax.lax.dynamic_update_slice_in_dim(spread, column @ shrink, j * c, axis=1)
        found = jax.tree.map(lambda all_, one: all_.at[j].set(one), found, new)
        return running + column @ step, spread, halves.at[j].set(shrink), found

    vectors, matrices = jnp.zeros_like(mean), jnp.zeros((n, c, c), mean.dtype)
    flags = vectors[:, 0]
    empty = BlockSites(vectors, matrices, vectors, vectors, matrices, flags, flags)
    start = mean.ravel(), jnp.zeros_like(cov), matrices, empty
    _, spread, halves, found = jax.lax.fori_loop(0, n, visit, start)
    group = jnp.arange(n * c) // c
    later = group[:, None] < group[None, :]
    upper = linalg.identity_like(cov) + jnp.where(later, linalg.scale_blocks(halves, spread.T), 0)
    coefficient = jsl.solve_triangular(upper, found.step.ravel())
    return found._replace(coefficient=coefficient.reshape(n, c))


def _is_clipped(likelihood: Likelihood, curvature: Float[Array, "c c"]) -> Bool[Array, ""]:
    """Whether a root of the curvature leaves out a negative part that is not rounding."""
    if likelihood.log_concave:
        return jnp.asarray(False)
    values = jnp.linalg.eigvalsh(curvature)
    return values[0] < -ROUNDING * float(jnp.finfo(values.dtype).eps) * jnp.max(jnp.abs(values))
