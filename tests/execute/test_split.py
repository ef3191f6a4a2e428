"""Concatenations of what is random and what is not: the same draws, and the latter's share runs once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import bayesdrop as bd
from bayesdrop.models import fc_densenet, unet


def networks() -> dict[str, Callable[[], nn.Module]]:
    small = {"blocks": (1, 2), "middle": 2, "growth": 3, "first": 8, "p": 0.3}
    return {
        "densenet, all": lambda: fc_densenet(None, 3, **small),  # type: ignore[arg-type]
        "densenet, middle": lambda: fc_densenet(None, 3, where="middle", **small),  # type: ignore[arg-type]
        "densenet, elementwise": lambda: fc_densenet(None, 3, elementwise=True, **small),  # type: ignore[arg-type]
        "unet, all": lambda: unet(3, channels=(8, 6, 8), p=0.3),
        "unet, middle": lambda: unet(3, channels=(8, 6, 8), p=0.3, where="middle"),
        "by hand": ByHand,
    }


class ByHand(nn.Module):
    """Every form that is followed, and some that are not."""

    def __init__(self) -> None:
        super().__init__()
        self.convolve = nn.Conv2d(21, 4, 3, padding=1, stride=2, dilation=1)
        self.grouped = nn.Conv2d(6, 6, 3, groups=3)
        self.norm = nn.BatchNorm2d(21, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        noisy = F.dropout2d(x, 0.4, training=self.training)
        stack = torch.cat([x, noisy, x.square()], dim=1)
        deep = torch.cat([stack, noisy, torch.cat((x, x, noisy), 1)], 1)
        h = self.convolve(torch.tanh(self.norm(deep)))
        grouped = self.grouped(torch.cat([x, noisy], 1)).mean((2, 3), keepdim=True)
        # The whole of a split value is wanted, too.
        pooled = F.leaky_relu(stack, 0.2).mean((1, 2, 3), keepdim=True)
        return torch.cat([h + pooled, grouped.expand(-1, -1, *h.shape[2:])], 1)


@pytest.mark.parametrize("name", networks())
def test_draws_are_those_of_the_whole_model(name: str) -> None:
    torch.manual_seed(0)
    net = networks()[name]().double().eval()
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.uniform_(-0.5, 0.5)  # type: ignore[union-attr]
            part.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    x = torch.randn(2, 3, 9, 12, dtype=torch.float64)
    truth = bd.predict(net, x, num_draws=4, plan="whole model").draws
    for plan in (None, "loop", "stacked"):
        torch.testing.assert_close(bd.predict(net, x, num_draws=4, plan=plan).draws, truth)  # type: ignore[arg-type]


class _Channels(TorchDispatchMode):
    """How many input channels convolutions sum over, for the image at hand."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.ops.aten.convolution.default:
            self.seen.append(args[0].shape[1])
        return func(*args, **(kwargs or {}))


def test_the_levels_of_a_u_are_convolved_once() -> None:
    net = fc_densenet(None, 3, blocks=(1,), middle=1, growth=4, first=16, p=0.3, where="middle").eval()
    x = torch.randn(1, 3, 8, 8)
    counts = []
    for num_draws in (3, 4):
        with _Channels() as seen:
            bd.predict(net, x, num_draws=num_draws, plan="loop")
        counts.append(sorted(seen.seen))
    more = counts[1].copy()
    for size in counts[0]:
        more.remove(size)
    # One draw more: 4 channels go up, 4 of 24 are random in the last block's layer, 8 of 28 in the last map.
    assert sorted(more) == [4, 4, 8]


def test_our_networks_need_no_pass_to_be_known() -> None:
    net = fc_densenet(None, 3, blocks=(1,), middle=1, growth=4, first=16, p=0.3).eval()
    passes = []
    net.first.register_forward_hook(lambda *_: passes.append(1))
    bd.predict(net, torch.randn(1, 3, 8, 8), num_draws=5)
    # A hook makes a model one that must be looked at: in the pass that is recorded.
    assert len(passes) == 1
    with _Channels() as seen:
        bd.predict(
            fc_densenet(None, 3, blocks=(1,), middle=1, growth=4, first=16),
            torch.randn(1, 3, 8, 8),
            num_draws=5,
        )
    assert seen.seen.count(3) == 1
