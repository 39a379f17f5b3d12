"""Files of every format are read back as they were meant; what is missing is said plainly."""

import numpy as np
import pytest
import scipy.sparse as sp

from papers import datasets


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KALVI_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def unset(monkeypatch):
    monkeypatch.delenv("KALVI_DATA", raising=False)


def test_dense_arrays_are_float64_and_unpacked(folder):
    np.savez(folder / "packed.npz", X=np.array([[1, -2]], np.int16), X_scale=0.001, y=[3])
    stored = datasets.load("packed")
    assert stored["X"].dtype == np.float64
    np.testing.assert_array_equal(stored["X"], [[0.001, -0.002]])
    assert set(stored) == {"X", "y"}


def test_sparse_arrays_come_back_as_csr(folder):
    matrix = sp.random_array((7, 5), density=0.4, rng=0, format="csr")
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    np.savez(folder / "sparse.npz", format=b"csr", shape=matrix.shape, y=np.arange(7), **parts)
    stored = datasets.load("sparse")
    np.testing.assert_array_equal(stored["X"].toarray(), matrix.toarray())
    assert set(stored) == {"X", "y"}


def test_cover_types_get_their_indicators_back(folder):
    numbers = np.arange(20, dtype=np.int16).reshape(10, 2)
    np.savez(folder / "covtype.npz", num=numbers, wilderness=[3, 0], soil=[39, 1], y=[1, 7])
    x = datasets.load("covtype")["X"]
    np.testing.assert_array_equal(x[:, :10], numbers.T)
    assert sorted(map(tuple, np.argwhere(x[:, 10:]))) == [(0, 3), (0, 43), (1, 0), (1, 5)]


def test_a_missing_file_is_named_with_what_there_is(folder):
    np.savez(folder / "here.npz", X=np.zeros((1, 1)))
    with pytest.raises(FileNotFoundError, match=r"no data set 'there' in .* which holds here"):
        datasets.load("there")
    assert datasets.names() == ["here"]


def test_a_variable_that_names_no_directory_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("KALVI_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match="is not a directory"):
        datasets.load("sonar")


def test_without_the_variable_openml_is_asked(unset, monkeypatch):
    asked = {}

    def fetch(**how):
        asked.update(how)
        return np.array([[1.0, 2.0], [np.nan, 3.0]]), np.array(["Rock", "Mine"])

    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    stored = datasets.load("sonar")
    assert asked["data_id"] == 40
    np.testing.assert_array_equal(stored["X"], [[1.0, 2.0]])  # incomplete rows are dropped
    np.testing.assert_array_equal(stored["y"], [-1])
    assert "sonar" in datasets.names()


def test_a_set_openml_does_not_have_needs_the_variable(unset):
    with pytest.raises(ValueError, match="set KALVI_DATA to the directory that holds flights3m"):
        datasets.load("flights3m")
    with pytest.raises(FileNotFoundError, match="set KALVI_DATA"):
        datasets.figure_rows("fig3")


def test_stored_figure_rows(data):
    x, y = datasets.figure_rows("fig3_d2_N100_s2_c2_seed10")
    assert x.shape == (100, 2)
    assert set(y) == {0.0, 1.0}
    assert np.linalg.norm(x) == pytest.approx(14.105261, abs=1e-6)


@pytest.mark.parametrize("name, shape", [("housing", (506, 13)), ("a1a", (32561, 123))])
def test_stored_sets(data, name, shape):
    stored = datasets.load(name)
    assert stored["X"].shape == shape
    assert stored["y"].shape == shape[:1]


def test_binary_matrices_are_yes_no_or_missing(folder):
    votes = np.array([[1, 2, -1], [0, 1, 1]], np.int8)
    np.savez(folder / "un_votes.npz", Y=votes, row_loc=[1.0, 2.0], col_id=["A", "B", "C"])
    found = datasets.binary_matrix("un_votes")
    np.testing.assert_array_equal(found.entries, [[1, -1, -1], [0, 1, 1]])
    np.testing.assert_array_equal(found.row_locations, [1, 2])
    assert found.col_locations is None
    assert datasets.binary_matrix("un_votes", abstentions=0).entries[0, 1] == 0
    calls = sp.csr_matrix(np.array([[1.0, 0.0], [-1.0, 1.0]]))
    parts = {"data": calls.data, "indices": calls.indices, "indptr": calls.indptr}
    names = {"row_loc": [1.0, 2.0], "col_id": ["A", "B"]}
    np.savez(folder / "us_senate_votes.npz", format=b"csr", shape=calls.shape, **parts, **names)
    found = datasets.binary_matrix("us_senate_votes")
    np.testing.assert_array_equal(found.entries, [[1, -1], [0, 1]])
    spikes = {
        "S_E3": np.array([[0, 7, 0]], np.uint8),
        "sound_E3": [5],
        "col_loc": [0, 0.001, 0.002],
    }
    np.savez(folder / "auditory_spikes.npz", **spikes)
    found = datasets.binary_matrix("auditory_spikes", part="E3")
    np.testing.assert_array_equal(found.entries, [[0, 1, 0]])
    assert found.row_locations is None


def test_binary_matrices_that_are_not_there(folder, monkeypatch):
    with pytest.raises(ValueError, match="no binary matrix 'iris'; there are un_votes"):
        datasets.binary_matrix("iris")
    monkeypatch.delenv("KALVI_DATA")
    with pytest.raises(FileNotFoundError, match="set KALVI_DATA to the directory"):
        datasets.binary_matrix("un_votes")
