"""Small networks of every kind that a file must hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.models import unet

__all__ = ["CASES", "Case", "perceptron"]


class Block(nn.Module):
    """A residual block with normalisation and channel dropout."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)])
        self.dropout = nn.Dropout2d(0.2)
        for norm in self.norms:
            nn.init.uniform_(norm.running_mean, -0.5, 0.5)
            nn.init.uniform_(norm.running_var, 0.5, 2.0)

    def forward(self, x: Tensor) -> Tensor:
        h = self.dropout(F.relu(self.norms[0](self.one(x))))
        return F.relu(x + self.norms[1](self.two(h)))


class Sequences(nn.Module):
    """A recurrent network with dropout between its layers and before its head."""

    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM, **options: Any) -> None:
        super().__init__()
        self.recurrent = kind(4, 8, 2, dropout=0.3, **options)
        self.batch_first = bool(options.get("batch_first", False))
        self.head = nn.Linear(8 * (2 if options.get("bidirectional") else 1), 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        h = self.recurrent(x)[0]
        last = h[:, -1] if self.batch_first else h[-1]
        return self.head(F.dropout(last, 0.2, self.training))


class Tokens(nn.Module):
    """A transformer over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(x)).mean(1))


def perceptron(p: float = 0.3, width: int = 16) -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, width), nn.ReLU(), nn.Dropout(p), nn.Linear(width, width), nn.Tanh(), nn.Dropout(p),
        nn.Linear(width, 3),
    )  # fmt: skip


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout2d(0.3), nn.Conv2d(3, 4, 5),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 5),
    )  # fmt: skip


def residual() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), Block(4), Block(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(4, 4),
    )  # fmt: skip


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, num_labels=3,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def _sentences(rows: int) -> dict[str, Tensor]:
    lengths = 2 + torch.arange(rows) % 5
    seen = (torch.arange(6) < lengths[:, None]).long()
    return {"input_ids": torch.randint(30, (rows, 6)), "attention_mask": seen}


_CLASSES = bd.Categorical()


@dataclass(frozen=True)
class Case:
    """A network, inputs of any number of rows, and what its outputs mean."""

    make: Callable[[], nn.Module]
    rows: Callable[[int], Any]
    likelihood: bd.Likelihood | None = _CLASSES


CASES = {
    "perceptron": Case(perceptron, lambda n: torch.randn(n, 6)),
    "lenet": Case(lenet, lambda n: torch.randn(n, 1, 20, 20)),
    "residual": Case(residual, lambda n: torch.randn(n, 3, 6, 6)),
    "lstm": Case(lambda: Sequences(batch_first=True), lambda n: torch.randn(n, 5, 4)),
    "gru, both ways": Case(
        lambda: Sequences(nn.GRU, bidirectional=True), lambda n: torch.randn(n, 5, 4), None
    ),
    "rnn": Case(
        lambda: Sequences(nn.RNN, nonlinearity="relu"), lambda n: torch.randn(n, 5, 4), bd.Gaussian(0.2)
    ),
    "transformer": Case(Tokens, lambda n: torch.randint(20, (n, 5))),
    "bert": Case(bert, _sentences),
    "u-net": Case(lambda: unet(3, in_channels=1, channels=(4, 6), p=0.2), lambda n: torch.randn(n, 1, 8, 8)),
}
