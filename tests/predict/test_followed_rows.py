"""Where a recorded pass follows the rows of its batch, the model is not studied on one row before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop import predict

ROWS = 6
#: how the flag can be read by code in which the word is not to be seen
FLAG = "".join(["train", "ing"])


class Model(nn.Module):
    """A network of the user, which notes with how many rows it was called."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop, self.drop2d = nn.Dropout(0.4), nn.Dropout2d(0.4)
        self.spare, self.none = nn.Dropout(0.3), nn.Dropout(0.0)
        self.head = nn.Linear(4, ROWS)
        self.layer = bd.BernoulliDropout(nn.Linear(ROWS, 3), p=0.3)
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        calls.append(x.shape[0])
        return self.function(self, x)


calls: list[int] = []


def head(m: Any, x: Tensor) -> Tensor:
    return m.head(m.drop(F.relu(m.norm(m.conv(x)), inplace=True).mean((2, 3))))


def blocks(m: Any, x: Tensor) -> Tensor:
    h = m.conv(x)
    h = h + F.relu(m.norm(m.drop2d(F.relu(h))))
    return m.head(m.drop(F.adaptive_avg_pool2d(torch.cat([h, -h], 1)[:, :4], 1).view(x.size(0), -1)))


def joined(m: Any, x: Tensor) -> Tensor:
    h = m.drop2d(m.conv(x))
    h = m.drop2d(torch.cat([h, F.max_pool2d(h, 3, 1, 1)], 1))
    return m.head(m.drop(h.flatten(2).mean(-1).unflatten(1, (2, 4)).sum(1)))


def own_layers(m: Any, x: Tensor) -> Tensor:
    return m.layer(m.head(m.conv(x).mean(-1).mean(-1)))


def columns(m: Any, x: Tensor) -> Tensor:
    """Dropout of a square whose rows are those of the batch on axis 1."""
    return m.drop(m.head(m.conv(x).mean((2, 3))).t()).t()


def weights(m: Any, x: Tensor) -> Tensor:
    """Dropout of weights that have as many rows as the batch."""
    return F.linear(m.conv(x).mean((2, 3)), m.drop(m.head.weight))


def positions(m: Any, x: Tensor) -> Tensor:
    """Rows and positions on one axis."""
    h = m.conv(x).permute(0, 2, 3, 1).reshape(-1, 4)
    return m.drop(h).unflatten(0, (x.shape[0], -1)).flatten(1)


def one_more(m: Any, x: Tensor) -> Tensor:
    """A layer of noise without the word: it asks for its flag."""
    h = m.head(m.drop(m.conv(x).mean((2, 3))))
    return m.drop(h) if getattr(m, FLAG) else h


def off(m: Any, x: Tensor) -> Tensor:
    """A site that is off."""
    return m.head(m.none(m.drop(m.conv(x).mean((2, 3)))))


FOLLOWED = {"head": head, "joined": joined, "layers of this library": own_layers}
STUDIED = {
    "a part cut out": blocks, "columns": columns, "weights": weights, "positions": positions,
    "asks for its flag": one_more, "a site is off": off,
}  # fmt: skip


def images() -> Tensor:
    return torch.randn(ROWS, 2, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", [*FOLLOWED, *STUDIED])
@pytest.mark.filterwarnings("ignore:predict. these are not random:bayesdrop.PartlyRandom")
def test_draws_are_those_of_the_whole_model(name: str, assert_is_a_function: Any) -> None:
    # As many rows as the square, and as the weights, have.
    assert_is_a_function(Model((FOLLOWED | STUDIED)[name]), images(), plans=(None, "loop"))


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_model_is_run_once_where_its_rows_can_be_followed(name: str) -> None:
    calls.clear()
    predict(Model(FOLLOWED[name]), images(), num_draws=8)
    assert calls == [ROWS]


@pytest.mark.parametrize("name", STUDIED)
@pytest.mark.filterwarnings("ignore:predict. these are not random:bayesdrop.PartlyRandom")
def test_one_row_is_looked_at_where_they_cannot(name: str) -> None:
    calls.clear()
    predict(Model(STUDIED[name]), images(), num_draws=8)
    assert calls[0] == ROWS
    assert 1 in calls


def test_rows_are_followed_in_every_batch() -> None:
    calls.clear()
    model, x = Model(head), images()
    draws = predict(model, [x[:4], x[4:]], items="inputs", num_draws=5).draws
    assert calls == [4, 2]
    torch.testing.assert_close(predict(model, x, num_draws=5).draws, draws)


def test_draws_of_the_whole_model_after_a_recording_that_broke_know_where_the_rows_are() -> None:
    def reads(m: Any, x: Tensor) -> Tensor:
        h = m.drop(m.conv(x).mean((2, 3)))
        return m.drop(m.head(h).t()).t() * (1 + float(h.sum() > 1e9))

    model, x = Model(reads), images()
    prediction = predict(model, x, num_draws=5)
    assert "whole model" in prediction.plan
    one = torch.cat([predict(model, row, num_draws=5).draws for row in x.split(1)], 1)
    torch.testing.assert_close(prediction.draws, one)
