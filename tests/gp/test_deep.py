"""Several hidden layers: the limit of wide layers, given draws of narrow ones, and the deep prior itself."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from bayesdrop.gp import FiniteKernel, GaussianProcess, NetworkKernel, process_of_network, second_moment

WIDTHS, DECAYS, RATES, BIAS_DECAY = (7, 5), (2e-3, 4e-3, 3e-3), (0.1, 0.3, 0.2), 1e-3
NUM_DATA, PRECISION = 50, 5.0


def rows() -> Tensor:
    return torch.tensor([[0.3, -0.2], [0.5, 0.8], [-0.4, 0.1]], dtype=torch.float64)


def linked(nonlinearity: Any = "tanh", **options: Any) -> GaussianProcess:
    return process_of_network(
        nonlinearity,
        weight_decay=DECAYS,
        p=RATES,
        bias_decay=BIAS_DECAY,
        num_data=NUM_DATA,
        num_units=WIDTHS,
        precision=PRECISION,
        **options,
    )


def prior_std(decay: float, p: float) -> float:
    """exp(-N tau lambda / (1 - p) |M|^2) is the prior of weights that are kept with chance 1 - p."""
    return math.sqrt((1 - p) / (2 * NUM_DATA * PRECISION * decay))


def networks_of_the_prior(num: int, *, seed: int, scale: float = 1.0) -> Tensor:
    """Outputs (num, rows) of plain torch networks whose weights are drawn from the prior of weight decay."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [2, *WIDTHS, 1]
    net = nn.Sequential(
        nn.Linear(2, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 1, bias=False)
    ).double()
    shapes = {name: value.shape for name, value in net.named_parameters()}
    deviations: dict[str, float] = {}
    for index, _ in enumerate(itertools.pairwise(sizes)):
        deviations[f"{2 * index}.weight"] = scale * prior_std(DECAYS[index], RATES[index])
        deviations[f"{2 * index}.bias"] = prior_std(BIAS_DECAY, 0.0)
    weights = {
        name: deviations[name] * torch.randn((num, *shape), generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }
    run = torch.func.vmap(lambda one: torch.func.functional_call(net, one, (rows(),)))
    outputs: Tensor = run(weights)
    return outputs.squeeze(-1).detach()


def test_each_layer_has_its_own_variance_and_bias() -> None:
    """The recursion written out: u of layer 2 has the covariance of layer 1's outputs, and a bias."""
    x, variance, bias_std = rows(), (1.7, 0.6), (0.5, 0.2)
    kernel = NetworkKernel("erf", length_scale=0.8, variance=variance, bias_std=bias_std, depth=2)
    first = NetworkKernel("erf", length_scale=0.8, variance=variance[0], bias_std=bias_std[0])(x)
    inner = first + bias_std[1] ** 2
    own = inner.diagonal()
    exact = variance[1] * second_moment("erf", own.unsqueeze(1), own.unsqueeze(0), inner)
    torch.testing.assert_close(kernel(x), exact)
    torch.testing.assert_close(kernel.diagonal(x), exact.diagonal())
    same = NetworkKernel("erf", variance=(1.7, 1.7, 1.7), bias_std=(0.5, 0.5, 0.5), depth=3)
    torch.testing.assert_close(same(x), NetworkKernel("erf", variance=1.7, bias_std=0.5, depth=3)(x))


def test_weight_decay_of_several_layers_gives_each_its_length_scale() -> None:
    process = linked()
    kernel = process.kernel
    assert isinstance(kernel, NetworkKernel)
    lengths = [1 / prior_std(decay, p) for decay, p in zip(DECAYS, RATES, strict=True)]
    assert kernel.depth == 2
    assert kernel.length_scale == pytest.approx(lengths[0])
    assert kernel.variance == pytest.approx((7 / lengths[1] ** 2, 5 / lengths[2] ** 2))
    assert kernel.bias_std == pytest.approx((prior_std(BIAS_DECAY, 0.0),) * 2)
    own = process_of_network(
        "relu", weight_decay=DECAYS, p=RATES, num_data=NUM_DATA, num_units=WIDTHS, precision=PRECISION
    )
    assert isinstance(own.kernel, NetworkKernel)
    assert own.kernel.bias_std == pytest.approx([prior_std(decay, 0.0) for decay in DECAYS[:2]])


def test_given_the_layers_before_the_last_units_average_to_one_layer() -> None:
    """E over layer 2 of phi.phi, given layer 1, is the covariance of one layer at layer 1's features."""
    kernel = NetworkKernel("relu", length_scale=0.9, variance=(1.3, 2.0), bias_std=(0.4, 0.7), depth=2)
    x, first, last = rows(), 6, 200_000
    units = kernel.features(x, num_units=(first, last), seed=3)
    # The first layer's weights are drawn first: those of a network of one layer with the same seed.
    hidden = NetworkKernel("relu", length_scale=0.9, variance=1.3, bias_std=0.4).features(
        x, num_units=first, seed=3
    )
    exact = NetworkKernel("relu", variance=2.0, bias_std=0.7)(hidden)
    products = units.unsqueeze(0) * units.unsqueeze(1) * last
    error = products.std(-1) / last**0.5
    assert ((products.mean(-1) - exact).abs() <= 5 * error).all()


def test_wide_layers_come_to_the_limit() -> None:
    kernel, x = NetworkKernel("tanh", variance=1.5, bias_std=0.3, depth=2), rows()
    exact = kernel(x)
    errors = []
    for width in (30, 3000):
        each = torch.stack([kernel.given(num_units=width, seed=seed)(x) for seed in range(12)])
        errors.append(float((each - exact).square().mean().sqrt()))
    # a hundred times the units: a tenth of the error, here within a factor of two
    assert errors[1] < errors[0] / 5


@pytest.mark.parametrize("draw", [0, 5])
def test_given_a_draw_the_posterior_is_regression_on_the_last_layer(draw: int) -> None:
    process = linked(draw=draw)
    kernel = process.kernel
    assert isinstance(kernel, FiniteKernel)
    x, new = torch.randn(12, 2, dtype=torch.float64), rows()
    y = torch.stack([x.sum(1).sin(), x[:, 0]], 1)
    phi, phi_new = (kernel.kernel.features(part, num_units=WIDTHS, seed=draw) for part in (x, new))
    mean, covariance = process.posterior(x, y, new)
    weights = torch.linalg.inv(torch.eye(5, dtype=torch.float64) + PRECISION * phi.T @ phi)
    torch.testing.assert_close(mean, PRECISION * phi_new @ weights @ phi.T @ y)
    torch.testing.assert_close(covariance, phi_new @ weights @ phi_new.T)


def energy_statistic(distances: Tensor, first: Tensor) -> Tensor:
    """2 E|a - b| - E|a - a'| - E|b - b'| of two halves of a sample, by their indicator."""
    other = 1 - first
    num, rest = first.sum(), other.sum()
    within = first @ distances @ first / num**2 + other @ distances @ other / rest**2
    return 2 * (first @ distances @ other) / (num * rest) - within


def energy_level(a: Tensor, b: Tensor, *, permutations: int = 200) -> float:
    """Share of relabellings whose energy statistic is at least that of the two samples."""
    pooled = torch.cat([a, b])
    distances = torch.cdist(pooled, pooled)
    first = torch.cat([torch.ones(len(a)), torch.zeros(len(b))]).double()
    generator = torch.Generator().manual_seed(0)
    seen = energy_statistic(distances, first)
    others = [
        energy_statistic(distances, first[torch.randperm(len(pooled), generator=generator)])
        for _ in range(permutations)
    ]
    return (1 + sum(bool(other >= seen) for other in others)) / (1 + permutations)


def test_the_deep_prior_is_that_of_the_network() -> None:
    """Eq. 2 with sqrt(1 / K) against torch networks with the prior of their weight decay: level 1 %."""
    num = 20_000
    kernel = linked().kernel
    assert isinstance(kernel, NetworkKernel)
    ours = kernel.sample(rows(), num, num_units=WIDTHS, seed=1).squeeze(-1)
    theirs = networks_of_the_prior(num, seed=2)
    for power in (1, 2, 4):
        a, b = ours**power, theirs**power
        error = ((a.var(0) + b.var(0)) / num).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() <= 5 * error).all()
    a, b = (outputs.unsqueeze(1) * outputs.unsqueeze(2) for outputs in (ours, theirs))
    assert ((a.mean(0) - b.mean(0)).abs() <= 5 * ((a.var(0) + b.var(0)) / num).sqrt()).all()
    for column in range(3):
        assert stats.ks_2samp(ours[:, column].numpy(), theirs[:, column].numpy()).pvalue > 0.01 / 3
    assert energy_level(ours[:600], theirs[:600]) > 0.01


