"""LeNet: its size, its start, and what in it is random."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import bayesdrop as bd
from bayesdrop.models.lenet import lenet


def test_it_has_the_431080_parameters_of_caffe() -> None:
    assert sum(value.numel() for value in lenet().parameters()) == 431_080


def test_weights_start_uniform_by_fan_in_and_biases_at_zero() -> None:
    torch.manual_seed(0)
    for name, value in lenet().named_parameters():
        if name.endswith("bias"):
            assert (value == 0).all()
        else:
            bound = math.sqrt(3 / value[0].numel())
            assert value.abs().max() <= bound
            assert value.numel() < 1000 or value.abs().max() > 0.99 * bound


@pytest.mark.parametrize(("where", "sites"), [("last", 1), ("all", 3)])
def test_dropout_stands_where_it_is_asked_for(where: str, sites: int) -> None:
    net = lenet(where=where, p=0.3)  # type: ignore[arg-type]
    dropouts = [part.p for part in net if isinstance(part, nn.Dropout)]
    assert dropouts == [0.3] * sites


def test_dropout_after_a_convolution_is_before_its_pooling() -> None:
    kinds = [type(part).__name__ for part in lenet(where="all")]
    assert kinds == [
        *("Conv2d", "Dropout", "MaxPool2d", "Conv2d", "Dropout", "MaxPool2d"),
        *("Flatten", "Linear", "ReLU", "Dropout", "Linear"),
    ]


@pytest.mark.parametrize(("where", "layers"), [("last", 1), ("all", 3)])
@pytest.mark.parametrize("kind", [bd.BernoulliDropout, bd.GaussianDropout, bd.DropConnect])
def test_weight_layers_can_be_stochastic(where: str, layers: int, kind: type[nn.Module]) -> None:
    net = lenet(where=where, p=0.2, layer=kind, length_scale=0.1)  # type: ignore[arg-type]
    assert len(bd.rates(net)) == layers
    assert torch.isfinite(bd.total_kl(net))
    prediction = bd.predict(net, torch.rand(3, 1, 28, 28), num_draws=4, likelihood=bd.Categorical())
    assert prediction.probs.shape == (3, 10)
    assert (prediction.epistemic > 0).all()


def test_the_first_layers_are_the_same_function_in_every_draw() -> None:
    torch.manual_seed(0)
    net = lenet()
    x = torch.rand(2, 1, 28, 28)
    draws = bd.predict(net, x, num_draws=5).draws
    hidden = net[:7](x)
    with bd.FunctionDraw(net, seed=0, index=3):
        torch.testing.assert_close(net[7:](hidden), draws[3])


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="'last' or 'all'"):
        lenet(where="first")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`p` must be in \[0, 1\)"):
        lenet(p=1.0)
    with pytest.raises(ValueError, match="none without `layer`"):
        lenet(length_scale=0.1)
