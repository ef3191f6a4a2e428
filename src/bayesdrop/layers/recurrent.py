"""Recurrent layers with one mask per sequence, the same at every time step."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from bayesdrop.errors import must
from bayesdrop.layers.base import InputNoiseLayer, StochasticLayer, WeightNoiseLayer
from bayesdrop.layers.kinds import check_options, kind_named, make_layer
from bayesdrop.layers.recurrence import Cell, NoisyMap, Sequences, run_fused, run_steps
from bayesdrop.trace import active_draw

__all__ = ["RecurrentDropout"]


class RecurrentDropout(nn.Module):
    """An `nn.LSTM`, `nn.GRU` or `nn.RNN` whose input and recurrent weights are random.

        gates_t = W_x (x_t * z_x) + W_h (h_{t-1} * z_h) + b        one z_x and one z_h for a sequence

    Both maps of every layer and direction, `inputs` and `recurrent`, are stochastic layers of one kind, which
    have the divergence and the rates. There are three modes, as for all stochastic layers: in `train()` every
    sequence has its own masks, in `eval()` the output is that of the wrapped module, and inside a
    `FunctionDraw` all sequences share the held masks.

    Args:
        layer: the recurrent module: any number of layers and directions, `batch_first`, `proj_size`
            (whose projection has no noise). Its weights are kept; its own dropout between layers, which
            differs from step to step, is set to 0: the noise on each layer's inputs replaces it.
        kind: of the noise: "bernoulli", "gaussian", "concrete", "learnable", or the class; "dropconnect",
            "mixture", "variational" and "meanfield" draw one set of weights for a batch, as AWD-LSTM does.
        p: the rate, or where a learned one starts.
        recurrent_p: the rate of the recurrent maps; None for `p`.
        options: of the kind, as `length_scale`, `per`, `temperature`. `elementwise=True` draws fresh masks at
            every step ("naive" dropout), for comparisons: a sequence then has no random weights that stay the
            same, and `kl` is the divergence of no posterior.

    Shape: as the wrapped module: (L, N, D), (N, L, D) with `batch_first`, (L, D), or packed, and an
    initial state; the outputs and the final state.
    Reference: Gal & Ghahramani (2016b), "A theoretically grounded application of dropout in recurrent
    neural networks", section 4.

    >>> import torch
    >>> layer = RecurrentDropout(nn.LSTM(3, 4, batch_first=True), p=0.2)
    >>> outputs, (h, c) = layer(torch.ones(5, 7, 3))
    >>> outputs.shape
    torch.Size([5, 7, 4])
    """

    def __init__(
        self,
        layer: nn.RNNBase,
        kind: str | type[StochasticLayer] = "bernoulli",
        p: float = 0.1,
        *,
        recurrent_p: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(layer, nn.LSTM | nn.GRU | nn.RNN):
            raise TypeError(must("RecurrentDropout", "layer", "an nn.LSTM, nn.GRU or nn.RNN", layer))
        made = kind_named("RecurrentDropout", kind)
        check_options("RecurrentDropout", made, options)
        if options.get("noise") == "inputs":
            want = "'weights', of which a batch has one set"
            raise ValueError(must("RecurrentDropout", "noise", want, "inputs"))
        layer.dropout = 0.0
        self.layer = layer
        self.inputs = nn.ModuleDict()
        self.recurrent = nn.ModuleDict()
        for name in _suffixes(layer):
            for maps, role, rate in ((self.inputs, "ih", p), (self.recurrent, "hh", recurrent_p)):
                linear = _linear(layer, role, name)
                maps[name] = make_layer(made, linear, p if rate is None else rate, options)
        self.train(layer.training)

    def is_random(self) -> bool:
        """Whether a draw can differ from the mean."""
        return any(part.is_random() for part in self._parts())

    # attributes of the wrapped module that its users read

    @property
    def batch_first(self) -> bool:
        """Whether rows come before time."""
        return self.layer.batch_first

    @property
    def bidirectional(self) -> bool:
        """Whether sequences are read both ways."""
        return self.layer.bidirectional

    @property
    def input_size(self) -> int:
        """D, features of the input."""
        return self.layer.input_size

    @property
    def hidden_size(self) -> int:
        """Features of the state."""
        return self.layer.hidden_size

    @property
    def num_layers(self) -> int:
        """How many layers are stacked."""
        return self.layer.num_layers

    def flatten_parameters(self) -> None:
        """Call `flatten_parameters` of the wrapped module."""
        self.layer.flatten_parameters()

    # the pass

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
        """Outputs of the last layer at every step, and the final state of all layers."""
        sequences = Sequences(self.layer, input)
        levels = self._levels(sequences)
        cells = [cell for level in levels for cell in level]
        in_draw = any(active_draw(part) is not None for part in self._parts())
        if not in_draw and not any(cell.is_noisy for cell in cells):
            outputs: tuple[Any, Any] = self.layer(input, hx)
            return outputs
        states = sequences.initial_states(hx)
        run = run_fused if all(cell.is_shared for cell in cells) else run_steps
        data, finals = run(self.layer, levels, sequences, states)
        return sequences.outputs(data), sequences.final_states(finals)

    def _parts(self) -> list[StochasticLayer]:
        maps: list[Any] = [*self.inputs.values(), *self.recurrent.values()]
        return maps

    def _levels(self, sequences: Sequences) -> list[list[Cell]]:
        """The cells of every layer, one for each direction, with their noise."""
        names = list(_suffixes(self.layer))
        directions = 2 if self.layer.bidirectional else 1
        cells = [
            Cell(
                _noisy_map(self.inputs[name], sequences),
                _noisy_map(self.recurrent[name], sequences),
                getattr(self.layer, f"weight_hr_{name}", None),
            )
            for name in names
        ]
        return [cells[i : i + directions] for i in range(0, len(cells), directions)]


def _suffixes(layer: nn.RNNBase) -> list[str]:
    """torch's names of the layers and directions, in its order: l0, l0_reverse, l1, ..."""
    both = ("", "_reverse") if layer.bidirectional else ("",)
    return [f"l{index}{direction}" for index in range(layer.num_layers) for direction in both]


