"""Sparse rows: a block X as triplets (row, active column, value), in arrays of fixed sizes.

    X[rows[e], columns[places[e]]] = values[e],        no place twice

`columns` lists the *active* columns, those with an entry in any row of the block, each once. Code that
learns from a block gathers these columns, works on few numbers and scatters them back. Sizes are fixed, so
that few programs are compiled; the padding is harmless: entries with value zero, and columns without
entries. Only the first `shared` columns may have entries in more than one row.

A block replaces a dense matrix in `x @ v`, `x.T @ c`, `x**2`, `x * w[None, :]`, `w @ x` and `x @ x.T`, at a
cost in proportion to its entries. `over_active` is the same block over its active columns only.
"""

from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float, Int, Num

from kalvi.numerics.namespaces import AnyArray, is_jax, namespace_of

SMALLEST = 8
"""The smallest size; sizes are powers of two."""


class Sizes(tuple[int, int, int]):
    """The numbers of entries, active columns and shared columns for which a block has room."""

    @classmethod
    def of(cls, entries: int, columns: int, shared: int, width: int) -> "Sizes":
        """Powers of two that hold these numbers, with at most `width` columns."""
        numbers = _round_up(entries), min(_round_up(columns), width)
        return cls((*numbers, min(_round_up(shared), numbers[1])))

    def union(self, other: "Sizes") -> "Sizes":
        """Sizes that hold the blocks of both."""
        return Sizes(map(max, self, other))


class Pattern:
    """Rows of a CSR matrix, and the positions of their entries among the active columns, on the host."""

    def __init__(self, x: Any, intercept: bool, memory: np.ndarray | None = None):
        self.n, self.width = x.shape[0], x.shape[1] + intercept
        counts = np.diff(x.indptr)
        self.values, self.rows = x.data, np.repeat(np.arange(self.n, dtype=np.int32), counts)
        indices = x.indices
        if intercept:
            self.values = np.append(self.values, np.ones(self.n, x.dtype))
            self.rows = np.append(self.rows, np.arange(self.n, dtype=np.int32))
            indices = np.append(indices, np.full(self.n, x.shape[1], indices.dtype))
        active, places = _distinct(
            indices, np.empty(self.width, np.int32) if memory is None else memory
        )
        counts = np.bincount(places, minlength=len(active))
        order = np.append(np.flatnonzero(counts > 1), np.flatnonzero(counts == 1))
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        self.columns, self.places = active[order], position[places]
        found = len(self.values), len(self.columns), int(np.sum(counts > 1))
        self.sizes = Sizes.of(*found, self.width)

    def filled(self, size: int, sizes: Sizes, dtype: Any) -> "SparseRows":
        """A block of `size` rows with these sizes, in NumPy arrays."""
        entries, active, shared = sizes
        values, rows = np.zeros(entries, dtype), np.full(entries, size - 1, np.int32)
        places, n = np.zeros(entries, np.int32), len(self.values)
        values[:n], rows[:n], places[:n] = self.values, self.rows, self.places
        missing = active - len(self.columns)
        unused = np.ones(active, bool)
        unused[self.columns[self.columns < active]] = False
        columns = np.append(self.columns, np.flatnonzero(unused)[:missing]).astype(np.int32)
        return SparseRows(values, rows, places, columns, (size, self.width), shared)


