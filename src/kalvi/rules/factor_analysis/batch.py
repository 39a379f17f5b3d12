"""Factor analysis of a whole table in several passes, without d × d arrays.

With S = Xᵀ X/N the covariance of the centred rows, products S U are Xᵀ (X U)/N. There are two algorithms
that raise the likelihood; neither ever lowers it.

`em`, the fixed point of Lambert, Bonnabel & Bach (2023), eqs 17-20: with U = Ψ⁻¹ F, V = S U, M = I + Fᵀ U,

    Θ = M⁻¹ + M⁻¹ Uᵀ V M⁻¹,    F ← V M⁻¹ Θ⁻¹,    ψ ← diag(S) − diag(F Θ Fᵀ).

`ritz`, with up to a hundred times fewer passes: the best F in a subspace, then a step for ψ. The
subspace holds the last eigenvectors and their image under S; with B its orthonormal basis in the whitened
space Ŝ = Ψ^{-1/2} S Ψ^{-1/2}, and (λ, v) the leading eigenpairs of Bᵀ Ŝ B,

    F = Ψ^{1/2} B v (λ − 1)₊^{1/2},    M = I + Fᵀ Ψ⁻¹ F = max(λ, 1),    Z = X Ψ⁻¹ F M⁻¹ = E[z | x],
    r = diag((X − Z Fᵀ)ᵀ (X − Z Fᵀ))/N,    ψ ← r + diag(F M⁻¹ Fᵀ),
    log-likelihood = −½ [d log 2π + log|Ψ| + log|M| + Σ r/ψ + |Z|²/N],

all of them sums of squares, which keep their digits if a feature has hardly any noise of its own. In this
case the plain step for ψ takes thousands of passes. With φ = 1 − diag(B v vᵀ Bᵀ), the share of a feature
that the factors do not explain, 1/φ² times the plain step of log ψ is Newton's step for the likelihood
maximised over F (Jöreskog 1967, using only the diagonal of his matrix). It is tried first, and replaced by
the plain step if the likelihood falls.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from kalvi.gaussians import LowRankCovariance
from kalvi.numerics import linalg
from kalvi.rules.factor_analysis import factor_model
from kalvi.rules.factor_analysis.factor_model import Factor, PerFeature, Rows, Scalar
from kalvi.rules.rule import Batch

LEAST_OWN, LONGEST = 1e-4, 2.0
"""Bounds on Newton's step for log ψ: the smallest φ, and the longest step."""
RECOVERY = 0.25
"""The share of the way back to Newton's step that is taken after each successful step."""
CALM = 2
"""The climb ends after so many successive passes with little gain."""


class FactorOptimum(NamedTuple):
    """The most likely Gaussian, its likelihood, the number of passes, and whether they converged."""

    posterior: LowRankCovariance
    log_likelihood: Scalar  # the average over the rows
    passes: Int[Array, ""]
    converged: Bool[Array, ""]


class CentredTable(NamedTuple):
    """Rows with scatter S, and diag(S)."""

    x: Rows
    variance: PerFeature


class Iterate(NamedTuple):
    """Columns that span F, their image under S Ψ⁻¹, F and ψ, and the ψ to try next.

    A stride of 1 tries Newton's step, one of 0 the plain step.
    """

    basis: Factor
    image: Factor
    factor: Factor
    diag: PerFeature
    trial: PerFeature
    stride: Scalar
    value: Scalar  # the log-likelihood a row, without the last step for ψ

    @classmethod
    def at(cls, factor: Factor, diag: PerFeature) -> "Iterate":
        """The first iterate."""
        one = jnp.ones((), diag.dtype)
        return cls(factor, factor, factor, diag, diag, one, -jnp.inf * one)


Step = Callable[[CentredTable, Iterate], tuple[Iterate, Scalar]]  # the next iterate and its gain


def batch_em(
    batch: Batch,
    start: LowRankCovariance,
    *,
    max_passes: Int[Array, ""] | int = 1000,
    tolerance: Scalar | float = 1e-8,
    accelerated: bool = True,
    centred: bool = True,
) -> FactorOptimum:
    """The most likely Gaussian N(mean, F Fᵀ + diag ψ) of the rows, by steps that never lower the
    likelihood.

    It ends when a pass gains less than `tolerance` in log-likelihood a row; `accelerated=False` is plain
    EM.
    """
    total = jnp.maximum(jnp.sum(batch.weight), 1)
    mean = batch.weight @ batch.x / total if centred else start.mean
    x = linalg.scale_rows(jnp.sqrt(batch.weight / total), batch.x - mean[None, :])
    table = CentredTable(x, jnp.sum(x**2, axis=0))
    factor = start.covariance.factor
    first = Iterate.at(factor, factor_model.floor_noise(factor, start.covariance.diag))
    step: Step = ritz if accelerated else em
    last, passes, converged = _climb(step, table, first, max_passes, tolerance)
    q = LowRankCovariance(mean, last.factor, last.diag)
    likelihood = jnp.sum(batch.weight * factor_model.log_densities(q, batch.x)) / total
    return FactorOptimum(q, likelihood, passes, converged)


