"""What lines of Python keep in memory: no value that is never used, no large array after its last use."""

import re
from collections.abc import Sequence

_NAMES = re.compile(r"\bv\d+\b")


def with_releases(lines: Sequence[str], large: set[str]) -> list[str]:
    """The lines, with a line that releases each large array after the last line that names it."""
    if not large:
        return list(lines)
    depths = [len(line) - len(line.lstrip()) for line in lines]
    given: dict[str, list[int]] = {}  # the lines that assign to a name
    named: dict[str, int] = {}  # the last line with a name
    for i, line in enumerate(lines):
        name = line.strip().partition(" = ")[0]
        if name in large:
            given.setdefault(name, []).append(i)
        named.update(dict.fromkeys(large.intersection(_NAMES.findall(line)), i))
    after: dict[int, list[str]] = {}
    for name, (first, *others) in given.items():
        last, depth = named[name], depths[first]
        inside = not others and min(depths[first : last + 1]) == depth
        if inside and not lines[last].lstrip().startswith("return"):
            end = _end_of_statement(lines, depths, last, depth)
            after.setdefault(end, []).append(" " * depth + f"del {name}")
    return [text for i, line in enumerate(lines) for text in (line, *after.get(i, []))]


def _end_of_statement(lines: Sequence[str], depths: Sequence[int], at: int, depth: int) -> int:
    """The last line of the statement of this depth to which a line belongs."""
    following = at + 1
    while following < len(lines) and (
        depths[following] > depth or lines[following].lstrip().startswith(("else", "elif"))
    ):
        following += 1
    return following - 1


def without_unused(lines: Sequence[str], used: set[str]) -> list[str]:
    """The lines without values that are never used; `used` holds the names in later lines, and grows."""
    kept = []
    for line in reversed(lines):
        name, sign, text = line.strip().partition(" = ")
        is_value = bool(sign) and _NAMES.fullmatch(name) is not None
        if is_value and name not in used:
            continue
        used.update(_NAMES.findall(text if is_value else line))
        kept.append(line)
    return kept[::-1]
