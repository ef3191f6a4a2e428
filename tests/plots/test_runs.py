"""Curves of runs, tables as pictures, last touches, and what bands and dots take besides predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bayesdrop.plots import (
    finish_axes,
    new_figure,
    plot_bands,
    plot_draws,
    plot_estimates,
    plot_reliability,
    plot_runs,
)


def axes() -> Any:
    return new_figure(4, 3).subplots()


@pytest.mark.parametrize(("band", "width"), [("std", 2.0), ("error", 2.0 / 3**0.5)])
def test_the_line_is_the_mean_and_the_band_is_as_wide_as_it_says(band: Any, width: float) -> None:
    ax = axes()
    values = [[1.0, 10.0], [3.0, 10.0], [5.0, 10.0]]
    assert plot_runs(ax, [10, 20], values, band=band, label="runs", style="o--") is ax
    (line,) = ax.lines
    assert line.get_ydata().tolist() == [3.0, 10.0]
    assert (line.get_linestyle(), line.get_marker(), line.get_label()) == ("--", "o", "runs")
    corners = ax.collections[0].get_paths()[0].vertices
    assert corners[corners[:, 0] == 10][:, 1].max() == pytest.approx(3 + width)


def test_every_run_is_a_line_as_far_as_it_goes() -> None:
    ax = axes()
    plot_runs(ax, [1, 2, 3], [[1.0, 2.0, 3.0], torch.tensor([3.0, 4.0])], band=None, runs=True)
    assert [len(line.get_xdata()) for line in ax.lines] == [3, 2, 2]
    assert ax.lines[-1].get_ydata().tolist() == [2.0, 3.0]
    assert not ax.collections
    single = axes()
    plot_runs(single, [1, 2], [1.0, 2.0], runs=True)
    assert len(single.lines) == 1


def test_estimates_are_rows_from_the_top_with_bars_or_with_runs() -> None:
    ax = axes()
    rows = {"a": (2.0, 0.5), "b": None, "c": [1.0, 2.0, 6.0], "d": (4.0, None)}
    assert plot_estimates(ax, rows, shift=0.25, label="ours", color=["C0", "C1", "C2", "C3"]) is ax
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b", "c", "d"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    (bar,) = [part for container in ax.containers[:1] for part in container[2]]
    assert bar.get_segments()[0][:, 0].tolist() == [1.5, 2.5]
    assert ax.get_legend_handles_labels()[1] == ["ours"]
    dots, tick = (line for line in ax.lines if set(line.get_ydata()) == {2.25})
    assert dots.get_xdata().tolist() == [1.0, 2.0, 6.0]
    assert np.ravel(tick.get_xdata()).tolist() == [3.0]


def test_last_touches_are_made_on_all_axes_and_a_legend_needs_labels() -> None:
    both = new_figure(4, 3).subplots(1, 2)
    both[0].plot([1], [1], label="one")
    assert finish_axes(both, "title", legend={"ncols": 2}, grid="x", xlabel="x", yscale="log") is both
    for ax in both:
        assert ax.get_title(loc="left") == "title"
        assert (ax.get_xlabel(), ax.get_yscale()) == ("x", "log")
        assert not ax.spines["top"].get_visible()
    assert both[0].get_legend() is not None
    assert both[1].get_legend() is None


def test_bands_and_draws_take_numbers() -> None:
    ax = axes()
    plot_bands(ax, [2.0, 1.0], (torch.tensor([20.0, 10.0]), [2.0, 1.0]), num_std=(1.0,))
    assert ax.lines[0].get_xdata().tolist() == [1.0, 2.0]
    assert ax.lines[0].get_ydata().tolist() == [10.0, 20.0]
    assert sorted(set(ax.collections[0].get_paths()[0].vertices[:, 1])) == [9.0, 11.0, 18.0, 22.0]
    plot_draws(ax, [2.0, 1.0], np.array([[2.0, 1.0], [4.0, 3.0], [0.0, 0.0]]), 2, color=["C1", "C2"])
    assert [line.get_ydata().tolist() for line in ax.lines[1:]] == [[1.0, 2.0], [3.0, 4.0]]
    assert [line.get_color() for line in ax.lines[1:]] == ["C1", "C2"]


@pytest.mark.parametrize("difference", [False, True])
def test_a_reliability_curve_may_be_the_mean_of_runs(difference: bool) -> None:
    ax, nan = axes(), float("nan")
    confidence, accuracy = [[0.2, nan, nan], [0.4, 0.6, nan]], [[0.1, nan, nan], [0.3, 0.9, nan]]
    assert plot_reliability(ax, (confidence, accuracy), difference=difference) is ax
    line = ax.lines[-1]
    np.testing.assert_allclose(line.get_xdata(), [0.3, 0.6])
    np.testing.assert_allclose(line.get_ydata(), [-0.1, 0.3] if difference else [0.2, 0.9])


WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "runs": (ValueError, "plot_runs: `values`", lambda ax: plot_runs(ax, [1], [[1.0, 2.0]])),
    "band": (ValueError, "plot_runs: `band`", lambda ax: plot_runs(ax, [1], [1.0], band="all")),  # type: ignore[arg-type]
    "none": (TypeError, "plot_estimates: `estimates`", lambda ax: plot_estimates(ax, {})),
    "negative": (ValueError, r"`estimates\['a'\]`", lambda ax: plot_estimates(ax, {"a": (1, -1)})),
    "three": (ValueError, r"`estimates\['a'\]`", lambda ax: plot_estimates(ax, {"a": (1, 1, 1)})),
    "colors": (
        ValueError, "plot_estimates: `color`", lambda ax: plot_estimates(ax, {"a": (1, 1)}, color=["C0"] * 2)
    ),
    "rows": (ValueError, "plot_bands: `prediction`", lambda ax: plot_bands(ax, [1, 2], ([1.0], [1.0]))),
    "functions": (ValueError, "plot_draws: `prediction`", lambda ax: plot_draws(ax, [1, 2], [[1.0]], 1)),
    "bins": (ValueError, "plot_reliability: `curve`", lambda ax: plot_reliability(ax, ([0.5], [0.5, 0.6]))),
    "empty": (ValueError, "at least one label", lambda ax: plot_reliability(ax, ([float("nan")],) * 2)),
    "axes": (TypeError, "finish_axes: `axes`", lambda ax: finish_axes(3)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_drawn_is_refused(name: str) -> None:
    error, words, call = WRONG[name]
    with pytest.raises(error, match=words):
        call(axes())
