"""The rows J = ∂f/∂θ of n observations with c predictors each, as an operator.

The values of an observation are numbers if c is 1, and otherwise vectors or c × c matrices: arrays of shape
(n,), or (n, c) and (n, c, c). J times a vector of parameters, Jᵀ times values of observations and sums Σ
Jᵢᵀ Γᵢ Jᵢ are computed here, so that a rule need not distinguish the two cases.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.numerics import linalg, sharding
from kalvi.numerics.namespaces import AnyArray, map_blocks, namespace_of
from kalvi.numerics.sparse_rows import Rows, SparseRows

PerObservation = Float[AnyArray, "n *ck"]
Curvature = Float[AnyArray, "n *cc"]
Matrix = Rows

BLOCK = 8
"""If rows are not written out, the covariances between so many observations are computed together."""


class JacobianRows(eqx.Module):
    """J: c rows for each of n observations, d columns."""

    if TYPE_CHECKING:

        @property
        def outputs(self) -> int:
            """c, the number of predictors of an observation."""
            ...
    else:
        outputs: eqx.AbstractVar[int]

    @abstractmethod
    def matrix(self) -> Matrix:
        """J as a matrix: c rows for the first observation, then c for the next."""

    @abstractmethod
    def times(self, v: Float[AnyArray, "d *k"]) -> PerObservation:
        """J v."""

    @abstractmethod
    def transposed_times(self, v: PerObservation) -> Float[AnyArray, "d *k"]:
        """Jᵀ v."""

    @abstractmethod
    def gram(self, curvature: Curvature) -> Float[Array, "d d"]:
        """Σ Jᵢᵀ Γᵢ Jᵢ."""

    @abstractmethod
    def gram_diagonal(self, curvature: Curvature) -> Float[Array, " d"]:
        """The diagonal of Σ Jᵢᵀ Γᵢ Jᵢ."""

    @abstractmethod
    def own_covariances(self, covariance: Callable[[Matrix], AnyArray]) -> Curvature:
        """The covariance of each observation's predictors, given that of all rows of a matrix."""


class DenseRows(JacobianRows):
    """Rows held as a matrix, such as inputs of a linear model or the Jacobian of a network."""

    entries: Matrix
    outputs: int = eqx.field(static=True, default=1)

    def matrix(self) -> Matrix:
        return self.entries

    def times(self, v: Float[AnyArray, "d *k"]) -> PerObservation:
        return _by_observation(self.entries @ v, self.outputs)

    def transposed_times(self, v: PerObservation) -> Float[AnyArray, "d *k"]:
        return self.entries.T @ (v if self.outputs == 1 else v.reshape(-1, *v.shape[2:]))

    def gram(self, curvature: Curvature) -> Float[Array, "d d"]:
        weighted = apply_curvature(curvature, _by_observation(self.entries, self.outputs))
        return self.entries.T @ weighted.reshape(self.entries.shape)

    def gram_diagonal(self, curvature: Curvature) -> Float[Array, " d"]:
        if self.outputs == 1:
            return curvature @ self.entries**2
        weighted = apply_curvature(curvature, _by_observation(self.entries, self.outputs))
        return jnp.sum(self.entries * weighted.reshape(self.entries.shape), axis=0)

    def own_covariances(self, covariance: Callable[[Matrix], AnyArray]) -> Curvature:
        return jax.vmap(covariance)(_by_observation(self.entries, self.outputs))


class RepeatedRows(JacobianRows):
    """I ⊗ x: the same inputs for each of c ≥ 2 outputs, whose parameters follow one another."""

    x: Float[AnyArray, "n i"]
    outputs: int = eqx.field(static=True)

    def matrix(self) -> Matrix:
        n, width = self.x.shape
        dim = self.outputs * width
        if sharding.splits(dim):
            return self._sharded_matrix()
        xp = namespace_of(self.x)
        rows = xp.einsum("ni,ck->ncki", self.x, xp.eye(self.outputs, dtype=self.x.dtype))
        return rows.reshape(n * self.outputs, dim)

    def _sharded_matrix(self) -> Matrix:
        """The matrix if d is spread over devices: each has all of x and makes its own columns."""
        (n, width), c = self.x.shape, self.outputs
        own = c * width // sharding.device_count()

        def columns(x):
            at = jax.lax.axis_index(sharding.AXIS) * own + jnp.arange(own)
            mine = at[None, :] // width == jnp.arange(c)[:, None]
            rows = x[:, at % width][:, None, :] * mine[None].astype(x.dtype)
            return rows.reshape(n * c, own)

        return sharding.on_each_device(columns, (sharding.WHOLE,), sharding.COLUMNS)(self.x)

    def times(self, v: Float[AnyArray, "d *k"]) -> PerObservation:
        parts = v.reshape(self.outputs, self.x.shape[1], -1)
        images = (self.x[None] @ parts).swapaxes(0, 1)
        return images.reshape(self.x.shape[0], self.outputs, *v.shape[1:])

    def transposed_times(self, v: PerObservation) -> Float[AnyArray, "d *k"]:
        summed = jnp.einsum("ni,nc...->ci...", self.x, v)
        return summed.reshape(self.outputs * self.x.shape[1], *v.shape[2:])

    def gram(self, curvature: Curvature) -> Float[Array, "d d"]:
        x, dim = self.x, self.outputs * self.x.shape[1]
        whole = jnp.einsum("nck,ni,nj->cikj", curvature, x, x, optimize="optimal")
        return whole.reshape(dim, dim)

    def gram_diagonal(self, curvature: Curvature) -> Float[Array, " d"]:
        own = jnp.einsum("ncc->nc", curvature)
        return jnp.einsum("ni,nc->ci", self.x**2, own).ravel()

    def own_covariances(self, covariance: Callable[[Matrix], AnyArray]) -> Curvature:
        (n, width), xp = self.x.shape, namespace_of(self.x)
        blocks = xp.pad(self.x, [(0, -n % BLOCK), (0, 0)]).reshape(-1, BLOCK, width)

        def visit(x):
            return group_covariances(
                covariance(RepeatedRows(x, self.outputs).matrix()), self.outputs
            )

        cov = map_blocks(visit, blocks)
        return cov.reshape(-1, *cov.shape[2:])[:n]


