"""Several functions of one dynamics model, each held for its own group of rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bayesdrop.control.dynamics import DynamicsModel
from bayesdrop.errors import must, whole_number
from bayesdrop.layers.base import InputNoiseLayer
from bayesdrop.trace import FunctionDraw

__all__ = ["HeldFunctions"]


class HeldFunctions:
    """Functions index[0], index[1], ... of a seed: of K n rows, group k of n rows goes through index[k].

    They are those of `FunctionDraw(model, seed=seed, index=k)`, with gradients in the rows. The noise and
    the weights are looked at once, here: a model that is trained afterwards needs new functions.

    Args:
        model: a dynamics model.
        seed: names a sequence of functions.
        index: which of them; None for the mean network, which is one function.
        means_only: leave out the log-variances, which episodes without noise have no use for.
    """

    def __init__(
        self,
        model: DynamicsModel,
        *,
        seed: int = 0,
        index: Sequence[int] | None = None,
        means_only: bool = False,
    ) -> None:
        self.model = model
        self.means_only = means_only
        self.number = 1 if index is None else len(index)
        if self.number < 1:
            raise ValueError(must("HeldFunctions", "index", "at least one function", index))
        self._noises: dict[nn.Module, Tensor] = {}
        if index is not None:
            numbers = [whole_number("HeldFunctions", "index", each, at_least=0) for each in index]
            with torch.no_grad(), FunctionDraw(model, seed=seed, index=numbers):
                # A pass tells the draw how many rows there are.
                model(model.output_scale.new_zeros(self.number, model.state_size + model.action_size))
                for layer in model.body:
                    if isinstance(layer, InputNoiseLayer):
                        rows = layer.layer.weight.new_zeros(self.number, layer.layer.weight.shape[1])
                        noise = layer.input_noise(rows)
                        if noise is not None:
                            self._noises[layer] = noise
        self._rows = 0
        self._steps: list[tuple[nn.Module, Tensor | None, Tensor | None, Tensor | None]] = []

    def __call__(self, state: Tensor, action: Tensor) -> Tensor:
        """Outputs (K n, 2 S) of the model, or means (K n, S), for states (K n, S) and actions (K n, A)."""
        rows = state.shape[0]
        if rows % self.number:
            want = f"of a number of rows that {self.number} functions divide"
            raise ValueError(must("HeldFunctions", "state", want, rows))
        if rows != self._rows:
            self._prepare(rows)
        x = self.model.network_inputs(state, action)
        for module, noise, weight, bias in self._steps:
            if noise is not None:
                x = x * noise
            x = module(x) if weight is None else nn.functional.linear(x, weight, bias)
        return x if self.means_only else self.model.bounded(x)

    def _prepare(self, rows: int) -> None:
        """Noise of as many rows as there are, and weights that ask for no gradient."""
        self._rows = rows
        self._steps = []
        last = self.model.body[-1]
        for module in self.model.body:
            linear = module.layer if isinstance(module, InputNoiseLayer) else module
            noise = self._noises.get(module)
            if noise is not None:
                noise = noise.repeat_interleave(rows // self.number, dim=0)
            if isinstance(linear, nn.Linear):
                # Of the last layer, the means are the first outputs.
                kept = self.model.state_size if self.means_only and module is last else None
                bias = None if linear.bias is None else linear.bias.detach()[:kept]
                self._steps.append((module, noise, linear.weight.detach()[:kept], bias))
            else:
                # Of noise that stands alone, what it stands on hands its input on.
                self._steps.append((linear, noise, None, None))
