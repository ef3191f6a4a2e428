"""Multilayer perceptrons: masked linear maps with element-wise functions between, run for many draws.

Two ways, both exact. *Stacked*: all draws of a chunk in one batched product, the noise folded into the
weights where these are the smaller. *Kept units*: a unit that a shared mask drops is dropped for the
whole batch, so a draw needs only the kept rows and columns of every weight matrix.
"""

from __future__ import annotations

from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesdrop.predict.fuse import masked_maps
from bayesdrop.predict.kept import KeptUnits
from bayesdrop.predict.steps import Map, Step, elementwise
from bayesdrop.predict.tape import Op, Ref, Tape

__all__ = ["Chain", "find_chain"]


def find_chain(tape: Tape) -> Chain | None:
    """The tape as a chain, or None if it is something else."""
    if tape.mutates or not tape.ops:
        return None
    masked = {m.apply: m for m in masked_maps(tape) if m.geometry is None and len(m.shape) == 2}
    products = {m.multiply for m in masked.values()}
    leaves = {leaf.index for leaf in tape.leaves}
    steps: list[Step] = []
    start: Tensor | None = None
    latest: int | None = None
    for place, op in enumerate(tape.ops):
        if place in products:
            continue
        found = masked.get(place)
        if found is not None:
            x = found.x
            steps.append(Map(found.leaf, found.weight, found.bias))
        elif any(index in leaves for index in op.refs) or len(op.refs) != 1:
            return None
        else:
            x = Ref(op.refs[0])
            step = _plain_step(op)
            if step is None:
                return None
            steps.append(step)
        if isinstance(x, Tensor):
            if latest is not None:
                return None
            start = x
        elif latest is None or x.index != latest:
            return None
        latest = op.outputs[0]
    if latest != tape.output or start is None or start.dim() != 2:
        return None
    return Chain(start, steps)


def _plain_step(op: Op) -> Step | None:
    if len(op.shapes) != 1 or len(op.shapes[0]) != 2:
        return None
    if op.name == "linear" and isinstance(op.args[0], Ref):
        weight = op.args[1]
        bias = op.args[2] if len(op.args) > 2 else op.kwargs.get("bias")
        return Map(None, weight, bias)
    if not op.args or not isinstance(op.args[0], Ref):
        return None
    return elementwise(op.func, op.args[1:], {k: v for k, v in op.kwargs.items() if k != "inplace"})


class Chain:
    """A perceptron behind a constant input (N, K)."""

    def __init__(self, start: Tensor, steps: list[Step]) -> None:
        self.start = start
        self.steps = steps
        self.maps = [step for step in steps if isinstance(step, Map)]
        self.leaves = [step.leaf for step in self.maps if step.leaf is not None]
        self._kept: KeptUnits | None = None
        self._units: _StackedUnits | None = None

    # stacked

    def stacked(self, noise: dict[int, Tensor]) -> Tensor:
        """Outputs of C draws, (C, N, D), from (C, 1, K) noise of every leaf."""
        if self.units_are_rows:
            return self._stacked_units(noise)
        h = self.start
        for step in self.steps:
            if not isinstance(step, Map):
                h = step(h)
                continue
            z = None if step.leaf is None else noise[step.leaf.index]
            h = _stacked_map(h, step, z, own=h is not self.start)
        return h

    @cached_property
    def units_are_rows(self) -> bool:
        """Whether every noisy map has fewer outputs than the batch has rows: noise goes into the weights."""
        rows = self.start.shape[0]
        return self.maps[0].leaf is not None and all(m.weight.shape[0] < rows for m in self.maps)

    def _stacked_units(self, noise: dict[int, Tensor]) -> Tensor:
        """As `stacked`, with activations (C, units, N), and the same memory for every chunk."""
        if self._units is None:
            self._units = _StackedUnits(self)
        return self._units.run(noise)

    def bytes_per_draw(self) -> int:
        """What the largest map of a draw touches when draws are stacked."""
        rows = self.start.shape[0]
        sizes = [
            rows * outputs + (min(rows, outputs) * inputs if m.leaf is not None else 0)
            for m in self.maps
            for outputs, inputs in [m.weight.shape]
        ]
        return max(sizes) * self.start.element_size()

    # kept units

    def kept(self, noise: dict[int, Tensor], draw: int) -> Tensor:
        """Output (N, D) of one of C draws, from the kept units only."""
        if self._kept is None:
            self._kept = KeptUnits(self.start, self.steps)
        return self._kept.run(noise, draw)

    def is_two_valued(self, noise: dict[int, Tensor]) -> bool:
        """Whether every noise is 0 or one number a unit, as Bernoulli dropout's."""
        for leaf in self.leaves:
            z = noise[leaf.index]
            kept = z.amax(0, keepdim=True)
            if not bool(((z == 0) | (z == kept)).all()):
                return False
        return True


