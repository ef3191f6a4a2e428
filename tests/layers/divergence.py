"""The divergence of a layer from its prior by sampling the posterior that the layer's docstring states.

Nothing of the library's own mathematics is used. Every posterior here is made of independent blocks of
weights, each a mixture of Gaussians with one covariance; a point is a Gaussian of a vanishing width, and what
such a direction adds, the same for every layer, is left out, as the layers document.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

from bayesdrop import (
    BernoulliDropout,
    ConcreteDropout,
    DropConnect,
    GaussianDropout,
    LearnableDropout,
    Masksembles,
    MeanFieldGaussian,
    MixtureDropout,
    ScaledDropout,
    StochasticLayer,
    VariationalGaussianDropout,
)

VANISHING = 1e-6
MOST_ENUMERATED = 4
EULER = 0.5772156649015329


@dataclass(frozen=True)
class Truth:
    """A divergence, its standard error, and how far above it the layer says that its own value may lie."""

    mean: float
    standard_error: float
    slack: float = 0.0

    def agrees(self, value: float) -> bool:
        return -5 * self.standard_error <= value - self.mean <= self.slack + 5 * self.standard_error


@dataclass(frozen=True)
class Block:
    """B independent vectors of D weights: sum_c chance_c N(mean_c, root root^T), prior N(0, I / l^2)."""

    means: Tensor  # (B, C, D)
    chances: Tensor  # (B, C)
    root: Tensor  # (D, D), or (D,) for a diagonal
    l: float
    vanishing: int  # directions of vanishing width in each vector

    def terms(self, num: int) -> Tensor:
        """Samples of log q - log prior, summed over the vectors, less the constant. (num,)."""
        if self.means.shape[1] <= MOST_ENUMERATED:
            terms = sum(
                self.chances[:, c : c + 1] * self.of_components(torch.full((len(self.means), num), c))
                for c in range(self.means.shape[1])
            )
            assert isinstance(terms, Tensor)
        else:
            terms = self.of_components(torch.multinomial(self.chances, num, replacement=True))
        scaled = (self.l * VANISHING) ** 2
        return (terms - self.vanishing * 0.5 * (scaled - math.log(scaled) - 1)).sum(0)

    def of_components(self, which: Tensor) -> Tensor:
        """Samples of log q - log prior from the components of the given numbers, (B, num)."""
        (b, num), d = which.shape, self.means.shape[-1]
        root = torch.diag(self.root) if self.root.dim() == 1 else self.root
        normal = torch.randn(b, num, d, dtype=torch.float64)
        index = which.unsqueeze(-1).expand(b, num, d)
        weights = self.means.gather(1, index) + normal @ root.T
        # Distances in units of the widths, term by term: products would leave no digits to a width of 1e-6.
        centres = torch.linalg.solve(root, self.means.mT).mT.contiguous()
        exact = "donot_use_mm_for_euclid_dist"
        square = torch.cdist(centres.gather(1, index) + normal, centres, compute_mode=exact).square()
        log_q = torch.logsumexp(self.chances.log().unsqueeze(1) - 0.5 * square, -1)
        log_q = log_q - torch.linalg.slogdet(root)[1]
        log_prior = d * math.log(self.l) - 0.5 * self.l**2 * weights.square().sum(-1)
        # The mean of the last is zero, and it takes away most of the variance.
        return log_q - log_prior + 0.5 * (normal.square().sum(-1) - d)


def true_kl(layer: StochasticLayer, seed: int = 0) -> Truth:
    """The divergence that `layer.kl()` is to give."""
    kinds = [kind for kind in POSTERIORS if isinstance(layer, kind)]
    assert kinds, f"give {type(layer).__name__} a posterior in tests/layers/divergence.py"
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        return POSTERIORS[kinds[0]](layer)


def sampled(blocks: Iterator[Block], slack: float = 0.0) -> Truth:
    mean = variance = 0.0
    for block in blocks:
        # Where the components are enumerated and have no width, nothing is left to vary.
        most = 500 if block.vanishing == block.means.shape[-1] else 100_000
        num = max(500, min(most, 2_000_000 // block.means.numel()))
        terms = block.terms(num)
        mean += terms.mean().item()
        variance += terms.var().item() / num
    # A width of 1e-6 leaves ten digits to the distances.
    return Truth(mean, math.sqrt(variance) + 1e-9 * abs(mean), slack)


def units_of(layer: nn.Module) -> list[Tensor]:
    """For every input unit (channel, word) the flat places of the weights that it meets, by its gradient."""
    weight = layer.weight
    assert isinstance(weight, Tensor)
    places = []
    for k in range(6):
        if isinstance(layer, nn.Embedding):
            x = torch.tensor([[k]])
        else:
            x = torch.zeros(1, 6, *[9] * (weight.dim() - 2), dtype=torch.float64)
            x[:, k] = 1.0
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(layer(x).sum(), weight)
        places.append(gradient.flatten().nonzero()[:, 0])
    # A weight that no unit meets is a constant: the vector of a padding word.
    assert len(torch.cat(places).unique()) == sum(map(len, places))
    return [place for place in places if len(place)]


def prior_scale(layer: StochasticLayer) -> float:
    """l of the weights: with `scale_by_fan_in` times the root of the number of weights of one output."""
    outputs = layer.layer.bias.numel() if layer.bias is not None else layer.layer.weight.shape[0]
    if isinstance(layer.layer, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        outputs = layer.layer.out_channels
    return layer.length_scale * (
        (layer.layer.weight.numel() / outputs) ** 0.5 if layer.scale_by_fan_in else 1.0
    )


def rate_of(layer: StochasticLayer, k: int) -> float:
    p = layer.p.double()
    return float(p if p.dim() == 0 else p[k])


def random_units(layer: StochasticLayer) -> Iterator[tuple[float, Tensor]]:
    """The rate and the weights, (D,), of every unit that is not a constant."""
    weight = layer.layer.weight.detach().double().flatten()
    constant = getattr(layer.layer, "padding_idx", None)
    numbers = [k for k in range(6) if k != constant]
    for k, places in zip(numbers, units_of(layer.layer), strict=True):
        yield rate_of(layer, k), weight[places]


def dropped(mean: Tensor, p: float, l: float, width: float = VANISHING) -> Block:
    """Vectors (B, D) that are kept with chance 1 - p, where they are mean / (1 - p), else 0."""
    means = torch.stack([torch.zeros_like(mean), mean / (1 - p)], 1)
    chances = torch.tensor([p, 1 - p], dtype=torch.float64).expand(len(mean), 2)
    still = mean.shape[1] if width == VANISHING else 0
    return Block(means, chances, torch.full((mean.shape[1],), width, dtype=torch.float64), l, still)


def gaussians(mean: Tensor, std: Tensor, l: float, vanishing: int = 0) -> Block:
    """Numbers that are independent, (D,)."""
    return Block(mean.reshape(1, 1, -1), torch.ones(1, 1, dtype=torch.float64), std, l, vanishing)


def bias_block(layer: StochasticLayer) -> Iterator[Block]:
    """A point, or numbers that are each dropped at `bias_p`; nothing where it has no prior."""
    if layer.bias is None or not layer.prior_on_bias:
        return
    bias = layer.bias.detach().double()
    if layer.bias_p is not None:
        yield dropped(bias.unsqueeze(-1), float(layer.bias_p), layer.length_scale)
    else:
        yield gaussians(bias, torch.full_like(bias, VANISHING), layer.length_scale, len(bias))


def bernoulli(layer: StochasticLayer) -> Truth:
    """Also of learned rates: relaxed masks have the divergence of hard ones."""

    def blocks() -> Iterator[Block]:
        raw = getattr(layer, "scaling", None) == "raw"
        for p, weights in random_units(layer):
            yield dropped(weights.unsqueeze(0) * (1 - p if raw else 1), p, prior_scale(layer))
        yield from bias_block(layer)

    return sampled(blocks())


def scaled(layer: StochasticLayer) -> Truth:
    """Two points a unit, at 1 - s and 1 + s p / (1 - p) times its weights."""
    assert isinstance(layer, ScaledDropout)

    def blocks() -> Iterator[Block]:
        for p, weights in random_units(layer):
            factors = torch.tensor([1 - layer.scale, 1 + layer.scale * p / (1 - p)], dtype=torch.float64)
            chances = torch.tensor([[p, 1 - p]], dtype=torch.float64)
            width = torch.full_like(weights, VANISHING)
            means = factors.unsqueeze(1) * weights
            yield Block(means.unsqueeze(0), chances, width, prior_scale(layer), len(weights))
        yield from bias_block(layer)

    return sampled(blocks())


def masksembles(layer: StochasticLayer) -> Truth:
    """As many points as masks, of all weights together."""
    assert isinstance(layer, Masksembles)
    weight = layer.layer.weight.detach().double().flatten()
    constant = getattr(layer.layer, "padding_idx", None)
    numbers = [k for k in range(6) if k != constant]
    kept = layer.keep.double()
    strength = kept / kept.mean(0)

    def blocks() -> Iterator[Block]:
        pairs = list(zip(numbers, units_of(layer.layer), strict=True))
        means = torch.cat([strength[:, k : k + 1] * weight[places] for k, places in pairs], 1)
        count = len(means)
        chances = torch.full((1, count), 1 / count, dtype=torch.float64)
        width = torch.full((means.shape[1],), VANISHING, dtype=torch.float64)
        yield Block(means.unsqueeze(0), chances, width, prior_scale(layer), means.shape[1])
        yield from bias_block(layer)

    return sampled(blocks())


def dropconnect(layer: StochasticLayer) -> Truth:
    def blocks() -> Iterator[Block]:
        for p, weights in random_units(layer):
            yield dropped(weights.unsqueeze(-1), p, prior_scale(layer))
        yield from bias_block(layer)

    return sampled(blocks())


def gaussian(layer: StochasticLayer) -> Truth:
    """One random direction, that of the weights themselves, with the variance p / (1 - p)."""

    def blocks() -> Iterator[Block]:
        for p, weights in random_units(layer):
            d = len(weights)
            basis = torch.linalg.svd(weights.reshape(1, -1))[2].T  # its first column is the direction
            widths = torch.full((d,), VANISHING, dtype=torch.float64)
            if p > 0:
                widths[0] = weights.norm() * (p / (1 - p)) ** 0.5
            one = torch.ones(1, 1, dtype=torch.float64)
            still = d - 1 if p > 0 else d
            yield Block(weights.reshape(1, 1, -1), one, basis * widths, prior_scale(layer), still)
        yield from bias_block(layer)

    return sampled(blocks())


def mixture(layer: StochasticLayer) -> Truth:
    """Two components a unit, exactly; more of them, or factors that tie all weights, within their entropy."""
    assert isinstance(layer, MixtureDropout)
    sigma, l = float(layer.sigma), prior_scale(layer)

    def bias() -> Iterator[Block]:
        if layer.bias is not None:
            values = layer.bias.detach().double()
            yield gaussians(values, torch.full_like(values, sigma), layer.length_scale)

    if layer.offsets is None and layer.factors is None:
        units = (dropped(weights.unsqueeze(0), p, l, sigma) for p, weights in random_units(layer))
        return sampled(block for part in (units, bias()) for block in part)

    def blocks() -> Iterator[Block]:
        yield joint_mixture(layer, sigma, l)
        yield from bias()

    entropy = 0.0
    for p, _ in random_units(layer):
        chances = torch.tensor([p, *[(1 - p) / (layer.components - 1)] * (layer.components - 1)])
        entropy += torch.special.entr(chances).sum().item()
    return sampled(blocks(), slack=entropy)


def joint_mixture(layer: MixtureDropout, sigma: float, l: float) -> Block:
    """All weights together: every choice of a component in every unit."""
    kept = layer.components - 1
    offsets = torch.zeros(kept, layer.layer.weight.numel(), dtype=torch.float64)
    if layer.offsets is not None:
        offsets = (layer.offsets - layer.offsets.mean(0)).double().flatten(1)
    places = units_of(layer.layer)
    order = torch.cat(places)
    choices = []
    for (p, weights), place in zip(random_units(layer), places, strict=True):
        parts = [(p, torch.zeros_like(weights))]
        parts += [((1 - p) / kept, weights / (1 - p) + offset[place]) for offset in offsets]
        choices.append([part for part in parts if part[0] > 0])
    picked = list(product(*choices))
    means = torch.stack([torch.cat([mean for _, mean in parts]) for parts in picked])
    chances = torch.tensor(
        [math.prod(chance for chance, _ in parts) for parts in picked], dtype=torch.float64
    )
    covariance = sigma**2 * torch.eye(len(order), dtype=torch.float64)
    if layer.factors is not None:
        factors = layer.factors.double().flatten(1)[:, order]
        covariance = covariance + factors.T @ factors
    return Block(means.unsqueeze(0), chances.unsqueeze(0), torch.linalg.cholesky(covariance), l, 0)


def mean_field(layer: StochasticLayer) -> Truth:
    assert isinstance(layer, MeanFieldGaussian)

    def blocks() -> Iterator[Block]:
        order = torch.cat(units_of(layer.layer))
        weight, log_std = (values.double().flatten()[order] for values in (layer.layer.weight, layer.log_std))
        yield gaussians(weight, log_std.exp(), prior_scale(layer))
        if layer.bias is not None and layer.prior_on_bias:
            yield gaussians(layer.bias.double(), layer.bias_log_std.double().exp(), layer.length_scale)

    return sampled(blocks())


def log_uniform(layer: StochasticLayer) -> Truth:
    """-log a / 2 + E log|1 + sqrt(a) e|, and the constant that makes it 0 for a large a.

    The layer's value is an approximation, documented as within 0.01 nats of every noisy number.
    """
    assert isinstance(layer, VariationalGaussianDropout)
    log_alpha = layer.log_alpha.double()
    count = 6 if layer.noise == "inputs" else layer.layer.weight.numel()
    normal = torch.randn(200_000, 1, dtype=torch.float64)
    alpha = log_alpha.reshape(1, -1).expand(1, -1)
    values = -0.5 * alpha + (1 + (0.5 * alpha).exp() * normal).abs().log() + 0.5 * (EULER + math.log(2))
    terms = values.sum(1) * (count / values.shape[1])
    mean, error = terms.mean().item(), terms.std().item() / len(terms) ** 0.5
    within = 0.01 * count
    return Truth(mean - within, error, slack=2 * within)


POSTERIORS: dict[type[StochasticLayer], Callable[[StochasticLayer], Truth]] = {
    BernoulliDropout: bernoulli,
    ConcreteDropout: bernoulli,
    LearnableDropout: bernoulli,
    GaussianDropout: gaussian,
    DropConnect: dropconnect,
    MixtureDropout: mixture,
    ScaledDropout: scaled,
    Masksembles: masksembles,
    MeanFieldGaussian: mean_field,
    VariationalGaussianDropout: log_uniform,
}
