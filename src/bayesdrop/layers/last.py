"""The last linear maps of a model: those after which no other comes on the way to the output."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesdrop.inputs import Inputs, call, tensors_in
from bayesdrop.layers.base import StochasticLayer
from bayesdrop.layers.places import WEIGHTS, convertible
from bayesdrop.operations import name_of, written_by
from bayesdrop.randomness import random_state_kept
from bayesdrop.trace import evaluating

__all__ = ["last_maps"]


def last_maps(
    model: nn.Module, x: Inputs | None, pick: Callable[[Any], Any] | None = None
) -> list[nn.Module]:
    """The last weight layers of a model, in its order; none if it has none.

    Args:
        model: any module.
        x: a batch of inputs for a pass, which shows where outputs come from, so that a network with two heads
            has two last layers. None to take the one that comes last among the modules.
        pick: takes the wanted part of what the model returns; None for all of it.
    """
    maps: list[nn.Module] = [
        part for part in convertible(model) if isinstance(part, (*WEIGHTS, StochasticLayer))
    ]
    if x is None:
        return maps[-1:]
    watch = _Origins()
    with ExitStack() as stack:
        for part in maps:
            before = part.register_forward_pre_hook(watch.entered, with_kwargs=True)
            after = part.register_forward_hook(watch.left)
            stack.callback(before.remove)
            stack.callback(after.remove)
        stack.enter_context(torch.no_grad())
        stack.enter_context(random_state_kept())
        stack.enter_context(evaluating(model))
        with watch:
            output = call(model, x)
            output = output if pick is None else pick(output)
    found = watch.origins(output) - watch.fed
    return [part for part in maps if part in found]


class _Origins(TorchFunctionMode):
    """Notes, for every tensor of a pass, the weight layers that it comes from without another in between.

    Attributes:
        fed: weight layers whose outputs another weight layer was given.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fed: set[nn.Module] = set()
        # With the tensor itself, so that its id is not used again.
        self._origins: dict[int, tuple[Tensor, set[nn.Module]]] = {}

    def origins(self, value: Any) -> set[nn.Module]:
        """The weight layers that any tensor in `value` comes from."""
        known = (self._origins.get(id(tensor)) for tensor in tensors_in(value))
        return set().union(*(found[1] for found in known if found is not None))

    def entered(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note what a weight layer is given."""
        self.fed |= self.origins((args, kwargs))

    def left(self, layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Note what a weight layer returns."""
        for tensor in tensors_in(output):
            self._origins[id(tensor)] = (tensor, {layer})

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        origins = self.origins((args, kwargs))
        if origins:
            for tensor in tensors_in([result, written_by(name_of(func), args, kwargs)]):
                old = self._origins.get(id(tensor))
                self._origins[id(tensor)] = (tensor, origins if old is None else origins | old[1])
        return result
