"""Numbers against targets, the two parts of uncertainty, and what labels buy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bayesdrop import Categorical, Gaussian, HeteroscedasticGaussian, Prediction, metrics
from bayesdrop.plots import (
    new_figure,
    plot_acquisition,
    plot_bands,
    plot_intervals,
    plot_predicted,
    plot_residuals,
    plot_uncertainty_parts,
)


def axes() -> Any:
    return new_figure(4, 3).subplots()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(draws: int = 8) -> Prediction:
    return Prediction.from_draws(torch.randn(draws, 30, 2, generator=seeded(0)), Gaussian(0.5))


Y = 2 * torch.randn(30, 2, generator=seeded(1))


def series(ax: Any, label: str) -> Any:
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return line


def test_residuals_are_drawn_over_their_std() -> None:
    ax, prediction = axes(), make()
    assert plot_residuals(ax, prediction, Y, output=1, label="rows") is ax
    dots = series(ax, "rows")
    np.testing.assert_allclose(dots.get_xdata(), prediction.std[:, 1].numpy())
    np.testing.assert_allclose(dots.get_ydata(), (Y - prediction.mean).abs()[:, 1].numpy(), rtol=1e-6)
    for k in (1, 2):
        line = series(ax, f"{k} std")
        np.testing.assert_allclose(line.get_ydata(), k * line.get_xdata())
    assert ax.get_ylim()[0] == 0


def test_targets_of_one_output_may_be_flat() -> None:
    prediction = Prediction.from_draws(torch.randn(4, 30, 1, generator=seeded(0)))
    ax = axes()
    plot_residuals(ax, prediction, Y[:, 0].tolist(), label="rows")
    expected = (Y[:, 0] - prediction.mean[:, 0]).abs().numpy()
    np.testing.assert_allclose(series(ax, "rows").get_ydata(), expected, rtol=1e-6)


@pytest.mark.parametrize("order", ["target", "mean", "width"])
def test_intervals_are_those_of_the_prediction_in_order(order: Any) -> None:
    ax, prediction = axes(), make()
    assert plot_intervals(ax, prediction, Y, output=1, level=0.8, order=order) is ax
    lower, upper = (end[:, 1].double() for end in prediction.interval(0.8))
    key = {"target": Y[:, 1], "mean": prediction.mean[:, 1], "width": upper - lower}[order]
    rows = key.argsort(stable=True)
    (bars,) = ax.collections
    assert bars.get_label() == "80 % interval"
    drawn = np.array(bars.get_segments())
    np.testing.assert_array_equal(drawn[:, 0, 0], np.arange(1, 31))
    np.testing.assert_allclose(drawn[:, 0, 1], lower[rows].numpy())
    np.testing.assert_allclose(drawn[:, 1, 1], upper[rows].numpy())


def test_targets_inside_are_the_coverage_of_the_metric() -> None:
    prediction = Prediction.from_draws(torch.randn(8, 30, 1, generator=seeded(0)), Gaussian(0.5))
    ax, y = axes(), Y[:, :1]
    plot_intervals(ax, prediction, y, level=0.8)
    inside, outside = (len(series(ax, f"target {where}").get_xdata()) for where in ("inside", "outside"))
    assert inside + outside == 30
    assert outside > 0
    assert inside / 30 == pytest.approx(float(metrics.interval_coverage(prediction, y, level=0.8)))


def test_parts_of_numbers_are_standard_deviations() -> None:
    prediction = Prediction.from_draws(torch.randn(6, 30, 4, generator=seeded(2)), HeteroscedasticGaussian())
    figure = new_figure(4, 4)
    (top, _), (ax, right) = figure.subplots(2, 2)
    marked = torch.arange(30) < 10
    plot_uncertainty_parts(
        ax, prediction, output=1, top=top, right=right, marked=marked, label="a", mark_label="b"
    )
    for label, rows in (("a", ~marked), ("b", marked)):
        dots = series(ax, label)
        np.testing.assert_allclose(dots.get_xdata(), prediction.aleatoric[rows, 1].double().sqrt().numpy())
        np.testing.assert_allclose(dots.get_ydata(), prediction.epistemic[rows, 1].double().sqrt().numpy())
    assert sum(top.patches[0].get_data().values) == sum(right.patches[0].get_data().values) == 30
    assert top.get_xlim() == ax.get_xlim()
    assert right.get_ylim() == ax.get_ylim()


def test_parts_of_classes_are_entropies() -> None:
    prediction = Prediction.from_draws(torch.randn(6, 30, 3, generator=seeded(3)), Categorical())
    ax = axes()
    assert plot_uncertainty_parts(ax, prediction, label="rows") is ax
    dots = series(ax, "rows")
    np.testing.assert_array_equal(dots.get_xdata(), prediction.expected_entropy.numpy())
    np.testing.assert_array_equal(dots.get_ydata(), prediction.mutual_information.numpy())
    assert "nats" in ax.get_xlabel()


def test_bands_of_an_analytic_prediction_are_drawn() -> None:
    from bayesdrop import BernoulliDropout, predict

    x = torch.linspace(-1, 1, 5).unsqueeze(1)
    layer = BernoulliDropout(torch.nn.Linear(1, 1), p=0.3)
    prediction = predict(layer, x, method="moments", likelihood=Gaussian(0.1))
    ax = axes()
    plot_bands(ax, x, prediction, num_std=(0.5, 1, 1.5, 2))
    assert len(ax.collections) == 4


@pytest.mark.parametrize("band", ["range", "std", "error"])
def test_acquisition_is_a_mean_and_a_band_over_repeats(band: Any) -> None:
    values = np.array([[0.1, 0.5, 0.7], [0.3, 0.5, 0.8], [0.2, 0.8, 0.9]])
    ax = axes()
    assert plot_acquisition(ax, [10, 20, 30], values, band=band, label="bald") is ax
    (line,) = ax.lines
    np.testing.assert_allclose(line.get_ydata(), [0.2, 0.6, 0.8])
    (shade,) = ax.collections
    corners = shade.get_paths()[0].vertices
    here = corners[corners[:, 0] == 20, 1]
    # 0.5, 0.5 and 0.8: the mean is 0.6, the squared distances add up to 0.06.
    spread = {"std": 0.03**0.5, "error": 0.01**0.5}
    expected = (0.5, 0.8) if band == "range" else (0.6 - spread[band], 0.6 + spread[band])
    np.testing.assert_allclose([here.min(), here.max()], expected)


def test_repeats_that_stop_early_are_averaged_as_far_as_all_go() -> None:
    ax = axes()
    plot_acquisition(ax, [10, 20, 30], [[0.1, 0.3, 0.9], torch.tensor([0.3, 0.5])], runs=True)
    long, short, mean = ax.lines
    np.testing.assert_allclose(long.get_ydata(), [0.1, 0.3, 0.9])
    np.testing.assert_allclose(short.get_xdata(), [10, 20])
    np.testing.assert_allclose(mean.get_ydata(), [0.2, 0.4])


def test_one_repeat_has_no_band() -> None:
    ax = axes()
    plot_acquisition(ax, [10, 20], [0.1, 0.3])
    assert not ax.collections
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [0.1, 0.3])


CLASSES = Prediction.from_draws(torch.randn(4, 30, 2), Categorical())
BAD_CALLS: dict[str, tuple[type[Exception], str, Any]] = {
    "classes": (TypeError, "of numbers, not of classes", lambda ax: plot_residuals(ax, CLASSES, Y)),
    "one draw": (ValueError, "at least 2 draws", lambda ax: plot_residuals(ax, make(1), Y)),
    "output": (ValueError, "from 0 to 1", lambda ax: plot_residuals(ax, make(), Y, output=2)),
    "y": (ValueError, r"\(30, 2\), as `prediction`", lambda ax: plot_residuals(ax, make(), Y[:, 0])),
    "num_std": (ValueError, "positive", lambda ax: plot_residuals(ax, make(), Y, num_std=(0,))),
    "level": (ValueError, r"in \(0, 1\)", lambda ax: plot_intervals(ax, make(), Y, level=95)),
    "order": (ValueError, "target, mean, width", lambda ax: plot_intervals(ax, make(), Y, order="y")),
    "marked": (ValueError, "30 rows", lambda ax: plot_uncertainty_parts(ax, make(), marked=[True])),
    "top": (TypeError, "`top`", lambda ax: plot_uncertainty_parts(ax, make(), top="above")),
    "not": (TypeError, "a Prediction", lambda ax: plot_uncertainty_parts(ax, Y)),
    "band": (
        ValueError,
        "range, std, error",
        lambda ax: plot_acquisition(ax, [1], [[1.0], [2.0]], band="sd"),
    ),
    "steps": (ValueError, "at most 1 steps", lambda ax: plot_acquisition(ax, [1], [[1.0, 2.0]])),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_arguments_are_named_and_leave_the_axes_empty(name: str) -> None:
    kind, message, call = BAD_CALLS[name]
    ax = axes()
    with pytest.raises(kind, match=message):
        call(ax)
    assert not ax.has_data()


def test_a_mean_and_a_std_are_enough_for_residuals() -> None:
    prediction = make()
    whole, pair = axes(), axes()
    plot_residuals(whole, prediction, Y, label="rows")
    plot_residuals(pair, (prediction.mean[:, 0], prediction.std[:, 0]), Y[:, 0], label="rows")
    for name in ("rows", "1 std", "2 std"):
        np.testing.assert_allclose(
            series(pair, name).get_xydata(), series(whole, name).get_xydata(), rtol=1e-6
        )
    with pytest.raises(ValueError, match="`prediction` must be a mean and a std"):
        plot_residuals(axes(), (prediction.mean[:, 0], -prediction.std[:, 0]), Y[:, 0])


def test_an_interval_that_misses_its_target_stands_out() -> None:
    mean, target = np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 9.0])
    ax = axes()
    assert plot_predicted(ax, mean, target, interval=(mean - 1, mean + 1)) is ax
    missed = series(ax, "interval misses the target")
    assert (missed.get_xdata().tolist(), missed.get_ydata().tolist()) == ([9.0], [3.0])
    diagonal = series(ax, "predicted = actual")
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [1.0, 9.0]
    # An interval holds its target where it crosses the diagonal: it stands at x = target.
    ends = [segment for lines in ax.collections for segment in lines.get_segments()]
    held = [low[1] <= low[0] <= high[1] for low, high in ends]
    assert held == [True, True, False]
    assert len(plot_predicted(axes(), mean, target).collections) == 0
    with pytest.raises(TypeError, match="pair of lower and upper"):
        plot_predicted(axes(), mean, target, interval=mean)
    with pytest.raises(ValueError, match="3 rows, as `y`"):
        plot_predicted(axes(), mean[:2], target)
