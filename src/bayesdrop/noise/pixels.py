"""Noise for images that are predicted tile by tile: that of a pixel depends on its place in the image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bayesdrop.noise.source import NoiseSource, Sampler

__all__ = ["PixelNoise", "PixelSource"]

#: pixels on a side of the squares that noise is made in
_SIDE = 32


@dataclass(frozen=True)
class PixelNoise:
    """Noise that differs from pixel to pixel of a map (..., H, W)."""

    sample: Sampler

    def __call__(self, shape: tuple[int, ...], generator: np.random.Generator, /) -> Tensor:
        """The noise of the sampler inside."""
        return self.sample(shape, generator)


class PixelSource(NoiseSource):
    """All noise of one seed, for a window of an image.

    Noise of weights and channels does not depend on the window and is that of `NoiseSource`. Noise of pixels
    is made in squares of pixels, each from its own generator, so that two windows have the same noise where
    they overlap. A smaller map, as after pooling, has squares of its own pixels.
    """

    #: top, left, height and width, in pixels of the image; None for the whole image
    window: tuple[int, int, int, int] | None = None

    def __init__(self, seed: int, *, most: int | None = None) -> None:
        super().__init__(seed, most=most)
        #: pixels of the image that one pixel of a site's map stands for, down and across; found in the first
        #: window, as later ones may be of sizes that do not divide
        self._scales: dict[str, tuple[float, float]] = {}

    def rows(self, site: str, first: int, count: int, shape: tuple[int, ...], sample: Sampler) -> Tensor:
        """Noise of draws first, ..., first + count - 1. Shape (count, *shape), on the CPU."""
        if self.window is None or not isinstance(sample, PixelNoise):
            return super().rows(site, first, count, shape, sample)
        top, left, height, width = self.window
        if site not in self._scales:
            self._scales[site] = (_scale(height, shape[-2]), _scale(width, shape[-1]))
        down, across = (
            _origin(site, start, scale) for start, scale in zip((top, left), self._scales[site], strict=True)
        )
        return torch.stack(
            [
                self._of_window(f"{site}/draw{draw}", shape, (down, across), sample)
                for draw in range(first, first + count)
            ]
        )

    def _of_window(
        self, name: str, shape: tuple[int, ...], origin: tuple[int, int], sample: Sampler
    ) -> Tensor:
        """Noise of a window, from all squares that it touches."""
        (height, width), (top, left) = shape[-2:], origin
        noise = torch.empty(0)
        for row in range(top // _SIDE, -(-(top + height) // _SIDE)):
            for column in range(left // _SIDE, -(-(left + width) // _SIDE)):
                square = sample((*shape[:-2], _SIDE, _SIDE), self.generator(f"{name}/{row}", column))
                if not noise.numel():
                    noise = torch.empty(shape, dtype=square.dtype)
                down, of_square = _shared(top, height, row * _SIDE)
                across, of_column = _shared(left, width, column * _SIDE)
                noise[..., down, across] = square[..., of_square, of_column]
        return noise


def _shared(start: int, length: int, square: int) -> tuple[slice, slice]:
    """The overlap of a window and a square along one axis, as a slice of the window and one of the square."""
    low, high = max(start, square), min(start + length, square + _SIDE)
    return slice(low - start, high - start), slice(low - square, high - square)


def _scale(length: int, of_map: int) -> float:
    """Pixels of the image for one pixel of a map: 4 after two poolings, 1/2 for a map twice as large.

    Convolutions without padding leave a few pixels fewer, the same number in every window; hence `round`.
    """
    return float(round(length / of_map)) if of_map <= length else 1 / round(of_map / length)


def _origin(site: str, start: int, scale: float) -> int:
    place = start / scale
    if place != int(place):
        name = site.rpartition(":")[0] or site
        raise ValueError(
            f"predict: `tiles` less `overlap` must be a multiple of {scale:g} pixels, for which one pixel of "
            f"the map stands that is dropped out at {name!r}; got a tile that starts at pixel {start}."
        )
    return int(place)
