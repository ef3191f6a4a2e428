"""Job: one network to train. Trained: the network after training, which `export` makes a module of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.errors import must, must_be_finite
from bayesdrop.layers import MeanFieldGaussian, StochasticLayer, VariationalGaussianDropout
from bayesdrop.layers.kinds import KINDS, make_layer
from bayesdrop.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from bayesdrop.stacked.encode import EncodedRows
from bayesdrop.stacked.gaussian_weights import rate_of
from bayesdrop.stacked.heads import ACTIVATIONS, outputs_for
from bayesdrop.stacked.settings import SIGMA, Settings

__all__ = ["Job", "Trained", "export", "likelihood_of", "trained_of"]


@dataclass(frozen=True, eq=False)
class Job:
    """One network to train. Jobs that share a table should share its tensors: they are then held once.

    Args:
        x: (R, K) inputs of a table, standardised by the caller; `EncodedRows` where they are very many.
        y: (R, D) targets; (R,) integer labels with `noise="classes"`; (R, D) of 0 and 1 with "labels".
        settings: how the network is built and trained.
        seed: of first weights, order of rows and noise.
        rows: (N,) places of the rows to train on; all if None.
        validation: (V,) places of rows to check on; they must not be among `rows`.
        weight: (R,) weights of the rows of the table; scaled to mean one over `rows`.
        classes: K, with labels; the largest label plus one if None.
        start: a network whose weights, rates and noise training goes on from; random weights if None.
        name: anything that tells the job from others.
    """

    x: Tensor | EncodedRows
    y: Tensor
    settings: Settings
    seed: int = 0
    rows: Tensor | None = None
    validation: Tensor | None = None
    weight: Tensor | None = None
    classes: int | None = None
    start: Trained | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if len(self.x.shape) != 2 or not self.x.dtype.is_floating_point:
            raise ValueError(must("Job", "x", "a floating tensor of shape (R, K)", tuple(self.x.shape)))
        must_be_finite("Job", "x", torch.from_numpy(self.x.x) if isinstance(self.x, EncodedRows) else self.x)
        labels = self.settings.noise == "classes"
        if labels and (self.y.dim() != 1 or self.y.dtype != torch.int64):
            raise ValueError(must("Job", "y", "int64 labels of shape (R,)", f"{tuple(self.y.shape)}"))
        if not labels and (self.y.dim() != 2 or self.y.dtype != self.x.dtype):
            want = "of shape (R, D) and of the dtype of x"
            raise ValueError(must("Job", "y", want, f"{tuple(self.y.shape)}, {self.y.dtype}"))
        must_be_finite("Job", "y", self.y)
        if self.settings.noise == "labels" and not bool(((self.y == 0) | (self.y == 1)).all()):
            raise ValueError(must("Job", "y", "0 or 1", self.y[(self.y != 0) & (self.y != 1)][0].item()))
        if len(self.y) != len(self.x):
            raise ValueError(must("Job", "y", f"{len(self.x)} rows", len(self.y)))
        if self.num_rows < 1:
            raise ValueError(must("Job", "rows", "at least one row", self.num_rows))
        if self.settings.patience is not None and self.validation is None:
            raise ValueError(must("Job", "patience", "None without validation rows", self.settings.patience))
        if self.weight is not None and self.weight.shape != (len(self.x),):
            raise ValueError(must("Job", "weight", f"of shape ({len(self.x)},)", tuple(self.weight.shape)))
        if self.start is not None and self.start.widths != self.widths:
            raise ValueError(must("Job", "start", f"a network of widths {self.widths}", self.start.widths))

    @property
    def num_rows(self) -> int:
        """N, rows to train on."""
        return len(self.x) if self.rows is None else len(self.rows)

    @property
    def widths(self) -> tuple[int, ...]:
        """Inputs, hidden units, outputs."""
        return (self.x.shape[1], *self.settings.hidden, outputs_for(self.settings.noise, self.targets))

    @property
    def targets(self) -> int:
        """D targets or labels, or K classes."""
        if self.settings.noise != "classes":
            return self.y.shape[1]
        return int(self.y.max()) + 1 if self.classes is None else self.classes


@dataclass(frozen=True, eq=False)
class Trained:
    """A network of a stack after training, in the units it was trained in.

    Attributes:
        settings: how it was trained.
        seed: its seed.
        name: of its job.
        widths: inputs, hidden units, outputs.
        weights: (K_in, K_out) of every layer.
        biases: (K_out,) of every layer.
        p: rate of every layer, shape () or (K_in,).
        stds: widths of the weights of every layer: (K_in, K_out) with "meanfield", () with "mixture", None
            for a layer without noise. Empty for other methods.
        bias_stds: those of the biases: (K_out,) or ().
        log_noise_std: (D,) log standard deviation of Gaussian noise; None for other noise models.
        num_data: N, rows that it was trained on.
        history: lists with a value for every check, by name: "epoch", "nll", "kl", and where there are such
            "validation" (mean log-likelihood), "noise_std" and "rates".
        diverged: whether its parameters became NaN or infinite.
        best_epoch: the epoch that the weights are of, where validation rows chose it.
    """

    settings: Settings
    seed: int
    name: str
    widths: tuple[int, ...]
    weights: list[Tensor]
    biases: list[Tensor]
    p: list[Tensor]
    log_noise_std: Tensor | None
    num_data: int
    history: dict[str, list[Any]] = field(default_factory=dict)
    diverged: bool = False
    best_epoch: int | None = None
    stds: list[Tensor | None] = field(default_factory=list)
    bias_stds: list[Tensor | None] = field(default_factory=list)

    @property
    def log_variance(self) -> Tensor | None:
        """(D,) log variance of Gaussian noise; None for other noise models."""
        return None if self.log_noise_std is None else 2 * self.log_noise_std

    def with_noise(self, log_noise_std: Tensor) -> Trained:
        """The same network with another noise."""
        return replace(self, log_noise_std=log_noise_std)


def trained_of(
    settings: Settings,
    widths: tuple[int, ...],
    tensors: Mapping[str, Tensor],
    **rest: Any,
) -> Trained:
    """A network from its parameters as a stack holds them.

    Args:
        settings: how it was trained.
        widths: inputs, hidden units, outputs.
        tensors: as `Parameters.of_network` gives them, and "log_noise_std" where there is a noise level.
        rest: the other fields.
    """
    weights, biases, rates, stds, bias_stds = [], [], [], [], []
    for place, rate in enumerate(settings.rates):
        weight, bias, logit, log_std, bias_log_std = (
            tensors.get(f"{part}{place}") for part in ("weight", "bias", "logit", "log_std", "bias_log_std")
        )
        assert weight is not None
        assert bias is not None
        p = torch.tensor(rate, dtype=weight.dtype) if logit is None else torch.sigmoid(logit).squeeze()
        sigma = torch.tensor(SIGMA, dtype=weight.dtype) if settings.method == "mixture" and rate > 0 else None
        std = sigma if log_std is None else log_std.exp()
        weights.append(weight)
        biases.append(bias.reshape(-1))
        rates.append(p if log_std is None or std is None else rate_of(weight, std))
        stds.append(std)
        bias_stds.append(sigma if bias_log_std is None else bias_log_std.exp().reshape(-1))
    level = tensors.get("log_noise_std")
    return Trained(
        settings=settings,
        widths=widths,
        weights=weights,
        biases=biases,
        p=rates,
        stds=stds if settings.has_widths else [],
        bias_stds=bias_stds if settings.has_widths else [],
        log_noise_std=None if level is None else level.reshape(-1).clone(),
        **rest,
    )


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


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    """A layer without first weights, whose drawing would use up random numbers of torch.

    `torch.nn.utils.skip_init` does this too, but imports sympy.
    """
    linear = nn.Linear.__new__(nn.Linear)
    nn.Module.__init__(linear)
    linear.in_features, linear.out_features = weight.shape
    linear.weight = nn.Parameter(weight.T.clone(memory_format=torch.contiguous_format))
    linear.bias = nn.Parameter(bias.clone())
    return linear


@torch.no_grad()
def _layer(network: Trained, place: int) -> StochasticLayer:
    settings, weight, bias = network.settings, network.weights[place], network.biases[place]
    linear = _linear(weight, bias)
    # A rate of exactly 0 is no noise, whatever the method: dropout that never drops, with the same prior.
    method = settings.method if settings.rates[place] > 0 else "bernoulli"
    p = network.p[place]
    options: dict[str, Any] = {}
    if method != "variational":
        options = {"length_scale": settings.length_scale, "scale_by_fan_in": settings.scale_by_fan_in}
    if settings.learns_rates and method != "bernoulli":
        # A learned rate may have been rounded to 0 or 1, whose logits are infinite.
        p = p.clamp(torch.finfo(p.dtype).tiny, 1 - torch.finfo(p.dtype).eps)
        options["per"] = "unit" if p.dim() else "layer"
    if method == "concrete":
        options["temperature"] = settings.temperature
    std, bias_std = (widths[place] if widths else None for widths in (network.stds, network.bias_stds))
    if method == "mixture":
        assert std is not None
        options["sigma"] = std.item()
    filled_below = method in ("variational", "meanfield")  # any rate will do here
    layer = make_layer(KINDS[method], linear, 0.1 if filled_below else p, options)
    if isinstance(layer, VariationalGaussianDropout):
        layer.log_alpha.copy_(torch.logit(p))
    if isinstance(layer, MeanFieldGaussian):
        assert std is not None
        assert bias_std is not None
        assert layer.bias_log_std is not None
        layer.log_std.copy_(std.T.clamp_min(torch.finfo(std.dtype).tiny).log())
        layer.bias_log_std.copy_(bias_std.clamp_min(torch.finfo(std.dtype).tiny).log())
    return layer
