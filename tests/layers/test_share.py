"""share_rates(): one learned rate for a whole model."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bayesdrop import (
    BernoulliDropout,
    ConcreteDropout,
    FunctionDraw,
    Gaussian,
    LearnableDropout,
    NegativeELBO,
    arm_loss,
    fit,
    load,
    rates,
    save,
)
from bayesdrop.fit.optimise import parameter_groups
from bayesdrop.layers import RecurrentDropout, convert, share_rates


def network(kind: str) -> Any:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    return convert(plain, kind, where="weights", per="layer", p=0.2)


every_kind = pytest.mark.parametrize("kind", ["concrete", "learnable"])


@every_kind
def test_all_layers_have_the_one_rate(kind: str) -> None:
    model = network(kind)
    num = len(list(model.parameters()))
    logit = share_rates(model, p=0.3)
    assert logit.shape == ()
    assert [round(p.item(), 6) for p in rates(model).values()] == [0.3, 0.3, 0.3]
    assert len(list(model.parameters())) == num - 2
    with torch.no_grad():
        logit.fill_(0.0)
    assert [p.item() for p in rates(model).values()] == [0.5, 0.5, 0.5]


def test_the_rate_starts_at_the_mean_of_the_logits() -> None:
    model = nn.Sequential(
        ConcreteDropout(nn.Linear(2, 2), 0.1), LearnableDropout(nn.Linear(2, 2), 0.4, per="layer")
    )
    mean = torch.logit(torch.tensor([0.1, 0.4])).mean()
    torch.testing.assert_close(share_rates(model).detach(), mean)


def test_the_gradient_is_the_sum_over_layers() -> None:
    apart, together = network("concrete"), network("concrete")
    logit = share_rates(together)
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    for model in (apart, together):
        torch.manual_seed(1)
        NegativeELBO(Gaussian(1.0), num_data=8)(model, x, y).loss.backward()
    expected = torch.stack([apart[i].logit_p.grad for i in (0, 2, 4)]).sum()
    torch.testing.assert_close(logit.grad, expected)


def test_an_estimated_gradient_is_the_sum_over_layers() -> None:
    """Of one seed the masks of both models are the same, so that the estimates are."""
    apart, together = network("learnable"), network("learnable")
    logit = share_rates(together)
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    for model in (apart, together):
        torch.manual_seed(1)
        arm_loss(model, lambda net: (net(x) - y).square().sum(1)).backward()
    expected = torch.stack([apart[i].logit_p.grad for i in (0, 2, 4)]).sum()
    torch.testing.assert_close(logit.grad, expected)


@every_kind
def test_copies_states_and_files_keep_the_layers_together(kind: str, tmp_path: Path) -> None:
    model = network(kind)
    share_rates(model, p=0.3)
    x = torch.randn(4, 3)
    save(model, tmp_path / "model.safetensors")
    loaded: Any = load(tmp_path / "model.safetensors")
    other = network(kind)
    share_rates(other)
    other.load_state_dict(model.state_dict())
    into: Any = network(kind)
    share_rates(into)
    load(tmp_path / "model.safetensors", into)
    with FunctionDraw(model, seed=1):
        expected = model(x)
    for net in (loaded, other, into, copy.deepcopy(model), copy.deepcopy(model).double().float()):
        assert net[0].logit_p is net[2].logit_p is net[4].logit_p
        with FunctionDraw(net, seed=1):
            torch.testing.assert_close(net(x), expected)


@every_kind
def test_an_optimiser_gets_the_rate_once(kind: str) -> None:
    model = network(kind)
    logit = share_rates(model)
    groups = {
        group["name"]: group for group in parameter_groups(model, None, lr=0.1, rate_lr=1.0, weight_decay=0.0)
    }
    assert groups["rates"]["params"] == [logit]
    assert all(p is not logit for p in groups["weights"]["params"])
    data = torch.utils.data.TensorDataset(torch.randn(16, 3), torch.randn(16, 1))
    before = logit.item()
    history = fit(model, data, NegativeELBO(Gaussian(), num_data=16), epochs=2, batch_size=8)
    assert logit.item() != before
    assert len({p.item() for p in rates(model).values()}) == 1
    assert history.rates["0"] == history.rates["4"]


def test_recurrent_layers_share_too() -> None:
    model = nn.ModuleList([RecurrentDropout(nn.LSTM(2, 2, 2), "concrete"), ConcreteDropout(nn.Linear(2, 1))])
    share_rates(model, p=0.4)
    assert len(rates(model)) == 5
    assert {round(p.item(), 6) for p in rates(model).values()} == {0.4}


def test_what_cannot_be_shared_is_said() -> None:
    with pytest.raises(ValueError, match="`model` must be a model with learned rates; got BernoulliDropout"):
        share_rates(BernoulliDropout(nn.Linear(2, 1)))
    with pytest.raises(ValueError, match=r"one rate a layer; got '0'. Make it with per='layer'"):
        share_rates(nn.Sequential(LearnableDropout(nn.Linear(2, 1))))
    with pytest.raises(ValueError, match=r"`p` must be in \(0, 1\); got 1.0"):
        share_rates(network("concrete"), p=1.0)
    mixed = nn.Sequential(ConcreteDropout(nn.Linear(2, 1)), ConcreteDropout(nn.Linear(2, 1)).double())
    with pytest.raises(ValueError, match="of one dtype and on one device"):
        share_rates(mixed)
