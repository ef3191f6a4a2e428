"""Several functions at once: every group of rows is what a draw of its own gives, or there is an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import bayesdrop as bd
from bayesdrop import ConcreteDropout, DropConnect, FunctionDraw, MixtureDropout
from bayesdrop.trace import RowDraw

INDEX = [3, 7, 300, 3]
RATES = [0.1, 0.5, 0.0, 0.3, 0.7, 0.2]


class First(nn.Module):
    """The first of what a module gives."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.module(x)[0]
        return out


class Functional(nn.Module):
    """Dropout as a function, and noise of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(x, 0.3, self.training)
        return F.dropout(self.linear(x), 0.4) + 0.1 * torch.randn(x.shape[0], 5, dtype=x.dtype)


class Attention(nn.Module):
    """Heads share axis 0 with the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, dropout=0.3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        return self.attention(x, x, x)[0].transpose(0, 1)  # type: ignore[no-any-return]


class Inside(nn.Module):
    """Our layers in somebody's model, positions and rows on one axis."""

    def __init__(self) -> None:
        super().__init__()
        self.first = ConcreteDropout(nn.Linear(6, 6), 0.3)
        self.second = DropConnect(nn.Linear(6, 5), 0.3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x.reshape(-1, 6)))
        return self.second(torch.tanh(self.first(h)).reshape(x.shape))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "bernoulli": lambda: bd.BernoulliDropout(nn.Linear(6, 5), p=0.4),
    "bernoulli per unit, bias": lambda: bd.BernoulliDropout(nn.Linear(6, 5), p=RATES, bias_p=0.3),
    "bernoulli elementwise": lambda: bd.BernoulliDropout(nn.Linear(6, 5), p=0.4, elementwise=True),
    "bernoulli conv1d": lambda: bd.BernoulliDropout(nn.Conv1d(6, 4, 3, padding=1, groups=2), p=RATES),
    "bernoulli conv2d": lambda: bd.BernoulliDropout(nn.Conv2d(6, 4, 3, padding=1), p=0.4, bias_p=0.2),
    "bernoulli conv2d elementwise": lambda: bd.BernoulliDropout(nn.Conv2d(6, 4, 3), p=0.4, elementwise=True),
    "gaussian": lambda: bd.GaussianDropout(nn.Linear(6, 5), p=0.4),
    "gaussian conv2d": lambda: bd.GaussianDropout(nn.Conv2d(6, 6, 3, groups=3), p=0.4),
    "dropconnect": lambda: DropConnect(nn.Linear(6, 5), p=0.4, bias_p=0.3),
    "dropconnect a row": lambda: DropConnect(nn.Linear(6, 5, bias=False), p=RATES, per_row=True),
    "dropconnect conv1d": lambda: DropConnect(nn.Conv1d(6, 4, 3, dilation=2, padding=1), p=0.4),
    "dropconnect conv2d": lambda: DropConnect(
        nn.Conv2d(6, 4, 3, stride=2, padding=1, groups=2, padding_mode="circular"), p=RATES
    ),
    "dropconnect conv3d": lambda: DropConnect(nn.Conv3d(6, 4, 3, padding="same"), p=0.4),
    "mixture": lambda: MixtureDropout(nn.Linear(6, 5), p=0.4, sigma=0.1),
    "mixture conv2d": lambda: MixtureDropout(nn.Conv2d(6, 4, 3, groups=2), p=RATES, sigma=0.2),
    "concrete": lambda: ConcreteDropout(nn.Linear(6, 5), 0.4),
    "concrete relaxed per unit": lambda: ConcreteDropout(
        nn.Linear(6, 5), (0.1, 0.6), per="unit", masks="relaxed"
    ),
    "concrete conv2d": lambda: ConcreteDropout(
        nn.Conv2d(6, 4, 3, groups=2), 0.4, per="unit", masks="straight-through"
    ),
    "concrete conv1d elementwise": lambda: ConcreteDropout(nn.Conv1d(6, 4, 3), 0.4, elementwise=True),
    "learnable": lambda: bd.LearnableDropout(nn.Linear(6, 5), (0.1, 0.6)),
    "learnable raw": lambda: bd.LearnableDropout(nn.Linear(6, 5), 0.4, scaling="raw"),
    "mean field": lambda: bd.MeanFieldGaussian(nn.Linear(6, 5), 0.3),
    "mean field conv2d": lambda: bd.MeanFieldGaussian(nn.Conv2d(6, 4, 3, groups=2), 0.3),
    "lstm mean field": lambda: First(
        bd.RecurrentDropout(nn.LSTM(6, 5, batch_first=True), "meanfield", p=0.2)
    ),
    "variational inputs": lambda: bd.VariationalGaussianDropout(nn.Linear(6, 5), 0.4, noise="inputs"),
    "variational weights": lambda: bd.VariationalGaussianDropout(nn.Linear(6, 5), 0.4, per="weight"),
    "variational conv2d": lambda: bd.VariationalGaussianDropout(nn.Conv2d(6, 4, 3, groups=2), 0.3),
    "lstm": lambda: First(bd.RecurrentDropout(nn.LSTM(6, 5, num_layers=2, batch_first=True), p=0.4)),
    "gru, both ways": lambda: First(
        bd.RecurrentDropout(nn.GRU(6, 5, bidirectional=True, batch_first=True), "concrete")
    ),
    "lstm dropconnect": lambda: First(
        bd.RecurrentDropout(nn.LSTM(6, 5, batch_first=True), "dropconnect", p=0.4)
    ),
    "dropout": lambda: nn.Sequential(nn.Dropout(0.4), nn.Linear(6, 5), nn.ReLU(), nn.Dropout(0.2)),
    "alpha dropout": lambda: nn.Sequential(nn.AlphaDropout(0.4), nn.Linear(6, 5)),
    "dropout2d": lambda: nn.Sequential(nn.Conv2d(6, 4, 3), nn.Dropout2d(0.4), nn.BatchNorm2d(4)),
    "functional": Functional,
    "attention": Attention,
    "transformer": lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.3, batch_first=True),
    "dropout between layers": lambda: First(nn.LSTM(6, 5, num_layers=3, dropout=0.4, batch_first=True)),
    "ours inside": Inside,
}
POSITIONS = {
    "bernoulli conv1d": (4,),
    "dropconnect conv1d": (4,),
    "concrete conv1d elementwise": (4,),
    "dropconnect conv3d": (3, 3, 3),
}


