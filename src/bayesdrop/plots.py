"""Pictures of predictions: axes and a `Prediction` in, axes out.

Figures are matplotlib's own objects, made without pyplot: nothing global is touched, no display is needed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_finite, require
from bayesdrop.predict import Prediction

__all__ = ["check_picture_path", "new_figure", "plot_bands", "plot_draws", "plot_points", "save_figure"]

#: what `save_figure` writes
SUFFIXES = (".png", ".pdf", ".svg")


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib Figure that belongs to nobody.

    Args:
        width: in inches.
        height: in inches.
    """
    module = require("matplotlib.figure", extra="plot", owner="new_figure")
    return module.Figure(figsize=(width, height), layout="constrained")


def plot_bands(
    ax: Any,
    x: Tensor,
    prediction: Prediction,
    *,
    output: int = 0,
    num_std: Sequence[float] = (1.0, 2.0),
    color: Any = "C0",
    label: str | None = None,
) -> Any:
    """The predictive mean, and shaded bands mean +- k std, both parts of the variance included.

    Args:
        ax: matplotlib axes.
        x: (N,) or (N, 1) where the rows lie; they are drawn in order of x.
        prediction: of N rows.
        output: which of the D outputs.
        num_std: the k of every band; they are drawn one over another, the widest first.
        color: of the line and of the bands.
        label: of the line, for a legend.

    Returns: the axes.
    """
    place, order = _places("plot_bands", x, prediction)
    if not num_std or any(not 0 < k < float("inf") for k in num_std):
        raise ValueError(must("plot_bands", "num_std", "positive numbers", tuple(num_std)))
    if prediction.num_draws < 2:
        hint = "One draw has no spread: call predict(..., num_draws=100)."
        raise ValueError(must("plot_bands", "prediction", "of at least 2 draws", prediction, hint))
    mean = _column("plot_bands", prediction.mean, output)[order]
    std = _column("plot_bands", prediction.std, output)[order]
    # Bands lie over one another, so that the shade at a point tells how many of them hold it.
    for k in sorted(num_std, reverse=True):
        lower, upper = (mean - k * std).numpy(), (mean + k * std).numpy()
        ax.fill_between(place, lower, upper, color=color, alpha=0.22, linewidth=0, zorder=1)
    ax.plot(place, mean.numpy(), color=color, linewidth=1.6, label=label, zorder=3)
    return ax


def plot_draws(
    ax: Any,
    x: Tensor,
    prediction: Prediction,
    n: int = 5,
    *,
    output: int = 0,
    color: Any = "C0",
    label: str | None = None,
) -> Any:
    """The first `n` sampled functions, without noise: what "a draw is a function" looks like.

    Args:
        ax: matplotlib axes.
        x: (N,) or (N, 1) where the rows lie.
        prediction: of N rows, with its draws kept, each draw one function.
        n: how many.
        output: which of the D outputs.
        color: of the lines.
        label: of the first of them, for a legend.

    Returns: the axes.
    """
    place, order = _places("plot_draws", x, prediction)
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= prediction.num_draws:
        raise ValueError(must("plot_draws", "n", f"an int from 1 to {prediction.num_draws}, the draws", n))
    if not prediction.shared:
        hint = "Call predict(..., draws='shared')."
        raise ValueError(must("plot_draws", "prediction", "of draws that are functions", prediction, hint))
    functions = prediction.draws[:n]
    if prediction.likelihood is not None:
        with torch.no_grad():
            functions = torch.stack([prediction.likelihood.moments(function)[0] for function in functions])
    for index, function in enumerate(functions):
        values = _column("plot_draws", function, output)[order].numpy()
        name = label if index == 0 else None
        ax.plot(place, values, color=color, linewidth=0.7, alpha=0.8, label=name, zorder=2)
    return ax


