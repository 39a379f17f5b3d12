"""Parts of a figure: kept as they are made, made by several processes, each by itself."""

import math
import os

import pytest

from papers import parts

ARGUMENTS = [(float(n),) for n in range(4)]
ROOTS = [math.sqrt(n) for (n,) in ARGUMENTS]


def root(n: float) -> float:
    """A part that cannot be made of negative numbers."""
    return math.sqrt(n)


def whose(n: float) -> int:
    return os.getpid()


def test_without_a_workshop_each_is_a_loop():
    assert parts.each(root, ARGUMENTS) == ROOTS
    assert parts.made_elsewhere() == []


def test_what_was_made_is_not_made_again(tmp_path, monkeypatch):
    with parts.keeping(tmp_path):
        with pytest.raises(ValueError):
            parts.each(root, [*ARGUMENTS, (-1.0,)])  # stopped at the last
        assert parts.made_elsewhere() == []
    monkeypatch.setattr(math, "sqrt", lambda n: pytest.fail("made twice"))
    with parts.keeping(tmp_path):
        assert parts.each(root, ARGUMENTS) == ROOTS
        kept = parts.made_elsewhere()
    assert [part.value for part in kept] == ROOTS
    assert all(part.seconds >= 0 and "cores" in part.machine for part in kept)


def test_other_arguments_and_functions_are_other_parts(tmp_path):
    with parts.keeping(tmp_path):
        parts.each(root, ARGUMENTS)
        assert parts.each(whose, ARGUMENTS) == [os.getpid()] * 4
        assert parts.each(root, [(9.0,)]) == [3.0]


@pytest.mark.slow(reason="starts two processes, which import everything")
def test_several_processes(tmp_path):
    with parts.keeping(tmp_path, processes=2):
        found = parts.each(whose, ARGUMENTS)
        assert os.getpid() not in found and len(parts.made_elsewhere()) == 4
    with parts.keeping(tmp_path):
        assert parts.each(whose, ARGUMENTS) == found
