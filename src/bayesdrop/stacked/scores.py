"""Draws of trained networks, many at a time, and what they say about targets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.noise import NoiseSource
from bayesdrop.noise.samplers import Noise
from bayesdrop.stacked.activations import apply_activation
from bayesdrop.stacked.export import layer_noise
from bayesdrop.stacked.heads import make_head
from bayesdrop.stacked.job import Trained

__all__ = ["Scores", "draw_outputs", "expected", "log_likelihoods", "mean_weight_outputs", "score"]

#: numbers of one layer's activations that are held at a time
_CHUNK = 2**21


def draw_outputs(network: Trained, x: Tensor, *, num_draws: int, seed: int = 0) -> Iterator[Tensor]:
    """Outputs of T draws, some draws at a time: (C, N, outputs) each.

    Draw t of a seed is the same function as draw t of `bayesdrop.predict` on the exported network.

    Args:
        network: trained.
        x: (N, K) inputs, prepared as those it was trained on.
        num_draws: how many functions, T.
        seed: names the sequence of functions.
    """
    source = NoiseSource(seed)
    noises = [layer_noise(network, place) for place in range(len(network.weights))]
    rows = max(1, len(x))
    size = max(1, min(num_draws, _CHUNK // (rows * max(network.widths[1:]))))
    for first in range(0, num_draws, size):
        count = min(size, num_draws - first)
        yield _outputs(network, x, noises, source, first, count)


def mean_weight_outputs(network: Trained, x: Tensor) -> Tensor:
    """(N, outputs) of one pass with the mean weights: "weight averaging", no draw at all.

    Args:
        network: trained.
        x: (N, K) inputs, prepared as those it was trained on.
    """
    return _outputs(network, x, [None] * len(network.weights), NoiseSource(0), 0, 1)[0]


def _outputs(
    network: Trained,
    x: Tensor,
    noises: Sequence[tuple[str, Noise] | None],
    source: NoiseSource,
    first: int,
    count: int,
) -> Tensor:
    h = x
    last = len(network.weights) - 1
    for place, (weight, bias, noise) in enumerate(zip(network.weights, network.biases, noises, strict=True)):
        if noise is None:
            h = (
                torch.addmm(bias, h, weight)
                if h.dim() == 2
                else torch.baddbmm(bias, h, weight.expand(count, -1, -1))
            )
        else:
            site, sample = noise
            # Outputs first: a last layer of one or two outputs is then a fast product too.
            rows = weight.T.contiguous()
            shape = (1, weight.shape[0]) if site.endswith("input") else tuple(rows.shape)
            made = source.rows(site, first, count, shape, sample).to(weight.dtype)
            std = network.stds[place] if network.stds else None
            drawn = rows * made if std is None else rows + std.T * made
            shift = (
                bias
                if std is None
                else bias + _bias_noise(network, place, site, sample, source, first, count)
            )
            h = h if h.dim() == 3 else h.expand(count, *h.shape)
            h = torch.baddbmm(shift, h, drawn.transpose(1, 2))
        if place < last:
            h = apply_activation(network.settings.activation, h)
    return h if h.dim() == 3 else h.expand(count, *h.shape)


def _bias_noise(
    network: Trained, place: int, site: str, sample: Noise, source: NoiseSource, first: int, count: int
) -> Tensor:
    """(C, 1, K_out) what Gaussian biases add to their means in some draws."""
    std = network.bias_stds[place]
    assert std is not None
    drawn = source.rows(site.replace(".weight", ".bias"), first, count, (1, len(std)), sample)
    return std * drawn.to(std.dtype)


@dataclass(frozen=True, eq=False)
class Scores:
    """What T draws of a network, or of several as one mixture, say about N targets.

    Attributes:
        mean: (N, D) predictive mean, or probabilities of classes or labels.
        log_prob: (N,) log density of each target, averaged over draws.
    """

    mean: Tensor
    log_prob: Tensor

    def rmse(self, y: Tensor) -> float:
        """Root mean squared error of the mean."""
        return float((self.mean - y).square().mean().sqrt())


@torch.no_grad()
def score(
    networks: Sequence[Trained],
    x: Tensor,
    y: Tensor,
    *,
    num_draws: int = 100,
    seed: int = 0,
    log_noise_scale: float = 0.0,
) -> Scores:
    """The mixture of all draws of all networks, in passing: no draws are kept.

    Args:
        networks: components of equal weight.
        x: (N, K).
        y: (N, D), or labels.
        num_draws: T of each network.
        seed: of the draws.
        log_noise_scale: added to the log standard deviation of the noise.
    """
    total: Tensor | None = None
    mean: Tensor | None = None
    for network in networks:
        head = make_head(network.settings.noise)
        level = network.log_noise_std
        if level is not None:
            level = (level + log_noise_scale).view(1, 1, -1)
        for drawn in draw_outputs(network, x, num_draws=num_draws, seed=seed):
            output = drawn.contiguous()
            part = expected(output, network.settings.noise, y.shape[-1]).sum(0)
            if network.settings.noise == "heteroscedastic" and log_noise_scale:
                output[..., y.shape[1] :] += 2 * log_noise_scale
            targets = y.expand(len(output), *y.shape)
            logs = torch.logsumexp(-head.loss(output, targets, level), 0)
            mean = part if mean is None else mean + part
            total = logs if total is None else torch.logaddexp(total, logs)
    assert total is not None
    assert mean is not None
    count = num_draws * len(networks)
    return Scores(mean / count, total - math.log(count))


def expected(output: Tensor, noise: str, targets: int) -> Tensor:
    """(C, N, D) what each draw expects: a target, or the probabilities of classes or labels."""
    if noise == "classes":
        return torch.softmax(output, -1)
    return torch.sigmoid(output) if noise == "labels" else output[..., :targets]


def log_likelihoods(checked: Sequence[tuple[Trained, Tensor, Tensor]]) -> list[float]:
    """Mean log predictive density of each network on its own rows."""
    return [
        float(score([network], x, y, num_draws=network.settings.validation_draws).log_prob.mean())
        for network, x, y in checked
    ]
