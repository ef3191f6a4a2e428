"""What becomes of one column, inferred from its cells."""

from __future__ import annotations

import calendar
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.tables.cells import (
    Array,
    Flags,
    as_days,
    as_labels,
    as_numbers,
    as_truths,
    day_of,
    first_bad,
    is_text,
    missing_cells,
    present_texts,
    type_of,
)
from bayesdrop.tables.columns import DATE_INPUTS, MISSING, MOST_RARE, OTHER, TRUTHS, Column, Kind
from bayesdrop.tables.habits import Habits, number_way
from bayesdrop.tables.spelling import (
    DATES,
    ISO,
    PLAIN,
    ZERO_ONE,
    choose,
    date_like,
    date_ways,
    number_like,
    parse_date,
    unit_of,
)
from bayesdrop.tables.written import counted, plainly

__all__ = ["MEND", "Wish", "far_hint", "infer_column", "unit_hint"]

MEND = "Mend those cells, or name what stands for a missing one with --missing."
#: values so many times as far from the median as the middle half of them is wide are told of, if they are few
#: and so many times as far away as the next: long tails have no such gap
_FAR, _FEW_FAR, _GAP, _LEAST_ROWS = 1000, 3, 30, 20
_MEND_OR_NAME = "Mend those cells, name what stands for a missing one with --missing, or use --categorical."
#: categories that a column may have in short tables and in long ones; rows that are enough for one
_USUAL_CATEGORIES, _MOST_CATEGORIES, _ENOUGH = 50, 300, 5
#: rows from which on distinct whole numbers may be a running number, unless all are between these years
_LEAST_RUNNING, _YEARS = 20, (1800, 2200)


@dataclass(frozen=True)
class Wish:
    """What a person asks of a column; the rest is inferred from the cells.

    Attributes:
        kind: what to make of it.
        numbers: how its numbers are written, one of `spelling.NUMBERS`; "" if not asked for.
        dates: how its dates are written, one of `spelling.DATES`; "" if not asked for.
        keep: use it even if it looks like identifiers of rows.
        fields: further fields of the `Column`, which replace what is inferred.
    """

    kind: Kind | None = None
    numbers: str = ""
    dates: str = ""
    keep: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)


def infer_column(
    series: Any,
    marks: Collection[str] = (),
    *,
    categorical: bool = False,
    wish: Wish | None = None,
    habits: Habits | None = None,
    whole: Any = None,
) -> Column:
    """What becomes of a column.

    Args:
        series: a pandas column.
        marks: texts that mean "missing".
        categorical: its values are categories, even if they are numbers.
        wish: what a person asks of it.
        habits: how other columns are written, if this one leaves it open.
        whole: the column in all rows, held-out ones too, by which a running number is recognised.
    """
    wish = Wish() if wish is None else wish
    if categorical:
        wish = replace(wish, kind="category")
    column = _inferred(series, marks, wish, habits, series if whole is None else whole)
    # A column that never changes stays left out, whatever was asked of it.
    return replace(column, **wish.fields) if wish.fields and wish.kind == column.kind else column


def _inferred(series: Any, marks: Collection[str], wish: Wish, habits: Habits | None, whole: Any) -> Column:
    name, kind = str(series.name), wish.kind
    if kind == "left out":
        return Column(name, "left out", why="as asked for")
    missing = missing_cells(series, marks)
    cells = series[~missing]
    if not len(cells):
        return Column(name, "left out", categories=(MISSING,), why="all cells are missing")
    values, bad = as_numbers(cells, marks, wish.numbers or PLAIN)
    if kind == "category":
        numbers = not bad.any()
        labels = as_labels(series, marks, numbers=numbers)
        return _categories(name, labels.tolist(), numbers, identifier=False)
    if kind == "date" or (kind is None and type_of(series) == "dates"):
        return _date(name, cells, missing, marks, wish.dates or ISO, asked=kind == "date")
    if type_of(series) == "clocks":
        why = "times of a day and durations are not used; make a number of them first"
        return Column(name, "left out", why=why)
    if kind in (None, "boolean") and (kind or bad.any() or type_of(series) == "truths"):
        truths, neither = as_truths(cells, marks)
        if kind and neither.any():
            raise ValueError(f"column {name!r} must be true or false; got {first_bad(cells, neither)}.")
        if not neither.any():
            return _filled(name, "boolean", truths, missing, series, marks)
    found = _number(series, (cells, values, bad), missing, marks, wish, habits, whole)
    return found or _text(series, cells, bad, marks, wish, habits)