def _linear(layer: nn.RNNBase, role: str, name: str) -> nn.Linear:
    """One map of the module as an `nn.Linear` with the module's own parameters."""
    weight = getattr(layer, f"weight_{role}_{name}")
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=layer.bias, device="meta")
    linear.weight = weight
    if layer.bias:
        linear.bias = getattr(layer, f"bias_{role}_{name}")
    return linear.train(layer.training)


def _noisy_map(part: nn.Module, sequences: Sequences) -> NoisyMap:
    """A stochastic layer with its noise for these sequences."""
    if not isinstance(part, InputNoiseLayer | WeightNoiseLayer):
        raise TypeError(must("RecurrentDropout", "inputs and recurrent", "stochastic layers", part))
    linear = part.layer
    like = sequences.like(linear.weight.shape[1])
    each_step = isinstance(part, InputNoiseLayer) and part.elementwise
    if isinstance(part, WeightNoiseLayer):
        weight, factor = part.weight_for(like), None
        if weight.dim() == 3 and weight.shape[0] != sequences.rows:
            weight = weight.repeat_interleave(sequences.rows // weight.shape[0], 0)
    else:
        units = linear.weight.shape[1]
        weight, factor = linear.weight, part.multiplier(sequences.steps_like(units) if each_step else like)
    plain_bias = part.bias_p is None and not isinstance(part, WeightNoiseLayer)
    bias = part.bias if plain_bias else part.bias_for(like)
    if bias is not None and bias.dim() == 1:
        bias = bias.unsqueeze(0)
    noisy = factor is not None or weight is not linear.weight or not plain_bias
    # Noise is in the caller's order of the sequences; packed sequences may have another.
    own = sequences.in_order(weight) if weight.dim() == 3 else weight
    assert own is not None
    factor = sequences.in_order(factor)
    if factor is not None and each_step:
        factor = factor.transpose(0, 1)
    return NoisyMap(own, sequences.in_order(bias), factor, noisy)
