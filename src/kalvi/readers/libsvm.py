"""The sparse text format of libsvm and svmlight: a label, then index:value pairs with increasing indices.

The columns are y, the label, and x, a sparse row with the indices of the file. pyarrow reads a block of
lines as a column of indices and one of values, in which labels have the index `LABEL`.
"""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow import csv as pacsv

from kalvi.readers.column_types import NUMBER, SPARSE
from kalvi.readers.errors import FAILURES, BadData, first_failure, name_row, shorten, succeeds
from kalvi.readers.inference import infer_layout
from kalvi.readers.inputs import Input
from kalvi.readers.layout import ColumnLayout, ReadOptions
from kalvi.readers.reader import LineReader
from kalvi.readers.text_blocks import in_arrows_memory, lines

LABEL = np.iinfo(np.int64).min
COMMENT = re.compile(rb"#[^\n]*")
FIRST = re.compile(rb"(?m)^[ \t\r]*([^\s:]+)(?!\S)")
PAIR = re.compile(rb"([^:]*):(.*)", re.S)


class Libsvm(LineReader):
    """Reads lines of a label and index:value pairs; a # begins a comment."""

    def infer(self, inputs: Sequence[Input], options: ReadOptions) -> ColumnLayout:
        columns = [
            (name, kind)
            for name, kind in (("y", NUMBER), ("x", SPARSE))
            if name not in options.drop
        ]
        return infer_layout(pa.schema(columns), {}, options, inputs[0].name)

    def parse(self, block: bytes, layout: ColumnLayout, name: str, start: int) -> pa.Table:
        clean = COMMENT.sub(b"", block) if b"#" in block else block
        return _parse_located(clean, name, start)


def _parse(block: bytes) -> pa.Table:
    """The table of some lines; raises an exception if one is malformed."""
    marked, count = FIRST.subn(str(LABEL).encode() + rb":\1", block)
    if not count:
        if block.strip():
            raise ValueError("no label")
        return pa.table({"y": pa.array([], NUMBER), "x": pa.array([], SPARSE)})
    text = b"\n".join(marked.split())
    pairs = pacsv.read_csv(
        in_arrows_memory(text),
        pacsv.ReadOptions(column_names=["index", "value"], block_size=len(text) + 1),
        pacsv.ParseOptions(delimiter=":", quote_char=False),
        pacsv.ConvertOptions(
            column_types={"index": pa.int64(), "value": NUMBER}, null_values=["nan", "NaN", "NA"]
        ),
    )
    index, value = (pairs.column(i).combine_chunks() for i in (0, 1))
    return _rows(index, value, count, len(lines(block)))


def _rows(index: pa.Array, value: pa.Array, count: int, n_lines: int) -> pa.Table:
    """Cut the pairs into rows at the labels."""
    numbers = index.to_numpy(zero_copy_only=False)
    labels = np.flatnonzero(numbers == LABEL)
    features = numbers[numbers != LABEL]
    n_labels = np.arange(1, count + 1)  # labels are not among the features
    ends = np.append(labels, len(numbers))[1:] - n_labels
    inner = np.ones(max(len(features) - 1, 0), bool)
    inner[ends[(ends > 0) & (ends < len(features))] - 1] = False
    if count != n_lines or len(labels) != count or index.null_count or (features < 0).any():
        raise ValueError("a line without a label, or a negative index")
    if (np.diff(features)[inner] <= 0).any():
        raise ValueError("indices that do not increase")
    pair = pa.StructArray.from_arrays(
        [pa.array(features), value.filter(pa.array(numbers != LABEL))],
        fields=list(SPARSE.value_type),
    )
    if pair.field(1).null_count:
        raise ValueError("a missing value")
    offsets = pa.array(np.append(0, ends), pa.int32())
    return pa.table(
        {
            "y": value.take(pa.array(labels)),
            "x": pa.ListArray.from_arrays(offsets, pair, type=SPARSE),
        }
    )


def _parse_located(block: bytes, name: str, start: int) -> pa.Table:
    try:
        return _parse(block)
    except FAILURES as error:
        every = lines(block)
        bad = first_failure(len(every), lambda n: _parse(b"\n".join(every[:n])))
        raise BadData(f"{name_row(name, start + bad + 1)}: {_fault(every[bad])}.") from error


def _fault(line: bytes) -> str:
    """The error in a line, in words."""
    label, *pairs = line.split()
    if b":" in label or not succeeds(_parse, label):
        return f"begins with {shorten(label)} where a number, the label, is needed"
    before = -1
    for pair in pairs:
        found = PAIR.fullmatch(pair)
        if found is None or not succeeds(_parse, b"0 0:" + found[2]):
            return f"has {shorten(pair)} where index:value is needed"
        if not found[1].isdigit() or int(found[1][:20]) >= 2**63:
            return (
                f"has the index {shorten(found[1])}, which is not a whole number from 0 to 2⁶³ − 1"
            )
        if int(found[1]) <= before:
            return f"has index {int(found[1]):,} after {before:,}; indices must increase"
        before = int(found[1])
    return f"cannot be read ({shorten(line)})"
