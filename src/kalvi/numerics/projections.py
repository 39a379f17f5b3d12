"""Factor-analysis projections: the approximation of a matrix of higher rank by W Wᵀ + diag ψ, in KL.

Lambert, Bonnabel & Bach (2023), "The limited-memory recursive variational Gaussian approximation",
Algorithm 1 and eq. 27. The target is

    S = α (W Wᵀ + Ψ) + Xᵀ diag(γ) X = Z Zᵀ + Ψ₀,     Z = [√α W, Xᵀ √γ]  (d × q, q = p + b),  Ψ₀ = α Ψ.

If an observation has c rows, its curvature is a c × c matrix, and √γ is block diagonal with a root of each,
R Rᵀ = γ; nothing else changes.

Every projection starts from K = Z V_p, W₁ = K √(1 − f), ψ₁ = ψ₀ + rowsum((Z Q)²) + rowsum(f K²):

    Eigen   Zᵀ Ψ₀⁻¹ Z = V Λ Vᵀ: V_p the leading p eigenvectors, Q the others. With f = 0 this is the optimal
            W for Ψ₀, then the optimal ψ for that W. But what Q gives to ψ raises the precision along the
            kept directions too, and over many blocks that makes factors of noise. So f = τ/λ, with τ the
            mean of the d − p discarded eigenvalues: the optimal W for the best multiple of Ψ₀, 1 + τ
            (probabilistic PCA in that metric), then the optimal ψ. Either way diag(W Wᵀ + Ψ) = diag(S), ψ
            never decreases, a target of rank p is met exactly, and W = 0 is a good start.
    EM      the paper's first inner loop, collapsed: with M = I + Wᵀ Ψ⁻¹ W, C = M⁻¹ Wᵀ Ψ⁻¹ X and
            L Lᵀ = I + Cᵀ C, it is Q = [−C; I] L^{-T}, V_p = [I; 0] + Q L⁻¹ Cᵀ, f = 0. EM never fills an
            empty column of W, so a block that meets one takes the eigen start.

and continues with EM iterations. One iteration, from (W₁, ψ₁) with U = W₁/ψ₁, needs the sums over d

    H = W₁ᵀ U,   J = Uᵀ Ψ₀ U,   Y = Zᵀ U,      M = I + H,   Θ = M⁻¹ + M⁻¹ (Yᵀ Y + J) M⁻¹,

and then acts row by row. ψ is in Joseph form, a sum of squares up to rounding and at least ψ₀ψ₁/(ψ₀ + ψ₁):

    W₂ = (Z Y + (ψ₀/ψ₁) W₁) M⁻¹ Θ⁻¹,
    ψ₂ = rowsum((Z − W₂ M⁻¹ Yᵀ)²) + ψ₀ (1 − 2 rowsum(W₂ ∘ U M⁻¹)) + rowsum(W₂ ∘ W₂ (M⁻¹ J M⁻¹ + M⁻¹)).

All of this sweeps over the d rows one chunk at a time (`linalg.sweep`). Iterates are not kept, but computed
again from Z in each sweep, and the last sweep overwrites W: memory is one W and a chunk.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Bool, Float

from kalvi.numerics import linalg
from kalvi.numerics.namespaces import AnyArray, namespace_of
from kalvi.numerics.platforms import platform
from kalvi.numerics.projection_steps import (
    EMStep,
    EMSums,
    Scale,
    TargetColumns,
    em_step,
    joseph,
    target_columns,
)

LEAK = 1e-8
"""Rounded eigenvectors leak a share of eps² λ of the strongest kept direction into ψ; if that is more than
this, the dropped part is made orthogonal to the kept one once more."""
DIFFERENCE = 1e-9
"""If eps λ, or eps times the sum of squares of every row of Z, is below this share of ψ or an ulp of ψ, the
dropped part of ψ is a difference of squares, which saves a product as large as the block."""

Factor = Float[AnyArray, "d p"]
Diag = Float[AnyArray, " d"]


def _fused(factor: Factor, x: Float[AnyArray, "b d"]) -> Any:
    """The kernels for these arrays; None if there are none."""
    if platform() != "gpu":
        return None
    from kalvi.numerics import fused_sweeps  # imports Pallas, which takes long

    return fused_sweeps if fused_sweeps.supports(factor, x) else None


class Gram(NamedTuple):
    """Inner products of the columns of [W, Xᵀ], weighted by 1/ψ."""

    factor: Float[AnyArray, "p p"]
    mixed: Float[AnyArray, "p b"]
    rows: Float[AnyArray, "b b"]


def gram(factor: Factor, diag: Diag, x: Float[AnyArray, "b d"], whole: bool = True) -> Gram:
    """[W, Xᵀ]ᵀ Ψ⁻¹ [W, Xᵀ], in its three parts; the last is zero unless `whole`."""

    def visit(total, read, wide, _, fresh):
        w, weight = read[0], fresh / read[1]
        if whole and (fused := _fused(w, wide)):
            new = fused.fused_gram(w, weight, wide)
            return Gram(*(old + more for old, more in zip(total, new, strict=True))), ()
        scaled = linalg.scale_rows(weight, w)
        own = linalg.inner_of_wide(wide * weight[None, :], wide) if whole else total[2]
        new = linalg.inner(w, scaled), linalg.wide_times(wide, scaled).T, own
        return Gram(*(old + more for old, more in zip(total, new, strict=True))), ()

    p, b = factor.shape[1], x.shape[0]
    shapes = (p, p), (p, b), (b, b) if whole else (0, 0)
    xp = namespace_of(factor, diag, x)
    empty = Gram(*(xp.zeros(shape, diag.dtype) for shape in shapes))
    return linalg.sweep(visit, empty, (factor, diag), x)[0]


class ProjectionTarget(NamedTuple):
    """α (W Wᵀ + diag ψ) + Xᵀ R Rᵀ X, R = diag(scale) or with the blocks `scale` on its diagonal."""

    factor: Factor
    diag: Diag
    x: Float[Array, "b d"]
    scale: Scale
    gram: Gram
    keep: Float[Array, ""] | None = None  # α; None is 1


class _FirstIterate(NamedTuple):
    """The matrices of the first iterate; if nothing is dropped, ψ₁ is ψ before it was scaled."""

    kept: Float[Array, "q p"]
    shared: Float[Array, " p"]  # f
    dropped: Float[Array, "q b"] | None
    by_difference: Bool[Array, ""]  # V is orthogonal: rowsum((Z Q)²) = rowsum(Z²) − rowsum(K²)

    def iterate(self, z: "TargetColumns", unscaled: Diag) -> tuple[Factor, Diag]:
        """W₁ and ψ₁ for a chunk."""
        if self.dropped is None:
            return z.times(self.kept) * jnp.sqrt(1 - self.shared)[None, :], unscaled
        dropped = self.dropped
        spared = jax.lax.cond(
            self.by_difference,
            lambda: jnp.zeros_like(z.diag),
            lambda: jnp.sum(z.times(dropped) ** 2, axis=1),
        )
        factor, difference, leaked = self._kept(z)
        rest = jnp.where(self.by_difference, jnp.maximum(difference, 0), spared)
        return factor, z.diag + rest + leaked

    def _kept(self, z: "TargetColumns") -> tuple[Factor, Diag, Diag]:
        """K √(1 − f), rowsum(Z²) − rowsum(K²) and rowsum(f K²)."""
        fused = _fused(z.factor, z.x)
        if fused and z.scale.ndim == 1:
            return fused.fused_rows(z.factor, z.x, self.kept, z.scale, self.shared)
        kept = z.times(self.kept)
        difference = z.squares() - jnp.sum(kept**2, axis=1)
        leaked = linalg.times_vector(kept**2, self.shared)
        return kept * jnp.sqrt(1 - self.shared)[None, :], difference, leaked


class Plan(NamedTuple):
    """A projection that can be applied to any rows of the factor and the diag."""

    scale: Scale
    keep: Float[Array, ""] | None
    start: _FirstIterate
    done: tuple[EMStep, ...] = ()
    diags: tuple[Diag, ...] = ()  # the diag from which each step started

    def rows(
        self,
        w: Float[Array, "c p"],
        diag: Float[Array, " c"],
        x: Float[Array, "b c"],
        diags: tuple[Float[Array, " c"], ...],
    ) -> tuple[Float[Array, "c p"], Float[Array, " c"]]:
        """The projected rows, from the same rows of the target and of `diags`."""
        z = target_columns(self.scale, self.keep, w, diag, x)
        factor, first = self.start.iterate(z, diag)
        before = factor
        for step, present in zip(self.done, diags, strict=True):
            before = factor
            factor = z.times(step.mix) + linalg.scale_rows(z.diag / present, before @ step.carry)
        if self.done:
            return factor, joseph(z, self.done[-1], before, diags[-1], factor)
        return factor, first


class Projection(eqx.Module):
    """A method to approximate a target by W Wᵀ + diag ψ with as many columns as before."""

    @abstractmethod
    def start(self, target: ProjectionTarget) -> _FirstIterate:
        """The first iterate."""

    @abstractmethod
    def steps(self, target: ProjectionTarget) -> int:
        """The number of EM iterations that follow it."""

    def __call__(self, target: ProjectionTarget) -> tuple[Factor, Diag]:
        """The projected factor and diag."""
        plan = self.plan(target)

        def visit(total, before, wide, written, fresh):
            factor, diag = written
            return total, plan.rows(factor, diag, wide, before)

        return linalg.sweep(visit, None, plan.diags, target.x, (target.factor, target.diag))[1]

    def plan(self, target: ProjectionTarget) -> "Plan":
        """The plan by which the factor and the diag are projected row by row."""
        plan = Plan(target.scale, target.keep, self.start(target))
        for _ in range(self.steps(target)):
            plan = _add_step(plan, target)
        return plan


class Eigen(Projection):
    """The eigen projection, exact for a target of rank p, followed by `polish` EM iterations.

    `shrink=False` keeps the leading eigenvalues at their full size.
    """

    polish: int = eqx.field(static=True, default=0)
    shrink: bool = eqx.field(static=True, default=True)

    def __check_init__(self):
        if self.polish < 0:
            raise ValueError(f"Eigen needs a polish of 0 or more; got polish={self.polish}.")

    def start(self, target: ProjectionTarget) -> _FirstIterate:
        return _eigen_start(target, self.shrink)

    def steps(self, target: ProjectionTarget) -> int:
        return self.polish


class EM(Projection):
    """Algorithm 1 of the paper, with `loops` inner loops."""

    loops: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        if self.loops < 1:
            raise ValueError(f"EM needs at least one loop; got loops={self.loops}.")

    def start(self, target: ProjectionTarget) -> _FirstIterate:
        p, b = target.factor.shape[1], target.x.shape[0]
        empty = jnp.any(jnp.diagonal(target.gram.factor) == 0)
        if target.keep is not None:
            # as in the paper, EM starts from the factor and the diag before they are scaled
            whole = jnp.eye(p + b, p, dtype=target.diag.dtype) / jnp.sqrt(target.keep)
            kept = jax.lax.cond(empty, lambda: _eigen_start(target, False).kept, lambda: whole)
            return _FirstIterate(kept, jnp.zeros_like(kept[0]), None, jnp.asarray(False))
        return jax.lax.cond(empty, lambda: _eigen_start(target, False), lambda: _em_start(target))

    def steps(self, target: ProjectionTarget) -> int:
        return self.loops - (target.keep is None)


class Leading(NamedTuple):
    """The eigenvectors of a Gram matrix of p + b columns, in two parts."""

    kept: Float[Array, "q p"]
    dropped: Float[Array, "q b"]
    shared: Float[Array, " p"]  # f
    inverse: Float[Array, " p"]  # of the eigenvalues that are kept; 0 for an eigenvalue of 0
    largest: Float[Array, ""]


def leading(gram: Float[Array, "q q"], p: int, d: int, shrink: bool) -> Leading:
    """The p leading eigenvectors, and the share f of each, for d parameters, that goes to the diagonal."""
    values, vectors = jnp.linalg.eigh(gram)
    eps, b = jnp.finfo(values.dtype).eps, len(values) - p
    values = jnp.where(values > (p + b) * eps * values[-1], values, 0)  # the others are rounding
    strength = values[b:]
    noise = jnp.sum(values[:b]) / max(d - p, 1) if shrink else jnp.zeros_like(values[0])
    inverse = jnp.where(strength > 0, 1 / jnp.where(strength > 0, strength, 1), 0)
    shared = jnp.minimum(noise * inverse, 1)
    return Leading(vectors[:, b:], vectors[:, :b], shared, inverse, values[-1])


def _eigen_start(target: ProjectionTarget, shrink: bool) -> _FirstIterate:
    d, p = target.factor.shape
    found = leading(_whole_gram(target), p, d, shrink)
    eps, dropped = jnp.finfo(found.kept.dtype).eps, found.dropped
    by_difference = jax.lax.cond(
        eps * found.largest < DIFFERENCE,
        lambda: jnp.asarray(True),
        lambda: _rounds_little(target),
    )
    start = _FirstIterate(found.kept, found.shared, dropped, by_difference)
    apart = jax.lax.cond(
        eps**2 * found.largest < LEAK,
        lambda: dropped,
        lambda: dropped - found.kept @ linalg.scale_rows(found.inverse, _overlap(target, start)),
    )
    return start._replace(dropped=apart)


def _rounds_little(target: ProjectionTarget) -> Bool[Array, ""]:
    """Whether the rounding of rowsum(Z²) is negligible in ψ₀ for every row."""
    most = max(DIFFERENCE / float(jnp.finfo(target.diag.dtype).eps), 1 / 4)

    def visit(total, read, wide, _, fresh):
        z = target_columns(target.scale, target.keep, read[0], read[1], wide)
        return total + jnp.sum(jnp.where(z.squares() > most * z.diag, fresh, 0)), ()

    none = jnp.zeros((), target.diag.dtype)
    return linalg.sweep(visit, none, (target.factor, target.diag), target.x)[0] == 0


def _em_start(target: ProjectionTarget) -> _FirstIterate:
    loading = linalg.scale_blocks_transposed(target.scale, target.gram.mixed.T).T
    identity = linalg.identity_like(target.gram.factor)
    loading = linalg.cho_solve(linalg.steady_cholesky(identity + target.gram.factor), loading)
    inner = loading.T @ loading
    lower = linalg.cholesky(linalg.identity_like(inner) + inner)
    unit = jsl.solve_triangular(lower, linalg.identity_like(inner), lower=True)
    dropped = jnp.concatenate([-loading, linalg.identity_like(inner)]) @ unit.T
    p, b = loading.shape
    kept = jnp.eye(p + b, p, dtype=inner.dtype) + dropped @ (unit @ loading.T)
    return _FirstIterate(kept, jnp.zeros_like(kept[0]), dropped, jnp.asarray(False))


def _whole_gram(target: ProjectionTarget) -> Float[Array, "q q"]:
    """Zᵀ Ψ₀⁻¹ Z."""
    scale = target.scale if target.keep is None else target.scale / jnp.sqrt(target.keep)
    return scaled_gram(target.gram, scale)


def scaled_gram(gram: Gram, scale: Scale) -> Float[Array, "q q"]:
    """Inner products of the columns of [W, Xᵀ S], given those of [W, Xᵀ]."""
    mixed = linalg.scale_blocks_transposed(scale, gram.mixed.T).T
    rows = linalg.scale_blocks_transposed(scale, linalg.scale_blocks_transposed(scale, gram.rows).T)
    return jnp.block([[gram.factor, mixed], [mixed.T, rows]])


def _overlap(target: ProjectionTarget, start: _FirstIterate) -> Float[Array, "p b"]:
    """(Z kept)ᵀ Ψ₀⁻¹ (Z dropped): zero up to rounding."""
    assert start.dropped is not None
    dropped = start.dropped

    def visit(total, read, wide, _, fresh):
        w, diag = read
        z = target_columns(target.scale, target.keep, w, diag, wide)
        scaled = linalg.scale_rows(fresh / z.diag, z.times(dropped))
        return total + linalg.inner(z.times(start.kept), scaled), ()

    shape = (start.kept.shape[1], dropped.shape[1])
    empty = jnp.zeros(shape, target.diag.dtype)
    return linalg.sweep(visit, empty, (target.factor, target.diag), target.x)[0]


def _add_step(plan: Plan, target: ProjectionTarget) -> Plan:
    """The plan with one more EM iteration, whose sums take a sweep."""

    def visit(total, read, wide, _, fresh):
        w, diag, diags = read
        z = target_columns(plan.scale, plan.keep, w, diag, wide)
        factor, present = plan.rows(w, diag, wide, diags)
        u = linalg.scale_rows(fresh / present, factor)
        prior = linalg.inner(u, linalg.scale_rows(z.diag, u))
        sums = EMSums(linalg.inner(factor, u), prior, z.inner(u))
        return jax.tree.map(jnp.add, total, sums), present

    q, p = plan.start.kept.shape
    empty = EMSums(*(jnp.zeros((n, p), target.diag.dtype) for n in (p, p, q)))
    read = (target.factor, target.diag, plan.diags)
    sums, present = linalg.sweep(visit, empty, read, target.x, jnp.zeros_like(target.diag))
    return plan._replace(done=(*plan.done, em_step(sums)), diags=(*plan.diags, present))
