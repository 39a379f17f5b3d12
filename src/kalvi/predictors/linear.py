"""Predictors that are linear in θ."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.gaussians import Dense
from kalvi.numerics import sharding
from kalvi.numerics.linalg import times_vector
from kalvi.numerics.namespaces import AnyArray
from kalvi.numerics.rows import DenseRows, PerObservation, RepeatedRows, SparseInputs
from kalvi.numerics.sparse_rows import SparseRows
from kalvi.predictors.predictor import Linearised, Parameters, Predictor, Whitened

if TYPE_CHECKING:
    Rows = Any
else:
    Rows = Float[AnyArray, "n i"] | SparseRows


class OneLinear(Predictor):
    """A predictor with one number for each row, linear in θ."""

    @property
    def outputs(self) -> int:
        return 1

    @property
    def linear(self) -> bool:
        return True

    def __call__(self, theta: Parameters, x: Float[AnyArray, " i"]) -> Float[AnyArray, "*c"]:
        return self.values(theta, x[None])[0]


class Linear(OneLinear):
    """f = xᵀθ."""

    def values(self, theta: Parameters, x: Rows) -> PerObservation:
        return x @ theta if isinstance(x, SparseRows) else times_vector(x, theta)

    def linearise(self, theta: Parameters, x: Rows) -> Linearised:
        rows = SparseInputs(x) if isinstance(x, SparseRows) else DenseRows(x)
        return Linearised(self.values(theta, x), rows)

    def whitened(self, prior: Dense, x: Rows) -> tuple[Predictor, Float[Array, "n k"]]:
        offset = x @ prior.mean
        return OffsetLinear(), offset_inputs(x @ prior.root, offset, jnp.zeros_like(offset))


class OffsetLinear(OneLinear):
    """f = offset + xᵀθ + e; the last two columns of the inputs are the offset and the variance of e."""

    def values(self, theta: Parameters, x: Rows) -> PerObservation:
        return x[:, -2] + x[:, :-2] @ theta

    def linearise(self, theta: Parameters, x: Rows) -> Linearised:
        return Linearised(self.values(theta, x), DenseRows(x[:, :-2]), x[:, -1])

    def whitened(self, prior: Dense, x: Rows) -> tuple[Predictor, Float[Array, "n k"]]:
        offset = self.values(prior.mean, x)
        return OffsetLinear(), offset_inputs(x[:, :-2] @ prior.root, offset, x[:, -1])


class MultiLinear(Predictor):
    """f = B x for c ≥ 2 outputs, where θ holds the rows of B one after the other."""

    outputs: int = eqx.field(static=True)

    def __check_init__(self):
        if self.outputs < 2:
            raise ValueError(
                f"MultiLinear needs two outputs or more; got {self.outputs}. For one use Linear()."
            )

    @property
    def linear(self) -> bool:
        return True

    def __call__(self, theta: Parameters, x: Float[AnyArray, " i"]) -> Float[AnyArray, "*c"]:
        return self.values(theta, x[None])[0]

    def values(self, theta: Parameters, x: Rows) -> PerObservation:
        if isinstance(x, SparseRows):
            return SparseInputs(x, self.outputs).times(theta)
        return x @ theta.reshape(self.outputs, x.shape[1]).T

    def linearise(self, theta: Parameters, x: Rows) -> Linearised:
        if isinstance(x, SparseRows):
            return Linearised(self.values(theta, x), SparseInputs(x, self.outputs))
        rows = RepeatedRows(x, self.outputs)
        if sharding.splits(theta.shape[0]):
            return Linearised((rows.matrix() @ theta).reshape(-1, self.outputs), rows)
        return Linearised(self.values(theta, x), rows)

    def whitened(self, prior: Dense, x: Rows) -> tuple[Predictor, Float[Array, "n k"]]:
        return Whitened(self, prior), x


def offset_inputs(
    x: Float[Array, "n d"], offset: Float[Array, " n"], extra: Float[Array, " n"]
) -> Float[Array, "n k"]:
    """The inputs of `OffsetLinear`: rows with their offset and the variance of e as last columns."""
    return jnp.concatenate([x, jnp.stack([offset, extra], axis=1)], axis=1)


def linear_predictor(outputs: int) -> Predictor:
    """The linear predictor with so many outputs."""
    return Linear() if outputs == 1 else MultiLinear(outputs)
