"""Noise keyed by (seed, site, draw): the same in whatever order it is made, and cheap for many draws."""

from __future__ import annotations

import hashlib
import math
import threading
from typing import Any, Protocol, TypeGuard

import numpy as np
import torch
from torch import Tensor

__all__ = ["RESOLUTION", "NoiseSource", "Sampler", "block_size", "threshold_and_scale"]

#: a mask compares words of 32 bits with its rate
RESOLUTION = 2**32


def threshold_and_scale(p: Tensor, *, scaled: bool = True) -> tuple[Any, Any]:
    """The smallest 32-bit word that keeps a unit, and 1 / (1 - p), in single precision unless p is double."""
    kind: Any = np.float64 if p.dtype == torch.float64 else np.float32
    if p.dim() == 0:
        # Python numbers: arrays of no dimension take ten times as long.
        rate = p.item()
        keep = kind(1) - kind(rate)
        scale = kind(1) / keep if scaled and keep > 0 else kind(keep > 0)
        return np.uint32(min(round(rate * RESOLUTION), RESOLUTION - 1)), scale
    rates = p.detach().cpu().to(torch.float64).numpy()
    words = np.minimum(np.rint(rates * RESOLUTION), RESOLUTION - 1).astype(np.uint32)
    keeps = (1 - rates).astype(kind)
    if not scaled:
        return words, (keeps > 0).astype(kind)
    return words, np.divide(kind(1), keeps, out=np.zeros_like(keeps), where=keeps > 0)


class Sampler(Protocol):
    """Makes noise of a shape on the CPU; leading axes beyond the site's own are independent draws.

    A `bayesdrop.noise.samplers.Noise` also knows its mean and variance, which prediction without draws
    needs. A `KeepNoise`, whose `is_mask` is true, is not called: `NoiseSource` makes its masks itself. Nor is
    one whose `is_fixed` is true: its noise depends on the number of a draw alone.
    """

    def __call__(self, shape: tuple[int, ...], generator: np.random.Generator, /) -> Tensor: ...


class _Mask(Sampler, Protocol):
    is_mask: bool
    p: Tensor
    start: int | None
    tiled: bool


def _is_mask(sample: Sampler) -> TypeGuard[_Mask]:
    return getattr(sample, "is_mask", False)


class _Fixed(Sampler, Protocol):
    def of_draws(self, draws: range, shape: tuple[int, ...]) -> Tensor: ...


def _is_fixed(sample: Sampler) -> TypeGuard[_Fixed]:
    return getattr(sample, "is_fixed", False)


_BLOCK_ELEMENTS = 16384
_BLOCK_DRAWS = 256
#: positions of a tile of attention noise
_TILE = 32


