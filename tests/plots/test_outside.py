"""Scores of rows inside and outside, and the risk that is left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bayesdrop import Categorical, Gaussian, Prediction, metrics
from bayesdrop.plots import new_figure, plot_risk_coverage, plot_roc, plot_score_histograms


def axes() -> Any:
    return new_figure(4, 3).subplots()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_histograms_are_shares_of_each_set_over_common_bins() -> None:
    ax = axes()
    assert (
        plot_score_histograms(ax, [0.0, 0.1, 0.9, 0.2], torch.tensor([1.0, 2.0]), bins=2, labels=("a", "b"))
        is ax
    )
    drawn = [patch for patch in ax.patches if not patch.get_fill()]
    assert [patch.get_label() for patch in drawn] == ["a", "b"]
    for patch, shares in zip(drawn, ([1.0, 0.0], [0.0, 1.0]), strict=True):
        np.testing.assert_array_equal(patch.get_data().edges, [0, 1, 2])
        np.testing.assert_array_equal(patch.get_data().values, shares)
    np.testing.assert_allclose(ax.get_xlim(), [0, 2])


def test_a_logarithmic_histogram_shows_a_single_row() -> None:
    ax = axes()
    plot_score_histograms(ax, np.linspace(0, 1, 200), [0.5], log=True)
    assert ax.get_yscale() == "log"
    assert ax.get_ylim()[0] < 1 / 200


def test_the_area_under_the_roc_is_the_auroc_of_the_metric_with_ties() -> None:
    # Votes of five draws: a variation ratio has six values at most, so that there are many ties.
    inside = Prediction.from_draws(2 * torch.randn(5, 80, 3, generator=seeded(0)), Categorical())
    outside = Prediction.from_draws(torch.randn(5, 50, 3, generator=seeded(1)), Categorical())
    scores = [metrics.uncertainty(part, "variation_ratio") for part in (inside, outside)]
    ax = axes()
    assert plot_roc(ax, *scores, label="model") is ax
    chance, line = ax.lines
    assert (chance.get_label(), line.get_label()) == ("chance", "model")
    x, y = line.get_xdata(), line.get_ydata()
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    area = float(metrics.ood_auroc(inside, outside, score="variation_ratio"))
    assert (np.diff(x) * (y[1:] + y[:-1]) / 2).sum() == pytest.approx(area, abs=1e-6)


def test_the_roc_by_hand() -> None:
    ax = axes()
    plot_roc(ax, [1, 2], [2, 3])
    np.testing.assert_array_equal(ax.lines[1].get_xdata(), [0, 0, 0.5, 1])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), [0, 0.5, 1, 1])


def test_risk_is_drawn_as_the_metric_has_it() -> None:
    prediction = Prediction.from_draws(torch.randn(6, 30, 1, generator=seeded(2)), Gaussian(0.1))
    curve = metrics.risk_coverage(prediction, torch.randn(30, 1, generator=seeded(3)))
    ax = axes()
    assert plot_risk_coverage(ax, curve, label="std") is ax
    line, baseline = ax.lines
    np.testing.assert_array_equal(line.get_xdata(), curve.coverage.numpy())
    np.testing.assert_array_equal(line.get_ydata(), curve.risk.numpy())
    np.testing.assert_array_equal(baseline.get_ydata(), [float(curve.risk[-1])] * 2)
    np.testing.assert_allclose(ax.get_ylim(), [0, 1.05 * float(curve.risk.max())])


def test_deferral_is_risk_from_the_other_side_and_a_root_for_rmse() -> None:
    curve = SimpleNamespace(coverage=[0.25, 0.5, 0.75, 1.0], risk=[1.0, 4.0, 9.0, 16.0])
    ax = axes()
    plot_risk_coverage(ax, curve, deferred=True, root=True, min_coverage=0.5, baseline=False)
    (line,) = ax.lines
    np.testing.assert_array_equal(line.get_xdata(), [0.5, 0.25, 0])
    np.testing.assert_array_equal(line.get_ydata(), [2, 3, 4])
    assert ax.get_xlim() == (0, 0.5)
    assert ax.get_xlabel() == "share of rows handed over"


LOSSES = SimpleNamespace(coverage=[0.5, 1.0], risk=[-1.0, 1.0])
BAD_CALLS: dict[str, tuple[type[Exception], str, Any]] = {
    "empty": (ValueError, "not empty", lambda ax: plot_roc(ax, [], [1.0])),
    "text": (TypeError, "numbers", lambda ax: plot_roc(ax, ["a"], [1.0])),
    "nan": (ValueError, "finite", lambda ax: plot_roc(ax, [1.0], torch.tensor([torch.nan]))),
    "columns": (ValueError, r"\(N,\) or \(N, 1\)", lambda ax: plot_roc(ax, torch.ones(2, 2), [1.0])),
    "bins": (ValueError, "a positive int", lambda ax: plot_score_histograms(ax, [1.0], [1.0], bins=0)),
    "labels": (ValueError, "two", lambda ax: plot_score_histograms(ax, [1.0], [1.0], labels=("a",))),
    "not a curve": (TypeError, "risk_coverage returns", lambda ax: plot_risk_coverage(ax, [1.0])),
    "coverage": (ValueError, r"in \[0, 1\)", lambda ax: plot_risk_coverage(ax, LOSSES, min_coverage=1.0)),
    "root": (ValueError, "risk below 0", lambda ax: plot_risk_coverage(ax, LOSSES, root=True)),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_arguments_are_named_and_leave_the_axes_empty(name: str) -> None:
    kind, message, call = BAD_CALLS[name]
    ax = axes()
    with pytest.raises(kind, match=message):
        call(ax)
    assert not ax.has_data()


def test_histograms_of_counts_may_have_an_empty_set() -> None:
    ax = axes()
    plot_score_histograms(ax, [0.0, 0.1, 0.9], [], bins=2, counts=True, log=True, labels=("right", "wrong"))
    heights = [patch.get_data().values.tolist() for patch in ax.patches[::2]]
    assert heights == [[2, 1], [0, 0]]
    assert ax.get_ylabel() == "rows"
    with pytest.raises(ValueError, match="`inside` must be"):
        plot_score_histograms(axes(), [], [], counts=True)