def plot_points(
    ax: Any, x: Tensor, y: Tensor, *, color: Any = "0.2", size: float = 2.0, label: str | None = None
) -> Any:
    """Data as dots.

    Args:
        ax: matplotlib axes.
        x: (N,) or (N, 1).
        y: (N,) or (N, 1).
        color: of the dots.
        size: their diameter in points.
        label: for a legend.

    Returns: the axes.
    """
    places, values = _flat("plot_points", "x", x), _flat("plot_points", "y", y)
    if places.shape != values.shape:
        raise ValueError(must("plot_points", "y", f"{places.shape[0]} rows, as `x`", tuple(y.shape)))
    ax.plot(
        places.numpy(),
        values.numpy(),
        linestyle="none",
        marker="o",
        markersize=size,
        markeredgewidth=0,
        color=color,
        label=label,
        zorder=4,
    )
    return ax


def check_picture_path(
    path: str | os.PathLike[str], *, owner: str = "save_figure", argument: str = "path"
) -> Path:
    """The path, if a picture can be written there: .png, .pdf or .svg in a folder that exists.

    Args:
        path: where the picture is to go.
        owner: who asks, for the error.
        argument: what the caller calls the path.
    """
    target = Path(path)

    def refuse(requirement: str, hint: str = "") -> ValueError:
        return ValueError(must(owner, argument, requirement, str(path), hint))

    if target.suffix.lower() not in SUFFIXES:
        raise refuse(f"a file name that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if target.is_dir():
        raise refuse("a file, not a folder")
    if not target.parent.is_dir():
        raise refuse("in a folder that exists", f"Make it first: mkdir -p {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise refuse("in a folder that can be written to")
    return target


def save_figure(
    figure: Any, path: str | os.PathLike[str], *, dpi: float = 150, colors: int | None = None
) -> Path:
    """Write a figure, all at once: a reader sees the old file or the new one, never a part.

    Args:
        figure: a matplotlib Figure.
        path: ends in .png, .pdf or .svg.
        dpi: pixels per inch (PNG).
        colors: size of the palette (PNG), from 2 to 256, which makes line art small; all colours if None.

    Returns: the path.
    """
    target = check_picture_path(path)
    if colors is not None and not 2 <= colors <= 256:
        raise ValueError(must("save_figure", "colors", "from 2 to 256, or None", colors))
    kind = target.suffix.lower().removeprefix(".")
    # Without a date, the same figure is the same file.
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}[kind]
    buffer = BytesIO()
    figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata)
    content = buffer.getvalue()
    if kind == "png" and colors is not None:
        content = _with_palette(content, colors)
    temporary = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return target


def _with_palette(png: bytes, colors: int) -> bytes:
    image = require("PIL.Image", extra="plot", owner="save_figure")
    buffer = BytesIO()
    with image.open(BytesIO(png)) as picture:
        few = picture.convert("RGB").quantize(colors, dither=image.Dither.NONE)
        few.save(buffer, format="png", optimize=True, dpi=picture.info.get("dpi", (72, 72)))
    return buffer.getvalue()


def _places(owner: str, x: Tensor, prediction: Prediction) -> tuple[Any, Tensor]:
    """x in order, and that order."""
    if not isinstance(prediction, Prediction):
        raise TypeError(must(owner, "prediction", "a Prediction", prediction))
    places = _flat(owner, "x", x)
    if places.shape[0] != len(prediction):
        raise ValueError(must(owner, "x", f"{len(prediction)} rows, as `prediction`", tuple(x.shape)))
    order = places.argsort(stable=True)
    return places[order].numpy(), order


def _flat(owner: str, argument: str, value: Tensor) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(must(owner, argument, "a tensor", value))
    if value.dim() not in (1, 2) or (value.dim() == 2 and value.shape[1] != 1):
        raise ValueError(must(owner, argument, "of shape (N,) or (N, 1)", tuple(value.shape)))
    must_be_finite(owner, argument, value)
    return value.detach().cpu().reshape(-1)


def _column(owner: str, value: Tensor, output: int) -> Tensor:
    """One output of (N,) or (N, D)."""
    columns = value.detach().cpu().reshape(value.shape[0], -1)
    if isinstance(output, bool) or not isinstance(output, int) or not 0 <= output < columns.shape[1]:
        raise ValueError(must(owner, "output", f"an int from 0 to {columns.shape[1] - 1}", output))
    return columns[:, output]
