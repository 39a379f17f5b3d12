"""The recursion of R-VGA inside a block: the sites of its observations, one after the other.

A block needs only the distribution of its predictors, with means a and covariance K. With one predictor an
observation,

    k = K[:, j],  (ξⱼ, γⱼ) = site(aⱼ, kⱼ),  sⱼ = γⱼ/(1 + γⱼ kⱼ),  a ← a + ξⱼ k,  K ← K − sⱼ k kᵀ,

and the structure then absorbs the block at once:

    Σ⁻¹ ← Σ⁻¹ + Xᵀ diag(γ) X,   μ ← μ + Σ Xᵀ c,   (I + triu(s kᵀ, 1)) c = ξ.

With c predictors an observation the rows come in groups, ξ is a vector and γ = Γ = R Rᵀ a matrix: with V =
K[j, j],

    S = Γ (I + V Γ)⁻¹ = Q Qᵀ,   (I + N) c = ξ,   N[i, j] = Sᵢ kᵢ[j]ᵀ = Qᵢ Uᵢ[j]ᵀ,   Uᵢ = kᵢ Qᵢ,

where N is strictly upper block triangular. K is never rewritten: column j is computed from K₀[:, j] and the
columns before it (left-looking), a panel of many observations at once. Nothing here depends
on the rows themselves, or on means being linear in θ.
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
from kalvi.numerics.platforms import is_traced_for_numpy, platform
from kalvi.numerics.rows import group_covariances
from kalvi.rules.schemes import Scheme

PerRow = Float[Array, " n"]

SETTLED, MOST_ROUNDS = 16.0, 40
"""Sites found together have converged when no predictor's mean or variance moves by more than so many ulps
of its first value; after so many rounds they are found one after the other."""
PANEL = 32
"""The number of observations in a panel, whose loop a CPU runs as one task."""
ROUNDING = 100.0
"""Negative eigenvalues of a curvature count as rounding up to so many ulps of its largest."""


class Observations(NamedTuple):
    """The labels of a block, their weights, and the share of each that is left at the end of the block.

    In a stream that forgets, a discounted observation counts by this share.
    """

    y: Float[Array, "n *o"]
    weight: PerRow
    discount: PerRow


class BlockSites(NamedTuple):
    """For each observation: the moments of its predictors before it, ξ, c and γ, and how its site was
    found.

    γ is a number, or for several predictors a root R of the matrix Γ = R Rᵀ.
    """

    mean: Float[Array, "n *c"]
    cov: Float[Array, "n *cc"]
    step: Float[Array, "n *c"]
    coefficient: Float[Array, "n *c"]
    curvature: Float[Array, "n *cc"]
    solved: PerRow  # 1 if solved, otherwise 0
    clipped: PerRow  # 1 if a negative curvature was set to zero

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
    """The sites of n observations, and the coefficients that a structure absorbs for all of them.

    likelihood_of(j) is the likelihood of observation j. On an accelerator a sequence of small steps is
    slow. So with one predictor an observation the sites are first found together, by the scheme's quick
    search, and one after the other only if a row was not solved.
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
    """All sites of a block, and the change of their predictors' moments since the previous round."""

    mean: PerRow
    var: PerRow
    columns: Float[Array, "n n"]  # kᵢ[j] on and above the diagonal
    found: tuple[Array, ...]  # ξ, γ, and the flags of `BlockSites`
    off: Float[Array, ""]
    count: Int[Array, ""]

    def next_mean(self, mean: PerRow) -> PerRow:
        """The means that follow from the first ones, with ξ as a linear function of the means."""
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
    """The sites of all rows, found together in rounds by the quick search, and whether the rounds
    converged.

    Given the sites, the moments of each predictor follow from the sites before it,

        L Lᵀ = I + γ^½ K γ^½,  T = triu(L⁻¹ γ^½ K, 1),  kᵢ[j] = (K − TᵀT)ᵢⱼ,  m = a + triu(k, 1)ᵀ ξ,

    and given the moments, the sites follow. A site depends only on those before it, so the only fixed point
    is the result of the recursion. In the means, ξ is taken as ξ₀ − s (m − m₀), as in Newton's method.
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
    """For observation j at N(m, v): ξ, γ, whether it is solved, and whether γ was clipped."""
    share = observed.discount[j]
    site = scheme.site(
        likelihood_of(j), observed.y[j], m, share * v, observed.weight[j], thorough=False
    )
    flags = site.solved.astype(m.dtype), (site.curvature < 0).astype(m.dtype)
    return share * site.step, share * jnp.maximum(site.curvature, 0), *flags


def _shrink(curvature: Float[Array, "*n"], var: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """s = γ/(1 + γ v)."""
    return curvature / (1 + curvature * var)


def _upper(columns: Float[Array, "n n"], shrink: PerRow) -> Float[Array, "n n"]:
    """I + triu(s kᵀ, 1)."""
    return linalg.identity_like(columns) + jnp.triu(linalg.scale_rows(shrink, columns), 1)


def _columns(cov: Float[Array, "n n"], curvature: PerRow) -> Float[Array, "n n"]:
    """kᵢ[j] on and above the diagonal, for sites with these curvatures."""
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
    """The sites of observations with one predictor each, one panel of observations after the other.

    The earlier columns are subtracted from the panel's rows of K. When its sites are known, its columns
    follow from those rows by M k = K, M = I + triu(s kᵀ, 1)ᵀ.
    """
    n, find = len(mean), partial(_find_panel, scheme, likelihood_of)
    if n <= PANEL or is_traced_for_numpy():
        columns, rows = find(jnp.arange(n), mean, cov, observed)
        return _joined_sites(columns, rows)
    mean, cov, observed = _filled(-n % PANEL, mean, cov, observed)

    def visit(first, carry):
        columns, rows = carry
        here = first * PANEL + jnp.arange(PANEL)
        past = _part(columns, first, axis=1)
        m = _part(mean, first) + linalg.times_vector(past.T, rows[:, 1])
        rest = _part(cov, first) - (past * rows[:, :1]).T @ columns
        part = Observations(*(_part(each, first) for each in observed))
        own, found = find(jnp.minimum(here, n - 1), m, _part(rest, first, axis=1), part)
        turn = _upper(own, found[:, 0])
        new = jsl.solve_triangular(turn, rest, trans=1)
        return _with_part(columns, new, first), _with_part(rows, found, first)

    empty = jnp.zeros_like(cov), jnp.zeros((len(mean), 7), mean.dtype)
    columns, rows = jax.lax.fori_loop(0, len(mean) // PANEL, visit, empty)
    return _joined_sites(columns[:n, :n], rows[:n])


def _find_panel(
    scheme: Scheme,
    likelihood_of: Callable[[Any], Likelihood],
    places: Int[Array, " n"],
    mean: PerRow,
    cov: Float[Array, "n n"],
    observed: Observations,
) -> tuple[Float[Array, "n n"], Float[Array, "n r"]]:
    """The columns kⱼ of the observations at these places of the block, and a row of numbers for each."""

    def visit(j, carry):
        columns, rows = carry
        past = _entry(columns, j, axis=1)
        column = _entry(cov, j) - linalg.times_vector(columns.T, rows[:, 0] * past)
        m = _entry(mean, j) + linalg.times_vector(rows[:, 1], past)
        v = jnp.maximum(_entry(column, j), 0)
        label, weight, share = (_entry(each, j) for each in observed)
        site = scheme.site(likelihood_of(places[j]), label, m, share * v, weight)
        step, curvature = share * site.step, share * jnp.maximum(site.curvature, 0)
        shrink = _shrink(curvature, v)
        flags = site.solved.astype(m.dtype), (site.curvature < 0).astype(m.dtype)
        row = jnp.stack([shrink, step, curvature, m, v, *flags])
        return _with_entry(columns, column, j), _with_entry(rows, row, j)

    empty = jnp.zeros_like(cov), jnp.zeros((len(mean), 7), mean.dtype)
    return compact_loop(len(mean), visit, empty)


def _joined_sites(columns: Float[Array, "n n"], rows: Float[Array, "n r"]) -> BlockSites:
    shrink, step, curvature, m, v, solved, clipped = rows.T
    coefficient = jsl.solve_triangular(_upper(columns, shrink), step)
    return BlockSites(m, v, step, coefficient, curvature, solved, clipped)


def _filled(
    more: int, mean: PerRow, cov: Float[Array, "n n"], observed: Observations
) -> tuple[Float[Array, " m"], Float[Array, "m m"], Observations]:
    """The observations with so many more of weight 0 as padding."""
    longer = [jnp.pad(each, (0, more)) for each in (mean, *observed)]
    return longer[0], jnp.pad(cov, (0, more)), Observations(*longer[1:])


def _part(a: Float[Array, "n *k"], i: Any, axis: int = 0) -> Float[Array, "..."]:
    """The entries of panel i."""
    return jax.lax.dynamic_slice_in_dim(a, i * PANEL, PANEL, axis)


def _with_part(a: Float[Array, "n k"], part: Float[Array, "m k"], i: Any) -> Float[Array, "n k"]:
    """The rows with panel i replaced."""
    return jax.lax.dynamic_update_slice_in_dim(a, part, i * PANEL, 0)


def _entry(a: Float[Array, "n *k"], j: Any, axis: int = 0) -> Float[Array, "*m"]:
    return jax.lax.dynamic_index_in_dim(a, j, axis, keepdims=False)


def _with_entry(a: Float[Array, "n k"], row: Float[Array, " k"], j: Any) -> Float[Array, "n k"]:
    """The rows with row j replaced."""
    return jax.lax.dynamic_update_index_in_dim(a, row, j, 0)


def _find_vectors(
    scheme: Scheme,
    likelihood_of: Callable[[Any], Likelihood],
    mean: Float[Array, "n c"],
    cov: Float[Array, "m m"],
    observed: Observations,
) -> BlockSites:
    """The sites of observations with several predictors; curvatures are clipped unless they are
    log-concave."""
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
    """Whether the curvature has a negative part that is more than rounding, and that a root leaves out."""
    if likelihood.log_concave:
        return jnp.asarray(False)
    values = jnp.linalg.eigvalsh(curvature)
    return values[0] < -ROUNDING * float(jnp.finfo(values.dtype).eps) * jnp.max(jnp.abs(values))