def _climb(step: Step, table: CentredTable, first: Iterate, max_passes, tolerance):
    eps = float(jnp.finfo(table.x.dtype).eps)

    def unfinished(carry):
        _, passes, calm = carry
        return (passes < max_passes) & (calm < CALM)

    def advance(carry):
        iterate, passes, calm = carry
        iterate, gain = step(table, iterate)
        hidden = 4 * eps * jnp.abs(iterate.value)  # the rounding error
        return iterate, passes + 1, jnp.where(gain > jnp.maximum(tolerance, hidden), 0, calm + 1)

    nothing = jnp.zeros((), jnp.int32)
    last, passes, calm = jax.lax.while_loop(unfinished, advance, (first, nothing, nothing))
    return last, passes, calm >= CALM


def em(table: CentredTable, last: Iterate) -> tuple[Iterate, Scalar]:
    """One EM iteration."""
    u = linalg.scale_rows(1 / last.diag, last.factor)
    y = table.x @ u
    inner = linalg.identity_like(y.T @ y) + last.factor.T @ u
    root = linalg.cholesky(inner)
    inverse = linalg.cho_solve(root, linalg.identity_like(inner))
    second = inverse + inverse @ (y.T @ y) @ inverse
    lower = linalg.cholesky((second + second.T) / 2)
    factor = linalg.cho_solve(lower, (table.x.T @ y @ inverse).T).T
    diag = _kept(table, table.variance - jnp.sum((factor @ lower) ** 2, axis=1))
    square = jnp.sum(table.variance / last.diag) - jnp.trace(inverse @ (y.T @ y))
    value = _value(last.diag, 2 * jnp.sum(jnp.log(jnp.diagonal(root))), square)
    return Iterate.at(factor, diag)._replace(value=value), value - last.value


def ritz(table: CentredTable, last: Iterate) -> tuple[Iterate, Scalar]:
    """The best factor in the subspace for a trial ψ, and the next ψ; or a shorter trial step."""
    std, p = jnp.sqrt(last.trial), last.basis.shape[1]
    span = jnp.concatenate([last.basis, last.image], axis=1)
    span = linalg.orthonormal_basis(linalg.scale_rows(1 / std, span))
    y = table.x @ linalg.scale_rows(1 / std, span)
    values, vectors = jnp.linalg.eigh(y.T @ y)
    values, vectors = values[-p:], vectors[:, -p:]
    basis, image = linalg.scale_rows(std, span @ vectors), table.x.T @ (y @ vectors)
    spread = jnp.maximum(values, 1)
    scale = jnp.sqrt(spread - 1)
    factor = basis * scale[None, :]
    hidden = (y @ vectors) * (scale / spread)[None, :]
    rest = jnp.sum((table.x - hidden @ factor.T) ** 2, axis=0)
    diag = _kept(table, rest + factor**2 @ (1 / spread))
    square = jnp.sum(rest / last.trial) + jnp.sum(hidden**2)
    value = _value(last.trial, jnp.sum(jnp.log(spread)), square)
    stride = jnp.minimum(last.stride + RECOVERY, 1)
    own = jnp.maximum(1 - jnp.sum((span @ vectors) ** 2, axis=1), LEAST_OWN)
    move = jnp.clip(own ** (-2 * stride) * jnp.log(diag / last.trial), -LONGEST, LONGEST)
    trial = _kept(table, last.trial * jnp.exp(move))
    risen = Iterate(basis, image, factor, diag, trial, stride, value)
    back = last._replace(trial=last.diag, stride=last.stride / 2)
    fell = (value < last.value) & jnp.any(last.trial != last.diag)
    chosen = jax.tree.map(lambda a, b: jnp.where(fell, a, b), back, risen)
    return chosen, jnp.where(fell, jnp.inf, value - last.value)


def _kept(table: CentredTable, diag: PerFeature) -> PerFeature:
    """ψ, clipped between its floor and the variance."""
    least = factor_model.floor_noise(jnp.sqrt(table.variance)[:, None], jnp.zeros_like(diag))
    return jnp.clip(diag, least, jnp.maximum(table.variance, least))


def _value(diag: PerFeature, spread: Scalar, square: Scalar) -> Scalar:
    """The log-likelihood a row, from log|M| and the average of xᵀ (F Fᵀ + Ψ)⁻¹ x."""
    return -(len(diag) * float(np.log(2 * np.pi)) + jnp.sum(jnp.log(diag)) + spread + square) / 2
