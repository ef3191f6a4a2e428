"""Modules of image networks: dense blocks, and the shape of a U."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["DenseBlock", "UShape"]


class DenseBlock(nn.Sequential):
    """Layers whose input is the block's input and the outputs of all layers before, concatenated.

    Args:
        layers: each from (N, C, H, W), of growing C, to (N, growth, H, W).
        keep_input: whether the output is the input and the new features, or the new features alone.

    Shape: (N, C, H, W) -> (N, C + layers x growth, H, W), or (N, layers x growth, H, W).
    """

    #: rows are on axis 0 everywhere, and training mode changes nothing: draws need not study the module
    keeps_rows = True

    def __init__(self, *layers: nn.Module, keep_input: bool = True) -> None:
        super().__init__(*layers)
        self.keep_input = keep_input

    def forward(self, x: Tensor) -> Tensor:
        """The features of all layers, concatenated."""
        new: list[Tensor] = []
        for layer in self:
            new.append(layer(torch.cat([x, *new], 1) if new else x))
        return torch.cat([x, *new] if self.keep_input else new, 1)


class UShape(nn.Module):
    """Levels of falling and rising size; those on the way down are concatenated to those on the way up.

        first, then for each level: down, shrink; middle; then for each level, backwards: grow, up; last

    Maps that are too large on the way up are cut to the size of their level, around the centre, so that the
    sides of images need not halve evenly.

    Args:
        first: from images to features.
        down: a block for each level, from the largest.
        shrink: modules that halve the size after each of these blocks.
        middle: the block of the smallest level.
        grow: modules that double the size, from the smallest level.
        up: a block for each level, from the smallest.
        last: from features to outputs.
    """

    #: as in `DenseBlock`
    keeps_rows = True

    def __init__(
        self,
        first: nn.Module,
        down: nn.ModuleList,
        shrink: nn.ModuleList,
        middle: nn.Module,
        grow: nn.ModuleList,
        up: nn.ModuleList,
        last: nn.Module,
    ) -> None:
        super().__init__()
        self.first = first
        self.down = down
        self.shrink = shrink
        self.middle = middle
        self.grow = grow
        self.up = up
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, outputs, H, W)."""
        x = self.first(x)
        levels: list[Tensor] = []
        for block, shrink in zip(self.down, self.shrink, strict=True):
            levels.append(block(x))
            x = shrink(levels[-1])
        x = self.middle(x)
        for grow, block in zip(self.grow, self.up, strict=True):
            level = levels.pop()
            x = block(torch.cat([_cut(grow(x), level), level], 1))
        out: Tensor = self.last(x)
        return out


def _cut(x: Tensor, like: Tensor) -> Tensor:
    """The centre of `x`, of the height and width of `like`."""
    height, width = like.shape[-2:]
    top, left = (x.shape[-2] - height) // 2, (x.shape[-1] - width) // 2
    return x[..., top : top + height, left : left + width]
