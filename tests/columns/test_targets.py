"""The target column: labels in order, counts, what is refused."""

import numpy as np
import pyarrow as pa
import pytest

from kalvi.columns.targets import Classes, Counts, Numbers, distinct
from kalvi.readers.files import BadData


def place(row):
    return f"rows.csv, row {row + 1}"


def table(*values):
    return pa.table({"y": pa.array(values)})


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (["b", "a", None, "b"], ["a", "b"]),
        ([1.0, 10.0, 2.0], ["1", "2", "10"]),
        ([0.5, -1.0, float("nan")], ["-1", "0.5"]),
        ([True, False], ["false", "true"]),
    ],
)
def test_labels_are_in_their_order(values, labels):
    assert distinct(pa.chunked_array([pa.array(values)])) == labels


def test_classes_are_numbered():
    y, there = Classes("y", ("no", "yes")).read(table("yes", "no", None), place, skip=True)
    np.testing.assert_array_equal(y, [1, 0, 0])
    np.testing.assert_array_equal(there, [True, True, False])


def test_classes_of_numbers():
    y, _ = Classes("y", ("0", "1")).read(table(1.0, 0.0, 1.0), place, skip=False)
    np.testing.assert_array_equal(y, [1, 0, 1])


@pytest.mark.parametrize(
    ("target", "values", "message"),
    [
        (
            Classes("y", ("a", "b")),
            ["a", "c"],
            "row 2: the target 'y' is 'c'; the classes are a, b.",
        ),
        (
            Classes("y", ("a", "b")),
            ["a", None],
            "row 2: the target 'y' is missing; .*--skip-unlabelled",
        ),
        (Numbers("y"), [1.0, float("inf")], "row 2: the target 'y' is 'inf'; it must be a finite"),
        (Numbers("y"), [float("nan"), 1.0], "row 1: the target 'y' is missing"),
        (Counts("y"), [3.0, -1.0], "row 2: the target 'y' is '-1'; it must be a count"),
        (Counts("y"), [3.0, 0.5], "row 2: the target 'y' is '0.5'; it must be a count"),
    ],
)
def test_what_a_target_cannot_be(target, values, message):
    with pytest.raises(BadData, match=message):
        target.read(table(*values), place, skip=False)
