"""The report's pictures, as PNG data."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import torch

from bayesdrop.metrics import reliability_curve
from bayesdrop.plots import new_figure
from bayesdrop.tables.cells import Array
from bayesdrop.tables.judge import Judged

__all__ = ["calibration_picture", "deferral_picture", "error_picture", "new_axes", "png"]

_BLUE, _RED, _GREY = "#2b6cb0", "#c2410c", "0.55"


def calibration_picture(judged: Judged) -> bytes:
    """Quantiles against how often targets fell below them; confidence against accuracy."""
    figure, ax = new_axes()
    ax.plot([0, 1], [0, 1], color=_GREY, linewidth=1, linestyle="--", label="calibrated")
    if judged.classes:
        curve = reliability_curve(judged.as_prediction(), torch.from_numpy(judged.target), num_bins=10)
        full = curve.count > 0
        count = curve.count[full].numpy()
        given, came = curve.confidence[full].numpy(), curve.accuracy[full].numpy()
        # 95 % of shares of calibrated predictions lie within two standard errors of the diagonal.
        error = 2 * np.sqrt(np.maximum(given * (1 - given), 0) / count)
        bars = np.stack([np.minimum(error, given), np.minimum(error, 1 - given)])
        ax.errorbar(
            given, given, yerr=bars, fmt="none", color=_GREY, linewidth=1, capsize=3, label="by chance"
        )
        ax.plot(given, came, "o", color=_BLUE, markersize=6, label="found")
        low = max(0.0, min(float(given.min()), float(came.min())) - 0.1)
        ax.set(xlim=(low, 1.03), ylim=(low, 1.03))
        ax.set(xlabel="probability given to the label", ylabel="share of labels that were right")
    else:
        assert judged.rank is not None
        ordered = np.sort(judged.rank)
        share = np.arange(1, len(ordered) + 1) / len(ordered)
        level = np.linspace(0, 1, 101)
        # 95 % of curves of calibrated predictions pass through each height of the band.
        width = 1.96 * np.sqrt(level * (1 - level) / len(ordered))
        ax.fill_between(level, level - width, level + width, color=_GREY, alpha=0.2, linewidth=0)
        ax.step(ordered, share, where="post", color=_BLUE, linewidth=1.6, label="found")
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted quantile", ylabel="share of targets below it")
    ax.set_title("Calibration")
    ax.legend(frameon=False, loc="lower right")
    return png(figure)


def error_picture(judged: Judged) -> bytes:
    """Residuals against predicted std; how sure the model was of labels that were right and wrong."""
    figure, ax = new_axes()
    if judged.classes:
        wrong = judged.loss > 0
        edges = np.linspace(0, max(1e-9, float(judged.scores["entropy"].max())), 21)
        parts = [judged.scores["entropy"][~wrong], judged.scores["entropy"][wrong]]
        ax.hist(parts, bins=edges, stacked=True, color=[_BLUE, _RED], label=["right", "wrong"])
        ax.set_yscale("symlog", linthresh=1)
        ax.set_ylim(bottom=0)
        ax.set(xlabel="entropy (nats)", ylabel="rows", title="Labels that were right and wrong")
        ax.legend(frameon=False)
        return png(figure)
    std = judged.scores["std"]
    residual = judged.target - judged.scores["mean"]
    ax.plot(std, residual, "o", color=_BLUE, markersize=3, alpha=0.45, markeredgewidth=0)
    ends = np.array([0.0, float(std.max()) * 1.03])
    for k, style in ((1, "-"), (2, "--")):
        ax.plot(ends, k * ends, color=_GREY, linewidth=1, linestyle=style, label=f"{k} std")
        ax.plot(ends, -k * ends, color=_GREY, linewidth=1, linestyle=style)
    ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    ax.set(xlim=(max(0.0, float(std.min()) * 0.95), ends[1]))
    ax.set(xlabel="predicted std", ylabel="target - mean", title="Residuals against predicted std")
    ax.legend(frameon=False, loc="upper left")
    return png(figure)


def deferral_picture(score: Array, loss: Array, *, root: bool, by: str) -> bytes:
    """The error of rows that stay, for every share of rows that go to a person."""
    figure, ax = new_axes()
    order = np.argsort(score, kind="stable")
    count = np.arange(1, len(order) + 1)
    risk = np.cumsum(loss[order]) / count
    risk = np.sqrt(risk) if root else 100 * risk
    share = 100 * (1 - count / len(order))
    shown = share <= 60
    ax.plot(share[shown], risk[shown], color=_BLUE, linewidth=1.8, label=f"least sure first, by {by}")
    ax.axhline(risk[-1], color=_GREY, linewidth=1, linestyle="--", label="at random")
    top = 1.1 * float(risk[shown].max())
    # No error at all still has an axis.
    ax.set(xlim=(0, 60), ylim=(0, (top or 1.0) if root else max(1.0, top)))
    ax.set(xlabel="rows handed to a person (%)", title="What handing rows over buys")
    ax.set_ylabel("RMSE of the rest" if root else "wrong labels of the rest (%)")
    ax.legend(frameon=False)
    return png(figure)


def new_axes() -> tuple[Any, Any]:
    """A figure of the size of a report, and its axes."""
    figure = new_figure(5.2, 4.0)
    ax = figure.subplots()
    ax.spines[["top", "right"]].set_visible(False)
    return figure, ax


def png(figure: Any) -> bytes:
    """The figure as PNG data."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()
