"""The bound against all masks, and the papers' losses as exact multiples of it."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop import (
    BernoulliDropout,
    Categorical,
    FunctionDraw,
    Gaussian,
    HeteroscedasticGaussian,
    NegativeELBO,
    precision_from_weight_decay,
    predict,
    total_kl,
    weight_decay_from_precision,
)
from bayesdrop.functional import bernoulli_entropy

N, P, L = 40, 0.3, 0.2


def network(outputs: int) -> nn.Sequential:
    options = {"p": P, "length_scale": L}
    return nn.Sequential(
        BernoulliDropout(nn.Linear(3, 4), **options),
        nn.ReLU(),
        BernoulliDropout(nn.Linear(4, outputs), **options),
    ).double()


def weights(net: nn.Sequential) -> Tensor:
    return sum(layer.layer.weight.square().sum() for layer in (net[0], net[2]))


def biases(net: nn.Sequential) -> Tensor:
    return sum(layer.layer.bias.square().sum() for layer in (net[0], net[2]))


def entropy_sum() -> Tensor:
    return 7 * bernoulli_entropy(torch.tensor(P, dtype=torch.float64))


def penalty(net: nn.Sequential, factor: float) -> Tensor:
    """factor x (l^2 / (2 q N) |W|^2 - K H(p) / N + l^2 / (2 N) |b|^2)."""
    decay = L**2 / (2 * (1 - P) * N) * weights(net) + L**2 / (2 * N) * biases(net)
    return factor * (decay - entropy_sum() / N)


def data(outputs: int) -> tuple[Tensor, Tensor]:
    return torch.randn(10, 3, dtype=torch.float64), torch.randn(10, outputs, dtype=torch.float64)


@pytest.mark.parametrize("tau", [0.1, 1.0, 25.0])
def test_half_squared_error_and_squared_error_are_multiples(tau: float) -> None:
    net, (x, y) = network(2), data(2)
    terms = NegativeELBO(Gaussian(tau**-0.5).double(), num_data=N)
    with FunctionDraw(net):
        loss, output = terms(net, x, y).loss, net(x)
    constant = math.log(2 * math.pi / tau)  # two outputs, half a logarithm each
    half = 0.5 * (y - output).square().sum(1).mean() + penalty(net, 1 / tau)
    full = (y - output).square().sum(1).mean() + penalty(net, 2 / tau)
    torch.testing.assert_close((loss - constant) / tau, half, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(2 * (loss - constant) / tau, full, rtol=1e-6, atol=1e-6)


def test_cross_entropy_is_the_bound_itself() -> None:
    net, (x, _) = network(5), data(5)
    y = torch.randint(5, (10,))
    with FunctionDraw(net):
        loss, output = NegativeELBO(Categorical(), num_data=N)(net, x, y).loss, net(x)
    torch.testing.assert_close(loss, F.cross_entropy(output, y) + penalty(net, 1.0))


def test_the_heteroscedastic_loss_is_twice_the_bound() -> None:
    net, (x, y) = network(2), data(1)
    with FunctionDraw(net):
        loss, output = NegativeELBO(HeteroscedasticGaussian(), num_data=N)(net, x, y).loss, net(x)
    mean, s = output[:, :1], output[:, 1:]
    printed = ((-s).exp() * (y - mean).square() + s).mean() + penalty(net, 2.0)
    torch.testing.assert_close(2 * (loss - 0.5 * math.log(2 * math.pi)), printed)


def test_the_bound_averages_to_the_sum_over_all_masks() -> None:
    net, (x, y) = network(1), data(1)
    likelihood = Gaussian(0.5).double()
    objective = NegativeELBO(likelihood, num_data=N)
    first, second = net[0].layer, net[2].layer
    exact = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        for mask in product([0.0, 1.0], repeat=7):
            z = torch.tensor(mask, dtype=torch.float64)
            weight = math.prod(1 - P if bit else P for bit in mask)
            output = second(first(x * z[:3] / (1 - P)).relu() * z[3:] / (1 - P))
            exact -= weight * likelihood.log_prob(output, y).mean()
        exact += total_kl(net) / N
        net.train()
        samples = torch.stack([objective(net, x, y).loss for _ in range(3000)])
    assert abs(samples.mean() - exact) <= 5 * samples.std() / 3000**0.5


def test_gradients_average_to_the_gradient_of_the_sum_over_all_masks() -> None:
    net, (x, y) = network(1), data(1)
    likelihood = Gaussian(0.5).double()
    objective = NegativeELBO(likelihood, num_data=N)
    first, second = net[0].layer, net[2].layer
    exact = total_kl(net) / N
    for mask in product([0.0, 1.0], repeat=7):
        z = torch.tensor(mask, dtype=torch.float64)
        weight = math.prod(1 - P if bit else P for bit in mask)
        output = second(first(x * z[:3] / (1 - P)).relu() * z[3:] / (1 - P))
        exact = exact - weight * likelihood.log_prob(output, y).mean()
    parameters = list(net.parameters())
    truth = torch.cat([g.flatten() for g in torch.autograd.grad(exact, parameters)])
    net.train()
    samples = torch.stack(
        [
            torch.cat([g.flatten() for g in torch.autograd.grad(objective(net, x, y).loss, parameters)])
            for _ in range(2000)
        ]
    )
    error = (samples.mean(0) - truth).abs()
    assert (error <= 5 * samples.std(0) / 2000**0.5 + 1e-12).all()


def test_a_row_with_many_labels_counts_as_one_data_point() -> None:
    net = nn.Sequential(BernoulliDropout(nn.Conv2d(2, 3, 1), p=0.0)).double()
    x, y = torch.randn(4, 2, 5, 5, dtype=torch.float64), torch.randint(3, (4, 5, 5))
    terms = NegativeELBO(Categorical(), num_data=10)(net, x, y)
    torch.testing.assert_close(terms.nll, F.cross_entropy(net(x), y, reduction="sum") / 4)


def test_the_objectives_length_scale_overrides_the_layers() -> None:
    net, (x, y) = network(1), data(1)
    terms = NegativeELBO(Gaussian(1.0), num_data=N, length_scale=3.0)(net, x, y)
    torch.testing.assert_close(terms.kl, total_kl(net, 3.0) / N)


def test_num_data_may_grow() -> None:
    net, (x, y) = network(1), data(1)
    objective = NegativeELBO(Gaussian(1.0), num_data=10)
    before = objective(net, x, y).kl
    objective.num_data = 20
    torch.testing.assert_close(objective(net, x, y).kl, before / 2)


def test_a_learned_noise_is_the_objectives_parameter() -> None:
    assert len(list(NegativeELBO(Gaussian(), num_data=1).parameters())) == 1
    assert not list(NegativeELBO(Gaussian(0.1), num_data=1).parameters())


def test_the_m_step_takes_the_expectation_over_masks() -> None:
    """A linear layer: E (y - f)^2 = (y - W x)^2 + p / (1 - p) sum_k x_k^2 W_k^2."""
    layer = BernoulliDropout(nn.Linear(4, 1), p=0.4).double()
    x, y = torch.randn(30, 4, dtype=torch.float64), torch.randn(30, 1, dtype=torch.float64)
    objective = NegativeELBO(Gaussian(noise="map").double(), num_data=30)
    layer.train()
    objective.m_step(layer, [(x[:20], y[:20]), (x[20:], y[20:])], num_draws=2000)
    assert layer.training
    with torch.no_grad():
        exact = (y - layer.layer(x)).square().sum() + 0.4 / 0.6 * (
            x.square() * layer.layer.weight.square()
        ).sum()
        sums = (predict(layer, x, num_draws=2000).draws - y).square().sum((1, 2))
    # From the precision back to the sum of squares that it was made of.
    error = 2 * ((15 + 0.1 - 1) / objective.likelihood.precision - 0.01)
    assert abs(error - exact) <= 5 * sums.std() / 2000**0.5


def test_bad_input_is_refused() -> None:
    for bad in (0, -1, 2.5, True, "10"):
        with pytest.raises(ValueError, match=r"`num_data` must be a positive int; .*Pass len\(train_set\)"):
            NegativeELBO(Gaussian(1.0), num_data=bad)
    with pytest.raises(TypeError, match="`likelihood` must be a Likelihood"):
        NegativeELBO(nn.MSELoss(), num_data=1)
    with pytest.raises(ValueError, match="`length_scale` must be a positive number"):
        NegativeELBO(Gaussian(1.0), num_data=1, length_scale=0.0)
    with pytest.raises(ValueError, match="`model` must be a model with stochastic layers"):
        NegativeELBO(Gaussian(1.0), num_data=1)(nn.Linear(1, 1), torch.zeros(2, 1), torch.zeros(2, 1))
    with pytest.raises(ValueError, match=r"must be Gaussian\(noise='map'\)"):
        NegativeELBO(Gaussian(1.0), num_data=1).m_step(network(1), [])


def test_precision_and_weight_decay_are_inverse() -> None:
    settings = {"p": 0.05, "length_scale": 1e-2, "num_data": 455, "loss_weight": 1.7}
    decay = weight_decay_from_precision(0.16, **settings)
    assert precision_from_weight_decay(decay, **settings) == pytest.approx(0.16)


def test_precision_is_where_the_two_objectives_have_the_same_gradient() -> None:
    """(1/N) sum |y - f|^2 / 2 + lambda |M|^2, M = W / q, is the bound over tau."""
    layer = BernoulliDropout(nn.Linear(3, 1, bias=False), p=P, length_scale=L).double()
    x, y = torch.randn(N, 3, dtype=torch.float64), torch.randn(N, 1, dtype=torch.float64)
    decay = 2e-3
    tau = precision_from_weight_decay(decay, p=P, length_scale=L, num_data=N)
    with FunctionDraw(layer):
        bound = NegativeELBO(Gaussian(tau**-0.5).double(), num_data=N)(layer, x, y).loss / tau
        plain = (
            0.5 * (y - layer(x)).square().sum(1).mean()
            + decay * (layer.layer.weight / (1 - P)).square().sum()
        )
    weight = layer.layer.weight
    torch.testing.assert_close(
        torch.autograd.grad(bound, weight), torch.autograd.grad(plain, weight), rtol=1e-6, atol=1e-8
    )


def test_the_ratio_of_weights_is_the_precision_under_its_conditions() -> None:
    """tau = r1 / r2 (2015, section 3.4): sum over data, half the penalty, l = 1, nothing dropped."""
    r1, r2, num = 3.0, 0.5, 100
    tau = precision_from_weight_decay(r2 / 2, p=0.0, length_scale=1.0, num_data=num, loss_weight=r1 * num)
    assert tau == pytest.approx(r1 / r2)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"p": 1.0}, "p"),
        ({"length_scale": 0.0}, "length_scale"),
        ({"num_data": 0}, "num_data"),
        ({"loss_weight": -1.0}, "loss_weight"),
    ],
)
def test_bad_settings_of_precision_are_refused(change: dict[str, float], name: str) -> None:
    settings = {"p": 0.1, "length_scale": 1.0, "num_data": 10} | change
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        precision_from_weight_decay(1.0, **settings)
    with pytest.raises(ValueError, match="`precision` must be a positive number"):
        weight_decay_from_precision(0.0, p=0.1, length_scale=1.0, num_data=10)


@pytest.mark.parametrize("num_data", [0.5, True, None, "10", nn.Linear(2, 2), torch.tensor(3)])
def test_num_data_is_a_count(num_data: Any) -> None:
    """A module was taken in as a part of the objective, past the check of the property."""
    with pytest.raises(ValueError, match="NegativeELBO: `num_data` must be a positive int"):
        bd.NegativeELBO(bd.Gaussian(1.0), num_data=num_data)
    for function in (bd.precision_from_weight_decay, bd.weight_decay_from_precision):
        with pytest.raises(ValueError, match="`num_data` must be a positive int"):
            function(1e-4, p=0.5, length_scale=0.1, num_data=num_data)


def test_the_objective_names_what_is_no_module_and_no_tensor() -> None:
    objective = bd.NegativeELBO(bd.Gaussian(1.0), num_data=3)
    with pytest.raises(TypeError, match="NegativeELBO: `model` must be"):
        objective(len, torch.ones(3, 2), torch.ones(3, 1))
    with pytest.raises(TypeError, match="NegativeELBO: `y` must be a tensor; got list"):
        objective(bd.models.mlp(2, 3, 1), torch.ones(3, 2), [1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match="arm_loss: `model` must be"):
        bd.arm_loss(None, lambda _: torch.ones(3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="arm_loss: `loss_per_example` must be a function"):
        bd.arm_loss(nn.Linear(2, 2), torch.ones(3))  # type: ignore[arg-type]
