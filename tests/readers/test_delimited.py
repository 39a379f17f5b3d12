import datetime
import random

import pyarrow as pa
import pytest

from kalvi.readers import text_blocks
from kalvi.readers.quotes import Lexer
from kalvi.readers.source import open_data
from tests.readers import files
from tests.readers.test_inputs import refused


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(text_blocks, "BLOCK", 2**14)


def read(tmp_path, text, **options):
    path = files.written(tmp_path / "a.csv", text)
    return pa.concat_tables(piece.table for piece in files.read_all(path, 3, **options))


def test_kinds_come_from_the_first_rows(tmp_path):
    text = (
        "number,flag,time,zoned,word,nothing\n"
        "1,true,2020-01-02,2020-01-02T03:04:05+01:00,NA,\n"
        "-2.5e3,FALSE,2020-01-02 03:04:05.5,2020-01-02T03:04:05Z,7x,NA\n"
        " inf ,NA,null,,None,null\n"
    )
    rows = read(tmp_path, text)
    assert rows.schema.types == [
        pa.float64(),
        pa.bool_(),
        pa.timestamp("us"),
        pa.timestamp("us"),
        pa.string(),
        pa.float64(),
    ]
    when = datetime.datetime
    assert rows.to_pydict() == {
        "number": [1.0, -2500.0, float("inf")],
        "flag": [True, False, None],
        "time": [when(2020, 1, 2), when(2020, 1, 2, 3, 4, 5, 500_000), None],
        "zoned": [when(2020, 1, 2, 2, 4, 5), when(2020, 1, 2, 3, 4, 5), None],
        "word": [None, "7x", None],
        "nothing": [None, None, None],
    }


def test_the_user_may_say_the_kind(tmp_path):
    rows = read(tmp_path, "zip,x\n01,1\n02,2\n", types={"zip": "category", "x": "number"})
    assert rows.to_pydict() == {"zip": ["01", "02"], "x": [1.0, 2.0]}
    path = files.written(tmp_path / "a.csv", "a,b\n1,1\n2,x\n")
    message = refused(path, types={"b": "number"})
    assert message.startswith(
        "a.csv, row 2: column 'b' is read as a number, but the entry is 'x'; correct"
    )
    assert message.endswith("or read the column otherwise (--as b=category, --drop b).")


def test_marks_of_encoding_line_ends_and_blank_lines_are_no_data(tmp_path):
    expected = {"x": [1.0, 2.0], "y": ["é", "b"]}
    for text in ("\ufeffx,y\n1,é\n2,b\n", "\r\nx,y\r\n\r\n1,é\r\n\r\n2,b", "x,y\r1,é\r2,b\r"):
        assert read(tmp_path, text).to_pydict() == expected
    quoted = 'x,"y\nz"\n1,"a\n\n""b"""\n2,5" pipe\n'
    assert read(tmp_path, quoted).to_pydict() == {"x": [1.0, 2.0], "y\nz": ['a\n\n"b"', '5" pipe']}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n1,2\n3\n", "a.csv, row 2: has 1 field where the header has 2."),
        ("x,y\n1,2\n\n3,4,5\n", "a.csv, row 2: has 3 fields where the header has 2."),
        ("x,y\n", "a.csv: has a header but no rows."),
        ("\n\n", "a.csv: is empty."),
        ("x,,y\n1,2,3\n", "a.csv, header: column 2 has no name; give it one in the header."),
        ("x,y,x\n1,2,3\n", "a.csv, header: column 'x' appears more than once; rename one of them."),
        ("x\ty\n1\n", "a.csv, row 1: has 1 field where the header has 2."),
        (
            b"x,y\n1,2\n3,\0\n",
            "a.csv, row 2: has a NUL byte; is it binary, or text other than UTF-8?",
        ),
        (
            b"x,y\n1,a\n2,b\n3,\xe9\n",
            "a.csv, row 3: is not UTF-8 (byte 0xe9); save the file as UTF-8.",
        ),
        (b"x,\xe9\n1,a\n", "a.csv, header: is not UTF-8 (byte 0xe9); save the file as UTF-8."),
        ("x,y\n1,é\n".encode("utf-16"), "a.csv: is UTF-16 text; save it as UTF-8."),
        ('x,y\n1,2\n3,"4\n5,6\n', "a.csv, row 2: a quote is opened and never closed."),
        ('"x,y\n1,2\n', "a.csv, header: a quote is opened and never closed."),
    ],
)
def test_malformed_text_is_refused_with_its_place(text, message, tmp_path):
    assert refused(files.written(tmp_path / "a.csv", text)) == message


