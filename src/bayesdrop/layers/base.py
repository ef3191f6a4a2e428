"""StochasticLayer: where a layer's noise comes from, its prior, and the interface of every posterior."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import must, must_be_flag, must_be_module, real_number, real_numbers
from bayesdrop.functional import bernoulli_dropout_kl
from bayesdrop.functional.learned_kl import square_sum
from bayesdrop.functional.products import linear
from bayesdrop.layers.weights import (
    WeightLayer,
    apply_weights,
    bias_of,
    bias_shape,
    check_layer,
    fan_in,
    is_batched,
    is_plain_linear,
    like_words,
    num_units,
    of_words,
    unit_axis,
    units_like_weight,
)
from bayesdrop.noise.samplers import FixedMasks, KeepNoise, Noise
from bayesdrop.trace import NOT_READY, StochasticModule, active_draw

__all__ = [
    "InputNoiseLayer",
    "StochasticLayer",
    "WeightNoiseLayer",
    "checked_rate",
    "positive_scale",
    "rates",
    "total_kl",
]

Sampler = Callable[[tuple[int, ...], np.random.Generator | None], Tensor]


class StochasticLayer(StochasticModule):
    """A linear map whose weights are random: its posterior q, its prior, and KL(q || prior).

    There are three modes: inside a `FunctionDraw`, held noise; in `train()`, fresh noise for every row; in
    `eval()`, no noise (the mean weights).

    Args:
        layer: the linear map, whose weights are the posterior's mean: `nn.Linear`, `nn.Conv1d/2d/3d`,
            `nn.ConvTranspose1d/2d/3d`, or `nn.Embedding`, which is the linear map of a one-hot word.
        p: chance of dropping, in [0, 1): one number, or one per input unit (feature, channel or
            word); None for a class whose `p` is learned.
        bias_p: chance of dropping each entry of the bias; None: the bias has no noise.
        length_scale: prior length scale l: weights have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l, K_in being the inputs that one output sums over.
        prior_on_bias: whether the bias has that prior too (without the factor of `scale_by_fan_in`).

    Reference: Gal & Ghahramani (2015), sections 3.2 and 4.1; the length scale of Gal, Hron & Kendall
    (2017), appendix D.
    """

    p: Tensor
    bias_p: Tensor | None

    def __init__(
        self,
        layer: nn.Module,
        p: float | Sequence[float] | Tensor | None = 0.1,
        *,
        bias_p: float | None = None,
        length_scale: float = 1e-2,
        scale_by_fan_in: bool = False,
        prior_on_bias: bool = True,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        self.layer: WeightLayer = check_layer(owner, layer)
        must_be_flag(owner, scale_by_fan_in=scale_by_fan_in, prior_on_bias=prior_on_bias)
        if p is not None or not isinstance(getattr(type(self), "p", None), property):
            self.register_buffer("p", checked_rate(owner, "p", p, self.layer))
        if bias_p is None:
            self.bias_p = None
        else:
            if bias_of(self.layer) is None:
                raise ValueError(must(owner, "bias_p", "None for a layer without bias", bias_p))
            self.register_buffer("bias_p", checked_rate(owner, "bias_p", bias_p, self.layer, units=1))
        self.length_scale = positive_scale(owner, "length_scale", length_scale)
        self.scale_by_fan_in = scale_by_fan_in
        self.prior_on_bias = prior_on_bias

    @property
    def weight(self) -> Tensor:
        """The mean of the random weights, which `eval()` uses; some modules read it from their layers."""
        return self.layer.weight

    @property
    def bias(self) -> Tensor | None:
        """The wrapped layer's bias; None where it has none."""
        return bias_of(self.layer)

    @abstractmethod
    def kl(self, length_scale: float | None = None) -> Tensor:
        """KL(q || prior) in nats, shape (). Needs no forward pass and changes nothing.

        Args:
            length_scale: used instead of the layer's own.
        """

    def rate_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that set the drop rate; none where it is fixed."""
        return iter(())

    def is_random(self) -> bool:
        """Whether a draw can differ from the mean."""
        return bool((self.p > 0).any()) or (self.bias_p is not None and bool((self.bias_p > 0).any()))

    def extra_repr(self) -> str:
        """The rate, for `print(model)`."""
        p = self.p.detach()
        shown = f"p={p.item():.4g}" if p.dim() == 0 else f"p={p.min():.4g}..{p.max():.4g}"
        return shown if self.bias_p is None else f"{shown}, bias_p={self.bias_p.item():.4g}"

    def mapped(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The output of the wrapped layer, without noise on its weights."""
        if self.training and is_plain_linear(self.layer):
            return linear(x, self.layer.weight, bias_of(self.layer))
        out: Tensor = self.layer(x) if output_size is None else self.layer(x, list(output_size))
        return out

    def noise_for(
        self,
        x: Tensor,
        name: str,
        shape: Callable[[int], tuple[int, ...]],
        sample: Sampler,
        *,
        sets: bool = False,
    ) -> Tensor | None:
        """The one decision: held noise in a draw, fresh noise in training, None in evaluation.

        Args:
            x: the layer's input.
            name: which of the layer's noises.
            shape: from the number of rows with their own noise (1: shared) to the noise's shape.
            sample: makes the noise.
            sets: in a draw of K functions, give their noise as (K, ...), not repeated for all rows.
        """
        draw = active_draw(self)
        rows = x.shape[0] if is_batched(self.layer, x) else None
        if draw is not None:
            return draw.layer_noise(self, name, x, rows, shape, sample, sets=sets)
        if self.training:
            return sample(shape(1 if rows is None else rows), None).to(x.dtype)
        return None

    def bias_for(self, x: Tensor) -> Tensor | None:
        """The bias with its noise, shaped to broadcast against the output."""
        bias = self.bias
        if bias is None:
            return None
        laid_out = bias.reshape(bias_shape(self.layer, x, 1))
        bias_p = self.bias_p
        if bias_p is None:
            return laid_out
        noise = self.noise_for(
            x,
            "bias",
            lambda rows: bias_shape(self.layer, x, rows),
            KeepNoise(bias_p),
        )
        return laid_out if noise is None else laid_out * noise

    def prior_length_scale(self, length_scale: float | None = None) -> float:
        """The l of the weights' prior N(0, I / l^2), `scale_by_fan_in` applied."""
        l = self.length_scale if length_scale is None else positive_scale("kl", "length_scale", length_scale)
        return l * fan_in(self.layer) ** 0.5 if self.scale_by_fan_in else l

    def bias_kl(self, length_scale: float | None = None) -> Tensor:
        """KL of the bias: a point, or a point that is dropped at `bias_p`."""
        bias = self.bias
        if bias is None:
            return self.layer.weight.new_zeros(())
        l = self.length_scale if length_scale is None else length_scale
        if not self.prior_on_bias:
            l = 0.0
        if self.bias_p is None:
            return square_sum(bias) * (0.5 * l**2)
        return bernoulli_dropout_kl(bias.square(), self.bias_p, l).sum()


