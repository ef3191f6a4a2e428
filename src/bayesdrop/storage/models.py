"""save() and load(): a model in one file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.errors import must
from bayesdrop.storage.architecture import CannotDescribe, build, describe, same_structure
from bayesdrop.storage.files import read_tensors, write_tensors
from bayesdrop.storage.state import distinct_state

__all__ = ["load", "save"]

_KIND = "bayesdrop-model"


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a model to one safetensors file: all tensors of its `state_dict`, and how it is built.

    A model of `torch.nn` and bayesdrop classes is described in the file's header, so that `load(path)`
    needs no code. Any other model is written too; `load(path, into=build_model())` reads it. Nothing is
    pickled. The file is written beside its place and moved there: a crash leaves the old file.

    Args:
        model: any module: a network, a likelihood, an objective.
        path: the file to write, by habit named `.safetensors`.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(must("save", "model", "an nn.Module", model))
    if not isinstance(path, str | os.PathLike):
        raise TypeError(must("save", "path", "the path of a file", path))
    tensors, aliases = distinct_state(model)
    frozen = [name for name, t in tensors.items() if isinstance(t, nn.Parameter) and not t.requires_grad]
    header: dict[str, Any] = {"aliases": aliases, "frozen": frozen, "architecture": None, "reason": None}
    try:
        header["architecture"] = _checked_description(model, tensors, aliases, frozen)
    except CannotDescribe as error:
        header["reason"] = str(error)
    write_tensors(path, tensors, kind=_KIND, header=header, owner="save")


def load(path: str | os.PathLike[str], into: nn.Module | None = None) -> nn.Module:
    """The model of a file that `save` wrote, on the CPU and in eval mode.

    Args:
        path: the file.
        into: a model of the same shape to fill and return; needed where the file does not say how the
            model is built. Names, shapes and dtypes must agree; options, as a length scale, stay its own.
    """
    if into is not None and not isinstance(into, nn.Module):
        raise TypeError(must("load", "into", "an nn.Module or None", into))
    if not isinstance(path, str | os.PathLike):
        raise TypeError(must("load", "path", "the path of a file", path))
    tensors, header = read_tensors(path, kind=_KIND, owner="load")
    aliases, frozen = header.get("aliases", {}), header.get("frozen", [])
    known = isinstance(aliases, dict) and isinstance(frozen, list)
    if not known or not tensors.keys() >= set(aliases.values()):
        raise ValueError(f"load: the description in {os.fspath(path)} is damaged.")
    if into is not None:
        _load_into(into, tensors, aliases, path)
        return into.eval()
    if header.get("architecture") is None:
        raise ValueError(
            f"load: {os.fspath(path)} holds weights alone: {header.get('reason')}. "
            "Build the model and pass it, as load(path, into=build_model())."
        )
    try:
        model = build(header["architecture"])
    except CannotDescribe as error:
        raise ValueError(f"load: {os.fspath(path)} cannot be trusted: {error}.") from error
    except Exception as error:
        raise ValueError(f"load: the architecture in {os.fspath(path)} is damaged ({error}).") from error
    try:
        _fill(model, tensors, aliases, frozen)
    except CannotDescribe as error:
        raise ValueError(f"load: {os.fspath(path)} does not fit its own architecture: {error}.") from error
    return model.eval()


def _checked_description(
    model: nn.Module, tensors: Mapping[str, Tensor], aliases: Mapping[str, str], frozen: Iterable[str]
) -> dict[str, Any]:
    """The description, after a copy that was made from it has proved to be the same model."""
    try:
        description: dict[str, Any] = json.loads(json.dumps(describe(model)))
        copy = build(description)
    except CannotDescribe:
        raise
    except Exception as error:
        raise CannotDescribe(f"a copy could not be made from its options ({error})") from error
    try:
        _fill(copy, {name: tensor.detach() for name, tensor in tensors.items()}, aliases, frozen)
    except CannotDescribe as error:
        raise CannotDescribe(f"a copy made from its options is another model ({error})") from error
    if _places(copy) != _places(model):
        raise CannotDescribe("its modules are shared in a way that a description cannot hold")
    if not same_structure(model, copy) or repr(copy) != repr(model):
        raise CannotDescribe("its options cannot be read back from its attributes")
    return description


def _places(model: nn.Module) -> list[list[str]]:
    """The paths of every module, paths of the same module together."""
    paths: dict[nn.Module, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(module, []).append(path)
    return list(paths.values())


def _fill(
    model: nn.Module, tensors: Mapping[str, Tensor], aliases: Mapping[str, str], frozen: Iterable[str]
) -> None:
    """Put the tensors themselves into the model, dtypes as they are, and tie what was tied."""
    for alias, name in aliases.items():
        value, current = _tensor_at(model, name), _tensor_at(model, alias)
        if value is not current:
            owner, _, own_name = alias.rpartition(".")
            setattr(model.get_submodule(owner), own_name, value)
    state, _ = distinct_state(model)
    problems = _mismatches(state, tensors)
    problems += [
        f"{name} has dtype {tensors[name].dtype}"
        for name in state.keys() & tensors.keys()
        if state[name].is_floating_point() != tensors[name].is_floating_point()
    ]
    if problems:
        raise CannotDescribe("; ".join(problems))
    for name, target in state.items():
        # The object stays and changes its data: whoever else holds it, as an LSTM does, sees the change.
        target.data = tensors[name].to(target.device)
    for name in frozen:
        _tensor_at(model, name).requires_grad_(False)


def _tensor_at(model: nn.Module, name: str) -> Tensor:
    owner, _, own_name = name.rpartition(".")
    try:
        value = getattr(model.get_submodule(owner), own_name)
    except AttributeError as error:
        raise CannotDescribe(f"there is no place for {name}") from error
    if not isinstance(value, Tensor):
        raise CannotDescribe(f"there is no place for {name}")
    return value


def _load_into(
    model: nn.Module, tensors: dict[str, Tensor], aliases: Mapping[str, str], path: str | os.PathLike[str]
) -> None:
    stored = {**tensors, **{alias: tensors[name] for alias, name in aliases.items()}}
    expected = {name: t for name, t in model.state_dict().items() if isinstance(t, Tensor)}
    problems = _mismatches(expected, stored)
    problems += [
        f"{name} is {_short(stored[name].dtype)} in the file and {_short(expected[name].dtype)} in the model"
        for name in expected
        if name in stored and stored[name].dtype != expected[name].dtype
    ]
    if problems:
        raise ValueError(f"load: {os.fspath(path)} does not fit `into`: {'; '.join(problems)}.")
    model.load_state_dict(stored)


def _mismatches(expected: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> list[str]:
    """Sentences on names and shapes that differ, the first few of each kind."""
    problems = []
    for names, what in (
        (expected.keys() - stored.keys(), "the file lacks"),
        (stored.keys() - expected.keys(), "the model has no place for"),
    ):
        if names:
            shown = sorted(names)
            more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
            problems.append(f"{what} {', '.join(shown[:5])}{more}")
    for name in expected:
        if name in stored and stored[name].shape != expected[name].shape:
            shapes = tuple(stored[name].shape), tuple(expected[name].shape)
            problems.append(f"{name} has shape {shapes[0]} in the file and {shapes[1]} in the model")
    return problems


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
