"""What `Preparer` does with cells, as nodes of an ONNX graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bayesdrop.errors import require
from bayesdrop.export.nodes import Writer
from bayesdrop.tables.columns import MISSING, OTHER, Column, Schema

__all__ = ["PreparedNodes", "write_inputs"]

#: texts of a missing cell, as they are usually written
_EMPTY = ("", "na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "null", "none", "nil")
#: what an infinite cell counts as
_LARGEST = float(np.finfo(np.float64).max)
#: codes of texts that are no category: missing, never seen, rare in a table without `OTHER`
_MISSING, _NEW, _RARE = -1, -2, -3


@dataclass
class PreparedNodes:
    """The inputs (N, K) of the networks, in double precision, and which rows are outside what was learned.

    Attributes:
        given: inputs of the graph.
        parts: names of values (N, 1) or (N, categories) that are the inputs of the networks, in order.
        outside: names of truth values (N, 1): a row is outside if any of them is true.
        kinds: what every input of the graph is, by its name, for the file's description.
    """

    given: list[Any] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)


def write_inputs(w: Writer, schema: Schema) -> PreparedNodes:
    """Write nodes that make the inputs of the networks from the cells of a table.

    Args:
        w: the graph.
        schema: what the columns are.
    """
    made = PreparedNodes()
    for column in schema.used:
        if column.kind == "category":
            _category(w, column, schema, made)
        else:
            _number(w, column, made)
    return made


def _input(made: PreparedNodes, name: str, kind: int, what: str) -> str:
    """Add an input to the graph; `kind` is ONNX's number of a type."""
    helper = require("onnx.helper", extra="onnx", owner="export")
    if not name or name in made.kinds:
        raise ValueError(f"export: column {name!r} has no name that an ONNX file could give its input.")
    made.given.append(helper.make_tensor_value_info(name, kind, ["N", 1]))
    made.kinds[name] = what
    return name


def _double(w: Writer, value: float) -> str:
    return w.constant(value, torch.float64)


def _number(w: Writer, column: Column, made: PreparedNodes) -> None:
    what = {"numeric": "number", "boolean": "1 for true, 0 for false", "date": "days since 1970-01-01"}[
        column.kind
    ]
    name = _input(made, column.name, 11, f"{what}; NaN if it is missing")
    missing = w.node("IsNaN", name)
    filled = w.node("Where", missing, _double(w, column.fill), name)
    filled = w.node("Max", w.node("Min", filled, _double(w, _LARGEST)), _double(w, -_LARGEST))
    made.parts += _date(w, filled, column.last) if column.kind == "date" else [filled]
    if column.kind == "boolean":
        # A number other than 0 and 1, which tables refuse, is outside here.
        true = w.node("Equal", filled, _double(w, 1.0))
        false = w.node("Equal", filled, _double(w, 0.0))
        made.outside.append(w.node("Not", w.node("Or", w.node("Or", true, false), missing)))
    if column.marked:
        made.parts.append(w.node("Cast", missing, to=11))
    else:
        made.outside.append(missing)


def _date(w: Writer, days: str, last: float) -> list[str]:
    """Age, year, month, weekday and day of the year, by the arithmetic of the calendar."""

    def over(name: str, number: float) -> str:
        return w.node("Floor", w.node("Div", name, _double(w, number)))

    def times(name: str, number: float) -> str:
        return w.node("Mul", name, _double(w, number))

    def plus(name: str, number: float) -> str:
        return w.node("Add", name, _double(w, number))

    def minus(one: str, two: str) -> str:
        return w.node("Sub", one, two)

    def add(one: str, two: str) -> str:
        return w.node("Add", one, two)

    whole = w.node("Floor", days)
    # Years that begin in March, so that a leap day is their last, in eras of 400 years from the year 0 on.
    since = plus(whole, 719468)
    era = over(since, 146097)
    day = minus(since, times(era, 146097))
    fixed = minus(add(minus(day, over(day, 1460)), over(day, 36524)), over(day, 146096))
    in_era = over(fixed, 365)
    past = minus(add(times(in_era, 365), over(in_era, 4)), over(in_era, 100))
    of_march = minus(day, past)
    place = over(plus(times(of_march, 5), 2), 153)
    late = w.node("Less", place, _double(w, 10.0))
    month = w.node("Where", late, plus(place, 3), plus(place, -9))
    early = w.node("Cast", w.node("Less", month, _double(w, 2.5)), to=11)
    year = add(add(in_era, times(era, 400)), early)
    before = plus(year, -1)
    first = add(minus(add(times(before, 365), over(before, 4)), over(before, 100)), over(before, 400))
    of_year = plus(minus(whole, plus(first, -719162)), 1)
    week = plus(whole, 3)
    weekday = minus(week, times(over(week, 7), 7))
    age = minus(_double(w, last), days)
    return [age, year, month, weekday, of_year]


def _category(w: Writer, column: Column, schema: Schema, made: PreparedNodes) -> None:
    what = "text, as it stands in the table without space around it; empty if it is missing"
    name = _input(made, column.name, 8, what)
    places = {label: place for place, label in enumerate(column.categories)}
    keys: dict[str, int] = {}
    for label, place in places.items():
        if label not in (MISSING, OTHER):
            keys |= dict.fromkeys(_spellings(label, column), place)
    for label in column.rare:
        for text in _spellings(label, column):
            keys.setdefault(text, places.get(OTHER, _RARE))
    for mark in (*schema.missing_marks, *_EMPTY):
        for text in {mark, mark.upper(), mark.capitalize(), "NaN" if mark == "nan" else mark}:
            keys[text] = _MISSING
    found = w.node(
        "LabelEncoder",
        name,
        domain="ai.onnx.ml",
        keys_strings=list(keys),
        values_int64s=list(keys.values()),
        default_int64=_NEW,
    )
    missing = w.node("Equal", found, w.constant(_MISSING, torch.int64))
    new = w.node("Equal", found, w.constant(_NEW, torch.int64))
    made.outside.append(new)
    at = found
    if OTHER in places:
        at = w.node("Where", new, w.constant(places[OTHER], torch.int64), at)
    if MISSING in places:
        at = w.node("Where", missing, w.constant(places[MISSING], torch.int64), at)
    else:
        made.outside.append(missing)
    all_places = w.constant(torch.arange(len(places)).reshape(1, -1))
    made.parts.append(w.node("Cast", w.node("Equal", at, all_places), to=11))


def _spellings(label: str, column: Column) -> tuple[str, ...]:
    """The texts that mean a category: "7" and "7.0" where categories are whole numbers."""
    whole = column.numbers and label.lstrip("-").isdigit()
    return (label, f"{label}.0") if whole else (label,)
