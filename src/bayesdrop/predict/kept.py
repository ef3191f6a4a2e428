"""Kept units: what a shared mask drops is dropped for the whole batch, and is left out of the products."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesdrop.predict.steps import Map, Step

__all__ = ["KeptUnits"]


class KeptUnits:
    """Runs one draw after another on compact weights. Activations are (units, N), so that units are rows.

    Args:
        start: the constant input, (N, K).
        steps: of the perceptron.
    """

    def __init__(self, start: Tensor, steps: list[Step]) -> None:
        self.start = start.t().contiguous()
        self.steps = steps
        self.maps = [step for step in steps if isinstance(step, Map)]
        self.scaled: dict[int, tuple[Tensor, Tensor]] = {}
        self.scratch: dict[tuple[int, str], Tensor] = {}

    def run(self, noise: dict[int, Tensor], draw: int) -> Tensor:
        """Output (N, D) of one of C draws, from (C, 1, K) noise of every leaf."""
        kept = [
            None if step.leaf is None else noise[step.leaf.index][draw].flatten().nonzero().flatten()
            for step in self.maps
        ]
        h = self.start if kept[0] is None else self.start.index_select(0, kept[0])
        at = 0
        for step in self.steps:
            if not isinstance(step, Map):
                h = step(h)
                continue
            following = kept[at + 1] if at + 1 < len(self.maps) else None
            h = self._map(h, at, step, kept[at], following, noise)
            at += 1
        return h.t()

    def _map(
        self,
        h: Tensor,
        at: int,
        step: Map,
        inputs: Tensor | None,
        outputs: Tensor | None,
        noise: dict[int, Tensor],
    ) -> Tensor:
        weight = self._scaled_weight(at, step, noise)
        if outputs is not None:
            weight = torch.index_select(
                weight, 0, outputs, out=self._buffer(at, "rows", len(outputs), weight.shape[1])
            )
        if inputs is not None:
            weight = torch.index_select(
                weight, 1, inputs, out=self._buffer(at, "both", weight.shape[0], len(inputs))
            )
        if step.bias is None:
            return weight @ h
        bias = step.bias if outputs is None else step.bias.index_select(0, outputs)
        return torch.addmm(bias.unsqueeze(1), weight, h)

    def _scaled_weight(self, at: int, step: Map, noise: dict[int, Tensor]) -> Tensor:
        """Weights times the value of a kept unit's noise; a unit that is never kept has no use for it."""
        if step.leaf is None:
            return step.weight
        chunk = noise[step.leaf.index]
        known = self.scaled.get(at)
        # A unit that one chunk never keeps may be kept in the next: a scale belongs to its chunk.
        if known is None or known[0] is not chunk:
            known = self.scaled[at] = (chunk, step.weight * chunk.amax(0))
        return known[1]

    def _buffer(self, at: int, name: str, rows: int, columns: int) -> Tensor:
        weight = self.maps[at].weight
        buffer = self.scratch.get((at, name))
        if buffer is None:
            buffer = self.scratch[at, name] = torch.empty(
                weight.numel(), dtype=weight.dtype, device=weight.device
            )
        return buffer[: rows * columns].view(rows, columns)
