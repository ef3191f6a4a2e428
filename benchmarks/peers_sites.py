"""Small networks whose noise sits in one place, for `peers_faults.py`. Needs torch alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["SITES", "STEPS", "WIDTH", "Site", "network"]

WIDTH, STEPS, CLASSES, P = 16, 5, 3, 0.3


class Function(nn.Module):
    """F.dropout, on with the module's own flag."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, W) -> (N, W)."""
        return F.dropout(x, P, self.training)


class Attention(nn.Module):
    """F.scaled_dot_product_attention, its dropout on with the module's own flag."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, S, W) -> (N, S, W)."""
        return F.scaled_dot_product_attention(x, x, x, dropout_p=P if self.training else 0.0)


class SelfAttention(nn.Module):
    """nn.MultiheadAttention of a sequence with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=P, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """(N, S, W) -> (N, S, W)."""
        outputs: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return outputs


class Recurrent(nn.Module):
    """nn.LSTM with dropout between its two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, dropout=P, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """(N, S, W) -> (N, S, W)."""
        outputs: Tensor = self.lstm(x)[0]
        return outputs


def encoder() -> nn.Module:
    """nn.TransformerEncoder: dropout in its attention and in modules of its own."""
    layer = nn.TransformerEncoderLayer(WIDTH, 2, WIDTH, dropout=P, batch_first=True)
    return nn.TransformerEncoder(layer, 1)


class Pool(nn.Module):
    """The mean over positions, where there are any."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, S, W) or (N, W, H, H) -> (N, W)."""
        if x.dim() == 4:
            return x.mean((2, 3))
        return x.mean(1) if x.dim() == 3 else x


@dataclass(frozen=True)
class Site:
    """Where the noise is.

    Attributes:
        title: what a reader sees.
        build: the module that is random in training mode.
        shape: of one row of the input.
    """

    title: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]


SITES = {
    "module": Site("`nn.Dropout`", lambda: nn.Dropout(P), (WIDTH,)),
    "alpha": Site("`nn.AlphaDropout`", lambda: nn.AlphaDropout(P), (WIDTH,)),
    "channels": Site("`nn.Dropout2d`", lambda: nn.Dropout2d(P), (WIDTH, 4, 4)),
    "steps": Site("`nn.Dropout1d`", lambda: nn.Dropout1d(P), (STEPS, WIDTH)),
    "function": Site("`F.dropout(h, p, self.training)`", Function, (WIDTH,)),
    "sdpa": Site("`F.scaled_dot_product_attention`, `dropout_p`", Attention, (STEPS, WIDTH)),
    "attention": Site("`nn.MultiheadAttention(dropout=p)`", SelfAttention, (STEPS, WIDTH)),
    "encoder": Site("`nn.TransformerEncoder`", encoder, (STEPS, WIDTH)),
    "lstm": Site("`nn.LSTM(num_layers=2, dropout=p)`", Recurrent, (STEPS, WIDTH)),
    "zero": Site("`nn.Dropout(0)`: nothing is random", lambda: nn.Dropout(0.0), (WIDTH,)),
    "none": Site("no dropout at all", nn.Identity, (WIDTH,)),
}


def network(name: str, *, beside: bool) -> nn.Module:
    """The site and a linear head, with an `nn.Dropout` before the head if `beside`; in eval mode."""
    torch.manual_seed(0)
    more = [nn.Dropout(0.1)] if beside else []
    return nn.Sequential(SITES[name].build(), nn.ReLU(), Pool(), *more, nn.Linear(WIDTH, CLASSES)).eval()
