import pytest

from kalvi.readers import text_blocks
from tests.readers import files
from tests.readers.test_inputs import refused


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(text_blocks, "BLOCK", 2**14)


def test_labels_pairs_comments_and_empty_rows(tmp_path):
    text = "# head\n+1 2:0.5 10:-3e2 # why\n\n-1\n2.5\t1:inf \r\n"
    (piece,) = files.read_all(files.written(tmp_path / "a.svm", text), 10)
    assert piece.table.to_pydict() == {
        "y": [1.0, -1.0, 2.5],
        "x": [
            [{"index": 2, "value": 0.5}, {"index": 10, "value": -300.0}],
            [],
            [{"index": 1, "value": float("inf")}],
        ],
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1:2 3:4", "begins with '1:2' where a number, the label, is needed."),
        ("1,2 3:4", "begins with '1,2' where a number, the label, is needed."),
        ("1 3:4 3:5", "has index 3 after 3; indices must increase."),
        ("1 3:4 2:5", "has index 2 after 3; indices must increase."),
        ("1 -2:5", "has the index '-2', which is not a whole number from 0 to 2⁶³ − 1."),
        ("1 qid:3 2:5", "has the index 'qid', which is not a whole number from 0 to 2⁶³ − 1."),
        (
            "1 9223372036854775808:1",
            "has the index '9223372036854775808', which is not a whole number",
        ),
        (
            "1 -9223372036854775808:1",
            "has the index '-9223372036854775808', which is not a whole number",
        ),
        ("1 3", "has '3' where index:value is needed."),
        ("1 3:x", "has '3:x' where index:value is needed."),
        ("1 3:4:5", "has '3:4:5' where index:value is needed."),
        ("1 3:", "has '3:' where index:value is needed."),
        ("1 3:nan", "has '3:nan' where index:value is needed."),
    ],
)
def test_malformed_lines_are_refused_with_their_place(line, message, tmp_path):
    row = "1 2:3 4:5\n"
    n = 3 * text_blocks.BLOCK // len(row)
    path = files.written(tmp_path / "a.libsvm", row * n + line + "\n" + row)
    found = refused(path, size=20_000, sample_rows=10)
    assert found.startswith(f"a.libsvm, row {n + 1:,}: {message}")


def test_a_file_of_comments_has_no_rows(tmp_path):
    assert (
        refused(files.written(tmp_path / "a.libsvm", "# nothing\n\n")) == "a.libsvm: has no rows."
    )
