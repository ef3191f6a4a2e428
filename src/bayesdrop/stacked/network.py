"""A stack: the forward and backward passes of M networks, and the divergence from their priors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bayesdrop.functional import bernoulli_dropout_kl, gaussian_dropout_kl
from bayesdrop.stacked.activations import make_function
from bayesdrop.stacked.heads import Head, make_head
from bayesdrop.stacked.layers import MaskedLayer, WeightMaskedLayer
from bayesdrop.stacked.mean_field import MeanFieldLayer
from bayesdrop.stacked.parameters import Layout, Parameters
from bayesdrop.stacked.settings import Settings

__all__ = ["Stack", "layout_of", "noise_shapes"]


def layout_of(settings: Settings, inputs: int, outputs: int, targets: int) -> Layout:
    """The parameters of a network with these settings."""
    widths = (inputs, *settings.hidden, outputs)
    counts = [
        0 if rate == 0 or not settings.learns_rates else units if settings.per_unit else 1
        for rate, units in zip(settings.rates, widths[:-1], strict=True)
    ]
    gaussian = tuple(rate > 0 for rate in settings.rates) if settings.method == "meanfield" else ()
    return Layout(widths, tuple(counts), targets if settings.noise == "learned" else 0, gaussian)


def noise_shapes(settings: Settings, widths: Sequence[int]) -> list[tuple[int, int] | None]:
    """Shape of the noise of every layer for one network and step."""
    shapes: list[tuple[int, int] | None] = []
    for place, rate in enumerate(settings.rates):
        if rate == 0:
            shapes.append(None)
        elif settings.method == "dropconnect":
            shapes.append((widths[place], widths[place + 1]))
        elif settings.method == "meanfield":
            shapes.append((settings.batch_size, widths[place + 1]))
        else:
            shapes.append((settings.batch_size, widths[place]))
    return shapes


class Stack:
    """M networks of one shape: loss and gradient of the negative evidence lower bound of each.

    Args:
        settings: of the networks; they agree in what `Settings.stack_key` holds.
        parameters: of the networks.
        num_data: (M,) N of every network.
        log_noise_std: (M, 1, D) noise that is not learned by gradient, if any.
        head: what is minimised; the likelihood that the settings name if None.
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
        self.settings = list(settings)
        self.first = first
        self.parameters = parameters
        self.grads = Parameters(parameters.layout, len(settings), parameters.vector.dtype)
        self.log_noise_std = log_noise_std
        self.head = make_head(first.noise) if head is None else head
        self.widths = parameters.layout.widths
        dtype = parameters.vector.dtype
        self.layers = [self._layer(place, rate) for place, rate in enumerate(first.rates)]
        self.functions = [make_function(first.activation) for _ in first.hidden]
        fixed = torch.tensor([one.rates for one in settings], dtype=dtype)
        for place, layer in enumerate(self.layers):
            layer.set_rate(fixed[:, place].view(-1, 1, 1))
        #: (M, 1, 1) squared prior precision of each layer's weights, and of the biases, over N
        scales = torch.tensor([one.length_scale for one in settings], dtype=dtype).view(-1, 1, 1)
        fan_in = torch.tensor([one.scale_by_fan_in for one in settings]).view(-1, 1, 1)
        self._bias_scales = scales
        self._length_scales = [
            torch.where(fan_in, scales * inputs**0.5, scales) for inputs in self.widths[:-1]
        ]
        self.set_num_data(num_data)

    def _layer(self, place: int, rate: float) -> MaskedLayer:
        first, parameters, grads = self.first, self.parameters, self.grads
        blocks = (
            parameters[f"weight{place}"],
            parameters[f"bias{place}"],
            grads[f"weight{place}"],
            grads[f"bias{place}"],
        )
        if first.method == "meanfield" and rate > 0:
            return MeanFieldLayer(
                *blocks,
                log_std=parameters[f"log_std{place}"],
                bias_log_std=parameters[f"bias_log_std{place}"],
                log_std_grad=grads[f"log_std{place}"],
                bias_log_std_grad=grads[f"bias_log_std{place}"],
                rows=first.batch_size,
            )
        layer_type = WeightMaskedLayer if first.method == "dropconnect" else MaskedLayer
        kinds = {"concrete": "soft", "gaussian": "normal"}
        kind = "none" if rate == 0 else kinds.get(first.method, "hard")
        return layer_type(*blocks, rows=first.batch_size, kind=kind, temperature=first.temperature)

    def set_num_data(self, num_data: Tensor) -> None:
        """(M,) N of every network from now on, as data come in."""
        self._num_data = num_data.view(-1, 1, 1)
        self._bias_decay = self._bias_scales.square() / self._num_data

    def update_rates(self) -> None:
        """Take the rates from their logits."""
        for place, layer in enumerate(self.layers):
            logit = self.parameters.get(f"logit{place}")
            if logit is not None:
                layer.set_rate(torch.sigmoid(logit), logit)

    def make_masks(self, noise: Sequence[Tensor | None]) -> None:
        """The masks of a step."""
        for layer, one in zip(self.layers, noise, strict=True):
            if one is not None:
                layer.make_mask(one)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (M, B, outputs) with the masks that were made."""
        h = self.layers[0].forward(x)
        for function, layer in zip(self.functions, self.layers[1:], strict=True):
            h = layer.forward(function.forward(h))
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
            weight: (M, B) or None.
            noise: random words or normal numbers of every layer.
        """
        loss = self.data_gradient(x, y, weight, noise)
        self.add_prior()
        return loss

    def data_gradient(
        self, x: Tensor, y: Tensor, weight: Tensor | None, noise: Sequence[Tensor | None]
    ) -> Tensor:
        """As `step_gradient`, of the loss alone: nothing of the prior is in `grads`."""
        learnable = self.first.method == "learnable"
        self.update_rates()
        other = None
        if learnable:
            # The antithetic pass comes first: it needs no gradient, and the buffers are then free.
            for layer, one in zip(self.layers, noise, strict=True):
                if one is not None:
                    layer.make_opposite_mask(one)
            other = self.head.loss(self.forward(x), y, self.noise_level())
        self.make_masks(noise)
        output = self.forward(x)
        loss, grad = self.head.backward(
            output, y, self.noise_level(), weight, self.grads.get("log_noise_std")
        )
        for place in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[place]
            rate_grad = self.grads.get(f"logit{place}")
            joint = self.first.activation == "relu" and layer.hides_zeros
            grad = layer.backward(grad, through=place > 0, rate_grad=rate_grad, unmasked=joint)
            if place > 0:
                grad = self.functions[place - 1].backward(grad, layer.masked if joint else None)
        if other is not None:
            self._add_disarm(loss, other, weight, noise)
        return loss

    def _add_disarm(
        self, loss: Tensor, other: Tensor, weight: Tensor | None, noise: Sequence[Tensor | None]
    ) -> None:
        """The score part of the gradient of the rates: DisARM, each row with its own two losses.

        (L(b) - L(b')) (b - b') max(p, 1 - p) / 2 is, unit by unit, the gradient for the logit of keeping.
        """
        difference = (loss - other) / loss.shape[1]
        if weight is not None:
            difference = difference * weight
        for place, (layer, one) in enumerate(zip(self.layers, noise, strict=True)):
            grad = self.grads.get(f"logit{place}")
            if one is None or grad is None:
                continue
            mask = layer.mask
            assert mask is not None
            kept = mask.clone()
            layer.make_opposite_mask(one)
            kept.sub_(mask).mul_(difference.unsqueeze(-1))
            per_unit = kept.sum(1, keepdim=True).mul_(-0.5 * torch.maximum(layer.p, 1 - layer.p))
            grad.add_(per_unit if grad.shape == per_unit.shape else per_unit.sum(2, keepdim=True))

    def add_prior(self) -> None:
        """Add the gradient of KL(q || prior) / N to `grads`."""
        for place, layer in enumerate(self.layers):
            precision = self._length_scales[place].square() / self._num_data
            if isinstance(layer, MeanFieldLayer):
                layer.add_prior(precision, self._bias_decay, self._num_data)
                continue
            p = layer.p
            if self.first.method == "gaussian" and layer.kind != "none":
                norm = layer.weight.square().sum(2, keepdim=True)
                tiny = torch.finfo(norm.dtype).tiny
                pull = precision * layer.scale - (norm + tiny).reciprocal() / self._num_data
                layer.weight_grad.addcmul_(layer.weight, pull)
            else:
                layer.weight_grad.addcmul_(layer.weight, precision * layer.scale)
            layer.bias_grad.addcmul_(layer.bias, self._bias_decay)
            logit = self.parameters.get(f"logit{place}")
            if logit is None:
                continue
            norm = layer.weight.square().sum(2, keepdim=True).transpose(1, 2)
            grad = self.grads[f"logit{place}"]
            units = norm.shape[2] if logit.shape[2] == 1 else 1
            norm = norm.sum(2, keepdim=True) if units > 1 else norm
            grad.addcmul_(0.5 * precision * norm, p / (1 - p))
            grad.addcmul_(logit, units * p * (1 - p) / self._num_data)

    def kl(self) -> Tensor:
        """KL(q || prior) / N of every network, (M,)."""
        self.update_rates()
        total = torch.zeros(len(self.settings), dtype=self.parameters.vector.dtype)
        for place, layer in enumerate(self.layers):
            scale = self._length_scales[place]
            if isinstance(layer, MeanFieldLayer):
                total += layer.kl(scale, self._bias_scales) / self._num_data.view(-1)
                continue
            square = layer.weight.square()
            if self.first.method == "dropconnect":
                p = layer.p.transpose(1, 2).expand_as(square)
                terms = bernoulli_dropout_kl(square, p, scale)
            else:
                norm = square.sum(2, keepdim=True)
                p = layer.p.transpose(1, 2).expand_as(norm)
                divergence = gaussian_dropout_kl if self.first.method == "gaussian" else bernoulli_dropout_kl
                terms = divergence(norm, p, scale)
            total += terms.sum((1, 2)) / self._num_data.view(-1)
            total += 0.5 * (layer.bias.square() * self._bias_decay).sum((1, 2))
        return total
