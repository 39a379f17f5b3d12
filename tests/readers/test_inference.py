"""What columns of text are taken for: the same in every format, by a rule and never by a guess."""

import datetime
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from kalvi.readers.files import BadData
from kalvi.readers.inference import AmbiguousColumn, infer
from kalvi.readers.quotes import has_leading_zeros
from kalvi.readers.source import open_data
from tests.readers import files
from tests.readers.test_inputs import refused

FORMATS = ("csv", "tsv", "jsonl", "parquet", "feather", "arrow", "npz")
DAY = datetime.datetime


def written(folder, columns, name):
    """The same text in a file of a format."""
    path = folder / f"a.{name}"
    table = pa.table({key: [str(v) for v in values] for key, values in columns.items()})
    if name in ("csv", "tsv"):
        options = pa.csv.WriteOptions(delimiter="," if name == "csv" else "\t")
        pa.csv.write_csv(table, path, options)
    elif name == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif name == "npz":
        np.savez(path, **{key: np.array(table[key].to_pylist()) for key in columns})
    else:
        path.write_bytes(files.WRITERS[name](table))
    return path


def column(*entries, **how):
    return infer(pa.chunked_array([list(map(str, entries))]), **how)


COLUMNS = {
    "plain": (["1", "-2.5e3", " .5 "], "number", [1, -2500, 0.5]),
    "zero": (["0", "0.5", "-0.5"], "number", [0, 0.5, -0.5]),
    "markers": (["1", "?", "-"], "number", [1, None, None]),
    "more_markers": (["NONE", "Unknown", "3"], "number", [None, None, 3]),
    "a_point": (["1", ".", "na"], "number", [1, None, None]),
    "money": (["$1,234.50", "-$5", "$1,000,000"], "number", [1234.5, -5, 1e6]),
    "euro": (["1.234,50 €", "3,5 €", "7"], "number", [1234.5, 3.5, 7]),
    "thousands": (["1,234", "1,234,567", "12"], "number", [1234, 1234567, 12]),
    "decimal_comma": (["3,14", "2,5", "10"], "number", [3.14, 2.5, 10]),
    "spaces": (["1 234,5", "12 345 678", "1"], "number", [1234.5, 12345678, 1]),
    "apostrophes": (["1'234.5", "12", "0"], "number", [1234.5, 12, 0]),
    "percent": (["86%", "5 %", "0.5%"], "number", [86, 5, 0.5]),
    "zip": (["01234", "90210", "10001"], "category", ["01234", "90210", "10001"]),
    "flag": (["true", "False", "?"], "flag", [True, False, None]),
    "iso": (["2020-01-02", "2020-01-03 04:05:06.7", "none"], "time", None),
    "zoned": (["2020-01-02T03:04:05+01:00", "2020-01-02T00:00:00Z", "NA"], "time", None),
    "american": (["01/02/2020", "12/31/2020", "1/5/2021"], "time", None),
    "european": (["31/12/2020 13:05", "1/2/2020", "?"], "time", None),
    "german": (["31.12.2020", "01.02.2020", "02.03.2020"], "time", None),
    "named": (["5 Jan 2020", "17 February 2020", "1 Mar 2020 5:30 pm"], "time", None),
    "level": (["red", "none", "?"], "category", ["red", "none", "?"]),
    "missing_level": (["red", "NA", "blue"], "category", ["red", None, "blue"]),
}
TIMES = {
    "iso": [DAY(2020, 1, 2), DAY(2020, 1, 3, 4, 5, 6, 700_000), None],
    "zoned": [DAY(2020, 1, 2, 2, 4, 5), DAY(2020, 1, 2), None],
    "american": [DAY(2020, 1, 2), DAY(2020, 12, 31), DAY(2021, 1, 5)],
    "european": [DAY(2020, 12, 31, 13, 5), DAY(2020, 2, 1), None],
    "german": [DAY(2020, 12, 31), DAY(2020, 2, 1), DAY(2020, 3, 2)],
    "named": [DAY(2020, 1, 5), DAY(2020, 2, 17), DAY(2020, 3, 1, 17, 30)],
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_text_gives_the_same_columns_in_every_format(name, tmp_path):
    path = written(tmp_path, {key: entries for key, (entries, _, _) in COLUMNS.items()}, name)
    (piece,) = files.read_all(path)
    types = {"number": pa.float64(), "flag": pa.bool_(), "category": pa.string()}
    for key, (_, kind, values) in COLUMNS.items():
        found = piece.table[key]
        assert found.type == types.get(kind, pa.timestamp("us")), key
        assert found.to_pylist() == (TIMES[key] if values is None else values), key


@pytest.mark.parametrize("name", FORMATS)
def test_why_a_column_is_what_it_is_does_not_depend_on_the_format(name, tmp_path):
    text = {key: entries for key, (entries, _, _) in COLUMNS.items()}
    text["zip"] = ["01234", "90210", "unknown"]
    about = open_data(written(tmp_path, text, name)).about
    assert about["plain"] == ("numbers", ())
    assert about["markers"] == ("numbers", ("1 entry '?' missing", "1 entry '-' missing"))
    assert about["money"] == ("numbers written as $1,234.5", ())
    assert about["zip"] == (
        "leading zeros, as in '01234'",
        ("'unknown' as a level, not missing",),
    )
    assert about["american"] == ("times written as %m/%d/%Y", ())
    assert about["level"].why == "text such as 'red'"


def test_declared_columns_stay_what_they_are_declared(tmp_path):
    table = pa.table(
        {
            "n": pa.array([1, 2], pa.int64()),
            "t": pa.array([0, 1], pa.date32()),
            "c": pa.array(["1", "2"]).dictionary_encode(),
        }
    )
    source = open_data(files.written(tmp_path / "a.parquet", files.parquet_bytes(table)))
    assert source.schema.types == [pa.float64(), pa.timestamp("us"), pa.string()]
    assert source.about["n"].why == "declared double"
    path = files.written(tmp_path / "b.parquet", files.parquet_bytes(table))
    assert refused(path, types={"t": "number"}) == "b.parquet: column 't' is a time, not a number."


def test_one_stray_entry_does_not_make_a_category():
    numbers = [f"{v:.2f}" for v in np.random.default_rng(0).normal(size=99)]
    assert column(*numbers, "?").notation.kind == "number"
    taken = column(*numbers, "abc")
    assert (taken.notation.kind, taken.share) == ("number", 0.99)
    assert column(*numbers[:9], "abc").notation.kind == "number"
    assert column(*numbers[:8], "abc").notation.kind == "category"
    assert (
        column(*numbers, "abc", share=1.0).notation.kind == "category"
    )  # columns that are not used


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (["1,234", "2,345", "999"], "number:1,234.5 number:1.234,5"),
        (["$1,234", "$12"], "number:$1,234.5 number:$1.234,5"),
        (["01/02/2020", "03/04/2020"], "time:%d/%m/%Y time:%m/%d/%Y"),
        (["01/02/2020", "13/04/2020", "04/13/2020"] + ["01/02/2020"] * 40, "in two ways"),
        (["86%", "0.86"], "numbers written in several ways, such as '0.86' and '86%'"),
        (["$5", "€5"], "numbers written in several ways, such as '$5' and '€5'"),
        (
            [*map(str, range(100, 300)), "007"],
            "'007' begins with a zero as labels do number",
        ),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_with_the_remedy(entries, words):
    with pytest.raises(AmbiguousColumn) as caught:
        column(*entries)
    assert words in " ".join((str(caught.value), *caught.value.words))


@pytest.mark.parametrize(
    ("entries", "word"),
    [
        (["1,234", "0,500"], "number:1.234,5"),  # no thousands begin with a zero
        (["1,234", "12.5"], "number:1,234.5"),
        (["1,234", "12,5"], "number:1.234,5"),
        (["1.234", "5.678"], "number"),
        (["01/02/2020", "01/13/2020"], "time:%m/%d/%Y"),
        (["01-02-2020", "13-01-2020"], "time:%d-%m-%Y"),
        (["2020/01/02", "2020/01/03"], "time:%Y/%m/%d"),
        (["1/2/69", "13/2/68"], "time:%d/%m/%y"),
        (["Jan 5, 2020", "Feb 6, 2020"], "time:%b %d, %Y"),
        (["007", "5.5"], "number"),  # a quantity among others
        (["none", "none"], "number"),  # nothing but one marker
        (["none", "unknown"], "category"),
        (["yes", "no"], "category"),
        (["192.168.0.1", "10.0.0.1"], "category"),
        (["20200102", "20200103"], "number"),
        (["12:30", "01:15"], "category"),
    ],
)
def test_evidence_settles_the_notation(entries, word):
    assert column(*entries).notation.word == word


def test_free_text_is_not_a_category():
    said = [f"this is the review number {i} of a thing" for i in range(40)]
    assert column(*said).notation.kind == "text"
    assert column(*said[:3] * 20).notation.kind == "category"  # the same few sentences
    assert column(*(f"name{i} surname" for i in range(40))).notation.kind == "category"
    assert column(*said, word="category").notation.kind == "category"


def test_a_doubt_names_the_column_and_other_remedies(tmp_path):
    path = files.written(tmp_path / "a.csv", "day,x\n01/02/2020,1\n03/04/2020,2\n")
    assert refused(path) == (
        "a.csv: column 'day' has entries such as '01/02/2020' that can be read in two ways; say "
        "--as 'day=time:%d/%m/%Y', --as 'day=time:%m/%d/%Y', --as day=category or --drop day."
    )
    (piece,) = files.read_all(path, types={"day": "time:%m/%d/%Y"})
    assert piece.table["day"].to_pylist() == [DAY(2020, 1, 2), DAY(2020, 3, 4)]
    (piece,) = files.read_all(path, on_invalid=lambda name: "keep")
    assert piece.table["day"].to_pylist() == ["01/02/2020", "03/04/2020"]


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet", "npz"])
def test_rows_beyond_the_sample_follow_the_same_rule(name, tmp_path):
    price = [f"${v:,.2f}" for v in range(900, 1300)] + [" ? ", "N/a", "$7", "cheap"]
    path = written(tmp_path, {"price": price, "plain": [*range(402), "unknown", 403]}, name)
    message = refused(path, sample_rows=300)
    assert message.startswith(
        f"a.{name}, row 404: column 'price' is read as a number ($1,234.5), but the entry is 'cheap'"
    )
    source = open_data(path, sample_rows=300, on_invalid=lambda name: "missing")
    rows = pa.concat_tables(piece.table for piece in source.pieces(1000))
    assert rows["price"].to_pylist()[-5:] == [1299, None, None, 7, None]
    assert rows["plain"].to_pylist()[-2:] == [None, 403]
    assert source.notes() == [
        "column 'price': entries that are not a number count as missing, 1 of those read: 'cheap'"
    ]


def test_too_few_numbers_to_count_the_others_as_missing(tmp_path):
    path = files.written(tmp_path / "a.csv", "x\n1\ntall\n")
    message = refused(path, types={"x": "number"}, on_invalid=lambda name: "missing")
    assert message.startswith(
        "a.csv, row 2: column 'x' is read as a number, but the entry is 'tall'"
    )
    assert message.endswith("only 50% of its first entries fit.")


def test_simple_types_may_be_mixed_in_json(tmp_path):
    rows = [{"a": 1, "b": 1}, {"a": "?", "b": "x"}, {"a": 2.5, "b": True}, {"a": None, "b": None}]
    path = files.written(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    (piece,) = files.read_all(path)
    assert piece.table.to_pydict() == {
        "a": [1.0, None, 2.5, None],
        "b": ["1", "x", "true", None],
    }
    source = open_data(path, sample_rows=1, types={"b": "category"})  # the mixture comes later
    assert pa.concat_tables(p.table for p in source.pieces(9))["a"].to_pylist() == [
        1,
        None,
        2.5,
        None,
    ]


def test_a_wide_table_of_numbers_is_told_apart_quickly(tmp_path):
    """Only columns that are not plain numbers are parsed as text."""
    path = written(tmp_path, {"x": ["1", "?"], "p": ["1%", "2%"], "t": ["2020-01-02", "?"]}, "csv")
    source = open_data(path)
    assert source._layout.parse_types() == {
        "x": pa.float64(),
        "p": pa.string(),
        "t": pa.timestamp("us"),
    }


def test_bad_words_are_refused(tmp_path):
    path = files.written(tmp_path / "a.csv", "x\n1\n")
    for word, message in {
        "integer": "a column is called one of number, category, time, text",
        "number:1,234": "number:1,234 does not say how numbers are written",
        "number:abc": "number:abc does not say how numbers are written",
        "time:%d/%m": "it needs a year",
        "time:%d/%d/%Y": "each part once",
        "time:%j %Y": "it needs a year",
    }.items():
        with pytest.raises(ValueError, match=message) as caught:
            open_data(path, types={"x": word})
        assert not isinstance(caught.value, BadData) or word in str(caught.value)


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet"])
def test_labels_beyond_the_sample_are_not_read_as_numbers(name, tmp_path):
    zips = [*map(str, range(10_000, 10_300)), "01234"]
    path = written(tmp_path, {"x": [0.5] * 301, "zip": zips}, name)
    assert refused(path, sample_rows=200) == (
        f"a.{name}, row 301: column 'zip' is read as a number, but '01234' begins with a zero as labels "
        "do; say --as zip=category or --as zip=number."
    )
    source = open_data(path, sample_rows=200, types={"zip": "number"})
    assert pa.concat_tables(p.table for p in source.pieces(999))["zip"][-1].as_py() == 1234


def test_leading_zeros_are_found_wherever_a_field_begins():
    for text in ("01,2\n", "1,02\n", "11,02\n", '1,"02"\n', "1\n02\n", "12\n02\n"):
        assert has_leading_zeros(text.encode(), ",")
    for text in ("0,2\n", "0.5,10\n", "100,1\n", "0\n", "", "0"):
        assert not has_leading_zeros(text.encode(), ",")