def _number(
    series: Any,
    read: tuple[Any, Array, Flags],
    missing: Flags,
    marks: Collection[str],
    wish: Wish,
    habits: Habits | None,
    whole: Any,
) -> Column | None:
    """A column of numbers, or None; `read` are the cells that are not missing, their values, and bad ones."""
    cells, values, bad = read
    name, way, said = str(series.name), wish.numbers or PLAIN, ""
    if not wish.numbers:
        found, said = number_way(cells, bad, marks, habits)
        if found not in (None, PLAIN):
            way = str(found)
            values, bad = as_numbers(cells, marks, way)
    if bad.any():
        if wish.kind != "numeric":
            return None
        raise ValueError(f"column {name!r} must be numbers; got {first_bad(cells, bad)}. {MEND}")
    if not (wish.keep or wish.kind or missing.any()) and _is_running(values, whole, marks):
        low, high = plainly(values.min()), plainly(values.max())
        return Column(name, "left out", why=f"a running number, {low} to {high}; to use it: --keep")
    return _filled(name, "numeric", values, missing, series, marks, way, said)


def _text(
    series: Any, cells: Any, bad: Flags, marks: Collection[str], wish: Wish, habits: Habits | None
) -> Column:
    """A column that is neither all numbers nor all truth values: dates, categories, or a mistake."""
    name = str(series.name)
    if is_text(cells):
        texts = present_texts(cells, marks)
        groups = date_ways(texts)
        if any(wish.dates in group for group in groups):
            groups = [(wish.dates,)]
        known = habits is not None and len(groups) > 1 and habits.day_first is not None
        way, assumed = choose(groups, habits.fits_date if known and habits is not None else None)
        if way is not None:
            said = f"{texts[0]!r} is read as {way}, as other columns are; if that is wrong: --dates"
            missing = missing_cells(series, marks)
            return _date(name, cells, missing, marks, way, said=said if assumed else "")
        if groups:
            ways = " or ".join(f"--dates '{name}={group[0]}'" for group in groups)
            why = f"{texts[0]!r} may be in {_two_months(texts[0], groups)}; say which: {ways}"
            return Column(name, "left out", why=why)
        _refuse_mixtures(name, cells, texts, bad, wish)
    elif bad.mean() < 0.5:
        raise ValueError(f"column {name!r} is numbers but for {first_bad(cells, bad)}. {_MEND_OR_NAME}")
    labels = as_labels(series, marks)
    column = _categories(name, labels.tolist(), numbers=False, identifier=not wish.keep)
    unit = unit_of(present_texts(cells, marks)) if is_text(cells) else None
    return column if unit is None else replace(column, why=f"{column.why}; {unit_hint(unit)}")


def unit_hint(cell: str) -> str:
    """What to say of a column of numbers with a unit.

    Args:
        cell: one of its cells.
    """
    return f"{cell!r} is a text: without the unit, it would be a number"


def far_hint(values: Array) -> str:
    """What to say of a few numbers that may be slips, such as 10^9 among ages; "" if there are none.

    Args:
        values: (N,) of a column, NaN where missing.
    """
    # Halves, since the largest double may be less than the distance of two numbers.
    half = 0.5 * values[np.isfinite(values)]
    if len(half) < _LEAST_ROWS:
        return ""
    low, middle, high = np.quantile(half, [0.25, 0.5, 0.75])
    if low == high:
        return ""
    away = np.abs(half - middle)
    beyond = away / _FAR > high - low
    far = 2 * half[beyond]
    if not 0 < len(far) <= _FEW_FAR or away[beyond].min() / _GAP < away[~beyond].max():
        return ""
    told = counted(len(far), "value is", "values are")
    return f"{told} far from the others: {', '.join(map(plainly, far.tolist()))}"


def _two_months(text: str, groups: Sequence[tuple[str, ...]]) -> str:
    """The months that a date may be in: "April or March"."""
    moments = [parse_date(text, group[0]) for group in groups]
    return " or ".join(dict.fromkeys(calendar.month_name[moment.month] for moment in moments if moment))


def _refuse_mixtures(name: str, cells: Any, texts: Sequence[str], bad: Flags, wish: Wish) -> None:
    """Raise if most cells are numbers, or most are dates, but not all."""
    like = [ways for text in texts if (ways := number_like(text))]
    if 2 * len(like) > len(texts) or 2 * bad.sum() < len(texts):
        way = wish.numbers or PLAIN
        if not wish.numbers and 2 * bad.sum() >= len(texts):
            counts = Counter(way for ways in like for way in ways)
            way = max(counts, key=lambda way: counts[way])
        wrong = as_numbers(cells, (), way)[1]
        written = "" if way == PLAIN else f", written as {way},"
        raise ValueError(
            f"column {name!r} is numbers{written} but for {first_bad(cells, wrong)}. {_MEND_OR_NAME}"
        )
    if 2 * sum(map(date_like, texts)) <= len(texts):
        return
    for way in DATES:
        wrong = as_days(cells, (), way)[1]
        if 2 * wrong.sum() < len(texts):
            raise ValueError(f"column {name!r} is dates but for {first_bad(cells, wrong)}. {_MEND_OR_NAME}")


def _is_running(values: Array, whole: Any, marks: Collection[str]) -> bool:
    """Whether numbers count the rows: whole, all different, and one after another or nearly so."""
    if not _is_distinct(values):
        return False
    values, _ = as_numbers(whole, marks)
    if len(values) < _LEAST_RUNNING or not _is_distinct(values):
        return False
    low, high = values.min(), values.max()
    if low >= _YEARS[0] and high <= _YEARS[1]:
        return False
    rows: NDArray[Any] = whole.index.to_numpy()
    steps = rows.dtype.kind in "iu" and (np.ptp(values - rows) == 0 or np.ptp(values + rows) == 0)
    return bool(steps or high - low < 1.25 * len(values))


