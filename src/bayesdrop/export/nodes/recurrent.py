"""LSTM, GRU and plain recurrent layers, as ONNX's own operators."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from bayesdrop.export.nodes.graph import CannotExport, Handle, Writer, writes

__all__: list[str] = []

#: for every kind: ONNX's operator, and the places of its gates among torch's (i f g o, r z n)
_KINDS: dict[str, tuple[str, tuple[int, ...]]] = {
    "lstm": ("LSTM", (0, 3, 1, 2)),
    "gru": ("GRU", (1, 0, 2)),
    "rnn_tanh": ("RNN", (0,)),
    "rnn_relu": ("RNN", (0,)),
}


def _recurrent(
    kind: str,
    w: Writer,
    x: Handle,
    hx: Any,
    params: Any,
    has_biases: Any,
    num_layers: int,
    dropout: float,
    train: Any,
    bidirectional: bool,
    batch_first: bool = False,
) -> list[str]:
    if not isinstance(params, tuple | list) or isinstance(hx, int):
        raise CannotExport("on packed sequences, which cannot be written to an ONNX file.")
    operator, gates = _KINDS[kind]
    directions = 2 if bidirectional else 1
    states = list(hx) if kind == "lstm" else [hx]
    each = 4 if has_biases else 2
    if len(params) != num_layers * directions * each:
        raise CannotExport("with projections, which cannot be written to an ONNX file.")
    name = w.node("Transpose", x.name, perm=[1, 0, 2]) if batch_first else x.name
    time, rows = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    finals: list[list[str]] = [[] for _ in states]
    width = states[0].shape[-1]
    for layer in range(num_layers):
        mine = params[layer * directions * each : (layer + 1) * directions * each]
        own = [mine[d * each : (d + 1) * each] for d in range(directions)]
        weights = [_stacked(w, [part[place] for part in own], gates) for place in (0, 1)]
        bias = ""
        if has_biases:
            sums = [_stacked(w, [part[place] for part in own], gates) for place in (2, 3)]
            bias = w.node("Concat", *sums, axis=1)
        start = [_layer_state(w, state, layer * directions, directions) for state in states]
        options: dict[str, Any] = {
            "hidden_size": width,
            "direction": "bidirectional" if bidirectional else "forward",
        }
        if operator == "GRU":
            options["linear_before_reset"] = 1
        if kind == "rnn_relu":
            options["activations"] = ["Relu"] * directions
        made = w.node_many(operator, [name, *weights, bias, "", *start], 1 + len(states), **options)
        for place, final in enumerate(made[1:]):
            finals[place].append(final)
        # (time, directions, rows, width) to (time, rows, directions * width)
        turned = w.node("Transpose", made[0], perm=[0, 2, 1, 3]) if directions == 2 else made[0]
        name = w.reshaped(turned, (time, rows, directions * int(width)))
    output = w.node("Transpose", name, perm=[1, 0, 2]) if batch_first else name
    ends = [one[0] if len(one) == 1 else w.node("Concat", *one, axis=0) for one in finals]
    return [output, *ends]


for _kind in _KINDS:
    writes(_kind)(partial(_recurrent, _kind))


def _stacked(w: Writer, weights: list[Handle], gates: tuple[int, ...]) -> str:
    """(directions, gates * width, ...) the weights of both directions, their gates in ONNX's order."""
    constants = [weight.constant for weight in weights]
    if all(constant is not None for constant in constants):
        parts = [constant.detach().chunk(len(gates)) for constant in constants if constant is not None]
        return w.constant(torch.stack([torch.cat([own[gate] for gate in gates]) for own in parts]))
    made = []
    for weight in weights:
        size = weight.shape[0]
        assert isinstance(size, int)
        own = [weight.name]
        if len(gates) > 1:
            split = w.whole(*[size // len(gates)] * len(gates))
            own = w.node_many("Split", [weight.name, split], len(gates), axis=0)
        turned = w.node("Concat", *(own[gate] for gate in gates), axis=0)
        made.append(w.node("Unsqueeze", turned, w.whole(0)))
    return made[0] if len(made) == 1 else w.node("Concat", *made, axis=0)


def _layer_state(w: Writer, state: Handle, first: int, count: int) -> str:
    if state.shape[0] == count:
        return state.name
    return w.node("Slice", state.name, w.whole(first), w.whole(first + count), w.whole(0))
