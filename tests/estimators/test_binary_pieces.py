"""BinaryFactorization from random pieces of the matrix."""

import numpy as np
import pytest
from scipy import sparse

import kalvi


@pytest.fixture(scope="module")
def matrix():
    rng = np.random.default_rng(0)
    u = 2 * np.sin(np.arange(60)[:, None] / [6.0, 11.0])
    v = np.cos(np.arange(40)[:, None] / [5.0, 9.0])
    x = (rng.random((60, 40)) < 1 / (1 + np.exp(-2 * u @ v.T))).astype(float)
    return x, rng.random(x.shape) < 0.2


@pytest.mark.slow(reason="compiles fits by sweeps and by pieces")
def test_pieces_predict_about_as_well_as_sweeps(matrix):
    x, hidden = matrix
    seen = np.where(hidden, np.nan, x)
    whole = kalvi.BinaryFactorization(2, random_state=0).fit(seen)
    pieces = kalvi.BinaryFactorization(2, batch_size=(20, 15), random_state=0).fit(seen)
    share = x[~hidden].mean()
    guess = np.mean(np.where(x[hidden] == 1, np.log(share), np.log(1 - share)))
    best, found = (model.score(x, mask=hidden) for model in (whole, pieces))
    assert best - found < 0.1 * (best - guess)
    assert pieces.elbo_ < whole.elbo_ + 1e-6
    assert len(pieces.elbo_history_) == pieces.n_sweeps_ + 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"batch_size": 0},
            "batch_size must be None or a positive integer or a pair of them; got 0",
        ),
        ({"batch_size": (2, 3, 4)}, "a positive integer or a pair of them; got"),
        ({"n_factors": "auto", "batch_size": 5}, "with batch_size give n_factors a number"),
    ],
)
def test_refusals(matrix, given, message):
    with pytest.raises(ValueError, match=message):
        kalvi.BinaryFactorization(**({"n_factors": 2} | given)).fit(matrix[0])


def test_a_list_of_entries_has_no_pieces():
    x = sparse.coo_matrix(([1.0, 0.0, 1.0], ([0, 5, 9], [1, 7, 3])), shape=(30, 40))
    with pytest.raises(ValueError, match="Leave batch_size at None"):
        kalvi.BinaryFactorization(1, unstored="missing", batch_size=5).fit(x)


def test_a_piece_has_room_for_the_factors(matrix):
    with pytest.raises(ValueError, match="batch_size must be at least n_factors=5"):
        kalvi.BinaryFactorization(5, batch_size=(9, 3)).fit(matrix[0])
