"""Calibration and reliability: the curves of `metrics`, drawn as they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bayesdrop import Categorical, Gaussian, Prediction, metrics
from bayesdrop.plots import new_figure, plot_calibration, plot_reliability


def axes() -> Any:
    return new_figure(4, 3).subplots()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def numbers() -> tuple[Prediction, torch.Tensor]:
    draws = torch.randn(20, 60, 1, generator=seeded(0))
    return Prediction.from_draws(draws, Gaussian(0.5)), torch.randn(60, 1, generator=seeded(1))


def series(ax: Any, label: str) -> Any:
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return line


def test_the_calibration_line_is_the_curve_of_the_metric(numbers: tuple[Prediction, torch.Tensor]) -> None:
    ax, curve = axes(), metrics.calibration_curve(*numbers)
    assert plot_calibration(ax, curve, label="model") is ax
    line = series(ax, "model")
    np.testing.assert_array_equal(line.get_xdata(), curve.nominal.numpy())
    np.testing.assert_array_equal(line.get_ydata(), curve.observed.numpy())


def test_intervals_are_the_coverage_that_the_metric_finds(numbers: tuple[Prediction, torch.Tensor]) -> None:
    ax = axes()
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    plot_calibration(ax, metrics.calibration_curve(*numbers, levels=levels), intervals=True, label="model")
    line = series(ax, "model")
    np.testing.assert_allclose(line.get_xdata(), [0.5, 0.9], atol=1e-6)
    coverage = [float(metrics.interval_coverage(*numbers, level=level)) for level in (0.5, 0.9)]
    np.testing.assert_allclose(line.get_ydata(), coverage, atol=1e-6)


def test_two_curves_share_one_diagonal_and_the_names_of_the_axes_stay() -> None:
    ax = axes()
    ax.set_xlabel("mine")
    for label in ("one", "two"):
        curve = SimpleNamespace(nominal=[0.9, 0.1], observed=np.array([0.8, 0.2]))
        plot_calibration(ax, curve, label=label)
    assert [line.get_label() for line in ax.lines] == ["calibrated", "one", "two"]
    np.testing.assert_array_equal(series(ax, "two").get_xdata(), [0.1, 0.9])
    assert ax.get_xlabel() == "mine"
    assert ax.get_ylabel() == "share of targets below it"
    assert not ax.spines["top"].get_visible()


def test_the_shade_holds_1_96_standard_errors_of_a_share() -> None:
    ax = axes()
    plot_calibration(ax, SimpleNamespace(nominal=[0.5], observed=[0.4]), num_targets=100)
    (shade,) = ax.collections
    corners = shade.get_paths()[0].vertices
    middle = corners[np.isclose(corners[:, 0], 0.5), 1]
    np.testing.assert_allclose([middle.min(), middle.max()], [0.5 - 0.098, 0.5 + 0.098])


def test_dots_of_reliability_are_the_bins_that_are_not_empty() -> None:
    logits = torch.randn(5, 200, 4, generator=seeded(2)) * 2
    labels = torch.randint(4, (200,), generator=seeded(3))
    curve = metrics.reliability_curve(Prediction.from_draws(logits, Categorical()), labels, num_bins=10)
    figure = new_figure(4, 4)
    ax, below = figure.subplots(2, 1)
    assert plot_reliability(ax, curve, counts_ax=below, label="model") is ax
    filled = (curve.count > 0).numpy()
    assert not filled.all()
    line = series(ax, "model")
    np.testing.assert_array_equal(line.get_xdata(), curve.confidence.numpy()[filled])
    np.testing.assert_array_equal(line.get_ydata(), curve.accuracy.numpy()[filled])
    (steps,) = below.patches
    np.testing.assert_array_equal(steps.get_data().values, curve.count.numpy())
    np.testing.assert_array_equal(steps.get_data().edges, curve.edges.numpy())
    assert below.get_xlabel() == "confidence"
    assert ax.get_xlabel() == ""


def test_bars_of_chance_are_two_standard_errors_about_the_diagonal_within_0_and_1() -> None:
    curve = SimpleNamespace(
        confidence=[float("nan"), 0.5, 0.96],
        accuracy=[float("nan"), 0.9, 1.0],
        count=[0, 25, 4],
        edges=[0, 0.4, 0.8, 1],
    )
    ax = axes()
    plot_reliability(ax, curve)
    (bars,) = ax.collections
    (left, right) = [segment[:, 1] for segment in bars.get_segments()]
    np.testing.assert_allclose(left, [0.5 - 0.2, 0.5 + 0.2])
    np.testing.assert_allclose(right, [0.96 - 2 * np.sqrt(0.96 * 0.04 / 4), 1.0])
    without = axes()
    plot_reliability(without, curve, chance=False)
    assert not without.collections


PAIR = SimpleNamespace(nominal=[0.1, 0.9], observed=[0.2, 0.8])
EMPTY = SimpleNamespace(confidence=[0.5], accuracy=[0.5], count=[0], edges=[0, 1])
BINS = SimpleNamespace(confidence=[0.5, 0.6], accuracy=[0.5], count=[3], edges=[0, 1])
BAD_CALLS: dict[str, tuple[type[Exception], str, Any]] = {
    "not a curve": (TypeError, "calibration_curve returns", lambda ax: plot_calibration(ax, torch.ones(3))),
    "not axes": (TypeError, "matplotlib axes", lambda ax: plot_calibration(ax.figure, PAIR)),
    "lengths": (
        ValueError,
        "2 rows, as `curve.nominal`",
        lambda ax: plot_calibration(ax, SimpleNamespace(nominal=[0.1, 0.9], observed=[0.2])),
    ),
    "targets": (ValueError, "at least 1", lambda ax: plot_calibration(ax, PAIR, num_targets=0)),
    "asymmetric": (
        ValueError,
        "symmetric about 1/2",
        lambda ax: plot_calibration(ax, SimpleNamespace(nominal=[0.1, 0.8], observed=[0, 1]), intervals=True),
    ),
    "one level": (
        ValueError,
        "at least two levels",
        lambda ax: plot_calibration(ax, SimpleNamespace(nominal=[0.5], observed=[0.5]), intervals=True),
    ),
    "not bins": (TypeError, "reliability_curve returns", lambda ax: plot_reliability(ax, PAIR)),
    "empty": (ValueError, "at least one label", lambda ax: plot_reliability(ax, EMPTY)),
    "bins": (ValueError, "1 bins throughout", lambda ax: plot_reliability(ax, BINS)),
    "counts": (TypeError, "`counts_ax`", lambda ax: plot_reliability(ax, EMPTY, counts_ax=3)),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_arguments_are_named_and_leave_the_axes_empty(name: str) -> None:
    kind, message, call = BAD_CALLS[name]
    ax = axes()
    with pytest.raises(kind, match=message):
        call(ax)
    assert not ax.has_data()
