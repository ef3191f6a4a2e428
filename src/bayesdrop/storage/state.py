"""The state of a module: its tensors, each once, and the plain options of its constructor."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from bayesdrop.errors import must

__all__ = ["distinct_state", "is_count", "is_plain", "plain_options"]


def distinct_state(
    module: nn.Module, owner: str = "save", *, values: bool = True
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of `state_dict`, each once, and the further names of tensors that have several.

    Args:
        module: any module.
        owner: the function that errors name.
        values: whether every tensor must have memory.

    Returns: from first names to the parameters and buffers themselves; and from further names to first names.
    """
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, value in module.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise ValueError(must(owner, name, "a tensor, as all state that is stored", type(value)))
        if isinstance(value, nn.UninitializedParameter | nn.UninitializedBuffer):
            hint = "Run the model once first."
            raise ValueError(must(owner, name, "a tensor with values", "a lazy layer", hint))
        if value.is_meta and values:
            raise ValueError(must(owner, name, "a tensor with values", "one on the device 'meta'"))
        if id(value) in first:
            aliases[name] = first[id(value)]
        else:
            first[id(value)] = name
            tensors[name] = value
    return tensors, aliases


def is_plain(value: Any) -> bool:
    """Whether a value is a number, string, boolean, None, or a list, tuple or string-keyed dict of these."""
    if isinstance(value, list | tuple):
        return all(is_plain(part) for part in value)
    if isinstance(value, dict):
        return all(isinstance(name, str) and is_plain(part) for name, part in value.items())
    return value is None or isinstance(value, bool | int | float | str)


def is_count(value: Any) -> bool:
    """Whether a value from a file is a whole number of at least 0."""
    return type(value) is int and value >= 0


def plain_options(module: nn.Module) -> dict[str, Any]:
    """Constructor arguments of a module that it keeps under their names and that are plain values.

    >>> plain_options(nn.Dropout(0.3))
    {'p': 0.3, 'inplace': False}
    """
    missing = object()
    options = {}
    for name in inspect.signature(type(module)).parameters:
        value = getattr(module, name, missing)
        if value is not missing and is_plain(value):
            options[name] = value
    return options
