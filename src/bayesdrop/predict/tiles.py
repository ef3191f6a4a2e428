"""Large images: tiles that overlap, each passed through the same functions, and put together again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bayesdrop.errors import must, whole_number
from bayesdrop.inputs import Inputs
from bayesdrop.likelihoods import HeteroscedasticGaussian, Likelihood, SoftmaxLikelihood

__all__ = ["Tile", "Tiling", "cut", "image_size", "map_axes", "pixels_are_last"]

#: tiles start at multiples of a power of two, up to this one: poolings of tiles are then those of the image
_ALIGNED = 64


@dataclass(frozen=True)
class _Span:
    """A tile along one axis: what the model sees, and what is kept of it."""

    start: int
    stop: int
    first: int
    last: int

    @property
    def kept(self) -> slice:
        """What is kept, counted from the tile's own start."""
        return slice(self.first - self.start, self.last - self.start)

    @property
    def place(self) -> slice:
        """Where that is in the image."""
        return slice(self.first, self.last)


@dataclass(frozen=True)
class Tile:
    """A part of an image: what the model sees of it, and which of that is kept."""

    down: _Span
    across: _Span

    @property
    def window(self) -> tuple[int, int, int, int]:
        """Top, left, height and width of what the model sees."""
        return (
            self.down.start,
            self.across.start,
            self.down.stop - self.down.start,
            self.across.stop - self.across.start,
        )

    def seen(self, x: Inputs) -> Inputs:
        """What the model sees of a batch."""

        def window(part: Any) -> Any:
            if not _is_image(part):
                return part
            down, across = slice(self.down.start, self.down.stop), slice(self.across.start, self.across.stop)
            return part[..., down, across].contiguous()

        if isinstance(x, Mapping):
            return {name: window(part) for name, part in x.items()}
        if isinstance(x, tuple | list):
            return tuple(window(part) for part in x)
        image: Tensor = window(x)
        return image

    def kept(self, outputs: Tensor, axes: tuple[int, int]) -> Tensor:
        """What is kept of maps of the tile."""
        return cut(outputs, axes, self.down.kept, self.across.kept)

    def targets(self, y: Tensor | None) -> Tensor | None:
        """Those of the pixels that are kept."""
        if y is None:
            return None
        return y[..., self.down.place, self.across.place]


class Tiling:
    """How images are cut into tiles.

    Neighbours share at least `overlap` pixels, and each gives the half of them that is farther from its edge.
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
        height, width = image_size(x)
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


def image_size(x: Inputs) -> tuple[int, int]:
    """Height and width of the images among the inputs."""
    parts = (x,) if isinstance(x, Tensor) else x.values() if isinstance(x, Mapping) else x
    sizes = {tuple(part.shape[-2:]) for part in parts if _is_image(part)}
    if len(sizes) != 1:
        got = f"images of sizes {sorted(sizes)}" if sizes else "none"
        raise ValueError(must("predict", "x", "images (N, C, H, W) of one size, to cut into tiles", got))
    height, width = sizes.pop()
    return height, width


def map_axes(shape: tuple[int, ...], size: tuple[int, int], *, last: bool) -> tuple[int, int]:
    """The two axes of an output (N, ...) that are the pixels' rows and columns, counted from the end.

    Args:
        shape: of the output.
        size: height and width of the tile that the model saw.
        last: whether they are the last two; else the two after the rows.
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


def pixels_are_last(likelihood: Likelihood | None, shape: tuple[int, ...]) -> bool:
    """Whether an output (N, ...) has its pixels on the last axes, and not its classes or numbers."""
    if isinstance(likelihood, SoftmaxLikelihood):
        return likelihood.axis_in(shape) != len(shape) - 1
    return not isinstance(likelihood, HeteroscedasticGaussian)


def cut(maps: Tensor, axes: tuple[int, int], down: slice, across: slice) -> Tensor:
    """Some rows and columns of maps, whose pixels are on the given axes."""
    index: list[slice] = [slice(None)] * maps.dim()
    index[axes[0]], index[axes[1]] = down, across
    return maps[tuple(index)]
