"""A recurrent module run with given noise: by torch's kernels if sequences share it, else step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from bayesdrop.errors import must
from bayesdrop.functional.recurrence import gru_over_time, lstm_over_time
from bayesdrop.noise.bits import runs_plainly

__all__ = ["Cell", "NoisyMap", "Sequences", "run_fused", "run_steps"]

States = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class NoisyMap:
    """A linear map and its noise.

    Attributes:
        weight: (G, K), or (N, G, K) where every sequence has its own weights.
        bias: (1, G), (N, G) or None.
        factor: the noise that multiplies the input: (1, K) or (N, K); (L, 1, K) or (L, N, K) where every step
            has its own; None for no noise.
        is_noisy: whether this differs from the map without noise.
    """

    weight: Tensor
    bias: Tensor | None
    factor: Tensor | None
    is_noisy: bool

    @property
    def is_shared(self) -> bool:
        """Whether all sequences have the same map, at all steps."""
        if self.factor is not None and self.factor.dim() == 3:
            return False
        rows = (None if value is None else value.shape[0] for value in (self.bias, self.factor))
        return self.weight.dim() == 2 and all(count in (None, 1) for count in rows)

    def folded(self) -> list[Tensor]:
        """Weight and bias of a shared map: W diag(z) and b."""
        weight = self.weight if self.factor is None else self.weight * self.factor
        return [weight] if self.bias is None else [weight, self.bias.squeeze(0)]

    def each_step(self, steps: int) -> Sequence[NoisyMap]:
        """The map of every step."""
        if self.factor is None or self.factor.dim() == 2:
            return [self] * steps
        return [replace(self, factor=mask) for mask in self.factor.unbind(0)]

    def backwards(self) -> NoisyMap:
        """The map for sequences in reverse order."""
        if self.factor is None or self.factor.dim() == 2:
            return self
        return replace(self, factor=self.factor.flip(0))

    def __call__(self, x: Tensor) -> Tensor:
        """The map applied to (..., N, K)."""
        out = self.product(x)
        return out if self.bias is None else out + self.bias

    def product(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """The map without its bias, plus `plus` if it is given."""
        if self.factor is not None:
            x = x * self.factor
        if self.weight.dim() == 2:
            if plus is not None:
                return torch.addmm(plus, x, self.weight.t())
            return nn.functional.linear(x, self.weight)
        product: Tensor = torch.einsum("...nk,ngk->...ng", x, self.weight)
        return product if plus is None else product + plus


@dataclass(frozen=True, eq=False)
class Cell:
    """One layer in one direction."""

    inputs: NoisyMap
    recurrent: NoisyMap
    projection: Tensor | None  #: from the cell's state to its output, of an LSTM with `proj_size`

    @property
    def is_noisy(self) -> bool:
        """Whether this differs from the cell without noise."""
        return self.inputs.is_noisy or self.recurrent.is_noisy

    @property
    def is_shared(self) -> bool:
        """Whether all sequences have the same noise."""
        return self.inputs.is_shared and self.recurrent.is_shared

    def folded(self) -> list[Tensor]:
        """Parameters in torch's order."""
        (w_x, *b_x), (w_h, *b_h) = self.inputs.folded(), self.recurrent.folded()
        return [w_x, w_h, *b_x, *b_h, *([] if self.projection is None else [self.projection])]


