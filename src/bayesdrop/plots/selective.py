"""The risk that remains when the least sure rows are handed over."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from bayesdrop.errors import must
from bayesdrop.plots.checks import Values, check_axes, row_numbers
from bayesdrop.plots.style import BLUE, dress, from_zero

__all__ = ["plot_risk_coverage"]


class RiskCurve(Protocol):
    """What `metrics.risk_coverage` returns."""

    @property
    def coverage(self) -> Values:
        """(N,) share of rows that are kept."""

    @property
    def risk(self) -> Values:
        """(N,) their mean loss."""


def plot_risk_coverage(
    ax: Any,
    curve: RiskCurve,
    *,
    deferred: bool = False,
    root: bool = False,
    min_coverage: float = 0.0,
    baseline: bool = True,
    color: Any = BLUE,
    label: str | None = None,
) -> Any:
    """Mean loss of the surest rows against their share; or against the share that is handed to a person.

    Args:
        ax: matplotlib axes.
        curve: from `metrics.risk_coverage`.
        deferred: draw it against 1 - coverage, the share of rows handed over.
        root: the square root of the risk: RMSE, where the loss is a squared error.
        min_coverage: leave out smaller shares, which are means over few rows.
        baseline: a dotted line at the risk of all rows, which is also that of handing over rows at random.
        color: of the line.
        label: of the line, for a legend.

    Returns: the axes.
    """
    owner = "plot_risk_coverage"
    check_axes(owner, ax)
    if not hasattr(curve, "coverage") or not hasattr(curve, "risk"):
        raise TypeError(must(owner, "curve", "what metrics.risk_coverage returns", curve))
    coverage = row_numbers(owner, "curve.coverage", curve.coverage)
    risk = row_numbers(owner, "curve.risk", curve.risk, len(coverage), like="curve.coverage")
    if not 0 <= min_coverage < 1:
        raise ValueError(must(owner, "min_coverage", "in [0, 1)", min_coverage))
    if root and (risk < 0).any():
        raise ValueError(must(owner, "root", "False for a risk below 0", True))
    risk = np.sqrt(risk) if root else risk
    shown = coverage >= min(min_coverage, coverage.max())
    place = 1 - coverage if deferred else coverage
    ax.plot(place[shown], risk[shown], color=color, linewidth=1.6, label=label, zorder=3)
    if baseline:
        everything = risk[coverage.argmax()]
        ax.axhline(everything, color=color, linewidth=1, linestyle=":", alpha=0.8, zorder=2)
    if (risk >= 0).all():
        from_zero(ax)
    ax.set_xlim((0, 1 - min_coverage) if deferred else (min_coverage, 1))
    what = "root of the mean loss" if root else "mean loss"
    if deferred:
        dress(ax, xlabel="share of rows handed over", ylabel=f"{what} of the rest")
    else:
        dress(ax, xlabel="share of rows kept (coverage)", ylabel=f"{what} (risk)")
    return ax
