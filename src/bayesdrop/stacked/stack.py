"""Stack: the forward and backward passes of M networks, and the divergence from their priors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.stacked.gaussian_weights import MeanField, Variational
from bayesdrop.stacked.heads import Head, make_head
from bayesdrop.stacked.layers import InputNoise, Prior, StackLayer, WeightNoise
from bayesdrop.stacked.parameters import ParameterLayout, Parameters
from bayesdrop.stacked.settings import SIGMA, Settings

__all__ = ["ACTIVATIONS", "Stack", "apply_activation", "layout_of", "noise_shapes"]

#: the module that each name stands for
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
}
_MASKS = {"bernoulli": "hard", "learnable": "hard", "concrete": "soft", "gaussian": "normal"}


def layout_of(settings: Settings, inputs: int, outputs: int, targets: int) -> ParameterLayout:
    """The parameters of a network with these settings."""
    widths = (inputs, *settings.hidden, outputs)
    counts = [
        0 if rate == 0 or not settings.learns_rates else units if settings.per_unit else 1
        for rate, units in zip(settings.rates, widths[:-1], strict=True)
    ]
    gaussian = tuple(rate > 0 for rate in settings.rates) if settings.method == "meanfield" else ()
    return ParameterLayout(widths, tuple(counts), targets if settings.noise == "learned" else 0, gaussian)


def noise_shapes(settings: Settings, widths: Sequence[int]) -> list[tuple[int, int] | None]:
    """Shape of the noise of every layer for one network and step; None without noise."""
    shapes: list[tuple[int, int] | None] = []
    for place, rate in enumerate(settings.rates):
        inputs, outputs, rows = widths[place], widths[place + 1], settings.batch_size
        by_method = {"dropconnect": (inputs, outputs), "mixture": (inputs + 1, outputs + 1)}
        by_method |= {"meanfield": (rows, outputs), "variational": (rows, outputs)}
        shapes.append(by_method.get(settings.method, (rows, inputs)) if rate else None)
    return shapes


def _make_layer(
    settings: Settings, rate: float, values: Mapping[str, Tensor], grads: Mapping[str, Tensor]
) -> StackLayer:
    """The layer of a posterior; a rate of exactly zero has no noise, whatever the posterior."""
    method, rows = settings.method, settings.batch_size
    if rate == 0 or method in _MASKS:
        kind = _MASKS[method] if rate else "none"
        return InputNoise(values, grads, rows, kind=kind, temperature=settings.temperature)
    if method in ("dropconnect", "mixture"):
        return WeightNoise(values, grads, rows, sigma=SIGMA if method == "mixture" else None)
    return MeanField(values, grads, rows) if method == "meanfield" else Variational(values, grads, rows)


class Stack:
    """M networks of one shape: loss and gradient of the negative evidence lower bound of each.

    Args:
        settings: of the networks; they agree in what `Settings.stack_key` holds.
        parameters: of the networks.
        num_data: (M,) N of every network.
        log_noise_std: (M, 1, D) noise that is not learned by gradient, if any.
        head: what is minimised; the likelihood that the settings name if None.

    Attributes:
        grads: the gradients of the last step, laid out as the parameters.
        squared_error: (M,) sum of squared errors, over rows and outputs, of noise that is set in closed form;
            None before the first step.
    """

    def __init__(
        self,
        settings: Sequence[Settings],
        parameters: Parameters,
        num_data: Tensor,
        log_noise_std: Tensor | None,
        head: Head | None = None,
    ) -> None:
        first = settings[0]
        self.settings, self.first = list(settings), first
        self.parameters = parameters
        dtype = parameters.vector.dtype
        self.grads = Parameters(parameters.layout, len(settings), dtype)
        self.log_noise_std = log_noise_std
        self.squared_error: Tensor | None = None
        self.head = make_head(first.noise) if head is None else head
        self.widths = parameters.layout.widths
        self.layers = [
            _make_layer(first, rate, parameters.of_layer(place), self.grads.of_layer(place))
            for place, rate in enumerate(first.rates)
        ]
        self._activations = [_Activation(first.activation) for _ in first.hidden]
        fixed = torch.tensor([one.rates for one in settings], dtype=dtype)
        for place, layer in enumerate(self.layers):
            layer.set_rate(fixed[:, place].view(-1, 1, 1))
        self._bias_scale = torch.tensor([one.length_scale for one in settings], dtype=dtype).view(-1, 1, 1)
        by_fan_in = torch.tensor([one.scale_by_fan_in for one in settings]).view(-1, 1, 1)
        self._length_scales = [
            torch.where(by_fan_in, self._bias_scale * inputs**0.5, self._bias_scale)
            for inputs in self.widths[:-1]
        ]
        self.set_num_data(num_data)

    def set_num_data(self, num_data: Tensor) -> None:
        """(M,) N of every network from now on, as data come in."""
        count = num_data.view(-1, 1, 1)
        self.priors = [Prior(scale, self._bias_scale, count) for scale in self._length_scales]

    def update_rates(self) -> None:
        """Take the rates from their logits."""
        for layer in self.layers:
            layer.update_rate()

    def set_noise(self, noise: Sequence[Tensor | None]) -> None:
        """The noise of a step."""
        for layer, one in zip(self.layers, noise, strict=True):
            if one is not None:
                layer.set_noise(one)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (M, B, outputs) with the noise that was set."""
        h = self.layers[0].forward(x)
        for activation, layer in zip(self._activations, self.layers[1:], strict=True):
            h = layer.forward(activation.forward(h))
        return h

    def noise_level(self) -> Tensor | None:
        """(M, 1, D) log standard deviation of the noise."""
        learned = self.parameters.get("log_noise_std")
        return self.log_noise_std if learned is None else learned

    def step_gradient(
        self, x: Tensor, y: Tensor, weight: Tensor | None, noise: Sequence[Tensor | None]
    ) -> Tensor:
        """Gradients of one batch into `grads`. Returns the loss of every row, (M, B), without the divergence.

        Args:
            x: (M, B, K).
            y: (M, B, D), or labels (M, B).
            weight: (M, B) weights of the rows, of mean one over the data; None for ones.
            noise: random words or normal numbers of every layer.
        """
        loss = self.data_gradient(x, y, weight, noise)
        self.add_prior()
        return loss

    def data_gradient(
        self, x: Tensor, y: Tensor, weight: Tensor | None, noise: Sequence[Tensor | None]
    ) -> Tensor:
        """As `step_gradient`, of the loss alone: nothing of the prior is in `grads`."""
        self.update_rates()
        scored = [
            (layer, one)
            for layer, one in zip(self.layers, noise, strict=True)
            if self.first.method == "learnable" and isinstance(layer, InputNoise) and one is not None
        ]
        other = None
        if scored:
            # The antithetic pass comes first: it needs no gradient, and the buffers are then free.
            for layer, one in scored:
                layer.set_opposite_noise(one)
            other = self.head.loss(self.forward(x), y, self.noise_level())
        self.set_noise(noise)
        loss = self._backward(x, y, weight)
        if other is not None:
            change = (loss - other) / loss.shape[1]
            change = (change if weight is None else change * weight).unsqueeze(-1)
            for layer, one in scored:
                layer.add_score(change, one)
        return loss

    def _backward(self, x: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """Forward and backward with the noise that was set; the loss of every row, (M, B)."""
        output, level = self.forward(x), self.noise_level()
        loss = self.head.loss(output, y, level)
        grad = self.head.slope(output, y, level)
        share = 1 / output.shape[1] if weight is None else weight.unsqueeze(-1) / output.shape[1]
        if self.first.noise == "map":
            square = (output - y).square()
            total = (square if weight is None else square * weight.unsqueeze(-1)).sum((1, 2))
            self.squared_error = total if self.squared_error is None else self.squared_error + total
        level_grad = self.grads.get("log_noise_std")
        if level_grad is not None:
            torch.sum((1 - (output - y) * grad) * share, 1, keepdim=True, out=level_grad)
        grad.mul_(share)
        for place in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[place]
            # The derivatives of a ReLU and of a mask of 0 and 1 behind it are one.
            masked = layer.masked if isinstance(layer, InputNoise) and layer.hides_zeros else None
            joint = self.first.activation == "relu" and masked is not None
            grad = layer.backward(grad, through=place > 0, unmasked=joint)
            if place > 0:
                grad = self._activations[place - 1].backward(grad, masked if joint else None)
        return loss

    def add_prior(self) -> None:
        """Add the gradient of KL(q || prior) / N to `grads`."""
        for layer, prior in zip(self.layers, self.priors, strict=True):
            layer.add_prior(prior)

    def kl(self) -> Tensor:
        """KL(q || prior) / N of every network, (M,)."""
        self.update_rates()
        return torch.stack(
            [layer.kl(prior) for layer, prior in zip(self.layers, self.priors, strict=True)]
        ).sum(0)


def apply_activation(name: str, h: Tensor) -> Tensor:
    """The non-linearity of that name; `h` is overwritten."""
    if name == "relu":
        return h.clamp_min_(0)
    if name == "tanh":
        return h.tanh_()
    if name == "silu":
        return nn.functional.silu(h, inplace=True)
    return nn.functional.gelu(h)


class _Activation:
    """One use of a non-linearity, with its derivative, in memory that is there already.

    Where the derivative is known from the value alone (ReLU, tanh), the value takes the place of h.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._kept = torch.empty(0)
        self._value = torch.empty(0)

    def forward(self, h: Tensor) -> Tensor:
        """a = f(h); may overwrite h."""
        if self._name in ("relu", "tanh"):
            self._kept = apply_activation(self._name, h)
            return self._kept
        self._kept = h
        if self._value.shape != h.shape:
            self._value = torch.empty_like(h)
        ops: Any = torch.ops.aten
        (ops.silu if self._name == "silu" else ops.gelu).out(h, out=self._value)
        return self._value

    def backward(self, grad: Tensor, masked: Tensor | None) -> Tensor:
        """dL/dh, in the memory of dL/da.

        Args:
            grad: dL/da, or dL/d(a z) with `masked`.
            masked: a z, the value of a ReLU under a mask z of 0 and 1, whose derivative is that of both.
        """
        ops: Any = torch.ops.aten
        if self._name == "relu":
            ops.threshold_backward.grad_input(
                grad, self._kept if masked is None else masked, 0, grad_input=grad
            )
        else:
            backward = {"tanh": ops.tanh_backward, "silu": ops.silu_backward, "gelu": ops.gelu_backward}
            backward[self._name].grad_input(grad, self._kept, grad_input=grad)
        return grad