class Sequences:
    """A batch of sequences in any of torch's layouts; results are given in the same layout.

    Args:
        layer: the recurrent module that reads them.
        given: (L, N, D), (N, L, D), (L, D), or packed.
    """

    def __init__(self, layer: nn.RNNBase, given: Tensor | PackedSequence) -> None:
        self.layer = layer
        self.sizes: Tensor | None = None
        self.order: Tensor | None = None
        self.back: Tensor | None = None
        self.is_batched = True
        if isinstance(given, PackedSequence):
            self.data, self.sizes, self.order, self.back = given
            self.rows = int(self.sizes[0])
        elif not isinstance(given, Tensor) or given.dim() not in (2, 3):
            want = "a tensor with 2 or 3 axes, or a packed sequence"
            got = tuple(given.shape) if isinstance(given, Tensor) else type(given)
            raise ValueError(must("RecurrentDropout", "input", want, got))
        else:
            self.is_batched = given.dim() == 3
            first = layer.batch_first and self.is_batched
            self.data = given.transpose(0, 1) if first else given if self.is_batched else given.unsqueeze(1)
            self.rows = self.data.shape[1]
        if self.data.shape[-1] != layer.input_size:
            want = f"sequences of {layer.input_size} features"
            raise ValueError(must("RecurrentDropout", "input", want, self.data.shape[-1]))

    def like(self, features: int) -> Tensor:
        """A tensor (rows, features) with the dtype and device of the data, which takes no memory."""
        return self.data.new_zeros(1).expand(self.rows, features)

    def steps_like(self, features: int) -> Tensor:
        """The same for noise that differs from step to step: (rows, L, features)."""
        steps = self.data.shape[0] if self.sizes is None else len(self.sizes)
        return self.data.new_zeros(1).expand(self.rows, steps, features)

    def in_order(self, noise: Tensor | None) -> Tensor | None:
        """Noise (rows or 1, ...) in the order of the packed sequences."""
        if noise is None or self.order is None or noise.shape[0] == 1:
            return noise
        return noise.index_select(0, self.order)

    def initial_states(self, hx: Any) -> States:
        """The given state, or zeros: (layers x directions, N, features), also the cells' for an LSTM."""
        layer = self.layer
        count = layer.num_layers * (2 if layer.bidirectional else 1)
        sizes = [layer.proj_size or layer.hidden_size, layer.hidden_size][: 2 if layer.mode == "LSTM" else 1]
        shapes = [(count, self.rows, size) for size in sizes]
        if hx is None:
            return tuple(self.data.new_zeros(shape) for shape in shapes)
        given = tuple(hx) if layer.mode == "LSTM" else (hx,)
        if not self.is_batched:
            given = tuple(state.unsqueeze(1) for state in given)
        if [tuple(state.shape) for state in given] != shapes:
            got = [tuple(state.shape) for state in given]
            raise ValueError(must("RecurrentDropout", "hx", f"of shapes {shapes}", got))
        return given if self.order is None else tuple(state.index_select(1, self.order) for state in given)

    def outputs(self, data: Tensor) -> Tensor | PackedSequence:
        """Outputs of all steps in the layout of the input."""
        if self.sizes is not None:
            return PackedSequence(data, self.sizes, self.order, self.back)
        if not self.is_batched:
            return data.squeeze(1)
        return data.transpose(0, 1) if self.layer.batch_first else data

    def final_states(self, states: States) -> Tensor | States:
        """Final states as the module returns them."""
        if self.back is not None:
            back = self.back
            states = tuple(state.index_select(1, back) for state in states)
        if not self.is_batched:
            states = tuple(state.squeeze(1) for state in states)
        return states if self.layer.mode == "LSTM" else states[0]

    def padded(self) -> tuple[Tensor, Tensor | None]:
        """(L, N, D) and, for packed sequences, how long each is."""
        if self.sizes is None:
            return self.data, None
        return pad_packed_sequence(PackedSequence(self.data, self.sizes))


def run_fused(
    layer: nn.RNNBase, levels: Sequence[Sequence[Cell]], sequences: Sequences, states: States
) -> tuple[Tensor, States]:
    """All layers by torch's own kernels, with the noise folded into the weights."""
    # torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu
    kernel: Any = getattr(torch, layer.mode.lower())
    sizes = () if sequences.sizes is None else (sequences.sizes,)
    layout = () if sizes else (False,)
    x, finals = sequences.data, []
    for index, level in enumerate(levels):
        own = tuple(state[index * len(level) : (index + 1) * len(level)] for state in states)
        weights = [tensor for cell in level for tensor in cell.folded()]
        start = own if layer.mode == "LSTM" else own[0]
        x, *final = kernel(x, *sizes, start, weights, layer.bias, 1, 0.0, False, len(level) == 2, *layout)
        finals.append(final)
    return x, tuple(torch.cat(state) for state in zip(*finals, strict=True))


def run_steps(
    layer: nn.RNNBase, levels: Sequence[Sequence[Cell]], sequences: Sequences, states: States
) -> tuple[Tensor, States]:
    """All layers step by step, each sequence with its own noise; inputs of all steps in one product."""
    x, lengths = sequences.padded()
    valid = None
    if lengths is not None:
        steps = torch.arange(x.shape[0]).unsqueeze(1) < lengths
        valid = steps.unsqueeze(-1).to(x.device)
    finals: list[States] = []
    for level in levels:
        outputs = []
        for direction, cell in enumerate(level):
            own = tuple(state[len(finals)] for state in states)
            output, final = _run_cell(layer.mode, cell, x, own, valid, backwards=direction == 1)
            outputs.append(output)
            finals.append(final)
        x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
    if lengths is not None:
        x = pack_padded_sequence(x, lengths).data
    return x, tuple(torch.stack(state) for state in zip(*finals, strict=True))


