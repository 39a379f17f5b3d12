"""Columns into numbers, against pandas, scikit-learn and numbers worked out by hand."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler

from kalvi.columns.encoder import FREE, Encoder, EncoderSettings, kinds_of
from kalvi.columns.slots import hash_text
from kalvi.readers.files import BadData

rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "size": rng.normal(5.0, 3.0, 200),
        "on": rng.random(200) < 0.3,
        "colour": rng.choice(["red", "green", "blue"], 200),
    }
)


def place(row):
    return f"file.csv, row {row + 1}"


def begin(table, *, rows=None, **settings):
    sample = table.slice(0, rows) if rows else table
    kinds = kinds_of(table.schema, (), (), set())
    return Encoder.begin(kinds, sample, EncoderSettings(**settings))


def dense(x):
    return x.toarray() if sp.issparse(x) else x


def test_a_table_against_pandas_and_scikit_learn():
    table = pa.table({name: pa.array(FRAME[name].tolist()) for name in FRAME})
    x, encoder, unseen = begin(table).encode(table, place, learn=True)
    found = pd.DataFrame(dense(x), columns=encoder.names())
    scaled = StandardScaler().fit_transform(FRAME[["size"]])[:, 0]
    np.testing.assert_allclose(found["size"], scaled, rtol=1e-12)
    np.testing.assert_array_equal(found["on"], FRAME["on"])
    levels = pd.get_dummies(FRAME["colour"], prefix="colour", prefix_sep="=").astype(float)
    pd.testing.assert_frame_equal(found[levels.columns], levels)
    assert not found["colour=(new level)"].any()
    assert not unseen


def test_pieces_give_what_the_whole_does():
    table = pa.table({name: pa.array(FRAME[name].tolist()) for name in FRAME})
    start = begin(table, rows=50)
    whole = start.encode(table, place, learn=True)
    encoder, parts = start, []
    for first in range(0, 200, 30):
        x, encoder, _ = encoder.encode(table.slice(first, 30), place, learn=True)
        parts.append(dense(x))
    np.testing.assert_array_equal(np.concatenate(parts), dense(whole.x))
    size = FRAME["size"]
    for about in (encoder.describe()[0], whole.encoder.describe()[0]):
        np.testing.assert_allclose(
            [about["mean"], about["std"], about["least"], about["most"]],
            [size.mean(), size.std(ddof=0), size.min(), size.max()],
            rtol=1e-12,
        )
    counts = FRAME["colour"].value_counts()
    assert dict(map(tuple, encoder.describe()[2]["commonest"])) == counts.to_dict()


def test_levels_that_come_later_get_places_and_widen_the_rows():
    table = pa.table({"city": [f"city {i}" for i in range(300)]})
    start = begin(table, rows=10)
    x, encoder, _ = start.encode(table, place, learn=True)
    names = encoder.names()
    assert encoder.width > start.width
    assert x.shape == (300, encoder.width)
    assert [names[slot] for slot in sp.csr_array(x).indices] == [
        f"city=city {i}" for i in range(300)
    ]
    assert encoder.names()[: start.used] == start.names()[: start.used]
    assert names.count(FREE) == encoder.width - encoder.used > 0


def test_new_levels_of_predictions_have_a_place_of_their_own_and_are_counted():
    start = begin(pa.table({"a": ["x", "y"], "b": ["x", "x"]}))
    other = pa.table({"a": ["z", "x", "z"], "b": ["x", "w", "x"]})
    x, after, unseen = start.encode(other, place, learn=False)
    named = pd.DataFrame(dense(x), columns=start.names())
    assert named["a=(new level)"].tolist() == [1, 0, 1]
    assert named["b=(new level)"].tolist() == [0, 1, 0]
    assert named["b=x"].tolist() == [1, 0, 1]
    assert unseen == {"a": {"z": 2}, "b": {"w": 1}}
    assert after is start


def test_levels_that_are_fixed_share_the_place_of_new_ones():
    start = begin(pa.table({"a": ["x", "y"]}), fixed=True)
    x, after, unseen = start.encode(pa.table({"a": ["z", "x", "w"]}), place, learn=True)
    assert x.shape[1] == after.width == start.width == 3
    assert pd.DataFrame(x, columns=after.names())["a=(new level)"].tolist() == [1, 0, 1]
    assert unseen == {"a": {"z": 1, "w": 1}}
    assert after.describe()[0]["commonest"] == [["x", 1], ["y", 0]]


def test_hashed_levels():
    table = pa.table({"n": [1.0, 2.0], "a": ["x", "y"], "b": ["x", "x"]})
    start = begin(table, hash_bits=10)
    x, after, _ = start.encode(table, place, learn=True)
    assert after.width == 1 + 2**10 == start.width
    rows = dense(x)[:, 1:]
    for row, pair in zip(rows, [("a=x", "b=x"), ("a=y", "b=x")], strict=True):
        expected = np.zeros(2**10)
        for text in pair:
            expected[hash_text(text, 10)] += 1
        np.testing.assert_array_equal(row, expected)


def test_missing_values_are_imputed_and_marked():
    table = pa.table(
        {
            "n": [1.0, None, 3.0, float("nan")],
            "a": ["x", None, "x", "y"],
            "b": [True, False, None, True],
        }
    )
    x, encoder, _ = begin(table, impute=True).encode(table, place, learn=True)
    found = pd.DataFrame(dense(x), columns=encoder.names())
    assert found["n"].tolist() == [-1, 0, 1, 0]  # 2 ± 1
    assert found["n is missing"].tolist() == [0, 1, 0, 1]
    assert found["b"].tolist() == [1, 0, 0, 1]
    assert found["b is missing"].tolist() == [0, 0, 1, 0]
    assert found["a=(missing)"].tolist() == [0, 1, 0, 0]
    assert [c["missing"] for c in encoder.describe()] == [2, 1, 1]


@pytest.mark.parametrize(
    ("column", "row"),
    [([1.0, None], 2), ([1.0, float("nan")], 2), ([None, "x"], 1), ([True, None], 2)],
)
def test_missing_values_are_refused_with_their_place(column, row):
    table = pa.table({"a": column})
    with pytest.raises(
        BadData, match=rf"file.csv, row {row}: column 'a' is missing; .*--missing impute"
    ):
        begin(table).encode(table, place, learn=True)


def test_a_column_that_did_not_vary_takes_its_unit_when_it_does():
    start = begin(pa.table({"a": [7.0] * 5, "b": pa.nulls(5, pa.float64())}), impute=True)
    still = pa.table({"a": [7.0] * 3, "b": pa.nulls(3, pa.float64())})
    x, after, _ = start.encode(still, place, learn=True)
    assert not x[:, :2].any()
    moved = pa.table({"a": [7.0, 9.0, 9.0], "b": [4.0, 6.0, None]})
    x, last, _ = after.encode(moved, place, learn=True)
    np.testing.assert_allclose(x[:, 0], np.array([0, 2, 2]) / np.std([7, 9, 9]))
    np.testing.assert_allclose(x[:, 1], [-1, 1, 0])
    about = last.describe()[0]
    np.testing.assert_allclose(
        [about["mean"], about["std"]], [np.mean([7] * 4 + [9] * 2), np.std([7] * 4 + [9] * 2)]
    )


@pytest.mark.parametrize("scale", [1e-290, 1e-30, 1e30, 1e290])
def test_any_scale_of_numbers(scale):
    values = np.random.default_rng(1).normal(3, 2, 100)
    table = pa.table({"a": values * scale})
    x, encoder, _ = begin(table).encode(table, place, learn=True)
    np.testing.assert_allclose(x[:, 0], (values - values.mean()) / values.std(), rtol=1e-9)
    np.testing.assert_allclose(encoder.describe()[0]["std"], values.std() * scale, rtol=1e-9)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, 1e301])
def test_numbers_that_cannot_be(bad):
    table = pa.table({"ok": [1.0, 2.0, 3.0], "a": [1.0, 2.0, bad]})
    with pytest.raises(BadData, match=r"file.csv, row 3: column 'a' is -?(inf|1e\+301); .* finite"):
        begin(table, rows=2).encode(table, place, learn=True)


def test_a_number_far_from_the_first_rows():
    table = pa.table({"a": [1.0, 2.0, 1e12]})
    with pytest.raises(BadData, match=r"row 3: column 'a' is 1e\+12, more than 1e\+09 deviations"):
        begin(table, rows=2).encode(table, place, learn=True)


def test_vectors_and_times():
    rows = np.random.default_rng(2).normal(size=(20, 3))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 3)
    days = pa.array(pd.date_range("2026-01-01", periods=20).to_numpy(), pa.timestamp("us"))
    table = pa.table({"x": vectors, "when": days})
    x, encoder, _ = begin(table).encode(table, place, learn=True)
    assert encoder.names() == ["x[0]", "x[1]", "x[2]", "when"]
    expected = StandardScaler().fit_transform(np.column_stack([rows, np.arange(20)]))
    np.testing.assert_allclose(x, expected, atol=1e-9)


SPARSE = pa.list_(pa.struct([("index", pa.int64()), ("value", pa.float64())]))


def sparse_table(rows):
    entries = [[{"index": i, "value": v} for i, v in row.items()] for row in rows]
    return pa.table({"x": pa.array(entries, SPARSE)})


def test_sparse_rows_are_taken_as_they_are_and_new_indices_get_places():
    rows = [{5: 1.5}, {2: -1.0, 900: 2.0}, {}, {5: 3.0, 7: 1.0}]
    start = begin(sparse_table(rows[:1]))
    x, encoder, _ = start.encode(sparse_table(rows), place, learn=True)
    named = pd.DataFrame(dense(x), columns=encoder.names())
    for i in (2, 5, 7, 900):
        assert named[f"x[{i}]"].tolist() == [row.get(i, 0.0) for row in rows]
    other, _, unseen = encoder.encode(sparse_table([{5: 1.0, 10**6: 4.0}]), place, learn=False)
    assert dense(other).sum() == 1.0
    assert unseen == {"x": {"(new indices)": 1}}


def test_hashed_sparse_rows():
    table = sparse_table([{5: 1.5, 10**12: 2.0}, {}])
    x, _, _ = begin(table, hash_bits=12).encode(table, place, learn=True)
    expected = np.zeros(2**12)
    expected[hash_text("x[5]", 12)] += 1.5
    expected[hash_text(f"x[{10**12}]", 12)] += 2.0
    np.testing.assert_array_equal(dense(x), [expected, np.zeros(2**12)])


def test_indices_of_any_size():
    table = sparse_table([{10**9: 1.0, 2**62: 3.0}])
    x, encoder, _ = begin(table).encode(table, place, learn=True)
    named = pd.DataFrame(dense(x), columns=encoder.names())
    assert named[f"x[{10**9}]"].tolist() == [1.0]
    assert named[f"x[{2**62}]"].tolist() == [3.0]


def test_more_levels_than_may_be():
    table = pa.table({"id": [f"{i}" for i in range(100)], "a": ["x", "y"] * 50})
    message = r"need more than 50 features, 100 of them for 'id'; drop it \(--drop id\), hash"
    with pytest.raises(BadData, match=message):
        begin(table, max_width=50)


def test_which_columns():
    schema = pa.schema([("x1", pa.float64()), ("x2", pa.bool_()), ("name", pa.string())])
    assert kinds_of(schema, ("x*",), (), set()) == {"x1": "number", "x2": "flag"}
    assert kinds_of(schema, (), ("x1",), {"x2"}) == {"name": "category"}
    with pytest.raises(ValueError, match="no column is called 'y\\*'; there are x1, x2, name"):
        kinds_of(schema, ("y*",), (), set())
    assert kinds_of(schema, (), ("gone", "name"), set()) == {"x1": "number", "x2": "flag"}
    with pytest.raises(ValueError, match="no columns are left"):
        kinds_of(schema, (), ("*",), set())


def test_shards_joined_by_name():
    one, two = (
        pa.table({"n": [1.0, 2.0, 4.0], "a": ["x", "y", "x"]}),
        pa.table({"n": [0.0, 3.0], "a": ["z", "y"]}),
    )
    start = begin(one.slice(0, 2))
    first = start.encode(one, place, learn=True).encoder
    second = start.encode(two, place, learn=True).encoder
    both = first.merged_with(second)
    whole = start.encode(pa.concat_tables([one, two]), place, learn=True).encoder
    for a, b in zip(both.describe(), whole.describe(), strict=True):
        for key, value in a.items():
            expected = pytest.approx(b[key], rel=1e-12) if isinstance(value, float) else b[key]
            assert value == expected
    names = np.array(both.names())
    for shard in (first, second):
        places = shard.slots_in(both)
        own = np.array(shard.names())
        assert len(set(places)) == len(own)
        assert (names[places][own != FREE] == own[own != FREE]).all()
