"""What a dropout feeds and how many units it has: from a pass, or from the order of an `nn.Sequential`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesdrop.inputs import Inputs, call, tensors_in
from bayesdrop.layers.base import StochasticLayer
from bayesdrop.layers.places import DROPOUTS, WEIGHTS
from bayesdrop.layers.weights import Units, num_units
from bayesdrop.randomness import random_state_kept
from bayesdrop.trace import evaluating

__all__ = ["Fed", "Width", "feeds", "next_layer"]

# Multiplicative noise commutes with these: f(a x) = a f(x) for a >= 0, or they only move elements.
_TRANSPARENT_MODULES = (nn.Identity, nn.Flatten, nn.Unflatten, nn.ReLU, nn.LeakyReLU, nn.PReLU)
_TRANSPARENT = frozenset(
    {
        "relu", "relu_", "leaky_relu", "leaky_relu_", "prelu", "abs", "view", "view_as", "reshape",
        "reshape_as", "flatten", "unflatten", "transpose", "permute", "t", "squeeze", "unsqueeze", "swapaxes",
        "swapdims", "movedim", "moveaxis", "contiguous", "clone", "detach", "alias", "to", "type_as", "float",
        "double", "half", "bfloat16", "__getitem__", "chunk", "split", "unbind", "select", "narrow",
        "tensor_split", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "__get__",
    }
)  # fmt: skip
# Noise with one value for a channel commutes with these too.
_TRANSPARENT_TO_CHANNELS = frozenset(
    f"{kind}_pool{size}d" for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for size in (1, 2, 3)
)
_POOLS = (
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
)

#: from layers to the dropouts that feed them, in their order
Feeds = dict[nn.Module, list[nn.Module]]


@dataclass(frozen=True)
class Width:
    """The units of a dropout's input: how many, on which axis."""

    num_units: int
    axis: int
    #: whether a unit has several positions, as the pixels of a channel
    positions: bool


@dataclass(frozen=True)
class Fed:
    """What the dropouts of a model feed.

    Attributes:
        layers: from every weight layer that one dropout feeds, and nothing else does, to that dropout.
        alone: dropouts that feed anything else, with a sentence about it.
        doubled: dropouts that feed a layer which has other noise, with a sentence about it.
        widths: the units of each dropout; a sentence if they are not known.
    """

    layers: dict[nn.Module, nn.Module]
    alone: dict[nn.Module, str]
    doubled: dict[nn.Module, str]
    widths: dict[nn.Module, Width | str]


def feeds(model: nn.Module, dropouts: Mapping[nn.Module, list[str]], x: Inputs | None) -> Fed:
    """What each of these dropouts feeds.

    Args:
        model: any module.
        dropouts: from each dropout to its paths.
        x: a batch of inputs for a pass; None to use the order of `nn.Sequential`s.
    """
    if not dropouts:
        return Fed({}, {}, {}, {})
    seen = _sequential(model, dropouts) if x is None else _watched(model, dropouts, x)
    layers: dict[nn.Module, nn.Module] = {}
    doubled: dict[nn.Module, str] = {}
    for layer, sources in seen.feeds.items():
        own = [dropout for dropout in sources if dropout not in seen.alone]
        if isinstance(layer, StochasticLayer):
            doubled |= dict.fromkeys(own, f"feeds a {type(layer).__name__}, which has noise of its own")
        elif own:
            layers[layer] = own[0]
            doubled |= dict.fromkeys(own[1:], "feeds a layer that another dropout feeds too")
    return Fed(layers, seen.alone, doubled, seen.widths)


@dataclass(frozen=True)
class _Seen:
    """What was seen of the dropouts: the layers they feed first, and those that feed anything else."""

    feeds: Feeds
    alone: dict[nn.Module, str]
    widths: dict[nn.Module, Width | str]

    def join(self, layer: nn.Module, dropout: nn.Module) -> None:
        """Note that a dropout feeds a layer."""
        sources = self.feeds.setdefault(layer, [])
        if dropout not in sources:
            sources.append(dropout)


def _is_channelwise(dropout: nn.Module) -> bool:
    return not isinstance(dropout, nn.Dropout)


# watching a pass


@dataclass(frozen=True, eq=False)
class _Mark:
    """Noise that a tensor would carry."""

    dropout: nn.Module
    channels: int | None  #: of channel-wise noise


