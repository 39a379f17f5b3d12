import os
import threading

import pytest

from kalvi.system.bounded_folder import CHECKSUM_BYTES, BoundedFolder

ROOM_FOR_THREE = 3 * (1000 + CHECKSUM_BYTES)


@pytest.fixture
def folder(tmp_path) -> BoundedFolder:
    return BoundedFolder(tmp_path / "made" / "late", ROOM_FOR_THREE)


def letters(folder, *names: str) -> str:
    """The names of those that are there."""
    return "".join(name for name in names if folder.read(name) is not None)


def write(folder, name: str, age: float) -> None:
    folder.write(name, name.encode() * 1000)
    then = os.stat(folder.path / name).st_mtime - age
    os.utime(folder.path / name, (then, then))


def test_what_was_written_is_read(folder):
    assert folder.read("a") is None
    folder.write("a", b"first")
    folder.write("a", b"second")
    assert folder.read("a") == b"second"
    assert [file.name for file in folder.path.iterdir()] == ["a"]
    assert folder.path.stat().st_mode & 0o077 == 0


def test_files_unused_for_longest_go_first(folder):
    for name, age in ("a", 300), ("b", 200), ("c", 100):
        write(folder, name, age)
    assert folder.read("a") is not None
    folder.write("d", b"d" * 1000)
    assert letters(folder, "a", "b", "c", "d") == "acd"


def test_what_is_larger_than_the_folder_is_not_written(folder):
    folder.write("a", b"a")
    folder.write("b", bytes(ROOM_FOR_THREE))
    assert letters(folder, "a", "b") == "a"


@pytest.mark.parametrize("damaged", [b"", b"short", bytes(1016)])
def test_a_damaged_file_is_not_there_and_is_replaced(folder, damaged):
    folder.write("a", b"a" * 1000)
    (folder.path / "a").write_bytes(damaged)
    assert folder.read("a") is None
    folder.write("a", b"a" * 1000)
    assert folder.read("a") == b"a" * 1000


def test_a_failed_write_leaves_nothing_behind(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        folder.write("a", b"a")
    assert list(folder.path.iterdir()) == []


def test_many_writers_and_readers_at_once(folder):
    problems = []

    def work(start: int) -> None:
        for i in range(60):
            name = "abcdef"[(start + i) % 6]
            folder.write(name, name.encode() * 1000)
            if folder.read(name) not in (None, name.encode() * 1000):
                problems.append(name)

    def attempt(start: int) -> None:
        try:
            work(start)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=attempt, args=[start]) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert sum(file.stat().st_size for file in folder.path.iterdir()) <= ROOM_FOR_THREE