BAD_ROWS = {
    "abc,no": "column 'x' is read as a number, but the entry is 'abc'; correct it, or read the column "
    "otherwise (--as x=category, --drop x).",
    "1": "has 1 field where the header has 2.",
    '1,"a\nb",3': "has 3 fields where the header has 2.",
    "1,\0": "has a NUL byte; is it binary, or text other than UTF-8?",
}


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_the_place_is_exact_far_into_a_file_and_in_the_second_file(bad, tmp_path):
    n = 3 * text_blocks.BLOCK // 12
    row = '17,"two\nx"\n\n'
    path = tmp_path / "a.csv"
    files.written(path, "x,y\n" + row * n + bad + "\n" + row * 5 + bad + "\n")
    source = open_data(path, sample_rows=100)
    with pytest.raises(ValueError) as caught:
        for _ in source.pieces(20_000):
            pass
    assert str(caught.value) == f"a.csv, row {n + 1:,}: {BAD_ROWS[bad]}"
    files.written(path, "x,y\n" + row * 5)
    other = files.written(tmp_path / "b.csv", "y,x\n" + "a,1\n" * 3 + "b\n")
    assert (
        refused([path, other], sample_rows=4) == "b.csv, row 4: has 1 field where the header has 2."
    )


def test_long_rows_and_headers_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("kalvi.readers.text_blocks.LONGEST_LINE", 2**20)
    monkeypatch.setattr("kalvi.readers.text_blocks.BLOCK", 2**16)
    path = files.written(tmp_path / "a.csv", "x,y\n1,2\n3," + "z" * 2**21 + "\n")
    assert refused(path) == "a.csv, row 2: is longer than 1 MiB; is a quote not closed?"
    files.written(path, 'x,y\n1,2\n3,"' + "z\n" * 2**20)
    assert refused(path) == "a.csv, row 2: is longer than 1 MiB; is a quote not closed?"
    files.written(path, ",".join("x" * 120_000))
    assert "a.csv, header: is longer than 100,000 names or 1 MiB" in refused(path)
    files.written(path, "x" * (2**20 - 1))
    assert "has a header but no rows" in refused(path)


def test_a_long_value_is_shortened_in_the_message(tmp_path):
    message = refused(
        files.written(tmp_path / "a.csv", "x\n" + "1\n" * 9 + "z" * 500), sample_rows=5
    )
    assert message.startswith(
        f"a.csv, row 10: column 'x' is read as a number, but the entry is '{'z' * 39}…';"
    )


def test_a_later_fraction_fits_a_column_of_whole_numbers(tmp_path):
    rows = read(tmp_path, "x\n" + "1\n" * 9 + "12.5\n", sample_rows=5)
    assert rows.column("x")[-1].as_py() == 12.5


def test_rows_end_where_a_search_of_every_field_finds_them():
    draw = random.Random(0)
    fast, slow = Lexer(",", b"\n"), Lexer(",", b"\n")
    slow._tidy = lambda data: None
    tidy = 0
    for _ in range(1500):
        text = bytes(draw.choice(b'"",\n\nab\r"') for _ in range(draw.randrange(1, 30)))
        tidy += fast._tidy(text) is not None
        assert fast.ends(text) == slow.ends(text)
        assert fast.last_end(text) == slow.last_end(text)
    assert 250 < tidy < 1250
