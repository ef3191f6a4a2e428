"""What a person asks of a table's columns: options of a command, and a schema that was edited."""

from __future__ import annotations

import difflib
import json
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from bayesdrop.tables.columns import Column, Kind, Schema, Task, listed
from bayesdrop.tables.infer import Wish
from bayesdrop.tables.spelling import DATES, NUMBERS, ZERO_ONE

__all__ = ["EditedSchema", "check_known", "read_schema", "ways_of", "wishes_for"]

#: by kind, the fields of a column that mean something, besides `name`, `kind` and `why`
_FIELDS = {
    "numeric": {"format", "fill", "marked"},
    "boolean": {"fill", "marked"},
    "category": {"categories", "rare", "numbers"},
    "date": {"format", "fill", "marked", "last"},
    "left out": {"format", "categories", "numbers"},
    None: {"format"},
}
_DEFAULTS = {one.name: one.default for one in fields(Column)}

#: options that cannot be asked of the target, and what may be meant instead
_NOT_OF_TARGETS = {
    "categorical": "Its values are labels with --task classification.",
    "ignore": "",
    "keep": "It is always kept.",
    "dates": "A target of dates must be made a number first: days, or a year.",
}


@dataclass(frozen=True)
class EditedSchema:
    """What a schema file says; the rest is inferred from the cells.

    Attributes:
        path: the file, for errors.
        columns: what is asked of columns, by name.
        said: what it says of the table, by field: target, task, missing_marks, classes, target_format.
    """

    path: str
    columns: Mapping[str, Wish]
    said: Mapping[str, Any] = field(default_factory=dict)


def read_schema(path: str | os.PathLike[str]) -> EditedSchema:
    """Read a schema: one of a model folder, or one that `bayesdrop inspect --save` wrote, edited or not.

    Fields that are not there are inferred from the cells; fields that are not known are errors.

    Args:
        path: a JSON file.
    """
    path = Path(path)
    try:
        state = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}.") from None
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{path} must be a schema in JSON; it cannot be read ({why}).") from error
    if not isinstance(state, dict) or not isinstance(state.get("columns", []), list):
        raise ValueError(f'{path} must be a schema: an object with "columns", a list of objects.')
    _check_fields(state, [one.name for one in fields(Schema)], f"{path}: the schema")
    _check_table(path, state)
    wishes: dict[str, Wish] = {}
    for place, row in enumerate(state.get("columns", [])):
        name = row.get("name") if isinstance(row, dict) else None
        if not isinstance(name, str):
            raise ValueError(f'{path}: column {place + 1} of the schema must be an object with a "name".')
        if name in wishes:
            raise ValueError(f"{path}: column {name!r} is there twice.")
        wishes[name] = _wish(row, f"{path}: column {name!r}")
    said = {name: value for name, value in state.items() if name not in ("columns", "why_task")}
    return EditedSchema(str(path), wishes, said)


