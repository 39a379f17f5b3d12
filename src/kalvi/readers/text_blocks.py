"""The text of a file in blocks of whole rows, which is checked to be UTF-8."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from kalvi.readers.errors import BadData, as_bad_data, name_row
from kalvi.readers.inputs import Input

BLOCK = 2**22
"""The number of bytes that are read and parsed at once."""
LONGEST_LINE = 2**24
"""The most bytes of a row."""
UTF16 = (b"\xff\xfe", b"\xfe\xff")
BOM = b"\xef\xbb\xbf"


class Blocks:
    """The text of a file in blocks of whole rows; `cut` finds the end of the last whole row in some bytes.

    The caller adds the number of rows of each block to `rows`, so that errors name the right row. `whole`
    becomes false at a last block that does not end with a line end.
    """

    def __init__(self, source: Input, cut: Callable[[bytes], int], *, last: bool):
        self._source, self._cut, self._last = source, cut, last
        self.rows, self.whole = 0, True

    def __iter__(self) -> Iterator[bytes]:
        source = self._source
        stream, carry, want, first = source.open(last=self._last), b"", BLOCK, True
        while chunk := _read(source, stream, want):
            if first and chunk.startswith(UTF16):
                raise BadData(f"{source.name}: is UTF-16 text; save it as UTF-8.")
            data = carry + chunk.removeprefix(BOM) if first else carry + chunk
            end, first = self._cut(data), False
            if end:
                yield data[:end]
                carry, want = data[end:], BLOCK
            else:  # read twice as much each time, so that `cut` sees the same bytes only a few times
                carry, want = data, min(max(len(data), BLOCK), LONGEST_LINE - len(data))
            if len(carry) >= LONGEST_LINE:
                where, limit = name_row(source.name, self.rows + 1), f"{LONGEST_LINE >> 20} MiB"
                raise BadData(f"{where}: is longer than {limit}; is a quote not closed?")
        source.check_unchanged()
        if carry:
            self.whole = False
            yield carry


def line_blocks(source: Input, *, last: bool) -> Iterator[bytes]:
    """The text in blocks of whole lines, which are checked."""
    blocks = Blocks(source, lambda data: data.rfind(b"\n") + 1, last=last)
    for block in blocks:

        def where(at: int, block: bytes = block) -> str:
            return name_row(source.name, blocks.rows + max(len(lines(block[:at])), 1))

        check_text(block, where)
        yield block
        blocks.rows += len(lines(block))


def lines(block: bytes) -> list[bytes]:
    """The lines of a block that are not blank."""
    return [line for line in block.split(b"\n") if line and not line.isspace()]


def _read(source: Input, stream: Any, size: int) -> bytes:
    """Read the next bytes; a compressed file that breaks off is refused."""
    what = f"is damaged or breaks off as {source.codec}" if source.codec else "cannot be read"
    with as_bad_data(source.name, what):
        return stream.read(size)


def in_arrows_memory(block: bytes) -> pa.BufferReader:
    """The block, copied into Arrow's memory. Arrow's threads may free it after Python has ended, which
    would abort the process if the memory were Python's."""
    buffer = pa.allocate_buffer(len(block))
    memoryview(buffer).cast("B")[:] = block
    return pa.BufferReader(buffer)


def check_text(block: bytes, where: Callable[[int], str]) -> None:
    """Refuse bytes that are not UTF-8 text; `where` names the row at an offset into the block."""
    at = block.find(b"\0")
    if at >= 0:
        raise BadData(f"{where(at + 1)}: has a NUL byte; is it binary, or text other than UTF-8?")
    if block.isascii():
        return
    try:
        block.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"0x{block[error.start]:02x}"
        at = error.start + 1
        raise BadData(f"{where(at)}: is not UTF-8 (byte {byte}); save the file as UTF-8.") from None
