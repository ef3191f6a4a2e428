"""How a table writes numbers and dates: columns that leave no doubt decide for those that leave one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any, TypeVar

from bayesdrop.tables.cells import Flags, as_numbers, is_text, present_texts, type_of
from bayesdrop.tables.spelling import NUMBERS, PLAIN, choose, date_ways, decimal_of, number_ways

__all__ = ["Habits", "number_way"]

Known = TypeVar("Known")
_DAY_FIRST, _MONTH_FIRST = ("31/03/2024", "31-03-2024"), ("03/31/2024", "03-31-2024")


class Habits:
    """How those columns of a table write numbers and dates that leave no doubt; found when first asked for.

    Args:
        frame: a pandas frame.
        marks: texts that mean "missing".
    """

    def __init__(self, frame: Any, marks: Collection[str]) -> None:
        self._frame, self._marks = frame, marks

    @cached_property
    def decimal(self) -> str | None:
        """The decimal mark of columns whose numbers can be read in one way only; None if they differ."""
        found: set[str | None] = set()
        for series in self._texts():
            texts, bad = present_texts(series, self._marks), as_numbers(series, self._marks)[1]
            found.add(decimal_of(number_ways(texts, plain=not bad.any())))
        return _only(found)

    @cached_property
    def day_first(self) -> bool | None:
        """Whether days come before months in columns that leave no doubt; None if there are none or both."""
        found: set[bool | None] = set()
        for series in self._texts():
            ways = {way for group in date_ways(present_texts(series, self._marks)) for way in group}
            if ways:
                first = bool(ways & set(_DAY_FIRST)), bool(ways & set(_MONTH_FIRST))
                found.add({(True, False): True, (False, True): False}.get(first))
        return _only(found)

    def _texts(self) -> Iterator[Any]:
        columns = (self._frame[name] for name in self._frame.columns)
        return (series for series in columns if is_text(series) and type_of(series) == "other")

    def fits_number(self, way: str) -> bool:
        """Whether numbers written in this way have the table's decimal mark."""
        return NUMBERS[way][1] == self.decimal

    def fits_date(self, way: str) -> bool:
        """Whether dates written in this way have the table's order of day and month."""
        return way in (_DAY_FIRST if self.day_first else _MONTH_FIRST)


def _only(found: set[Known | None]) -> Known | None:
    """The one value besides None; None if there are several, or none."""
    known = found - {None}
    return known.pop() if len(known) == 1 else None


def number_way(
    series: Any, bad: Flags, marks: Collection[str], habits: Habits | None, owner: str = "column"
) -> tuple[str | None, str]:
    """How a column's numbers are written, None if it does not hold numbers; and what was assumed, in words.

    Raises if 1,234 may be 1234 or 1.234 and no other column tells which.

    Args:
        series: cells that are not missing.
        bad: which of them are not numbers as Python writes them.
        marks: texts that mean "missing".
        habits: of the table.
        owner: what the column is, for errors.
    """
    if not is_text(series):
        return (None if bad.any() else PLAIN), ""
    plain = not bad.any()
    # Read one after another: the first plain number with a point mostly tells.
    cells = (str(cell).strip() for cell in series.to_numpy(dtype=object))
    groups = number_ways(cells if plain else present_texts(series, marks), plain=plain)
    ambiguous = len(groups) > 1
    known = habits is not None and ambiguous and habits.decimal is not None
    way, assumed = choose(groups, habits.fits_number if known and habits is not None else None)
    texts = present_texts(series, marks) if ambiguous else []
    if ambiguous and way is None:
        place = next(place for place, text in enumerate(texts) if "," in text)
        name, text, row = series.name, texts[place], int(series.index[place]) + 1
        both = f"{text.replace(',', '')} or {text.replace(',', '.')}"
        ways = f"--numbers '{name}=1,234.5' or --numbers '{name}=1234,5'"
        raise ValueError(
            f"{owner} {name!r}: {text!r} in row {row:,} may be {both}, and no other column tells which. "
            f"Say which: {ways}."
        )
    if not assumed or way in (None, PLAIN):
        return way, ""
    marked = next(text for text in texts if "." in text or "," in text)
    decimal = _MARKS[NUMBERS[str(way)][1]]
    said = f"{marked!r} is read with a decimal {decimal}, as other columns are; if that is wrong: --numbers"
    return way, said


_MARKS = {".": "point", ",": "comma"}
