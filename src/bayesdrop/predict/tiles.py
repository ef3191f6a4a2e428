"""Large images, cut into overlapping tiles that pass through the same functions and are joined again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesdrop.errors import must, told_by, whole_number
from bayesdrop.inputs import Inputs, each_part, tensors_in
from bayesdrop.likelihoods import HeteroscedasticGaussian, Likelihood, SoftmaxLikelihood
from bayesdrop.noise import PixelSource
from bayesdrop.predict.ranks import Ranks
from bayesdrop.predict.sampler import DrawSampler
from bayesdrop.predict.statistics import ClassStatistics, DrawStatistics, Keeper, Statistics

__all__ = ["Stitcher", "Tile", "Tiling"]

#: tiles start at multiples of a power of two, at most this, so that poolings of tiles are those of the image
_ALIGNED = 64


@dataclass(frozen=True)
class _Span:
    """A tile along one axis: the model sees `start` to `stop`, and `first` to `last` of that is kept."""

    start: int
    stop: int
    first: int
    last: int

    @property
    def kept(self) -> slice:
        """The pixels that are kept, counted from the start of the tile."""
        return slice(self.first - self.start, self.last - self.start)

    @property
    def place(self) -> slice:
        """The pixels that are kept, counted from the start of the image."""
        return slice(self.first, self.last)


@dataclass(frozen=True)
class Tile:
    """A part of an image that the model sees, and the part of it that is kept."""

    down: _Span
    across: _Span

    @property
    def window(self) -> tuple[int, int, int, int]:
        """Top, left, height and width of the part that the model sees."""
        return (
            self.down.start,
            self.across.start,
            self.down.stop - self.down.start,
            self.across.stop - self.across.start,
        )

    def seen(self, x: Inputs) -> Inputs:
        """The part of a batch that the model sees."""

        def window(part: Any) -> Any:
            if not _is_image(part):
                return part
            down, across = slice(self.down.start, self.down.stop), slice(self.across.start, self.across.stop)
            return part[..., down, across].contiguous()

        return each_part(window, x)

    def kept(self, outputs: Tensor, axes: tuple[int, int]) -> Tensor:
        """The part of maps of the tile that is kept."""
        return _cut(outputs, axes, self.down.kept, self.across.kept)

    def targets(self, y: Tensor | None) -> Tensor | None:
        """The targets of the pixels that are kept."""
        if y is None:
            return None
        return y[..., self.down.place, self.across.place]


class Tiling:
    """How images are cut into tiles.

    Neighbours share at least `overlap` pixels; of each, the half that is farther from its edge is kept.
    All tiles start at multiples of the largest power of two (up to 64) that divides the distance from one to
    the next; the last ones reach to the edge of the image, and may be smaller by less than that.

    Args:
        size: height and width of a tile, or one number for both.
        overlap: pixels that neighbours share.
    """

    def __init__(self, size: int | tuple[int, int], overlap: int) -> None:
        sides = (size, size) if not isinstance(size, tuple | list) else tuple(size)
        if len(sides) != 2:
            raise ValueError(must("predict", "tiles", "a height and a width in pixels", size))
        height, width = (whole_number("predict", "tiles", side, at_least=1) for side in sides)
        most = min(height, width) - 1
        hint = "Tiles are larger than what they share."
        self.overlap = whole_number("predict", "overlap", overlap, at_least=0, at_most=most, hint=hint)
        self.size = (height, width)
        self.count = 0

    def over(self, x: Inputs, y: Tensor | None) -> list[Tile]:
        """The tiles of all images of a batch, row by row."""
        height, width = _image_size(x)
        if y is not None and tuple(y.shape[-2:]) != (height, width):
            raise ValueError(
                must("predict", "targets", f"maps of {height} x {width} pixels, as `x`", tuple(y.shape))
            )
        rows, columns = (
            list(_spans(length, side, self.overlap))
            for length, side in zip((height, width), self.size, strict=True)
        )
        self.count = len(rows) * len(columns)
        return [Tile(down, across) for down in rows for across in columns]

    def __str__(self) -> str:
        height, width = self.size
        return f"{self.count} tiles of {height} x {width} pixels an image, sharing {self.overlap}"


def _spans(length: int, size: int, overlap: int) -> Iterator[_Span]:
    if length <= size:
        yield _Span(0, length, 0, length)
        return
    step = size - overlap
    aligned = min(_ALIGNED, step & -step)
    starts = list(range(0, length - size, step))
    starts.append(-((size - length) // aligned) * aligned)
    stops = [*(start + size for start in starts[:-1]), length]
    middles = [(start + stop) // 2 for start, stop in zip(starts[1:], stops, strict=False)]
    for start, stop, first, end in zip(starts, stops, [0, *middles], [*middles, length], strict=True):
        yield _Span(start, stop, first, end)


def _is_image(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dim() >= 4


def _image_size(x: Inputs) -> tuple[int, int]:
    """Height and width of the images among the inputs."""
    sizes = {tuple(part.shape[-2:]) for part in tensors_in(x) if _is_image(part)}
    if len(sizes) != 1:
        got = f"images of sizes {sorted(sizes)}" if sizes else "none"
        raise ValueError(must("predict", "x", "images (N, C, H, W) of one size, to cut into tiles", got))
    height, width = sizes.pop()
    return height, width


def _map_axes(shape: tuple[int, ...], size: tuple[int, int], *, last: bool) -> tuple[int, int]:
    """The two axes of an output (N, ...) that are the pixels' rows and columns, counted from the end.

    Args:
        shape: of the output.
        size: height and width of the tile that the model saw.
        last: whether to expect them on the last two axes first, and not on the two after the rows.
    """
    places = [(-2, -1), (1 - len(shape), 2 - len(shape))]
    for places_of in places if last else places[::-1]:
        if len(shape) >= 3 and (shape[places_of[0]], shape[places_of[1]]) == size:
            return places_of
    hint = "It must work on images of any size, and give as many pixels as it takes."
    raise ValueError(
        must(
            "predict",
            "model",
            f"one that gives maps of {size[0]} x {size[1]} pixels for such tiles",
            shape,
            hint,
        )
    )


def _pixels_are_last(likelihood: Likelihood | None, shape: tuple[int, ...]) -> bool:
    """Whether an output (N, ...) has its pixels on the last axes, and not its classes or numbers."""
    if isinstance(likelihood, SoftmaxLikelihood):
        return likelihood.axis_in(shape) != len(shape) - 1
    return not isinstance(likelihood, HeteroscedasticGaussian)


def _cut(maps: Tensor, axes: tuple[int, int], down: slice, across: slice) -> Tensor:
    """Some rows and columns of maps, whose pixels are on the given axes."""
    index: list[slice] = [slice(None)] * maps.dim()
    index[axes[0]], index[axes[1]] = down, across
    return maps[tuple(index)]


# joining the tiles

_Axes = tuple[int, int]


@dataclass(frozen=True)
class Stitcher:
    """Runs all draws of every tile, and joins the tiles.

    Args:
        tiling: how images are cut.
        sampler: makes the draws.
        source: where the sampler's noise comes from.
        likelihood: what outputs mean.
        keeper: keeps the draws.
        ranks: the processes that share this prediction; None if there is one.
        advance: called with the number of draws that were done, for a progress bar.
        covariance: compute the covariance between the classes of a pixel, too.
    """

    tiling: Tiling
    sampler: DrawSampler
    source: PixelSource
    likelihood: Likelihood | None
    keeper: Keeper
    ranks: Ranks | None
    advance: Callable[[int, str], None]
    covariance: bool

    def batch(
        self, batch: Inputs, rows: int, offset: int, y: Tensor | None
    ) -> tuple[Statistics, list[float]]:
        """The statistics of a batch, and for every draw the log-probability of all targets together.

        Args:
            batch: images.
            rows: how many images.
            offset: number of the first image.
            y: label maps, if they are scored.
        """
        canvas = _Canvas(_image_size(batch))
        joint: list[float] = []
        for tile in self.tiling.over(batch, y):
            running, axes = self._drawn(tile, canvas, batch, rows, offset, y)
            if self.ranks is not None and self.ranks.share == "draws":
                self.ranks.merge_draws(running)
            # Without their class axis, maps of labels have their pixels on the last axes.
            is_softmax = isinstance(self.likelihood, SoftmaxLikelihood)
            canvas.put(tile, running.result(), axes, (-2, -1) if is_softmax else axes)
            joint = [a + b for a, b in zip(joint, running.joint, strict=True)] if joint else running.joint
        if canvas.draws is not None:
            self.keeper.add(canvas.draws)
        return canvas.result(), joint

    def _drawn(
        self, tile: Tile, canvas: _Canvas, batch: Inputs, rows: int, offset: int, y: Tensor | None
    ) -> tuple[DrawStatistics, _Axes]:
        """All draws of one tile, and the axes of its pixels."""
        self.source.window = tile.window
        running = DrawStatistics(self.likelihood, tile.targets(y), covariance=self.covariance)
        axes: _Axes = (-2, -1)
        for outputs in self.sampler.batch(tile.seen(batch), rows, offset):
            shape = tuple(outputs.shape[1:])
            axes = _map_axes(shape, tile.window[2:], last=_pixels_are_last(self.likelihood, shape))
            kept = tile.kept(outputs, axes)
            canvas.keep(tile, kept, running.count, axes, self.keeper, self.sampler.num_draws)
            with nullcontext() if y is None else told_by("predict", "targets"):
                running.update_many(kept)
            self.advance(outputs.shape[0], "")
        return running, axes


class _Canvas:
    """Maps of whole images, written tile by tile.

    Args:
        size: height and width.

    Attributes:
        draws: (T, N, ...) the outputs of all draws, if they are kept.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size
        self.draws: Tensor | None = None
        self._maps: dict[str, Tensor] = {}
        self._used: Tensor | None = None
        self._asked = False

    def put(self, tile: Tile, statistics: Statistics, axes: _Axes, of_labels: _Axes) -> None:
        """Write the statistics of a tile.

        Args:
            tile: the tile.
            statistics: of the pixels that are kept.
            axes: of the pixels in outputs.
            of_labels: of the pixels in maps with one value a label.
        """
        self._used = statistics.draws_used
        for name in ("mean", "epistemic", "aleatoric"):
            self._add(tile, name, getattr(statistics, name), axes)
        if statistics.log_prob is not None:
            self._add(tile, "log_prob", statistics.log_prob, of_labels)
        if statistics.covariance is not None:
            # (N, H, W, K, K): only classes have covariances in maps
            self._add(tile, "covariance", statistics.covariance, (1, 2))
        classes = statistics.classes
        if classes is not None:
            self._add(tile, "expected_entropy", classes.expected_entropy, of_labels)
            self._add(tile, "variation_ratio", classes.variation_ratio, of_labels)
            if classes.complement is not None:
                self._add(tile, "complement", classes.complement, of_labels)

    def keep(self, tile: Tile, outputs: Tensor, first: int, axes: _Axes, keeper: Keeper, total: int) -> None:
        """Write the outputs of some draws, from number `first` on, if draws are kept."""
        if not self._asked:
            self._asked = True
            shape = self._shape(outputs, axes)
            shape[0] = total
            if keeper.wants(torch.Size(shape).numel() * outputs.element_size()):
                self.draws = torch.empty(shape, dtype=outputs.dtype)
        if self.draws is not None:
            some = self.draws[first : first + outputs.shape[0]]
            _cut(some, axes, tile.down.place, tile.across.place).copy_(outputs)

    def _add(self, tile: Tile, name: str, value: Tensor, axes: _Axes) -> None:
        if name not in self._maps:
            self._maps[name] = torch.empty(self._shape(value, axes), dtype=value.dtype)
        _cut(self._maps[name], axes, tile.down.place, tile.across.place).copy_(value)

    def _shape(self, value: Tensor, axes: _Axes) -> list[int]:
        shape = list(value.shape)
        shape[axes[0]], shape[axes[1]] = self.size
        return shape

    def result(self) -> Statistics:
        """The statistics of whole images."""
        maps = self._maps
        assert self._used is not None
        classes = None
        if "expected_entropy" in maps:
            classes = ClassStatistics(
                expected_entropy=maps["expected_entropy"],
                variation_ratio=maps["variation_ratio"],
                complement=maps.get("complement"),
            )
        return Statistics(
            mean=maps["mean"],
            epistemic=maps["epistemic"],
            aleatoric=maps["aleatoric"],
            draws_used=self._used,
            classes=classes,
            log_prob=maps.get("log_prob"),
            covariance=maps.get("covariance"),
        )
