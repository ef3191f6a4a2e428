"""Stack: the forward and backward passes of M networks, and the divergence from their priors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bayesdrop.stacked.gaussian_weights import MeanField, Variational
from bayesdrop.stacked.heads import ActivationPass, Head, make_head
from bayesdrop.stacked.layers import LayerPrior, NoisyInputs, NoisyWeights, StackLayer
from bayesdrop.stacked.parameters import Parameters
from bayesdrop.stacked.settings import SIGMA, Settings

__all__ = ["Stack", "noise_shapes"]

_MASKS = {"bernoulli": "hard", "learnable": "hard", "concrete": "soft", "gaussian": "normal"}
#: the noise of every layer for one step: random words or normal numbers; None for a layer without noise
_Noise = Sequence[Tensor | None]


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
        return NoisyInputs(values, grads, rows, kind=kind, temperature=settings.temperature)
    if method in ("dropconnect", "mixture"):
        return NoisyWeights(values, grads, rows, sigma=SIGMA if method == "mixture" else 0.0)
    return MeanField(values, grads, rows) if method == "meanfield" else Variational(values, grads, rows)


class Stack:
    """M networks of one shape: loss and gradient of the negative evidence lower bound of each.

    Args:
        settings: of the networks; they agree in what `Settings.stack_key` holds.
        parameters: of the networks.
        num_data: (M,) N of every network.
        log_noise_std: (M, 1, D) noise that is not learned by gradient, if any.
        head: the loss of the outputs; that of the settings' noise model if None.

    Attributes:
        grads: the gradients of the last step, by the names of the parameters.
        squared_error: (M,) sum of squared errors over rows, outputs and steps, where noise is "map"; None
            before the first step. Whoever reads it sets it back to None.
    """

    def __init__(
        self,
        settings: Sequence[Settings],
        parameters: Parameters,
        num_data: Tensor,
        log_noise_std: Tensor | None,
        head: Head | None = None,
    ) -> None:
        self.settings, self.first = list(settings), settings[0]
        self.parameters, self.log_noise_std = parameters, log_noise_std
        dtype = parameters.vector.dtype
        self.grads = Parameters(parameters.layout, len(settings), dtype)
        self.squared_error: Tensor | None = None
        self.head = make_head(self.first.noise) if head is None else head
        self.widths = parameters.layout.widths
        self.layers = [
            _make_layer(self.first, rate, parameters.of_layer(place), self.grads.of_layer(place))
            for place, rate in enumerate(self.first.rates)
        ]
        self._activations = [ActivationPass(self.first.activation) for _ in self.first.hidden]
        fixed = torch.tensor([one.rates for one in settings], dtype=dtype)
        for place, layer in enumerate(self.layers):
            layer.set_rate(fixed[:, place].view(-1, 1, 1))
        self._scale = torch.tensor([one.length_scale for one in settings], dtype=dtype).view(-1, 1, 1)
        self._by_fan_in = torch.tensor([one.scale_by_fan_in for one in settings]).view(-1, 1, 1)
        self.set_num_data(num_data)

    def set_num_data(self, num_data: Tensor) -> None:
        """Set N of every network, (M,), as data come in."""
        scales = [torch.where(self._by_fan_in, self._scale * k**0.5, self._scale) for k in self.widths[:-1]]
        self.priors = [LayerPrior(scale, self._scale, num_data.view(-1, 1, 1)) for scale in scales]

    def update_rates(self) -> None:
        """Take the rates from their logits."""
        for layer in self.layers:
            layer.update_rate()

    def set_noise(self, noise: _Noise) -> None:
        """Set the noise of a step, one item a layer."""
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
        """(M, 1, D) log standard deviation of the noise; None where the noise model has no level."""
        learned = self.parameters.get("log_noise_std")
        return self.log_noise_std if learned is None else learned

    def step_gradient(self, x: Tensor, y: Tensor, weight: Tensor | None, noise: _Noise) -> Tensor:
        """Gradients of one batch into `grads`. Returns the loss of every row, (M, B), without the divergence.

        Args:
            x: (M, B, K).
            y: (M, B, D), or labels (M, B).
            weight: (M, B) weights of the rows, of mean 1 over the data; all 1 if None.
            noise: of every layer.
        """
        loss = self.data_gradient(x, y, weight, noise)
        self.add_prior()
        return loss

    def data_gradient(self, x: Tensor, y: Tensor, weight: Tensor | None, noise: _Noise) -> Tensor:
        """As `step_gradient`, but `grads` is of the loss alone, without the divergence."""
        self.update_rates()
        scored = [
            (layer, one)
            for layer, one in zip(self.layers, noise, strict=True)
            if self.first.method == "learnable" and isinstance(layer, NoisyInputs) and one is not None
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
        """Forward and backward with the noise that was set; returns the loss of every row, (M, B)."""
        output, level = self.forward(x), self.noise_level()
        loss, grad = self.head.both(output, y, level)
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
            layer, masked = self.layers[place], None
            if self.first.activation == "relu" and isinstance(layer, NoisyInputs) and layer.kind == "hard":
                # ReLU and the mask after it at once: the derivative is 1 where the masked value is above 0.
                masked = layer.masked
            grad = layer.backward(grad, through=place > 0, unmasked=masked is not None)
            if place > 0:
                grad = self._activations[place - 1].backward(grad, masked)
        return loss

    def add_prior(self) -> None:
        """Add the gradient of KL(q || prior) / N to `grads`."""
        for layer, prior in zip(self.layers, self.priors, strict=True):
            layer.add_prior(prior)

    def kl(self) -> Tensor:
        """KL(q || prior) / N of every network, (M,)."""
        self.update_rates()
        parts = [layer.kl(prior) for layer, prior in zip(self.layers, self.priors, strict=True)]
        return torch.stack(parts).sum(0)