def inputs_for(name: str, rows: int) -> Tensor:
    positions: tuple[int, ...] = POSITIONS.get(name, ())
    if "2d" in name:
        positions = (4, 4)
    features: tuple[int, ...] = (6, *positions)
    if any(word in name for word in ("lstm", "gru", "attention", "transformer", "between", "inside")):
        features = (4, 6)
    generator = torch.Generator().manual_seed(1)
    return torch.randn((rows, *features), generator=generator, dtype=torch.float64)


def gradients(model: nn.Module, x: Tensor, index: Any) -> tuple[Tensor, list[Tensor | None]]:
    x = x.clone().requires_grad_()
    model.zero_grad()
    with FunctionDraw(model, seed=5, index=index):
        out = model(x)
    (out * torch.arange(out[0].numel(), dtype=out.dtype).reshape(out[0].shape).cos()).sum().backward()
    return out.detach(), [x.grad, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("name", LAYERS)
def test_every_group_of_rows_is_a_draw_of_its_own(name: str) -> None:
    torch.manual_seed(0)
    model = LAYERS[name]().double()
    x = inputs_for(name, 3 * len(INDEX))
    together, grads = gradients(model, x, INDEX)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    apart = [gradients(model, part, index) for part, index in zip(x.chunk(len(INDEX)), INDEX, strict=True)]
    torch.testing.assert_close(together, torch.cat([out for out, _ in apart]), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(grads[0], torch.cat([g[0] for _, g in apart]), rtol=1e-10, atol=1e-12)
    for at, total in enumerate(grads[1:], 1):
        parts = [g[at] for _, g in apart]
        if total is None:
            assert all(part is None for part in parts)
        else:
            torch.testing.assert_close(total, torch.stack(parts).sum(0), rtol=1e-10, atol=1e-11)
    first, second = together.chunk(len(INDEX))[:2]
    with FunctionDraw(model, seed=5, index=[3, 3, 7, 7]):
        pairs = model(torch.cat([x[:3]] * 4)).chunk(4)
    torch.testing.assert_close(pairs[0], pairs[1], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(pairs[0], pairs[2])
    torch.testing.assert_close(pairs[0], first, rtol=1e-12, atol=1e-12)
    assert first.shape == second.shape


def test_batches_of_any_size_go_through_the_same_functions() -> None:
    model = nn.Sequential(ConcreteDropout(nn.Linear(6, 8), 0.3), nn.SiLU(), DropConnect(nn.Linear(8, 2), 0.3))
    x = inputs_for("", 4).float()
    with torch.no_grad(), FunctionDraw(model, index=(1, 2)) as draw:
        many = model(torch.cat([x, x])).chunk(2)
        one = [model(torch.stack([row, row])) for row in x]
    assert draw.num_functions == 2
    for k in range(2):
        torch.testing.assert_close(torch.stack([pair[k] for pair in one]), many[k])


@pytest.mark.parametrize("index", [[3], (3,), np.array([3]), torch.tensor([3]), range(3, 4), np.int64(3)])
def test_one_function_in_a_sequence_is_one_function(index: Any) -> None:
    model = bd.BernoulliDropout(nn.Linear(6, 5), p=0.4)
    x = inputs_for("", 7).float()
    with torch.no_grad():
        with FunctionDraw(model, index=index):
            out = model(x)
        with FunctionDraw(model, index=3):
            assert torch.equal(out, model(x))


@pytest.mark.parametrize("index", [[], "3", [1.5], [True], [-1], [[1, 2]], np.eye(2, dtype=int), None, 1.0])
def test_an_index_that_is_no_whole_number_is_an_error(index: Any) -> None:
    with pytest.raises(ValueError, match=r"FunctionDraw: `index` must be an int of at least 0"):
        FunctionDraw(nn.Linear(2, 2), index=index)
    with pytest.raises(ValueError, match=r"RowDraw: `index` must be an int of at least 0"):
        RowDraw(nn.Linear(2, 2), index=[1, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 7, 0])
@pytest.mark.parametrize("name", ["concrete", "dropconnect", "dropout", "functional"])
def test_rows_that_do_not_fall_into_groups_are_an_error(name: str, rows: int) -> None:
    model = LAYERS[name]().double()
    with (
        FunctionDraw(model, index=[0, 1]),
        pytest.raises(ValueError, match="rows of the batch` must be a multiple of 2"),
    ):
        model(inputs_for(name, rows))


class OnWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 5))

    def forward(self, x: Tensor) -> Tensor:
        return x @ F.dropout(self.weight, 0.4)


class OneNumber(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rand(())


class TimeFirst(nn.Module):
    """Rows come to the layer on axis 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = bd.BernoulliDropout(nn.Linear(6, 5), p=0.4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x.transpose(0, 1)).transpose(0, 1)
        return out


class Interleaved(TimeFirst):
    """Rows and positions on axis 0, neighbours of different rows."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x.transpose(0, 1).reshape(-1, 6))
        return out.reshape(x.shape[1], x.shape[0], 5).transpose(0, 1)


class RowByRow(TimeFirst):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.layer(row[0]) for row in x])


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, num_layers=2, dropout=0.4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.arange(x.shape[0]) % x.shape[1] + 1
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out: Tensor = self.lstm(packed)[1][0][-1]
        return out


@pytest.mark.parametrize("kind", [OnWeights, OneNumber, TimeFirst, Interleaved, RowByRow, Packed])
def test_what_cannot_be_done_is_an_error(kind: type[nn.Module]) -> None:
    model = kind()
    x = torch.randn(6, 4, 6)
    with (
        FunctionDraw(model, index=[0, 1]),
        pytest.raises(ValueError, match=re.escape("FunctionDraw: 2 functions cannot be held at once: ")),
    ):
        model(x)
    with FunctionDraw(model, index=1):
        assert torch.equal(model(x), model(x))


def test_an_input_without_rows_is_an_error() -> None:
    for model in (ConcreteDropout(nn.Linear(6, 5)), nn.Sequential(nn.Dropout(), nn.Linear(6, 5))):
        with FunctionDraw(model, index=[0, 1]), pytest.raises(ValueError, match="cannot be held at once"):
            model(torch.randn(6))


def test_inputs_that_do_not_agree_on_rows_are_an_error() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return F.dropout(x, 0.5) + y[:1]

    with FunctionDraw(Two(), index=[0, 1]) as draw, pytest.raises(ValueError, match="do not agree"):
        draw.model(torch.randn(4, 3), torch.randn(3, 3))
