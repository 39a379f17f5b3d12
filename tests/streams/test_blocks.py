import numpy as np
import pytest
import scipy.sparse as sp

from kalvi import streams
from kalvi.streams import array_batches, whole_batch

LENGTHS = [0, 1, 7, 8, 9, 40, 64, 65, 100]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("kalvi.streams.blocks.CHUNK_BLOCKS", 4)


def rows(n, d=3):
    rng = np.random.default_rng(n)
    return rng.normal(size=(n, d)), rng.normal(size=n), rng.uniform(0.5, 2, n)


@pytest.mark.parametrize("n", LENGTHS)
def test_every_row_comes_once_and_in_order(n):
    x, y, weight = rows(n)
    batches = list(array_batches(x, y, weight, block_size=8))
    assert sum(len(b.y) for b in batches) - n < 8
    for name, wanted in (("x", x), ("y", y), ("weight", weight)):
        columns = [np.asarray(getattr(b, name)) for b in batches]
        whole = np.concatenate(columns) if columns else wanted
        np.testing.assert_array_equal(whole[:n], wanted)
        np.testing.assert_array_equal(whole[n:], 0)


def test_only_two_shapes_are_ever_made():
    shapes = {b.x.shape for n in range(1, 120) for b in array_batches(*rows(n), block_size=8)}
    assert shapes == {(8, 3), (32, 3)}


def test_chunks_fit_in_memory(monkeypatch):
    monkeypatch.setattr(
        "kalvi.streams.blocks.CHUNK_BYTES", 8 * 8 * 3 * 2
    )  # two blocks of eight float64 rows
    lengths = [len(b.y) for b in array_batches(*rows(40), block_size=8)]
    assert lengths == [16, 16, 8]
    halves = [len(b.y) for b in array_batches(*rows(40), block_size=8, dtype=np.float32)]
    assert halves == [32, 8]


@pytest.mark.parametrize("intercept", [False, True])
def test_sparse_rows_are_their_dense_ones(intercept):
    x, y, weight = rows(50, 6)
    x[np.abs(x) < 1] = 0
    dense = array_batches(x, y, weight, block_size=8, intercept=intercept)
    sparse = array_batches(sp.csr_matrix(x), y, weight, block_size=8, intercept=intercept)
    for one, other in zip(dense, sparse, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_intercept_is_a_last_column_of_ones_on_real_rows_only():
    x, y, _ = rows(5)
    (only,) = array_batches(x, y, block_size=8, intercept=True)
    assert only.x.shape == (8, 4)
    np.testing.assert_array_equal(only.x[:, -1], [1] * 5 + [0] * 3)
    np.testing.assert_array_equal(only.weight, [1] * 5 + [0] * 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype(dtype):
    x, y, weight = rows(9)
    for b in array_batches(x.astype(np.float16), y, weight, block_size=8, dtype=dtype):
        assert b.x.dtype == b.y.dtype == b.weight.dtype == dtype


def test_integers_and_lists_of_labels():
    x, y = np.arange(6).reshape(3, 2), np.array([0, 1, 1])
    (only,) = array_batches(x, y, block_size=4)
    np.testing.assert_array_equal(only.x, [[0, 1], [2, 3], [4, 5], [0, 0]])
    np.testing.assert_array_equal(only.y, [0, 1, 1, 0])


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000, 5000])
def test_whole_batch_holds_every_row_and_little_padding(n):
    x, y, weight = rows(n)
    whole = whole_batch(x, y, weight, intercept=True)
    np.testing.assert_array_equal(whole.x[:n, :3], x)
    np.testing.assert_array_equal(whole.y[:n], y)
    np.testing.assert_array_equal(whole.weight, np.pad(weight, (0, len(whole.y) - n)))
    assert len(whole.y) - n < max(64, n / 4)


def test_whole_batches_have_few_sizes():
    sizes = {len(whole_batch(*rows(n, 1)).y) for n in range(1024, 2048, 7)}
    assert len(sizes) <= 9


LAYOUT = {"intercept": False, "dtype": np.float64}


def pushed(pieces, schedule):
    """The sizes of the blocks that pieces of a stream are cut into, their rows, and what waits."""
    buffer, blocks = streams.Buffer(), []
    for x, y in pieces:
        batches, buffer = buffer.push((x, y, np.ones(len(y))), schedule, **LAYOUT)
        blocks += list(batches)
    return blocks, buffer


def test_growing_blocks_take_half_of_what_went_before():
    schedule = streams.Schedule(64)
    assert [schedule.size(t) for t in (0, 8, 31, 32, 63, 64, 127, 128, 10**6)] == [
        8,
        8,
        8,
        16,
        16,
        32,
        32,
        64,
        64,
    ]
    assert {schedule.shape(schedule.size(t)) for t in range(300)} == {32, 64}
    assert streams.Schedule(48, growing=False).size(0) == 48


@pytest.mark.parametrize("sparse", [False, True])
def test_a_buffer_cuts_the_stream_the_same_way_however_it_comes(sparse):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(500, 3)), np.arange(500.0)
    x = sp.csr_array(x) if sparse else x
    schedule = streams.Schedule(16)
    whole, end = pushed([(x, y)], schedule)
    sizes, ends = [1, 7, 40, 3, 100, 2, 0, 300, 47], np.cumsum([0, 1, 7, 40, 3, 100, 2, 0, 300, 47])
    pieces, rest = pushed(
        [(x[a : a + n], y[a : a + n]) for a, n in zip(ends, sizes, strict=False)], schedule
    )

    def laid_out(batches):
        return np.concatenate([np.asarray(b.y)[np.asarray(b.weight) > 0] for b in batches])

    np.testing.assert_array_equal(laid_out(whole), y[: end.seen])
    np.testing.assert_array_equal(laid_out(pieces), laid_out(whole))
    assert rest.seen == end.seen and rest.waiting is not None
    np.testing.assert_array_equal(rest.waiting[1], y[end.seen :])
    # a block is padded to one of the schedule's shapes, a chunk is whole blocks
    assert {len(b.y) for b in pieces} <= {16} | {16 * k for k in range(2, 64)}
    last = rest.rest(schedule, **LAYOUT)
    assert last is not None
    np.testing.assert_array_equal(np.asarray(last.y)[np.asarray(last.weight) > 0], y[end.seen :])


def test_waiting_rows_are_the_buffers_own():
    x, y = np.ones((3, 2)), np.ones(3)
    _, buffer = pushed([(x, y)], streams.Schedule(8))
    x[:] = np.nan
    waiting = buffer.rest(streams.Schedule(8), **LAYOUT)
    assert waiting is not None and np.all(np.isfinite(np.asarray(waiting.x)))
