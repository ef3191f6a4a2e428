"""inspect_table(): how a table would be read and what becomes of its columns, before anything is fitted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bayesdrop.tables.cells import (
    as_days,
    as_labels,
    as_numbers,
    is_text,
    missing_cells,
    present_texts,
    type_of,
)
from bayesdrop.tables.columns import Column
from bayesdrop.tables.habits import Habits
from bayesdrop.tables.infer import Wish, far_hint, infer_column, unit_hint
from bayesdrop.tables.schema import check_target, infer_task, target_way
from bayesdrop.tables.spelling import DIGITS, PLAIN, unit_of
from bayesdrop.tables.wishes import EditedSchema, check_known, wishes_for
from bayesdrop.tables.written import counted

__all__ = ["Inspected", "Inspection", "inspect_table"]

_EXAMPLES, _LONGEST = 3, 24
_JUDGED = "other columns are judged by the rest"


@dataclass(frozen=True)
class Inspected:
    """One column of a table, as it would be read.

    Attributes:
        name: in the header.
        kind: "numeric", "boolean", "category", "date", "left out", "target", or "?" if it cannot be read.
        how: how its cells are read: the type of a typed column, an example of how texts are written.
        missing: how many cells are missing, of rows that have a target if it is known.
        values: how many different values the others have.
        examples: the first of these.
        becomes: what would be made of it.
        inputs: how many inputs of the networks it would become.
        warnings: what to look at; errors that a fit would stop with are among them.
    """

    name: str
    kind: str
    how: str
    missing: int
    values: int
    examples: tuple[str, ...]
    becomes: str
    inputs: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inspection:
    """What `inspect_table` found.

    Attributes:
        rows: of the table.
        columns: all of them, in their order.
        schema: a schema to edit, which `bayesdrop fit --schema` takes.
    """

    rows: int
    columns: tuple[Inspected, ...]
    schema: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """As values that JSON can hold."""
        return asdict(self)


def inspect_table(
    frame: Any,
    *,
    target: str | None = None,
    task: str = "auto",
    missing: Collection[str] = (),
    categorical: Collection[str] = (),
    ignore: Collection[str] = (),
    keep: Collection[str] = (),
    numbers: Mapping[str, str] | None = None,
    dates: Mapping[str, str] | None = None,
    schema: EditedSchema | None = None,
) -> Inspection:
    """How a table would be read. A column that cannot be read has a warning, and stops nothing.

    Args:
        frame: a pandas frame.
        target: name of the column to predict, if it is known.
        task: "auto", "regression" or "classification".
        missing: texts that mean "missing".
        categorical: columns whose numbers are categories.
        ignore: columns to leave out.
        keep: columns to use, even if they look like identifiers of rows.
        numbers: how numbers are written, by column; "" stands for all others.
        dates: how dates are written, likewise.
        schema: what a file says of the columns.
    """
    names = list(frame.columns)
    said = {} if schema is None else schema.said
    target = target or said.get("target")
    asked = {"categorical": categorical, "ignore": ignore, "keep": keep}
    wishes = wishes_for(names, target=target, numbers=numbers, dates=dates, edited=schema, **asked)
    check_known([] if target is None else [target], names)
    marks = tuple(dict.fromkeys((*missing, *said.get("missing_marks", ()))))
    rows = len(frame)
    whole = frame
    # A fit leaves rows without a target out before it looks at anything else.
    if target is not None and not (lacking := missing_cells(frame[target], marks)).all():
        frame = frame[~lacking]
    habits = Habits(frame, marks)
    state: dict[str, Any] = {"missing_marks": list(marks), "columns": []}
    columns = []
    for name in names:
        series = frame[name]
        if name == target:
            way = (numbers or {}).get(name) or said.get("target_format", "") or (numbers or {}).get("", "")
            wanted = said.get("task", "auto") if task == "auto" else task
            found, about = _target(whole[name], marks, habits, wanted, way)
            state = {"target": target, **about, **state}
        else:
            found, row = _column(series, marks, habits, wishes[name])
            state["columns"].append(row)
        columns.append(found)
    return Inspection(rows, tuple(columns), state)


def _column(
    series: Any, marks: Collection[str], habits: Habits, wish: Wish
) -> tuple[Inspected, dict[str, Any]]:
    """A column as it would be read, and its row in the schema."""
    name = str(series.name)
    facts = _facts(series, marks)
    try:
        column = infer_column(series, marks, wish=wish, habits=habits)
    except ValueError as error:
        found = Inspected(
            name, "?", _how(series, None), **facts, becomes="", inputs=0, warnings=(str(error),)
        )
        return found, {"name": name, "why": str(error)}
    warnings = []
    if facts["missing"] * 2 > len(series):
        warnings.append("more than half of its cells are missing")
    if column.kind == "numeric" and _are_digits(series, marks):
        warnings.append(f"its numbers may be dates; then: --dates '{name}={DIGITS}'")
    unit = unit_of(present_texts(series, marks)) if is_text(series) else None
    if unit is not None and column.kind in ("category", "left out"):
        warnings.append(unit_hint(unit))
    elif column.kind == "left out" and "--" in column.why:
        warnings.append(column.why)
    found = Inspected(
        name,
        column.kind,
        _how(series, column),
        **facts,
        becomes=column.why or "1 for true, 0 for false",
        inputs=column.width,
        warnings=tuple(warnings),
    )
    row: dict[str, Any] = {"name": name, "kind": column.kind}
    if column.format:
        row["format"] = column.format
    # A column that never changed keeps its value, so that a model can tell when it does change.
    if column.kind == "left out" and column.categories:
        row |= {"categories": list(column.categories), "numbers": column.numbers}
    return found, row | {"why": column.why}


def _target(
    series: Any, marks: Collection[str], habits: Habits, task: str, way: str
) -> tuple[Inspected, dict[str, Any]]:
    """The target as it would be read, and what the schema says of it."""
    name, facts = str(series.name), _facts(series, marks)
    present = series[~missing_cells(series, marks)]
    about: dict[str, Any] = {}
    becomes, warnings = "", []
    try:
        if not len(present):
            raise ValueError(f"target {name!r} has no value in any row.")
        if not way and task != "classification":
            way = target_way(present, marks, habits)
        kind, numbers, why = infer_task(present, marks, task, len(present), way)
        becomes = f"{kind}: {why}"
        if kind == "classification":
            check_target(name, kind, as_labels(present, marks, numbers=numbers))
        elif far := far_hint(as_numbers(present, marks, way or PLAIN)[0]):
            warnings.append(far)
        about = {"task": kind} | ({"target_format": way} if way and kind == "regression" else {})
    except ValueError as error:
        warnings.append(str(error))
    numbers_are_read = way or about.get("task") == "regression"
    how = _how(series, Column(name, "numeric", format=way) if numbers_are_read else None)
    if facts["missing"]:
        warnings.append(f"{counted(facts['missing'], 'row')} without a target would be left out: {_JUDGED}")
    return Inspected(name, "target", how, **facts, becomes=becomes, inputs=0, warnings=tuple(warnings)), about


def _facts(series: Any, marks: Collection[str]) -> dict[str, Any]:
    """`missing`, `values` and `examples` of a column."""
    labels = as_labels(series, marks)
    present = labels[np.array([label is not None for label in labels], dtype=bool)]
    distinct = list(dict.fromkeys(present.tolist()))
    examples = tuple(
        text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..." for text in distinct[:_EXAMPLES]
    )
    return {"missing": len(labels) - len(present), "values": len(distinct), "examples": examples}


def _are_digits(series: Any, marks: Collection[str]) -> bool:
    """Whether all numbers may be dates such as 20240331, from 1900 to 2100."""
    days, bad = as_days(series, marks, DIGITS)
    years = 1970 + days[~np.isnan(days)] / 365.25
    return not bad.any() and len(years) > 0 and bool((years > 1900).all() and (years < 2100).all())


def _how(series: Any, column: Column | None) -> str:
    """How the cells of a column are read; None for a column that cannot be."""
    if type_of(series) != "other" or not is_text(series):
        return str(series.dtype).removesuffix("[pyarrow]")
    if column is None or column.kind in ("category", "left out"):
        return "text"
    return column.format or {"boolean": "true, false", "numeric": PLAIN}.get(column.kind, "text")
