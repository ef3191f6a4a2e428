"""Settings of an experiment: given by name, as on the command line, and picked for the keys of pieces."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from bayesdrop.errors import must
from bayesdrop.experiments.registry import unknown

__all__ = ["all_but", "picked", "with_settings"]

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def picked(config: Any, *names: str) -> dict[str, Any]:
    """Some settings by name: what a piece depends on."""
    return {name: getattr(config, name) for name in names}


def all_but(config: Any, *names: str) -> dict[str, Any]:
    """All settings by name, but for some."""
    return {name: value for name, value in asdict(config).items() if name not in names}


def with_settings(config: Any, settings: Mapping[str, Any]) -> Any:
    """A copy of a configuration with some fields set.

    Args:
        config: a frozen dataclass.
        settings: values by field; a string is read as the field's type says: "3" as 3, "boston,yacht" as
            ("boston", "yacht"), "none" as None.
    """
    hints = typing.get_type_hints(type(config))
    known = {field.name: hints[field.name] for field in fields(config) if field.init}
    values = {}
    for name, value in settings.items():
        if name not in known:
            raise ValueError(unknown("setting", name, known))
        values[name] = _read(name, value, known[name]) if isinstance(value, str) else value
    return replace(config, **values)


def _read(name: str, text: str, hint: Any) -> Any:
    """A text as a value of a field's type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if type(None) in arguments and text.lower() == "none":
            return None
        return _first_that_fits(name, text, [part for part in arguments if part is not type(None)])
    if origin is tuple:
        parts = [part.strip() for part in text.strip("()").split(",") if part.strip()]
        kinds = [arguments[0]] * len(parts) if arguments[-1] is Ellipsis else list(arguments)
        if len(kinds) != len(parts):
            raise ValueError(must("--set", name, f"{len(kinds)} values with commas between", text))
        return tuple(_read(name, part, kind) for part, kind in zip(parts, kinds, strict=True))
    if origin is typing.Literal:
        return _one_of(name, text, arguments)
    if hint is bool:
        if text.lower() not in _WORDS:
            raise ValueError(must("--set", name, "true or false", text))
        return _WORDS[text.lower()]
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError as error:
            kind = "a whole number" if hint is int else "a number"
            raise ValueError(must("--set", name, kind, text)) from error
    if hint is str:
        return text
    raise ValueError(f"--set: `{name}` cannot be set from text; it is a {hint}.")


def _one_of(name: str, text: str, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if str(choice) == text:
            return choice
    raise ValueError(must("--set", name, f"one of {', '.join(map(str, choices))}", text))


def _first_that_fits(name: str, text: str, hints: list[Any]) -> Any:
    # Text fits str always, so it is the last to be tried.
    ordered = sorted(hints, key=lambda hint: hint is str)
    for hint in ordered[:-1]:
        try:
            return _read(name, text, hint)
        except ValueError:
            continue
    return _read(name, text, ordered[-1])
