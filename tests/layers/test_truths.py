"""Posteriors against all 2^K masks, closed forms, and explicit sums over weights."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from bayesdrop import (
    BernoulliDropout,
    DropConnect,
    FunctionDraw,
    GaussianDropout,
    MixtureDropout,
    predict,
)
from bayesdrop.functional import bernoulli_entropy, gaussian_dropout_kl, mixture_dropout_kl


def all_masks(p: Tensor) -> tuple[Tensor, Tensor]:
    """(2^K, K) masks and their probabilities."""
    masks = torch.tensor(list(product([0.0, 1.0], repeat=len(p))), dtype=torch.float64)
    return masks, torch.where(masks > 0, 1 - p, p).prod(-1)


def assert_moments(
    model: nn.Module, x: Tensor, outputs: Tensor, weights: Tensor, num_draws: int = 4000
) -> None:
    """Mean and variance of the draws against the finite sums over (M, N, D) outputs."""
    weights = weights.reshape(-1, 1, 1)
    mean = (weights * outputs).sum(0)
    square = (outputs - mean).square()
    variance = (weights * square).sum(0)
    spread = (weights * (square - variance).square()).sum(0).sqrt()
    prediction = predict(model, x, num_draws=num_draws, seed=1)
    assert ((prediction.mean - mean).abs() <= 5 * (variance / num_draws).sqrt() + 1e-12).all()
    # The sample variance errs by its own spread, and by the square of the mean's error.
    allowed = 5 * spread / num_draws**0.5 + 25 * variance / num_draws + 1e-12
    assert ((prediction.epistemic - variance).abs() <= allowed).all()
    assert (variance > 0).any()


def test_mc_dropout_moments_are_the_sums_over_all_masks() -> None:
    first = BernoulliDropout(nn.Linear(4, 3), p=[0.3, 0.1, 0.5, 0.2])
    second = BernoulliDropout(nn.Linear(3, 2), p=0.4)
    net = nn.Sequential(first, nn.ReLU(), second).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    p = torch.cat([first.p, second.p.expand(3)])
    masks, weights = all_masks(p)
    scaled = masks / (1 - p)
    with torch.no_grad():
        outputs = torch.stack([second.layer(first.layer(x * z[:4]).relu() * z[4:]) for z in scaled])
    assert_moments(net, x, outputs, weights)


def test_plain_dropout_modules_have_the_same_sums() -> None:
    net = nn.Sequential(
        nn.Dropout(0.3), nn.Linear(4, 3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 2)
    ).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    p = torch.tensor([0.3] * 4 + [0.5] * 3, dtype=torch.float64)
    masks, weights = all_masks(p)
    scaled = masks / (1 - p)
    with torch.no_grad():
        outputs = torch.stack([net[4](net[1](x * z[:4]).relu() * z[4:]) for z in scaled])
    assert_moments(net, x, outputs, weights)


def test_dropped_biases_have_the_same_sums() -> None:
    layer = BernoulliDropout(nn.Linear(3, 2), p=0.3, bias_p=0.6).double()
    x = torch.randn(4, 3, dtype=torch.float64)
    p = torch.tensor([0.3] * 3 + [0.6] * 2, dtype=torch.float64)
    masks, weights = all_masks(p)
    with torch.no_grad():
        outputs = torch.stack(
            [(x * z[:3]) @ layer.layer.weight.T + layer.layer.bias * z[3:] for z in masks / (1 - p)]
        )
    assert_moments(layer, x, outputs, weights)


def test_dropconnect_moments_are_the_sums_over_all_weight_masks() -> None:
    net = nn.Sequential(DropConnect(nn.Linear(4, 2), p=0.4), nn.ReLU()).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    p = torch.full((8,), 0.4, dtype=torch.float64)
    masks, weights = all_masks(p)
    layer = net[0].layer
    with torch.no_grad():
        outputs = torch.stack(
            [(x @ (layer.weight * z.reshape(2, 4) / 0.6).T + layer.bias).relu() for z in masks]
        )
    assert_moments(net, x, outputs, weights)


def test_channel_masks_moments_are_the_sums_over_all_masks() -> None:
    conv = BernoulliDropout(nn.Conv2d(4, 2, 3, padding=1, groups=2), p=[0.3, 0.1, 0.5, 0.2])
    net = nn.Sequential(conv, nn.Tanh(), nn.Flatten()).double()
    x = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    masks, weights = all_masks(conv.p)
    with torch.no_grad():
        outputs = torch.stack(
            [net[1:](conv.layer(x * (z / (1 - conv.p)).reshape(1, 4, 1, 1))) for z in masks]
        )
    assert_moments(net, x, outputs, weights)


def test_mixture_output_has_the_variance_of_both_its_parts() -> None:
    """Var h_j = sum_k x_k^2 W_jk^2 p / (1 - p) + s^2 (|x|^2 + 1)."""
    p, sigma, num_draws = 0.3, 0.2, 6000
    layer = MixtureDropout(nn.Linear(5, 3), p=p, sigma=sigma).double()
    x = torch.randn(4, 5, dtype=torch.float64)
    weight = layer.layer.weight.detach()
    exact = x.square() @ weight.square().T * p / (1 - p) + sigma**2 * (x.square().sum(1, keepdim=True) + 1)
    draws = predict(layer, x, num_draws=num_draws).draws
    square = (draws - draws.mean(0)).square()
    assert ((square.mean(0) - exact).abs() <= 5 * square.std(0) / num_draws**0.5).all()


def test_mixture_of_no_width_is_dropout() -> None:
    linear = nn.Linear(5, 3).double()
    x = torch.randn(4, 5, dtype=torch.float64)
    thin = MixtureDropout(linear, p=0.4, sigma=1e-12)
    with FunctionDraw(thin, seed=1):
        output = thin(x)
    masks, _ = all_masks(torch.full((5,), 0.4, dtype=torch.float64))
    with torch.no_grad():
        candidates = torch.stack([linear(x * z / 0.6) for z in masks])
    assert (candidates - output).abs().amax((1, 2)).min() < 1e-9


def test_gaussian_and_bernoulli_noise_agree_in_two_moments() -> None:
    linear, num_draws = nn.Linear(5, 3).double(), 6000
    x = torch.randn(4, 5, dtype=torch.float64)
    exact = x.square() @ linear.weight.detach().square().T * 0.4 / 0.6
    for kind in (BernoulliDropout, GaussianDropout):
        prediction = predict(kind(linear, p=0.4), x, num_draws=num_draws)
        square = (prediction.draws - prediction.draws.mean(0)).square()
        assert ((prediction.mean - linear(x)).abs() <= 5 * prediction.standard_error).all()
        assert ((square.mean(0) - exact).abs() <= 5 * square.std(0) / num_draws**0.5).all()


def test_expected_squared_loss_of_a_linear_layer_in_closed_form() -> None:
    """E_z |y - (z x) W / q|^2 = |y - x W|^2 + (p / q) sum_k x_k^2 |W_k|^2."""
    p = torch.full((6,), 0.3, dtype=torch.float64)
    layer = BernoulliDropout(nn.Linear(6, 2, bias=False), p=0.3).double()
    x, y = torch.randn(6, dtype=torch.float64), torch.randn(2, dtype=torch.float64)
    weight = layer.layer.weight.detach()
    masks, probability = all_masks(p)
    enumerated = (probability * ((masks * x / 0.7) @ weight.T - y).square().sum(1)).sum()
    closed = (y - weight @ x).square().sum() + 0.3 / 0.7 * (x.square() * weight.square().sum(0)).sum()
    torch.testing.assert_close(enumerated, closed)


def test_a_mask_passes_through_a_nonlinearity_that_keeps_zero() -> None:
    """Dropping a hidden unit is dropping its incoming row and its bias where f(0) = 0."""
    first, second = nn.Linear(3, 4).double(), nn.Linear(4, 2).double()
    x, mask = torch.randn(5, 3, dtype=torch.float64), torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    for activation, passes in ((torch.relu, True), (torch.tanh, True), (torch.sigmoid, False)):
        dropped_unit = second(activation(first(x)) * mask)
        dropped_row = second(activation(x @ (first.weight * mask.unsqueeze(1)).T + first.bias * mask))
        assert torch.allclose(dropped_unit, dropped_row) is passes


def test_monte_carlo_and_weight_averaging_agree_only_for_linear_networks() -> None:
    x = torch.randn(6, 4, dtype=torch.float64)
    first, second = BernoulliDropout(nn.Linear(4, 5), p=0.5), BernoulliDropout(nn.Linear(5, 1), p=0.5)
    for middle, linear in ((nn.Identity(), True), (nn.ReLU(), False)):
        net = nn.Sequential(first, middle, second).double()
        prediction = predict(net, x, num_draws=4000)
        with torch.no_grad():
            gap = (prediction.mean - net.eval()(x)).abs() / prediction.standard_error
        assert bool((gap <= 5).all()) is linear


def unit_weights(weight: Tensor, groups: int, unit: int) -> Tensor:
    """The weights that leave one input channel, by the definition of groups."""
    out_channels, width = weight.shape[:2]
    group, inside = divmod(unit, width)
    size = out_channels // groups
    return weight[group * size : (group + 1) * size, inside]


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_divergences_sum_over_the_weights_that_leave_each_unit(groups: int) -> None:
    p = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], dtype=torch.float64)
    conv = nn.Conv2d(6, 6, 3, groups=groups).double()
    l, fan_in = 0.5, 6 // groups * 9
    bias = 0.5 * l**2 * conv.bias.square().sum()
    squares = [unit_weights(conv.weight, groups, unit).square().sum() for unit in range(6)]
    scaled = l * fan_in**0.5

    bernoulli = sum(
        0.5 * scaled**2 * s / (1 - q) - bernoulli_entropy(q) for s, q in zip(squares, p, strict=True)
    )
    layer = BernoulliDropout(conv, p=p, length_scale=l, scale_by_fan_in=True)
    torch.testing.assert_close(layer.kl(), bernoulli + bias)

    gaussian = sum(gaussian_dropout_kl(s, q, scaled) for s, q in zip(squares, p, strict=True))
    layer = GaussianDropout(conv, p=p, length_scale=l, scale_by_fan_in=True, prior_on_bias=False)
    torch.testing.assert_close(layer.kl(), gaussian)

    single = sum(
        0.5 * scaled**2 * unit_weights(conv.weight, groups, unit).square().sum() / (1 - q)
        - unit_weights(conv.weight, groups, unit).numel() * bernoulli_entropy(q)
        for unit, q in enumerate(p)
    )
    layer = DropConnect(conv, p=p, length_scale=l, scale_by_fan_in=True)
    torch.testing.assert_close(layer.kl(), single + bias)

    sigma = torch.tensor(0.1, dtype=torch.float64)
    size = conv.weight.numel() // 6
    mixture = sum(mixture_dropout_kl(s, q, sigma, size, scaled) for s, q in zip(squares, p, strict=True))
    scaled_width = (l * sigma) ** 2
    bias_term = 0.5 * (l**2 * conv.bias.square() + scaled_width - scaled_width.log() - 1).sum()
    layer = MixtureDropout(conv, p=p, sigma=0.1, length_scale=l, scale_by_fan_in=True)
    torch.testing.assert_close(layer.kl(), mixture + bias_term)


def test_a_dropped_bias_has_the_divergence_of_dropout() -> None:
    linear = nn.Linear(2, 3).double()
    plain = BernoulliDropout(linear, p=0.2, length_scale=0.5, prior_on_bias=False).kl()
    dropped = BernoulliDropout(linear, p=0.2, bias_p=0.4, length_scale=0.5).kl()
    rate = torch.tensor(0.4, dtype=torch.float64)
    expected = 0.5 * 0.25 * linear.bias.square().sum() / 0.6 - 3 * bernoulli_entropy(rate)
    torch.testing.assert_close(dropped - plain, expected)


def test_dropconnect_keeps_the_trained_layer() -> None:
    conv = nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, bias=False, padding_mode="reflect")
    layer = DropConnect(conv, p=0.3).eval()
    x = torch.randn(2, 4, 9, 9)
    assert layer.layer is conv
    torch.testing.assert_close(layer(x), conv(x))
    assert layer.train()(x).shape == conv(x).shape


def test_weights_of_a_row_are_those_of_a_convolution_of_its_own() -> None:
    """The grouped convolution that gives every row its weights against a loop over rows."""
    from bayesdrop.layers.weights import apply_weights

    for conv in (
        nn.Conv1d(4, 6, 3, stride=2, groups=2),
        nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
        nn.Conv3d(4, 2, 2, dilation=2),
    ):
        x = torch.randn(3, 4, *[6] * (conv.weight.dim() - 2))
        weight = torch.randn(3, *conv.weight.shape)
        rows = [conv._conv_forward(x[i : i + 1], weight[i], None) for i in range(3)]
        torch.testing.assert_close(apply_weights(conv, x, weight), torch.cat(rows))
        assert conv.groups in (1, 2)


def test_one_mask_serves_all_positions_unless_elementwise() -> None:
    x = torch.ones(2, 7, 5)
    shared = BernoulliDropout(nn.Linear(5, 5), p=0.5).train()
    own = BernoulliDropout(nn.Linear(5, 5), p=0.5, elementwise=True).train()
    noise = shared.input_noise(x)
    assert noise is not None
    assert noise.shape == (2, 1, 5)
    noise = own.input_noise(x)
    assert noise is not None
    assert noise.shape == (2, 7, 5)
    with FunctionDraw(own):
        held = own.input_noise(x)
        assert held is not None
        assert held.shape == (1, 7, 5)