def _check_fields(given: Mapping[str, Any], known: Sequence[str], owner: str) -> None:
    """Raise if there is a field that is not known."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"The fields are {', '.join(known)}."
            raise ValueError(f"{owner} has no field {name!r}. {hint}")


def _check_table(path: Path, state: Mapping[str, Any]) -> None:
    """Raise if what is said of the table is not of the right type."""
    wanted: dict[str, tuple[str, Any]] = {
        "target": ("a text", lambda value: isinstance(value, str)),
        "task": (f"one of {', '.join(get_args(Task))}", lambda value: value in get_args(Task)),
        "missing_marks": ("a list of texts", _are_texts),
        "classes": ("a list of texts", _are_texts),
        "target_format": (f"one of {', '.join(NUMBERS)}", lambda value: value in ("", *NUMBERS)),
    }
    for name, (want, fits) in wanted.items():
        if name in state and not fits(state[name]):
            raise ValueError(f"{path}: `{name}` must be {want}; got {state[name]!r}.")


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wish(row: Mapping[str, Any], owner: str) -> Wish:
    """What one column of the file asks for."""
    _check_fields(row, list(_DEFAULTS), owner)
    kind = row.get("kind")
    if kind is not None and kind not in get_args(Kind):
        raise ValueError(f"{owner}: `kind` must be one of {', '.join(get_args(Kind))}; got {kind!r}.")
    ways = {"numeric": (*NUMBERS, ZERO_ONE), "date": (*DATES,)}.get(kind or "", (*NUMBERS, *DATES))
    wanted: dict[str, tuple[str, Any]] = {
        "why": ("a text", lambda value: isinstance(value, str)),
        "fill": ("a number", _is_number),
        "last": ("a number", _is_number),
        "marked": ("true or false", lambda value: isinstance(value, bool)),
        "numbers": ("true or false", lambda value: isinstance(value, bool)),
        "categories": ("a list of texts", _are_texts),
        "rare": ("a list of texts", _are_texts),
        "format": (f"one of {', '.join(ways)}", lambda value: value in ("", *ways)),
    }
    found: dict[str, Any] = {}
    for name, (want, fits) in wanted.items():
        if name not in row:
            continue
        value = row[name]
        if not fits(value):
            raise ValueError(f"{owner}: `{name}` must be {want}; got {value!r}.")
        value = tuple(value) if isinstance(value, list) else value
        if name == "why":
            continue
        if name in _FIELDS[kind]:
            found[name] = value
        elif value != _DEFAULTS[name]:
            what = "a column without a kind" if kind is None else f"a column that is {kind}"
            raise ValueError(f"{owner}: {what} has no `{name}`.")
    if kind == "category" and found.get("categories") == ():
        raise ValueError(f"{owner}: `categories` must be at least one text; got none.")
    way = found.pop("format", "")
    numbers, dates = (way if way in (*NUMBERS, ZERO_ONE) else ""), (way if way in DATES else "")
    if kind == "left out" and way:
        found["format"] = way
    return Wish(kind, numbers, dates, fields=found)


def ways_of(given: Sequence[str], known: Collection[str], option: str) -> dict[str, str]:
    """Ways to write numbers or dates: "1.234,5" for all columns (under ""), "price=1.234,5" for one.

    Args:
        given: values of the option.
        known: the ways that there are.
        option: its name, for errors.

    Returns: ways by name of column.
    """
    found: dict[str, str] = {}
    for text in given:
        name, _, way = text.rpartition("=")
        if way not in known:
            ways = ", ".join(known)
            raise ValueError(f"{option} must be one of {ways}, or column=one of them; got {text!r}.")
        found[name] = way
    return found


def check_known(asked: Collection[str], names: Sequence[str], owner: str = "") -> None:
    """Raise if a column that was asked for is not there, and name the one that may be meant.

    Args:
        asked: names of columns.
        names: of the columns that are there.
        owner: put before the error.
    """
    for name in asked:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"The columns are {listed(names, 6)}."
            raise ValueError(f"{owner}there is no column {name!r}. {hint}")


def wishes_for(
    names: Sequence[str],
    *,
    target: str | None = None,
    categorical: Collection[str] = (),
    ignore: Collection[str] = (),
    keep: Collection[str] = (),
    numbers: Mapping[str, str] | None = None,
    dates: Mapping[str, str] | None = None,
    edited: EditedSchema | None = None,
) -> dict[str, Wish]:
    """What is asked of every column, by name. Options overrule a schema file.

    Args:
        names: of the columns.
        target: the column to predict, which none of these can be asked of.
        categorical: columns whose numbers are categories.
        ignore: columns to leave out.
        keep: columns to use, even if they look like identifiers of rows.
        numbers: ways to write numbers, by column; "" stands for all others.
        dates: ways to write dates, likewise.
        edited: what a schema file says.
    """
    numbers, dates = numbers or {}, dates or {}
    twice = [name for name, count in Counter([*set(categorical), *set(ignore)]).items() if count > 1]
    if twice:
        raise ValueError(f"column {twice[0]!r} cannot be both left out and a category.")
    check_known([*categorical, *ignore, *keep], names)
    given = {"categorical": categorical, "ignore": ignore, "keep": keep, "dates": dates}
    for option, hint in _NOT_OF_TARGETS.items():
        if target is not None and target in given[option]:
            raise ValueError(
                f"--{option} must name another column than the target, {target!r}. {hint}".rstrip()
            )
    check_known([name for name in (*numbers, *dates) if name], names)
    if edited is not None:
        said = edited.said.get("target")
        check_known([*edited.columns, *([said] if said else [])], names, f"{edited.path}: ")
    wishes = {}
    for name in names:
        wish = Wish() if edited is None else edited.columns.get(name, Wish())
        if "" in numbers and not wish.numbers:
            wish = replace(wish, numbers=numbers[""])
        if "" in dates and not wish.dates:
            wish = replace(wish, dates=dates[""])
        if name in numbers:
            wish = replace(wish, kind="numeric", numbers=numbers[name])
        if name in dates:
            wish = replace(wish, kind="date", dates=dates[name])
        if name in keep:
            wish = replace(wish, kind=None if wish.kind == "left out" else wish.kind, keep=True)
        for kind, asked in (("category", categorical), ("left out", ignore)):
            if name in asked:
                wish = Wish(kind)  # type: ignore[arg-type]
        wishes[name] = wish
    return wishes
