"""How the weights of a linear map belong to its input units: the geometry that all posteriors share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop.errors import LARGEST_WIDTH, must, whole_number
from bayesdrop.functional.learned_kl import square_sum

__all__ = [
    "Units",
    "WeightLayer",
    "apply_weights",
    "bias_shape",
    "check_layer",
    "fan_in",
    "fan_out",
    "is_batched",
    "is_plain_linear",
    "num_units",
    "unit_axis",
    "unit_square_norms",
    "units_like_weight",
    "weight_by_unit",
]


class Units(nn.Module):
    """K units on one axis, handed on as they are: the map of noise that stands alone, which has no weights.

    Args:
        num_units: K.
        axis: of the input that holds the units; rows are on axis 0.
    """

    weight: Tensor
    bias: None = None
    #: rows are on axis 0, and training mode changes nothing: draws need not find that out
    keeps_rows = True

    def __init__(self, owner: str, num_units: int, axis: int) -> None:
        super().__init__()
        self.num_units = whole_number(owner, "num_units", num_units, at_least=1, at_most=LARGEST_WIDTH)
        self.axis = whole_number(owner, "axis", axis, at_least=-8, at_most=8)
        if self.axis == 0:
            raise ValueError(must(owner, "axis", "an axis other than 0, which are the rows", axis))
        # Of no weights: it tells precision and device, as the weights of other layers do.
        self.register_buffer("weight", torch.empty(0, self.num_units), persistent=False)

    def extra_repr(self) -> str:
        """How many units, and where."""
        return f"{self.num_units}, axis={self.axis}"

    def forward(self, x: Tensor) -> Tensor:
        """The input itself."""
        return x


WeightLayer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | Units
_CONVOLUTIONS: dict[type[nn.Module], int] = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}


def check_layer(owner: str, layer: nn.Module) -> WeightLayer:
    """The layer itself if its weights are understood, else a TypeError."""
    if not isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | Units):
        raise TypeError(must(owner, "layer", "an nn.Linear or nn.Conv1d/2d/3d", layer))
    if isinstance(layer.weight, nn.UninitializedParameter):
        raise TypeError(must(owner, "layer", "a layer with weights", layer, "Run a lazy layer once first."))
    return layer


def is_plain_linear(layer: nn.Module) -> bool:
    """Whether calling the layer is its product and nothing else: no subclass, hooks or autocast."""
    return (
        type(layer) is nn.Linear
        and not (layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)
        and not (layer._backward_pre_hooks or torch.is_autocast_enabled(layer.weight.device.type))
    )


def _spatial(layer: WeightLayer) -> int:
    """Number of position axes behind the channels; 0 for a linear layer."""
    return next((n for kind, n in _CONVOLUTIONS.items() if isinstance(layer, kind)), 0)


def num_units(layer: WeightLayer) -> int:
    """K: input features, or input channels of a convolution."""
    if isinstance(layer, Units):
        return layer.num_units
    return layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels


def fan_in(layer: WeightLayer) -> int:
    """Inputs that one output sums over: K for a linear layer."""
    return layer.weight[0].numel()


def fan_out(layer: WeightLayer) -> int:
    """Weights that leave one input unit."""
    return layer.weight.numel() // num_units(layer)


def weight_by_unit(layer: WeightLayer) -> Tensor:
    """All weights that leave each input unit, in its column. Shape (weights that leave one unit, K)."""
    if isinstance(layer, nn.Linear | Units):
        return layer.weight
    outputs, width = layer.out_channels // layer.groups, layer.weight.shape[1]
    grouped = layer.weight.reshape(layer.groups, outputs, width, -1)
    return grouped.permute(1, 3, 0, 2).reshape(-1, layer.in_channels)


def unit_square_norms(layer: WeightLayer) -> Tensor:
    """|W_k|^2, summed over all weights that leave input unit k. Shape (K,)."""
    return square_sum(weight_by_unit(layer), columns=True)


def units_like_weight(layer: WeightLayer, per_unit: Tensor) -> Tensor:
    """(..., K) values of the input units, laid out so as to broadcast against the weight."""
    lead = per_unit.shape[:-1]
    if isinstance(layer, nn.Linear | Units):
        return per_unit.unsqueeze(-2)
    groups, width = layer.groups, layer.weight.shape[1]
    rows = per_unit.reshape(*lead, groups, 1, width).expand(
        *lead, groups, layer.out_channels // groups, width
    )
    return rows.reshape(*lead, layer.out_channels, width, *[1] * _spatial(layer))


def is_batched(layer: WeightLayer, x: Tensor) -> bool:
    """Whether axis 0 of `x` are rows."""
    return x.dim() >= 2 if isinstance(layer, nn.Linear | Units) else x.dim() == _spatial(layer) + 2


def unit_axis(layer: WeightLayer, x: Tensor) -> int:
    """The axis of `x` that holds the input units."""
    if isinstance(layer, Units):
        return layer.axis if layer.axis > 0 else x.dim() + layer.axis
    return x.dim() - 1 - _spatial(layer)


def bias_shape(layer: WeightLayer, x: Tensor, rows: int) -> tuple[int, ...]:
    """Shape of a bias that differs by row, so as to broadcast against the output for `x`."""
    size = layer.weight.shape[0]
    if isinstance(layer, nn.Linear):
        positions = [1] * max(x.dim() - 2, 0)
        return (rows, *positions, size) if is_batched(layer, x) else (size,)
    positions = [1] * _spatial(layer)
    return (rows, size, *positions) if is_batched(layer, x) else (size, *positions)


def apply_weights(layer: WeightLayer, x: Tensor, weight: Tensor) -> Tensor:
    """The layer's map with other weights and no bias.

    Args:
        layer: gives stride, padding, dilation and groups.
        x: (N, ...) or one row without the row axis.
        weight: shape of the layer's weight, or (K, *that) for weights of K equal groups of rows, one after
            another: of every row's own where K = N.
    """
    grouped = weight.dim() > layer.weight.dim()
    if isinstance(layer, Units):
        return x
    if isinstance(layer, nn.Linear):
        if not grouped:
            return F.linear(x, weight)
        flat = x.reshape(weight.shape[0], -1, x.shape[-1])
        mapped: Tensor = (flat @ weight.transpose(-1, -2)).reshape(*x.shape[:-1], weight.shape[-2])
        return mapped
    if not grouped:
        out: Tensor = layer._conv_forward(x, weight, None)
        return out
    # One convolution with a group of channels for each group of rows.
    count = weight.shape[0]
    rows = x.shape[0] // count
    wide = x.reshape(count, rows, *x.shape[1:]).transpose(0, 1).reshape(rows, -1, *x.shape[2:])
    groups, layer_groups = count * layer.groups, layer.groups
    try:
        layer.groups = groups
        out = layer._conv_forward(wide, weight.flatten(0, 1), None)
    finally:
        layer.groups = layer_groups
    positions = out.shape[2:]
    return out.reshape(rows, count, -1, *positions).transpose(0, 1).reshape(count * rows, -1, *positions)
