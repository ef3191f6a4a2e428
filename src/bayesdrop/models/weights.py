"""Loading weights from safetensors files of other libraries."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.errors import must, must_be_flag, must_be_module
from bayesdrop.layers import StochasticLayer
from bayesdrop.storage import open_tensors
from bayesdrop.trace import StochasticModule

__all__ = ["load_weights"]

Names = Mapping[str, str | None] | Callable[[str], str | None]
_SHOWN = 4


def load_weights(
    model: nn.Module, path: str | os.PathLike[str], *, names: Names | None = None, partial: bool = False
) -> nn.Module:
    """Fill a model with the weights of a safetensors file of any origin.

    All names and shapes are checked before the first weight is copied: if the file does not fit, an error
    names every difference, and the model is not changed. Numbers are converted to the model's precision and
    device. A layer inside a stochastic layer is found under the path of the latter: the file's
    `classifier.3.weight` fills `classifier.3.layer.weight`. Drop rates, which such files do not have, are not
    changed.

    Args:
        model: any module, as `vgg(16, num_classes=1000)`, whose names are torchvision's.
        path: the file.
        names: from names in the file to names in the model, where they differ: a mapping of names or of
            paths ("encoder" means all names that start with "encoder."; the longest match is used), or a
            function of a name; tensors that are mapped to None are left out.
        partial: whether the file may lack weights of the model, which are then not changed.

    Returns: the model.

    >>> import safetensors.torch, tempfile
    >>> from bayesdrop.models import vgg
    >>> small = dict(channels=(4, 8), head=(16, 16), input_size=8)
    >>> theirs = vgg(num_classes=7, **small)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     safetensors.torch.save_file(theirs.state_dict(), f"{folder}/vgg.safetensors")
    ...     last = {"classifier.6": None}  # seven classes there, ten here
    ...     net = load_weights(vgg(**small), f"{folder}/vgg.safetensors", names=last, partial=True)
    >>> bool((net.features[0].weight == theirs.features[0].weight).all())
    True
    """
    owner = "load_weights"
    must_be_module(owner, "model", model)
    must_be_flag(owner, partial=partial)
    if not isinstance(path, str | os.PathLike):
        raise TypeError(must(owner, "path", "the path of a file", path))
    if not (names is None or isinstance(names, Mapping) or callable(names)):
        raise TypeError(must(owner, "names", "a mapping of names, a function of a name, or None", names))
    state: dict[str, Tensor] = model.state_dict()
    places = {
        f"{p}.{leaf}" if p else leaf: f"{p}.layer.{leaf}" if p else f"layer.{leaf}"
        for p, leaf in _wrapped(model)
    }
    with open_tensors(path, kind=None, owner=owner) as file:
        chosen: dict[str, str] = {}
        for name in file.outline:
            target = _named(name, names)
            # A count of batches is not a weight; frozen norms have none.
            if target is None or (target not in state and target.endswith("num_batches_tracked")):
                continue
            chosen[name] = target if target in state else places.get(target, target)
        _check(state, _optional(model), chosen, file.outline, Path(path), partial=partial)
        if isinstance(names, Mapping):
            _check_used(names, file.outline)
        tensors = file.read()
    with torch.no_grad():
        for name, target in chosen.items():
            state[target].copy_(tensors[name])
    return model


def _wrapped(model: nn.Module) -> list[tuple[str, str]]:
    """Paths of stochastic layers, and names of the weights inside each."""
    return [
        (path, name)
        for path, part in model.named_modules()
        if isinstance(part, StochasticLayer)
        for name in part.layer.state_dict()
    ]


def _named(name: str, names: Names | None) -> str | None:
    """The name in the model of a tensor in the file; None to leave it out."""
    if names is None:
        return name
    if not isinstance(names, Mapping):
        found: Any = names(name)
        if not (found is None or isinstance(found, str)):
            raise TypeError(must("load_weights", "names", "a function that gives names or None", found))
        return found
    path, rest = name, ""
    while path:
        if path in names:
            target = names[path]
            return None if target is None else f"{target}{rest}" if target else rest.removeprefix(".")
        path, _, last = path.rpartition(".")
        rest = f".{last}{rest}"
    return f"{names['']}.{name}" if names.get("") else name


def _optional(model: nn.Module) -> set[str]:
    """Names that need not be in a file: rates and other numbers of the noise, and counts of batches."""
    found = {name for name, _ in model.named_buffers() if name.endswith("num_batches_tracked")}
    for path, part in model.named_modules():
        if isinstance(part, StochasticModule):
            own = [*part._parameters, *part._buffers]
            found |= {f"{path}.{name}" if path else name for name in own}
    return found


def _check(
    state: Mapping[str, Tensor],
    optional: set[str],
    chosen: Mapping[str, str],
    outline: Mapping[str, Tensor],
    path: Path,
    *,
    partial: bool,
) -> None:
    """Raise unless every tensor fits one weight of the model, and every weight has a tensor."""
    troubles = []
    unknown = [name for name, target in chosen.items() if target not in state]
    if unknown:
        hint = "name them in `names`, with None to leave one out"
        troubles.append(f"the model has no place for {_list(unknown)} ({hint})")
    taken: dict[str, str] = {}
    for name, target in chosen.items():
        if target in taken:
            troubles.append(f"{taken[target]!r} and {name!r} are both meant for {target!r}")
        taken.setdefault(target, name)
    shapes = [
        f"{name!r} is {tuple(outline[name].shape)} in the file and {tuple(state[target].shape)} in the model"
        for name, target in chosen.items()
        if target in state and outline[name].shape != state[target].shape
    ]
    troubles += [
        *shapes[:_SHOWN],
        *([f"{len(shapes) - _SHOWN} more differ in shape"] if len(shapes) > _SHOWN else []),
    ]
    kinds = [
        f"{name!r} holds {outline[name].dtype} and the model's {state[target].dtype}"
        for name, target in chosen.items()
        if target in state and outline[name].is_floating_point() != state[target].is_floating_point()
    ]
    troubles += kinds[:_SHOWN]
    missing = [name for name in state if name not in taken and name not in optional]
    if missing and not partial:
        troubles.append(f"the file has nothing for {_list(missing)} (partial=True leaves these as they are)")
    if not taken and not troubles:
        troubles.append("it has no tensor for the model")
    if troubles:
        raise ValueError(f"load_weights: {path} does not fit the model: {'; '.join(troubles)}.")


def _check_used(names: Mapping[str, str | None], outline: Mapping[str, Tensor]) -> None:
    """Raise if a name of the mapping is not in the file: a misspelt name would go unnoticed."""
    for name in names:
        if name and not any(other == name or other.startswith(f"{name}.") for other in outline):
            raise ValueError(must("load_weights", "names", "names or paths that the file has", name))


def _list(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
