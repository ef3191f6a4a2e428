"""Pictures draw what they say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bayesdrop import Gaussian, HeteroscedasticGaussian, Prediction
from bayesdrop.errors import MissingExtra
from bayesdrop.plots import (
    check_picture_path,
    figure_bytes,
    new_figure,
    plot_bands,
    plot_draws,
    plot_points,
    save_figure,
)

X = torch.linspace(-1, 1, 7)


def prediction(*, draws: int = 4, shared: bool = True) -> Prediction:
    outputs = torch.randn(draws, 7, 2, generator=torch.Generator().manual_seed(0))
    return Prediction.from_draws(outputs, Gaussian(0.5), shared=shared)


def axes() -> Any:
    return new_figure(4, 3).subplots()


def edges(ax: Any) -> list[tuple[Tensor, Tensor]]:
    """Lower and upper edge of every band, in the order in which they were drawn."""
    found = []
    for band in ax.collections:
        corners = band.get_paths()[0].vertices
        lower = [corners[corners[:, 0] == x][:, 1].min() for x in X.numpy()]
        upper = [corners[corners[:, 0] == x][:, 1].max() for x in X.numpy()]
        found.append((torch.tensor(np.array(lower)), torch.tensor(np.array(upper))))
    return found


def test_bands_end_at_mean_plus_minus_k_std() -> None:
    ax, made = axes(), prediction()
    assert plot_bands(ax, X, made, output=1, num_std=(0.5, 2.0)) is ax
    bands = edges(ax)
    assert len(bands) == 2
    for (lower, upper), k in zip(bands, (2.0, 0.5), strict=True):
        torch.testing.assert_close(lower, (made.mean - k * made.std)[:, 1].double())
        torch.testing.assert_close(upper, (made.mean + k * made.std)[:, 1].double())


def test_the_line_of_the_bands_is_the_mean() -> None:
    ax, made = axes(), prediction()
    plot_bands(ax, X, made, label="mean")
    (line,) = ax.lines
    assert line.get_label() == "mean"
    np.testing.assert_array_equal(line.get_ydata(), made.mean[:, 0].numpy())


def test_rows_are_drawn_in_order_of_x() -> None:
    ax, made = axes(), prediction()
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    shuffled = Prediction.from_draws(made.draws[:, order], Gaussian(0.5))
    plot_bands(ax, X[order].unsqueeze(1), shuffled)
    plot_draws(ax, X[order], shuffled, 2)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), X.numpy())
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), made.mean[:, 0].numpy())
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), made.draws[1, :, 0].numpy())


def test_draws_are_the_first_n_functions() -> None:
    ax, made = axes(), prediction()
    assert plot_draws(ax, X, made, 3, output=1, label="draws") is ax
    assert len(ax.lines) == 3
    for line, draw in zip(ax.lines, made.draws, strict=False):
        np.testing.assert_array_equal(line.get_ydata(), draw[:, 1].numpy())
    assert sum(line.get_label() == "draws" for line in ax.lines) == 1


def test_draws_of_a_likelihood_with_its_own_noise_are_its_means() -> None:
    ax = axes()
    outputs = torch.randn(2, 7, 2, generator=torch.Generator().manual_seed(1))
    plot_draws(ax, X, Prediction.from_draws(outputs, HeteroscedasticGaussian()), 2)
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), outputs[1, :, 0].numpy())


def test_points_are_dots_without_a_line() -> None:
    ax = axes()
    assert plot_points(ax, X, X.square().unsqueeze(1)) is ax
    (dots,) = ax.lines
    assert dots.get_linestyle() == "None"
    np.testing.assert_array_equal(dots.get_ydata(), X.square().numpy())


def test_nothing_global_is_touched() -> None:
    import matplotlib as mpl
    from matplotlib import _pylab_helpers

    before = dict(mpl.rcParams)
    plot_bands(axes(), X, prediction())
    assert dict(mpl.rcParams) == before
    assert not _pylab_helpers.Gcf.figs


BAD_CALLS: dict[str, tuple[type[Exception], str, Any]] = {
    "rows": (ValueError, "7 rows", lambda ax: plot_bands(ax, X[:3], prediction())),
    "shape": (ValueError, r"\(N,\) or \(N, 1\)", lambda ax: plot_bands(ax, torch.ones(7, 2), prediction())),
    "nan": (ValueError, "finite", lambda ax: plot_bands(ax, X * torch.nan, prediction())),
    "x": (TypeError, "numbers", lambda ax: plot_bands(ax, ["a"] * 7, prediction())),
    "prediction": (TypeError, "a Prediction", lambda ax: plot_bands(ax, X, X)),
    "output": (ValueError, "from 0 to 1", lambda ax: plot_bands(ax, X, prediction(), output=2)),
    "num_std": (ValueError, "positive", lambda ax: plot_bands(ax, X, prediction(), num_std=(-1.0,))),
    "no num_std": (ValueError, "positive", lambda ax: plot_bands(ax, X, prediction(), num_std=())),
    "one draw": (ValueError, "at least 2 draws", lambda ax: plot_bands(ax, X, prediction(draws=1))),
    "too many": (ValueError, "from 1 to 4", lambda ax: plot_draws(ax, X, prediction(), 5)),
    "not functions": (ValueError, "functions", lambda ax: plot_draws(ax, X, prediction(shared=False), 2)),
    "y": (ValueError, "7 rows", lambda ax: plot_points(ax, X, X[:2])),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_arguments_are_named_and_leave_the_axes_empty(name: str) -> None:
    kind, message, call = BAD_CALLS[name]
    ax = axes()
    with pytest.raises(kind, match=message):
        call(ax)
    assert not ax.lines
    assert not ax.collections


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.SVG", b"<?xml")])
def test_a_figure_is_written_in_the_format_of_its_name(name: str, magic: bytes, tmp_path: Path) -> None:
    figure = new_figure(2, 2)
    plot_points(figure.subplots(), X, X)
    path = save_figure(figure, tmp_path / name)
    # The ids of an SVG are made anew each time.
    assert name == "a.SVG" or path.read_bytes() == figure_bytes(figure, name[-3:])
    assert path.read_bytes().startswith(magic)
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_figure_is_the_same_file(tmp_path: Path) -> None:
    files = []
    for name in ("a.png", "b.png"):
        figure = new_figure(2, 2)
        plot_bands(figure.subplots(), X, prediction())
        files.append(save_figure(figure, tmp_path / name, colors=256).read_bytes())
    assert files[0] == files[1]


def test_a_palette_makes_a_smaller_file_of_the_same_size_in_pixels(tmp_path: Path) -> None:
    from PIL import Image

    figure = new_figure(4, 3)
    plot_bands(figure.subplots(), X, prediction())
    full = save_figure(figure, tmp_path / "full.png")
    few = save_figure(figure, tmp_path / "few.png", colors=64)
    assert few.stat().st_size < full.stat().st_size
    with Image.open(full) as one, Image.open(few) as other:
        assert one.size == other.size == (600, 450)
        assert other.mode == "P"
    with pytest.raises(ValueError, match="from 2 to 256"):
        save_figure(figure, tmp_path / "few.png", colors=1)


def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "a.png"
    old.write_text("old")

    def fail(self: Path, target: Path) -> None:
        raise OSError("no")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no"):
        save_figure(new_figure(2, 2), old)
    assert old.read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    for path, message in (
        (tmp_path / "a.jpg", r"\.png, \.pdf or \.svg"),
        (tmp_path / "a", r"\.png, \.pdf or \.svg"),
        (tmp_path / "none" / "a.png", "mkdir -p"),
        (tmp_path / "folder.png", "not a folder"),
    ):
        with pytest.raises(ValueError, match=message):
            check_picture_path(path)
    assert check_picture_path("a.png") == Path("a.png")


def test_a_folder_without_write_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(ValueError, match="written to"):
        check_picture_path(tmp_path / "a.png")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"\.\[plot\]"):
        new_figure(2, 2)


def test_the_bytes_of_a_figure_are_of_a_known_kind() -> None:
    with pytest.raises(ValueError, match="figure_bytes: `kind` must be one of png, pdf, svg; got 'gif'"):
        figure_bytes(new_figure(2, 2), "gif")
