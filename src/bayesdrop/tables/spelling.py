"""How numbers and dates are written in texts. Every way is named by an example, such as "1.234,5".

A way is possible if every text of a column can be read in it. If all possible ways give the same values,
there is nothing to choose; if they differ ("1,234", "03/04/2024"), the column is ambiguous.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DATES",
    "DIGITS",
    "ISO",
    "NUMBERS",
    "PLAIN",
    "ZERO_ONE",
    "choose",
    "date_like",
    "date_ways",
    "decimal_of",
    "number_like",
    "number_ways",
    "parse_date",
    "parsed_dates",
    "plain_number",
    "unit_of",
    "with_hyphen",
]

Read = TypeVar("Read")

#: how 1234.5 is written; the marks that may stand between thousands, and the decimal mark
NUMBERS = {
    "1234.5": ("", "."),
    "1,234.5": (",", "."),
    "1 234.5": (" \u00a0\u202f\u2009", "."),
    "1'234.5": ("'\u2019", "."),
    "1234,5": ("", ","),
    "1.234,5": (".", ","),
    "1 234,5": (" \u00a0\u202f\u2009", ","),
    "1'234,5": ("'\u2019", ","),
}
#: as programs write numbers
PLAIN = "1234.5"
#: for columns whose numbers are all 0 or 1: "true", "no", ... are then read as 1 and 0, too
ZERO_ONE = "0 or 1"

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_Y, _M, _D, _NAME = r"(?P<y>\d{4})", r"(?P<m>\d{1,2})", r"(?P<d>\d{1,2})", r"(?P<name>[A-Za-z]{3,9})"
_CLOCK = (
    r"(?:[T ]\s?(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<part>\d{1,9}))?)?"
    r"\s?(?P<zone>Z|[+-]\d{2}:?\d{2})?)?"
)
#: how the 31st of March 2024 is written; a time may follow
DATES = {
    way: re.compile(pattern + _CLOCK, re.ASCII)
    for way, pattern in {
        "2024-03-31": f"{_Y}-{_M}-{_D}",
        "2024/03/31": f"{_Y}/{_M}/{_D}",
        "2024.03.31": rf"{_Y}\.{_M}\.{_D}",
        "31.03.2024": rf"{_D}\.\s?{_M}\.\s?{_Y}",
        "31/03/2024": f"{_D}/{_M}/{_Y}",
        "03/31/2024": f"{_M}/{_D}/{_Y}",
        "31-03-2024": f"{_D}-{_M}-{_Y}",
        "03-31-2024": f"{_M}-{_D}-{_Y}",
        "31 Mar 2024": rf"{_D}[ -]{_NAME}\.?[ -]{_Y}",
        "Mar 31, 2024": rf"{_NAME}\.? {_D},? {_Y}",
        "20240331": r"(?P<y>\d{4})(?P<m>\d{2})(?P<d>\d{2})",
    }.items()
}
ISO = "2024-03-31"
#: looks like a number, so that it is read as a date only if that is asked for
DIGITS = "20240331"
_ANY_DATE = re.compile("|".join(re.sub(r"\?P<\w+>", "?:", one.pattern) for one in DATES.values()), re.ASCII)


def _number_pattern(way: str) -> re.Pattern[str]:
    thousands, decimal = NUMBERS[way]
    groups = rf"|[1-9]\d{{0,2}}(?:[{re.escape(thousands)}]\d{{3}})+" if thousands else ""
    point = re.escape(decimal)
    return re.compile(rf"[+-]?(?:(?:\d+{groups})(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d{{1,5}})?", re.ASCII)


#: a number with a unit before or after it: "$3", "EUR 3", "5 %", "12 kg", "3 m/s"
_WITH_UNIT = re.compile(
    r"(?P<before>[$€£¥]|[A-Z]{3}(?=\s))?\s?(?P<number>[+\-\u2212]?\d[\d.,'\s]*?)\s?"
    r"(?P<after>[%‰$€£¥°][A-Z]?|[^\W\d_]{1,6}(?:/[^\W\d_]{1,5})?[²³]?)?"
)
#: different texts that it takes to tell a unit, and the share of them that must have it
_LEAST_UNITS, _UNIT_SHARE = 3, 0.9

_PATTERNS = {way: _number_pattern(way) for way in NUMBERS}
#: texts such as "1.234", whose point may stand between thousands or before decimals
_EITHER_POINT = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}", re.ASCII)


def with_hyphen(text: str) -> str:
    """The text with a hyphen for the minus of typesetters, which spreadsheets and web pages write."""
    return text.replace("\u2212", "-")


def plain_number(text: str, way: str) -> str | None:
    """The number as Python writes it; None if the text is no number that is written in this way.

    >>> plain_number("1.234,56", "1.234,5"), plain_number("1.5", "1.234,5")
    ('1234.56', None)
    """
    text = with_hyphen(text)
    if not _PATTERNS[way].fullmatch(text):
        return None
    thousands, decimal = NUMBERS[way]
    for mark in thousands:
        text = text.replace(mark, "")
    return text.replace(decimal, ".")


def number_like(text: str) -> list[str]:
    """The ways in which a text can be read as a number.

    >>> number_like("1,5"), number_like("5 kg")
    (['1234,5', '1.234,5', '1 234,5', "1'234,5"], [])
    """
    text = with_hyphen(text)
    # The first character rules out most texts, quickly.
    if not text[:1].isdigit() and text[:1] not in "+-.,":
        return []
    return [way for way, pattern in _PATTERNS.items() if pattern.fullmatch(text)]


def unit_of(texts: Iterable[str]) -> str | None:
    """The first text of a column whose texts are numbers with one unit; None for any other column.

    >>> unit_of(["12 kg", "7 kg", "9.5 kg"]), unit_of(["12 kg", "7 m", "9.5 l"])
    ('12 kg', None)
    """
    distinct = list(dict.fromkeys(texts))
    units: Counter[tuple[str, str]] = Counter()
    for text in distinct:
        found = _WITH_UNIT.fullmatch(text)
        if found and (found["before"] or found["after"]) and number_like(found["number"].strip()):
            units[found["before"] or "", found["after"] or ""] += 1
    count = max(units.values(), default=0)
    if count < max(_LEAST_UNITS, _UNIT_SHARE * len(distinct)):
        return None
    unit = max(units, key=lambda one: units[one])
    return next(text for text in distinct if unit[0] in text and unit[1] in text)


def number_ways(texts: Iterable[str], *, plain: bool) -> list[tuple[str, ...]]:
    """The ways in which all texts can be read as numbers, in groups that give the same values.

    If the plain way is possible, it is in the first group.

    Args:
        texts: of a column, without those that are missing.
        plain: whether all of them are numbers as Python writes them.
    """
    if plain:
        points = tuple(way for way, (_, decimal) in NUMBERS.items() if decimal == ".")
        either = False
        for text in texts:
            if "." in text:
                if not _EITHER_POINT.fullmatch(text):
                    return [points]
                either = True
        # "1.234" and nothing else: thousands are possible, too.
        return [points, ("1.234,5",)] if either else [tuple(NUMBERS)]
    distinct = set(texts)
    groups: dict[tuple[float, ...], list[str]] = {}
    for way in NUMBERS:
        # Ends at the first text that is no number in this way.
        read = _all_read(distinct, partial(plain_number, way=way))
        if read is not None:
            groups.setdefault(tuple(float(text) for text in read), []).append(way)
    return [tuple(group) for group in groups.values()]


def decimal_of(groups: Sequence[tuple[str, ...]]) -> str | None:
    """The decimal mark that all ways have in common; None if there are no ways, or several marks."""
    marks = {NUMBERS[way][1] for group in groups for way in group}
    return marks.pop() if len(marks) == 1 else None


def choose(
    groups: Sequence[tuple[str, ...]], fits: Callable[[str], bool] | None = None
) -> tuple[str | None, bool]:
    """One of the possible ways, None if nothing decides between them; and whether other columns decided.

    Args:
        groups: the possible ways, in groups that give the same values.
        fits: whether a way agrees with other columns; None if these tell nothing.
    """
    if len(groups) == 1:
        group = groups[0]
        return (PLAIN if PLAIN in group else next(filter(fits, group), group[0]) if fits else group[0]), False
    if fits is not None:
        fitting = [next(filter(fits, group)) for group in groups if any(map(fits, group))]
        if len(fitting) == 1:
            return fitting[0], True
    # The way of programs, if it is possible: most tables are written by them.
    return (PLAIN, False) if groups and PLAIN in groups[0] else (None, False)


def parse_date(text: str, way: str) -> datetime | None:
    """The moment, in UTC if a zone is named; None if the text is no date that is written in this way.

    >>> parse_date("01.03.2024", "31.03.2024"), parse_date("2024-02-30", "2024-03-31")
    (datetime.datetime(2024, 3, 1, 0, 0), None)
    """
    found = DATES[way].fullmatch(text)
    if found is None:
        return None
    parts = found.groupdict()
    name = parts.get("name")
    month = int(parts["m"]) if name is None else _month(name.lower())
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
    micro = int((parts["part"] or "").ljust(6, "0")[:6] or 0)
    try:
        moment = datetime(int(parts["y"]), month, int(parts["d"]), hour, minute, second, micro)
        return moment - _zone(parts["zone"])
    except (ValueError, OverflowError):  # the 30th of February, a day before the first year
        return None


def _month(name: str) -> int:
    """1 to 12 for an English name of a month or its beginning, 0 for any other word."""
    known = (place for place, month in enumerate(_MONTHS, 1) if month.startswith(name))
    return next(known, 0)


def _zone(zone: str | None) -> timedelta:
    """How far a zone, such as "+01:00" or "Z", is ahead of UTC; 0 if None."""
    if zone in (None, "Z"):
        return timedelta(0)
    assert zone is not None
    away = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return -away if zone.startswith("-") else away


def date_like(text: str) -> bool:
    """Whether a text has the form of a date in any way, even if there is no such day.

    >>> date_like("31.02.2024"), date_like("row 12")
    (True, False)
    """
    return _ANY_DATE.fullmatch(text) is not None


def date_ways(texts: Collection[str]) -> list[tuple[str, ...]]:
    """The ways in which all texts can be read as dates, in groups that give the same moments.

    Args:
        texts: of a column, without those that are missing.
    """
    distinct = set(texts)
    groups: dict[tuple[datetime, ...], list[str]] = {}
    for way in DATES:
        read = _all_read(distinct, partial(parse_date, way=way))
        if read is not None:
            groups.setdefault(tuple(read), []).append(way)
    return [tuple(group) for group in groups.values()]


def _all_read(texts: Collection[str], read: Callable[[str], Read | None]) -> list[Read] | None:
    """What is read of every text, or None where one of them cannot be read."""
    found = []
    for text in texts:
        value = read(text)
        if value is None:
            return None
        found.append(value)
    return found if found else None


def parsed_dates(texts: Sequence[str | None], way: str) -> tuple[NDArray[np.datetime64], NDArray[np.bool_]]:
    """(N,) moments, NaT for None and for texts that are no dates; and (N,) which texts are no dates.

    Args:
        texts: None where a cell is missing.
        way: how dates are written; ISO dates are read, too.
    """
    known: dict[str | None, datetime | None] = {None: None}
    for text in texts:
        if text not in known:
            assert text is not None
            # ISO dates are read in any column: a year that comes first leaves no doubt.
            known[text] = parse_date(text, ISO) or parse_date(text, way)
    moments = np.array([known[text] for text in texts], dtype="datetime64[us]")
    bad = np.array([text is not None and known[text] is None for text in texts], dtype=bool)
    return moments, bad
