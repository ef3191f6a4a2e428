"""Frames of CamVid at a fraction of their resolution."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesdrop.data import load_camvid
from bayesdrop.data.camvid import CAMVID_CLASSES

__all__ = ["as_inputs", "averaged", "commonest", "load_frames"]

#: mean and standard deviation of red, green and blue over the training frames
_MEAN, _STD = (0.4116, 0.4255, 0.4321), (0.2976, 0.3015, 0.2976)
#: how many labels there are: the classes and void
_LABELS = len(CAMVID_CLASSES) + 1


@lru_cache(maxsize=6)
def load_frames(part: Literal["train", "val", "test"], shrink: int) -> tuple[Tensor, Tensor]:
    """Frames (N, 3, H, W) and labels (N, H, W), both bytes, with H = 360 / shrink and W = 480 / shrink.

    They are kept for the next call: do not change them.

    Args:
        part: of the set.
        shrink: squares of so many pixels a side become one pixel.
    """
    data = load_camvid(part)
    if shrink == 1:
        return data.x, data.y
    frames = [averaged(some, shrink) for some in torch.split(data.x, 16)]
    labels = [commonest(some, shrink) for some in torch.split(data.y, 16)]
    return torch.cat(frames), torch.cat(labels)


def averaged(images: Tensor, size: int) -> Tensor:
    """The mean colour of every size x size square of pixels, to the nearest byte.

    (N, C, H, W) -> (N, C, H / size, W / size).
    """
    return F.avg_pool2d(images.float(), size).round().to(torch.uint8)


def commonest(labels: Tensor, size: int) -> Tensor:
    """The label that most pixels of every size x size square have; void is counted as a label, too.

    Where several are as common, it is the first. (N, H, W) -> (N, H / size, W / size), bytes.
    """
    rows, height, width = labels.shape
    squares = labels.long().reshape(rows, height // size, size, width // size, size).movedim(2, 3).flatten(3)
    counts = torch.zeros(*squares.shape[:3], _LABELS, dtype=torch.int16)
    counts.scatter_add_(3, squares, torch.ones_like(squares, dtype=torch.int16))
    return counts.argmax(3).to(torch.uint8)


def as_inputs(frames: Tensor) -> Tensor:
    """Frames of bytes as inputs of the same shape, standardised colour by colour."""
    mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in (_MEAN, _STD))
    return (frames.float() / 255 - mean) / std
