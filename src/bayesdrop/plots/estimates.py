"""Results one below another: values with standard errors, or the values of several runs with their mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesdrop.errors import must
from bayesdrop.plots.checks import Values, check_axes, numbers
from bayesdrop.plots.style import BLUE, dress

__all__ = ["plot_estimates"]


def plot_estimates(
    ax: Any,
    estimates: Mapping[str, tuple[float, float | None] | Values | None],
    *,
    color: Any = BLUE,
    marker: str | Sequence[str] = "o",
    shift: float = 0.0,
    label: str | None = None,
) -> Any:
    """A dot and its error bar for every name, the first at the top: a table of results as a picture.

    Args:
        ax: matplotlib axes; names are written on the y axis.
        estimates: from names to (value, standard error or None); to the values of R runs in a list, an array
            or a tensor (R,), which are drawn as dots with a tick at their mean; or to None, for an empty row.
        color: of all rows, or a list with one for each row.
        marker: matplotlib's, of all rows, or a list with one for each row.
        shift: moves the dots down, in rows, so that several calls on the same axes do not overlap.
        label: of the dots, for a legend.

    Returns: the axes.
    """
    owner = "plot_estimates"
    check_axes(owner, ax)
    if not isinstance(estimates, Mapping) or not estimates:
        raise TypeError(must(owner, "estimates", "a mapping of names to numbers", estimates))
    colors = list(color) if isinstance(color, list) else [color] * len(estimates)
    markers = [marker] * len(estimates) if isinstance(marker, str) else list(marker)
    for argument, given in (("color", colors), ("marker", markers)):
        if len(given) != len(estimates):
            raise ValueError(must(owner, argument, f"one, or {len(estimates)} of them", given))
    for row, (name, value) in enumerate(estimates.items()):
        if value is None:
            continue
        style = {"color": colors[row], "label": label}
        label = None
        if isinstance(value, tuple):
            mean, error = _pair(owner, name, value)
            ax.errorbar(mean, row + shift, xerr=error, fmt=markers[row], markersize=5, capsize=2, **style)
        else:
            runs = numbers(owner, f"estimates[{name!r}]", value, 1)
            places = np.full(len(runs), row + shift)
            ax.plot(runs, places, markers[row], markersize=4, alpha=0.6, **style)
            ax.plot(runs.mean(), row + shift, "|", markersize=10, markeredgewidth=2, color=colors[row])
    ax.set_yticks(range(len(estimates)), list(estimates))
    ax.set_ylim(len(estimates) - 0.5, -0.5)
    dress(ax)
    return ax


def _pair(owner: str, name: str, value: tuple[Any, ...]) -> tuple[float, float | None]:
    want = "(value, standard error or None)"
    if len(value) != 2:
        raise ValueError(must(owner, f"estimates[{name!r}]", want, value))
    mean = float(numbers(owner, f"estimates[{name!r}]", [value[0]], 1)[0])
    if value[1] is None:
        return mean, None
    error = float(numbers(owner, f"estimates[{name!r}]", [value[1]], 1)[0])
    if error < 0:
        raise ValueError(must(owner, f"estimates[{name!r}]", want, value))
    return mean, error
