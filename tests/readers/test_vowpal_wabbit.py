import pytest

from kalvi.readers import text_blocks
from tests.readers import files
from tests.readers.test_inputs import refused


def pairs(**values):
    return [{"name": name.replace("_", "^", 1), "value": value} for name, value in values.items()]


def test_labels_weights_tags_and_namespaces(tmp_path):
    (piece,) = files.read_all(files.written(tmp_path / "a.vw", files.VOWPAL), 10)
    found = piece.table.to_pydict()
    assert found["y"] == [1.0, -1.0, 0.5, None]
    assert found["weight"] == [2.0, 1.0, 0.0, 1.0]
    assert found["tag"] == ["first", None, "tag", None]
    assert found["x"] == [
        pairs(words_the=1.0, words_a=2.0, words_cat=1.0),
        pairs(words_the=1.0, n_age=30.0),
        [{"name": "7", "value": 1.0}, {"name": "nothing", "value": 1.0}],
        pairs(words_cat=1.0),
    ]


def test_columns_that_no_row_has_are_not_there(tmp_path):
    (piece,) = files.read_all(files.written(tmp_path / "a.txt", "1 |a b c\n-1 |a d:0.5\n"), 10)
    assert piece.table.column_names == ["y", "x"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("yes |a b", "has 'yes' where a label or a weight, a number, is needed."),
        ("1 -2 |a b", "has the weight '-2', which is below 0."),
        ("1 2 0.5 |a b", "has '0.5' after the label and the weight, before the |."),
        ("1 |a b:x", "has 'x' where the value of a feature, a number, is needed."),
        ("1 |a b:nan", "has 'nan' where the value of a feature, a number, is needed."),
        ("1 |a b:1_0", "has '1_0' where the value of a feature, a number, is needed."),
        (
            "1 |a:1e300 b:1e300",
            "has 'b:1e300', which times the scale of its namespace is too large.",
        ),
        ("1 |a:x b", "has 'x' where the scale of a namespace, a number, is needed."),
        ("1 |a :3", "has ':3' where feature or feature:value is needed."),
        ("1 2 |a b", "has a weight, but the first 1,000 rows have none"),
    ],
)
def test_malformed_lines_are_refused_with_their_place(line, message, tmp_path, monkeypatch):
    monkeypatch.setattr(text_blocks, "BLOCK", 2**12)
    row = "1 |words good:2 bad\n"
    path = files.written(tmp_path / "a.vw", row * 1500 + line + "\n" + row)
    assert refused(path, size=20_000, sample_rows=10).startswith(f"a.vw, row 1,501: {message}")
