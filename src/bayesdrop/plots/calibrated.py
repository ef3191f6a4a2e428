"""Calibration curves: observed frequencies against predicted probabilities."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from bayesdrop.errors import must, whole_number
from bayesdrop.plots.checks import Numbers, Values, check_axes, numbers, row_numbers
from bayesdrop.plots.style import BLUE, MUTED, dress, reference_line

__all__ = ["plot_calibration", "plot_reliability"]


class QuantileCurve(Protocol):
    """What `metrics.calibration_curve` returns."""

    @property
    def nominal(self) -> Values:
        """(L,) levels of the quantiles."""

    @property
    def observed(self) -> Values:
        """(L,) share of targets at or below them."""


class ConfidenceCurve(Protocol):
    """What `metrics.reliability_curve` and `metrics.class_reliability_curve` return."""

    @property
    def confidence(self) -> Values:
        """(B,) mean predicted probability."""

    @property
    def accuracy(self) -> Values:
        """(B,) observed frequency."""

    @property
    def count(self) -> Values:
        """(B,) how many are in the bin."""

    @property
    def edges(self) -> Values:
        """(B + 1,) where bins end."""


def plot_calibration(
    ax: Any,
    curve: QuantileCurve,
    *,
    intervals: bool = False,
    num_targets: int | None = None,
    color: Any = BLUE,
    label: str | None = None,
) -> Any:
    """Share of targets below predictive quantiles, or in predictive intervals, against the nominal share.

    With `intervals`, below the diagonal is overconfident: targets fall outside too often.

    Args:
        ax: matplotlib axes.
        curve: from `metrics.calibration_curve`.
        intervals: draw the coverage of central intervals, 1 - 2 q of nominal level for every pair of
            levels q and 1 - q, instead of the quantiles.
        num_targets: how many targets the curve counts; shades where 95 % of the values of calibrated
            predictions of that many lie, at each level. None shades nothing.
        color: of the line.
        label: of the line, for a legend.

    Returns: the axes.
    """
    owner = "plot_calibration"
    check_axes(owner, ax)
    if not hasattr(curve, "nominal") or not hasattr(curve, "observed"):
        raise TypeError(must(owner, "curve", "what metrics.calibration_curve returns", curve))
    nominal = row_numbers(owner, "curve.nominal", curve.nominal)
    observed = row_numbers(owner, "curve.observed", curve.observed, len(nominal), like="curve.nominal")
    if num_targets is not None:
        whole_number(owner, "num_targets", num_targets, at_least=1, want="an int of at least 1, or None")
    order = nominal.argsort(kind="stable")
    nominal, observed = nominal[order], observed[order]
    if intervals:
        nominal, observed = _central(owner, nominal, observed)
    reference_line(ax, label="calibrated")
    if num_targets is not None:
        level = np.linspace(0, 1, 101)
        width = 1.96 * np.sqrt(level * (1 - level) / num_targets)
        low, high = np.maximum(level - width, 0), np.minimum(level + width, 1)
        ax.fill_between(level, low, high, color=MUTED, alpha=0.15, linewidth=0, zorder=0)
    ax.plot(nominal, observed, marker="o", markersize=4, linewidth=1.6, color=color, label=label, zorder=3)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    if intervals:
        dress(ax, xlabel="level of the central interval", ylabel="share of targets in it")
    else:
        dress(ax, xlabel="level of the quantile", ylabel="share of targets below it")
    return ax


def plot_reliability(
    ax: Any,
    curve: ConfidenceCurve | tuple[Values, Values],
    *,
    counts_ax: Any = None,
    chance: bool = True,
    difference: bool = False,
    color: Any = BLUE,
    label: str | None = None,
) -> Any:
    """Accuracy against confidence, a dot for every bin that is not empty.

    Below the diagonal the model is overconfident.

    Args:
        ax: matplotlib axes.
        curve: from `metrics.reliability_curve` or `metrics.class_reliability_curve`; or confidence and
            accuracy, (B,) each or (R, B) of R runs, which are averaged, NaN where a bin is empty: these have
            no `chance`.
        counts_ax: axes for the count of every bin; None draws no counts.
        chance: draw bars about the diagonal, within which some 95 % of the dots of calibrated predictions
            lie: two standard errors sqrt(c (1 - c) / n) each way.
        difference: draw accuracy less confidence, about 0, which shows small errors better.
        color: of the dots.
        label: of the dots, for a legend.

    Returns: the axes.
    """
    owner = "plot_reliability"
    check_axes(owner, ax)
    if counts_ax is not None:
        check_axes(owner, counts_ax, "counts_ax")
    if isinstance(curve, tuple):
        given, found = _averaged(owner, curve)
        return _drawn(ax, given, found, difference, color, label)
    if not all(hasattr(curve, name) for name in ("confidence", "accuracy", "count", "edges")):
        raise TypeError(must(owner, "curve", "what metrics.reliability_curve returns", curve))
    count = row_numbers(owner, "curve.count", curve.count)
    given = numbers(owner, "curve.confidence", curve.confidence, 1, finite=False)
    found = numbers(owner, "curve.accuracy", curve.accuracy, 1, finite=False)
    edges = row_numbers(owner, "curve.edges", curve.edges, len(count) + 1, like="the bins' ends")
    filled = count > 0
    if given.shape != count.shape or found.shape != count.shape:
        raise ValueError(must(owner, "curve", f"of {len(count)} bins throughout", (len(given), len(found))))
    if not filled.any():
        raise ValueError(must(owner, "curve", "of at least one label", "none"))
    given, found = given[filled], found[filled]
    if chance:
        error = 2 * np.sqrt(np.clip(given * (1 - given), 0, None) / count[filled])
        low, high = np.maximum(given - error, 0), np.minimum(given + error, 1)
        base = given if difference else 0
        ax.vlines(given, low - base, high - base, color=color, alpha=0.3, linewidth=5, zorder=1)
    _drawn(ax, given, found, difference, color, label, "" if counts_ax is not None else "confidence")
    if counts_ax is not None:
        counts_ax.stairs(count, edges, fill=True, color=color, alpha=0.45, linewidth=0)
        counts_ax.set_xlim(-0.02, 1.02)
        dress(counts_ax, xlabel="confidence", ylabel="count")
    return ax


def _averaged(owner: str, curve: tuple[Any, ...]) -> tuple[Numbers, Numbers]:
    """Means over runs of confidence and accuracy, without the bins that are empty in all."""
    if len(curve) != 2:
        raise ValueError(must(owner, "curve", "confidence and accuracy", curve))
    tables = [
        numbers(owner, name, part, 1, 2, finite=False)
        for name, part in zip(("confidence", "accuracy"), curve, strict=True)
    ]
    if tables[0].shape != tables[1].shape:
        raise ValueError(must(owner, "curve", "of as many bins each", tuple(part.shape for part in tables)))
    given, found = (np.ma.masked_invalid(np.atleast_2d(part)).mean(0) for part in tables)
    filled = ~(np.ma.getmaskarray(given) | np.ma.getmaskarray(found))
    if not filled.any():
        raise ValueError(must(owner, "curve", "of at least one label", "none"))
    return np.asarray(given[filled]), np.asarray(found[filled])


def _drawn(
    ax: Any,
    given: Numbers,
    found: Numbers,
    difference: bool,
    color: Any,
    label: str | None,
    xlabel: str = "confidence",
) -> Any:
    """Draw a dot for every bin, and the line of calibrated predictions."""
    if difference:
        ax.axhline(0, color=MUTED, linewidth=1, linestyle="--", zorder=1)
    else:
        reference_line(ax, label="calibrated")
    shown = found - given if difference else found
    ax.plot(given, shown, marker="o", markersize=5, linewidth=1.2, color=color, label=label, zorder=3)
    ax.set_xlim(-0.02, 1.02)
    if not difference:
        ax.set_ylim(-0.02, 1.02)
    dress(ax, xlabel=xlabel, ylabel="accuracy less confidence" if difference else "accuracy")
    return ax


def _central(owner: str, nominal: Numbers, observed: Numbers) -> tuple[Numbers, Numbers]:
    """Levels 1 - 2 q of central intervals, rising, and the share between the quantiles q and 1 - q."""
    if not np.allclose(nominal + nominal[::-1], 1, atol=1e-6):
        hint = "Pass levels in pairs q and 1 - q to metrics.calibration_curve, or intervals=False."
        raise ValueError(must(owner, "curve.nominal", "symmetric about 1/2", nominal.tolist(), hint))
    half = len(nominal) // 2
    if not half:
        raise ValueError(must(owner, "curve.nominal", "at least two levels", nominal.tolist()))
    level = (nominal[::-1] - nominal)[:half]
    share = (observed[::-1] - observed)[:half]
    return level[::-1], share[::-1]
