"""Draws of trained networks, many at a time: how probable they make targets, and what noise suits these."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesdrop.blocks import with_aligned_rows
from bayesdrop.errors import must
from bayesdrop.layers import MeanFieldGaussian, MixtureDropout, StochasticLayer, VariationalGaussianDropout
from bayesdrop.layers.base import InputNoiseLayer
from bayesdrop.noise import KeepNoise, NoiseSource, Sampler
from bayesdrop.noise.samplers import NormalNoise
from bayesdrop.stacked.heads import apply_activation, expected, make_head
from bayesdrop.stacked.job import Trained, export

__all__ = ["Scores", "draw_outputs", "drawn_weights", "m_step", "mean_weight_outputs", "noise_mode", "score"]

#: numbers of one layer's activations that are held at a time
_CHUNK = 2**21
#: Gamma prior of a "map" noise precision
PRIOR_SHAPE, PRIOR_RATE = 0.1, 0.01


def draw_outputs(
    network: Trained, x: Tensor, *, num_draws: int, seed: int = 0, block: int | None = None
) -> Iterator[Tensor]:
    """Outputs of T draws, some draws at a time: (draws, N, outputs).

    Draw t of a seed is the same function as draw t of `bayesdrop.predict` on the exported network. Layers
    before the first noise are computed once for all draws.

    Args:
        network: trained.
        x: (N, K) inputs, prepared as those it was trained on.
        num_draws: how many functions, T.
        seed: of the draws.
        block: rows that are multiplied at a time, see `bayesdrop.blocks`; N if None.
    """
    source = NoiseSource(seed)
    # Places in the exported nn.Sequential, non-linearities included, are what noise is named by.
    layers = list(enumerate(export(network)))
    random = [isinstance(layer, StochasticLayer) and layer.is_random() for _, layer in layers]
    start = random.index(True) if True in random else len(layers)
    rows = max(1, len(x)) if block is None else block
    parts = [x[first : first + rows] for first in range(0, len(x), rows)]
    aligned = block is not None
    before = [_passed(network, layers[:start], part, {}, aligned=aligned) for part in parts]
    size = max(1, min(num_draws, _CHUNK // (rows * max(network.widths[1:]))))
    for first in range(0, num_draws, size):
        count = min(size, num_draws - first)
        drawn = {
            place: drawn_weights(layer, str(place), source, first, count)
            for (place, layer), noisy in zip(layers, random, strict=True)
            if noisy and isinstance(layer, StochasticLayer)
        }
        outputs = [_passed(network, layers[start:], h, drawn, aligned=aligned) for h in before]
        whole = [h.expand(count, *h.shape[-2:]) for h in outputs]
        yield whole[0] if len(whole) == 1 else torch.cat(whole, 1)


def _passed(
    network: Trained,
    layers: Sequence[tuple[int, nn.Module]],
    h: Tensor,
    drawn: Mapping[int, tuple[Tensor, Tensor]],
    *,
    aligned: bool,
) -> Tensor:
    """Pass h through layers of an exported network, those in `drawn` with the weights and biases of draws.

    With `aligned`, a row's numbers do not depend on its place among the rows.
    """
    for place, layer in layers:
        if place in drawn:
            weight, bias = drawn[place]
            h, weight = with_aligned_rows(h, weight) if aligned else (h, weight)
            h = torch.baddbmm(bias, h.expand(len(weight), *h.shape[-2:]), weight.transpose(1, 2))
        elif isinstance(layer, StochasticLayer):
            weight = layer.weight.detach()
            h, weight = with_aligned_rows(h, weight) if aligned else (h, weight)
            h = torch.nn.functional.linear(h, weight, network.biases[place // 2])
        else:
            h = apply_activation(network.settings.activation, h)
    return h


@torch.no_grad()
def drawn_weights(
    layer: StochasticLayer, path: str, source: NoiseSource, first: int, count: int
) -> tuple[Tensor, Tensor]:
    """Weights (count, K_out, K_in) and biases, (K_out,) or (count, 1, K_out), of `count` draws of a layer."""
    assert layer.bias is not None
    weight, bias = layer.layer.weight.detach(), layer.bias.detach()
    outputs, inputs = weight.shape

    def noise(name: str, shape: tuple[int, ...], sample: Sampler) -> Tensor:
        return source.rows(f"{path}.{name}", first, count, shape, sample).to(weight.dtype)

    if isinstance(layer, InputNoiseLayer):
        return weight * noise("input", (1, inputs), layer.noise(layer.p)), bias
    normal = NormalNoise(weight.device)
    if isinstance(layer, VariationalGaussianDropout):
        spread = (0.5 * layer.bounded_log_alpha).exp()
        return weight * (1 + spread * noise("weight", (outputs, inputs), normal)), bias
    if isinstance(layer, MeanFieldGaussian):
        assert layer.bias_log_std is not None
        drawn = weight + layer.log_std.exp() * noise("weight", (outputs, inputs), normal)
        return drawn, bias + layer.bias_log_std.exp() * noise("bias", (1, outputs), normal)
    if isinstance(layer, MixtureDropout):
        kept = weight * noise("unit", (inputs,), KeepNoise(layer.p)).unsqueeze(1)
        drawn = kept + layer.sigma * noise("weight", (outputs, inputs), normal)
        return drawn, bias + layer.sigma * noise("bias", (1, outputs), normal)
    return weight * noise("weight", (outputs, inputs), KeepNoise(layer.p)), bias


@torch.no_grad()
def mean_weight_outputs(network: Trained, x: Tensor) -> Tensor:
    """(N, outputs) of one pass with the mean weights: "weight averaging", no draws.

    Args:
        network: trained.
        x: (N, K) inputs, prepared as those it was trained on.
    """
    output: Tensor = export(network)(x)
    return output


@dataclass(frozen=True, eq=False)
class Scores:
    """What T draws of a network, or of several as one mixture, say about N rows.

    Attributes:
        mean: (N, D) predictive mean, or (N, K) probabilities of classes or labels.
        log_prob: (N,) log of the density, or probability, of each row's targets, averaged over draws.
    """

    mean: Tensor
    log_prob: Tensor

    def rmse(self, y: Tensor) -> float:
        """Root mean squared error of the mean."""
        return float((self.mean - y).square().mean().sqrt())


@torch.no_grad()
def score(
    networks: Sequence[Trained], x: Tensor, y: Tensor, *, num_draws: int = 100, seed: int = 0
) -> Scores:
    """Score targets under the mixture of all draws of all networks; draws are not kept.

    Args:
        networks: components of equal weight.
        x: (N, K) inputs, prepared as those they were trained on.
        y: (N, D) targets in the units they were trained in; (N,) classes; (N, D) labels, 0 or 1.
        num_draws: T of each network.
        seed: of the draws.
    """
    means, logs = [], []
    for network in networks:
        noise, level = network.settings.noise, network.log_noise_std
        for output in draw_outputs(network, x, num_draws=num_draws, seed=seed):
            means.append(expected(output, noise, y.shape[-1]).sum(0))
            targets = y.expand(len(output), *y.shape)
            loss = make_head(noise).loss(output, targets, None if level is None else level.view(1, 1, -1))
            logs.append(torch.logsumexp(-loss, 0))
    count = num_draws * len(networks)
    return Scores(torch.stack(means).sum(0) / count, torch.stack(logs).logsumexp(0) - math.log(count))


def noise_mode(squared_error: float, errors: int) -> float:
    """The log standard deviation of the noise at the mode of its precision's posterior.

        tau = (n / 2 + a - 1) / (S / 2 + b),        tau ~ Gamma(a = 0.1, b = 0.01)

    Args:
        squared_error: S, the expected sum of squared errors.
        errors: n, how many errors were squared: rows times targets.

    Reference: Gal, Hron & Kendall (2017), appendix D.
    """
    count = max(errors / 2 + PRIOR_SHAPE - 1, PRIOR_SHAPE)
    # A difference of logs: the errors of a network that diverges may be too large for the quotient.
    return 0.5 * (math.log(0.5 * squared_error + PRIOR_RATE) - math.log(count))


@torch.no_grad()
def m_step(
    network: Trained,
    x: Tensor,
    y: Tensor,
    *,
    weight: Tensor | None = None,
    num_draws: int = 20,
    seed: int = 0,
) -> Trained:
    """The network with its noise at the mode of its posterior: `noise_mode` of S = sum of E_q (y - f)^2.

    Args:
        network: with a Gaussian noise level.
        x: (N, K) inputs, prepared as those it was trained on.
        y: (N, D) targets, in the units it was trained in.
        weight: (N,) weights of rows, 1 on average.
        num_draws: functions drawn for the expectation.
        seed: of those draws.

    Reference: Gal, Hron & Kendall (2017), appendix D: the last M-step of "CDropoutM".
    """
    if network.log_noise_std is None:
        raise ValueError(must("m_step", "network", "one with a Gaussian noise level", network.settings.noise))
    total = 0.0
    for outputs in draw_outputs(network, x, num_draws=num_draws, seed=seed):
        square = (outputs - y).square()
        total += float((square if weight is None else square * weight.view(-1, 1)).sum(dtype=torch.float64))
    level = noise_mode(total / num_draws, y.numel())
    return network.with_noise(torch.full_like(network.log_noise_std, level))
