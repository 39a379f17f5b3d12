"""The ends of rows in delimited text: line ends that are not inside quotes.

If all quotes are at the ends of fields, they are found by array operations; otherwise (as in: 5" pipe) the
text is searched field by field.
"""

import re
from typing import NamedTuple

import numpy as np

QUOTE, RETURN, FEED = ord('"'), ord("\r"), ord("\n")


class Lexer:
    """Finds the ends of rows; a quoted field begins with a quote, and quotes inside it are doubled."""

    def __init__(self, delimiter: str, ending: bytes):
        self.delimiter, self._ending = delimiter, ending
        self._marks = np.zeros(256, bool)
        self._marks[[QUOTE, RETURN, FEED, ord(delimiter)]] = True
        opening = rb"(?:\A|(?<=[\r\n" + re.escape(delimiter.encode()) + rb']))"'
        self._quoted = re.compile(opening + rb'[^"]*+(?:""[^"]*+)*+("|\Z)')

    def last_end(self, data: bytes) -> int:
        """The end of the last complete row; 0 if there is none."""
        at = data.rfind(self._ending)
        if at < 0:
            return 0
        spans = self._spans(data)
        if not spans.around(np.array([at]))[0]:
            return at + 1
        every = np.flatnonzero(np.frombuffer(data, np.uint8) == self._ending[0])
        outside = every[~spans.around(every)]
        return int(outside[-1]) + 1 if len(outside) else 0

    def first_end(self, data: bytes) -> int:
        """The end of the first row that is not blank."""
        ends = self.ends(data)
        return ends[0] if ends else len(data)

    def ends(self, data: bytes) -> list[int]:
        """The ends of the rows that are not blank; the last row may lack a line end."""
        text = np.frombuffer(data + b"\0", np.uint8)
        at = np.flatnonzero((text == FEED) | (text == RETURN))
        at = at[~self._spans(data).around(at)]
        at = at[(text[at] == FEED) | (text[at + 1] != FEED)]  # \r\n is one line end
        two = (text[at] == FEED) & (text[at - 1] == RETURN) & (at > 0)
        before = np.append(0, at + 1)
        ends = (at + 1)[at - two > before[:-1]].tolist()
        return ends if before[-1] == len(data) else [*ends, len(data)]

    def is_closed(self, data: bytes) -> bool:
        """Whether every quoted field is closed."""
        return all(found[1] for found in self._quoted.finditer(data))

    def _spans(self, data: bytes) -> "Spans":
        if b'"' not in data:
            return Spans(np.empty(0, int), np.empty(0, int))
        tidy = self._tidy(data)
        if tidy is not None:
            return tidy
        found = self._quoted.finditer(data)
        both = np.fromiter((end for match in found for end in match.span()), int).reshape(-1, 2)
        return Spans(both[:, 0], both[:, 1])

    def _tidy(self, data: bytes) -> "Spans | None":
        """The parts from each odd quote to the next; None unless all quotes are at the ends of fields.

        The two quotes of a doubled one end a part and begin the next, which leaves nothing between them.
        """
        text = np.frombuffer(data, np.uint8)
        at = np.flatnonzero(text == QUOTE)
        starts, ends = at[::2], at[1::2] + 1
        follows = self._marks[text[starts[starts > 0] - 1]]
        precedes = self._marks[text[ends[ends < len(data)]]]
        if not (follows.all() and precedes.all()):
            return None
        return Spans(starts, ends if len(at) % 2 == 0 else np.append(ends, len(data)))


def has_leading_zeros(block: bytes, delimiter: str) -> bool:
    """Whether a field may begin with a zero and another digit."""
    text = np.frombuffer(b"\n" + block + b"\n", np.uint8)
    zeros = np.flatnonzero(text == ord("0"))
    after = text[zeros + 1]
    zeros = zeros[(after >= ord("0")) & (after <= ord("9"))]
    return bool(np.isin(text[zeros - 1], list(f'\r\n" {delimiter}'.encode())).any())


class Spans(NamedTuple):
    """The quoted parts of a text, in order."""

    starts: np.ndarray
    ends: np.ndarray

    def around(self, at: np.ndarray) -> np.ndarray:
        """A mask of the positions that are inside a quoted part."""
        if not len(self.starts):
            return np.zeros(len(at), bool)
        i = np.searchsorted(self.starts, at, side="right") - 1
        return (i >= 0) & (at < self.ends[i])
