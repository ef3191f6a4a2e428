"""FC-DenseNet: dense blocks in the shape of a U, a class for every pixel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import nn

from bayesdrop.errors import LARGEST_WIDTH, is_one_of, layer_widths, must, must_be_flag, whole_number
from bayesdrop.models.noise import NoiseMaker
from bayesdrop.models.shapes import DenseBlock, UShape

__all__ = ["fc_densenet"]

#: number of layers of the blocks on the way down and of the middle; features that a layer adds
_PUBLISHED: dict[int, tuple[tuple[int, ...], int, int]] = {
    56: ((4, 4, 4, 4, 4), 4, 12),
    67: ((5, 5, 5, 5, 5), 5, 16),
    103: ((4, 5, 7, 10, 12), 15, 16),
}


def fc_densenet(
    depth: Literal[56, 67, 103] | None = None,
    num_classes: int = 11,
    *,
    blocks: Sequence[int] | None = None,
    middle: int | None = None,
    growth: int | None = None,
    first: int = 48,
    in_channels: int = 3,
    p: float = 0.2,
    where: Literal["all", "middle"] = "all",
    elementwise: bool = False,
    layer: Callable[..., nn.Module] | None = None,
    noise: Callable[..., nn.Module] | None = None,
    **options: Any,
) -> UShape:
    """Segmentation network of dense blocks, as in Jégou et al. (2017).

        layer            BatchNorm - ReLU - convolution 3 x 3 - dropout
        transition down  BatchNorm - ReLU - convolution 1 x 1 - dropout - max-pool 2
        transition up    transposed convolution 3 x 3, stride 2, of the *new* features of the block below

    The output of a block on the way down is its input and its new features; that of the middle and of the
    blocks on the way up, except the last, is the new features alone. Convolutions start as in He et al.,
    uniform.

    Args:
        depth: a published one: 103 (9.4 million parameters), 67 (3.5) or 56 (1.5); None to give `blocks`.
        num_classes: outputs of a pixel, logits.
        blocks: layers of the blocks on the way down; on the way up they are the same, backwards.
        middle: layers of the smallest level; None: as many as the last of `blocks`.
        growth: features that a layer adds; None: those of `depth`, or 12.
        first: features of the first convolution.
        in_channels: of the images.
        p: chance of dropping.
        where: noise in "all" layers and transitions down, or in the layers of the "middle" alone.
        elementwise: every pixel has its own noise (`nn.Dropout`), as in the first publication, instead of
            whole channels (`nn.Dropout2d`); `layer` and `noise` get the option.
        layer: makes a stochastic layer from (convolution, p, **options), as `bd.ConcreteDropout`: noise on
            the weights, that is on the *inputs* of a convolution, instead of dropout after it.
        noise: makes a module from (channels, p, **options), as `bd.layers.ConcreteNoise`, which replaces
            dropout.
        options: of `layer` or `noise`.

    Shape: (N, in_channels, H, W) -> (N, num_classes, H, W); H and W of any size that can be halved as often
    as there are blocks.
    Reference: Jégou et al. (2017), tables 1 and 2; Gal, Hron & Kendall (2017), section 4.4 (all layers);
    Boluki et al. (2020), section 3.2 (the middle).

    >>> net = fc_densenet(blocks=(2, 2), growth=4, first=8)
    >>> import torch
    >>> net(torch.zeros(1, 3, 18, 25)).shape
    torch.Size([1, 11, 18, 25])
    """
    owner = "fc_densenet"
    down, middle, growth = _plan(owner, depth, blocks, middle, growth)
    if not is_one_of(where, ("all", "middle")):
        raise ValueError(must(owner, "where", "'all' or 'middle'", where))
    must_be_flag(owner, elementwise=elementwise)
    if elementwise and (layer is not None or noise is not None):
        options["elementwise"] = True
    sizes = {"num_classes": num_classes, "first": first, "in_channels": in_channels}
    num_classes, first, in_channels = (
        whole_number(owner, name, value, at_least=1, at_most=LARGEST_WIDTH) for name, value in sizes.items()
    )
    maker = NoiseMaker(owner, p, layer, noise, nn.Dropout if elementwise else nn.Dropout2d, options)
    outside = maker if where == "all" else None
    width, levels = first, []
    way_down, shrink, grow, way_up = nn.ModuleList(), nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
    for count in down:
        way_down.append(_block(width, count, growth, outside, keep_input=True))
        width += count * growth
        levels.append(width)
        shrink.append(
            nn.Sequential(*_convolution(width, width, 1, outside), nn.MaxPool2d(2)),
        )
    bottom = _block(width, middle, growth, maker, keep_input=False)
    width = middle * growth
    for place, (count, level) in enumerate(zip(down[::-1], levels[::-1], strict=True)):
        grow.append(nn.ConvTranspose2d(width, width, 3, stride=2))
        is_last = place == len(down) - 1
        way_up.append(_block(width + level, count, growth, outside, keep_input=is_last))
        width = count * growth + (width + level if is_last else 0)
    start = nn.Conv2d(in_channels, first, 3, padding=1)
    net = UShape(start, way_down, shrink, bottom, grow, way_up, nn.Conv2d(width, num_classes, 1))
    for part in net.modules():
        if isinstance(part, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.kaiming_uniform_(part.weight, nonlinearity="relu")
            assert part.bias is not None
            nn.init.zeros_(part.bias)
    return net


def _plan(owner: str, depth: Any, blocks: Any, middle: Any, growth: Any) -> tuple[tuple[int, ...], int, int]:
    """Layers of the blocks down, of the middle, and the growth."""
    if (depth is None) == (blocks is None):
        want = f"one of {', '.join(map(str, _PUBLISHED))}, or None with `blocks`"
        raise ValueError(must(owner, "depth", want, depth))
    if depth is not None:
        known = _PUBLISHED.get(depth) if isinstance(depth, int) else None
        if known is None:
            want = f"one of {', '.join(map(str, _PUBLISHED))}"
            raise ValueError(must(owner, "depth", want, depth, "Give `blocks` and `growth` for others."))
        down, inside, added = known
    else:
        down = layer_widths(owner, blocks, "blocks")
        if not down:
            raise ValueError(must(owner, "blocks", "the layers of at least one block", blocks))
        inside, added = down[-1], 12
    if middle is not None:
        inside = whole_number(owner, "middle", middle, at_least=1, at_most=LARGEST_WIDTH)
    if growth is not None:
        added = whole_number(owner, "growth", growth, at_least=1, at_most=LARGEST_WIDTH)
    return down, inside, added


def _convolution(inputs: int, outputs: int, size: int, maker: NoiseMaker | None) -> list[nn.Module]:
    """BatchNorm, ReLU, convolution, and the noise on its weights or after it."""
    convolution = nn.Conv2d(inputs, outputs, size, padding=size // 2)
    parts: list[nn.Module] = [nn.BatchNorm2d(inputs), nn.ReLU()]
    if maker is None:
        return [*parts, convolution]
    return [*parts, maker.wrapped(convolution), *maker.module(outputs)]


def _block(width: int, count: int, growth: int, maker: NoiseMaker | None, *, keep_input: bool) -> DenseBlock:
    layers = [
        nn.Sequential(*_convolution(width + place * growth, growth, 3, maker)) for place in range(count)
    ]
    return DenseBlock(*layers, keep_input=keep_input)
