"""Errors of the mean and intervals, against scikit-learn and scipy."""

from __future__ import annotations

import pytest
import torch
from scipy import optimize, stats
from sklearn.metrics import mean_absolute_error as sklearn_mae
from sklearn.metrics import r2_score, root_mean_squared_error

from bayesdrop import Gaussian, HeteroscedasticGaussian, Prediction
from bayesdrop.metrics import interval_coverage, interval_width, mean_absolute_error, r2, rmse


def _case(seed: int = 0, rows: int = 60, outputs: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randn(9, rows, outputs, dtype=torch.double, generator=generator)
    return draws, torch.randn(rows, outputs, dtype=torch.double, generator=generator)


def test_rmse_is_the_square_root_of_the_mean_over_rows_and_outputs() -> None:
    draws, y = _case()
    prediction = Prediction.from_draws(draws, Gaussian(0.3))
    expected = root_mean_squared_error(y.flatten().numpy(), draws.mean(0).flatten().numpy())
    torch.testing.assert_close(float(rmse(prediction, y)), float(expected), rtol=1e-12, atol=0)


def test_absolute_error_and_r2_are_those_of_sklearn() -> None:
    draws, y = _case()
    prediction = Prediction.from_draws(draws)
    mean = draws.mean(0).numpy()
    assert float(mean_absolute_error(prediction, y)) == pytest.approx(sklearn_mae(y.numpy(), mean), rel=1e-12)
    assert float(r2(prediction, y)) == pytest.approx(r2_score(y.numpy(), mean), rel=1e-12)
    assert r2(prediction, torch.ones_like(y)).isnan()


def test_intervals_of_others_are_counted_as_they_are() -> None:
    prediction = Prediction.from_draws(torch.zeros(2, 4, 1))
    y = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    ends = (torch.full((4, 1), -1.0), torch.tensor([[0.5], [0.5], [2.5], [2.5]]))
    assert float(interval_coverage(prediction, y, interval=ends)) == 0.5
    assert float(interval_width(prediction, interval=ends)) == 2.5
    with pytest.raises(ValueError, match=r"interval_width: `interval` must be a pair of tensors .*\(4, 1\)"):
        interval_width(prediction, interval=(ends[0][:2], ends[1]))


def test_rmse_does_not_broadcast_one_output_against_rows() -> None:
    prediction = Prediction.from_draws(torch.zeros(2, 4, 1))
    with pytest.raises(ValueError, match=r"rmse: `y` must be .*\(4, 1\); got \(4,\). Pass y.unsqueeze"):
        rmse(prediction, torch.zeros(4))


def test_rmse_of_single_precision_is_summed_in_double() -> None:
    draws = torch.full((2, 10_000, 1), 1e-3)
    value = rmse(Prediction.from_draws(draws), torch.zeros(10_000, 1))
    assert value.dtype == torch.float32
    assert float(value) == float(torch.tensor(1e-3))


def test_rmse_takes_integer_targets() -> None:
    assert float(rmse(Prediction.from_draws(torch.zeros(2, 3, 1)), torch.tensor([[3], [0], [0]]))) == (
        pytest.approx(3**0.5)
    )


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_coverage_and_width_are_those_of_scipy_quantiles_of_the_mixture(level: float) -> None:
    draws, y = _case(rows=12)
    prediction = Prediction.from_draws(draws, Gaussian(0.4))

    def quantile(row: int, output: int, q: float) -> float:
        centres = draws[:, row, output].numpy()
        return float(optimize.brentq(lambda v: stats.norm.cdf(v, centres, 0.4).mean() - q, -9, 9, xtol=1e-13))

    lower = torch.tensor([[quantile(n, d, (1 - level) / 2) for d in range(2)] for n in range(12)])
    upper = torch.tensor([[quantile(n, d, (1 + level) / 2) for d in range(2)] for n in range(12)])
    inside = ((lower <= y) & (y <= upper)).double().mean()
    torch.testing.assert_close(interval_coverage(prediction, y, level=level), inside, rtol=1e-12, atol=0)
    width = (upper - lower).double().mean()
    torch.testing.assert_close(interval_width(prediction, level=level), width, rtol=1e-6, atol=0)


def test_coverage_of_a_true_model_is_its_level() -> None:
    generator = torch.Generator().manual_seed(3)
    rows = 4000
    log_variance = torch.randn(rows, 1, dtype=torch.double, generator=generator)
    y = torch.randn(rows, 1, dtype=torch.double, generator=generator) * (0.5 * log_variance).exp()
    output = torch.cat([torch.zeros_like(y), log_variance], -1).expand(3, -1, -1)
    prediction = Prediction.from_draws(output, HeteroscedasticGaussian())
    for level in (0.5, 0.9):
        standard_error = (level * (1 - level) / rows) ** 0.5
        assert abs(float(interval_coverage(prediction, y, level=level)) - level) <= 5 * standard_error


def test_intervals_without_a_likelihood_are_those_of_the_draws() -> None:
    draws = torch.arange(101.0).reshape(101, 1, 1)
    prediction = Prediction.from_draws(draws)
    assert float(interval_width(prediction, level=0.8)) == pytest.approx(80)
    assert float(interval_coverage(prediction, torch.tensor([[10.0]]), level=0.8)) == 1
    assert float(interval_coverage(prediction, torch.tensor([[9.9]]), level=0.8)) == 0


@pytest.mark.parametrize("level", [0.0, 1.0, float("nan")])
def test_levels_lie_strictly_between_0_and_1(level: float) -> None:
    prediction = Prediction.from_draws(torch.zeros(2, 3, 1), Gaussian(1.0))
    with pytest.raises(ValueError, match=r"interval_coverage: `level` must be in \(0, 1\)"):
        interval_coverage(prediction, torch.zeros(3, 1), level=level)
    with pytest.raises(ValueError, match=r"interval_width: `level` must be in \(0, 1\)"):
        interval_width(prediction, level=level)


def test_an_interval_needs_a_finite_noise() -> None:
    output = torch.zeros(2, 3, 2)
    output[0, 1, 1] = 200.0  # exp(200) overflows single precision
    prediction = Prediction.from_draws(output, HeteroscedasticGaussian())
    with pytest.raises(ValueError, match=r"`prediction.aleatoric` must be finite; got 1 of 3"):
        interval_width(prediction)
