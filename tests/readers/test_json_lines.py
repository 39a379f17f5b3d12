import datetime
import json

import pyarrow as pa
import pytest

from kalvi.readers import text_blocks
from kalvi.readers.source import open_data
from tests.readers import files
from tests.readers.test_inputs import refused


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(text_blocks, "BLOCK", 2**14)


def read(tmp_path, *rows, **options):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path = files.written(tmp_path / "a.jsonl", text)
    return pa.concat_tables(piece.table for piece in files.read_all(path, 3, **options))


def test_kinds_come_from_the_first_rows(tmp_path):
    first = {
        "n": 1,
        "b": True,
        "s": "a",
        "t": "2020-01-02",
        "v": [1, 2.5],
        "z": "2020-01-02T00:00:00Z",
    }
    first["p"] = [{"index": 3, "value": 1.5}]
    rows = read(tmp_path, first, {"n": 2.5, "later": None}, {"s": "NA", "p": []})
    day = datetime.datetime(2020, 1, 2)
    assert rows.schema.field("v").type == pa.list_(pa.float64(), 2)
    assert rows.to_pydict() == {
        "n": [1.0, 2.5, None],
        "b": [True, None, None],
        "s": ["a", None, None],
        "t": [day, None, None],
        "v": [[1.0, 2.5], None, None],
        "z": [day, None, None],
        "p": [[{"index": 3, "value": 1.5}], None, []],
        "later": [None, None, None],
    }


def test_the_user_may_say_the_kind(tmp_path):
    rows = read(
        tmp_path,
        {"a": 1, "b": "2"},
        {"a": 2.5, "b": " NA "},
        types={"a": "category", "b": "number"},
    )
    assert rows.to_pydict() == {"a": ["1", "2.5"], "b": [2.0, None]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "is not a JSON object, one a line ('[1]')."),
        ("null", "is not a JSON object, one a line ('null')."),
        ("{", "is not JSON, one object a line ('{')."),
        ('{"a": 1} {"a": 2}', """is not JSON, one object a line ('{"a": 1} {"a": 2}')."""),
        (
            '{"a": 1} null {"a": 2}',
            """is not JSON, one object a line ('{"a": 1} null {"a": 2}').""",
        ),
        ('{"a": "x"}', "column 'a' is read as a number, but the entry is 'x'"),
        ('{"a": {"b": 1}}', "column 'a' is read as a number, but the entry is '{\"b\": 1}'"),
        ('{"v": [1]}', "column 'v' is read as a vector of 2 numbers, but the entry is '[1.0]'."),
        (
            '{"v": [1, null]}',
            "column 'v' is read as a vector of 2 numbers, but the entry is '[1.0, None]'.",
        ),
        ('{"new": 1}', "has a column 'new', which the first rows do not have."),
        ('{"a": 1, "a": 2}', "names a column twice ("),
        ("\0", "has a NUL byte"),
    ],
)
def test_malformed_lines_are_refused_with_their_place(line, message, tmp_path):
    row = '{"a": 1, "v": [1, 2]}\n \n'
    n = 3 * text_blocks.BLOCK // len(row)
    path = files.written(tmp_path / "a.jsonl", row * n + line + "\n" + row)
    source = open_data(path, sample_rows=10)
    with pytest.raises(ValueError) as caught:
        for _ in source.pieces(20_000):
            pass
    assert str(caught.value).startswith(f"a.jsonl, row {n + 1:,}: {message}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("null", "a.jsonl, row 2: is not a JSON object, one a line ('null')."),
        (
            '{"a": [1]}',
            "a.jsonl, row 2: column 'a' is '[1]' after rows in which it is a number; give it one",
        ),
        (
            '{"b": {"c": 1}}',
            "a.jsonl, row 2: column 'b' holds '{\"c\": 1}'; nested values other than lists",
        ),
        ('{"": 1}', "a.jsonl: column 2 has no name"),
        ("[" * 100_000, "a.jsonl, row 2: is not JSON, one object a line ('[[[[["),
    ],
)
def test_malformed_lines_of_the_sample_are_refused(line, message, tmp_path):
    assert refused(files.written(tmp_path / "a.jsonl", '{"a": 1}\n' + line)).startswith(message)


def test_a_nested_column_may_be_left_out(tmp_path):
    assert read(tmp_path, {"a": 1, "b": {"c": 1}}, {"b": 3, "a": 2}, drop=["b"]).to_pydict() == {
        "a": [1, 2]
    }
    assert refused(files.written(tmp_path / "a.jsonl", "\n \n")) == "a.jsonl: has no rows."
