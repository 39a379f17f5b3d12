import io
import zipfile

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from kalvi.readers.source import open_data
from tests.readers import files
from tests.readers.test_inputs import refused


def saved(tmp_path, save=np.savez, **arrays):
    out = io.BytesIO()
    save(out, **arrays)
    return files.written(tmp_path / "a.npz", out.getvalue())


def test_arrays_are_columns(tmp_path):
    rng = np.random.default_rng(0)
    n = 30
    arrays = {
        "x": np.asfortranarray(rng.normal(size=(n, 4))),
        "c": rng.normal(size=(n, 2)).astype(np.float32),
        "y": rng.integers(0, 5, n).astype(">i2"),
        "flag": rng.random(n) < 0.5,
        "word": rng.choice(["a", "né"], n),
        "raw": rng.choice([b"a", b"bc"], n),
        "day": np.datetime64("2020-01-01") + np.arange(n),
        "gap": np.where(rng.random(n) < 0.5, np.nan, 1.0),
    }
    for save in (np.savez, np.savez_compressed):
        source = open_data(saved(tmp_path, save, **arrays), sample_rows=7)
        rows = pa.concat_tables(piece.table for piece in source.pieces(9, skip=2))
        assert source.n_rows == n
        for name in ("x", "c"):
            np.testing.assert_array_equal(np.array(rows.column(name).to_pylist()), arrays[name][2:])
        for name in ("y", "flag", "word", "day"):
            np.testing.assert_array_equal(rows.column(name).to_numpy(), arrays[name][2:])
        assert rows.column("raw").to_pylist() == [word.decode() for word in arrays["raw"][2:]]
        np.testing.assert_array_equal(
            rows.column("gap").is_null().to_numpy(), np.isnan(arrays["gap"][2:])
        )


def test_a_matrix_saved_by_scipy_is_a_sparse_column(tmp_path):
    path = tmp_path / "a.npz"
    sp.save_npz(path, files.sparse()[0])
    dense = np.zeros((40, 30))
    assert open_data(path).schema.field("x").metadata == {b"width": b"30"}
    for piece in files.read_all(path, 7):
        for i, row in enumerate(piece.table.column("x").to_pylist()):
            for pair in row:
                dense[piece.start + i, pair["index"]] = pair["value"]
    np.testing.assert_array_equal(dense, files.sparse()[0].toarray())


CSR = {
    "data": [1.0, 2.0],
    "indices": [0, 1],
    "indptr": [0, 1, 2],
    "shape": [2, 3],
    "format": b"csr",
}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"x": np.array([{}], object)},
            "a.npz, array 'x': cannot be read (it holds pickled objects",
        ),
        (
            {"x": np.ones(3), "y": np.ones(4)},
            "a.npz: array 'y' has 4 rows and 'x' 3; all must have the same number.",
        ),
        ({"x": np.ones(3), "z": 1.0}, "a.npz, array 'z': cannot be read (it has 0 axes"),
        ({"x": np.ones((2, 2, 2))}, "a.npz, array 'x': cannot be read (it has 3 axes"),
        (
            {"x": np.ones(3, complex)},
            "a.npz, array 'x': cannot be read (its type complex128 cannot be used",
        ),
        ({"x": np.ones((3, 0))}, "a.npz, array 'x': cannot be read (its entries have no size"),
        ({"x": np.ones(0)}, "a.npz: has no rows."),
        ({"x": np.array([b"\xe9"])}, "a.npz, after row 0: is damaged ('utf-8' codec can't decode"),
        (
            CSR | {"format": b"csc"},
            "a.npz: is not a whole sparse matrix (it is not in compressed rows",
        ),
        (CSR | {"indptr": [0, 2, 1]}, "a.npz: is not a whole sparse matrix (its row pointers"),
        (CSR | {"indptr": [0, 5, 2]}, "a.npz: is not a whole sparse matrix (its row pointers"),
        (
            CSR | {"indices": [0, 3]},
            "a.npz, after row 0: is damaged (an index outside the 3 columns",
        ),
        (CSR | {"x": [1, 2]}, "a.npz: is not a whole sparse matrix (beside an array x"),
    ],
)
def test_arrays_that_are_no_columns_are_refused(arrays, message, tmp_path):
    assert refused(saved(tmp_path, **arrays)).startswith(message)


def test_headers_that_lie_are_refused(tmp_path):
    head = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (%s,), }"
    for shape in (b"10", b"1000000000000000", b"-1"):
        path = tmp_path / "a.npz"
        with zipfile.ZipFile(path, "w") as archive:
            text = head % shape
            archive.writestr("x.npy", text + b" " * (127 - len(text)) + b"\n" + b"\0" * 16)
        assert "it ends too early, or its shape" in refused(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sheet.xml", "<a/>")
    assert refused(path) == "a.npz: holds no arrays; a spreadsheet must be saved as CSV."