def test_the_two_sample_tests_tell_a_wrong_scale() -> None:
    kernel = linked().kernel
    assert isinstance(kernel, NetworkKernel)
    ours = kernel.sample(rows(), 20_000, num_units=WIDTHS, seed=1).squeeze(-1)
    wrong = networks_of_the_prior(20_000, seed=2, scale=1.25)
    assert stats.ks_2samp(ours[:, 0].numpy(), wrong[:, 0].numpy()).pvalue < 1e-6
    assert energy_level(ours[:600], wrong[:600]) < 0.01


@pytest.mark.parametrize("widths", [(4,), (4, 6), (5, 3, 8)])
def test_relu_priors_have_the_kurtosis_of_their_widths(widths: tuple[int, ...]) -> None:
    """|phi_i|^2 is |phi_{i-1}|^2 times a mean of K squares: E f^4 / (E f^2)^2 = 3 prod (1 + 5 / K)."""
    num, depth = 400_000, len(widths)
    kernel = NetworkKernel("relu", bias_std=0.0, variance=2.0, depth=depth)
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    f = kernel.sample(x, num, num_units=widths, seed=4).flatten()
    assert float(kernel(x)) == pytest.approx(1.0)
    assert abs(f.square().mean() - 1) <= 5 * f.square().std() / num**0.5
    exact = 3 * math.prod(1 + 5 / width for width in widths)
    # The sample's own spread is not trusted with tails as these: means of 40 parts.
    parts = f.reshape(40, -1).pow(4).mean(1)
    assert abs(parts.mean() - exact) <= 5 * parts.std() / 40**0.5


