"""Words for notations, and the values that entries stand for in them."""

import datetime

import pyarrow as pa
import pytest

from kalvi.readers.notation import Notation, parse


def values(word, *entries):
    parsed = parse(pa.chunked_array([list(entries)]), Notation.of(word))
    return parsed.values.to_pylist(), parsed.invalid.to_pylist()


@pytest.mark.parametrize(
    ("word", "canonical"),
    [
        ("number", "number"),
        ("number:5", "number"),
        ("number:$1,234.50", "number:$1,234.5"),
        ("number:1.234.567", "number:1.234,5"),
        ("number:3,14", "number:1.234,5"),
        ("number:1 234,5", "number:1 234,5"),
        ("number:1'234.5", "number:1'234.5"),
        ("number:5 %", "number:86%"),
        ("number:5,5%", "number:1.234,5%"),
        ("number:EUR 5", "number:EUR1234.5"),
        ("time:%d/%m/%Y", "time:%d/%m/%Y"),
        ("text", "text"),
    ],
)
def test_words_say_the_same_when_they_are_read_again(word, canonical):
    notation = Notation.of(word)
    assert notation.word == canonical
    assert Notation.of(canonical) == notation


def test_entries_that_are_not_so_written_are_invalid():
    found, invalid = values("number:1,234.5", "1,234.5", "1234", "12,34", "?", "x", "1,2345", None)
    assert found == [1234.5, 1234, None, None, None, None, None]
    assert invalid == [False, False, True, False, True, True, False]
    assert values("number:86%", "86%", "86")[1] == [False, True]
    assert values("number:$5", "$5", "5", "5 $", "€5")[1] == [False, False, False, True]


def test_days_that_do_not_exist_are_invalid():
    found, invalid = values("time:%d.%m.%Y", "31.04.2020", "29.02.2020", "29.02.2019", "1.1.2020")
    day = datetime.datetime
    assert found == [None, day(2020, 2, 29), None, day(2020, 1, 1)]
    assert invalid == [True, False, True, False]
    assert values("time", "2020-02-30", "0000-01-01", "2020-02-28")[1] == [True, True, False]


def test_forms_of_times():
    day = datetime.datetime
    assert values("time:%Y%m%d", "20200102")[0] == [day(2020, 1, 2)]
    assert values("time:%d %b %y, %I.%M %p", "3 Sep 69, 12.05 AM", "3 Sept 68, 12.05 pm")[0] == [
        day(1969, 9, 3, 0, 5),
        day(2068, 9, 3, 12, 5),
    ]
    assert values("time:%m/%Y", "2/2020")[0] == [day(2020, 2, 1)]
    assert values("time:%m/%d/%Y", "1/2/2020 3:04:05.123456789 PM")[0] == [
        day(2020, 1, 2, 15, 4, 5, 123456)
    ]
