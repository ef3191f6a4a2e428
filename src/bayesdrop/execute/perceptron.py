"""Multilayer perceptrons: masked linear maps with element-wise functions between, run for many draws.

There are two ways, both exact. *Stacked*: all draws of a chunk in one batched product, the noise folded into
the weights where these are smaller than the inputs. *Kept units*: a unit that a shared mask drops is dropped
for the whole batch, so a draw needs only the kept rows and columns of every weight matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bayesdrop.functional.products import ONEDNN, linear, matmul
from bayesdrop.inputs import tensors_in
from bayesdrop.operations import TABLE, canonical
from bayesdrop.trace import Leaf

__all__ = ["MOSTLY_KEPT", "Map", "Perceptron", "PreparedPerceptron", "Step", "elementwise"]


@dataclass(frozen=True)
class Map:
    """A linear map, its input multiplied by `leaf` if there is one."""

    leaf: Leaf | None
    weight: Tensor
    bias: Tensor | None


Step = Map | Callable[[Tensor], Tensor]


def elementwise(func: Callable[..., Any], rest: tuple[Any, ...], kwargs: dict[str, Any]) -> Step | None:
    """The step h -> func(h, *rest, **kwargs); None unless it is known to work element by element."""
    row = TABLE.get(canonical(func))
    if row is None or not row.elementwise or tensors_in((rest, kwargs)):
        return None
    return torch.relu_ if row.name == "relu" else lambda h: func(h, *rest, **kwargs)


class Perceptron:
    """A perceptron with a constant input (N, K)."""

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
        return _stacked(self.start, self.steps, noise)

    @cached_property
    def units_are_rows(self) -> bool:
        """Whether maps have fewer outputs than the batch has rows, so that all noise goes into weights."""
        rows = self.start.shape[0]
        fewer = all(m.weight.shape[0] < rows for m in self.maps)
        return self.maps[0].leaf is not None and fewer and not (ONEDNN and _is_cpu(self.start))

    def _stacked_units(self, noise: dict[int, Tensor]) -> Tensor:
        """`stacked` with activations (C, units, N), and the same memory for every chunk."""
        if self._units is None:
            self._units = _StackedUnits(self)
        return self._units.run(noise)

    def bytes_per_draw(self) -> int:
        """Bytes that the largest map of one draw reads and writes when draws are stacked."""
        rows = self.start.shape[0]
        sizes = [
            rows * outputs + (min(rows, outputs) * inputs if m.leaf is not None else 0)
            for m in self.maps
            for outputs, inputs in [m.weight.shape]
        ]
        return max(sizes) * self.start.element_size()

    # kept units

    def kept_draws(self, noise: dict[int, Tensor]) -> Tensor:
        """Outputs (C, N, D) of C draws, from the kept units of each only."""
        if self._kept is None:
            self._kept = KeptUnits(self.start, self.steps)
        draws = next(iter(noise.values())).shape[0]
        return torch.stack([self._kept.run(noise, draw) for draw in range(draws)])

    def is_two_valued(self, noise: dict[int, Tensor]) -> bool:
        """Whether every noise is a mask: 0 or one number for each unit."""
        for leaf in self.leaves:
            z = noise[leaf.index]
            kept = z.amax(0, keepdim=True)
            if not bool(((z == 0) | (z == kept)).all()):
                return False
        return True


def _stacked(start: Tensor, steps: list[Step], noise: dict[int, Tensor]) -> Tensor:
    """Outputs (C, N, D) of C draws for an input (N, K), rows as rows."""
    h, done = start, -1
    for place, step in enumerate(steps):
        if place == done:
            continue
        if not isinstance(step, Map):
            h = step(h)
            continue
        z = None if step.leaf is None else noise[step.leaf.index]
        relu = place + 1 < len(steps) and steps[place + 1] is torch.relu_
        done = place + 1 if relu else done
        h = _stacked_map(h, step, z, own=h is not start, relu=relu)
    return h


def _is_cpu(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32


#: from this many outputs on, one product of all draws is faster than a product for each draw
_MANY = 8
#: rows from which on draws whose weights are ready are run as if they were not
_ROWS = 4
#: what the activations of draws that are run together may take: fresh memory costs more than products
_TOGETHER = 2**20


def _stacked_map(h: Tensor, step: Map, z: Tensor | None, *, own: bool, relu: bool) -> Tensor:
    """Outputs of a map for all draws. `own`: `h` may be written to, as it is not the model's input."""
    weight, bias = step.weight, step.bias
    if z is None:
        return linear(h, weight, bias, relu=relu)
    draws, rows, outputs = z.shape[0], h.shape[-2], weight.shape[0]
    if outputs >= rows or (outputs >= _MANY and ONEDNN and _is_cpu(h)):
        same = own and h.dim() == 3
        return linear(h.mul_(z) if same else h * z, weight, bias, relu=relu)
    scaled = weight * z
    if h.dim() == 2:
        offset = None if bias is None else bias.repeat(draws)
        wide = linear(h, scaled.reshape(draws * outputs, -1), offset, relu=relu)
        return wide.reshape(rows, draws, outputs).transpose(0, 1)
    turned = scaled.transpose(1, 2)
    found = torch.bmm(h, turned) if bias is None else torch.baddbmm(bias, h, turned)
    return found.relu_() if relu else found


