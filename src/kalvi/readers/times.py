"""Dates and times of day in many forms, rewritten as ISO 8601.

A form is one for strptime, made of %d %m %Y %y %b %B %H %I %M %S %p. If it has no hour, a time of day may
follow the date. Days and months may have one digit; months have English names; years with two digits are
those from 1969 to 2068, as in POSIX.
"""
# pyarrow.compute makes its functions at run time
# pyright: reportAttributeAccessIssue=false

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

HOUR = r"(?P<H>[01]?\d|2[0-3])"
MINUTE, SECOND = r"(?P<M>[0-5]\d)", r"(?P<S>[0-5]\d(?:\.\d+)?)"
CLOCK = rf"(?:,?[ T]+{HOUR}:{MINUTE}(?::{SECOND})?(?: ?(?P<p>[AaPp][Mm]))?)?"
"""A regular expression for a time of day after a date, which may be absent."""
PARTS = {
    "d": r"(?P<d>0?[1-9]|[12]\d|3[01])",
    "m": r"(?P<m>0?[1-9]|1[0-2])",
    "Y": r"(?P<Y>\d{4})",
    "y": r"(?P<y>\d{2})",
    "b": r"(?P<b>[A-Za-z]{3,9})\.?",
    "B": r"(?P<b>[A-Za-z]{3,9})\.?",
    "H": HOUR,
    "I": HOUR,
    "M": MINUTE,
    "S": SECOND,
    "p": r"(?P<p>[AaPp][Mm])",
}
ISO = r"^\d{4}-\d{2}-\d{2}(?:[ T]\d{2}(?::\d{2}(?::\d{2}(?:\.\d+)?)?)?)?"
ZONE = r"(?:Z|[+-]\d{2}(?::?\d{2})?)$"
NAMES = ("january", "february", "march", "april", "may", "june", "july", "august")
NAMES += ("september", "october", "november", "december")
MONTHS = {name: f"{i + 1:02}" for i, name in enumerate(NAMES)}
MONTHS |= {name[:3]: number for name, number in MONTHS.items()} | {"sept": "09"}
FORMS = (
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%d.%m.%Y",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%Y-%m-%d",
)
FORMS += ("%d/%m/%y", "%m/%d/%y", "%d-%m-%y", "%m-%d-%y", "%d.%m.%y")
NAMED = ("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%b %d %Y", "%d %b %y", "%d-%b-%y")
"""The forms, besides ISO 8601, that are tried if the user gave none."""


def check_form(form: str) -> None:
    """Refuse a form that lacks the year or the month, has unknown parts, or has a part twice."""
    found = re.findall("%(.)", form)
    known = [part for part in found if part in PARTS]
    if form != "%z" and (
        len(known) < len(found)
        or not {"Y", "y"} & {*known}
        or not {"m", "b", "B"} & {*known}
        or len({PARTS[part] for part in known}) < len(known)
    ):
        raise ValueError(
            f"time:{form} does not say how dates are written; it needs a year (%Y or %y) and a month (%m "
            "or %b), each part once, of %d %m %Y %y %b %H %I %M %S %p."
        )


def pattern(form: str) -> str:
    """A regular expression for a form, with a named group for each part."""
    parts = re.split("%(.)", form)
    found = "".join(
        PARTS[part] if i % 2 else re.escape(part).replace("\\ ", " ")
        for i, part in enumerate(parts)
    )
    clock = "" if {"H", "I"} & {*parts[1::2]} else CLOCK
    return f"^{found}{clock}$"


def iso_text(text: pa.ChunkedArray, form: str) -> pa.ChunkedArray:
    """Dates and times of a form, rewritten for pyarrow; entries of another form become missing."""
    if form in ("", "%z"):
        wanted = pc.match_substring_regex(text, ISO + (ZONE if form else "$"))
        text = pc.if_else(wanted, text, pa.scalar(None, pa.string()))
        return pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")  # microseconds
    found = pc.extract_regex(text, pattern(form))
    there = {found.type.field(i).name for i in range(found.type.num_fields)}

    def part(name: str, default: str) -> pa.ChunkedArray:
        if name not in there:
            return pc.if_else(pc.is_valid(found), default, pa.scalar(None, pa.string()))
        field = pc.struct_field(found, name)
        field = pc.if_else(pc.is_valid(found), field, pa.scalar(None, pa.string()))
        return pc.utf8_lpad(pc.if_else(pc.equal(field, ""), default, field), 2, "0")

    seconds = pc.replace_substring_regex(part("S", "00"), r"(\.\d{6})\d+", r"\1")
    date = pc.binary_join_element_wise(_year(part), _month(part), part("d", "01"), "-")
    clock = pc.binary_join_element_wise(_hour(part), part("M", "00"), seconds, ":")
    return pc.binary_join_element_wise(date, clock, "T")


Part = Callable[[str, str], Any]


def _year(part: Part) -> Any:
    short = part("y", "")
    century = pc.if_else(pc.greater_equal(short, "69"), "19", "20")
    return pc.binary_join_element_wise(
        pc.if_else(pc.equal(short, ""), "", century), short, part("Y", ""), ""
    )


def _month(part: Part) -> Any:
    name = pc.utf8_lower(part("b", ""))
    which = pc.index_in(name, value_set=pa.array(list(MONTHS)))
    number = pa.array(list(MONTHS.values())).take(pc.fill_null(which, 0).combine_chunks())
    number = pc.if_else(
        pc.is_valid(which), pa.chunked_array([number]), pa.scalar(None, pa.string())
    )
    return pc.if_else(pc.equal(name, ""), part("m", ""), number)


def _hour(part: Part) -> Any:
    """The hour from 0 to 23, also if it is written with am or pm."""
    hour, half = part("H", "00"), pc.utf8_lower(part("p", ""))
    noon = pc.if_else(pc.equal(hour, "12"), "00", hour)
    later = pc.utf8_lpad(pc.add(noon.cast(pa.int32()), 12).cast(pa.string()), 2, "0")
    return pc.if_else(pc.equal(half, "pm"), later, pc.if_else(pc.equal(half, "am"), noon, hour))
