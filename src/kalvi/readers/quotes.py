"""Where the rows of delimited text end: at line ends that are not inside quotes.

Text whose quotes all stand at the ends of fields is looked at as an array; only where one stands elsewhere
(as in 5" pipe) is it searched field by field.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

QUOTE = ord('"')


class Lexer:
    """Rows of text with one delimiter; a quote opens at the beginning of a field and doubles inside it."""

    def __init__(self, delimiter: str, ending: bytes):
        self.delimiter, self._ending = delimiter, ending
        self._marks = np.zeros(256, bool)
        self._marks[[QUOTE, ord("\r"), ord("\n"), ord(delimiter)]] = True
        opening = rb"(?:\A|(?<=[\r\n" + re.escape(delimiter.encode()) + rb']))"'
        self._quoted = re.compile(opening + rb'[^"]*+(?:""[^"]*+)*+("|\Z)')

    def last_end(self, data: bytes) -> int:
        """The end of the last whole row; 0 where there is none."""
        at = data.rfind(self._ending)
        if at < 0:
            return 0
        spans = self._spans(data)
        while at >= 0 and (i := spans.around(at)) is not None:
            at = data.rfind(self._ending, 0, int(spans.starts[i]))
        return at + 1

    def first_end(self, data: bytes) -> int:
        """The end of the first row that is not blank."""
        return next(self._each_end(data), len(data))

    def ends(self, data: bytes) -> list[int]:
        """The ends of the rows that are not blank; the last may have no line end."""
        return list(self._each_end(data))

    def _each_end(self, data: bytes) -> Iterator[int]:
        spans, before = self._spans(data), 0
        for found in re.finditer(rb"\r\n?|\n", data):
            if spans.around(found.start()) is None:
                if found.start() > before:
                    yield found.end()
                before = found.end()
        if before < len(data):
            yield len(data)

    def is_closed(self, data: bytes) -> bool:
        """Whether every quote that opens is closed."""
        return all(found[1] for found in self._quoted.finditer(data))

    def _spans(self, data: bytes) -> "Spans":
        if b'"' not in data:
            return Spans(np.empty(0, int), np.empty(0, int))
        tidy = self._tidy(data)
        if tidy is not None:
            return tidy
        found = np.array([match.span() for match in self._quoted.finditer(data)], int).reshape(
            -1, 2
        )
        return Spans(found[:, 0], found[:, 1])

    def _tidy(self, data: bytes) -> "Spans | None":
        """Between odd and even quotes, where each odd one follows a mark and each even one precedes one.

        The two quotes of a doubled one end a part and begin the next, and nothing stands between them.
        """
        text = np.frombuffer(data, np.uint8)
        at = np.flatnonzero(text == QUOTE)
        starts, ends = at[::2], at[1::2] + 1
        follows = self._marks[text[starts[starts > 0] - 1]]
        precedes = self._marks[text[ends[ends < len(data)]]]
        if not (follows.all() and precedes.all()):
            return None
        return Spans(starts, ends if len(at) % 2 == 0 else np.append(ends, len(data)))


class Spans(NamedTuple):
    """Quoted parts of some text, in order."""

    starts: np.ndarray
    ends: np.ndarray

    def around(self, at: int) -> int | None:
        """The one that holds the byte `at`."""
        i = int(np.searchsorted(self.starts, at, side="right")) - 1
        return i if i >= 0 and at < self.ends[i] else None