class _StackedUnits:
    """Runs chunks of draws with noise folded into weights. Activations are (C, units, N) and contiguous.

    Results go into memory that is allocated once: new memory for every chunk costs as much as the products.
    """

    def __init__(self, net: Perceptron) -> None:
        self.net = net
        self.start = net.start.t().contiguous()
        self.offsets = [None if m.bias is None else m.bias.unsqueeze(1) for m in net.maps]
        self.memory: dict[tuple[int, str], Tensor] = {}

    def run(self, noise: dict[int, Tensor]) -> Tensor:
        h, at = self.start, 0
        for step in self.net.steps:
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
        last = at == len(self.net.maps) - 1
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


class _WholeInput(NamedTuple):
    """A map of an input (K, N), of which draws take off their dropped columns.

    `weight` is that of the map; `columns` has its columns as rows; `product` is the map's output with nothing
    dropped; `sizes` bound what a column adds to a row, (K, N), and `total` is their sum, (N,).
    """

    weight: Tensor
    columns: Tensor
    product: Tensor
    sizes: Tensor
    total: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, start: Tensor) -> _WholeInput:
        product = matmul(weight, start)
        if bias is not None:
            product.add_(bias.unsqueeze(1))
        sizes = start.abs() * weight.abs().amax(0).unsqueeze(1)
        return cls(weight, weight.t().contiguous(), product, sizes, sizes.sum(0))


#: share of kept inputs from which on it is less work to take off what is dropped
MOSTLY_KEPT = 0.6