class SparseRows(eqx.Module):
    """b sparse rows of d numbers; the docstring of the module explains the fields."""

    __array_ufunc__: ClassVar[None] = None  # NumPy's arrays leave their products to this class

    values: Float[AnyArray, " e"]
    rows: Int[AnyArray, " e"]
    places: Int[AnyArray, " e"]
    columns: Int[AnyArray, " m"]
    shape: tuple[int, int] = eqx.field(static=True)
    shared: int = eqx.field(static=True)

    @classmethod
    def of(cls, x: Any, *, intercept: bool = False, dtype: Any = np.float64) -> "SparseRows":
        """All rows of a SciPy sparse matrix, with a last column of ones if `intercept`."""
        pattern = Pattern(canonical(x), intercept)
        return pattern.filled(pattern.n, pattern.sizes, dtype)

    @classmethod
    def stacked(cls, blocks: "list[SparseRows]") -> "SparseRows":
        """Several blocks of one size, stacked, which a rule takes one after the other."""
        return jax.tree.map(lambda *leaves: np.stack(leaves), *blocks)

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        return 2

    @property
    def T(self) -> "TransposedRows":
        return TransposedRows(self)

    def __len__(self) -> int:
        return self.shape[0]

    def as_blocks(self, size: int) -> "SparseRows":
        """The rows as stacked blocks of `size` rows; they must have been made in such blocks."""
        if self.shape[0] != size:
            raise ValueError(
                f"sparse rows come in the blocks that a rule takes, here of {size} rows; got blocks of "
                f"{self.shape[0]}. Give block_size={self.shape[0]} to the rule, or cut the rows anew."
            )
        return self if self.values.ndim == 2 else jax.tree.map(lambda leaf: leaf[None], self)

    def with_values(self, values: Float[AnyArray, " e"]) -> "SparseRows":
        """The rows with other values in the same places."""
        return SparseRows(values, self.rows, self.places, self.columns, self.shape, self.shared)

    def over_active(self) -> "SparseRows":
        """The same rows over only the active columns."""
        m = self.columns.shape[0]
        every = namespace_of(self.values).arange(m, dtype=np.int32)
        shape = self.shape[0], m
        return SparseRows(self.values, self.rows, self.places, every, shape, self.shared)

    def on_active(self, v: Num[AnyArray, "d *k"]) -> Num[AnyArray, "m *k"]:
        """The rows of v at the active columns."""
        return v[self.columns]

    def active_product(self, v: Float[AnyArray, "m *k"]) -> Float[AnyArray, "b *k"]:
        """X v, for a v with rows for only the active columns."""
        if not is_jax(self.values, v):
            return _times_columns(self.csr(), v)
        terms = _scaled(self.values, v[self.places])
        return jax.ops.segment_sum(terms, self.rows, self.shape[0])

    def active_transposed_product(self, v: Float[AnyArray, "b *k"]) -> Float[AnyArray, "m *k"]:
        """The rows of Xᵀ v for the active columns."""
        if not is_jax(self.values, v):
            return _times_columns(self.csr().T, v)
        terms = _scaled(self.values, v[self.rows])
        return jax.ops.segment_sum(terms, self.places, self.columns.shape[0])

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, TransposedRows):
            return self.inner(other.rows)
        return self.active_product(self.on_active(other))

    def __rmatmul__(self, v: Float[AnyArray, "*k b"]) -> Float[AnyArray, "*k d"]:
        return (self.T @ v.T).T

    def __mul__(self, scale: Float[AnyArray, "1 d"]) -> "SparseRows":
        return self.with_values(self.values * scale[0][self.columns][self.places])

    def __pow__(self, power: int) -> "SparseRows":
        return self.with_values(self.values**power)

    def inner(self, other: "SparseRows") -> Float[AnyArray, "b b"]:
        """X Yᵀ for rows Y with entries in the same places, such as X diag(w)."""
        if not is_jax(self.values, other.values):
            return (self.csr() @ other.csr().T).toarray()
        xp = namespace_of(self.values)
        own = xp.where(self.places >= self.shared, self.values * other.values, 0)
        alone = jax.ops.segment_sum(own, self.rows, self.shape[0])
        return self.shared_matrix() @ other.shared_matrix().T + xp.diag(alone)

    def shared_matrix(self) -> Float[Array, "b s"]:
        """The shared columns as a dense matrix."""
        xp = namespace_of(self.values)
        empty = xp.zeros((self.shape[0], self.shared), self.dtype)
        return empty.at[self.rows, self.places].add(self.values, mode="drop")

    def repeated(self, outputs: int) -> "SparseRows":
        """I ⊗ x: each row once for each of several outputs, whose columns follow one another."""
        c, m, s, xp = outputs, self.columns.shape[0], self.shared, namespace_of(self.values)
        k = xp.arange(c, dtype=np.int32)[None, :]
        # shared columns of all outputs first
        shared = self.places[:, None] + s * k
        alone = c * s + (self.places[:, None] - s) + (m - s) * k
        places = xp.where(self.places[:, None] < s, shared, alone)
        columns = self.columns[None, :] + self.shape[1] * k.T
        columns = xp.concatenate([columns[:, :s].ravel(), columns[:, s:].ravel()])
        rows = c * self.rows[:, None] + k
        values = xp.broadcast_to(self.values[:, None], rows.shape)
        shape = c * self.shape[0], c * self.shape[1]
        return SparseRows(values.ravel(), rows.ravel(), places.ravel(), columns, shape, c * s)

    def mixed(self, blocks: Float[AnyArray, "n c c"]) -> "SparseRows":
        """Sᵀ X, where S has these blocks on its diagonal, for groups of c rows that share no column."""
        c = blocks.shape[1]
        group, member = self.rows // c, self.rows % c
        values = self.values[:, None] * blocks[group, member]
        rows = c * group[:, None] + namespace_of(values).arange(c, dtype=np.int32)[None, :]
        places = self.places.repeat(c)
        fresh = values.ravel(), rows.ravel(), places, self.columns
        # a column of one row is now one of the c rows of its group
        return SparseRows(*fresh, self.shape, self.columns.shape[0])

    def toarray(self) -> Float[AnyArray, "b d"]:
        """The rows as a dense matrix."""
        at = self.rows, self.columns[self.places]
        if not is_jax(self.values):
            whole = np.zeros(self.shape, self.dtype)
            np.add.at(whole, at, self.values)
            return whole
        xp = namespace_of(self.values)
        return xp.zeros(self.shape, self.dtype).at[at].add(self.values)

    def csr(self) -> Any:
        """The rows over the active columns, as a SciPy matrix."""
        shape = self.shape[0], self.columns.shape[0]
        return sp.csr_array((self.values, (self.rows, self.places)), shape)


