"""Rows from arrays, as Batches of a few fixed sizes.

For a compiled program long runs of rows go in chunks of many blocks, the remainder in smaller chunks or
block by block, the last one padded with rows of weight 0: whatever the lengths of the arrays, only three
shapes are ever compiled. NumPy gains nothing by chunks (`chunks=False`).

Where a result depends on how the stream is cut into blocks, a `Buffer` cuts it by a `Schedule` whatever
pieces the rows come in: rows that do not fill a block yet are kept until others have come.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kalvi.numerics import sharding
from kalvi.numerics.sparse_rows import SparseRows
from kalvi.rules.base import Batch
from kalvi.streams.sparse_batches import SparseBlocks, row_bytes, stays_sparse

CHUNK_BYTES = 2**25
"""A chunk of rows takes about this much memory, whatever their width."""
CHUNK_BLOCKS = 128
"""At most this many blocks to a chunk, so that progress shows."""
SMALL_CHUNK = 8
"""Rows that fill no chunk go in parts of a chunk, one in so many, if they fill two of them: small batches
need few calls, only three shapes are compiled, and blocks that pad the last part cost next to nothing."""


FIRST_BLOCK, SMALL_SHAPE = 8, 32
"""Growing blocks begin with so many rows; those up to the second are padded to it, larger ones to the
largest, so that a schedule compiles two shapes."""
BLOCK_BYTES = 2**29
"""A block of dense rows for a low-rank posterior takes at most this much memory."""
PREDICTORS_AT_ONCE = 96
"""Predictors of several classes that a block of rows for a full covariance has."""
LARGEST_BLOCK, MANY = 256, 4096
"""Blocks for a low-rank posterior grow no further. With many parameters a row costs least in blocks of
about as many rows as there are factors, and blocks grow to two or three times that (at least 32)."""


SPARSE_BLOCK, WIDE = 128, 2**18
"""Sparse rows come in blocks of so many, and in the largest where parameters are more than the second: all
rows of a block share one sweep over the parameters."""


class Schedule(NamedTuple):
    """How many rows a block takes: always the same number or, growing, half of those before it.

    Blocks that are large from the start harm a low-rank posterior: what the first one says of weakly
    informed directions is frozen by the projection after it.
    """

    largest: int
    growing: bool = True

    @classmethod
    def for_full_covariance(cls, width: int, outputs: int) -> "Schedule":
        """Blocks that cost least a row, for so many parameters of each predictor."""
        few = 16 if width < 256 else 32
        size = few if outputs == 1 else max(PREDICTORS_AT_ONCE // outputs, 1)
        return cls(size, growing=False)

    @classmethod
    def for_low_rank(
        cls, rank: int, width: int, outputs: int, itemsize: int, *, sparse: bool = False
    ) -> "Schedule":
        """Growing blocks that fit in memory and cost least a row."""
        fitting = BLOCK_BYTES // (itemsize * width * outputs**2)
        cheap = LARGEST_BLOCK if width < MANY else max(2 << rank.bit_length(), SMALL_SHAPE)
        if sparse:
            fitting, cheap = LARGEST_BLOCK, SPARSE_BLOCK if width < WIDE else LARGEST_BLOCK
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
    """The rows of a stream that wait for their block to fill, and how many went before them."""

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
        """The batches of the blocks that rows complete, and the buffer after them.

        Rows are x, y, weight and, where times are uneven, the time before each.
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
        """The waiting rows after the first `count`: a single row as it is, several padded like a block."""
        if self.waiting is None or count >= self.count:
            return None
        new = self.count - count
        shape = 1 if new == 1 else schedule.shape(schedule.size(self.seen))
        return _padded(_part(self.waiting, slice(count, None)), shape, layout)

    @property
    def count(self) -> int:
        """How many rows wait."""
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
    """The ends of the batches that n rows after `seen` complete: blocks, and chunks of full blocks."""
    ends, start = [], 0
    while start + (size := schedule.size(seen + start)) <= n:
        start += chunk if size == schedule.largest and start + chunk <= n else size
        ends.append(start)
    return ends


def _chunk(x: Any, block_size: int, *, intercept: bool, dtype: Any) -> int:
    """The rows of a chunk of whole blocks."""
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
    """The rows of x (an array, or CSR), a column of ones last if asked.

    Rows of few numbers stay sparse (`sparse_batches`). They are one block to a batch or, `stacked`, several
    blocks, for a rule that takes one after the other.
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
    """The rows of x (an array, or CSR) in blocks of `size` rows, a column of ones last if asked."""
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
    """All rows in one Batch, padded to one of a few sizes (at most eight an octave) to compile little."""
    step = 2 ** max(int(np.log2(max(x.shape[0], 1))) - 3, 6)
    size = -(-x.shape[0] // step) * step
    return _labelled(_dense(x, size, intercept, dtype), (y, weight), size)


def _dense(x, size: int, intercept: bool, dtype) -> np.ndarray:
    """The rows of x and a column of ones if asked, with rows of zeros up to `size`."""
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
    """A batch of `size` rows, sparse ones in blocks of `block`."""
    x, *numbers = rows
    if not stays_sparse(x, blocks.intercept):
        return _labelled(_dense(x, size, blocks.intercept, blocks.dtype), numbers, size)
    return _labelled(blocks.make(x, size, block), numbers, size)


def _labelled(x: Any, numbers: Iterable[np.ndarray], size: int) -> Batch:
    """Rows with their labels, weights and times, zero where rows fill up."""
    rows = x if isinstance(x, SparseRows) else sharding.columns(x)
    return Batch(rows, *(_filled(a, size, x.dtype) for a in numbers))


def _filled(a: np.ndarray, size: int, dtype) -> np.ndarray:
    filled = np.zeros(size, dtype)
    filled[: len(a)] = a
    return filled
