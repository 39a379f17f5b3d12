"""Free text as words: against scikit-learn's counts, with places that grow, hashed, and in predictions."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

from kalvi.columns.encoder import Encoder, EncoderSettings
from kalvi.columns.keys import Words
from kalvi.readers.column_types import NAMED

TEXTS = ["Good, good value", "bad value: too BAD", "naïve 2 cents", "", None, "good"]


def table(texts):
    return pa.table({"review": pa.array(texts, pa.string())})


def begun(texts, **settings):
    return Encoder.begin({"review": "text"}, table(texts), EncoderSettings(impute=True, **settings))


def dense(x):
    return x if isinstance(x, np.ndarray) else x.toarray()


def test_a_text_is_its_words_in_a_row_of_length_one():
    encoder = begun(TEXTS)
    x = dense(encoder.encode(table(TEXTS), str, learn=True).x)
    names = encoder.names()
    counted = CountVectorizer(binary=True, token_pattern=r"[^\W_]+")
    expected = normalize(counted.fit_transform([text or "" for text in TEXTS])).toarray()
    columns = [names.index(f"review: {word}") for word in counted.get_feature_names_out()]
    np.testing.assert_allclose(x[:, columns], expected)
    missing = x[:, names.index("review: (missing)")]
    np.testing.assert_array_equal(missing, [0, 0, 0, 0, 1, 0])
    assert x.sum() == pytest.approx(expected.sum() + 1)


def test_new_words_get_places_or_share_one():
    encoder = begun(TEXTS[:2])
    rows = table(["good grief Charlie", "value"])
    grown = encoder.encode(rows, str, learn=True)
    assert {"review: grief", "review: charlie"} <= set(grown.encoder.names())
    x, after, unseen = encoder.encode(rows, str, learn=False)
    x, new = dense(x), encoder.names().index("review=(new level)")
    assert after is encoder
    assert unseen == {"review": {"(new words)": 1}}
    np.testing.assert_allclose(x[:, new], [np.sqrt(2 / 3), 0])
    np.testing.assert_allclose((x**2).sum(axis=1), 1)


def test_hashed_words_have_the_same_lengths():
    encoder = begun(TEXTS, hash_bits=12)
    x = dense(encoder.encode(table(TEXTS), str, learn=True).x)
    assert x.shape[1] == 2**12
    np.testing.assert_allclose((x**2).sum(axis=1), [1, 1, 1, 0, 1, 1])
    assert encoder.describe()[0]["kind"] == "text"


def test_shards_are_joined_by_words():
    one, two = begun(TEXTS[:2]), begun(TEXTS[1:3])
    both = one.encode(table(TEXTS[:2]), str, learn=True).encoder.merged_with(
        two.encode(table(TEXTS[1:3]), str, learn=True).encoder
    )
    (group,) = both.groups
    counts = dict(zip(group.slots.keys, group.slots.counts.tolist(), strict=True))
    assert (counts["bad"], counts["good"], counts["cents"]) == (2, 1, 1)
    names = both.names()
    for encoder in (one, two):
        for name, place in zip(encoder.names(), encoder.slots_in(both), strict=True):
            assert names[place] == name or name == "(free)"


def test_no_text_at_all():
    found = Words().read(pa.chunked_array([pa.array([], pa.string())]))
    assert (len(found.rows), found.keys, found.n) == (0, [], 0)
    assert Words().read(pa.chunked_array([["!!", "--"]])).keys == []


def named(*rows):
    entries = [[{"name": name, "value": value} for name, value in row.items()] for row in rows]
    return pa.table({"x": pa.array(entries, NAMED)})


def test_named_numbers_have_slots_and_new_names_the_doubt_of_the_prior():
    rows = named({"a": 2.0, "b": -1.0}, {}, {"b": 0.5})
    encoder = Encoder.begin({"x": "named"}, rows, EncoderSettings())
    x = dense(encoder.encode(rows, str, learn=True).x)
    a, b, new = (encoder.names().index(name) for name in ("x: a", "x: b", "x=(new level)"))
    np.testing.assert_array_equal(x[:, [a, b]], [[2, -1], [0, 0], [0, 0.5]])
    found = encoder.encode(named({"a": 1.0, "c": 3.0, "d": 4.0}), str, learn=False)
    assert dense(found.x)[0, [a, b, new]].tolist() == [1, 0, 5]
    assert found.new_keys == {"x": {"(new features)": 2}}
    assert encoder.describe()[0]["features"] == 2
