"""Random crops and flips of training images, a new one for each image."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bayesdrop.errors import is_one_of, must, real_number, whole_number
from bayesdrop.fit.data import Batches, TrainingBatch, WrappedBatches
from bayesdrop.inputs import num_rows

__all__ = ["Augment", "Augmented", "RandomCrop", "RandomFlip", "checked_augment"]

#: from a batch and a seeded generator to a batch of as many rows
Augment = Callable[[Any, Tensor, torch.Generator], TrainingBatch]


@dataclass(frozen=True)
class RandomFlip:
    """Mirror every image, and its label map if there is one, with probability `p`.

    Args:
        p: the probability, in [0, 1].
        direction: "horizontal" swaps left and right, "vertical" top and bottom.

    >>> flip = RandomFlip(p=1.0)
    >>> flip(torch.tensor([[[[1, 2], [3, 4]]]]), torch.tensor([5]), torch.Generator())[0].tolist()
    [[[[2, 1], [4, 3]]]]
    """

    p: float = 0.5
    direction: Literal["horizontal", "vertical"] = "horizontal"

    def __post_init__(self) -> None:
        real_number("RandomFlip", "p", self.p, "in [0, 1]", at_least=0, at_most=1)
        if not is_one_of(self.direction, ("horizontal", "vertical")):
            raise ValueError(must("RandomFlip", "direction", "'horizontal' or 'vertical'", self.direction))

    def __call__(self, x: Any, y: Tensor, generator: torch.Generator) -> TrainingBatch:
        """Images (N, ..., H, W), and labels (N,) or label maps (N, ..., H, W)."""
        has_maps = _has_maps("RandomFlip", x, y)
        chosen = torch.rand(x.shape[0], generator=generator) < self.p
        axis = -1 if self.direction == "horizontal" else -2
        return _flipped(x, chosen, axis), _flipped(y, chosen, axis) if has_maps else y


@dataclass(frozen=True)
class RandomCrop:
    """Cut a window out of every image at a random place, and the same window out of its label map.

    Args:
        size: height and width of the window, or one number for both.
        padding: pixels added on every side first.
        fill: value of the added pixels.
        label_fill: label of the added pixels in label maps, as the void label. Must be given if label maps
            are padded.
    """

    size: int | tuple[int, int]
    padding: int = 0
    fill: float = 0.0
    label_fill: float | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.size, tuple) and len(self.size) == 2):
            whole_number("RandomCrop", "size", self.size, at_least=1)
            object.__setattr__(self, "size", (self.size, self.size))
        for side in self._window:
            whole_number("RandomCrop", "size", side, at_least=1)
        whole_number("RandomCrop", "padding", self.padding, at_least=0)

    @property
    def _window(self) -> tuple[int, int]:
        assert isinstance(self.size, tuple)
        return self.size

    def __call__(self, x: Any, y: Tensor, generator: torch.Generator) -> TrainingBatch:
        """Images (N, ..., H, W), and labels (N,) or label maps (N, ..., H, W)."""
        has_maps = _has_maps("RandomCrop", x, y)
        height, width = self._window
        down, across = (length + 2 * self.padding for length in x.shape[-2:])
        if down < height or across < width:
            got = f"images of {tuple(x.shape[-2:])} pixels with padding {self.padding}"
            raise ValueError(
                must("RandomCrop", "size", "at most the padded image's", self._window, f"For {got}.")
            )
        if has_maps and self.padding and self.label_fill is None:
            hint = "The label of void, as of Categorical(ignore_index=...)."
            raise ValueError(
                must("RandomCrop", "label_fill", "a label, where label maps are padded", None, hint)
            )
        tops = torch.randint(down - height + 1, (x.shape[0],), generator=generator).tolist()
        lefts = torch.randint(across - width + 1, (x.shape[0],), generator=generator).tolist()

        def cut(maps: Tensor, fill: float) -> Tensor:
            if self.padding:
                maps = F.pad(maps, [self.padding] * 4, value=fill)
            windows = [
                image[..., top : top + height, left : left + width]
                for image, top, left in zip(maps, tops, lefts, strict=True)
            ]
            return torch.stack(windows)

        return cut(x, self.fill), cut(y, self.label_fill or 0) if has_maps else y


def _has_maps(owner: str, x: Any, y: Tensor) -> bool:
    """Whether the targets are label maps, of as many pixels as the images; raise if neither fits."""
    if not isinstance(x, Tensor) or x.dim() < 3:
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x)
        raise TypeError(must(owner, "x", "images, (N, C, H, W)", got))
    if y.dim() < 3:
        return False
    if y.shape[-2:] != x.shape[-2:]:
        want = f"labels (N,), or label maps of {tuple(x.shape[-2:])} pixels as the images"
        raise ValueError(must(owner, "y", want, tuple(y.shape)))
    return True


def _flipped(maps: Tensor, chosen: Tensor, axis: int) -> Tensor:
    one_a_row = chosen.to(maps.device).reshape(-1, *[1] * (maps.dim() - 1))
    return torch.where(one_a_row, maps.flip(axis), maps)


def checked_augment(augment: Any) -> tuple[Augment, ...]:
    """The argument `augment` of `fit` as a tuple of functions."""
    steps = tuple(augment) if isinstance(augment, Sequence) and not isinstance(augment, str) else (augment,)
    if not steps or not all(callable(step) for step in steps):
        want = "a function of (x, y, generator), as RandomFlip(), a sequence of such, or None"
        raise TypeError(must("fit", "augment", want, augment))
    return steps


class Augmented(WrappedBatches):
    """Training minibatches, changed by random numbers that depend on (seed, epoch, minibatch) alone.

    Args:
        batches: the minibatches; those of `in_order` are not changed.
        steps: the functions that change them, one after another.
        seed: of the run.
    """

    def __init__(self, batches: Batches, steps: tuple[Augment, ...], seed: int) -> None:
        super().__init__(batches)
        self._steps, self._seed = steps, seed

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        for place, batch in enumerate(self._batches.epoch(epoch)):
            # The spawn key makes these numbers independent of those for the order of rows.
            key = np.random.SeedSequence((self._seed, epoch, place), spawn_key=(1,))
            generator = torch.Generator().manual_seed(int(key.generate_state(1, np.uint64)[0]) >> 1)
            x, y = batch
            for step in self._steps:
                x, y = _checked(step(x, y, generator), y.shape[0])
            yield x, y

    def description(self) -> dict[str, Any]:
        names = [
            repr(step) if isinstance(step, RandomCrop | RandomFlip) else _name(step) for step in self._steps
        ]
        return {**super().description(), "augment": names}


def _checked(batch: Any, rows: int) -> TrainingBatch:
    is_pair = isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], Tensor)
    if not is_pair:
        raise TypeError(must("fit", "augment", "a function that gives (x, y)", type(batch)))
    found = {num_rows(batch[0], "fit"), batch[1].shape[0]}
    if found != {rows}:
        raise ValueError(must("fit", "augment", f"a function that keeps the {rows} rows", sorted(found)))
    return batch[0], batch[1]


def _name(step: Any) -> str:
    return str(getattr(step, "__qualname__", type(step).__qualname__))
