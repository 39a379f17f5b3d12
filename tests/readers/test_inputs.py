import os
import threading

import pytest

from kalvi.readers.files import BadData
from kalvi.readers.source import open_data
from tests.readers import files


def refused(data, **options):
    with pytest.raises(BadData) as caught:
        files.read_all(data, **options)
    return str(caught.value)


def test_what_is_not_there_is_refused(tmp_path):
    assert refused(tmp_path / "no.csv") == f"{tmp_path}/no.csv: no such file."
    assert refused(f"{tmp_path}/*.csv") == f"{tmp_path}/*.csv: no file has a name of this pattern."
    assert refused(tmp_path) == f"{tmp_path}: is a directory without files."
    assert refused([]).startswith("no data")
    path = files.written(tmp_path / "a.csv", "x\n1\n")
    assert refused([path, path]).startswith("no file may be named twice")
    assert refused(files.written(tmp_path / "b.csv", "")) == "b.csv: is empty."
    assert (
        refused(files.written(tmp_path / "c.csv.gz", files.pack(b"", ".gz")))
        == "c.csv.gz: is empty."
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(tmp_path):
    path = files.written(tmp_path / "a.csv", "x\n1\n")
    path.chmod(0)
    assert refused(path) == "a.csv: cannot be opened (permission denied)."


@pytest.mark.parametrize("ending", [".gz", ".zst", ".bz2"])
def test_compressed_text_that_breaks_off_is_refused(ending, tmp_path):
    whole = files.pack(files.csv_bytes(files.table(2000)), ending)
    for part in (whole[: len(whole) // 2], whole[:-3], whole[:5]):
        message = refused(files.written(tmp_path / f"a.csv{ending}", part))
        assert message.startswith(f"a.csv{ending}: ")
        assert "Truncated" in message
    junk = refused(files.written(tmp_path / f"a.csv{ending}", whole + b"more"))
    assert junk.startswith(f"a.csv{ending}: is damaged or breaks off")


def test_two_compressed_parts_in_a_row_are_one(tmp_path):
    data = files.pack(b"x\n1\n", ".gz") + files.pack(b"2\n", ".gz")
    (piece,) = files.read_all(files.written(tmp_path / "a.csv.gz", data))
    assert piece.table.to_pydict() == {"x": [1.0, 2.0]}


def test_content_overrides_the_name(tmp_path):
    rows = files.table()
    for name, write in files.WRITERS.items():
        if name in ("parquet", "feather", "arrow"):
            (piece,) = files.read_all(files.written(tmp_path / f"{name}.csv", write(rows)), 50)
            assert piece.table.equals(rows)
    assert "does not begin like a parquet" in refused(
        files.written(tmp_path / "a.parquet", "x\n1\n")
    )
    packed = files.pack(files.parquet_bytes(rows), ".gz")
    assert "decompress it first" in refused(files.written(tmp_path / "a.parquet.gz", packed))


def test_text_without_a_telling_name_is_looked_at(tmp_path):
    looks = [
        ("a\tb\n1\t2\n", ["a", "b"]),
        ("a;b\n1;2\n", ["a", "b"]),
        ("a,b\n1,2\n", ["a", "b"]),
        ('\ufeff{"a": 1}\n', ["a"]),
        ("1 3:4\n", ["y", "x"]),
    ]
    for i, (text, columns) in enumerate(looks):
        assert open_data(files.written(tmp_path / f"data{i}", text)).schema.names == columns


def test_files_of_two_formats_or_other_columns_are_refused(tmp_path):
    files.written(tmp_path / "a.csv", "x,y\n1,2\n")
    files.written(tmp_path / "b.jsonl", '{"x": 1}\n')
    assert refused(tmp_path) == "b.jsonl: is jsonl, but a.csv is csv."
    (tmp_path / "b.jsonl").unlink()
    other = files.written(tmp_path / "b.csv", "y,z\n1,2\n")
    assert refused(tmp_path) == "b.csv: has no column 'x', which a.csv has."
    other.write_text("y,z,x\n1,2,3\n")
    assert refused(tmp_path) == "b.csv: has a column 'z', which a.csv does not have."
    pieces = files.read_all(tmp_path, 5, drop=["z"])
    assert pieces[0].table.to_pydict() == {"x": [1.0, 3.0], "y": [2.0, 1.0]}


def test_a_named_pipe_is_read_like_standard_input(tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("x,y\n1,2\n3,4\n"))
    writer.start()
    source = open_data(pipe)
    writer.join()
    (piece,) = source.pieces(5)
    source.close()
    assert piece.table.to_pydict() == {"x": [1.0, 3.0], "y": [2.0, 4.0]}
    assert piece.locate(1) == "pipe.csv, row 2"
