"""What a model expects of a table, inferred from its cells: the task, and what becomes of every column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.tables.cells import as_numbers, first_bad, is_text, present_texts, type_of
from bayesdrop.tables.columns import (
    DATE_INPUTS,
    MISSING,
    MOST_RARE,
    OTHER,
    TRUTHS,
    Column,
    Kind,
    Schema,
    Task,
    listed,
)
from bayesdrop.tables.habits import Habits, number_way
from bayesdrop.tables.infer import MEND, Wish, infer_column, unit_hint
from bayesdrop.tables.spelling import PLAIN, date_ways, unit_of
from bayesdrop.tables.written import counted

__all__ = [
    "DATE_INPUTS",
    "MISSING",
    "MOST_RARE",
    "OTHER",
    "TRUTHS",
    "Column",
    "Kind",
    "Schema",
    "Task",
    "check_target",
    "infer_column",
    "infer_columns",
    "infer_task",
    "listed",
    "target_way",
]

#: distinct whole numbers of a target up to which it is taken for classes, and rows each must have on average
_FEW, _ROWS_EACH = 10, 5
_MOST_CLASSES = 200

# below, `series` is a pandas column and `marks` are texts that mean "missing"


def target_way(series: Any, marks: Collection[str], habits: Habits | None = None) -> str:
    """How the numbers of a target are written, one of `spelling.NUMBERS`; "" if plainly, or not numbers.

    Args:
        series: the target, without missing cells.
        marks: texts that mean "missing".
        habits: how other columns are written, if the target leaves it open.
    """
    way, _ = number_way(series, as_numbers(series, marks)[1], marks, habits, "target")
    return "" if way in (None, PLAIN) else str(way)


def infer_task(
    series: Any, marks: Collection[str], task: str, rows: int, way: str = ""
) -> tuple[Task, bool, str]:
    """Regression or classification, whether labels are numbers, and why.

    Args:
        series: the target, without missing cells.
        marks: texts that mean "missing".
        task: "auto", "regression" or "classification".
        rows: N.
        way: how its numbers are written; "" for `spelling.PLAIN`.
    """
    owner = f"target {series.name!r}"
    values, bad = as_numbers(series, marks, way or PLAIN)
    infinite = np.isinf(values)
    if task != "classification" and infinite.any() and (bad == infinite).all():
        raise ValueError(f"{owner} must be finite numbers; got {first_bad(series, infinite)}. {MEND}")
    if task == "regression":
        if bad.any():
            raise ValueError(f"{owner} must be numbers for --task regression; got {first_bad(series, bad)}.")
        return "regression", False, "as asked for"
    dates = type_of(series) == "dates" or (bad.all() and date_ways(present_texts(series, marks)))
    if task == "auto" and dates:
        raise ValueError(f"{owner} is dates; make a number of them first: days, or a year.")
    all_numbers = not bad.any() and type_of(series) != "truths"
    if task == "classification":
        return "classification", all_numbers and not way, "as asked for"
    if not all_numbers:
        if bad.mean() < 0.5 and is_text(series):
            raise ValueError(f"{owner} is numbers but for {first_bad(series, bad)}. {MEND}")
        unit = unit_of(present_texts(series, marks)) if is_text(series) else None
        why = "it is text or truth values" if unit is None else unit_hint(unit)
        return "classification", False, why
    distinct = np.unique(values)
    whole = bool((values == np.round(values)).all())
    if whole and len(distinct) <= min(_FEW, max(2, rows // _ROWS_EACH)):
        return "classification", not way, f"it has {counted(len(distinct), 'different whole number')}"
    return "regression", False, f"it has {counted(len(distinct), 'different number')}"


def check_target(name: str, task: Task, y: NDArray[Any]) -> None:
    """Raise if there is nothing to learn: a target that does not vary, or has too many classes."""
    distinct = Counter(y.tolist())
    if len(distinct) < 2:
        always = f"{next(iter(distinct))!r} in all {counted(len(y), 'row')}"
        raise ValueError(f"target {name!r} must vary; it is {always}.")
    if task == "classification" and len(distinct) > min(_MOST_CLASSES, len(y) // 2):
        hint = "Is it the column you meant? Numbers are fitted with --task regression."
        got = f"{len(distinct):,} of them in {counted(len(y), 'row')}"
        raise ValueError(f"target {name!r} must have a few classes with several rows each; got {got}. {hint}")


def infer_columns(
    frame: Any,
    target: str,
    *,
    categorical: Collection[str],
    ignore: Collection[str],
    marks: Collection[str],
    rows: NDArray[np.int64] | None = None,
    wishes: Mapping[str, Wish] | None = None,
) -> tuple[Column, ...]:
    """What becomes of every column but the target.

    Args:
        frame: what to learn it from.
        target: name of the target.
        categorical: columns whose numbers are categories.
        ignore: columns to leave out.
        marks: texts that mean "missing".
        rows: places of the rows to learn it from; all if None.
        wishes: what a person asks of columns, by name.
    """
    columns, habits = [], Habits(frame, marks)
    asked = {} if wishes is None else wishes
    for name in frame.columns:
        if name == target:
            continue
        wish = asked.get(name, Wish())
        if name in ignore:
            wish = replace(wish, kind="left out", fields={})
        series, whole = frame[name] if rows is None else frame[name].iloc[rows], frame[name]
        options: dict[str, Any] = {"wish": wish, "habits": habits, "whole": whole}
        columns.append(infer_column(series, marks, categorical=name in categorical, **options))
    if not any(column.width for column in columns):
        said = "; ".join(f"{column.name!r}: {column.why}" for column in columns[:5]) or "there are no others"
        raise ValueError(f"the table must have a column to predict {target!r} from; {said}.")
    return tuple(columns)
