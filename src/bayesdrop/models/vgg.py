"""VGG: stages of small convolutions, then linear layers with dropout."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import nn

from bayesdrop.errors import LARGEST_WIDTH, layer_widths, must, must_be_flag, real_number, whole_number
from bayesdrop.models.noise import NoiseMaker

__all__ = ["vgg"]

#: channels of the convolutions of every stage; a stage ends with a max-pool
_PUBLISHED: dict[int, tuple[tuple[int, ...], ...]] = {
    11: ((64,), (128,), (256,) * 2, (512,) * 2, (512,) * 2),
    13: ((64,) * 2, (128,) * 2, (256,) * 2, (512,) * 2, (512,) * 2),
    16: ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3),
    19: ((64,) * 2, (128,) * 2, (256,) * 4, (512,) * 4, (512,) * 4),
}
#: positions a side, at most, that the linear layers see
_POSITIONS = 7

Channels = Sequence[int] | Sequence[Sequence[int]]


def vgg(
    depth: Literal[11, 13, 16, 19] | None = None,
    num_classes: int = 10,
    *,
    channels: Channels | None = None,
    head: int | Sequence[int] = (4096, 4096),
    width: float = 1.0,
    input_size: int | tuple[int, int] = 224,
    in_channels: int = 3,
    batch_norm: bool = False,
    p: float = 0.5,
    layer: Callable[..., nn.Module] | None = None,
    noise: Callable[..., nn.Module] | None = None,
    **options: Any,
) -> nn.Sequential:
    """Convolutions 3 x 3 in stages, each with a max-pool at its end, and linear layers with dropout.

        features: [convolution - (BatchNorm) - ReLU] ... max-pool 2, for each stage
        avgpool, flatten
        classifier: linear - ReLU - dropout - linear - ReLU - dropout - linear

    The parts and their weights have torchvision's names, so that `load_weights` can read its files.
    Convolutions start as in He et al., linear layers at N(0, 0.01^2), biases at 0.

    Args:
        depth: a published one: 11, 13, 16 or 19; None to give `channels`.
        num_classes: outputs, logits.
        channels: the convolutions: ((16,), (32, 32)) has two stages; (16, 32, 32), flat, is the same, a
            stage being a run of equal numbers.
        head: widths of the hidden linear layers; dropout follows each of them.
        width: factor of all channels and of the head's widths, which are rounded.
        input_size: height and width of the images; the input of the linear layers is averaged to 7 x 7
            positions, or fewer if fewer are left. Images of other sizes can be used, too.
        in_channels: of the images.
        batch_norm: BatchNorm after every convolution.
        p: chance of dropping.
        layer: makes a stochastic layer from (linear layer, p, **options), as `bd.ConcreteDropout`, around the
            layer after each dropout; dropouts are replaced by `nn.Identity`.
        noise: makes a module from (units, p, **options), as `bd.layers.ConcreteNoise`, in the place of each
            dropout.
        options: of `layer` or `noise`.

    Shape: (N, in_channels, H, W) -> (N, num_classes).
    Reference: Simonyan & Zisserman (2015), table 1; Boluki et al. (2020), section 3.2, for the dropout.

    >>> import torch
    >>> net = vgg(channels=(16, 32, 32, 64, 64), head=(256, 256), input_size=32)
    >>> net(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    owner = "vgg"
    stages = _stages(owner, depth, channels)
    width = real_number(owner, "width", width, "a positive number, at most 100", above=0, at_most=100)
    must_be_flag(owner, batch_norm=batch_norm)
    num_classes = whole_number(owner, "num_classes", num_classes, at_least=1, at_most=LARGEST_WIDTH)
    before = whole_number(owner, "in_channels", in_channels, at_least=1, at_most=LARGEST_WIDTH)
    maker = NoiseMaker(owner, p, layer, noise, nn.Dropout, options)
    positions = _positions(owner, input_size, len(stages))
    features: list[nn.Module] = []
    for stage in stages:
        for planned in stage:
            after = _scaled(planned, width)
            convolution = nn.Conv2d(before, after, 3, padding=1)
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)
            features += [convolution, *([nn.BatchNorm2d(after)] if batch_norm else []), nn.ReLU()]
            before = after
        features.append(nn.MaxPool2d(2))
    classifier: list[nn.Module] = []
    before *= positions[0] * positions[1]
    hidden = [_scaled(planned, width) for planned in layer_widths(owner, head, "head")]
    for place, after in enumerate([*hidden, num_classes]):
        linear = nn.Linear(before, after)
        nn.init.normal_(linear.weight, 0, 0.01)
        nn.init.zeros_(linear.bias)
        # Noise on weights belongs to the layer after a dropout.
        classifier.append(maker.wrapped(linear) if place else linear)
        if place < len(hidden):
            # An nn.Identity keeps the place, so that layers have torchvision's names.
            classifier += [nn.ReLU(), *(maker.module(after) or [nn.Identity()])]
        before = after
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            features=nn.Sequential(*features),
            avgpool=nn.AdaptiveAvgPool2d(positions),
            flatten=nn.Flatten(),
            classifier=nn.Sequential(*classifier),
        )
    )


def _stages(owner: str, depth: Any, channels: Any) -> tuple[tuple[int, ...], ...]:
    published = ", ".join(map(str, _PUBLISHED))
    if (depth is None) == (channels is None):
        raise ValueError(must(owner, "depth", f"one of {published}, or None with `channels`", depth))
    if depth is not None:
        if depth not in _PUBLISHED:
            hint = "Give `channels` for others."
            raise ValueError(must(owner, "depth", f"one of {published}", depth, hint))
        return _PUBLISHED[depth]
    nested = isinstance(channels, Sequence) and any(isinstance(part, Sequence) for part in channels)
    if nested:
        found = tuple(layer_widths(owner, part, "channels") for part in channels)
    else:
        runs: list[list[int]] = []
        for planned in layer_widths(owner, channels, "channels"):
            if not runs or runs[-1][-1] != planned:
                runs.append([])
            runs[-1].append(planned)
        found = tuple(map(tuple, runs))
    if not found or not all(found):
        raise ValueError(must(owner, "channels", "at least one convolution in every stage", channels))
    return found


def _positions(owner: str, input_size: Any, num_pools: int) -> tuple[int, int]:
    """Height and width of the input of the linear layers."""
    sides = input_size if isinstance(input_size, tuple | list) else (input_size, input_size)
    if len(sides) != 2:
        raise ValueError(must(owner, "input_size", "one number, or (height, width)", input_size))
    hint = f"Each of the {num_pools} stages halves it."
    height, width = (
        whole_number(owner, "input_size", side, at_least=2**num_pools, at_most=LARGEST_WIDTH, hint=hint)
        for side in sides
    )
    return min(_POSITIONS, height >> num_pools), min(_POSITIONS, width >> num_pools)


def _scaled(planned: int, width: float) -> int:
    return max(1, round(planned * width))
