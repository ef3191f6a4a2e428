"""The tensor of interest in what a model returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from bayesdrop.errors import must

__all__ = ["Output", "check_output", "checked_output", "picked"]

#: a name, a place, or a function of what the model returns
Output = str | int | Callable[[Any], Tensor]


def check_output(output: Any) -> None:
    """Raise if this cannot say which tensor is meant."""
    if output is not None and (
        isinstance(output, bool) or not (isinstance(output, str | int) or callable(output))
    ):
        raise TypeError(must("predict", "output", "a name, an index, a function, or None", output))


def picked(returned: Any, output: Output | None) -> Any:
    """The part of what a model returned that `output` names; `.logits` if it names none and there is one."""
    if output is None:
        logits = None if isinstance(returned, Tensor) else getattr(returned, "logits", None)
        return logits if isinstance(logits, Tensor) else returned
    if isinstance(output, str):
        return _by_name(returned, output)
    if isinstance(output, int):
        return _by_place(returned, output)
    return output(returned)


def _by_name(returned: Any, name: str) -> Any:
    if isinstance(returned, Mapping) and name in returned:
        return returned[name]
    if not isinstance(returned, Tensor) and hasattr(returned, name):
        return getattr(returned, name)
    names = list(returned) if isinstance(returned, Mapping) else list(getattr(returned, "_fields", ()))
    what = (
        f"one of {', '.join(map(repr, names))}"
        if names
        else f"None or a function: {_described(returned)} is returned"
    )
    raise ValueError(must("predict", "output", what, name))


def _by_place(returned: Any, place: int) -> Any:
    if isinstance(returned, Mapping) or hasattr(returned, "to_tuple"):
        returned = tuple(returned.values())
    if not isinstance(returned, tuple | list):
        what = f"None or a function: {_described(returned)} is returned"
        raise ValueError(must("predict", "output", what, place))
    if not -len(returned) <= place < len(returned):
        raise ValueError(must("predict", "output", f"the index of one of {len(returned)} outputs", place))
    return returned[place]


def checked_output(output: Any, rows: int) -> Tensor:
    """The tensor that was picked, one row for each row of the batch."""
    if not isinstance(output, Tensor):
        hint = "Say which tensor with `output=`: a name, an index, or a function of what the model returns."
        raise TypeError(must("predict", "model", "a model that returns one tensor", type(output), hint))
    if output.dim() < 1 or output.shape[0] != rows:
        raise ValueError(must("predict", "model", f"a model that returns {rows} rows", tuple(output.shape)))
    return output


def _described(value: Any) -> str:
    return "one tensor" if isinstance(value, Tensor) else f"a {type(value).__name__}"
