"""One network of a stack as a plain module of stochastic layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesdrop.layers import (
    BernoulliDropout,
    ConcreteDropout,
    DropConnect,
    GaussianDropout,
    LearnableDropout,
    MeanFieldGaussian,
    StochasticLayer,
)
from bayesdrop.layers.base import InputNoiseLayer
from bayesdrop.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from bayesdrop.noise.samplers import KeepNoise, Noise, NormalNoise
from bayesdrop.stacked.activations import ACTIVATIONS
from bayesdrop.stacked.job import Trained

__all__ = ["export", "layer_noise", "likelihood_of"]


def export(network: Trained) -> nn.Sequential:
    """The network as `nn.Sequential` of our layers, in eval mode, for `predict`, `save` and all the rest.

    Inputs and outputs are those of the network: what was standardised for training stays so.
    """
    parts: list[nn.Module] = []
    for place in range(len(network.weights)):
        if place:
            parts.append(ACTIVATIONS[network.settings.activation]())
        parts.append(_layer(network, place))
    return nn.Sequential(*parts).eval()


def likelihood_of(network: Trained) -> Likelihood:
    """What the outputs of the exported network mean."""
    noise = network.settings.noise
    if noise == "heteroscedastic":
        return HeteroscedasticGaussian()
    if noise == "classes":
        return Categorical()
    if noise == "labels":
        return Bernoulli()
    assert network.log_noise_std is not None
    return Gaussian(network.log_noise_std.exp(), noise=noise)


def _layer(network: Trained, place: int) -> StochasticLayer:
    weight, bias, p = network.weights[place], network.biases[place], network.p[place]
    inputs, outputs = weight.shape
    # Without first weights of its own, which would use up random numbers of torch.
    linear = nn.utils.skip_init(nn.Linear, inputs, outputs, dtype=weight.dtype)  # type: ignore[no-untyped-call]
    assert isinstance(linear, nn.Linear)
    with torch.no_grad():
        linear.weight.copy_(weight.T)
        linear.bias.copy_(bias)
    settings = network.settings
    l, by_fan_in = settings.length_scale, settings.scale_by_fan_in
    # A rate of exactly zero is not learned: the layer is dropout that never drops, and has the same prior.
    method = "bernoulli" if settings.rates[place] == 0 and settings.learns_rates else settings.method
    if method == "concrete":
        temperature = settings.temperature
        return ConcreteDropout(
            linear,
            _inside(p),
            temperature=temperature,
            per="unit" if p.dim() else "layer",
            length_scale=l,
            scale_by_fan_in=by_fan_in,
        )
    if method == "learnable":
        per = "unit" if p.dim() else "layer"
        return LearnableDropout(linear, _inside(p), per=per, length_scale=l, scale_by_fan_in=by_fan_in)  # type: ignore[arg-type]
    std, bias_std = network.stds[place] if network.stds else None, None
    if std is not None:
        bias_std = network.bias_stds[place]
        assert bias_std is not None
        layer = MeanFieldGaussian(linear, length_scale=l, scale_by_fan_in=by_fan_in)
        assert layer.bias_log_std is not None
        with torch.no_grad():
            tiny = torch.finfo(std.dtype).tiny
            layer.log_std.copy_(std.T.clamp_min(tiny).log())
            layer.bias_log_std.copy_(bias_std.clamp_min(tiny).log())
        return layer
    if method == "gaussian":
        return GaussianDropout(linear, p, length_scale=l, scale_by_fan_in=by_fan_in)
    if method == "dropconnect":
        return DropConnect(linear, p, length_scale=l, scale_by_fan_in=by_fan_in)
    return BernoulliDropout(linear, p, length_scale=l, scale_by_fan_in=by_fan_in)


def _inside(p: Tensor) -> Tensor:
    """A learned rate that has run to 0 or 1 in floating point, as near to it as a logit can say."""
    tiny = torch.finfo(p.dtype).tiny
    return p.clamp(tiny, 1 - torch.finfo(p.dtype).eps)


def layer_noise(network: Trained, place: int) -> tuple[str, Noise] | None:
    """The site and the noise of a layer's draws, as the exported network has them; None if it has none.

    It multiplies the inputs or the weights, but for Gaussian weights, whose widths it multiplies.
    """
    p = network.p[place]
    if not bool((p > 0).any()):
        return None
    # nn.Sequential counts non-linearities too.
    path = 2 * place
    layer = _layer(network, place)
    if isinstance(layer, MeanFieldGaussian):
        return f"{path}.weight", NormalNoise(p.device)
    if isinstance(layer, InputNoiseLayer):
        with torch.no_grad():
            return f"{path}.input", layer.noise(layer.p)
    return f"{path}.weight", KeepNoise(p)
