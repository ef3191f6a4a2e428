"""Recurrences with gradients of their own, against the same formulas step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bayesdrop.functional.recurrence import gru_over_time, lstm_over_time

STEPS, ROWS, WIDTH = 4, 3, 2


def drawn(*shape: int, seed: int) -> Tensor:
    values = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return values.requires_grad_()


def masks(kind: str) -> Tensor | None:
    shapes = {
        "rows": (ROWS, WIDTH),
        "shared": (1, WIDTH),
        "rows each step": (STEPS, ROWS, WIDTH),
        "shared each step": (STEPS, 1, WIDTH),
    }
    return drawn(*shapes[kind], seed=9) if kind in shapes else None


def lengths() -> Tensor:
    return (torch.arange(STEPS).unsqueeze(1) < torch.tensor([4, 2, 1])).unsqueeze(-1)


def carried(new: Tensor, old: Tensor, valid: Tensor | None, t: int) -> Tensor:
    return new if valid is None else torch.where(valid[t], new, old)


def masked(h: Tensor, factor: Tensor | None, t: int) -> Tensor:
    if factor is None:
        return h
    return h * (factor[t] if factor.dim() == 3 else factor)


def plain_lstm(
    gates: Tensor, h: Tensor, c: Tensor, weight: Tensor, factor: Any, valid: Any
) -> tuple[Tensor, Tensor]:
    outputs = []
    for t in range(STEPS):
        i, f, g, o = (gates[t] + masked(h, factor, t) @ weight.t()).chunk(4, -1)
        new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = carried(torch.sigmoid(o) * torch.tanh(new), h, valid, t)
        c = carried(new, c, valid, t)
        outputs.append(h)
    return torch.stack(outputs), c


def plain_gru(gates: Tensor, h: Tensor, weight: Tensor, bias: Any, factor: Any, valid: Any) -> Tensor:
    outputs = []
    for t in range(STEPS):
        inner = masked(h, factor, t) @ weight.t() + (0 if bias is None else bias)
        (r, z, n), (r_h, z_h, n_h) = gates[t].chunk(3, -1), inner.chunk(3, -1)
        new = torch.tanh(n + torch.sigmoid(r + r_h) * n_h)
        h = carried(new + torch.sigmoid(z + z_h) * (h - new), h, valid, t)
        outputs.append(h)
    return torch.stack(outputs)


@pytest.mark.parametrize("kind", ["none", "rows", "shared", "rows each step", "shared each step"])
@pytest.mark.parametrize("valid", [None, lengths()], ids=["whole", "ended"])
def test_an_lstm_over_time_is_its_steps_with_all_gradients(kind: str, valid: Tensor | None) -> None:
    factor = masks(kind)
    given = [
        drawn(STEPS, ROWS, 4 * WIDTH, seed=0),
        drawn(ROWS, WIDTH, seed=1),
        drawn(ROWS, WIDTH, seed=2),
        drawn(4 * WIDTH, WIDTH, seed=3),
    ]
    found, expected = lstm_over_time(*given, factor, valid), plain_lstm(*given, factor, valid)
    wanted = [*given, *([] if factor is None else [factor])]
    gradients = []
    for outputs, c in (found, expected):
        loss = (outputs * drawn(*outputs.shape, seed=4)).sum() + (c * drawn(*c.shape, seed=5)).sum()
        gradients.append(torch.autograd.grad(loss, wanted))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("kind", ["none", "rows", "shared", "rows each step", "shared each step"])
@pytest.mark.parametrize("valid", [None, lengths()], ids=["whole", "ended"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_gru_over_time_is_its_steps_with_all_gradients(
    kind: str, valid: Tensor | None, has_bias: bool
) -> None:
    factor, bias = masks(kind), drawn(3 * WIDTH, seed=6) if has_bias else None
    gates, h = drawn(STEPS, ROWS, 3 * WIDTH, seed=0), drawn(ROWS, WIDTH, seed=1)
    weight = drawn(3 * WIDTH, WIDTH, seed=3)
    wanted = [value for value in (gates, h, weight, bias, factor) if value is not None]
    results, gradients = [], []
    for run in (gru_over_time, plain_gru):
        outputs = run(gates, h, weight, bias, factor, valid)
        gradients.append(torch.autograd.grad((outputs * drawn(*outputs.shape, seed=4)).sum(), wanted))
        results.append(outputs)
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*gradients)
