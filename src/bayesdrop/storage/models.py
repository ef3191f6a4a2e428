"""save() and load(): a model in one file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.errors import must
from bayesdrop.storage.architecture import CannotDescribe, build, describe, outline, same_structure
from bayesdrop.storage.files import open_tensors, write_tensors
from bayesdrop.storage.sealed import parsed
from bayesdrop.storage.state import distinct_state

__all__ = ["load", "save"]

_KIND = "bayesdrop-model"


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a model to one safetensors file: all tensors of its `state_dict`, and its architecture.

    A model of `torch.nn` and bayesdrop classes is described in the file's header, so that `load(path)`
    needs no code. Any other model is written too; `load(path, into=build_model())` reads it. Nothing is
    pickled. The file has checksums. It is written under another name and then renamed: after a crash or on a
    full disk (an OSError that names file and folder) the old file is still there. A link stays a link.

    Args:
        model: any module: a network, a likelihood, an objective.
        path: the file to write, usually named `.safetensors`.
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

    A file that was changed since raises a ValueError, before memory is taken for what it only describes.
    Files of format version 1 have no checksums and are loaded without that check.

    Args:
        path: the file.
        into: a model of the same shape to fill and return; needed if the file has no architecture. Names,
            shapes and dtypes must agree; options, as a length scale, are not read from the file.
    """
    if into is not None and not isinstance(into, nn.Module):
        raise TypeError(must("load", "into", "an nn.Module or None", into))
    if not isinstance(path, str | os.PathLike):
        raise TypeError(must("load", "path", "the path of a file", path))
    with open_tensors(path, kind=_KIND, owner="load") as file:
        aliases, frozen = _checked_names(file.header, file.outline, path)
        if into is not None:
            _check_into(into, file.outline, aliases, path)
            stored = file.read()
            into.load_state_dict({**stored, **{alias: stored[name] for alias, name in aliases.items()}})
            return into.eval()
        node = file.header.get("architecture")
        if node is None:
            raise ValueError(
                f"load: {os.fspath(path)} holds weights alone: {file.header.get('reason')}. "
                "Build the model and pass it, as load(path, into=build_model())."
            )
        # Before any memory is taken, the description is compared with the tensors of the file.
        names, size = len(file.outline) + len(aliases), sum(part.nbytes for part in file.outline.values())
        with _errors_about(path):
            described = outline(node, names, size)
        with _errors_about(path, fits=True):
            _tie(described, aliases)
            _check_fit(described, file.outline, aliases)
        tensors = file.read()
        with _errors_about(path):
            model = build(node, names)
        with _errors_about(path, fits=True):
            _fill(model, tensors, aliases, frozen)
    return model.eval()


@contextmanager
def _errors_about(path: str | os.PathLike[str], *, fits: bool = False) -> Iterator[None]:
    """A context: any error of a constructor is raised as a ValueError that names the file."""
    name = os.fspath(path)
    try:
        yield
    except Exception as error:
        if fits:
            raise ValueError(f"load: {name} does not fit its own architecture: {error}.") from error
        if isinstance(error, CannotDescribe):
            raise ValueError(f"load: {name} cannot be trusted: {error}.") from error
        raise ValueError(f"load: the architecture in {name} is damaged ({error}).") from error


def _checked_names(
    header: Mapping[str, Any], tensors: Mapping[str, Tensor], path: str | os.PathLike[str]
) -> tuple[dict[str, str], list[str]]:
    """Further names of tensors, and names of frozen ones; raise if these are not valid."""
    aliases, frozen = header.get("aliases", {}), header.get("frozen", [])
    known = (
        isinstance(aliases, dict)
        and all(isinstance(name, str) and name in tensors for name in aliases.values())
        and not aliases.keys() & tensors.keys()
        and isinstance(frozen, list)
        and all(isinstance(name, str) and name in tensors for name in frozen)
    )
    if not known:
        raise ValueError(f"load: the description in {os.fspath(path)} is damaged.")
    return aliases, frozen


def _checked_description(
    model: nn.Module, tensors: Mapping[str, Tensor], aliases: Mapping[str, str], frozen: Iterable[str]
) -> dict[str, Any]:
    """The description; raise unless a copy made from it is the same model."""
    names, size = len(tensors) + len(aliases), sum(tensor.nbytes for tensor in tensors.values())
    try:
        description: dict[str, Any] = parsed(json.dumps(describe(model)))
        described, copy = outline(description, names, size), build(description, names)
    except CannotDescribe:
        raise
    except Exception as error:
        raise CannotDescribe(f"a copy could not be made from its options ({error})") from error
    try:
        _tie(described, aliases)
        _check_fit(described, tensors, aliases)
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


def _tie(model: nn.Module, aliases: Mapping[str, str]) -> None:
    """Make the tensors of a model that have several names one tensor."""
    for alias, name in aliases.items():
        value, current = _tensor_at(model, name), _tensor_at(model, alias)
        if value is not current:
            owner, _, own_name = alias.rpartition(".")
            setattr(model.get_submodule(owner), own_name, value)


def _check_fit(model: nn.Module, tensors: Mapping[str, Tensor], aliases: Mapping[str, str]) -> None:
    """Raise unless names, shapes and dtypes are those of the model, once it is tied."""
    state, tied = distinct_state(model, "load", values=False)
    problems = _mismatches(state, tensors)
    if not problems and tied != aliases:
        problems.append("other tensors are tied than the file says")
    for name in [name for name in state if name in tensors]:
        own, stored = state[name].dtype, tensors[name].dtype
        if own != stored and not (own.is_floating_point and stored.is_floating_point):
            problems.append(f"{name} has dtype {stored}")
    if problems:
        raise CannotDescribe("; ".join(problems))


def _fill(
    model: nn.Module, tensors: Mapping[str, Tensor], aliases: Mapping[str, str], frozen: Iterable[str]
) -> None:
    """Put the tensors into the model, with their dtypes, and tie those that were tied."""
    _tie(model, aliases)
    _check_fit(model, tensors, aliases)
    for name, target in distinct_state(model, "load")[0].items():
        # The parameter stays and its data are replaced, so that other references to it, as of an LSTM, hold.
        target.data = tensors[name].to(target.device)
    for name in frozen:
        _tensor_at(model, name).requires_grad_(False)


def _tensor_at(model: nn.Module, name: str) -> Tensor:
    owner, _, own_name = name.rpartition(".")
    try:
        module = model.get_submodule(owner)
    except AttributeError as error:
        raise CannotDescribe(f"there is no place for {name}") from error
    value = {**module._parameters, **module._buffers}.get(own_name)
    if value is None:
        raise CannotDescribe(f"there is no place for {name}")
    return value


def _check_into(
    model: nn.Module, tensors: Mapping[str, Tensor], aliases: Mapping[str, str], path: str | os.PathLike[str]
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
