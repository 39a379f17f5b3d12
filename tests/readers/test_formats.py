"""The table of formats is complete, and the endings and first bytes in it are those of real files."""

import subprocess
import sys

import pytest

from kalvi.readers import formats
from kalvi.readers.files import stem_of, suffix_of
from kalvi.readers.recognition import READERS


def test_every_format_has_a_reader():
    assert list(READERS) == list(formats.FORMATS)


def test_no_ending_means_two_formats():
    every = [ending for format in formats.FORMATS.values() for ending in format.endings]
    assert len(every) == len(set(every)) == len(formats.ENDINGS)
    assert all(ending == ending.lower() and ending.startswith(".") for ending in every)
    assert not set(every) & set(formats.COMPRESSED_ENDINGS)


def test_formats_in_words():
    assert formats.list_formats() == (
        "CSV, TSV, JSON lines, libsvm, Vowpal Wabbit's text, Arrow streams (also .gz, .zst, .bz2), "
        "Feather, Parquet or NumPy's .npz"
    )


@pytest.mark.parametrize("ending", [*formats.ENDINGS, ".csv.gz", ".tsv.zst", ".json.bz2"])
def test_endings_are_taken_off_a_name(ending):
    assert stem_of(f"days/may{ending}") == "may"
    assert formats.ENDINGS[suffix_of(f"days/MAY{ending.upper()}")]


def test_the_table_is_there_without_pyarrow():
    code = "import sys; sys.modules['pyarrow'] = None; from kalvi.readers import files, formats"
    subprocess.run([sys.executable, "-c", code], check=True)
