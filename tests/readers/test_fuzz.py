"""Whatever bytes a file holds, reading it ends, in success or in BadData that names the file."""

import faulthandler
import random
import signal

import pytest

from kalvi.readers.files import BadData
from kalvi.readers.source import open_data
from tests.readers import files

FORMATS = {
    name: lambda write=write: write(files.table(30)) for name, write in files.WRITERS.items()
}
FORMATS |= {
    "csv.gz": lambda: files.pack(files.csv_bytes(files.table(30)), ".gz"),
    "csv.zst": lambda: files.pack(files.csv_bytes(files.table(30)), ".zst"),
    "jsonl.bz2": lambda: files.pack(files.json_bytes(files.table(30)), ".bz2"),
    "rich.parquet": lambda: files.parquet_bytes(files.rich_table(30)),
    "rich.feather": lambda: files.feather_bytes(files.rich_table(30)),
    "vw": lambda: files.VOWPAL,
    "libsvm": lambda: files.libsvm_bytes(30),
    "npz": lambda: files.npz_bytes(30),
    "sparse.npz": lambda: files.sparse_npz_bytes(30),
}
TOKENS = [
    b"\0",
    b'"',
    b"\n",
    b"\r",
    b",",
    b"\t",
    b"{",
    b"}",
    b"[",
    b"null",
    b"NaN",
    b"1e999",
    b"\xff",
]
TOKENS += [
    b"\xff\xfe",
    b":",
    b"-1:",
    b"9" * 30,
    b"#",
    b"PAR1",
    b"\xed\xa0\x80",
    b"\\u0000",
    b"\xff" * 8,
]
SECONDS = 10


def mutate(data: bytes, draw: random.Random) -> bytes:
    """A few changes of a few bytes, or of many."""
    text = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 5])):
        at, end = sorted(draw.randrange(len(text) + 1) for _ in range(2))
        short = slice(at, min(at + draw.choice([1, 1, 4, 16]), end))
        change = draw.randrange(8)
        if change == 0 and text:
            text[min(at, len(text) - 1)] ^= 1 << draw.randrange(8)
        elif change == 1:
            del text[at:]
        elif change == 2:
            del text[short]
        elif change == 3:
            text[at:at] = draw.choice(TOKENS) * draw.choice([1, 1, 3, 1000])
        elif change == 4:
            text[short] = draw.randbytes(short.stop - short.start)
        elif change == 5:
            text[at:at] = text[at:end]
        elif change == 6:
            text[short] = bytes(short.stop - short.start)
        else:
            text[at:end] = bytes(reversed(text[at:end]))
    return bytes(text)


def overdue(*_):
    faulthandler.dump_traceback()
    raise RuntimeError(f"not read in {SECONDS} seconds")


def survive(name, cases, folder, seed):
    """How many mutants were refused, out of so many."""
    draw, whole, refused = random.Random(f"{name} {seed}"), FORMATS[name](), 0
    before = signal.signal(signal.SIGALRM, overdue)
    try:
        for case in range(cases):
            path = files.written(folder / f"a.{name}", mutate(whole, draw))
            signal.alarm(SECONDS)
            try:
                rows = sum(
                    len(p.table.to_pylist()) for p in open_data(path, sample_rows=10).pieces(7)
                )
                assert rows > 0
            except BadData as error:
                refused += 1
                assert str(error).startswith(f"a.{name}"), error
                assert "\n" not in str(error), error
            except BaseException as error:
                error.add_note(f"{name}, seed {seed}, case {case}")
                raise
            finally:
                signal.alarm(0)
    finally:
        signal.signal(signal.SIGALRM, before)
    return refused


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_is_read_or_refused(name, tmp_path):
    refused = survive(name, 40, tmp_path, 0)
    assert refused > 10


@pytest.mark.slow(reason="a thousand damaged files a case")
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_thousands_of_damaged_files_are_read_or_refused(name, seed, tmp_path):
    refused = survive(name, 1000, tmp_path, seed)
    assert refused > 250
