"""Cosine units: the covariance of random networks, storage, and predict."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import bayesdrop as bd
from bayesdrop.gp import NetworkKernel
from bayesdrop.models import Cosine, mlp, random_phases


def test_networks_of_random_phases_have_the_squared_exponential_covariance() -> None:
    """One hidden layer, over seeds: v exp(-|x - y|^2 / 2 l^2), exactly at any width."""
    x = torch.tensor([[0.0], [0.3], [1.5]])
    net = mlp(1, 6, 1, p=0.2, activation=Cosine).eval()
    num = 6000
    with torch.no_grad():
        outputs = torch.stack(
            [random_phases(net, length_scale=0.7, variance=2.0, seed=seed)(x)[:, 0] for seed in range(num)]
        ).double()
    products = outputs.unsqueeze(1) * outputs.unsqueeze(2)
    exact = NetworkKernel("cosine", length_scale=0.7, variance=2.0)(x.double())
    torch.testing.assert_close(exact, 2.0 * torch.exp(-((x - x.T) ** 2).double() / (2 * 0.7**2)))
    assert ((products.mean(0) - exact).abs() <= 5 * products.std(0) / num**0.5).all()


def test_wide_layers_have_the_covariance_of_their_depth() -> None:
    x = torch.tensor([[0.0], [0.4]])
    net = mlp(1, (300, 300), 1, activation=Cosine).eval()
    num = 1500
    with torch.no_grad():
        outputs = torch.stack(
            [random_phases(net, length_scale=0.5, seed=seed)(x)[:, 0] for seed in range(num)]
        ).double()
    products = outputs.unsqueeze(1) * outputs.unsqueeze(2)
    exact = NetworkKernel("cosine", length_scale=0.5, depth=2)(x.double())
    # 5 standard errors, and the 1 / K that 300 units leave
    assert ((products.mean(0) - exact).abs() <= 5 * products.std(0) / num**0.5 + 1 / 300).all()


def test_the_same_seed_is_the_same_network_and_nothing_else_is_drawn() -> None:
    state = torch.get_rng_state()
    nets = [random_phases(mlp(2, (8, 8), 1, activation=Cosine), seed=3) for _ in range(2)]
    torch.set_rng_state(state)
    random_phases(nets[0], seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(a, b)


def test_it_is_saved_and_predicted(tmp_path: Path) -> None:
    net = random_phases(mlp(2, 16, 1, p=0.3, activation=Cosine))
    bd.save(net, tmp_path / "net")
    x = torch.randn(5, 2)
    draws = [bd.predict(model, x, num_draws=7).draws for model in (net, bd.load(tmp_path / "net"))]
    assert torch.equal(*draws)


def test_what_has_no_cosine_is_refused() -> None:
    for wrong in (mlp(2, 8, 1), nn.Sequential(nn.Linear(2, 3), Cosine())):
        with pytest.raises(ValueError, match="random_phases: `model` must be a network of two linear maps"):
            random_phases(wrong)
    with pytest.raises(ValueError, match="`length_scale` must be a positive number"):
        random_phases(mlp(2, 8, 1, activation=Cosine), length_scale=0.0)