def block_size(shape: tuple[int, ...]) -> int:
    """How many consecutive draws of a site come from one generator.

    Seeding a generator costs as much as a thousand random numbers, so small masks are made for many draws
    at once. The number depends on the shape alone, never on how many draws are wanted.
    """
    return max(1, min(_BLOCK_DRAWS, _BLOCK_ELEMENTS // max(1, math.prod(shape))))


class NoiseSource:
    """All noise of one seed: `rows` gives any draws of any site, in any order.

    Args:
        seed: names the sequence of functions.
        most: how many draws will probably be wanted; later ones are made only when they are.
        once: single draws are wanted, not their neighbours: a mask is made for one draw at a time.
    """

    def __init__(self, seed: int, *, most: int | None = None, once: bool = False) -> None:
        self.seed = seed
        self._once = once
        self._most = most
        self._latest: dict[tuple[str, tuple[int, ...]], tuple[int, Tensor]] = {}

    def rows(self, site: str, first: int, count: int, shape: tuple[int, ...], sample: Sampler) -> Tensor:
        """Noise of draws first, ..., first + count - 1. Shape (count, *shape), on the CPU."""
        if _is_fixed(sample):
            return sample.of_draws(range(first, first + count), shape)
        if _is_mask(sample) and sample.start is not None:
            return self._positions(site, first, count, shape, sample)
        size = block_size(shape)
        blocks = range(first // size, (first + count - 1) // size + 1)
        if self._once and count == 1 and _is_mask(sample) and sample.p.dim() == 0:
            return self._one_mask(site, first, shape, sample)
        if len(blocks) > 1 and _is_mask(sample) and sample.p.dim() == 0:
            return self._masks(site, blocks, first, count, shape, sample)
        parts = []
        for block in blocks:
            start = max(first - block * size, 0)
            stop = min(first + count - block * size, size)
            parts.append(self._block(site, block, size, stop, shape, sample)[start:stop])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _one_mask(self, site: str, draw: int, shape: tuple[int, ...], sample: _Mask) -> Tensor:
        """The mask of one draw, (1, *shape), from its place in its block."""
        block, place = divmod(draw, block_size(shape))
        elements = math.prod(shape)
        threshold, scale = threshold_and_scale(sample.p)
        words = self._words(site, block, (place + 1) * elements)[place * elements :]
        return torch.from_numpy(np.multiply(words >= threshold, scale).reshape(1, *shape))

    def chosen(self, site: str, draws: tuple[int, ...], shape: tuple[int, ...], sample: Sampler) -> Tensor:
        """Noise of some draws, in their order. Shape (len(draws), *shape), on the CPU."""
        first, count = min(draws), len(draws)
        if draws == tuple(range(first, first + count)):
            return self.rows(site, first, count, shape, sample)
        made = {draw: self.rows(site, draw, 1, shape, sample)[0] for draw in sorted(set(draws))}
        return torch.stack([made[draw] for draw in draws])

    def _masks(
        self, site: str, blocks: range, first: int, count: int, shape: tuple[int, ...], sample: _Mask
    ) -> Tensor:
        """Masks of several blocks: whole blocks go straight to where they belong."""
        size, elements = block_size(shape), math.prod(shape)
        threshold, scale = threshold_and_scale(sample.p)
        masks = np.empty((count, elements), scale.dtype)
        for block in blocks:
            start = max(first - block * size, 0)
            stop = min(first + count - block * size, size)
            place = masks[block * size + start - first : block * size + stop - first]
            if start == 0 and stop == self._made(block, size):
                words = self._words(site, block, stop * elements)
                np.multiply((words >= threshold).reshape(place.shape), scale, out=place)
            else:
                # The rest of the block may be wanted next: keep it.
                kept = self._block(site, block, size, stop, shape, sample)[start:stop]
                place[:] = kept.reshape(place.shape).numpy()
        return torch.from_numpy(masks.reshape(count, *shape))

    def _block(
        self, site: str, block: int, size: int, stop: int, shape: tuple[int, ...], sample: Sampler
    ) -> Tensor:
        """At least the first `stop` draws of a block."""
        latest = self._latest.get((site, shape))
        if latest is not None and latest[0] == block and latest[1].shape[0] >= stop:
            return latest[1]
        if _is_mask(sample) and sample.p.dim() == 0:
            made = self._made(block, size)
            made = made if stop <= made else size
            threshold, scale = threshold_and_scale(sample.p)
            words = self._words(site, block, made * math.prod(shape)).reshape(made, *shape)
            noise = torch.from_numpy(np.multiply(words >= threshold, scale))
        else:
            noise = sample((size, *shape), self.generator(site, block))
        # A loop over draws uses a block of one draw once: keeping it would only hold memory.
        if size > 1:
            self._latest[site, shape] = (block, noise)
        return noise

    def _positions(self, site: str, first: int, count: int, shape: tuple[int, ...], sample: _Mask) -> Tensor:
        """Masks in which the part of a position does not depend on how many positions there are.

        Of shape (positions, units) and an axis of length one for the rows: word after word, from the first
        position. Of shape (1, heads, positions, positions): in tiles, each from its own generator.
        """
        threshold, scale = threshold_and_scale(sample.p)
        start, elements = sample.start or 0, math.prod(shape)
        if sample.tiled:
            part = (math.prod(shape[:-2]), *shape[-2:])
            kept = np.stack(
                [
                    self._tiled(f"{site}/draw{draw}", part, start, threshold)
                    for draw in range(first, first + count)
                ]
            )
        else:
            skipped = start * shape[-1]
            words = np.empty((count, elements), np.uint32)
            for place in range(count):
                words[place] = self._words(f"{site}/draw{first + place}", 0, skipped + elements)[skipped:]
            kept = words >= threshold
        return torch.from_numpy(np.multiply(kept, scale).reshape(count, *shape))

    def _tiled(self, name: str, shape: tuple[int, ...], start: int, threshold: Any) -> Any:
        """Which of (heads, queries, keys) are kept, queries being counted from `start`."""
        heads, queries, keys = shape
        above, below, right = start // _TILE, -(-(start + queries) // _TILE), -(-keys // _TILE)
        kept = np.empty((heads, (below - above) * _TILE, right * _TILE), np.bool_)
        for row in range(above, below):
            for column in range(right):
                words = self._words(f"{name}/{row}", column, heads * _TILE * _TILE)
                down, across = (row - above) * _TILE, column * _TILE
                tile = words.reshape(heads, _TILE, _TILE) >= threshold
                kept[:, down : down + _TILE, across : across + _TILE] = tile
        offset = start - above * _TILE
        return kept[:, offset : offset + queries, :keys]

    def _made(self, block: int, size: int) -> int:
        """How many draws of a block to make. The first need no later ones: words come draw after draw."""
        if self._most is None:
            return size
        left = self._most - block * size
        return left if 0 < left < size else size

    def _words(self, site: str, block: int, count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """The first random words of a block, as `keep_mask` reads them."""
        bits = self.generator(site, block).bit_generator
        return bits.random_raw((count + 1) // 2).view(np.uint32)[:count]

    def generator(self, site: str, block: int) -> np.random.Generator:
        """The generator of a block of a site, in its first state. The next call resets the same generator."""
        return _generator.seeded(self._key(site, block))

    def _key(self, site: str, block: int) -> bytes:
        return hashlib.blake2b(f"{self.seed}/{site}/{block}".encode(), digest_size=24).digest()


_ONE = np.uint64(1).tobytes()


class _Generator(threading.local):
    """One generator for each thread, whose state is set before every use: making a new one takes longer."""

    def __init__(self) -> None:
        self._bits = np.random.SFC64(0)
        self._generator = np.random.Generator(self._bits)
        self._state = self._bits.state

    def seeded(self, key: bytes) -> np.random.Generator:
        """The generator, its state set to the three words of a cryptographic hash and SFC64's counter."""
        self._state["state"]["state"] = np.frombuffer(key + _ONE, np.uint64)
        self._bits.state = self._state
        return self._generator


_generator = _Generator()
