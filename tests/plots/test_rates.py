"""Learned rates over training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import bayesdrop as bd
from bayesdrop.plots import COLORS, new_figure, plot_rates


def axes() -> Any:
    return new_figure(4, 3).subplots()


def test_a_history_gives_a_line_for_every_layer_that_learns_its_rate() -> None:
    torch.manual_seed(0)
    model = bd.models.mlp(2, (8,), 1, layer=bd.ConcreteDropout)
    x, y = torch.randn(20, 2), torch.randn(20, 1)
    objective = bd.NegativeELBO(bd.Gaussian(0.5), num_data=20)
    history = bd.fit(model, (x, y), objective, epochs=3, progress=False)
    ax = axes()
    assert plot_rates(ax, history) is ax
    assert [line.get_label() for line in ax.lines] == ["layer 0", "layer 2"]
    for line, path in zip(ax.lines, ("0", "2"), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])
        np.testing.assert_allclose(line.get_ydata(), history.rates[path])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "drop rate p")
    assert not ax.collections


def test_rates_of_units_are_a_mean_and_a_band_from_lowest_to_highest() -> None:
    ax = axes()
    seen = [
        {"in": torch.tensor([0.1, 0.3]), "out": torch.tensor(0.5)},
        {"in": torch.tensor([0.2, 0.6]), "out": torch.tensor(0.4)},
    ]
    plot_rates(ax, seen, steps=[10, 20], names=["inputs", "hidden"])
    inputs, hidden = ax.lines
    np.testing.assert_allclose(inputs.get_ydata(), [0.2, 0.4])
    np.testing.assert_allclose(hidden.get_ydata(), [0.5, 0.4])
    np.testing.assert_array_equal(inputs.get_xdata(), [10, 20])
    assert [inputs.get_label(), hidden.get_label()] == ["inputs", "hidden"]
    assert [inputs.get_color(), hidden.get_color()] == list(COLORS[:2])
    (band,) = ax.collections
    corners = band.get_paths()[0].vertices
    for step, low, high in ((10, 0.1, 0.3), (20, 0.2, 0.6)):
        here = corners[corners[:, 0] == step, 1]
        np.testing.assert_allclose([here.min(), here.max()], [low, high])
    np.testing.assert_allclose(ax.get_ylim(), [0, 0.63])


BAD_CALLS: dict[str, tuple[type[Exception], str, Any]] = {
    "type": (TypeError, "a History", lambda ax: plot_rates(ax, 3)),
    "none": (
        ValueError,
        "at least one layer.*ConcreteDropout",
        lambda ax: plot_rates(ax, bd.History(loss=[1.0])),
    ),
    "lengths": (ValueError, "as many steps", lambda ax: plot_rates(ax, {"0": [0.1], "1": [0.1, 0.2]})),
    "range": (ValueError, r"in \[0, 1\]", lambda ax: plot_rates(ax, {"0": [0.1, 1.2]})),
    "steps": (ValueError, "2 rows, as `rates`", lambda ax: plot_rates(ax, {"0": [0.1, 0.2]}, steps=[1])),
    "names": (ValueError, "1 names", lambda ax: plot_rates(ax, {"0": [0.1, 0.2]}, names=["a", "b"])),
    "layers": (ValueError, "same layers", lambda ax: plot_rates(ax, [{"0": 0.1}, {"1": 0.1}])),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_arguments_are_named_and_leave_the_axes_empty(name: str) -> None:
    kind, message, call = BAD_CALLS[name]
    ax = axes()
    with pytest.raises(kind, match=message):
        call(ax)
    assert not ax.has_data()
