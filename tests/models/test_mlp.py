"""The plain factory of fully connected networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bayesdrop as bd


def test_an_int_is_one_hidden_layer() -> None:
    torch.manual_seed(0)
    one = bd.models.mlp(3, 64, 2)
    torch.manual_seed(0)
    same = bd.models.mlp(3, (64,), 2)
    x = torch.randn(4, 3)
    assert torch.equal(one.eval()(x), same.eval()(x))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hidden": 0}, "mlp: `hidden` must be the widths of hidden layers"),
        ({"hidden": "64"}, "mlp: `hidden` must be"),
        ({"hidden": (64, 2.0)}, "mlp: `hidden` must be"),
        ({"hidden": {64}}, "mlp: `hidden` must be"),
        ({"in_features": 0}, "mlp: `in_features` must be an int from 1"),
        ({"out_features": True}, "mlp: `out_features` must be an int from 1"),
        ({"input_p": 1.0}, "mlp: `input_p` must be in"),
        ({"activation": nn.ReLU()}, "mlp: `activation` must be a function or a class"),
        ({"activation": lambda: None}, "mlp: `activation` must be an nn.Module"),
        ({"layer": "bernoulli"}, "mlp: `layer` must be a function or a class"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], sentence: str) -> None:
    good: dict[str, Any] = {"in_features": 3, "hidden": (4,), "out_features": 1}
    with pytest.raises((ValueError, TypeError), match=sentence):
        bd.models.mlp(**good | options)
