"""Which weights of a linear map belong to which input unit: layouts and shapes for all posteriors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from bayesdrop.errors import LARGEST_WIDTH, must, whole_number
from bayesdrop.functional.learned_kl import square_sum

__all__ = [
    "Units",
    "WeightLayer",
    "apply_weights",
    "bias_of",
    "bias_shape",
    "check_layer",
    "fan_in",
    "fan_out",
    "is_batched",
    "is_plain_linear",
    "like_words",
    "num_random_units",
    "num_units",
    "of_random_units",
    "of_words",
    "padding_of",
    "random_part",
    "random_weights",
    "unit_axis",
    "unit_square_norms",
    "units_like_weight",
    "weight_by_unit",
]


class Units(nn.Module):
    """The identity map of K units: the wrapped layer of noise that stands alone, which has no weights.

    Args:
        owner: the class that errors name.
        num_units: K.
        axis: the axis of the input that holds the units; rows are on axis 0.
    """

    weight: Tensor
    bias: None = None
    #: rows are on axis 0, and training mode changes nothing: draws need not study the module
    keeps_rows = True

    def __init__(self, owner: str, num_units: int, axis: int) -> None:
        super().__init__()
        self.num_units = whole_number(owner, "num_units", num_units, at_least=1, at_most=LARGEST_WIDTH)
        self.axis = whole_number(owner, "axis", axis, at_least=-8, at_most=8)
        if self.axis == 0:
            raise ValueError(must(owner, "axis", "an axis other than 0, which are the rows", axis))
        # Empty: it has the precision and the device, as the weights of other layers do.
        self.register_buffer("weight", torch.empty(0, self.num_units), persistent=False)

    def extra_repr(self) -> str:
        """The number of units and their axis, for `print(model)`."""
        return f"{self.num_units}, axis={self.axis}"

    def forward(self, x: Tensor) -> Tensor:
        """The input itself."""
        return x


_Transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
_Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d | _Transposed
WeightLayer = nn.Linear | _Convolution | nn.Embedding | Units


def check_layer(owner: str, layer: nn.Module) -> WeightLayer:
    """The layer itself; raise if it is of no supported class."""
    if not isinstance(layer, nn.Linear | _Convolution | nn.Embedding | Units):
        want = "an nn.Linear, nn.Conv1d/2d/3d, nn.ConvTranspose1d/2d/3d or nn.Embedding"
        raise TypeError(must(owner, "layer", want, layer))
    if isinstance(layer.weight, nn.UninitializedParameter):
        raise TypeError(must(owner, "layer", "a layer with weights", layer, "Run a lazy layer once first."))
    if isinstance(layer, nn.Embedding) and layer.max_norm is not None:
        hint = "Calling it with max_norm changes its weights."
        raise ValueError(must(owner, "layer", "an nn.Embedding without max_norm", layer, hint))
    return layer


def is_plain_linear(layer: nn.Module) -> bool:
    """Whether calling the layer is its product and nothing else: no subclass, hooks or autocast."""
    return (
        type(layer) is nn.Linear
        and "forward" not in layer.__dict__
        and not (layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)
        and not (layer._backward_pre_hooks or torch.is_autocast_enabled(layer.weight.device.type))
        and not torch_module._has_any_global_hook()  # type: ignore[no-untyped-call]
    )


def _spatial(layer: WeightLayer) -> int:
    """Number of position axes after the channels of a convolution; 0 for other layers."""
    return layer.weight.dim() - 2 if isinstance(layer, _Convolution) else 0


def bias_of(layer: WeightLayer) -> Tensor | None:
    """The layer's bias; a table of words has none."""
    return None if isinstance(layer, nn.Embedding) else layer.bias


def num_units(layer: WeightLayer) -> int:
    """K: input features, input channels of a convolution, or words of an embedding."""
    if isinstance(layer, Units):
        return layer.num_units
    if isinstance(layer, nn.Embedding):
        return layer.num_embeddings
    return layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels


def num_random_units(layer: WeightLayer) -> int:
    """K, without the padding word of an embedding, whose vector is a constant."""
    padded = isinstance(layer, nn.Embedding) and layer.padding_idx is not None
    return num_units(layer) - padded


def of_random_units(layer: WeightLayer, per_unit: Tensor) -> Tensor:
    """(..., K) values of the input units, without that of the padding word of an embedding."""
    if not isinstance(layer, nn.Embedding) or layer.padding_idx is None:
        return per_unit
    at = layer.padding_idx
    return torch.cat([per_unit[..., :at], per_unit[..., at + 1 :]], -1)