class InputNoiseLayer(StochasticLayer):
    """A layer whose noise multiplies the inputs: W diag(z), one z for each input unit.

    In rows with several positions (time steps, pixels) all positions of an input unit have the same noise,
    as with a random weight matrix: channel-wise dropout for convolutions, one mask over time for sequences.
    `elementwise=True` gives each position its own noise, as `nn.Dropout` does; `kl` is then that of the
    weights that one position sees.

    The units of an `nn.Embedding` are its words: z multiplies the vector of a word, wherever the word occurs.
    The vector at `padding_idx` is a constant, without noise and divergence. In training every row has noise
    for all words: N times K numbers.
    """

    def __init__(
        self,
        layer: nn.Module,
        p: float | Sequence[float] | Tensor | None = 0.1,
        *,
        elementwise: bool = False,
        bias_p: float | None = None,
        length_scale: float = 1e-2,
        scale_by_fan_in: bool = False,
        prior_on_bias: bool = True,
    ) -> None:
        super().__init__(
            layer,
            p,
            bias_p=bias_p,
            length_scale=length_scale,
            scale_by_fan_in=scale_by_fan_in,
            prior_on_bias=prior_on_bias,
        )
        must_be_flag(type(self).__name__, elementwise=elementwise)
        if elementwise and isinstance(self.layer, nn.Embedding):
            want = "False for an nn.Embedding, where a word is dropped wherever it occurs"
            raise ValueError(must(type(self).__name__, "elementwise", want, elementwise))
        self.elementwise = elementwise

    @abstractmethod
    def noise(self, p: Tensor) -> Noise | FixedMasks:
        """The noise at the rate `p`, of mean one; `p` must broadcast against it."""

    def unit_axis(self, x: Tensor) -> int:
        """The axis of `x` that holds the input units; raise if their number is wrong."""
        axis = unit_axis(self.layer, x)
        if isinstance(self.layer, nn.Embedding):
            return axis
        if x.dim() <= axis or axis < 0 or x.shape[axis] != num_units(self.layer):
            want = f"an input with {num_units(self.layer)} units on axis {axis}"
            raise ValueError(must(type(self).__name__, "x", want, tuple(x.shape)))
        return axis

    def noise_shape(self, x: Tensor, rows: int) -> tuple[int, ...]:
        """Shape of the noise of `rows` rows, shaped to broadcast against `x`."""
        axis = self.unit_axis(x)
        if isinstance(self.layer, nn.Embedding):
            return rows, num_units(self.layer)
        size = list(x.shape) if self.elementwise else [1] * x.dim()
        size[axis] = x.shape[axis]
        if is_batched(self.layer, x):
            size[0] = rows
        return tuple(size)

    def like_weight(self, per_unit: Tensor) -> Tensor:
        """Values of the units, or one value for all, shaped to broadcast against the weight."""
        return per_unit if per_unit.dim() == 0 else units_like_weight(self.layer, per_unit)

    def input_noise(self, x: Tensor) -> Tensor | None:
        """The noise that multiplies the input; None in evaluation."""
        draw = active_draw(self)
        if draw is not None:
            noise: Tensor | None = draw.ready(self, "input", x)
            if noise is not NOT_READY:
                return noise
        per_unit = [-1] + [1] * (x.dim() - 1 - self.unit_axis(x))
        p = self.p if self.p.dim() == 0 else self.p.reshape(per_unit)
        return self.noise_for(x, "input", lambda rows: self.noise_shape(x, rows), self.noise(p))

    def multiplier(self, x: Tensor) -> Tensor | None:
        """The noise of an input like `x`, with its gradient, for use at several places; None for no noise.

        Recurrent layers multiply by it at every step; `forward` multiplies once, in faster ways.
        """
        return self.input_noise(x)

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The linear map of the noisy input. Shapes as the wrapped layer's.

        Args:
            x: as the wrapped layer's input.
            output_size: of a transposed convolution, as its own `forward` takes it.
        """
        if isinstance(self.layer, nn.Embedding):
            return self._vectors(self.layer, x)
        noise = self.input_noise(x)
        if noise is not None:
            x = x * noise
        if self.bias_p is None:
            return self.mapped(x, output_size)
        bias = self.bias_for(x)
        assert bias is not None
        return apply_weights(self.layer, x, self.layer.weight, output_size) + bias

    def _vectors(self, table: nn.Embedding, x: Tensor) -> Tensor:
        """The vectors of the words, each times the noise of its word."""
        vectors: Tensor = table(x)
        if x.dim() == 0:
            return self._vectors(table, x.reshape(1))[0]
        like = like_words(table, x)
        noise = self.multiplier(like)
        if noise is None:
            return vectors
        if noise.dim() < 2:
            noise = noise.expand(self.noise_shape(like, 1))
        return vectors * of_words(table, x, noise)


class WeightNoiseLayer(StochasticLayer):
    """A layer with noise on the weights themselves.

    Weights for every row of a training batch would cost a weight matrix a row, so training uses one set of
    weights for the batch unless `per_row=True`. Gradients are unbiased either way; `per_row=True` lowers
    their variance.
    """

    def __init__(
        self,
        layer: nn.Module,
        p: float | Sequence[float] | Tensor | None = 0.1,
        *,
        per_row: bool = False,
        bias_p: float | None = None,
        length_scale: float = 1e-2,
        scale_by_fan_in: bool = False,
        prior_on_bias: bool = True,
    ) -> None:
        super().__init__(
            layer,
            p,
            bias_p=bias_p,
            length_scale=length_scale,
            scale_by_fan_in=scale_by_fan_in,
            prior_on_bias=prior_on_bias,
        )
        must_be_flag(type(self).__name__, per_row=per_row)
        self.per_row = per_row

    @abstractmethod
    def weight_for(self, x: Tensor) -> Tensor:
        """The noisy weights, of the layer's shape, or (N, *that shape) where every row has its own."""

    def rows_of(self, rows: int) -> int:
        """How many sets of weights a batch of `rows` rows needs."""
        draw = active_draw(self)
        own = draw is not None and (draw.per_row or draw.num_functions > 1)
        return rows if self.per_row or own else 1

    def sets_like(self, x: Tensor, *shape: int) -> Callable[[int], tuple[int, ...]]:
        """The function from a number of rows to the shape of noise: `shape`, or (N, *shape) for N sets.

        Args:
            x: the layer's input.
            shape: of the noise of one set of weights.
        """

        def of_rows(rows: int) -> tuple[int, ...]:
            sets = self.rows_of(rows)
            return (sets, *shape) if sets > 1 and is_batched(self.layer, x) else shape

        return of_rows

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The linear map with noisy weights. Shapes as the wrapped layer's.

        Args:
            x: as the wrapped layer's input.
            output_size: of a transposed convolution, as its own `forward` takes it.
        """
        if isinstance(self.layer, nn.Embedding):
            return apply_weights(self.layer, x, self.weight_for(like_words(self.layer, x)))
        out = apply_weights(self.layer, x, self.weight_for(x), output_size)
        bias = self.bias_for(x)
        return out if bias is None else out + bias


def checked_rate(
    owner: str,
    argument: str,
    p: float | Sequence[float] | Tensor | None,
    layer: WeightLayer,
    units: int | None = None,
) -> Tensor:
    """The rate as a tensor in the precision of the layer's weights; raise unless it is in [0, 1)."""
    units = num_units(layer) if units is None else units
    several = f"one number or one per input unit ({units})" if units > 1 else "one number"
    rate = real_numbers(owner, argument, p, f"in [0, 1), {several}")
    if rate.dim() > 1 or (rate.dim() == 1 and rate.shape[0] != units):
        raise ValueError(must(owner, argument, several, tuple(rate.shape)))
    if not bool(((rate >= 0) & (rate < 1)).all()):
        raise ValueError(must(owner, argument, "in [0, 1)", p))
    rounded = rate.to(layer.weight.dtype)
    if not bool((rounded < 1).all()):
        kind = str(layer.weight.dtype).removeprefix("torch.")
        hint = "Everything would be dropped, and the noise, divided by 1 - p, be infinite."
        raise ValueError(must(owner, argument, f"below 1 when it is rounded to {kind}", p, hint))
    return rounded.to(layer.weight.device, copy=True)


