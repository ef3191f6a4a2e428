"""Which weight layers a dropout feeds: found by watching a pass, or from the order of an `nn.Sequential`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesdrop.draws import evaluating
from bayesdrop.draws.passes import tensors_in
from bayesdrop.inputs import Inputs, call
from bayesdrop.layers.base import StochasticLayer
from bayesdrop.layers.places import DROPOUTS, WEIGHTS
from bayesdrop.layers.weights import num_units
from bayesdrop.randomness import random_state_kept

__all__ = ["feeds", "next_layer"]

# Noise that multiplies commutes with these: f(a x) = a f(x) for a >= 0, and they move elements about.
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
# With one value for a channel, these too.
_TRANSPARENT_TO_CHANNELS = frozenset(
    f"{kind}_pool{size}d" for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for size in (1, 2, 3)
)
_POOLS = (
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
)

Feeds = dict[nn.Module, nn.Module]


def feeds(model: nn.Module, dropouts: Mapping[nn.Module, list[str]], x: Inputs | None) -> Feeds:
    """From every weight layer that is fed by one of these dropouts to the dropout.

    An error where a dropout feeds anything else.

    Args:
        model: any module.
        dropouts: with their paths.
        x: a batch for a pass to watch, or None.
    """
    if not dropouts:
        return {}
    found, troubles = _sequential(model, dropouts) if x is None else _watched(model, dropouts, x)
    if troubles:
        told = "; ".join(f"{dropouts[dropout][0]!r} {trouble}" for dropout, trouble in troubles.items())
        good = [paths[0] for dropout, paths in dropouts.items() if dropout not in troubles]
        hint = "" if x is not None else "Give `x`, a batch of inputs: a pass then shows where each goes. "
        hint += "A dropout that is left as it is stays random in `predict`: "
        hint += f"name the others, as where={good!r}." if good else "choose weight layers by where='weights'."
        if any(isinstance(part, StochasticLayer) for part in model.modules()):
            hint += " where=StochasticLayer means the layers that have noise on their weights already."
        want = "dropouts whose noise can act on the weights of the layers that they feed"
        raise ValueError(f"convert: `where` must choose {want}; but {told}. {hint}")
    return found


def _join(found: Feeds, layer: nn.Module, dropout: nn.Module) -> str | None:
    """Note that a dropout feeds a layer; what is wrong with that, if anything."""
    if isinstance(layer, StochasticLayer):
        return f"feeds a {type(layer).__name__}, which has noise of its own"
    if found.setdefault(layer, dropout) is not dropout:
        return "feeds a layer that another dropout feeds too"
    return None


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
        self.found: Feeds = {}
        self.bare: set[nn.Module] = set()
        self.troubles: dict[nn.Module, str] = {}
        self._marks: dict[int, tuple[Tensor, list[_Mark]]] = {}
        self._inside = 0

    def marks(self, value: Any) -> list[_Mark]:
        """The noise that any tensor in `value` would carry."""
        found = (self._marks.get(id(tensor)) for tensor in tensors_in(value))
        return [mark for known in found if known is not None for mark in known[1]]

    def dropped(self, dropout: nn.Module, args: Any, output: Any) -> Any:
        """A dropout was called: its output is marked."""
        if not isinstance(output, Tensor):
            return output
        channels = output.shape[1] if _is_channelwise(dropout) and output.dim() > 1 else None
        # A tensor of its own, as dropout makes in training: the input may be used elsewhere, or written to.
        fresh = output.clone()
        self._marks[id(fresh)] = (fresh, [*self.marks(args), _Mark(dropout, channels)])
        return fresh

    def entered(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A weight layer is called."""
        self._inside += 1
        if self._inside > 1:
            return
        marks = self.marks((args, kwargs))
        if not marks:
            self.bare.add(layer)
        for mark in marks:
            trouble = _join(self.found, layer, mark.dropout)
            # One value for a channel must be one for an input unit.
            if mark.channels is not None and isinstance(layer, WEIGHTS) and num_units(layer) != mark.channels:
                trouble = (
                    f"drops {mark.channels} channels, but feeds a layer with {num_units(layer)} input units"
                )
            if trouble is not None:
                self.troubles.setdefault(mark.dropout, trouble)

    def left(self) -> None:
        """A weight layer is done."""
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
        for mark in marks:
            if not passes and not (mark.channels is not None and name in _TRANSPARENT_TO_CHANNELS):
                self.troubles.setdefault(
                    mark.dropout, f"goes through {name.strip('_')} before any weight layer"
                )
        for output in outputs:
            self._marks[id(output)] = (output, marks)
        return result


_SCALINGS = frozenset({"mul", "mul_", "__mul__", "__rmul__", "div", "div_", "__truediv__", "true_divide"})


def _watched(
    model: nn.Module, dropouts: Mapping[nn.Module, list[str]], x: Inputs
) -> tuple[Feeds, dict[nn.Module, str]]:
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
    troubles = dict(watch.troubles)
    for mark in watch.marks(output):
        troubles.setdefault(mark.dropout, "goes to the output of the model")
    for layer, dropout in watch.found.items():
        if layer in watch.bare:
            troubles.setdefault(dropout, "feeds a layer that is also used without it")
    for dropout in dropouts:
        if dropout not in watch.found.values():
            troubles.setdefault(dropout, "feeds no weight layer")
    return watch.found, troubles


# the order of an nn.Sequential


def _sequential(
    model: nn.Module, dropouts: Mapping[nn.Module, list[str]]
) -> tuple[Feeds, dict[nn.Module, str]]:
    found: Feeds = {}
    troubles: dict[nn.Module, str] = {}
    for dropout, paths in dropouts.items():
        for path in paths:
            trouble = _first_layer(model, path, dropout, found)
            if trouble is not None:
                troubles.setdefault(dropout, trouble)
    return found, troubles


def _first_layer(model: nn.Module, path: str, dropout: nn.Module, found: Feeds) -> str | None:
    """Note the weight layer that follows in the same `nn.Sequential`; what is in the way, if anything."""
    pools = _POOLS if _is_channelwise(dropout) else ()
    for module in _followers(model, path):
        if isinstance(module, (*WEIGHTS, StochasticLayer)):
            if _is_channelwise(dropout) and isinstance(module, nn.Linear):
                return "drops channels, but feeds a linear layer"
            return _join(found, module, dropout)
        if not isinstance(module, (*_TRANSPARENT_MODULES, *pools, *DROPOUTS)):
            return f"goes through {type(module).__name__} before any weight layer"
    return "is not followed by a weight layer in an nn.Sequential"


def next_layer(model: nn.Module, path: str) -> StochasticLayer | None:
    """The stochastic layer whose noise a dropout at `path` could be, as far as an `nn.Sequential` tells."""
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
    """What runs after the module at `path`, as far as sequences of modules tell."""
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