def _stacked_map(h: Tensor, step: Map, z: Tensor | None, *, own: bool) -> Tensor:
    """Outputs of all draws. `h` may be written to if it is our `own` and not the model's input."""
    weight, bias = step.weight, step.bias
    if z is None:
        return F.linear(h, weight, bias)
    draws, rows, outputs = z.shape[0], h.shape[-2], weight.shape[0]
    if outputs >= rows:
        same = own and h.dim() == 3
        return F.linear(h.mul_(z) if same else h * z, weight, bias)
    scaled = weight * z
    if h.dim() == 2:
        offset = None if bias is None else bias.repeat(draws)
        wide = F.linear(h, scaled.reshape(draws * outputs, -1), offset)
        return wide.reshape(rows, draws, outputs).transpose(0, 1)
    if bias is None:
        return torch.bmm(h, scaled.transpose(1, 2))
    return torch.baddbmm(bias, h, scaled.transpose(1, 2))


class _StackedUnits:
    """Runs chunks of draws with noise folded into weights. Activations are (C, units, N): all in order.

    Results go into memory that is taken once: fresh memory for every chunk costs as much as the products.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.start = chain.start.t().contiguous()
        self.offsets = [None if m.bias is None else m.bias.unsqueeze(1) for m in chain.maps]
        self.memory: dict[tuple[int, str], Tensor] = {}

    def run(self, noise: dict[int, Tensor]) -> Tensor:
        h, at = self.start, 0
        for step in self.chain.steps:
            if not isinstance(step, Map):
                h = step(h)
                continue
            z = None if step.leaf is None else noise[step.leaf.index]
            h = self._map(h, at, step, z)
            at += 1
        return h.transpose(1, 2)

    def _map(self, h: Tensor, at: int, step: Map, z: Tensor | None) -> Tensor:
        weight, offset = step.weight, self.offsets[at]
        if z is None:
            plain: Tensor = torch.matmul(weight, h)
            return plain if offset is None else plain.add_(offset)
        draws, (outputs, inputs), rows = z.shape[0], weight.shape, h.shape[-1]
        scaled = torch.mul(weight, z, out=self._taken(at, "weight", (draws, outputs, inputs), weight))
        last = at == len(self.chain.maps) - 1
        out = None if last else self._taken(at, "output", (draws, outputs, rows), weight)
        if h.dim() == 2:
            flat = scaled.view(draws * outputs, inputs)
            target = None if out is None else out.view(draws * outputs, rows)
            wide = torch.mm(flat, h, out=target)
            h = wide.view(draws, outputs, rows)
            return h if offset is None else h.add_(offset)
        if offset is None:
            return torch.bmm(scaled, h, out=out)
        return torch.baddbmm(offset, scaled, h, out=out)

    def _taken(self, at: int, name: str, shape: tuple[int, int, int], like: Tensor) -> Tensor:
        memory = self.memory.get((at, name))
        if memory is None or memory.shape[0] < shape[0]:
            memory = self.memory[at, name] = like.new_empty(shape)
        return memory[: shape[0]]
