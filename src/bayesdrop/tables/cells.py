"""From the cells of a column, text or typed, to numbers, truth values and labels."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.errors import require
from bayesdrop.harmless import NUMBER
from bayesdrop.tables.spelling import DIGITS, ISO, PLAIN, ZERO_ONE, parsed_dates, plain_number, with_hyphen

__all__ = [
    "Array",
    "Flags",
    "as_days",
    "as_labels",
    "as_numbers",
    "as_truths",
    "day_of",
    "first_bad",
    "is_text",
    "is_truth",
    "missing_cells",
    "present_texts",
    "type_of",
]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Texts = NDArray[np.object_]

#: texts that stand for nothing, in lower case
_MISSING = frozenset({"", "na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "null", "none", "nil"})
#: what spreadsheets and people write for true and false, in lower case: English, German, French, Spanish,
#: Italian, Portuguese, Dutch, Polish and Swedish
_TRUE = frozenset(
    {"true", "yes", "t", "y", "1", "1.0", "wahr", "ja", "vrai", "oui", "verdadero", "sí", "si", "vero", "sì"}
    | {"verdadeiro", "sim", "waar", "prawda", "tak", "sant"}
)
_FALSE = frozenset(
    {"false", "no", "f", "n", "0", "0.0", "falsch", "nein", "faux", "non", "falso", "não", "nao"}
    | {"onwaar", "nee", "fałsz", "nie", "falskt", "nej"}
)
#: microseconds of a day
_DAY = 86_400_000_000


# below, `series` is a pandas column, N its cells, and `marks` are further texts that mean "missing"


def is_text(series: Any) -> bool:
    """Whether the cells are texts, as all cells of a CSV are."""
    types = require("pandas", extra="tables", owner="bayesdrop.tables").api.types
    return not (types.is_numeric_dtype(series.dtype) or types.is_bool_dtype(series.dtype))


def type_of(series: Any) -> str:
    """What a typed column holds: "truths", "dates", "clocks" (times of a day, durations), or "other".

    A CSV has no types: its columns are "other".
    """
    name = str(series.dtype).lower()
    if name.startswith("bool"):
        return "truths"
    if name.startswith(("timestamp", "date")) or "datetime" in name:
        return "dates"
    return "clocks" if name.startswith(("time", "duration")) else "other"


def missing_cells(series: Any, marks: Collection[str] = ()) -> Flags:
    """(N,) which cells are empty or say so: "", NA, N/A, NaN, null, None, and further marks."""
    if is_text(series):
        return _missing_texts(_texts(series), marks)
    empty: Flags = series.isna().to_numpy(dtype=bool)
    # To pandas, a NaN of a typed column is not always missing.
    return empty | np.isnan(_typed_numbers(series))


def as_numbers(series: Any, marks: Collection[str] = (), way: str = PLAIN) -> tuple[Array, Flags]:
    """(N,) the cells as numbers, NaN where they are missing, and (N,) which cells are neither.

    An infinite cell stays infinite and counts as one that is neither.

    Args:
        series: a pandas column; `way` is for texts, and does not matter to a column of typed numbers.
        marks: further texts that mean "missing".
        way: how numbers are written, one of `spelling.NUMBERS`, or `ZERO_ONE`: true, no, ... are 1 and 0 too.
    """
    if not is_text(series):
        values = _typed_numbers(series)
        return values, np.isinf(values)
    pandas = require("pandas", extra="tables", owner="bayesdrop.tables")
    texts = _texts(series)
    missing = _missing_texts(texts, marks)
    texts[:] = [with_hyphen(text) if "\u2212" in text else text for text in texts]
    if way not in (PLAIN, ZERO_ONE):
        texts[:] = [_rewritten(text, way) for text in texts]
    texts[missing] = None
    # To the parser a NUL is the end of the text: "1\0kg" would be 1.
    texts[_each(texts, lambda text: text is not None and "\0" in text)] = "not a number"
    parsed = pandas.to_numeric(texts, errors="coerce")
    values = np.where(missing, np.nan, np.asarray(parsed, dtype=np.float64))
    bad: Flags = ~missing & ~np.isfinite(values)
    if way == ZERO_ONE and bad.any():
        truths, neither = as_truths(series, marks)
        words = bad & ~neither
        values, bad = np.where(words, truths, values), bad & neither
    return values, bad


def _rewritten(text: str, way: str) -> str:
    """A number as Python writes it; "not a number" if it is written otherwise; other texts as they are."""
    plain = plain_number(text, way)
    if plain is not None:
        return plain
    return "not a number" if NUMBER.fullmatch(text) else text


def as_days(series: Any, marks: Collection[str] = (), way: str = ISO) -> tuple[Array, Flags]:
    """(N,) dates as days since 1970-01-01, NaN where they are missing, and (N,) which cells are neither.

    Args:
        series: a pandas column; `way` is for texts, and does not matter to a column of typed dates.
        marks: further texts that mean "missing".
        way: how dates are written, one of `spelling.DATES`; 2024-03-31 is read in any case.
    """
    if type_of(series) == "dates":
        moments = _typed_moments(series)
        bad: Flags = np.zeros(len(moments), dtype=bool)
    elif is_text(series):
        labels = _texts(series)
        labels[_missing_texts(labels, marks)] = None
        moments, bad = parsed_dates(labels.tolist(), way)
    elif way == DIGITS:
        moments, bad = parsed_dates(as_labels(series, marks).tolist(), way)
    else:
        values = _typed_numbers(series)
        return np.full(len(values), np.nan), ~np.isnan(values)
    days: Array = moments.astype(np.int64) / _DAY
    days[np.isnat(moments)] = np.nan
    return days, bad


def day_of(days: float) -> str:
    """The date so many days after 1970-01-01, with its time unless that is midnight.

    >>> day_of(19783.5), day_of(0)
    ('2024-03-01 12:00:00', '1970-01-01')
    """
    moment = np.datetime64(round(days * _DAY), "us")
    text = str(np.datetime_as_string(moment, unit="s")).replace("T", " ")
    return text.removesuffix(" 00:00:00")


def _typed_moments(series: Any) -> NDArray[np.datetime64]:
    """Dates and times of any resolution and zone, in microseconds of UTC."""
    arrow = require("pyarrow", extra="tables", owner="bayesdrop.tables")
    try:
        moments = arrow.Array.from_pandas(series).cast(arrow.timestamp("us"), safe=False)
    except arrow.ArrowException as error:
        said = " ".join(str(error).split())
        raise ValueError(f"column {series.name!r} has dates that cannot be read ({said}).") from error
    found: NDArray[np.datetime64] = moments.to_numpy(zero_copy_only=False)
    return found


def as_truths(series: Any, marks: Collection[str] = ()) -> tuple[Array, Flags]:
    """(N,) cells (true, no, F, 1, ...) as 1 and 0, NaN where missing, and (N,) which cells are neither."""
    if is_text(series):
        texts = _texts(series)
        missing = _missing_texts(texts, marks)
        true = _each(texts, lambda text: text.lower() in _TRUE)
        false = _each(texts, lambda text: text.lower() in _FALSE)
    else:
        values = _typed_numbers(series)
        missing, true, false = np.isnan(values), values == 1, values == 0
    bad: Flags = ~missing & ~true & ~false
    return np.where(missing | bad, np.nan, true.astype(np.float64)), bad


def as_labels(series: Any, marks: Collection[str] = (), *, numbers: bool = False) -> Texts:
    """(N,) cells as texts without space around them, None where they are missing.

    Args:
        series: a pandas column.
        marks: further texts that mean "missing".
        numbers: whether the labels are numbers, so that "1", "1.0" and " 1" are the same; whole numbers keep
            all their digits.
    """
    missing = missing_cells(series, marks)
    labels = _texts(series)
    if type_of(series) == "dates":
        days = as_days(series)[0]
        labels[~missing] = [day_of(day) for day in days[~missing]]
    elif numbers or not (is_text(series) or type_of(series) == "truths"):
        for place in np.flatnonzero(~missing):
            labels[place] = _plain(labels[place])
    labels[missing] = None
    return labels


def present_texts(series: Any, marks: Collection[str] = ()) -> list[str]:
    """The texts of cells that are not missing, without space around them."""
    texts = _texts(series)
    kept: list[str] = texts[~_missing_texts(texts, marks)].tolist()
    return kept


def is_truth(text: str) -> bool | None:
    """Whether a text means true (yes, T, 1, ...) or false (no, F, 0, ...); None if it means neither."""
    word = text.lower()
    return True if word in _TRUE else False if word in _FALSE else None


def first_bad(series: Any, bad: Flags) -> str:
    """The first cell that is wrong, its row, and how many others are: "'abc' in row 3 and 4 others"."""
    places = np.flatnonzero(bad)
    row = int(series.index[places[0]]) + 1
    more = f" and {len(places) - 1:,} others" if len(places) > 1 else ""
    cell = repr(series.iloc[places[0]])
    return f"{cell if len(cell) <= 80 else cell[:77] + '...'} in row {row:,}{more}"


def _plain(text: str) -> str:
    """A number in the one way that it is written: "1.0" as "1"; other texts as they are."""
    number = with_hyphen(text)
    if not NUMBER.fullmatch(number):
        return text
    text = number
    try:
        value = Decimal(text)
    except InvalidOperation:  # an exponent of more digits than a Decimal has
        return text
    # As it is written: 1e300 is not to become 1 and 300 zeros.
    if value.adjusted() >= 40:
        return text
    return str(int(value)) if value == value.to_integral_value() else repr(float(value))


def _typed_numbers(series: Any) -> Array:
    """(N,) numbers of a typed column, in memory that may be written to; NaN where they are missing."""
    values: Array = series.to_numpy(dtype=np.float64, na_value=np.nan)
    # The memory of an Arrow column is read-only.
    return np.require(values, requirements="W")


def _texts(series: Any) -> Texts:
    """(N,) every cell as a text without space around it; "" for those that pandas calls missing."""
    cells = series.to_numpy(dtype=object)
    made = np.empty(len(cells), dtype=object)
    made[:] = [cell.strip() if isinstance(cell, str) else str(cell).strip() for cell in cells]
    made[series.isna().to_numpy(dtype=bool)] = ""
    return made


def _missing_texts(texts: Texts, marks: Collection[str]) -> Flags:
    return _each(texts, lambda text: text.lower() in _MISSING or text in marks)


def _each(texts: Texts, test: Any) -> Flags:
    return np.fromiter(map(test, texts), dtype=bool, count=len(texts))
