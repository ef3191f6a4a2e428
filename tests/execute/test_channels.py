"""Channels that a shared mask drops are left out of both convolutions, and the draws stay the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop import predict
from bayesdrop.execute import plan
from bayesdrop.execute.channels import keep_channels
from bayesdrop.trace import Tape

LEFT_OUT = "_kept_convolutions"


class Net(nn.Module):
    """Noise on the input, so that everything is random, and a function of the layers."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], p: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.start, self.drop = nn.Dropout(0.2), nn.Dropout2d(p)
        self.first, self.second = nn.Conv2d(3, 40, 3, padding=1), nn.Conv2d(40, 5, 3, stride=2, dilation=2)
        self.groups, self.one = nn.Conv2d(40, 40, 1, groups=4), nn.Conv2d(40, 40, 1, bias=False)
        self.norm = nn.BatchNorm2d(40)
        for name, buffer in self.norm.named_buffers():
            if "running" in name:
                buffer.uniform_(0.5, 2.0)
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, self.start(x)).flatten(1)


def usual(m: Any, x: Tensor) -> Tensor:
    return m.second(m.drop(F.relu(m.norm(m.first(x)))))


def not_zero_at_zero(m: Any, x: Tensor) -> Tensor:
    return m.second(m.drop(torch.sigmoid(F.relu(m.first(x), inplace=True)).cos()))


def twice(m: Any, x: Tensor) -> Tensor:
    """The convolution between two others: its own input has dropped channels too."""
    return m.second(m.drop(F.relu(m.one(m.drop(F.relu(m.first(x)))))))


def used_again(m: Any, x: Tensor) -> Tensor:
    h = F.relu(m.first(x))
    return m.second(m.drop(h)).mean((2, 3)) + h.mean((1, 2, 3)).unsqueeze(1)


def in_groups(m: Any, x: Tensor) -> Tensor:
    return m.second(F.relu(m.groups(m.drop(F.relu(m.first(x))))))


def mixed(m: Any, x: Tensor) -> Tensor:
    return m.second(m.drop(torch.softmax(m.first(x), 1)))


def skipped(m: Any, x: Tensor) -> Tensor:
    h = m.first(x)
    return m.second(m.drop(F.relu(h + m.one(h))))


#: how many pairs of convolutions leave channels out
PAIRS = {usual: 1, not_zero_at_zero: 1, twice: 1, used_again: 0, in_groups: 0, mixed: 0, skipped: 0}


@pytest.mark.parametrize("function", PAIRS)
@pytest.mark.parametrize("p", [0.05, 0.5, 0.97])
def test_draws_are_those_of_the_whole_model(
    function: Callable[[Any, Tensor], Tensor], p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def keep(tape: Tape) -> Tape:
        tape = keep_channels(tape, worth=0)
        seen.append(sum(op.name == LEFT_OUT for op in tape.ops))
        return tape

    monkeypatch.setattr(plan, "keep_channels", keep)
    model, x = Net(function, p), torch.randn(4, 3, 9, 9, dtype=torch.float64)
    truth = predict(model, x, num_draws=8, plan="whole model").draws
    prediction = predict(model, x, num_draws=8, plan="loop")
    assert prediction.plan.startswith("loop: as asked")  # and no draw was left to the whole model
    torch.testing.assert_close(prediction.draws, truth, rtol=1e-9, atol=1e-9)
    assert seen == [PAIRS[function]]


@pytest.mark.parametrize("dims", [1, 3])
def test_signals_and_volumes(dims: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "keep_channels", partial(keep_channels, worth=0))
    conv: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    drop: Any = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)[dims - 1]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.2), conv(2, 20, 2), nn.ELU(), drop(0.5), conv(20, 3, 2)).double()
    x = torch.randn(3, 2, *[5] * dims, dtype=torch.float64)
    truth = predict(model, x, num_draws=6, plan="whole model").draws
    prediction = predict(model, x, num_draws=6, plan="loop")
    assert prediction.plan.startswith("loop: as asked")
    torch.testing.assert_close(prediction.draws, truth, rtol=1e-9, atol=1e-9)


def test_where_a_mask_drops_every_channel_the_bias_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "keep_channels", partial(keep_channels, worth=0))
    model, x = Net(usual, 0.97), torch.randn(4, 3, 9, 9, dtype=torch.float64)
    bias: Tensor = model.second.bias.detach()
    draws = predict(model, x, num_draws=60, plan="loop").draws.unflatten(2, (5, -1))
    alone = (draws == bias.reshape(5, 1)).flatten(1).all(1)
    # The chance that a draw drops all 40 channels is 0.97 ** 40 = 0.3.
    assert 0 < int(alone.sum()) < 60


def test_small_convolutions_and_small_draws_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tape] = []

    def keep(tape: Tape) -> Tape:
        seen.append(keep_channels(tape))
        return seen[-1]

    monkeypatch.setattr(plan, "keep_channels", keep)
    predict(Net(usual, 0.5), torch.randn(4, 3, 9, 9, dtype=torch.float64), num_draws=5, plan="loop")
    assert [op.name for op in seen[0].ops].count(LEFT_OUT) == 0
    # Draws in one batched product have masks of their own: no channel is dropped in all of them.
    predict(Net(usual, 0.5), torch.randn(4, 3, 9, 9, dtype=torch.float64), num_draws=5, plan="stacked")
    assert len(seen) == 1
