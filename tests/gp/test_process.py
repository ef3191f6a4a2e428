"""Gaussian processes: scikit-learn's answers, the weight-space view, and the link to training."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from torch import Tensor

from bayesdrop.gp import (
    GaussianProcess,
    NetworkKernel,
    length_scale_from_weight_decay,
    process_of_network,
)
from bayesdrop.objectives import precision_from_weight_decay


def data() -> tuple[Tensor, Tensor, Tensor]:
    x, new = torch.randn(20, 2, dtype=torch.float64), torch.randn(7, 2, dtype=torch.float64)
    y = torch.stack([x.sum(1).sin(), x[:, 0] ** 2], 1)
    return x, y, new


def test_posterior_and_evidence_are_those_of_scikit_learn() -> None:
    x, y, new = data()
    process = GaussianProcess(NetworkKernel("cosine", length_scale=0.9), precision=25.0)
    peer = GaussianProcessRegressor(RBF(0.9), alpha=1 / 25.0, optimizer=None).fit(x.numpy(), y.numpy())
    mean, covariance = peer.predict(new.numpy(), return_cov=True)
    ours = process.posterior(x, y, new)
    torch.testing.assert_close(ours[0], torch.from_numpy(mean))
    torch.testing.assert_close(ours[1], torch.from_numpy(covariance[..., 0]))
    marginal = process.marginals(x, y, new)
    torch.testing.assert_close(marginal[0], torch.from_numpy(mean))
    torch.testing.assert_close(
        marginal[1], torch.from_numpy(peer.predict(new.numpy(), return_std=True)[1][:, 0])
    )
    evidence = peer.log_marginal_likelihood(peer.kernel_.theta)
    assert process.log_evidence(x, y).item() == pytest.approx(evidence)


def test_a_process_on_k_units_is_bayesian_linear_regression_on_them() -> None:
    """N(Y; 0, Phi Phi^T + I / tau) with W_2 ~ N(0, I): section 3.1's weight-space view."""
    x, y, new = data()
    kernel, precision, units = NetworkKernel("relu"), 9.0, 30
    phi, phi_new = (kernel.features(part, num_units=units, seed=4) for part in (x, new))

    def finite(first: Tensor, second: Tensor) -> Tensor:
        return kernel.approximate(first, second, num_units=units, seed=4)

    mean, covariance = GaussianProcess(finite, precision).posterior(x, y, new)
    weights = torch.linalg.inv(torch.eye(units, dtype=torch.float64) + precision * phi.T @ phi)
    torch.testing.assert_close(mean, precision * phi_new @ weights @ phi.T @ y)
    torch.testing.assert_close(covariance, phi_new @ weights @ phi_new.T)


def test_the_evidence_has_gradients() -> None:
    x, y, _ = data()
    start = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.8, 4.0)]

    def evidence(length_scale: Tensor, precision: Tensor) -> Tensor:
        return GaussianProcess(NetworkKernel("tanh", length_scale=length_scale), precision).log_evidence(x, y)

    assert torch.autograd.gradcheck(evidence, start)


def test_length_scale_and_precision_invert_each_other() -> None:
    for p, decay, num, weight in [(0.05, 1e-4, 400, 1.0), (0.5, 3e-2, 17, 2.5), (0.0, 1.0, 1, 0.1)]:
        length_scale = length_scale_from_weight_decay(
            decay, p=p, precision=3.0, num_data=num, loss_weight=weight
        )
        back = precision_from_weight_decay(
            decay, p=p, length_scale=length_scale, num_data=num, loss_weight=weight
        )
        assert back == pytest.approx(3.0)


def test_a_network_of_the_prior_has_the_linked_covariance() -> None:
    """Weights from the prior that weight decay stands for: outputs of many networks, drawn here."""
    precision, num_data, units, networks = 5.0, 50, 8, 40_000
    decays, rates, bias_decay = (2e-3, 4e-3), (0.1, 0.3), 1e-3
    process = process_of_network(
        "tanh",
        weight_decay=decays,
        p=rates,
        bias_decay=bias_decay,
        num_data=num_data,
        num_units=units,
        precision=precision,
    )
    # exp(-N tau lambda / (1 - p) |M|^2) is the prior of weights that are kept with chance 1 - p
    std = [
        math.sqrt((1 - p) / (2 * num_data * precision * decay))
        for decay, p in zip(decays, rates, strict=True)
    ]
    bias_std = math.sqrt(1 / (2 * num_data * precision * bias_decay))
    x = torch.tensor([[0.3, -0.2], [0.5, 0.8], [-0.4, 0.1]], dtype=torch.float64)
    first = std[0] * torch.randn(networks, 2, units, dtype=torch.float64)
    bias = bias_std * torch.randn(networks, 1, units, dtype=torch.float64)
    second = std[1] * torch.randn(networks, units, 1, dtype=torch.float64)
    outputs = (torch.tanh(x @ first + bias) @ second).squeeze(-1)
    products = outputs.unsqueeze(2) * outputs.unsqueeze(1)
    exact = process.kernel(x, x)
    assert ((products.mean(0) - exact).abs() <= 5 * products.std(0) / networks**0.5).all()


def test_one_of_precision_and_length_scale_gives_the_other() -> None:
    def linked(**known: float) -> GaussianProcess:
        return process_of_network("relu", weight_decay=1e-3, p=0.2, num_data=90, num_units=10, **known)

    by_length = linked(length_scale=0.3)
    by_precision = linked(precision=float(by_length.precision))
    assert isinstance(by_length.kernel, NetworkKernel)
    assert isinstance(by_precision.kernel, NetworkKernel)
    assert by_precision.kernel.length_scale == pytest.approx(0.3)
    assert by_precision.kernel.variance == pytest.approx(10 / 0.3**2)
    # a bias is not dropped: its l^2 is that of the weights times 1 - p
    assert by_precision.kernel.bias_std == pytest.approx(1 / (0.3 * math.sqrt(0.8)))
    with pytest.raises(ValueError, match="given if and only if length_scale is not"):
        linked()
    with pytest.raises(ValueError, match="given if and only if length_scale is not"):
        linked(precision=1.0, length_scale=1.0)


def test_hidden_units_without_bias() -> None:
    process = process_of_network(
        "relu", weight_decay=1e-3, p=0.2, num_data=90, num_units=10, precision=1.0, bias_decay=math.inf
    )
    assert process.kernel(torch.zeros(1, 2), torch.ones(1, 2)).item() == 0


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="GaussianProcess: `precision` must be a positive number"):
        GaussianProcess(NetworkKernel("relu"), 0.0)
    with pytest.raises(ValueError, match=r"`p` must be in \[0, 1\)"):
        length_scale_from_weight_decay(1e-3, p=1.0, precision=1.0, num_data=10)
    with pytest.raises(ValueError, match="`weight_decay` must be a positive number"):
        length_scale_from_weight_decay(0.0, p=0.5, precision=1.0, num_data=10)
    with pytest.raises(ValueError, match="`num_units` must be the widths of hidden layers"):
        process_of_network("relu", weight_decay=1.0, p=0.1, num_data=1, num_units=0, precision=1.0)
    with pytest.raises(ValueError, match="GaussianProcess: `y` must be of shape"):
        GaussianProcess(NetworkKernel("relu"), 1.0).log_evidence(torch.ones(3, 1), torch.ones(3))
