"""Moments without draws: exact where theory says so, close where it does not, an error elsewhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TypedDict, Unpack

import pytest
import torch
import torch.nn.functional as F
from scipy import integrate, stats
from torch import Tensor, nn

from bayesdrop import BernoulliDropout, DropConnect, GaussianDropout, MixtureDropout, predict
from bayesdrop.noise.samplers import GaussianMultiplier, KeepNoise, Noise, NormalNoise, keep_mask
from bayesdrop.predict.moments import bytes_needed, moments_of_tape
from bayesdrop.trace import Subject, Tape, probe, recorded


def tape_of(model: nn.Module, x: Tensor) -> Tape:
    subject, inputs = Subject(model), ((x,), {})
    with torch.no_grad():
        _, recorder, output = recorded(subject, inputs, findings=probe(subject, inputs))
    tape = recorder.tape(output)
    assert tape is not None, recorder.broken
    return tape


def moments(model: nn.Module, x: Tensor, **options: Unpack[Options]) -> tuple[Tensor, Tensor]:
    return moments_of_tape(tape_of(model, x), **options)


def enumerated(tape: Tape) -> tuple[Tensor, Tensor]:
    """Mean and variance over all masks of all leaves."""
    rates = []
    for leaf in tape.leaves:
        assert isinstance(leaf.sample, KeepNoise)
        rates.append(leaf.sample.p.to(leaf.dtype).expand(leaf.shape).reshape(-1))
    p = torch.cat(rates)
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=len(p))), dtype=p.dtype)
    weights = torch.where(masks > 0, 1 - p, p).prod(-1)
    noise, first = [], 0
    for leaf in tape.leaves:
        size = math.prod(leaf.shape)
        part = slice(first, first + size)
        noise.append((masks[:, part] / (1 - p[part])).reshape(-1, *leaf.shape))
        first += size
    with torch.no_grad():
        if tape.mutates:
            outputs = torch.stack([tape.run(*(z[at] for z in noise)) for at in range(len(masks))])
        else:
            outputs = torch.vmap(tape.run)(*noise)
    weights = weights.reshape(-1, *[1] * (outputs.dim() - 1))
    mean = (weights * outputs).sum(0)
    return mean, (weights * (outputs - mean).square()).sum(0)


def close(actual: tuple[Tensor, Tensor], exact: tuple[Tensor, Tensor]) -> None:
    # Rates are kept in single precision, so that agreement ends there.
    torch.testing.assert_close(actual[0], exact[0], rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(actual[1], exact[1], rtol=2e-6, atol=2e-6)


class Apply(nn.Module):
    """Noise, then a function."""

    def __init__(self, function: Callable[[Tensor], Tensor], noise: nn.Module | None = None) -> None:
        super().__init__()
        self.noise = noise or nn.Dropout(0.3)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.noise(x))


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


class Options(TypedDict, total=False):
    followed: int
    strict: bool


NOTHING = Options(followed=0, strict=False)
both = pytest.mark.parametrize("options", [Options(), NOTHING], ids=["followed", "not followed"])


# exact


@both
@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.Sequential(nn.Dropout(0.3), nn.Linear(6, 3)),
        lambda: BernoulliDropout(nn.Linear(6, 3), p=[0.1, 0.5, 0.0, 0.3, 0.7, 0.2]),
        lambda: BernoulliDropout(nn.Linear(6, 3), p=0.4, bias_p=0.3),
        lambda: DropConnect(nn.Linear(6, 2), p=0.4),
        lambda: DropConnect(nn.Linear(6, 2, bias=False), p=[0.1, 0.5, 0.2, 0.3, 0.7, 0.2]),
        lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2)),
    ],
)
def test_one_masked_linear_layer_is_exact(layer: Callable[[], nn.Module], options: Options) -> None:
    tape = tape_of(layer().double(), normal(3, 6))
    close(moments_of_tape(tape, **options), enumerated(tape))


@both
@pytest.mark.parametrize(
    ("convolution", "shape"),
    [
        (lambda: nn.Conv1d(2, 4, 3, padding=1, dilation=2, groups=2), (2, 2, 5)),
        (lambda: nn.Conv2d(1, 3, 2, stride=2, padding=1), (2, 1, 3, 3)),
        (lambda: nn.Conv2d(1, 2, 2, padding="same", padding_mode="circular"), (2, 1, 3, 3)),
        (lambda: nn.Conv3d(2, 2, (1, 2, 1), groups=2, bias=False), (2, 2, 1, 2, 2)),
        (lambda: nn.ConvTranspose2d(2, 3, 2, stride=2), (2, 2, 2, 2)),
    ],
)
def test_one_masked_convolution_is_exact(
    convolution: Callable[[], nn.Module], shape: tuple[int, ...], options: Options
) -> None:
    tape = tape_of(nn.Sequential(nn.Dropout(0.3), convolution()).double(), normal(*shape))
    close(moments_of_tape(tape, **options), enumerated(tape))


class Branches(nn.Module):
    """Two ways from one noise, joined again."""

    def __init__(self, join: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.noise = nn.Dropout(0.3)
        self.branch = nn.Linear(6, 6)
        self.head = nn.LazyLinear(2)
        self.join = join

    def forward(self, x: Tensor) -> Tensor:
        x = self.noise(x)
        out: Tensor = self.head(self.join(x, self.branch(x)))
        return out


LINEAR: dict[str, Callable[[], nn.Module]] = {
    "deep": lambda: nn.Sequential(nn.Dropout(0.3), nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, 2)),
    "residual": lambda: Branches(torch.add),
    "joined": lambda: Branches(lambda x, y: torch.cat([x, y], 1)),
    "doubled": lambda: Branches(lambda x, y: torch.cat([x, 2 * x], 1)),
    "shifted": lambda: Branches(lambda x, y: torch.where(torch.arange(6) > 2, x, x.roll(1, 1))),
    "stacked": lambda: Branches(lambda x, y: torch.stack([x, y], 1).flatten(1)),
    "chosen": lambda: Branches(lambda x, y: torch.where(torch.arange(6) > 2, x, y)),
    "copied": lambda: Branches(lambda x, y: x.repeat(1, 2)),
    "picked": lambda: Branches(lambda x, y: x[:, [0, 0, 1]]),
    "neighbours": lambda: Branches(lambda x, y: x[:, 1:] - x[:, :-1]),
    "spread": lambda: Branches(lambda x, y: (x.unsqueeze(1) * torch.ones(2, 1).double()).flatten(1)),
    "overlapping": lambda: Branches(lambda x, y: F.avg_pool1d(x, 2, 1)),
    "channels": lambda: nn.Sequential(
        nn.Unflatten(1, (6, 1, 1)), nn.Upsample((4, 4)), nn.Dropout2d(0.3),
        nn.Conv2d(6, 4, 3, padding=1, groups=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
    ),
    "units": lambda: nn.Sequential(
        nn.Unflatten(1, (6, 1)), nn.Upsample(5),
        BernoulliDropout(nn.Conv1d(6, 3, 2, dilation=2), p=[0.1, 0.5, 0.0, 0.3, 0.7, 0.2], bias_p=0.2),
        nn.AvgPool1d(3), nn.Flatten(),
    ),
    "weights": lambda: nn.Sequential(DropConnect(nn.Linear(6, 2), p=0.3), nn.Linear(2, 2), nn.Linear(2, 2)),
    "kernels": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), DropConnect(nn.Conv1d(1, 2, 3, padding=1), p=0.3, bias_p=0.2),
        nn.AvgPool1d(6), nn.Flatten(), nn.Linear(2, 2),
    ),
    "twice": lambda: nn.Sequential(
        nn.Dropout(0.2), nn.Linear(6, 6), nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_network_is_exact_however_deep(name: str) -> None:
    """One noise, or two of which the second comes later: what has to be followed is followed."""
    net, x = LINEAR[name]().double(), normal(3, 6)
    net(x)
    tape = tape_of(net, x)
    exact = enumerated(tape)
    close(moments_of_tape(tape), exact)
    forgetful = moments_of_tape(tape, **NOTHING)
    assert not torch.allclose(forgetful[1], exact[1], rtol=1e-3)


def test_the_mean_of_a_product_knows_the_covariance() -> None:
    net = nn.Sequential(nn.Dropout(0.3), nn.Linear(6, 8)).double()
    tape = tape_of(Apply(lambda x: x[:, :4] * x[:, 4:], net), normal(3, 6))
    torch.testing.assert_close(moments_of_tape(tape)[0], enumerated(tape)[0], rtol=2e-6, atol=2e-6)


def test_gaussian_and_mixture_layers_have_their_closed_forms() -> None:
    x, p = normal(4, 6), torch.tensor([0.1, 0.5, 0.0, 0.3, 0.7, 0.2], dtype=torch.float64)
    for options in (Options(), NOTHING):
        gaussian = GaussianDropout(nn.Linear(6, 3), p=p).double()
        mixture = MixtureDropout(nn.Linear(6, 3), p=p, sigma=0.3).double()
        for layer, sigma in ((gaussian, 0.0), (mixture, 0.3)):
            variance = F.linear(x.square() * p / (1 - p), layer.layer.weight.detach().square())
            variance = variance + sigma**2 * (x.square().sum(1, keepdim=True) + 1)
            close(moments(layer, x, **options), (layer.layer(x).detach(), variance))


@both
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.reshape(2, 3, 3).transpose(1, 2).flatten(1),
        lambda x: x.view(2, 3, 3).permute(2, 0, 1),
        lambda x: x.unsqueeze(1).squeeze(1).contiguous().clone(),
        lambda x: x.t().T.mT.T,
        lambda x: x[:, [2, 0]] - x[:, 3:5],
        lambda x: torch.cat([x[:, :2], torch.ones(2, 1).double(), x[:, 5:]], dim=1),
        lambda x: torch.stack([x, torch.zeros_like(x)], dim=1),
        lambda x: x.chunk(3, dim=1)[1] + x.split(3, dim=1)[2],
        lambda x: torch.where(torch.arange(9) > 4, x, 2.0),
        lambda x: torch.where(torch.arange(9) > 4, 2.0, x),
        lambda x: x.masked_fill(torch.arange(9) > 4, 2.0),
        lambda x: F.pad(x, (1, 2), value=3.0),
        lambda x: F.interpolate(x.reshape(2, 1, 9), scale_factor=2.0),
        lambda x: x.roll(2, 1).flip(1).repeat(1, 2),
        lambda x: x.reshape(2, 3, 1, 3).expand(2, 3, 2, 3),
        lambda x: 2 - 3 * x / 4 + x.new_ones(9),
        lambda x: -x.add(1).mul_(2).sub_(1),
        lambda x: torch.add(x, 1.0, alpha=2),
        lambda x: torch.rsub(x, 1.0),
        lambda x: x @ torch.linspace(-1, 1, 18).reshape(9, 2).double(),
        lambda x: torch.addmm(torch.ones(2).double(), x, torch.ones(9, 2).double()),
        lambda x: torch.einsum("nk,dk->nd", x, torch.linspace(-1, 1, 18).reshape(2, 9).double()),
        lambda x: torch.linspace(0, 1, 6).reshape(2, 3).double() @ x.reshape(2, 3, 3),
        lambda x: x.sum(1, keepdim=True),
        lambda x: x.reshape(2, 3, 3).mean((1, 2)),
        lambda x: x.float().double(),
        lambda x: F.linear(input=torch.flatten(input=x, start_dim=1), weight=torch.ones(2, 9).double()),
    ],
)  # fmt: skip
def test_linear_functions_are_exact(function: Callable[[Tensor], Tensor], options: Options) -> None:
    tape = tape_of(Apply(function), normal(2, 9))
    close(moments_of_tape(tape, **options), enumerated(tape))


@both
@pytest.mark.parametrize(
    "pool",
    [
        nn.AvgPool1d(2),
        nn.AvgPool1d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
        nn.AvgPool1d(3, stride=2, padding=1, ceil_mode=True),
        nn.AdaptiveAvgPool1d(1),
        nn.AdaptiveAvgPool1d(4),
    ],
    ids=str,
)
def test_averages_over_positions_are_exact(pool: nn.Module, options: Options) -> None:
    tape = tape_of(Apply(pool), normal(3, 1, 9))
    close(moments_of_tape(tape, **options), enumerated(tape))


@both
@pytest.mark.parametrize(
    "pool",
    [
        nn.AvgPool2d(2, stride=1),
        nn.AvgPool2d((3, 2), stride=2, padding=1, ceil_mode=True, count_include_pad=False),
        nn.AvgPool2d(2, padding=1, divisor_override=3),
        nn.AdaptiveAvgPool2d((2, 1)),
        lambda x: F.avg_pool3d(x.unsqueeze(1), (1, 2, 2)),
        lambda x: F.adaptive_avg_pool3d(x.unsqueeze(1), (1, 2, None)),
    ],
)
def test_averages_over_areas_are_exact(pool: Callable[[Tensor], Tensor], options: Options) -> None:
    tape = tape_of(Apply(pool), normal(3, 1, 3, 3))
    close(moments_of_tape(tape, **options), enumerated(tape))


@both
@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Dropout(0.3), nn.Tanh()),
        nn.Sequential(nn.Dropout(0.3), nn.Sigmoid(), nn.Linear(6, 2)),
        nn.Sequential(nn.Dropout(0.3), nn.Softplus(), nn.BatchNorm1d(6), nn.Linear(6, 2)),
        nn.Sequential(nn.Dropout(0.3), nn.ReLU(inplace=True), nn.Linear(6, 2)),
        nn.Sequential(nn.Dropout(0.3), nn.BatchNorm1d(6), nn.ELU(), nn.Hardtanh(), nn.Linear(6, 2)),
        nn.Sequential(nn.AlphaDropout(0.3), nn.Linear(6, 2)),
        nn.Sequential(nn.Linear(6, 6), nn.AlphaDropout(0.3), nn.Linear(6, 2)),
        nn.Sequential(nn.Unflatten(1, (6, 1)), nn.Dropout1d(0.3), nn.MaxPool1d(1), nn.ReLU()),
    ],
    ids=str,
)
def test_a_function_of_what_a_mask_leaves_is_exact(net: nn.Module, options: Options) -> None:
    net = net.double()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean, module.running_var = normal(6), normal(6).exp()
    tape = tape_of(net, normal(3, 6))
    close(moments_of_tape(tape, **options), enumerated(tape))


def test_masks_pass_through_maxima_and_rectifiers() -> None:
    net = nn.Sequential(
        nn.Dropout2d(0.4), nn.MaxPool2d(3, 2, padding=1), nn.LeakyReLU(0.2), nn.AdaptiveAvgPool2d(1)
    )
    tape = tape_of(net.double(), normal(2, 6, 7, 7))
    close(moments_of_tape(tape), enumerated(tape))


# functions of Gaussian values, by another road

FUNCTIONS: dict[str, nn.Module] = {
    "relu": nn.ReLU(),
    "leaky_relu": nn.LeakyReLU(0.3),
    "prelu": nn.PReLU(init=0.3),
    "hardtanh": nn.Hardtanh(-0.5, 0.7),
    "relu6": nn.ReLU6(),
    "hardsigmoid": nn.Hardsigmoid(),
    "clamp": Apply(lambda x: x.clamp(max=0.4), nn.Identity()),
    "clamp_min": Apply(lambda x: x.clamp_min(-0.5), nn.Identity()),
    "clamp_max": Apply(lambda x: torch.clamp_max(x, 0.4), nn.Identity()),
    "abs": Apply(lambda x: torch.abs(input=x), nn.Identity()),
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
    "gelu": nn.GELU(),
    "gelu, tanh": nn.GELU(approximate="tanh"),
    "silu": nn.SiLU(),
    "softplus": nn.Softplus(),
    "erf": Apply(torch.erf, nn.Identity()),
    "mish": nn.Mish(),
    "elu": nn.ELU(0.7),
    "selu": nn.SELU(),
    "exp": Apply(torch.exp, nn.Identity()),
    "square": Apply(lambda x: x**2, nn.Identity()),
    "swish by hand": Apply(lambda x: x * torch.sigmoid(x), nn.Identity()),
    "swish by division": Apply(lambda x: x / (1 + torch.exp(-x)), nn.Identity()),
    "sigmoid by hand": Apply(lambda x: 1 / (1 + torch.exp(-x)), nn.Identity()),
    "twice": Apply(lambda x: x + x, nn.Identity()),
    "nothing": Apply(lambda x: x - x, nn.Identity()),
}
KINKED = {"elu", "selu"}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("mean", "std"), [(0.3, 1.0), (-1.5, 0.5), (2.0, 0.01), (0.0, 2.0)])
def test_functions_of_gaussian_values_agree_with_quadrature(name: str, mean: float, std: float) -> None:
    function = FUNCTIONS[name].double().eval()
    # A Gaussian value with any mean and deviation: std * N(1, 1) + shift.
    layer = GaussianDropout(nn.Linear(1, 1), p=0.5).double()
    with torch.no_grad():
        layer.layer.weight.fill_(1.0)
        layer.layer.bias.fill_(mean - std)
    got = moments(nn.Sequential(layer, function), torch.full((1, 1), std, dtype=torch.float64))

    def value(t: float) -> float:
        with torch.no_grad():
            return float(function(torch.full((1, 1), mean + std * t, dtype=torch.float64)))

    kinks = [(at - mean) / std for at in (-3.0, -0.5, 0.0, 0.4, 0.7, 3.0, 6.0) if abs(at - mean) < 10 * std]
    options = {"points": kinks, "limit": 200, "epsabs": 1e-11, "epsrel": 1e-10}
    first = integrate.quad(lambda t: value(t) * stats.norm.pdf(t), -10, 10, **options)[0]
    second = integrate.quad(lambda t: (value(t) - first) ** 2 * stats.norm.pdf(t), -10, 10, **options)[0]
    # A kink in the slope costs the trapezium rule h^2 / 12 = 0.5 % of the jump times the density there.
    tolerance = 2e-3 if name in KINKED else 1e-6
    assert float(got[0]) == pytest.approx(first, rel=1e-8, abs=tolerance * second**0.5 + 1e-8)
    assert float(got[1]) == pytest.approx(second, rel=tolerance, abs=1e-8)


def test_the_maximum_of_two_gaussian_values_is_exact() -> None:
    layer = GaussianDropout(nn.Conv1d(1, 1, 1), p=0.5, elementwise=True).double()
    with torch.no_grad():
        layer.layer.weight.fill_(1.0)
        layer.layer.bias.fill_(0.2)
    x = torch.tensor([[[0.5, 1.0]]], dtype=torch.float64)
    one, two = stats.norm(0.7, 0.5), stats.norm(1.2, 1.0)

    def density(t: float) -> float:
        return float(one.pdf(t) * two.cdf(t) + one.cdf(t) * two.pdf(t))

    mean = integrate.quad(lambda t: t * density(t), -8, 10)[0]
    variance = integrate.quad(lambda t: (t - mean) ** 2 * density(t), -8, 10)[0]
    for options in (Options(), NOTHING):
        got = moments(nn.Sequential(layer, nn.MaxPool1d(2)), x, **options)
        assert float(got[0]) == pytest.approx(mean, rel=1e-7)
        assert float(got[1]) == pytest.approx(variance, rel=1e-7)


def test_a_maximum_keeps_its_covariance_with_what_it_is_the_maximum_of() -> None:
    """The positions are z and 2 z - 1.5 with one Gaussian z, so that all is a function of z."""
    noise = GaussianDropout(nn.Conv1d(1, 1, 1, bias=False), p=0.5).double()
    with torch.no_grad():
        noise.layer.weight.fill_(1.0)

    def both(z: Tensor) -> Tensor:
        x = z * torch.tensor([1.0, 2.0]).double() - torch.tensor([0.0, 1.5]).double()
        return F.max_pool1d(x, 2) + x.mean(-1, keepdim=True)

    got = moments(Apply(both, noise), torch.ones(1, 1, 2).double())

    def value(z: float) -> float:
        return max(z, 2 * z - 1.5) + (3 * z - 1.5) / 2

    density = stats.norm(1.0, 1.0).pdf
    options = {"points": [1.5], "limit": 200}
    mean = integrate.quad(lambda z: value(z) * density(z), -9, 11, **options)[0]
    variance = integrate.quad(lambda z: (value(z) - mean) ** 2 * density(z), -9, 11, **options)[0]
    assert float(got[0]) == pytest.approx(mean, rel=1e-6)
    assert float(got[1]) == pytest.approx(variance, rel=1e-6)


# networks, against draws


class Residual(nn.Module):
    """A convolution network of residual blocks with channel-wise dropout and a mean over positions."""

    def __init__(self, dropout: type[nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.first = nn.Conv2d(8, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.dropout = dropout(0.2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        x = F.relu(x + self.first(self.dropout(x)))
        x = F.relu(x + self.second(self.dropout(x)))
        return self.head(x.mean((2, 3)))


def perceptron(activation: nn.Module, p: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Dropout(p), nn.Linear(13, 50), activation, nn.Dropout(p), nn.Linear(50, 50), activation,
        nn.Dropout(p), nn.Linear(50, 1),
    )  # fmt: skip


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "relu, p = 0.05": (lambda: perceptron(nn.ReLU(), 0.05), (20, 13)),
    "relu, p = 0.2": (lambda: perceptron(nn.ReLU(), 0.2), (20, 13)),
    "relu, p = 0.5": (lambda: perceptron(nn.ReLU(), 0.5), (20, 13)),
    "tanh, p = 0.2": (lambda: perceptron(nn.Tanh(), 0.2), (20, 13)),
    "layer norm": (lambda: perceptron(nn.Sequential(nn.LayerNorm(50), nn.GELU()), 0.2), (20, 13)),
    "residual": (lambda: Residual(nn.Dropout2d), (4, 1, 6, 6)),
    "residual, each element": (lambda: Residual(nn.Dropout), (4, 1, 6, 6)),
    "pool": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Dropout(0.3), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.3), nn.Linear(72, 3),
        ),
        (4, 1, 10, 10),
    ),
    "weights": (
        lambda: nn.Sequential(
            DropConnect(nn.Linear(13, 50), p=0.2), nn.ReLU(), MixtureDropout(nn.Linear(50, 50), p=0.2),
            nn.SiLU(), GaussianDropout(nn.Linear(50, 1), p=0.2),
        ),
        (20, 13),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_agree_with_draws(name: str) -> None:
    """Means within 0.1 standard deviations, standard deviations within 10 %, both root mean square."""
    make, shape = NETWORKS[name]
    net, x = make(), normal(*shape).float()
    num = 2000
    drawn = predict(net, x, num_draws=num)
    std = drawn.epistemic.sqrt()
    mean, variance = moments(net, x, followed=1000)
    mean_error = ((mean - drawn.mean) / std).square().mean().sqrt()
    std_error = (variance.sqrt() / std - 1).square().mean().sqrt()
    assert mean_error < 0.1 + 5 / num**0.5
    assert std_error < 0.1 + 5 / (2 * num) ** 0.5


@pytest.mark.parametrize("head", [nn.Identity(), nn.Conv1d(6, 2, 4)], ids=["own", "followed"])
@pytest.mark.parametrize(
    "norm", [nn.LayerNorm(4), nn.LayerNorm((6, 4)), nn.GroupNorm(2, 6), nn.RMSNorm(4)], ids=str
)
def test_normalisation_is_exact_for_little_noise(norm: nn.Module, head: nn.Module) -> None:
    """As p vanishes the variance is that of the derivative, p sum_k (x_k df / dx_k)^2."""
    with torch.no_grad():
        for parameter in norm.double().parameters():
            parameter.copy_(normal(*parameter.shape))
    x, p = normal(1, 6, 4), 1e-8
    after = nn.Sequential(norm, head.double())
    jacobian = torch.autograd.functional.jacobian(after, x).flatten(-3)
    mean, variance = moments(nn.Sequential(nn.Dropout(p), after), x)
    torch.testing.assert_close(mean, after(x).detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(variance / p, (jacobian * x.flatten()).square().sum(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("net", "shape", "bounds"),
    [
        (lambda: nn.Sequential(nn.Dropout(0.3), nn.LayerNorm(12)), (20, 12), (0.1, 0.2)),
        (
            lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(30, 40), nn.LayerNorm(40), nn.Linear(40, 3)),
            (20, 30),
            (0.05, 0.05),
        ),
        (
            lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(30, 40), nn.RMSNorm(40), nn.Linear(40, 3)),
            (20, 30),
            (0.05, 0.05),
        ),
        (
            lambda: nn.Sequential(
                nn.Dropout2d(0.2), nn.Conv2d(12, 8, 3), nn.GroupNorm(2, 8), nn.AvgPool2d(3)
            ),
            (6, 12, 5, 5),
            (0.1, 0.2),
        ),
    ],
)
def test_normalisation_is_close(
    net: Callable[[], nn.Module], shape: tuple[int, ...], bounds: tuple[float, float]
) -> None:
    model, x, num = net(), normal(*shape).float() + 1, 4000
    drawn = predict(model, x, num_draws=num)
    std = drawn.epistemic.sqrt()
    mean, variance = moments(model, x)
    assert ((mean - drawn.mean) / std).square().mean().sqrt() < bounds[0] + 1 / num**0.5
    assert (variance.sqrt() / std - 1).square().mean().sqrt() < bounds[1] + 1 / (2 * num) ** 0.5


def test_following_noise_is_what_keeps_positions_and_branches_together() -> None:
    net, x = Residual(nn.Dropout), normal(4, 1, 6, 6).float()
    drawn = predict(net, x, num_draws=2000).epistemic.sqrt()
    forgetful, faithful = (
        moments(net, x, **options)[1].sqrt() for options in (NOTHING, Options(followed=600))
    )
    assert (faithful / drawn - 1).abs().mean() < 0.05
    assert (forgetful / drawn - 1).abs().mean() > 2 * (faithful / drawn - 1).abs().mean()


# what cannot be done


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Linear(4, 12)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.maps(F.dropout(x, 0.2)).chunk(3, -1)
        return torch.softmax(q @ k.transpose(1, 2), -1) @ v


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.LSTM(4, 4).parameters())

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(1, x.shape[0], 4)
        x = F.dropout(x, 0.2)
        output: Tensor = torch.lstm(x, (state, state), list(self.weights), True, 1, 0.0, False, False, True)[
            0
        ]
        return output


def overwritten(x: Tensor) -> Tensor:
    half = x[:, :2]
    half.mul_(2.0)
    return x + 0


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (Attention(), "softmax"),
        (Recurrent(), "lstm"),
        (Apply(lambda x: F.scaled_dot_product_attention(x, x, x)), "scaled_dot_product_attention"),
        (Apply(lambda x: x.sort(1)[0]), "sort"),
        (Apply(lambda x: 1 / x), "__rdiv__"),
        (Apply(lambda x: x / (x + x.roll(1, 1))), "div"),
        (Apply(lambda x: x**0.5), "pow"),
        (Apply(lambda x: (x > 0) * 2.0), "gt"),
        (Apply(lambda x: F.batch_norm(x, None, None, training=True)), "batch_norm"),
        (Apply(lambda x: F.interpolate(x, scale_factor=2.0, mode="linear")), "interpolate"),
        (Apply(lambda x: F.max_pool1d(x, 2, return_indices=True)[0]), "max_pool1d"),
        (Apply(overwritten), "add"),
    ],
)
def test_an_operation_without_a_rule_is_named(model: nn.Module, name: str) -> None:
    with pytest.raises(ValueError, match=rf"method='moments'.* {name}.*method='draws'"):
        moments(model, normal(2, 3, 4).float())


def test_more_noise_than_can_be_followed_is_an_error_and_not_a_wrong_number() -> None:
    x = normal(2, 6).float()
    net = nn.Sequential(nn.Dropout(0.2), nn.Linear(6, 5), nn.ReLU(), nn.Dropout(0.2), nn.Linear(5, 2))
    message = (
        r"no rule for linear of values that share the noise of '0:0'.* at most 5 .* are 6; use method='draws'"
    )
    with pytest.raises(ValueError, match=message):
        moments(net, x, followed=5)
    exact, loose = moments(net, x, followed=6), moments(net, x, followed=5, strict=False)
    assert torch.equal(exact[0], moments(net, x)[0])
    assert not torch.allclose(exact[1], loose[1])


def test_noise_of_unknown_moments_is_named() -> None:
    class Unknown(BernoulliDropout):
        def noise(self, p: Tensor) -> Noise:
            return lambda shape, generator: keep_mask(p, shape, generator)  # type: ignore[return-value]

    with pytest.raises(ValueError, match=r"noise of '0.input'.*not known"):
        moments(nn.Sequential(Unknown(nn.Linear(4, 2), p=0.2)), normal(3, 4).float())


# what is promised in general


def test_in_place_operations_are_their_twins() -> None:
    def in_place(x: Tensor) -> Tensor:
        y = x.mul(2.0)
        y += 1
        y.sub_(0.5).relu_()
        y *= x.new_full((1,), 3.0)
        y = F.leaky_relu(y, 0.1, inplace=True)
        y = torch.nn.functional.hardtanh_(y).unsqueeze_(1)
        return y + x.unsqueeze(1)

    def out_of_place(x: Tensor) -> Tensor:
        y = F.hardtanh(F.leaky_relu(torch.relu(x * 2 + 1 - 0.5) * 3, 0.1))
        return y.unsqueeze(1) + x.unsqueeze(1)

    x = normal(3, 4)
    one, two = (moments(Apply(function), x) for function in (in_place, out_of_place))
    assert torch.equal(one[0], two[0])
    assert torch.equal(one[1], two[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_dtype_and_shape_are_those_of_the_output(dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Dropout(0.2), nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 2)).to(
        dtype
    )
    mean, variance = moments(net, normal(5, 6).to(dtype))
    assert mean.dtype == variance.dtype == dtype
    assert mean.shape == variance.shape == (5, 2)
    reference = moments(net.double(), normal(5, 6).to(dtype).double())
    tolerance = {torch.bfloat16: 0.1, torch.float32: 1e-5, torch.float64: 0.0}[dtype]
    torch.testing.assert_close(mean.double(), reference[0], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(variance.double(), reference[1], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e6])
@pytest.mark.parametrize(
    "activation", [nn.ReLU(), nn.Hardtanh(), nn.Tanh(), nn.SiLU(), nn.MaxPool1d(3, 2, 1)]
)
def test_variances_are_never_negative(activation: nn.Module, scale: float) -> None:
    net = nn.Sequential(
        nn.Dropout(0.01), nn.Linear(6, 30), activation, nn.LazyLinear(20), nn.LayerNorm(20), nn.Dropout(0.01),
        activation, nn.LazyLinear(2),
    )  # fmt: skip
    net(normal(5, 6).float())
    mean, variance = moments(net, scale * normal(5, 6).float())
    assert mean.isfinite().all()
    assert variance.isfinite().all()
    assert (variance >= 0).all()


def test_rows_do_not_depend_on_their_batch_and_nothing_is_random() -> None:
    net, x = perceptron(nn.Tanh(), 0.2).double(), normal(6, 13)
    whole = moments(net, x)
    again = moments(net, x)
    one = [moments(net, row.unsqueeze(0)) for row in x]
    for at in range(2):
        assert torch.equal(whole[at], again[at])
        torch.testing.assert_close(torch.cat([pair[at] for pair in one]), whole[at])


def test_parameters_need_no_gradient_and_get_none() -> None:
    mean, variance = moments(perceptron(nn.ReLU(), 0.2), normal(3, 13).float())
    assert not mean.requires_grad
    assert not variance.requires_grad


def test_memory_is_foreseen() -> None:
    tape = tape_of(perceptron(nn.ReLU(), 0.2), normal(8, 13).float())
    assert bytes_needed(tape) > bytes_needed(tape, followed=20) > bytes_needed(tape, followed=0) > 0


@pytest.mark.parametrize(
    "noise",
    [
        KeepNoise(torch.tensor([0.0, 0.1, 0.5, 0.9])),
        GaussianMultiplier(torch.tensor([0.0, 0.1, 0.5, 0.9])),
        NormalNoise(torch.device("cpu")),
    ],
)
def test_noise_has_the_moments_it_says(noise: Noise) -> None:
    num = 40_000
    drawn = noise((num, 4), None).double()
    variance = noise.variance.double().expand(4)
    assert ((drawn.mean(0) - noise.mean).abs() <= 5 * (variance / num).sqrt() + 1e-6).all()
    fourth = (drawn - noise.mean).pow(4).mean(0)
    allowed = 5 * ((fourth - variance**2).clamp_min(0) / num).sqrt() + 25 * variance / num + 1e-6
    assert ((drawn.var(0) - variance).abs() <= allowed).all()


def test_a_mask_that_keeps_nothing_has_no_moments_left() -> None:
    noise = KeepNoise(torch.tensor([1.0]))
    assert noise.mean.item() == noise.variance.item() == 0
