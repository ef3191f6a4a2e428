"""The relaxed mask of concrete dropout as a function of its uniform random number."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from bayesdrop.errors import must, whole_number
from bayesdrop.plots.checks import Values, check_axes, numbers
from bayesdrop.plots.style import COLORS, dress

__all__ = ["plot_relaxed_mask"]


def plot_relaxed_mask(
    ax: Any,
    p: float | Values = 0.5,
    temperature: float | Values = 0.1,
    *,
    num_points: int = 1001,
    colors: Sequence[Any] = COLORS,
) -> Any:
    """z(u) = sigmoid(-(logit p + logit u) / t) over u in (0, 1): a line for every pair of p and t.

    z is 1 where a unit is kept, as in `ConcreteDropout`; the paper's is 1 - z. As t falls to 0 it becomes a
    step from 1 to 0 at u = 1 - p, so that a uniform u drops with chance p; a larger t spreads it over [0, 1].

    Args:
        ax: matplotlib axes.
        p: chance of dropping, in (0, 1): one or several.
        temperature: t, above 0: one or several.
        num_points: number of values of u, evenly spaced in (0, 1).
        colors: used in turn, one for each line.

    Returns: the axes.
    Reference: Gal, Hron & Kendall (2017), Eq. 5 and figure 10.
    """
    owner = "plot_relaxed_mask"
    check_axes(owner, ax)
    rates = np.atleast_1d(numbers(owner, "p", p, 0, 1))
    temperatures = np.atleast_1d(numbers(owner, "temperature", temperature, 0, 1))
    if not ((rates > 0) & (rates < 1)).all():
        raise ValueError(must(owner, "p", "in (0, 1)", p))
    if not (temperatures > 0).all():
        raise ValueError(must(owner, "temperature", "above 0", temperature))
    num_points = whole_number(owner, "num_points", num_points, at_least=2, at_most=10**7)
    u = np.linspace(0, 1, num_points + 2)[1:-1]
    logistic = np.log(u) - np.log1p(-u)
    for index, (rate, t) in enumerate(product(rates, temperatures)):
        logit = np.log(rate) - np.log1p(-rate)
        # tanh does not overflow, however small t is
        z = 0.5 * (1 - np.tanh(0.5 * (logistic + logit) / t))
        label = f"p = {rate:g}, t = {t:g}"
        ax.plot(u, z, color=colors[index % len(colors)], linewidth=1.6, label=label)
    ax.set(xlim=(0, 1), ylim=(-0.03, 1.03))
    dress(ax, xlabel="u, uniform on (0, 1)", ylabel="relaxed mask z")
    return ax