class _Watch(TorchFunctionMode):
    """Follows the outputs of dropouts through a pass without noise."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = _Seen({}, {}, {})
        self.bare: set[nn.Module] = set()
        self._marks: dict[int, tuple[Tensor, list[_Mark]]] = {}
        self._inside = 0

    def marks(self, value: Any) -> list[_Mark]:
        """The noise that any tensor in `value` would carry."""
        found = (self._marks.get(id(tensor)) for tensor in tensors_in(value))
        return [mark for known in found if known is not None for mark in known[1]]

    def dropped(self, dropout: nn.Module, args: Any, output: Any) -> Any:
        """Mark the output of a dropout that was called."""
        if not isinstance(output, Tensor):
            return output
        channels = output.shape[1] if _is_channelwise(dropout) and output.dim() > 1 else None
        self._note_width(dropout, output)
        # A new tensor, as dropout makes in training: the input may be used elsewhere, or written to.
        fresh = output.clone()
        self._marks[id(fresh)] = (fresh, [*self.marks(args), _Mark(dropout, channels)])
        return fresh

    def _note_width(self, dropout: nn.Module, output: Tensor) -> None:
        widths = self.seen.widths
        if dropout in widths:
            widths[dropout] = _USED_TWICE
        elif output.dim() < 2:
            widths[dropout] = "is given no rows"
        else:
            # Three axes are (N, C, L) for a dropout of channels, and tokens (N, L, K) for one of elements.
            axis = -1 if output.dim() == 3 and not _is_channelwise(dropout) else 1
            widths[dropout] = Width(output.shape[axis], axis, positions=output.dim() > 2)

    def entered(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the dropouts that feed a weight layer, which is being called."""
        self._inside += 1
        if self._inside > 1:
            return
        marks = self.marks((args, kwargs))
        if not marks:
            self.bare.add(layer)
        for mark in marks:
            # The channels must be the input units of the layer.
            if mark.channels is not None and isinstance(layer, WEIGHTS) and num_units(layer) != mark.channels:
                why = f"drops {mark.channels} channels, but feeds a layer with {num_units(layer)} input units"
                self.seen.alone.setdefault(mark.dropout, why)
            else:
                self.seen.join(layer, mark.dropout)

    def left(self) -> None:
        """Note that the call of a weight layer has ended."""
        self._inside -= 1

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        marks = self.marks((args, kwargs)) if not self._inside else []
        outputs = list(tensors_in(result)) if marks else []
        if not outputs:
            return result
        name = getattr(func, "__name__", str(func))
        scaled = name in _SCALINGS and sum(1 for _ in tensors_in((args, kwargs))) == 1
        passes = name in _TRANSPARENT or scaled
        left = []
        for mark in marks:
            if passes or (mark.channels is not None and name in _TRANSPARENT_TO_CHANNELS):
                left.append(mark)
            else:
                why = f"goes through {name.strip('_')} before any weight layer"
                self.seen.alone.setdefault(mark.dropout, why)
        for output in outputs:
            self._marks[id(output)] = (output, left)
        return result


_SCALINGS = frozenset({"mul", "mul_", "__mul__", "__rmul__", "div", "div_", "__truediv__", "true_divide"})


_USED_TWICE = "is used at several places, where one noise would be the same"


def _watched(model: nn.Module, dropouts: Mapping[nn.Module, list[str]], x: Inputs) -> _Seen:
    watch = _Watch()
    kinds = (*WEIGHTS, StochasticLayer)
    layers: list[nn.Module] = [part for part in model.modules() if isinstance(part, kinds)]
    with ExitStack() as stack:
        for layer in layers:
            before = layer.register_forward_pre_hook(watch.entered, with_kwargs=True)
            after = layer.register_forward_hook(lambda *_: watch.left(), always_call=True)
            stack.callback(before.remove)
            stack.callback(after.remove)
        for dropout in dropouts:
            hook = dropout.register_forward_hook(watch.dropped)
            stack.callback(hook.remove)
        stack.enter_context(torch.no_grad())
        stack.enter_context(random_state_kept())
        stack.enter_context(evaluating(model))
        with watch:
            output = call(model, x)
    seen = watch.seen
    for mark in watch.marks(output):
        seen.alone.setdefault(mark.dropout, "goes to the output of the model")
    for layer in watch.bare & seen.feeds.keys():
        for dropout in seen.feeds[layer]:
            seen.alone.setdefault(dropout, "feeds a layer that is also used without it")
    fed = {dropout for sources in seen.feeds.values() for dropout in sources}
    for dropout in dropouts:
        if dropout not in fed:
            seen.alone.setdefault(dropout, "feeds no weight layer")
        seen.widths.setdefault(dropout, "is not called with this `x`")
    return seen


