"""The slots of keys: of their own, in the order in which keys come, or by a hash."""

import numpy as np
import pytest

from kalvi.columns.slots import HashedSlots, OwnSlots, hash_text


@pytest.mark.parametrize("keys", [["b", "a", "c"], [7, 2**62, 0]])
def test_new_keys_get_slots_in_their_order(keys):
    slots = (
        OwnSlots.none(unknown=3).with_slots_for(keys[:2], 4).with_slots_for([keys[1], keys[2]], 9)
    )
    assert slots.by_key() == {keys[0]: 4, keys[1]: 5, keys[2]: 9, None: 3}
    np.testing.assert_array_equal(slots.find([keys[2], keys[0]], str), [9, 4])
    np.testing.assert_array_equal(slots.find([type(keys[0])(5)], str), [-1])
    assert slots.with_slots_for(keys, 20) is slots
    assert slots.count() == 3


def test_counts_of_another_are_added_by_key():
    one = OwnSlots(keys=("a", "b"), slots=np.arange(2), counts=np.array([1, 2]))
    two = OwnSlots(keys=("b",), slots=np.arange(1), counts=np.array([5]))
    np.testing.assert_array_equal(one.with_counts(*two.rows_by_key()).counts, [1, 7])
    np.testing.assert_allclose(one.with_counts(*two.rows_by_key()).shares()[1], [1 / 8, 7 / 8])
    np.testing.assert_array_equal(one.without_counts().counts, [0, 0])


def test_hashed_slots_are_those_of_the_labels():
    slots = HashedSlots(bits=4, start=10)
    found = slots.find(["x", "y"], lambda key: f"a={key}")
    np.testing.assert_array_equal(found, [10 + hash_text("a=x", 4), 10 + hash_text("a=y", 4)])
    assert slots.count() is None
    assert slots.labels(str)[10] == "(hash 0)"
    assert list(slots.by_key().values()) == list(range(10, 26))


def test_hashes_spread_and_stay_the_same():
    found = np.array([hash_text(f"level {i}", 6) for i in range(6400)])
    counts = np.bincount(found, minlength=64)
    assert counts.size == 64
    assert np.sum((counts - 100) ** 2 / 100) < 64 + 5 * np.sqrt(
        2 * 64
    )  # χ² of 63 degrees, 5 deviations
    assert hash_text("origin=ORD", 18) == 68149
