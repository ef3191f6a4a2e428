"""Covariance functions: closed forms in inputs, positive definiteness, gradients, K units."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from bayesdrop.gp import NetworkKernel
from bayesdrop.gp.moments import activation

NAMES = ["relu", "step", "erf", "cosine", "tanh"]


def rows(num: int, inputs: int = 3, seed: int = 1) -> Tensor:
    return torch.randn(num, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", NAMES)
def test_the_kernel_is_the_mean_over_random_units(name: Any) -> None:
    """Weights N(0, 1 / l^2), one l per input, and biases N(0, s^2), drawn here."""
    num, length_scale, bias_std, variance = 200_000, torch.tensor([0.7, 1.5, 3.0]), 0.6, 2.5
    x, y = rows(1)[0], rows(1, seed=2)[0]
    weight = torch.randn(num, 3, dtype=torch.float64) / length_scale
    bias = bias_std * torch.randn(num, dtype=torch.float64)
    if name == "cosine":
        bias = 2 * math.pi * torch.rand(num, dtype=torch.float64)
    function = activation(name)
    products = variance * function(weight @ x + bias) * function(weight @ y + bias)
    kernel = NetworkKernel(name, length_scale=length_scale, bias_std=bias_std, variance=variance)
    exact = kernel(x[None], y[None])[0, 0]
    assert abs(products.mean() - exact) <= 5 * products.std() / num**0.5


def test_the_cosine_kernel_is_the_squared_exponential() -> None:
    x, y = rows(6), rows(4, seed=2)
    exact = 1.7 * torch.exp(-torch.cdist(x, y).square() / (2 * 0.8**2))
    torch.testing.assert_close(NetworkKernel("cosine", length_scale=0.8, variance=1.7)(x, y), exact)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_covariances_are_positive_definite_and_symmetric(name: Any, depth: int) -> None:
    x = torch.cat([rows(40), rows(5) + 1e-5, torch.zeros(1, 3, dtype=torch.float64)])
    matrix = NetworkKernel(name, length_scale=0.5, depth=depth)(x)
    torch.testing.assert_close(matrix, matrix.T, rtol=0, atol=1e-12)
    smallest = torch.linalg.eigvalsh(matrix).min()
    # The moments of tanh and the angle of the step are exact to 1e-9 and 1e-8 an entry.
    assert smallest > -1e-8 * len(x) * matrix.abs().max()


@pytest.mark.parametrize("name", NAMES)
def test_the_diagonal_is_that_of_the_matrix(name: Any) -> None:
    x = rows(7)
    kernel = NetworkKernel(name, bias_std=0.4, depth=2)
    torch.testing.assert_close(kernel.diagonal(x), kernel(x).diagonal(), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_matrices_side_by_side(name: Any) -> None:
    x, y = rows(2 * 5).reshape(2, 5, 3), rows(2 * 4, seed=2).reshape(2, 4, 3)
    kernel = NetworkKernel(name)
    together = kernel(x, y)
    assert together.shape == (2, 5, 4)
    torch.testing.assert_close(together[1], kernel(x[1], y[1]))


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_inputs_and_hyperparameters(name: Any, depth: int) -> None:
    x, y = rows(3).requires_grad_(), rows(2, seed=2)
    start = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.8, 0.5, 1.3)]

    def covariance(x: Tensor, length_scale: Tensor, bias_std: Tensor, variance: Tensor) -> Tensor:
        return NetworkKernel(
            name, length_scale=length_scale, bias_std=bias_std, variance=variance, depth=depth
        )(x, y)

    assert torch.autograd.gradcheck(covariance, (x, *start))


@pytest.mark.parametrize("name", ["relu", "erf", "cosine", "tanh"])
def test_the_gradient_where_inputs_meet_is_half_that_of_the_variance(name: Any) -> None:
    """k(x, y) is symmetric, so its slope in x alone at x = y is half the slope of k(x, x)."""
    kernel = NetworkKernel(name)
    x = rows(4).requires_grad_()
    (alone,) = torch.autograd.grad(kernel(x, x.detach()).diagonal().sum(), x)
    (both,) = torch.autograd.grad(kernel.diagonal(x).sum(), x)
    torch.testing.assert_close(alone, both / 2, rtol=0, atol=1e-7)


def test_the_gradient_of_a_matrix_of_steps_is_finite() -> None:
    x = rows(4).requires_grad_()
    NetworkKernel("step")(x).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_an_input_of_zero_without_bias_has_no_covariance() -> None:
    x = torch.zeros(1, 2, requires_grad=True)
    for name in ("relu", "step", "erf", "tanh"):
        value = NetworkKernel(name, bias_std=0.0)(x, torch.ones(1, 2))  # type: ignore[arg-type]
        assert value.item() == 0
        value.sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_single_precision_is_as_good_as_its_digits() -> None:
    x = rows(6)
    for name in NAMES:
        kernel = NetworkKernel(name)  # type: ignore[arg-type]
        single = kernel(x.float())
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), kernel(x.float().double()), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_k_units_have_the_covariance_as_their_mean(name: Any, depth: int) -> None:
    """Exact for one layer at any K; a wide second layer sees almost the first one's covariance."""
    x = rows(3)
    kernel = NetworkKernel(name, length_scale=1.2, bias_std=0.5, depth=depth)
    units, repeats = (4, 2000) if depth == 1 else (400, 60)
    estimates = torch.stack([kernel.approximate(x, num_units=units, seed=s) for s in range(repeats)])
    error = (estimates.mean(0) - kernel(x)).abs()
    bias = 0.0 if depth == 1 else 5 / units
    assert (error <= 5 * estimates.std(0) / repeats**0.5 + bias).all()


def test_features_are_one_network_for_all_inputs() -> None:
    x, y = rows(5), rows(4, seed=2)
    kernel = NetworkKernel("tanh")
    together = kernel.features(torch.cat([x, y]), num_units=7, seed=3)
    torch.testing.assert_close(together[:5], kernel.features(x, num_units=7, seed=3))
    torch.testing.assert_close(kernel.approximate(x, y, num_units=7, seed=3), together[:5] @ together[5:].T)
    assert torch.linalg.matrix_rank(kernel.approximate(rows(12), num_units=7)) == 7


def test_any_function_has_a_kernel() -> None:
    x = rows(4)
    kernel = NetworkKernel(torch.nn.functional.softplus, length_scale=2.0, bias_std=0.3)
    estimates = torch.stack([kernel.approximate(x, num_units=50, seed=s) for s in range(400)])
    assert ((estimates.mean(0) - kernel(x)).abs() <= 5 * estimates.std(0) / 20).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"length_scale": 0.0}, "`length_scale` must be above 0"),
        ({"bias_std": -1.0}, "`bias_std` must be a number of at least 0"),
        ({"variance": float("nan")}, "`variance` must be above 0"),
        ({"depth": 0}, "`depth` must be a positive int"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        NetworkKernel("relu", **options)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="one per input"):
        NetworkKernel("relu", length_scale=torch.ones(2))(rows(4))
    with pytest.raises(ValueError, match="`y` must be of 3 inputs"):
        NetworkKernel("relu")(rows(4), rows(4, inputs=2))
    with pytest.raises(ValueError, match="a floating tensor"):
        NetworkKernel("relu")(torch.zeros(4))