def positive_scale(owner: str, argument: str, value: float) -> float:
    """A positive number whose square, times weights, is neither 0 nor infinite in single precision."""
    want = "a positive number, from 1e-15 to 1e15"
    return real_number(owner, argument, value, want, at_least=1e-15, at_most=1e15)


def total_kl(model: nn.Module, length_scale: float | None = None) -> Tensor:
    """Sum of `kl()` over the stochastic layers of a model, in nats, shape ().

    Args:
        model: any module.
        length_scale: used instead of the layers' own.
    """
    must_be_module("total_kl", "model", model)
    if length_scale is not None:
        length_scale = positive_scale("total_kl", "length_scale", length_scale)
    terms = [layer.kl(length_scale) for layer in model.modules() if isinstance(layer, StochasticLayer)]
    return torch.stack(terms).sum() if terms else torch.zeros(())


def rates(model: nn.Module) -> dict[str, Tensor]:
    """The drop rate of every stochastic layer, by its path; detached.

    >>> from bayesdrop import BernoulliDropout
    >>> rates(nn.Sequential(BernoulliDropout(nn.Linear(3, 2), p=0.25)))
    {'0': tensor(0.2500)}
    """
    must_be_module("rates", "model", model)
    return {
        name: layer.p.detach().clone()
        for name, layer in model.named_modules()
        if isinstance(layer, StochasticLayer)
    }