def random_weights(layer: WeightLayer) -> Tensor:
    """All weights that have a prior: those of the layer, without the padding word of an embedding."""
    return layer.weight if num_random_units(layer) == num_units(layer) else weight_by_unit(layer)


def random_part(layer: WeightLayer, noisy: Tensor) -> Tensor:
    """Noisy weights, or several sets of them, with the noise removed from an embedding's padding word."""
    padding = padding_of(layer)
    return noisy if padding is None else torch.where(padding, layer.weight, noisy)


def padding_of(layer: WeightLayer) -> Tensor | None:
    """A mask (K, 1) of the padding word of an embedding; None if there is no padding."""
    if not isinstance(layer, nn.Embedding) or layer.padding_idx is None:
        return None
    words = torch.arange(layer.num_embeddings, device=layer.weight.device)
    return (words == layer.padding_idx).unsqueeze(-1)


def fan_in(layer: WeightLayer) -> float:
    """Inputs that one output sums over: K for a linear layer, one word for an embedding.

    Outputs of a transposed convolution differ; their mean is K / groups, times kernel / stride of each axis.
    """
    if isinstance(layer, nn.Embedding):
        return 1
    if isinstance(layer, _Transposed):
        return layer.in_channels / layer.groups * layer.weight[0, 0].numel() / math.prod(layer.stride)
    return layer.weight[0].numel()


def fan_out(layer: WeightLayer) -> int:
    """Weights that leave one input unit."""
    return layer.weight.numel() // num_units(layer)


def weight_by_unit(layer: WeightLayer, weight: Tensor | None = None) -> Tensor:
    """All weights that leave each input unit, in its column. Shape (weights that leave one unit, K).

    The padding word of an embedding, a constant, has no column.

    Args:
        layer: the map.
        weight: values of the weights' shape; the layer's own weights if None.
    """
    weight = layer.weight if weight is None else weight
    if isinstance(layer, nn.Embedding):
        return of_random_units(layer, weight.T)
    if isinstance(layer, _Transposed):
        return weight.flatten(1).T
    if isinstance(layer, nn.Linear | Units):
        return weight
    outputs, width = layer.out_channels // layer.groups, weight.shape[1]
    grouped = weight.reshape(layer.groups, outputs, width, -1)
    return grouped.permute(1, 3, 0, 2).reshape(-1, layer.in_channels)


def unit_square_norms(layer: WeightLayer) -> Tensor:
    """|W_k|^2, summed over all weights that leave input unit k. Shape (K,)."""
    return square_sum(weight_by_unit(layer), columns=True)


def units_like_weight(layer: WeightLayer, per_unit: Tensor) -> Tensor:
    """(..., K) values of the input units, laid out so as to broadcast against the weight."""
    lead = per_unit.shape[:-1]
    if isinstance(layer, nn.Linear | Units):
        return per_unit.unsqueeze(-2)
    if isinstance(layer, nn.Embedding | _Transposed):
        return per_unit.reshape(*lead, -1, *[1] * (layer.weight.dim() - 1))
    groups, width = layer.groups, layer.weight.shape[1]
    rows = per_unit.reshape(*lead, groups, 1, width).expand(
        *lead, groups, layer.out_channels // groups, width
    )
    return rows.reshape(*lead, layer.out_channels, width, *[1] * _spatial(layer))


def is_batched(layer: WeightLayer, x: Tensor) -> bool:
    """Whether axis 0 of `x` are rows."""
    if isinstance(layer, nn.Embedding):
        return x.dim() >= 1
    return x.dim() >= 2 if isinstance(layer, nn.Linear | Units) else x.dim() == _spatial(layer) + 2


def unit_axis(layer: WeightLayer, x: Tensor) -> int:
    """The axis of `x` that holds the input units. (The input of an embedding holds numbers of words.)"""
    if isinstance(layer, Units):
        return layer.axis if layer.axis > 0 else x.dim() + layer.axis
    return x.dim() - 1 - _spatial(layer)


def like_words(layer: nn.Embedding, x: Tensor) -> Tensor:
    """`x`, numbers of words, in the precision of the table and of its noise."""
    return x.to(layer.weight.dtype)


