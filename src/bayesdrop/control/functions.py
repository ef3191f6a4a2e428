"""Several draws of one dynamics model, each held for its own group of rows."""

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
    """Draws index[0], index[1], ... of a seed: of K n rows, group k of n rows goes through draw index[k].

    Draw k is `FunctionDraw(model, seed=seed, index=k)`; outputs have gradients in the rows. The noise is made
    when the object is, and weights are read when the number of rows changes: after training, make a new one.

    Args:
        model: a dynamics model.
        seed: names a sequence of draws.
        index: which of them; None for the mean network, which counts as one draw.
        means_only: leave out the log-variances, which episodes without noise do not need.
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
            raise ValueError(must("HeldFunctions", "index", "at least one draw", index))
        self._noises: dict[nn.Module, Tensor] = {}
        if index is not None:
            numbers = [whole_number("HeldFunctions", "index", each, at_least=0) for each in index]
            with torch.no_grad(), FunctionDraw(model, seed=seed, index=numbers):
                # The draw learns the number of rows from a pass.
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
            want = f"of a number of rows that {self.number} draws divide"
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
        """Repeat the noise for a number of rows, and read the weights, without gradients."""
        self._rows = rows
        self._steps = []
        last = self.model.body[-1]
        for module in self.model.body:
            linear = module.layer if isinstance(module, InputNoiseLayer) else module
            noise = self._noises.get(module)
            if noise is not None:
                noise = noise.repeat_interleave(rows // self.number, dim=0)
            if isinstance(linear, nn.Linear):
                # The means are the first outputs of the last layer.
                kept = self.model.state_size if self.means_only and module is last else None
                bias = None if linear.bias is None else linear.bias.detach()[:kept]
                self._steps.append((module, noise, linear.weight.detach()[:kept], bias))
            else:
                # A layer of noise alone wraps a module that returns its input.
                self._steps.append((linear, noise, None, None))