class KeptUnits:
    """Runs one draw after another on compact weights. Activations are (units, N), so that units are rows.

    The input is the same for all draws. Where a draw drops few of its columns, the first map is that of the
    whole input, computed once for a chunk of draws, less what the dropped columns add:

        W diag(z) x = c W x - c W_dropped x_dropped

    Args:
        start: the constant input, (N, K).
        steps: of the perceptron.
    """

    def __init__(self, start: Tensor, steps: list[Step]) -> None:
        self.start = start.t().contiguous()
        self.steps = steps
        self.maps = [step for step in steps if isinstance(step, Map)]
        self.scaled: dict[int, tuple[Tensor, Tensor]] = {}
        self.whole: _WholeInput | None = None
        self.scratch: dict[tuple[int, str], Tensor] = {}

    def run(self, noise: dict[int, Tensor], draw: int) -> Tensor:
        """Output (N, D) of one of C draws, from (C, 1, K) noise of every leaf."""
        masks = [None if step.leaf is None else noise[step.leaf.index][draw].flatten() for step in self.maps]
        kept = [None if mask is None else mask.nonzero().flatten() for mask in masks]
        h, at = self.start, 0
        for step in self.steps:
            if not isinstance(step, Map):
                h = step(h)
                continue
            following = kept[at + 1] if at + 1 < len(self.maps) else None
            mask, units = masks[at], kept[at]
            if h is self.start and mask is not None and units is not None:
                if len(units) > MOSTLY_KEPT * len(mask):
                    found = self._less_dropped(step, (mask == 0).nonzero().flatten(), following, noise)
                    if found is not None:
                        h, at = found, at + 1
                        continue
                h = h.index_select(0, units)
            h = self._map(h, at, step, units, following, noise)
            at += 1
        return h.t()

    def _less_dropped(
        self, step: Map, dropped: Tensor, outputs: Tensor | None, noise: dict[int, Tensor]
    ) -> Tensor | None:
        """The first map: that of the whole input, less the part of its dropped columns.

        None where a row's dropped columns may be most of it: the difference would lose digits.
        """
        weight = self._scaled_weight(0, step, noise)
        if self.whole is None or self.whole.weight is not weight:
            self.whole = _WholeInput.of(weight, step.bias, self.start)
        whole = self.whole
        if bool((whole.sizes.index_select(0, dropped).sum(0) > 0.5 * whole.total).any()):
            return None
        part, product = whole.columns.index_select(0, dropped), whole.product
        if outputs is not None:
            part, product = part.index_select(1, outputs), product.index_select(0, outputs)
        return torch.addmm(product, part.t(), self.start.index_select(0, dropped), alpha=-1)

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
        found = matmul(weight, h)
        if step.bias is None:
            return found
        bias = step.bias if outputs is None else step.bias.index_select(0, outputs)
        return found.add_(bias.unsqueeze(1))

    def _scaled_weight(self, at: int, step: Map, noise: dict[int, Tensor]) -> Tensor:
        """Weights times the noise of a kept unit. (The weights of a unit that is never kept are not used.)"""
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


class PreparedPerceptron:
    """A perceptron for many inputs: the weights of every draw, times their noise, are computed once.

    Args:
        net: the perceptron; its constant input is not used.
        noise: (T, 1, K) of every leaf.
    """

    def __init__(self, net: Perceptron, noise: dict[int, Tensor]) -> None:
        self._plain, self._noise = net.steps, noise
        self._steps: list[tuple[Tensor, Tensor | None] | Callable[[Tensor], Tensor]] = []
        for step in net.steps:
            if not isinstance(step, Map):
                self._steps.append(step)
                continue
            weight = step.weight if step.leaf is None else step.weight * noise[step.leaf.index]
            bias = None if step.bias is None else step.bias.detach().unsqueeze(1)
            self._steps.append((weight.detach().contiguous(), bias))

    def _run_rows(self, start: Tensor) -> Tensor:
        """One product of all rows of some draws, which beats a product for each draw."""
        widest = max(max(step.weight.shape) for step in self._plain if isinstance(step, Map))
        count = max(1, _TOGETHER // (start.shape[0] * widest * start.element_size()))
        draws = next(iter(self._noise.values())).shape[0]
        made = [
            _stacked(start, self._plain, {key: z[at : at + count] for key, z in self._noise.items()})
            for at in range(0, draws, count)
        ]
        return made[0] if len(made) == 1 else torch.cat(made)

    @staticmethod
    def bytes_needed(net: Perceptron, num_draws: int) -> int:
        """Memory of the weights of all draws."""
        return sum(m.weight.nbytes * (1 if m.leaf is None else num_draws) for m in net.maps)

    def run(self, start: Tensor) -> Tensor:
        """Outputs (T, N, D) of all draws, for an input (N, K)."""
        if ONEDNN and _is_cpu(start) and start.shape[0] >= _ROWS:
            return self._run_rows(start)
        h = start.t()
        for step in self._steps:
            if callable(step):
                h = step(h)
                continue
            weight, bias = step
            if weight.dim() == 2 or h.dim() == 3:
                h = torch.matmul(weight, h) if bias is None else _affine(bias, weight, h)
            else:
                # All draws have the same input: one product.
                wide = torch.mm(weight.flatten(0, 1), h).view(weight.shape[0], weight.shape[1], -1)
                h = wide if bias is None else wide.add_(bias)
        return h.transpose(1, 2)


def _affine(bias: Tensor, weight: Tensor, h: Tensor) -> Tensor:
    if weight.dim() == h.dim() == 3:
        return torch.baddbmm(bias, weight, h)
    return torch.matmul(weight, h).add_(bias)
