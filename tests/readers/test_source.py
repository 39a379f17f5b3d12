"""Every format gives the same rows, at the same places, in pieces of the size asked for."""

import io
import sys

import numpy as np
import pyarrow as pa
import pytest

from kalvi.readers.files import BadData
from kalvi.readers.source import open_data
from tests.readers import files

ENDINGS = [(name, "") for name in files.WRITERS]
ENDINGS += [
    (name, end) for name in ("csv", "tsv", "jsonl", "arrow") for end in (".gz", ".zst", ".bz2")
]


@pytest.mark.parametrize(("name", "ending"), ENDINGS)
def test_every_format_gives_the_same_rows_and_places(name, ending, tmp_path):
    rows = files.table()
    path = files.written(
        tmp_path / f"a.{name}{ending}", files.pack(files.WRITERS[name](rows), ending)
    )
    pieces = files.read_all(path, 11)
    assert [piece.table.num_rows for piece in pieces] == [11, 11, 11, 7]
    assert [piece.start for piece in pieces] == [0, 11, 22, 33]
    assert pa.concat_tables(piece.table for piece in pieces).equals(rows)
    assert pieces[2].locate(4) == f"a.{name}{ending}, row 27"


@pytest.mark.parametrize("name", files.WRITERS)
def test_parts_of_a_directory_are_one_stream(name, tmp_path):
    rows = files.table()
    for i, (start, end) in enumerate([(0, 13), (13, 15), (15, 40)]):
        files.written(tmp_path / f"part-{i}.{name}", files.WRITERS[name](rows[start:end]))
    files.written(tmp_path / "_SUCCESS", b"")
    files.written(tmp_path / "README.md", b"nothing")
    for data in (tmp_path, f"{tmp_path}/part-*", sorted(tmp_path.glob("part*"))):
        source = open_data(data, sample_rows=14)
        pieces = list(source.pieces(6))
        assert pa.concat_tables(piece.table for piece in pieces).equals(rows)
        assert source.sample.equals(rows[:14])
        assert source.n_rows == (40 if name in ("parquet", "feather") else None)
        assert [pieces[2].locate(i).split(", ") for i in (0, 1, 3)] == [
            [f"part-0.{name}", "row 13"],
            [f"part-1.{name}", "row 1"],
            [f"part-2.{name}", "row 1"],
        ]
        assert source.fraction() == 1.0


@pytest.mark.parametrize("name", files.WRITERS)
@pytest.mark.parametrize("skip", [0, 5, 13, 14, 27, 40])
def test_skip_begins_after_so_many_rows(name, skip, tmp_path):
    rows = files.table()
    files.written(tmp_path / f"a.{name}", files.WRITERS[name](rows[:14]))
    files.written(tmp_path / f"b.{name}", files.WRITERS[name](rows[14:]))
    pieces = list(open_data(tmp_path).pieces(8, skip=skip))
    expected = [rows[i : i + 8] for i in range(skip, 40, 8)]
    assert [piece.start for piece in pieces] == list(range(skip, 40, 8))
    assert all(p.table.equals(e) for p, e in zip(pieces, expected, strict=True))
    if 14 <= skip < 40:
        assert pieces[0].locate(0) == f"b.{name}, row {skip - 13}"


def test_data_that_end_before_the_place_to_go_on_from(tmp_path):
    files.written(tmp_path / "a.csv", files.WRITERS["csv"](files.table()))
    with pytest.raises(BadData, match=r"a.csv: ends 10 rows before the row to continue from"):
        list(open_data(tmp_path).pieces(8, skip=50))


@pytest.mark.parametrize("name", files.WRITERS)
def test_standard_input_is_recognised_and_read_once(name, monkeypatch, tmp_path):
    rows = files.table()
    data = files.WRITERS[name](rows)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    source = open_data("-", sample_rows=5)
    assert source.sample.equals(rows[:5])
    assert source.fingerprint() == [{"path": "-"}]
    pieces = list(source.pieces(12, skip=2))
    assert pa.concat_tables(piece.table for piece in pieces).equals(rows[2:])
    assert pieces[1].locate(0) == "standard input, row 15"
    if name not in ("parquet", "feather"):  # those were copied to a temporary file
        assert source.fraction() is None
        with pytest.raises(BadData, match="standard input: can be read only once"):
            list(source.pieces(12))


def test_sparse_formats_agree(tmp_path):
    x, y = files.sparse()
    paths = [
        files.written(tmp_path / "a.libsvm", files.libsvm_bytes()),
        files.written(tmp_path / "a.svm.gz", files.pack(files.libsvm_bytes(), ".gz")),
        files.written(tmp_path / "a.npz", files.sparse_npz_bytes()),
    ]
    for path in paths:
        pieces = files.read_all(path, 16)
        rows = [row for piece in pieces for row in piece.table.to_pylist()]
        dense = np.zeros(x.shape)
        for i, row in enumerate(rows):
            for pair in row["x"]:
                dense[i, pair["index"]] = pair["value"]
        np.testing.assert_allclose(dense, x.toarray(), rtol=1e-12)
        np.testing.assert_array_equal([row["y"] for row in rows], y)
        assert pieces[1].locate(3) == f"{path.name}, row 20"


def test_fraction_grows_with_the_bytes_and_fingerprints_tell_files_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("kalvi.readers.text_blocks.BLOCK", 2**16)
    text = "x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(100_000))
    path = files.written(tmp_path / "a.csv", text)
    source = open_data(path)
    seen = [source.fraction() for _ in source.pieces(10_000)]
    assert seen == sorted(seen)
    assert 0 < seen[0] < 0.8
    assert seen[-1] == 1.0
    (mark,) = source.fingerprint()
    assert (mark["path"], mark["bytes"]) == (str(path), len(text))
    path.write_text(text.replace("x,y", "x,z"))
    (other,) = open_data(path).fingerprint()
    assert other["head"] != mark["head"]


def test_a_file_that_changes_is_refused(tmp_path):
    path = files.written(tmp_path / "a.csv", "x,y\n" + "1,2\n" * 10)
    source = open_data(path)
    path.write_text("x,y\n" + "1,2\n" * 5)
    with pytest.raises(BadData, match=r"a.csv: has changed since it was opened; begin again"):
        list(source.pieces(3))


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    path = files.written(tmp_path / "a.csv", "x,y\n" + "1,2\n" * 1_500_000)
    pieces = open_data(path).pieces(1000)
    next(pieces)
    with open(path, "ab") as file:
        file.write(b"1,2\n")
    with pytest.raises(BadData, match=r"a.csv: has changed"):
        list(pieces)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "xlsx"}, "format is one of csv"),
        (
            {"types": {"x": "integer"}},
            "called one of number, category, time, text, or .* got 'integer'",
        ),
        (
            {"types": {"q": "number"}},
            "a.csv: has no column 'q' to read as a number; it has 'x', 'y'",
        ),
        ({"sample_rows": 0}, "at least one row"),
        ({"drop": ["x", "y"]}, "a.csv: has no columns"),
    ],
)
def test_options_that_cannot_be_met_are_refused(options, message, tmp_path):
    path = files.written(tmp_path / "a.csv", "x,y\n1,2\n")
    with pytest.raises(ValueError, match=message):
        open_data(path, **options)


def test_a_piece_has_at_least_one_row(tmp_path):
    source = open_data(files.written(tmp_path / "a.csv", "x,y\n1,2\n"))
    with pytest.raises(ValueError, match="1 or more rows after 0 or more; got 0 after 0"):
        next(source.pieces(0))
