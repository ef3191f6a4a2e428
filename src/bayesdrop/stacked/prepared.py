"""PreparedMixture: a mixture whose draws have their weights made once, for many predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesdrop.errors import whole_number
from bayesdrop.layers import StochasticLayer
from bayesdrop.noise import NoiseSource
from bayesdrop.predict import Prediction
from bayesdrop.predict.statistics import DrawStatistics
from bayesdrop.stacked.encode import Array
from bayesdrop.stacked.heads import apply_activation
from bayesdrop.stacked.job import export
from bayesdrop.stacked.scores import drawn_weights

if TYPE_CHECKING:
    from bayesdrop.stacked.mixture import Component, Mixture

__all__ = ["PreparedMixture"]


@dataclass(frozen=True, eq=False)
class _Stack:
    """C draws that run in one batched product a layer: of networks with the same encoder and widths.

    Attributes:
        encoder: its name.
        activation: between the layers.
        layers: weights (C, K_in, K_out) and biases (C, 1, K_out) of every layer.
        log_variance: (C, 1, D) of the noise, for networks that have one noise for all rows; else None.
        places: (C,) places of the draws among all T.
    """

    encoder: str
    activation: str
    layers: list[tuple[Tensor, Tensor]]
    log_variance: Tensor | None
    places: Tensor

    def outputs(self, x: Tensor) -> Tensor:
        """(C, N, outputs) of inputs (N, K)."""
        h = x
        for place, (weight, bias) in enumerate(self.layers):
            if place:
                h = apply_activation(self.activation, h)
            h = torch.baddbmm(bias, h.expand(len(weight), *h.shape[-2:]), weight)
        return h


class PreparedMixture:
    """`mixture.predict(x, num_draws, seed)` for many x, to rounding.

    A mixture makes the noise of its draws in every call, so that it holds no more than its networks. Here
    the weights of all draws are held, which takes `bytes_needed`.

    Args:
        mixture: the networks.
        num_draws: T of all networks together; the mixture's own if None.
        seed: of the draws.
    """

    @torch.no_grad()
    def __init__(self, mixture: Mixture, num_draws: int | None = None, seed: int = 0) -> None:
        total = mixture.num_draws if num_draws is None else num_draws
        self.num_draws = whole_number("PreparedMixture", "num_draws", total, at_least=1)
        self._mixture, self._likelihood = mixture, mixture.likelihood
        self._scales = mixture.log_scales(self.num_draws, seed)
        counts = mixture.counts(self.num_draws)
        starts = [0, *accumulate(counts)]
        seeds = [mixture.seed_of(place, seed) for place in range(len(counts))]
        groups: dict[tuple[str, str, tuple[int, ...], bool], list[tuple[int, Component]]] = {}
        for place, component in enumerate(mixture.components):
            if counts[place]:
                network = component.network
                key = (
                    component.encoder,
                    network.settings.activation,
                    tuple(network.widths),
                    network.log_noise_std is None,
                )
                groups.setdefault(key, []).append((place, component))
        self._stacks = [
            _stack(key[0], key[1], members, counts, starts, seeds) for key, members in groups.items()
        ]

    @staticmethod
    def bytes_needed(mixture: Mixture, num_draws: int | None = None) -> int:
        """Bytes that the weights of all draws take."""
        counts = mixture.counts(mixture.num_draws if num_draws is None else num_draws)
        return sum(
            count * sum(weight.nbytes for weight in component.network.weights)
            for count, component in zip(counts, mixture.components, strict=True)
        )

    @torch.no_grad()
    def draws(self, x: Array) -> Tensor:
        """(T, N, outputs) in the target's units, in double precision.

        Args:
            x: (N, K) columns as those of the table.
        """
        inputs = {name: encoder(x) for name, encoder in self._mixture.encoders.items()}
        parts, places = [], []
        for stack in self._stacks:
            output = stack.outputs(inputs[stack.encoder])
            value = self._mixture.in_units(output, stack.log_variance)
            if self._scales is not None:
                value[..., value.shape[-1] // 2 :] += self._scales[stack.places].unsqueeze(1)
            parts.append(value)
            places.append(stack.places)
        if len(parts) == 1:
            return parts[0]
        made = torch.empty(self.num_draws, *parts[0].shape[1:], dtype=torch.float64)
        made[torch.cat(places)] = torch.cat(parts)
        return made

    @torch.no_grad()
    def predict(self, x: Array) -> Prediction:
        """The predictive distribution of rows, draws kept.

        Args:
            x: (N, K) columns as those of the table.
        """
        draws = self.draws(x)
        running = DrawStatistics(self._likelihood)
        running.update_many(draws)
        return Prediction.from_statistics(
            running.result(), self._likelihood, shared=True, plan="prepared draws", draws=draws
        )


def _stack(
    encoder: str,
    activation: str,
    members: Sequence[tuple[int, Component]],
    counts: Sequence[int],
    starts: Sequence[int],
    seeds: Sequence[int],
) -> _Stack:
    """The draws of some networks, with their weights.

    Args:
        encoder: name of their encoder.
        activation: between their layers.
        members: the networks, and their places in the mixture.
        counts: draws of every network of the mixture.
        starts: the place of the first draw of every network.
        seeds: of the draws of every network.
    """
    weights: list[list[Tensor]] = []
    biases: list[list[Tensor]] = []
    log_variances, places = [], []
    for place, component in members:
        network, count = component.network, counts[place]
        source = NoiseSource(seeds[place])
        model = enumerate(export(network))
        layers = [(path, layer) for path, layer in model if isinstance(layer, StochasticLayer)]
        for row, (path, layer) in enumerate(layers):
            if layer.is_random():
                weight, bias = drawn_weights(layer, str(path), source, 0, count)
            else:
                weight, bias = layer.layer.weight.detach(), network.biases[row]
            outputs, inputs = weight.shape[-2:]
            if len(weights) <= row:
                weights.append([])
                biases.append([])
            weights[row].append(weight.expand(count, outputs, inputs).transpose(1, 2))
            biases[row].append(bias.reshape(-1, 1, outputs).expand(count, 1, outputs))
        if network.log_variance is not None:
            log_variances.append(network.log_variance.expand(count, 1, -1))
        places.append(torch.arange(starts[place], starts[place] + count))
    layers_of_all = [
        (torch.cat(weight).contiguous(), torch.cat(bias).contiguous())
        for weight, bias in zip(weights, biases, strict=True)
    ]
    log_variance = torch.cat(log_variances) if log_variances else None
    return _Stack(encoder, activation, layers_of_all, log_variance, torch.cat(places))
