"""E[s(u) s(v)] against quadrature by another road, Monte Carlo and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from bayesdrop.gp import second_moment
from bayesdrop.gp.mixing import kolmogorov_density, tanh_scales
from bayesdrop.gp.moments import activation

NAMES = ["relu", "step", "erf", "cosine", "tanh"]
CASES = [(1.0, 1.0, 0.5), (1.0, 1.0, 1.0), (2.0, 0.3, -0.6), (0.01, 0.02, 0.01), (30.0, 50.0, 20.0)]


def double(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def pairs(xx: float, yy: float, xy: float, num: int) -> tuple[Tensor, Tensor]:
    first, second = torch.randn(2, num, dtype=torch.float64)
    slope = xy / xx
    return math.sqrt(xx) * first, slope * math.sqrt(xx) * first + math.sqrt(max(yy - slope * xy, 0)) * second


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NAMES)
def test_a_moment_is_the_mean_of_products(name: str, case: tuple[float, float, float]) -> None:
    num = 200_000
    u, v = pairs(*case, num)
    phase = 2 * math.pi * torch.rand(num, dtype=torch.float64) if name == "cosine" else torch.zeros(())
    function = activation(name)  # type: ignore[arg-type]
    products = function(u + phase) * function(v + phase)
    exact = second_moment(name, *(double(value) for value in case))  # type: ignore[arg-type]
    assert abs(products.mean() - exact) <= 5 * products.std() / num**0.5


@pytest.mark.parametrize("case", [*CASES, (100.0, 100.0, 100.0), (100.0, 0.1, 2.0)])
def test_the_moment_of_tanh_is_its_integral(case: tuple[float, float, float]) -> None:
    """The trapezoidal rule on a fine grid converges geometrically: both variables, no mixture of erf."""
    xx, yy, xy = case
    r = xy / math.sqrt(xx * yy)
    step = min(0.1, 0.3 / math.sqrt(max(xx, yy)))
    grid = np.arange(-8.0, 8.0, step)
    weight = stats.norm.pdf(grid) * step
    inner = np.tanh(math.sqrt(yy) * (r * grid[:, None] + math.sqrt(max(1 - r * r, 0)) * grid[None, :]))
    exact = (weight * np.tanh(math.sqrt(xx) * grid)) @ inner @ weight
    assert second_moment("tanh", double(xx), double(yy), double(xy)).item() == pytest.approx(exact, abs=1e-9)


def test_tanh_is_a_mixture_of_error_functions() -> None:
    k, weight = tanh_scales()
    u = torch.linspace(-9, 9, 301, dtype=torch.float64)
    mixed = weight @ torch.erf(u / (math.sqrt(2) * k.unsqueeze(-1)))
    torch.testing.assert_close(mixed, torch.tanh(u), rtol=0, atol=1e-9)


def test_the_mixing_density_is_that_of_kolmogorov() -> None:
    k = torch.linspace(0.25, 3, 56, dtype=torch.float64)
    torch.testing.assert_close(kolmogorov_density(k), torch.from_numpy(stats.kstwobign.pdf(k.numpy())))


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_quadrature_agrees_with_the_closed_form_where_functions_are_smooth(name: str) -> None:
    function = activation(name)  # type: ignore[arg-type]
    values = [double(value) for value in (0.8, 1.1, 0.5)]
    # 1.0 * u is a function that has no name
    by_nodes = second_moment(lambda u: function(1.0 * u), *values)
    torch.testing.assert_close(by_nodes, second_moment(name, *values), rtol=0, atol=1e-8)  # type: ignore[arg-type]


def test_known_functions_and_modules_have_the_closed_form() -> None:
    values = [double(value) for value in (9.0, 16.0, 3.0)]
    for given in (torch.relu, nn.functional.relu, nn.ReLU()):
        assert second_moment(given, *values) == second_moment("relu", *values)
    assert second_moment(nn.Tanh(), *values) == second_moment("tanh", *values)
    assert second_moment(torch.erf, *values) == second_moment("erf", *values)


@pytest.mark.parametrize("name", NAMES)
def test_moments_have_the_right_first_and_second_derivatives(name: str) -> None:
    values = tuple(double(value).requires_grad_() for value in (0.9, 1.3, 0.4))

    def moment(xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
        return second_moment(name, xx, yy, xy)  # type: ignore[arg-type]

    assert torch.autograd.gradcheck(moment, values)
    assert torch.autograd.gradgradcheck(moment, values)


def test_an_unknown_name_is_refused() -> None:
    one = double(1.0)
    with pytest.raises(ValueError, match=r"second_moment: `nonlinearity` must be one of relu, step"):
        second_moment("softmax", one, one, one)  # type: ignore[arg-type]
