"""Where the rows of delimited text end: at line ends that are not inside quotes."""

import re
from bisect import bisect_right
from typing import NamedTuple


class Lexer:
    """Rows of text with one delimiter; a quote opens at the beginning of a field and doubles inside it."""

    def __init__(self, delimiter: str, ending: bytes):
        self.delimiter, self._ending = delimiter, ending
        opening = rb"(?:\A|(?<=[\r\n" + re.escape(delimiter.encode()) + rb']))"'
        self._quoted = re.compile(opening + rb'[^"]*+(?:""[^"]*+)*+("|\Z)')

    def last_end(self, data: bytes) -> int:
        """The end of the last whole row; 0 where there is none."""
        at, spans = data.rfind(self._ending), self._spans(data)
        while at >= 0 and (i := spans.around(at)) is not None:
            at = data.rfind(self._ending, 0, spans.starts[i])
        return at + 1

    def ends(self, data: bytes) -> list[int]:
        """The ends of the rows that are not blank; the last may have no line end."""
        spans, ends, before = self._spans(data), [], 0
        for found in re.finditer(rb"\r\n?|\n", data):
            if spans.around(found.start()) is None:
                if found.start() > before:
                    ends.append(found.end())
                before = found.end()
        return ends if before == len(data) else [*ends, len(data)]

    def is_closed(self, data: bytes) -> bool:
        """Whether every quote that opens is closed."""
        return all(found[1] for found in self._quoted.finditer(data))

    def _spans(self, data: bytes) -> "Spans":
        if b'"' not in data:
            return Spans([], [])
        found = [match.span() for match in self._quoted.finditer(data)]
        return Spans([start for start, _ in found], [end for _, end in found])


class Spans(NamedTuple):
    """Quoted parts of some text, in order."""

    starts: list[int]
    ends: list[int]

    def around(self, at: int) -> int | None:
        """The one that holds the byte `at`."""
        i = bisect_right(self.starts, at) - 1
        return i if i >= 0 and at < self.ends[i] else None
