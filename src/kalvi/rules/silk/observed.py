"""The statistics of the factors of a binary matrix from its observed entries.

An entry x ∈ {0, 1} with logit ψ = ⟨u, α⟩ and its Pólya–Gamma variable Y ~ PG(1, Γ) has the bound
(document 004, section 3.2)

    (x − ½) E ψ − log 2cosh(Γ/2) − ½ (E ψ² − Γ²) w,      w = tanh(Γ/2) / (2Γ),

which is best at Γ² = E ψ², where the last term vanishes. It is quadratic in u, with linear term Σ (x − ½) E
α (the pull) and curvature Ψ = Σ w E ααᵀ, sums over the observed entries of the row, each times its weight.

Γ is recomputed where it is needed and never kept, and entries are processed in blocks, so no array of
numbers as large as the matrix is ever made.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int8

from kalvi.likelihoods.logistic import log_sigmoid
from kalvi.rules.silk.moments import Moments, Sequence, Upper

PRODUCT = 64
"""So many factors 1 + e^−Γ ≤ 2 are multiplied before their logarithm is taken: 2⁶⁴ fits a float32."""
SERIES, SERIES_DOUBLE = 0.3, 0.003
"""Below this w comes from its series: the next term is 17 Γ⁶/80640, and 1 − e^−Γ would lose digits."""


class Statistics(NamedTuple):
    """Sums over the entries of each row: the linear term, the curvature, and the part of the bound."""

    pull: Sequence
    curvature: Upper  # of Ψ
    loss: Float[Array, " n"]  # Σ E log p(x | ψ), by its bound


class EntryBlock(NamedTuple):
    """A block of entries: w entries for each of b rows."""

    mean: Float[Array, "b k"]  # of the rows
    sign: Int8[Array, "b w"]  # 1 for a one, −1 for a zero, 0 if not observed
    weight: Float[Array, "b w"] | None
    psi: Float[Array, "b w"]  # E ψ
    square: Float[Array, "b w"]  # E ψ²
    cols: Moments  # of w columns, the same or different for each row

    def dot(self, values: Float[Array, "b w"], part: Array) -> Float[Array, "b q"]:
        """For each row the sum over its entries of the values times a part of the columns' moments."""
        return values @ part if part.ndim == 2 else jnp.einsum("bw,bwq->bq", values, part)

    def apply_weights(self, values: Float[Array, "b w"]) -> Float[Array, "b w"]:
        """The values of observed entries times the weights; 0 for the others."""
        values = values if self.weight is None else values * self.weight
        return jnp.where(self.sign != 0, values, 0)


def block_of(
    rows: Moments, sign: Array, weight: Array | None, cols: Moments, adds_mean: bool
) -> EntryBlock:
    """The block of entries of some rows and columns; `adds_mean` is as in `Posterior`."""

    def inner(a: Array, b: Array) -> Array:
        return a @ b.T if b.ndim == 2 else jnp.einsum("bq,bwq->bw", a, b)

    psi, square = inner(rows.mean, cols.mean), inner(rows.left, cols.right)
    return EntryBlock(rows.mean, sign, weight, psi, square + psi**2 if adds_mean else square, cols)


class Observed(eqx.Module):
    """The observed entries of a binary matrix."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]: ...

    @abstractmethod
    def transpose(self) -> "Observed":
        """The transposed matrix."""

    @abstractmethod
    def reduce(
        self, rows: Moments, cols: Moments, adds_mean: bool, of: Callable[[EntryBlock], Any]
    ) -> Any:
        """The sums of(block) over the entries of each row, for all rows; `adds_mean` is as in
        `Posterior`."""

    @abstractmethod
    def statistics(self, rows: Moments, cols: Moments, adds_mean: bool) -> Statistics:
        """The statistics of the rows from all entries, at the best Γ."""


def block_statistics(block: EntryBlock) -> Statistics:
    """The pull, curvature and bound of the rows of a block."""
    gamma = jnp.sqrt(jnp.maximum(block.square, 0))  # may be below zero by rounding
    decay = jnp.exp(-gamma)
    pull = block.dot(block.apply_weights(block.sign.astype(gamma.dtype) / 2), block.cols.mean)
    held = block.apply_weights(strength(block.square, gamma, decay))
    curvature = block.dot(held, block.cols.second)
    if block.weight is None:
        logs = sum_log(jnp.where(block.sign != 0, 1 + decay, 1))
        cost = logs + jnp.sum(block.apply_weights(gamma), axis=1) / 2
    else:
        cost = jnp.sum(block.apply_weights(gamma / 2 + jnp.log1p(decay)), axis=1)
    return Statistics(pull, curvature, jnp.sum(pull * block.mean, axis=1) - cost)


def log_predictive(block: EntryBlock) -> Float[Array, " b"]:
    """Σ log E p(x | ψ), with ψ as a Gaussian."""
    var = jnp.maximum(block.square - block.psi**2, 0)
    logs = jax.vmap(jax.vmap(log_sigmoid))(block.sign * block.psi, var)
    return jnp.sum(block.apply_weights(logs), axis=1)


def log_plug_in(block: EntryBlock) -> Float[Array, " b"]:
    """Σ log p(x | E ψ), the document's test loss."""
    return jnp.sum(block.apply_weights(jax.nn.log_sigmoid(block.sign * block.psi)), axis=1)


def strength(square: Array, gamma: Array, decay: Array) -> Array:
    """w of Γ, given Γ² and e^−Γ."""
    near = gamma < (SERIES if square.dtype == jnp.float32 else SERIES_DOUBLE)
    far = (1 - decay) / ((1 + decay) * 2 * jnp.where(near, 1, gamma))
    return jnp.where(near, 0.25 - square / 48 + square**2 / 480, far)


def sum_log(factors: Float[Array, "b w"]) -> Float[Array, " b"]:
    """Σ log of the factors in [1, 2] in each row, with one logarithm for 64 of them."""
    b, w = factors.shape
    padded = jnp.pad(factors, ((0, 0), (0, -w % PRODUCT)), constant_values=1)
    products = jnp.prod(padded.reshape(b, -1, PRODUCT), axis=2)
    return jnp.sum(jnp.log(products), axis=1)
