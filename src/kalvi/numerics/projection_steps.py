"""The columns of a projection's target, and one EM iteration on them, in the symbols of `projections`."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.numerics import linalg

Scale = Float[Array, " b"] | Float[Array, "n c c"]  # √γ, or roots of n blocks of c rows


class TargetColumns(NamedTuple):
    """A chunk of Z = [√α W, Xᵀ √γ] and of ψ₀; X is never transposed in memory."""

    factor: Float[Array, "c p"]
    x: Float[Array, "b c"]
    scale: Scale  # √γ
    diag: Float[Array, " c"]

    def times(self, small: Float[Array, "q k"]) -> Float[Array, "c k"]:
        p = self.factor.shape[1]
        return self.factor @ small[:p] + self.x.T @ linalg.scale_blocks(self.scale, small[p:])

    def squares(self) -> Float[Array, " c"]:
        own = jnp.sum(self.factor**2, axis=1)
        if self.scale.ndim == 1:
            return own + linalg.times_vector(self.x.T**2, self.scale**2)
        return own + jnp.sum(linalg.scale_blocks_transposed(self.scale, self.x) ** 2, axis=0)

    def inner(self, u: Float[Array, "c k"]) -> Float[Array, "q k"]:
        rows = linalg.scale_blocks_transposed(self.scale, linalg.wide_times(self.x, u))
        return jnp.concatenate([linalg.inner(self.factor, u), rows])


def target_columns(scale, keep, w, diag, x) -> TargetColumns:
    """A chunk of the columns, from the same chunk of W, ψ and X; α is `keep`."""
    if keep is None:
        return TargetColumns(w, x, scale, diag)
    return TargetColumns(jnp.sqrt(keep) * w, x, scale, keep * diag)


class EMStep(NamedTuple):
    """The small matrices of one EM iteration."""

    mix: Float[Array, "q p"]  # Y M⁻¹ Θ⁻¹
    carry: Float[Array, "p p"]  # M⁻¹ Θ⁻¹
    inverse: Float[Array, "p p"]  # M⁻¹
    back: Float[Array, "p q"]  # M⁻¹ Yᵀ
    spread: Float[Array, "p p"]  # M⁻¹ J M⁻¹ + M⁻¹


class EMSums(NamedTuple):
    """The sums over d that one EM iteration needs."""

    own: Float[Array, "p p"]  # H
    prior: Float[Array, "p p"]  # J
    columns: Float[Array, "q p"]  # Y


def joseph(z: TargetColumns, step: EMStep, before, diag, factor) -> Float[Array, " c"]:
    """The ψ that belongs to the new factor, at least as large as in exact arithmetic."""
    p = z.factor.shape[1]
    residual = jnp.sum((z.factor - factor @ step.back[:, :p]) ** 2, axis=1)
    rows = linalg.scale_blocks_transposed(z.scale, z.x)
    residual += jnp.sum((rows.T - factor @ step.back[:, p:]) ** 2, axis=1)
    shared = jnp.sum(factor * (before @ step.inverse), axis=1) / diag
    spread = jnp.sum(factor * (factor @ step.spread), axis=1)
    least = z.diag * diag / (z.diag + diag)
    return jnp.maximum(residual + z.diag * (1 - 2 * shared) + spread, least)


def em_step(sums: EMSums) -> EMStep:
    """M, Θ and their products."""
    identity = linalg.identity_like(sums.own)
    root = linalg.steady_cholesky(identity + sums.own)
    inverse, back = linalg.cho_solve(root, identity), linalg.cho_solve(root, sums.columns.T)
    inverse = (inverse + inverse.T) / 2
    spread = inverse @ sums.prior @ inverse + inverse
    spread = (spread + spread.T) / 2
    carry = linalg.cho_solve(linalg.steady_cholesky(back @ back.T + spread), inverse).T
    return EMStep(sums.columns @ carry, carry, inverse, back, spread)
