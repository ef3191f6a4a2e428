"""U-Net: convolutions of falling and rising size, a class for every pixel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import nn

from bayesdrop.errors import LARGEST_WIDTH, is_one_of, layer_widths, must, must_be_flag, whole_number
from bayesdrop.models.noise import NoiseMaker
from bayesdrop.models.shapes import UShape

__all__ = ["unet"]


def unet(
    num_classes: int,
    *,
    channels: Sequence[int] = (64, 128, 256, 512, 1024),
    in_channels: int = 3,
    batch_norm: bool = True,
    p: float = 0.2,
    where: Literal["all", "middle"] = "all",
    elementwise: bool = False,
    layer: Callable[..., nn.Module] | None = None,
    noise: Callable[..., nn.Module] | None = None,
    **options: Any,
) -> UShape:
    """Segmentation network whose levels on the way down are concatenated on the way up.

        block  two times [convolution 3 x 3 - (BatchNorm) - ReLU], then dropout
        down   max-pool 2;      up   transposed convolution 3 x 3, stride 2, cut to the level's size

    Convolutions are padded, so that outputs are as large as images.

    Args:
        num_classes: outputs of a pixel: logits, or any numbers.
        channels: of the blocks of every level, the last being the middle.
        in_channels: of the images.
        batch_norm: BatchNorm after every convolution of a block.
        p: chance of dropping.
        where: noise in "all" blocks, or in the "middle" alone.
        elementwise: every pixel has its own noise (`nn.Dropout`) instead of whole channels
            (`nn.Dropout2d`); `layer` and `noise` get the option.
        layer: makes a stochastic layer from (convolution, p, **options), as `bd.ConcreteDropout`, around the
            second convolution of a block: noise on its weights instead of dropout after it.
        noise: makes a module from (channels, p, **options), as `bd.layers.ConcreteNoise`, which replaces
            dropout.
        options: of `layer` or `noise`.

    Shape: (N, in_channels, H, W) -> (N, num_classes, H, W); H and W of any size that can be halved
    len(channels) - 1 times.
    Reference: Ronneberger, Fischer & Brox (2015).

    >>> import torch
    >>> unet(2, channels=(8, 16), in_channels=1)(torch.zeros(1, 1, 17, 20)).shape
    torch.Size([1, 2, 17, 20])
    """
    owner = "unet"
    widths = layer_widths(owner, channels, "channels")
    if len(widths) < 2:
        raise ValueError(must(owner, "channels", "those of at least two levels", channels))
    if not is_one_of(where, ("all", "middle")):
        raise ValueError(must(owner, "where", "'all' or 'middle'", where))
    must_be_flag(owner, batch_norm=batch_norm, elementwise=elementwise)
    if elementwise and (layer is not None or noise is not None):
        options["elementwise"] = True
    num_classes = whole_number(owner, "num_classes", num_classes, at_least=1, at_most=LARGEST_WIDTH)
    before = whole_number(owner, "in_channels", in_channels, at_least=1, at_most=LARGEST_WIDTH)
    maker = NoiseMaker(owner, p, layer, noise, nn.Dropout if elementwise else nn.Dropout2d, options)
    outside = maker if where == "all" else None
    down = nn.ModuleList()
    for width in widths[:-1]:
        down.append(_block(before, width, batch_norm, outside))
        before = width
    middle = _block(before, widths[-1], batch_norm, maker)
    before = widths[-1]
    grow, up = nn.ModuleList(), nn.ModuleList()
    for width in widths[-2::-1]:
        grow.append(nn.ConvTranspose2d(before, width, 3, stride=2))
        up.append(_block(2 * width, width, batch_norm, outside))
        before = width
    pools = nn.ModuleList([nn.MaxPool2d(2) for _ in down])
    return UShape(nn.Identity(), down, pools, middle, grow, up, nn.Conv2d(before, num_classes, 1))


def _block(inputs: int, outputs: int, batch_norm: bool, maker: NoiseMaker | None) -> nn.Sequential:
    parts: list[nn.Module] = []
    for place, width in enumerate((inputs, outputs)):
        convolution = nn.Conv2d(width, outputs, 3, padding=1)
        nn.init.kaiming_uniform_(convolution.weight, nonlinearity="relu")
        assert convolution.bias is not None
        nn.init.zeros_(convolution.bias)
        parts.append(convolution if maker is None or place == 0 else maker.wrapped(convolution))
        parts += [*([nn.BatchNorm2d(outputs)] if batch_norm else []), nn.ReLU()]
    return nn.Sequential(*parts, *([] if maker is None else maker.module(outputs)))
