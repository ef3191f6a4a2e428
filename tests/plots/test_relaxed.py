"""The relaxed mask against u: what the layers multiply by, and its limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bayesdrop.functional.relax import relaxed_keep
from bayesdrop.noise.bits import random_bits, uniform_from_bits
from bayesdrop.plots import new_figure, plot_relaxed_mask


def axes() -> Any:
    return new_figure(4, 3).subplots()


def test_lines_are_the_masks_of_the_layers() -> None:
    ax = axes()
    assert plot_relaxed_mask(ax, (0.1, 0.5), [0.1, 1.0], num_points=4001) is ax
    labels = [line.get_label() for line in ax.lines]
    assert labels == ["p = 0.1, t = 0.1", "p = 0.1, t = 1", "p = 0.5, t = 0.1", "p = 0.5, t = 1"]
    bits = random_bits((200,), torch.device("cpu"), np.random.default_rng(0))
    u = uniform_from_bits(bits).double().numpy()
    inside = (u > 0.001) & (u < 0.999)
    for line, (p, t) in zip(ax.lines, [(0.1, 0.1), (0.1, 1.0), (0.5, 0.1), (0.5, 1.0)], strict=True):
        masks = relaxed_keep(torch.logit(torch.tensor(p, dtype=torch.float64)), bits, t).numpy()
        ours = np.interp(u, line.get_xdata(), line.get_ydata())
        # straight lines between 4,001 places of a curve whose slope is at most 1 / (4 t p (1 - p))
        np.testing.assert_allclose(ours[inside], masks[inside], atol=1 / (4 * t * p * (1 - p)) / 4000)


def test_a_small_temperature_is_a_step_at_one_minus_p() -> None:
    ax = axes()
    plot_relaxed_mask(ax, 0.3, 1e-6)
    (line,) = ax.lines
    u, z = line.get_xdata(), line.get_ydata()
    np.testing.assert_allclose(z[u < 0.699], 1)
    np.testing.assert_allclose(z[u > 0.701], 0, atol=1e-12)


def test_wrong_numbers_are_refused() -> None:
    for wrong in (0.0, 1.0, [0.5, 2.0]):
        with pytest.raises(ValueError, match=r"plot_relaxed_mask: `p` must be in \(0, 1\)"):
            plot_relaxed_mask(axes(), wrong)
    with pytest.raises(ValueError, match="`temperature` must be above 0"):
        plot_relaxed_mask(axes(), 0.5, 0.0)
    with pytest.raises(TypeError, match="`p` must be numbers"):
        plot_relaxed_mask(axes(), "half")