class TransposedRows(eqx.Module):
    """Xᵀ of sparse rows X."""

    rows: SparseRows

    def __matmul__(self, v: Float[AnyArray, "b *k"]) -> Float[AnyArray, "d *k"]:
        x, xp = self.rows, namespace_of(self.rows.values, v)
        found = x.active_transposed_product(v)
        empty = xp.zeros((x.shape[1], *v.shape[1:]), found.dtype)
        return put_rows(empty, x.columns, found)


def _distinct(indices: np.ndarray, memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct indices, and the place of each index among them, without sorting.

    `memory` has a number for every index there can be; what it holds does not matter.
    """
    every = np.arange(len(indices), dtype=memory.dtype)
    memory[indices] = every
    active = indices[memory[indices] == every]
    memory[active] = every[: len(active)]
    return active, memory[indices]


if TYPE_CHECKING:  # type checkers would make every formula distinguish the two
    Rows = Any
else:
    Rows = Float[AnyArray, "b d"] | SparseRows
"""Rows of numbers, dense or sparse."""


def canonical(x: Any) -> Any:
    """A SciPy sparse matrix as CSR without duplicate entries; the argument is not changed."""
    csr = sp.csr_array(x)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def as_matrix(x: Rows) -> Float[AnyArray, "b d"]:
    """The rows as a dense matrix, for code that needs one."""
    return x.toarray() if isinstance(x, SparseRows) else x


def put_rows(
    whole: Num[AnyArray, "d *k"], columns: Int[AnyArray, " m"], new: Num[AnyArray, "m *k"]
) -> Num[AnyArray, "d *k"]:
    """An array with new rows at some places, which are all different."""
    if is_jax(whole, new):
        return whole.at[columns].set(new, unique_indices=True)
    whole = whole.copy()
    whole[columns] = new
    return whole


def _times_columns(a: Any, v: Float[np.ndarray, "n *k"]) -> Float[np.ndarray, "m *k"]:
    """A v for a sparse A and a v with any number of axes."""
    return (a @ v.reshape(len(v), -1)).reshape(-1, *v.shape[1:])


def _scaled(scale: Float[AnyArray, " e"], v: Float[AnyArray, "e *k"]) -> Float[AnyArray, "e *k"]:
    return scale.reshape(scale.shape + (1,) * (v.ndim - 1)) * v


def _round_up(n: int) -> int:
    return max(1 << max(n - 1, 0).bit_length(), SMALLEST)