def _is_distinct(values: Array) -> bool:
    """Whether numbers are whole and all different."""
    whole = bool((values == np.round(values)).all()) and bool((np.abs(values) < 2**53).all())
    return whole and len(np.unique(values)) == len(values)


def _filled(
    name: str,
    kind: Kind,
    present: Array,
    missing: Flags,
    series: Any,
    marks: Collection[str],
    way: str = "",
    said: str = "",
) -> Column:
    """A column of numbers or truth values; the median, or the commoner value, stands in for missing ones."""
    numeric = kind == "numeric"
    if present.min() == present.max() and not missing.any():
        one = as_labels(series[:1], marks, numbers=True)[0]
        label = one if numeric else TRUTHS[int(present[0])]
        why, way = f"it is {plainly(present[0])} in every row", "" if way == PLAIN else way
        return Column(name, "left out", categories=(label,), why=why, numbers=numeric, format=way)
    if (
        numeric
        and way == PLAIN
        and set(np.unique(present[:1000])) <= {0, 1}
        and set(np.unique(present)) <= {0, 1}
    ):
        way = ZERO_ONE
    # Of halves, since the sum of the two middle numbers may be beyond the largest double.
    fill = 2 * float(np.median(0.5 * present)) if numeric else float(present.mean() > 0.5)
    why = f"{plainly(present.min())} to {plainly(present.max())}" if numeric else ""
    if missing.any():
        stand_in = plainly(fill) if numeric else TRUTHS[int(fill)]
        why = f"{_lacking(missing)} filled with {stand_in} and marked"
    if way not in ("", PLAIN, ZERO_ONE):
        why += f", written as {way}"
    if numeric and (far := far_hint(present)):
        why += f"; {far}"
    if said:
        why += f" ({said})"
    return Column(name, kind, fill, marked=bool(missing.any()), why=why, format=way)


def _lacking(missing: Flags) -> str:
    count = int(missing.sum())
    return counted(count, "missing cell is", "missing cells are")


def _date(
    name: str,
    cells: Any,
    missing: Flags,
    marks: Collection[str],
    way: str,
    *,
    said: str = "",
    asked: bool = False,
) -> Column:
    """A column of dates, which become `DATE_INPUTS`."""
    days, bad = as_days(cells, marks, way)
    if bad.any():
        hint = "Say how they are written: --dates." if asked else MEND
        raise ValueError(f"column {name!r} must be dates, {way}; got {first_bad(cells, bad)}. {hint}")
    first, last = day_of(days.min()), day_of(days.max())
    if first == last and not missing.any():
        why = f"it is {first} in every row"
        return Column(name, "left out", categories=(first,), why=why, format=way)
    why = f"{first} to {last}: {', '.join(DATE_INPUTS)}"
    fill = float(np.median(days))
    if missing.any():
        why += f"; {_lacking(missing)} filled with {day_of(fill)} and marked"
    if is_text(cells) and type_of(cells) != "dates" and way != ISO:
        why += f"; written as {way}"
    if said:
        why += f" ({said})"
    marked = bool(missing.any())
    return Column(name, "date", fill, marked=marked, why=why, format=way, last=float(days.max()))


def _categories(name: str, labels: Sequence[str | None], numbers: bool, identifier: bool) -> Column:
    """A column of categories: common texts have an input each; rare and unseen ones share one."""
    counts = Counter(label for label in labels if label is not None)
    present = sum(counts.values())
    lacking = len(labels) - present
    if len(counts) == 1 and not lacking:
        label, why = next(iter(counts)), f"it is {next(iter(counts))!r} in every row"
        return Column(name, "left out", categories=(label,), why=why, numbers=numbers)
    if identifier and len(counts) > max(20, present // 2):
        why = f"{counted(len(counts), 'different text')} in {counted(present, 'row')} are no categories"
        why += "; to use them: --keep"
        return Column(name, "left out", why=why)
    least = min(_ENOUGH, max(2, present // 200))
    most = min(_MOST_CATEGORIES, max(_USUAL_CATEGORIES, present // 10))
    common = [label for label, count in counts.most_common(most) if count >= least]
    # A text of the data that is one of our own words means what that word means.
    common = sorted(set(common) - {MISSING, OTHER})
    rest = [label for label, _ in counts.most_common() if label not in common]
    why = counted(len(common), "category", "categories")
    if rest:
        why += f", and {counted(len(rest), 'rare one')} as one"
    if lacking:
        own = "is one of its own" if lacking == 1 else "are one of their own"
        why += f"; {counted(lacking, 'missing cell')} {own}"
    kept = (*common, *([OTHER] if rest else []), *([MISSING] if lacking else []))
    return Column(name, "category", categories=kept, rare=tuple(rest[:MOST_RARE]), why=why, numbers=numbers)