class SparseInputs(JacobianRows):
    """I ⊗ x for sparse inputs and one output or several, never written out."""

    x: SparseRows
    outputs: int = eqx.field(static=True, default=1)

    def matrix(self) -> Matrix:
        return self.x if self.outputs == 1 else self.x.repeated(self.outputs)

    def times(self, v: Float[AnyArray, "d *k"]) -> PerObservation:
        if self.outputs == 1:
            return self.x @ v
        parts = v.reshape(self.outputs, self.x.shape[1], *v.shape[1:])
        return self.x.active_product(parts[:, self.x.columns].swapaxes(0, 1))

    def transposed_times(self, v: PerObservation) -> Float[AnyArray, "d *k"]:
        summed = self.x.T @ v
        if self.outputs == 1:
            return summed
        return summed.swapaxes(0, 1).reshape(-1, *v.shape[2:])

    def gram(self, curvature: Curvature) -> Float[Array, "d d"]:
        active = self.x.over_active().toarray()
        inputs = DenseRows(active) if self.outputs == 1 else RepeatedRows(active, self.outputs)
        c, width = self.outputs, self.x.shape[1]
        at = (self.x.columns[None, :] + width * jnp.arange(c)[:, None]).ravel()
        empty = jnp.zeros((c * width, c * width), curvature.dtype)
        return empty.at[at[:, None], at[None, :]].set(inputs.gram(curvature))

    def gram_diagonal(self, curvature: Curvature) -> Float[Array, " d"]:
        if self.outputs == 1:
            return (self.x**2).T @ curvature
        return ((self.x**2).T @ jnp.einsum("ncc->nc", curvature)).T.ravel()

    def own_covariances(self, covariance: Callable[[Matrix], AnyArray]) -> Curvature:
        return group_covariances(covariance(self.matrix()), self.outputs)


class TransformedRows(JacobianRows):
    """J R: the rows in other coordinates of the parameters, θ = R u + const."""

    rows: JacobianRows
    root: Float[Array, "d k"]

    @property
    def outputs(self) -> int:
        return self.rows.outputs

    def matrix(self) -> Matrix:
        return self.rows.matrix() @ self.root

    def times(self, v: Float[AnyArray, "d *k"]) -> PerObservation:
        return self.rows.times(self.root @ v)

    def transposed_times(self, v: PerObservation) -> Float[AnyArray, "d *k"]:
        return self.root.T @ self.rows.transposed_times(v)

    def gram(self, curvature: Curvature) -> Float[Array, "d d"]:
        return self.root.T @ self.rows.gram(curvature) @ self.root

    def gram_diagonal(self, curvature: Curvature) -> Float[Array, " d"]:
        return jnp.sum(self.root * (self.rows.gram(curvature) @ self.root), axis=0)

    def own_covariances(self, covariance: Callable[[Matrix], AnyArray]) -> Curvature:
        return self.rows.own_covariances(lambda x: covariance(x @ self.root))


def apply_curvature(curvature: Curvature, v: PerObservation) -> PerObservation:
    """Γᵢ vᵢ for every observation."""
    if curvature.ndim == 1:
        return linalg.scale_rows(curvature, v)
    return jnp.einsum("ncb,nb...->nc...", curvature, v)


def group_covariances(cov: Float[AnyArray, "nc nc"], c: int) -> Float[AnyArray, "n c c"]:
    """The covariances within each group of c rows, given the covariance of all rows."""
    n = cov.shape[0] // c
    return namespace_of(cov).einsum("ncnk->nck", cov.reshape(n, c, n, c))


def _by_observation(images: Float[AnyArray, "m *k"], outputs: int) -> PerObservation:
    """Rows grouped by observation."""
    return images if outputs == 1 else images.reshape(-1, outputs, *images.shape[1:])
