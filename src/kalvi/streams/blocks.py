"""Batches of a few fixed sizes, from arrays of rows.

A compiled program takes long runs of rows in chunks of many blocks, and the remainder in smaller chunks or
block by block. The last block is padded with rows of weight 0. So only three shapes are ever compiled,
whatever the lengths of the arrays are. NumPy gains nothing by chunks (`chunks=False`).

If a result depends on how the stream is cut into blocks, a `Buffer` cuts it by a `Schedule`, in whatever
pieces the rows come: rows that do not fill a block wait until more rows come.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kalvi.numerics import sharding
from kalvi.numerics.sparse_rows import SparseRows
from kalvi.rules.rule import Batch
from kalvi.streams.sparse_batches import SparseBlocks, row_bytes, stays_sparse

CHUNK_BYTES = 2**25
"""A chunk of rows takes about this many bytes, whatever their width."""
CHUNK_BLOCKS = 128
"""At most this many blocks to a chunk, so that progress shows."""
SMALL_CHUNK = 8
"""A chunk has so many parts. Rows that do not fill a chunk go in such parts if they fill two of them: small
batches then need few calls, only three shapes are compiled, and padding costs almost nothing."""


FIRST_BLOCK, SMALL_SHAPE = 8, 32
"""Growing blocks begin with the first number of rows. Blocks up to the second number are padded to it and
larger ones to the largest size, so that a schedule compiles two shapes."""
BLOCK_BYTES = 2**29
"""A block of dense rows for a low-rank posterior takes at most this many bytes."""
PREDICTORS_AT_ONCE = 96
"""The number of predictors in a block for a full covariance with several classes."""
LARGEST_BLOCK, MANY = 256, 4096
"""The largest block for a low-rank posterior. With many parameters a row costs least in blocks of about as
many rows as there are factors, and blocks grow to two or three times that (at least 32)."""


SPARSE_BLOCK = 128
"""Sparse rows come in blocks of so many, which cost least a row."""


class Schedule(NamedTuple):
    """The sizes of blocks: always the same or, growing, half the number of the rows before.

    Blocks that are large from the start harm a low-rank posterior: the projection after the first one
    freezes its noise along weakly informed directions.
    """

    largest: int
    growing: bool = True

    @classmethod
    def for_full_covariance(cls, width: int, outputs: int) -> "Schedule":
        """Blocks with the lowest cost of a row, for `width` parameters of each predictor."""
        few = 16 if width < 256 else 32
        size = few if outputs == 1 else max(PREDICTORS_AT_ONCE // outputs, 1)
        return cls(size, growing=False)

    @classmethod
    def for_low_rank(
        cls, rank: int, width: int, outputs: int, itemsize: int, *, sparse: bool = False
    ) -> "Schedule":
        """Growing blocks that fit in memory, with the lowest cost of a row."""
        fitting = BLOCK_BYTES // (itemsize * width * outputs**2)
        cheap = LARGEST_BLOCK if width < MANY else max(2 << rank.bit_length(), SMALL_SHAPE)
        if sparse:
            fitting, cheap = LARGEST_BLOCK, SPARSE_BLOCK
        size = 1 << (max(fitting, 1).bit_length() - 1)
        most = 1 << (max(min(cheap, LARGEST_BLOCK) // outputs, 1).bit_length() - 1)
        return cls(int(np.clip(size, FIRST_BLOCK, max(most, FIRST_BLOCK))))

    def at_most(self, rows: float) -> "Schedule":
        """Blocks of at most so many rows."""
        fitting = self.largest
        while fitting > max(rows, 1):
            fitting = fitting // 2
        return self._replace(largest=fitting)

    def size(self, seen: int) -> int:
        """The size of the block that begins after `seen` rows: a power of two while blocks grow."""
        if not self.growing:
            return self.largest
        return min(1 << (max(seen // 2, FIRST_BLOCK).bit_length() - 1), self.largest)

    def shape(self, size: int) -> int:
        """The size to which a block is padded."""
        small = min(SMALL_SHAPE, self.largest)
        return small if self.growing and size <= small else self.largest


class Buffer(NamedTuple):
    """The rows of a stream that wait until their block is full, and the number of rows before them."""

    seen: int = 0
    waiting: tuple[Any, ...] | None = None

    def push(
        self,
        rows: tuple[Any, ...],
        schedule: Schedule,
        *,
        chunks: bool = True,
        **layout: Any,
    ) -> tuple[Iterator[Batch], "Buffer"]:
        """The batches of the blocks that new rows complete, and the buffer after them.

        Rows are x, y, weight and, if times are uneven, the time before each.
        """
        room, n = schedule.size(self.seen) - self.count, rows[0].shape[0]
        if n < room:
            return iter(()), Buffer(self.seen, self._joined(rows))
        head = self._joined(_part(rows, slice(0, room)))
        rest = _part(rows, slice(room, n))
        seen = self.seen + head[1].size
        chunk = _chunk(rows[0], schedule.largest, **layout) if chunks else schedule.largest
        ends = _ends(n - room, seen, schedule, chunk)
        last = ends[-1] if ends else 0
        waiting = _part(rest, slice(last, n - room), copy=True) if last < n - room else None

        def batches() -> Iterator[Batch]:
            blocks = SparseBlocks(**layout)
            for shape in {schedule.shape(FIRST_BLOCK), schedule.largest}:
                blocks.expect(rows[0], shape)
            shape = schedule.shape(head[1].size)
            yield _batch(head, shape, shape, blocks)
            for start, end in zip([0, *ends], ends, strict=False):
                block = schedule.shape(min(end - start, schedule.largest))
                part, size = _part(rest, slice(start, end)), max(block, end - start)
                yield _batch(part, size, block, blocks)

        return batches(), Buffer(seen + last, waiting)

    def rest(self, schedule: Schedule, **layout: Any) -> Batch | None:
        """The waiting rows as a padded batch."""
        if self.waiting is None:
            return None
        return _padded(self.waiting, schedule.shape(schedule.size(self.seen)), layout)

    def since(self, count: int, schedule: Schedule, layout: dict[str, Any]) -> Batch | None:
        """The waiting rows after the first `count`; a single one is not padded, several are padded like a
        block."""
        if self.waiting is None or count >= self.count:
            return None
        new = self.count - count
        shape = 1 if new == 1 else schedule.shape(schedule.size(self.seen))
        return _padded(_part(self.waiting, slice(count, None)), shape, layout)

    @property
    def count(self) -> int:
        """The number of waiting rows."""
        return 0 if self.waiting is None else self.waiting[1].size

    def _joined(self, rows: tuple[Any, ...]) -> Any:
        if self.waiting is None:
            return _part(rows, slice(None), copy=True)
        stack = sp.vstack if sp.issparse(rows[0]) or sp.issparse(self.waiting[0]) else np.vstack
        x = stack([self.waiting[0], rows[0]])
        x = sp.csr_array(x) if sp.issparse(x) else x
        return x, *(np.concatenate(pair) for pair in zip(self.waiting[1:], rows[1:], strict=True))


def _padded(rows: tuple, size: int, layout: dict[str, Any]) -> Batch:
    return _batch(rows, size, size, SparseBlocks(**layout))


def _part(rows: tuple, which: slice, copy: bool = False) -> tuple[Any, ...]:
    return tuple(array[which].copy() if copy else array[which] for array in rows)


def _ends(n: int, seen: int, schedule: Schedule, chunk: int) -> list[int]:
    """The ends of the batches that n rows complete after `seen` rows: blocks, and chunks of full blocks."""
    ends, start = [], 0
    while start + (size := schedule.size(seen + start)) <= n:
        start += chunk if size == schedule.largest and start + chunk <= n else size
        ends.append(start)
    return ends


def _chunk(x: Any, block_size: int, *, intercept: bool, dtype: Any) -> int:
    """The number of rows in a chunk of whole blocks."""
    block_bytes = block_size * row_bytes(x, intercept, dtype)
    return block_size * int(np.clip(CHUNK_BYTES // block_bytes, 1, CHUNK_BLOCKS))


def array_batches(
    x: Any,
    y: np.ndarray,
    weight: np.ndarray | None = None,
    elapsed: np.ndarray | None = None,
    *,
    block_size: int,
    chunks: bool = True,
    stacked: bool = False,
    intercept: bool = False,
    dtype: np.dtype | type | str = np.float64,
) -> Iterator[Batch]:
    """Batches of the rows of x (an array, or CSR), with a last column of ones if `intercept`.

    Rows with few numbers stay sparse (`sparse_batches`). Sparse batches have one block or, if `stacked`,
    several blocks for a rule that takes one after the other.
    """
    n, start, blocks = x.shape[0], 0, SparseBlocks(intercept, dtype)
    blocks.expect(x, block_size)
    chunks = chunks and (stacked or not stays_sparse(x, intercept))
    weight = np.ones(n) if weight is None else weight
    chunk = block_size
    if chunks:
        chunk = _chunk(x, block_size, intercept=intercept, dtype=dtype)
    part = block_size * max(chunk // block_size // SMALL_CHUNK, 1)
    part = part if n >= 2 * part else block_size
    while start < n:
        left = n - start
        size = chunk if left >= chunk else part if left > block_size else block_size
        rows = slice(start, min(start + size, n))
        before = () if elapsed is None else (elapsed[rows],)
        yield _batch((x[rows], y[rows], weight[rows], *before), size, block_size, blocks)
        start += size


def row_blocks(
    x: Any, *, size: int, intercept: bool = False, dtype: np.dtype | type | str = np.float64
) -> Iterator[Any]:
    """Blocks of `size` rows of x (an array, or CSR), with a last column of ones if `intercept`."""
    blocks = SparseBlocks(intercept, dtype)
    for start in range(0, x.shape[0], size):
        rows = x[start : start + size]
        n = rows.shape[0]
        sparse = stays_sparse(x, intercept)
        yield blocks.make(rows, n, n) if sparse else _dense(rows, n, intercept, dtype)


def whole_batch(
    x: Any,
    y: np.ndarray,
    weight: np.ndarray,
    *,
    intercept: bool = False,
    dtype: np.dtype | type | str = np.float64,
) -> Batch:
    """All rows in one Batch, padded to one of a few sizes (at most eight an octave) so that little is
    compiled."""
    step = 2 ** max(int(np.log2(max(x.shape[0], 1))) - 3, 6)
    size = -(-x.shape[0] // step) * step
    return _labelled(_dense(x, size, intercept, dtype), (y, weight), size)


def _dense(x, size: int, intercept: bool, dtype) -> np.ndarray:
    """The rows of x as a dense array, with a column of ones if `intercept`, padded with zeros to `size`
    rows."""
    n, width = x.shape
    padded = np.zeros((size, width + intercept), dtype)
    if sp.issparse(x):
        entries = sp.coo_array(x)
        np.add.at(padded, entries.coords, entries.data)
    else:
        padded[:n, :width] = x
    if intercept:
        padded[:n, -1] = 1
    return padded


def _batch(rows: tuple, size: int, block: int, blocks: SparseBlocks) -> Batch:
    """A batch of `size` rows; sparse rows are in blocks of `block`."""
    x, *numbers = rows
    if not stays_sparse(x, blocks.intercept):
        return _labelled(_dense(x, size, blocks.intercept, blocks.dtype), numbers, size)
    return _labelled(blocks.make(x, size, block), numbers, size)


def _labelled(x: Any, numbers: Iterable[np.ndarray], size: int) -> Batch:
    """A batch of rows with their labels, weights and times, which are zero for padding."""
    rows = x if isinstance(x, SparseRows) else sharding.columns(x)
    return Batch(rows, *(_filled(a, size, x.dtype) for a in numbers))


def _filled(a: np.ndarray, size: int, dtype) -> np.ndarray:
    filled = np.zeros(size, dtype)
    filled[: len(a)] = a
    return filled
