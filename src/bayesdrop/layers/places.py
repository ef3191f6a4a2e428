"""The modules of a model that can be converted, the choice among them, and their replacement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from bayesdrop.errors import must
from bayesdrop.layers.activations import ActivationNoise
from bayesdrop.layers.base import StochasticLayer
from bayesdrop.layers.recurrent import RecurrentDropout
from bayesdrop.trace import Selection, Where

__all__ = ["DROPOUTS", "RECURRENT", "WEIGHTS", "choose", "convertible", "keep_hooks", "merge_hooks", "swap"]

WEIGHTS = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
#: tables of words: they have weights too, but no dropout feeds them
TABLES = (nn.Embedding,)
RECURRENT = (nn.LSTM, nn.GRU, nn.RNN)
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_OURS = (StochasticLayer, RecurrentDropout)
#: modules without weights, between weight layers
_BETWEEN = (*DROPOUTS, ActivationNoise)

Places = dict[nn.Module, list[str]]


def convertible(model: nn.Module) -> Places:
    """Weight layers, tables, recurrent modules, dropouts and stochastic layers, each with all its paths.

    Left out are the layers inside stochastic ones, scripts, and the projections of
    `nn.MultiheadAttention`, whose weights torch reads without calling them.
    """
    found: Places = {}
    for path, module in _walk(model, ""):
        if isinstance(module, (*WEIGHTS, *TABLES, *RECURRENT, *DROPOUTS, *_OURS)):
            found.setdefault(module, []).append(path)
    return found


def _walk(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    yield path, module
    if isinstance(module, StochasticLayer | nn.MultiheadAttention | torch.jit.ScriptModule):
        return
    for name, child in module._modules.items():
        if child is None or (isinstance(module, RecurrentDropout) and child is module.layer):
            continue
        yield from _walk(child, f"{path}.{name}" if path else name)


def choose(
    model: nn.Module,
    where: Any,
    *,
    last: Callable[[], Iterable[nn.Module]] | None = None,
    owner: str = "convert",
) -> Places:
    """The convertible modules that `where` chooses.

    Args:
        model: any module.
        where: see `convert`.
        last: finds the last linear maps, for the rule "last"; None if there is no such rule.
        owner: the function that errors name.
    """
    places = convertible(model)
    chosen: Places = {}
    for rule in _rules(where, owner):
        if rule == "last" and last is not None:
            found = {module: places[module] for module in last() if module in places}
        else:
            found = _matched(rule, places)
        if not found:
            raise ValueError(must(owner, "where", *_nothing(rule, places)))
        chosen |= found
    for module in places:
        if isinstance(module, RecurrentDropout):
            # A RecurrentDropout is chosen if all its maps are, and its maps if it is.
            parts = [part for part in module.modules() if isinstance(part, StochasticLayer)]
            maps: dict[nn.Module, list[str]] = {part: places[part] for part in parts}
            if module in chosen:
                chosen |= maps
            elif maps.keys() <= chosen.keys():
                chosen[module] = places[module]
    # In the order of the model.
    return {module: paths for module, paths in places.items() if module in chosen}


def _rules(where: Any, owner: str) -> list[Any]:
    one = isinstance(where, str | type) or callable(where)
    rules = [where] if one else list(where) if isinstance(where, Iterable) else [None]
    for rule in rules:
        if not (isinstance(rule, str) or callable(rule)):
            want = "'dropouts', 'weights', 'last', paths, module types or functions of (path, module)"
            raise TypeError(must(owner, "where", want, where))
    if not rules:
        raise ValueError(must(owner, "where", "at least one place", where))
    return rules


def _matched(rule: Where, places: Places) -> Places:
    if rule == "dropouts":
        return {module: paths for module, paths in places.items() if _drops(module)}
    if rule == "weights":
        others = (*_BETWEEN, *TABLES)
        return {module: paths for module, paths in places.items() if not isinstance(module, others)}
    selection = Selection(include=rule)
    found = {m: p for m, p in places.items() if any(selection.allows(path, m) for path in p)}
    if isinstance(rule, type):
        # A type of weight layer also chooses such layers inside stochastic layers.
        recurrent = [module for module in places if isinstance(module, RecurrentDropout)]
        maps = {part for module in recurrent for part in module.modules() if part is not module}
        outside = {m: p for m, p in places.items() if m not in maps}
        found |= {m: p for m, p in outside.items() if isinstance(getattr(m, "layer", None), rule)}
    # "encoder" chooses its weights, as "weights" does; tables or dropouts only if it matches nothing else.
    between = DROPOUTS if isinstance(rule, type) else _BETWEEN
    weights = {module: paths for module, paths in found.items() if not isinstance(module, between)}
    bare = {module: paths for module, paths in weights.items() if not isinstance(module, TABLES)}
    return (bare if isinstance(rule, str) and bare else weights) or found


def _drops(module: nn.Module) -> bool:
    if isinstance(module, DROPOUTS):
        return module.p > 0
    return isinstance(module, _OURS) or (isinstance(module, RECURRENT) and module.dropout > 0)


def _nothing(rule: Any, places: Places) -> tuple[str, Any, str]:
    """For an error: what `where` must be, what it was, and the modules that the model has."""
    groups: list[tuple[str, Callable[[nn.Module], bool]]] = [
        ("weight layers", lambda module: isinstance(module, WEIGHTS)),
        ("tables of words", lambda module: isinstance(module, TABLES)),
        ("recurrent modules", lambda module: isinstance(module, RECURRENT)),
        ("dropouts", lambda module: isinstance(module, DROPOUTS)),
        ("stochastic layers", lambda module: isinstance(module, _OURS)),
    ]
    there = []
    for name, belongs in groups:
        paths = [f"{found[0] or 'itself'}" for module, found in places.items() if belongs(module)]
        if paths:
            more = f" and {len(paths) - 4} more" if len(paths) > 4 else ""
            there.append(f"{name} ({', '.join(paths[:4])}{more})")
    hint = f"It has {'; '.join(there)}." if there else "It has neither weight layers nor dropouts."
    if rule == "dropouts":
        hint += " Use where='weights' for noise on every weight layer. Functional dropout cannot be replaced."
        return "used with a model that has dropouts or stochastic layers", rule, hint
    if rule == "last":
        hint += " No weight layer is the last before the output: name a path."
        return "used with a model whose output comes from a linear map", rule, hint
    return "something that the model has", rule, hint


def swap(model: nn.Module, swaps: Mapping[nn.Module, nn.Module], parents: Iterable[nn.Module]) -> nn.Module:
    """Replace modules by others, wherever they are used; returns the model, or what replaces it.

    Args:
        model: the root, which may be replaced itself.
        swaps: from the old module to the new one, which may hold the old one.
        parents: the modules whose children are replaced: all modules of the model before the swap.
    """
    for parent in parents:
        for name, child in parent._modules.items():
            if child is not None and child in swaps:
                parent._modules[name] = swaps[child]
    return swaps.get(model, model)


_HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook",
)  # fmt: skip


def keep_hooks(old: nn.Module, new: nn.Module) -> None:
    """Give the hooks of a module to the one that replaces it; their handles still remove them."""
    for name in _HOOKS:
        new.__dict__[name] = old.__dict__[name]


def merge_hooks(outer: nn.Module, inner: nn.Module) -> None:
    """Add the hooks of a module to those of the inner module that replaces it."""
    for name in _HOOKS[:-1]:
        inner.__dict__[name].update(outer.__dict__[name])