# the order of an nn.Sequential


def _sequential(model: nn.Module, dropouts: Mapping[nn.Module, list[str]]) -> _Seen:
    seen = _Seen({}, {}, {})
    for dropout, paths in dropouts.items():
        for path in paths:
            _first_layer(model, path, dropout, seen)
        width = _width_before(model, paths[0])
        seen.widths[dropout] = _USED_TWICE if len(paths) > 1 else width or "has a width that is not known"
    return seen


_NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
_CONVOLUTIONS = (nn.modules.conv._ConvNd,)


def _width_before(model: nn.Module, path: str) -> Width | None:
    """The units of a dropout's input, from the modules before it in its `nn.Sequential`."""
    above, _, name = path.rpartition(".")
    parent = model.get_submodule(above) if path else model
    if not path or not _is_sequence(parent):
        return None
    names = list(parent._modules)
    earlier = (parent._modules[other] for other in names[: names.index(name)])
    for module in reversed(list(_flattened(part for part in earlier if part is not None))):
        part = module.layer if isinstance(module, StochasticLayer) else module
        if isinstance(part, _CONVOLUTIONS):
            return Width(part.out_channels, 1, positions=True)
        if isinstance(part, nn.Embedding):
            return Width(part.embedding_dim, -1, positions=True)
        if isinstance(part, nn.Linear):
            return Width(part.out_features, -1, positions=True)
        if isinstance(part, _NORMS):
            return Width(part.num_features, 1, positions=True)
        if isinstance(part, Units):
            return Width(part.num_units, part.axis, positions=True)
        activation = type(part).__module__ == "torch.nn.modules.activation" and type(part) is not nn.GLU
        if not (activation or isinstance(part, (nn.Identity, *_POOLS, *DROPOUTS))):
            return None
    return None


def _first_layer(model: nn.Module, path: str, dropout: nn.Module, seen: _Seen) -> None:
    """Note the weight layer that follows in the same `nn.Sequential`, or what comes before it."""
    pools = _POOLS if _is_channelwise(dropout) else ()
    for module in _followers(model, path):
        if isinstance(module, (*WEIGHTS, StochasticLayer)):
            if _is_channelwise(dropout) and isinstance(module, nn.Linear):
                seen.alone.setdefault(dropout, "drops channels, but feeds a linear layer")
            else:
                seen.join(module, dropout)
            return
        if not isinstance(module, (*_TRANSPARENT_MODULES, *pools, *DROPOUTS)):
            seen.alone.setdefault(dropout, f"goes through {type(module).__name__} before any weight layer")
            return
    seen.alone.setdefault(dropout, "is not followed by a weight layer in an nn.Sequential")


def next_layer(model: nn.Module, path: str) -> StochasticLayer | None:
    """The stochastic layer that follows `path` and whose noise an `nn.Dropout` there could replace."""
    pooled = False
    for module in _followers(model, path):
        if isinstance(module, StochasticLayer):
            by_channel = not isinstance(module.layer, nn.Linear) and not getattr(module, "elementwise", True)
            return module if by_channel or not pooled else None
        pooled = pooled or isinstance(module, _POOLS)
        if not isinstance(module, (*_TRANSPARENT_MODULES, *_POOLS)):
            return None
    return None


def _followers(model: nn.Module, path: str) -> Iterator[nn.Module]:
    """The modules that run after the one at `path`, as far as `nn.Sequential`s show it."""
    while path:
        above, _, name = path.rpartition(".")
        parent = model.get_submodule(above)
        if not _is_sequence(parent):
            return
        names = list(parent._modules)
        later = (parent._modules[other] for other in names[names.index(name) + 1 :])
        yield from _flattened(module for module in later if module is not None)
        path = above


def _flattened(modules: Iterable[nn.Module]) -> Iterator[nn.Module]:
    for module in modules:
        if _is_sequence(module):
            yield from _flattened(module._modules.values())  # type: ignore[arg-type]
        else:
            yield module


def _is_sequence(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
