import io

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from kalvi.readers.files import BadData
from kalvi.readers.matrix import read_matrix
from tests.readers import files


def entries(n=30, m=7, seed=0, missing=0.2):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2, (n, m)).astype(np.int8)
    values[rng.random((n, m)) < missing] = -1
    return values


def wide(values, names=None):
    columns = {
        f"c{j}": [None if v < 0 else float(v) for v in col] for j, col in enumerate(values.T)
    }
    return pa.table(({} if names is None else {"name": names}) | columns)


def refused(path, **options):
    with pytest.raises(BadData) as caught:
        read_matrix(path, **options)
    return str(caught.value)


@pytest.mark.parametrize("name", ["csv", "tsv", "parquet", "jsonl"])
@pytest.mark.parametrize("named", ["none", "text", "dates", "numbers"])
def test_wide_matrices_with_and_without_names(name, named, tmp_path):
    values = entries()
    days = np.datetime64("2020-01-01", "us") + np.arange(30) * np.timedelta64(1, "D")
    names = {
        "none": None,
        "text": [f"r{i}" for i in range(30)],
        "dates": pa.array(days),
        "numbers": pa.array(np.arange(30.0)),
    }[named]
    path = files.written(tmp_path / f"a.{name}", files.WRITERS[name](wide(values, names)))
    found = read_matrix(path)
    np.testing.assert_array_equal(found.entries, values)
    assert found.entries.dtype == np.int8
    assert found.col_names.tolist() == [f"c{j}" for j in range(7)]
    if named == "none":
        assert found.row_names is None
    else:
        expected = {"text": names, "dates": days, "numbers": np.arange(30.0)}[named]
        np.testing.assert_array_equal(found.row_names, expected)


def test_flags_and_many_rows(tmp_path):
    text = "a,b\n" + "true,0\nfalse,\n" * 9000
    found = read_matrix(files.written(tmp_path / "a.csv", text))
    np.testing.assert_array_equal(found.entries, [[1, 0], [0, -1]] * 9000)


@pytest.mark.parametrize("seed", [0, 1])
def test_long_lists(seed, tmp_path):
    values = entries(missing=0.5, seed=seed)
    values[:, 0] = 1  # so that every row has an entry in either list
    days = [f"2020-01-{i + 1:02d}" for i in range(30)]
    rng = np.random.default_rng(seed)
    listed = rng.permutation(np.argwhere(values >= 0))
    text = "day,item,seen\n" + "".join(f"{days[i]},i{j},{values[i, j]}\n" for i, j in listed)
    path = files.written(tmp_path / "a.csv", text)
    found = read_matrix(path, layout="long")
    order = list(dict.fromkeys(f"i{j}" for _, j in listed))
    assert found.col_names.tolist() == order
    np.testing.assert_array_equal(found.row_names, np.array(days, "datetime64[us]"))
    np.testing.assert_array_equal(found.entries, values[:, [int(item[1:]) for item in order]])
    ones = "day,item,seen\n" + "".join(f"{i},{j},1\n" for i, j in np.argwhere(values == 1))
    path.write_text(ones)
    np.testing.assert_array_equal(read_matrix(path, layout="long").entries, values == 1)
    hidden = read_matrix(path, layout="long", unstored="missing").entries
    np.testing.assert_array_equal(hidden, np.where(values == 1, 1, -1))


def test_archives_dense_and_sparse(tmp_path):
    values = entries()
    path = tmp_path / "a.npz"
    np.savez(path, x=np.where(values < 0, np.nan, values))
    found = read_matrix(path)
    np.testing.assert_array_equal(found.entries, values)
    assert (found.row_names, found.col_names) == (None, None)
    values[:, -1] = 0  # a last column that stores no ones
    sp.save_npz(path, sp.csr_array((values == 1).astype(float)))
    np.testing.assert_array_equal(read_matrix(path).entries, values == 1)
    row, col = np.nonzero(values >= 0)
    stored = sp.csr_array((values[row, col].astype(float), (row, col)), shape=values.shape)
    sp.save_npz(path, stored)
    np.testing.assert_array_equal(read_matrix(path, unstored="missing").entries, values)
    assert "stores zeros as well as ones; say whether" in refused(path)


LONG = {"layout": "long"}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "a,b\n0,1\n1,2\n",
            {},
            "a.csv, row 2: column 'b' is '2'; an entry of the matrix is 0, 1 or missing.",
        ),
        (
            "a,b\n0,1\n2,1\n0,0\n",
            {},
            "a.csv, row 2: column 'a' is '2'; an entry of the matrix is 0, 1",
        ),
        (
            "a,b,c\nx,1,\ny,0,no\n",
            {},
            "a.csv, row 2: column 'c' is 'no'; an entry of the matrix is 0, 1",
        ),
        ("a,b\nx,1\n,0\n", {}, "a.csv, row 2: has no name in column 'a'."),
        ("a\nx\n", {}, "a.csv: has names of rows but no entries."),
        ("a,b\nx,1\n", LONG, "a.csv: a long list has a row, a column and a value; got 2 columns."),
        (
            "a,b,c\nx,1,1\nx,2,3\n",
            LONG,
            "a.csv, row 2: column 'c' is '3'; an entry of the matrix is",
        ),
        (
            "a,b,c\nx,1,1\nx,2,0\nx,1,1\n",
            LONG,
            "a.csv, row 3: gives an entry that was given before.",
        ),
        ("a,b,c\nx,1,1\n,2,0\n", LONG, "a.csv, row 2: has no name in column 'a'."),
    ],
)
def test_what_is_no_binary_matrix_is_refused_with_its_place(text, options, message, tmp_path):
    assert refused(files.written(tmp_path / "a.csv", text), **options).startswith(message)


def test_sizes_and_options_are_checked(tmp_path):
    out = io.BytesIO()
    np.savez(out, x=np.array([[0.0, 3.0]]))
    assert refused(files.written(tmp_path / "a.npz", out.getvalue())).startswith(
        "a.npz, row 1: column 'x'"
    )
    text = "1 5:1 9000000000:1\n" * 2
    assert "2 × 9,000,000,001 entries; at most" in refused(files.written(tmp_path / "a.svm", text))
    with pytest.raises(ValueError, match="layout is 'wide' or 'long'"):
        read_matrix(tmp_path / "a.svm", layout="tall")