def of_words(layer: nn.Embedding, x: Tensor, per_word: Tensor) -> Tensor:
    """Noise of the words in `x`, (*x.shape, 1): the same wherever a word occurs, and 1 for padding.

    Args:
        layer: the table.
        x: numbers of words, (N, ...).
        per_word: (1, K) noise for all rows, or (N, K) for each row.
    """
    padding = padding_of(layer)
    if padding is not None:
        per_word = per_word.masked_fill(padding.T, 1.0)
    if per_word.shape[0] == 1:
        return F.embedding(x, per_word.T)
    return per_word.gather(1, x.reshape(x.shape[0], -1)).reshape(x.shape).unsqueeze(-1)


def bias_shape(layer: WeightLayer, x: Tensor, rows: int) -> tuple[int, ...]:
    """Shape of a bias that differs by row, shaped to broadcast against the output for `x`."""
    bias = bias_of(layer)
    size = 0 if bias is None else bias.shape[0]
    if isinstance(layer, nn.Linear):
        positions = [1] * max(x.dim() - 2, 0)
        return (rows, *positions, size) if is_batched(layer, x) else (size,)
    positions = [1] * _spatial(layer)
    return (rows, size, *positions) if is_batched(layer, x) else (size, *positions)


def apply_weights(
    layer: WeightLayer, x: Tensor, weight: Tensor, output_size: Sequence[int] | None = None
) -> Tensor:
    """The layer's map with other weights and no bias.

    Args:
        layer: gives stride, padding, dilation and groups.
        x: (N, ...) or one row without the row axis.
        weight: of the shape of the layer's weight; or (K, *that shape), weights for K groups of rows of equal
            size, one after another (for every row where K = N).
        output_size: of a transposed convolution, as its own `forward` takes it.
    """
    grouped = weight.dim() > layer.weight.dim()
    if isinstance(layer, Units):
        return x
    if isinstance(layer, nn.Embedding):
        return _looked_up(layer, x, weight) if grouped else F.embedding(x, weight, layer.padding_idx)
    if isinstance(layer, nn.Linear):
        if not grouped:
            return F.linear(x, weight)
        flat = x.reshape(weight.shape[0], -1, x.shape[-1])
        mapped: Tensor = (flat @ weight.transpose(-1, -2)).reshape(*x.shape[:-1], weight.shape[-2])
        return mapped
    if not grouped:
        return _convolved(layer, x, weight, layer.groups, output_size)
    # One convolution with a group of channels for each group of rows.
    count = weight.shape[0]
    rows = x.shape[0] // count
    wide = x.reshape(count, rows, *x.shape[1:]).transpose(0, 1).reshape(rows, -1, *x.shape[2:])
    out = _convolved(layer, wide, weight.flatten(0, 1), count * layer.groups, output_size)
    positions = out.shape[2:]
    return out.reshape(rows, count, -1, *positions).transpose(0, 1).reshape(count * rows, -1, *positions)


def _convolved(
    layer: _Convolution, x: Tensor, weight: Tensor, groups: int, output_size: Sequence[int] | None
) -> Tensor:
    if isinstance(layer, _Transposed):
        return _spread(layer, x, weight, groups, output_size)
    own = layer.groups
    if groups == own:
        out: Tensor = layer._conv_forward(x, weight, None)
        return out
    try:
        layer.groups = groups
        out = layer._conv_forward(x, weight, None)
    finally:
        layer.groups = own
    return out


def _spread(
    layer: _Transposed, x: Tensor, weight: Tensor, groups: int, output_size: Sequence[int] | None
) -> Tensor:
    """A transposed convolution."""
    n = _spatial(layer)
    stride, kernel, dilation = list(layer.stride), list(layer.kernel_size), list(layer.dilation)
    padding = [int(size) for size in layer.padding]
    sizes = None if output_size is None else list(output_size)
    added = layer._output_padding(x, sizes, stride, padding, kernel, n, dilation)
    convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
    return convolve(x, weight, None, stride, padding, added, groups, dilation)


def _looked_up(layer: nn.Embedding, x: Tensor, weight: Tensor) -> Tensor:
    """Vectors of words in (K, V, E) tables of K groups of rows."""
    flat = x.reshape(weight.shape[0], -1)
    table = torch.arange(weight.shape[0], device=x.device).unsqueeze(1) * weight.shape[1]
    vectors = F.embedding(flat + table, weight.flatten(0, 1))
    return vectors.reshape(*x.shape, weight.shape[-1])
