"""Encoders in files of older versions: their columns were of other classes, and encode what they encoded.

The files in `older` were written by the code of commit 38d52b3, before groups became keyed columns:

    kalvi.save(path, encoder(**SETTINGS[name]))
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kalvi
from kalvi.columns.encoder import Encoder, EncoderSettings

FOLDER = Path(__file__).parent / "older"
SPARSE = pa.list_(pa.struct([("index", pa.int64()), ("value", pa.float64())]))
SETTINGS = {"own": {"impute": True}, "hashed": {"impute": True, "hash_bits": 6}}
KINDS = {"n": "number", "town": "category", "review": "text", "x": "sparse"}


def rows(*, later=False):
    """Two tables: the second has levels, words and indices that the first lacks."""
    towns = ["Bonn", None, "Ulm", "Bonn"] if not later else ["Jena", "Ulm"]
    texts = ["good value", "bad", None, "good"] if not later else ["good grief", "new"]
    pairs = [[(9, 1.0)], [], [(2, -1.0), (40, 2.0)], [(9, 0.5)]]
    pairs = pairs if not later else [[(2, 1.0), (41, 3.0)], []]
    sparse = [[{"index": i, "value": v} for i, v in row] for row in pairs]
    return pa.table(
        {
            "n": np.arange(float(len(towns))),
            "town": pa.array(towns, pa.string()),
            "review": pa.array(texts, pa.string()),
            "x": pa.array(sparse, SPARSE),
        }
    )


def encoder(**settings):
    start = Encoder.begin(KINDS, rows(), EncoderSettings(**settings))
    return start.encode(rows(), str, learn=True).encoder


@pytest.mark.parametrize("name", SETTINGS)
def test_an_older_encoder_is_as_if_begun_today(name, tmp_path):
    kalvi.save(tmp_path / "again", kalvi.load(FOLDER / f"{name}.kalvi"))
    found, expected = kalvi.load(tmp_path / "again"), encoder(**SETTINGS[name])
    assert found.names() == expected.names()
    assert found.describe() == expected.describe()
    for learn in (False, True):
        one, two = (e.encode(rows(later=True), str, learn=learn) for e in (found, expected))
        np.testing.assert_array_equal(one.x, two.x)
        assert one.new_keys == two.new_keys
        assert one.encoder.names() == two.encoder.names()
    for one, two in zip(found.groups, expected.groups, strict=True):
        for a, b in zip(one.shares(), two.shares(), strict=True):
            np.testing.assert_array_equal(a, b)