def test_samples_have_the_shape_they_are_asked_for() -> None:
    kernel = NetworkKernel("relu", depth=2)
    f = kernel.sample(rows().float(), 5, num_units=4, num_outputs=2, seed=1)
    assert f.shape == (5, 3, 2)
    assert f.dtype == torch.float32
    assert torch.equal(f, kernel.sample(rows().float(), 5, num_units=(4, 4), num_outputs=2, seed=1))
    # two outputs share their hidden layers and are uncorrelated, and yet not independent
    many = kernel.sample(rows(), 100_000, num_units=3, num_outputs=2)[:, 0]
    products = many.prod(-1)
    assert abs(products.mean()) <= 5 * products.std() / 100_000**0.5
    squares = many.square() - many.square().mean(0)
    together = squares.prod(-1)
    assert together.mean() > 5 * together.std() / 100_000**0.5


def test_wrong_layers_are_told() -> None:
    with pytest.raises(ValueError, match=r"`variance` must be one number, or one per hidden layer \(2\)"):
        NetworkKernel("relu", variance=(1.0, 2.0, 3.0), depth=2)
    with pytest.raises(ValueError, match=r"`num_units` must be one number, or one per hidden layer \(2\)"):
        NetworkKernel("relu", depth=2).features(rows(), num_units=(3,))
    with pytest.raises(ValueError, match=r"FiniteKernel: `num_units` must be"):
        NetworkKernel("relu").given(num_units=0)
    with pytest.raises(ValueError, match=r"`weight_decay` must be one number, or one per layer \(3\)"):
        process_of_network(
            "relu", weight_decay=(1e-3, 1e-3), p=0.1, num_data=9, num_units=(4, 4), precision=1.0
        )
    with pytest.raises(ValueError, match="the width of at least one hidden layer"):
        process_of_network("relu", weight_decay=1e-3, p=0.1, num_data=9, num_units=(), precision=1.0)
    assert np.isfinite(linked().posterior(rows(), rows(), rows())[0].numpy()).all()
