"""What a study of a model depends on, as far as it can be seen: once it changes, the study is made anew."""

from __future__ import annotations

from functools import cache
from types import CellType, CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.draws.held import HeldNoise
from bayesdrop.draws.passes import tensors_in
from bayesdrop.draws.sites import StochasticModule
from bayesdrop.inputs import batch_rows

__all__ = ["hooks_of", "is_foreign", "signature_of"]


def signature_of(model: nn.Module, inputs: tuple[Any, Any]) -> list[Any]:
    """What a study depends on, as far as it can be seen: structure, settings, shapes of the inputs."""
    rows = batch_rows(inputs)
    found: list[Any] = [None if rows is None else min(rows, 2)]
    found += [(tensor.shape[1:], tensor.dtype) for tensor in tensors_in(inputs)]
    seen: set[int] = set()
    for path, module in model.named_modules():
        found.append((path, type(module), *map(id, hooks_of(module))))
        if isinstance(module, torch.jit.ScriptModule):
            continue
        for name, value in vars(module).items():
            if name not in _INTERNAL:
                _settings(value, found, seen, depth=4)
        if is_foreign(module):
            found += _globals_of(type(module))
    return found


_INTERNAL = frozenset(vars(nn.Module())) - {"_parameters", "_buffers"}


def _settings(value: Any, found: list[Any], seen: set[int], depth: int) -> None:
    """Numbers, names and flags in a value, and in what it holds, that a rate may come from."""
    if value is None or isinstance(value, bool | int | float | str):
        found.append(value)
        return
    if isinstance(value, Tensor):
        # A rate may be a tensor; weights are none of our business.
        found.append(value.item() if value.numel() == 1 and not value.is_meta else tuple(value.shape))
        return
    if isinstance(value, nn.Module) or depth == 0 or id(value) in seen:
        found.append(id(value))
        return
    seen.add(id(value))
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
    elif isinstance(value, FunctionType):
        parts = [cell.cell_contents for cell in value.__closure__ or () if cell != _EMPTY_CELL]
        parts += [
            *(value.__defaults__ or ()),
            id(value.__code__),
            *_values_of(value.__code__, value.__globals__),
        ]
    else:
        parts = [id(type(value)), *getattr(value, "__dict__", {}).values()]
    for part in parts[:200]:
        _settings(part, found, seen, depth - 1)


_EMPTY_CELL = CellType()


@cache
def _methods(kind: type) -> list[FunctionType]:
    """Functions of a class that its forward may call."""
    classes = [owner for owner in kind.__mro__ if owner not in (nn.Module, object)]
    return [
        member for owner in classes for member in vars(owner).values() if isinstance(member, FunctionType)
    ]


def _globals_of(kind: type) -> list[Any]:
    return [value for method in _methods(kind) for value in _values_of(method.__code__, method.__globals__)]


def _values_of(code: CodeType, names: dict[str, Any]) -> list[Any]:
    """Numbers and flags that a function reads from its module."""
    values = (names.get(name) for name in code.co_names)
    return [value for value in values if isinstance(value, bool | int | float)]


def is_foreign(module: nn.Module) -> bool:
    """Whether what a module does in training mode is not known: its class is neither torch's nor ours."""
    known = isinstance(module, StochasticModule | torch.jit.ScriptModule)
    return not known and not type(module).__module__.startswith("torch.nn.")


def hooks_of(module: nn.Module) -> list[Any]:
    """What runs before and after the forward of a module, other than for a draw."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return [hook for hook in hooks if not isinstance(getattr(hook, "__self__", None), HeldNoise)]