def _run_cell(
    mode: str, cell: Cell, x: Tensor, state: States, valid: Tensor | None, *, backwards: bool
) -> tuple[Tensor, States]:
    """One layer in one direction: outputs of all steps and the state after the last."""
    inputs = cell.inputs(x)
    if mode != "GRU" and cell.recurrent.bias is not None:
        # Both biases are added at once; a GRU multiplies one of them by a gate.
        inputs = inputs + cell.recurrent.bias
    if backwards:
        inputs, valid = inputs.flip(0), None if valid is None else valid.flip(0)
        cell = replace(cell, recurrent=cell.recurrent.backwards())
    run = _run_at_once if _can_run_at_once(mode, cell, inputs) else _run_each_step
    outputs, state = run(mode, cell, inputs, state, valid)
    return (outputs.flip(0) if backwards else outputs), state


def _can_run_at_once(mode: str, cell: Cell, inputs: Tensor) -> bool:
    """Whether one function for all steps may be used: simple maps, and no mode that watches operations."""
    bias = cell.recurrent.bias
    simple = cell.recurrent.weight.dim() == 2 and cell.projection is None and mode in ("LSTM", "GRU")
    return (
        simple
        and (bias is None or bias.shape[0] == 1)
        and torch.is_grad_enabled()
        and runs_plainly(inputs.device)
        and not torch.is_autocast_enabled(inputs.device.type)
    )


def _run_at_once(
    mode: str, cell: Cell, inputs: Tensor, state: States, valid: Tensor | None
) -> tuple[Tensor, States]:
    recurrent = cell.recurrent
    # The functions called here are hidden from function modes, such as the replay of a pass.
    with torch._C.DisableTorchFunction():
        if mode == "LSTM":
            h, c = state
            outputs, last = lstm_over_time(inputs, h, c, recurrent.weight, recurrent.factor, valid)
            return outputs, (outputs[-1], last)
        bias = None if recurrent.bias is None else recurrent.bias.squeeze(0)
        outputs = gru_over_time(inputs, state[0], recurrent.weight, bias, recurrent.factor, valid)
        return outputs, (outputs[-1],)


def _run_each_step(
    mode: str, cell: Cell, inputs: Tensor, state: States, valid: Tensor | None
) -> tuple[Tensor, States]:
    step = _STEPS[mode]
    outputs: list[Tensor] = []
    maps = cell.recurrent.each_step(inputs.shape[0])
    for t, gates in enumerate(inputs.unbind(0)):
        new = step(gates, maps[t], cell.projection, *state)
        if valid is not None:
            # A sequence that is over (or, read backwards, has not begun) keeps its state.
            new = tuple(torch.where(valid[t], a, b) for a, b in zip(new, state, strict=True))
        state = new
        outputs.append(state[0])
    return torch.stack(outputs), state


def _lstm(gates: Tensor, recurrent: NoisyMap, projection: Tensor | None, h: Tensor, c: Tensor) -> States:
    i, f, g, o = recurrent.product(h, gates).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h if projection is None else nn.functional.linear(h, projection)), c


def _gru(gates: Tensor, recurrent: NoisyMap, _: Tensor | None, h: Tensor) -> States:
    r_x, z_x, n_x = gates.chunk(3, -1)
    r_h, z_h, n_h = recurrent(h).chunk(3, -1)
    n = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
    return (n + torch.sigmoid(z_x + z_h) * (h - n),)


def _tanh(gates: Tensor, recurrent: NoisyMap, _: Tensor | None, h: Tensor) -> States:
    return (torch.tanh(recurrent.product(h, gates)),)


def _relu(gates: Tensor, recurrent: NoisyMap, _: Tensor | None, h: Tensor) -> States:
    return (torch.relu(recurrent.product(h, gates)),)


_STEPS: dict[str, Callable[..., States]] = {"LSTM": _lstm, "GRU": _gru, "RNN_TANH": _tanh, "RNN_RELU": _relu}
