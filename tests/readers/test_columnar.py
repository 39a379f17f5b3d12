import decimal
import io

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from kalvi.readers.source import open_data
from tests.readers import files
from tests.readers.test_inputs import refused

COLUMNS = {
    "small": pa.array([1, None, 3], pa.int8()),
    "money": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal(2)]),
    "level": pa.array(["a", "b", None]).dictionary_encode(),
    "large": pa.array(["a", "b", None], pa.large_string()),
    "day": pa.array([0, 1, None], pa.date32()),
    "zoned": pa.array([0, 10**9 + 1, None], pa.timestamp("ns", "Europe/Paris")),
    "vector": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int32(), 2)),
    "list": pa.array([None, [1.5], [2.5]], pa.list_(pa.float32())),
    "sparse": pa.array([[{"index": 1, "value": 2}], [], None]),
    "nan": pa.array([np.nan, 1.0, None]),
    "void": pa.nulls(3),
}


@pytest.mark.parametrize("name", ["parquet", "feather", "arrow"])
def test_declared_types_become_kinds(name, tmp_path):
    path = files.written(tmp_path / f"a.{name}", files.WRITERS[name](pa.table(COLUMNS)))
    (piece,) = files.read_all(path)
    found = piece.table.to_pydict()
    seconds = [
        None if t is None else (t.timestamp(), t.year)
        for t in piece.table.column("day").to_pylist()
    ]
    assert found["small"] == [1.0, None, 3.0]
    assert found["money"] == [1.5, None, 2.0]
    assert found["level"] == found["large"] == ["a", "b", None]
    assert seconds[2] is None
    assert str(piece.table.column("zoned")[1]) == "1970-01-01 00:00:01"
    assert found["vector"] == [[1.0, 2.0], [3.0, 4.0], None]
    assert found["list"] == [None, [1.5], [2.5]]
    assert found["sparse"] == [[{"index": 1, "value": 2.0}], [], None]
    assert found["nan"] == [None, 1.0, None]
    assert found["void"] == [None] * 3
    assert piece.table.schema.field("list").type == pa.list_(pa.float64(), 1)
    assert {"double", "string", "timestamp[us]"} >= {
        str(piece.table.schema.field(n).type)
        for n in ("small", "level", "large", "day", "zoned", "void")
    }


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            pa.array([b"x"]),
            "a.parquet: column 'x' is of type 'binary', which cannot be used; leave it out",
        ),
        (
            pa.array([{"a": 1}]),
            "a.parquet: column 'x' is of type 'struct<a: int64>', which cannot be used",
        ),
        (pa.array([], pa.int64()), "a.parquet: has no rows."),
        (
            pa.array([0, 2**60], pa.timestamp("us")),
            "a.parquet, row 2: column 'x' is read as a time, but",
        ),
        (
            pa.array([[1.0], [1.0, 2.0]]),
            "a.parquet, row 2: column 'x' is read as a vector of 1 number, but",
        ),
        (
            pa.array([[1.0], [None]]),
            "a.parquet, row 2: column 'x' is read as a vector of 1 number, but",
        ),
        (pa.array([[{"index": 1, "value": None}]]), "a.parquet: column 'x' is of type"),
    ],
)
def test_columns_of_no_use_are_refused(column, message, tmp_path):
    data = files.parquet_bytes(pa.table({"x": column}))
    assert refused(files.written(tmp_path / "a.parquet", data)).startswith(message)


def test_text_may_be_read_as_numbers_and_back(tmp_path):
    rows = pa.table({"a": [" 1", "NA", "2.5", "x"], "b": [1, 2, 3, 4]})
    path = files.written(tmp_path / "a.parquet", files.parquet_bytes(rows[:3]))
    (piece,) = files.read_all(path, types={"a": "number", "b": "category"})
    assert piece.table.to_pydict() == {"a": [1.0, None, 2.5], "b": ["1", "2", "3"]}
    other = files.written(tmp_path / "b.parquet", files.parquet_bytes(rows))
    assert refused([path, other], types={"a": "number"}) == (
        "b.parquet, row 4: column 'a' is read as a number, but the entry is 'x'; correct it, or read "
        "the column otherwise (--as a=category, --drop a)."
    )
    assert refused([other], types={"a": "number"}).startswith("b.parquet, row 4: ")


def test_a_second_file_may_declare_another_type_of_the_same_kind(tmp_path):
    files.written(tmp_path / "a.parquet", files.parquet_bytes(pa.table({"a": [1], "b": ["x"]})))
    files.written(tmp_path / "b.parquet", files.parquet_bytes(pa.table({"b": ["y"], "a": [2.5]})))
    (piece,) = files.read_all(tmp_path)
    assert piece.table.to_pydict() == {"a": [1.0, 2.5], "b": ["x", "y"]}
    path = tmp_path / "b.parquet"
    files.written(path, files.parquet_bytes(pa.table({"b": ["y"], "a": ["z"]})))
    assert refused(tmp_path).startswith(
        "b.parquet, row 1: column 'a' is read as a number, but the entry is 'z';"
    )


@pytest.mark.parametrize("name", ["parquet", "feather", "arrow"])
def test_files_that_break_off_or_are_damaged_are_refused(name, tmp_path):
    data = files.WRITERS[name](files.table(2000))
    cut = files.written(tmp_path / f"a.{name}", data[: len(data) // 2])
    assert refused(cut).startswith(f"a.{name}")
    broken = files.written(tmp_path / f"b.{name}", data[:2000] + bytes(5000) + data[7000:])
    assert refused(broken).startswith(f"b.{name}")


def test_names_appear_once(tmp_path):
    out = io.BytesIO()
    pa.parquet.write_table(pa.table([[1], [2]], names=["x", "x"]), out)
    path = files.written(tmp_path / "a.parquet", out.getvalue())
    assert refused(path) == "a.parquet: column 'x' appears more than once; rename one of them."


def test_row_groups_before_the_skipped_rows_are_not_read(tmp_path, monkeypatch):
    path = files.written(tmp_path / "a.parquet", files.parquet_bytes(files.table(70)))
    source, read = open_data(path), []
    iterate = pa.parquet.ParquetFile.iter_batches

    def spy(self, *args, **options):
        read.extend(options["row_groups"])
        return iterate(self, *args, **options)

    monkeypatch.setattr(pa.parquet.ParquetFile, "iter_batches", spy)
    assert next(source.pieces(5, skip=30)).locate(0) == "a.parquet, row 31"
    assert read == [4, 5, 6, 7, 8, 9]
