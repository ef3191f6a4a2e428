"""Replacing stochastic layers by plain ones, without noise or with `nn.Dropout`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bayesdrop.errors import must
from bayesdrop.layers.activations import ActivationNoise
from bayesdrop.layers.base import StochasticLayer
from bayesdrop.layers.bernoulli import BernoulliDropout
from bayesdrop.layers.concrete import ConcreteDropout
from bayesdrop.layers.feeds import next_layer
from bayesdrop.layers.learnable import LearnableDropout
from bayesdrop.layers.places import choose, convertible, keep_hooks, merge_hooks, swap
from bayesdrop.layers.recurrent import RecurrentDropout

__all__ = ["made_plain"]


def made_plain(model: nn.Module, where: Any, *, dropout: bool) -> nn.Module:
    """The model with plain weight layers, whose weights are the means of the stochastic ones.

    Args:
        model: any module; it is changed in place.
        where: see `convert`.
        dropout: put an `nn.Dropout` of the same rate in front of each layer.
    """
    places = convertible(model)
    chosen = {m: paths for m, paths in choose(model, where).items() if isinstance(m, _OURS)}
    if not chosen:
        there = ", ".join(paths[0] for m, paths in places.items() if isinstance(m, _OURS)) or "none"
        raise ValueError(must("convert", "where", f"stochastic layers, of which there are: {there}", where))
    parts = {
        part: outer for outer in places if isinstance(outer, RecurrentDropout) for part in outer.modules()
    }
    parents = list(model.modules())
    free = _free_places(model) if dropout else {}
    swaps: dict[nn.Module, nn.Module] = {}
    for module, (path, *_) in chosen.items():
        outer = parts.get(module, module)
        if outer not in chosen:
            whole = places[outer][0]
            raise ValueError(f"convert: {path!r} is part of {whole!r}, which is made plain as a whole.")
        if isinstance(module, ActivationNoise):
            swaps[module] = (_dropout(module, path) if dropout else nn.Identity()).train(module.training)
            keep_hooks(module, swaps[module])
            continue
        if isinstance(module, StochasticLayer):
            _take_mean(module)
        if outer is module:
            assert isinstance(module, _OURS)
            swaps[module] = module.layer
            merge_hooks(module, module.layer)
            if dropout:
                _put_dropout(model, module, path, swaps, free.get(module))
    return swap(model, swaps, parents)


_OURS = (StochasticLayer, RecurrentDropout)


@torch.no_grad()
def _take_mean(layer: StochasticLayer) -> None:
    """Set the wrapped weights to the mean weights."""
    mean = layer.weight
    if mean is not layer.layer.weight:
        layer.layer.weight.copy_(mean)


def _free_places(model: nn.Module) -> dict[nn.Module, nn.Module]:
    """From stochastic layers to the `nn.Identity` before them, where a dropout may have been."""
    found: dict[nn.Module, nn.Module] = {}
    for path, module in model.named_modules():
        if type(module) is nn.Identity:
            layer = next_layer(model, path)
            if layer is not None:
                found[layer] = module
        elif isinstance(module, _READERS):
            between: nn.Module = module.dropout
            if isinstance(between, nn.Identity):
                found[module.linear2] = between
    return found


# Modules that read the weights of their layers, which must not be wrapped.
_READERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


def _put_dropout(
    model: nn.Module,
    layer: nn.Module,
    path: str,
    swaps: dict[nn.Module, nn.Module],
    free: nn.Module | None,
) -> None:
    """Put an `nn.Dropout` of the same rate in the place of `free`, or else in a Sequential with the layer."""
    made = _dropout(layer, path).train(layer.training)
    if free is not None:
        swaps[free] = made
        keep_hooks(free, made)
        return
    above = model.get_submodule(path.rpartition(".")[0]) if path else None
    if isinstance(above, _READERS):
        raise ValueError(_no_dropout(path, f"{type(above).__name__} reads the weights of the layer itself"))
    swaps[layer] = nn.Sequential(made, swaps[layer]).train(layer.training)


def _dropout(layer: nn.Module, path: str) -> nn.Module:
    if isinstance(layer, RecurrentDropout):
        raise ValueError(_no_dropout(path, "nn.Dropout cannot hold a mask over time"))
    if not isinstance(layer, BernoulliDropout | ConcreteDropout | LearnableDropout):
        raise ValueError(_no_dropout(path, f"{type(layer).__name__} is not such noise"))
    if isinstance(layer.layer, nn.Embedding):
        raise ValueError(_no_dropout(path, "nn.Dropout cannot drop a word wherever it occurs"))
    p = layer.p.detach()
    if p.dim() and not bool((p == p[0]).all()):
        raise ValueError(_no_dropout(path, "its units have rates of their own"))
    if layer.bias_p is not None:
        raise ValueError(_no_dropout(path, "its bias is dropped too"))
    rate = round(p.reshape(-1)[0].item(), 7)
    if layer.elementwise or isinstance(layer.layer, nn.Linear):
        return nn.Dropout(rate)
    if isinstance(layer, ActivationNoise):
        return nn.Dropout2d(rate) if layer.axis == 1 else nn.Dropout(rate)
    return {1: nn.Dropout1d, 2: nn.Dropout2d, 3: nn.Dropout3d}[layer.layer.weight.dim() - 2](rate)


def _no_dropout(path: str, why: str) -> str:
    hint = "Use the kind 'bernoulli' for fixed rates, or 'none' for no noise."
    return f"convert: the layer at {path!r} cannot become nn.Dropout: {why}. {hint}"
