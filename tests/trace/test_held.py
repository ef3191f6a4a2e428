"""Draws of known layers need no watching, and learned rates have a gradient in them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop import BernoulliDropout, ConcreteDropout, FunctionDraw
from bayesdrop.functional.relax import apply_straight_through, hard_slope, relaxed_slope
from bayesdrop.noise.bits import random_bits
from bayesdrop.trace.sites import is_chain, needs_no_watching


def network(masks: Any = "hard") -> nn.Sequential:
    torch.manual_seed(0)
    parts = [ConcreteDropout(nn.Linear(a, b), 0.3, masks=masks) for a, b in ((4, 6), (6, 3))]
    return nn.Sequential(parts[0], nn.SiLU(), parts[1]).double()


def modes() -> int:
    return len(torch.overrides._get_current_function_mode_stack())


class OwnLayer(BernoulliDropout):
    pass


def test_known_layers_are_not_watched() -> None:
    model, x = network(), torch.randn(5, 4, dtype=torch.float64)
    assert needs_no_watching(model)
    with FunctionDraw(model, index=2) as draw:
        assert modes() == 0
        assert not model._forward_hooks
        assert not model.training
        first = model(x)
        assert [site.kind for site in draw.sites.values()] == ["ConcreteDropout.input"] * 2
    # Watched, because of a hook that does nothing, it is the same function.
    handle = model.register_forward_hook(lambda *_: None)
    assert not needs_no_watching(model)
    with FunctionDraw(model, index=2):
        assert modes() == 1
        assert torch.equal(model(x), first)
    handle.remove()
    assert model.training


def with_hook(model: nn.Module) -> nn.Module:
    model[0].layer.register_forward_pre_hook(lambda *_: None)  # type: ignore[index, union-attr]
    return model


def with_forward(model: nn.Module) -> nn.Module:
    model[1].forward = torch.relu  # type: ignore[index, union-attr]
    return model


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)),
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
        nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4)),
        nn.Sequential(nn.Linear(4, 4), nn.RReLU()),
        nn.Embedding(4, 4, max_norm=1.0),
        nn.Sequential(OwnLayer(nn.Linear(4, 4), p=0.5)),
        with_hook(network()),
        with_forward(network()),
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
    ],
)
def test_what_may_be_random_or_write_is_watched(model: nn.Module) -> None:
    assert not needs_no_watching(model)


def test_hooks_of_everybody_are_reason_to_watch() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert not needs_no_watching(network())
    finally:
        handle.remove()


def test_the_hooks_of_a_draw_do_not_make_a_chain_something_else() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    with FunctionDraw(model):
        assert is_chain(model)


def test_draws_are_left_in_the_order_in_which_they_were_opened() -> None:
    first, second = FunctionDraw(network()), FunctionDraw(nn.Sequential(nn.Linear(4, 4), nn.Dropout()))
    first.__enter__()
    second.__enter__()
    with pytest.raises(RuntimeError, match="in the order in which they were opened"):
        first.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="in the order in which they were opened"):
        second.__exit__(None, None, None)
    assert modes() == 0


def test_an_unwatched_draw_is_not_held_across_an_await_by_two_tasks() -> None:
    model = network()

    async def hold() -> None:
        with FunctionDraw(model):
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(hold(), hold())

    with pytest.raises(RuntimeError, match="another task"):
        asyncio.run(both())


def test_randomness_of_the_code_around_a_draw_is_its_own() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(x, 0.5, self.training) + torch.randn_like(x)

    for model in (Net(), network()):
        x = torch.ones(5, 4, dtype=torch.float64)
        torch.manual_seed(3)
        wanted = [torch.randn(2), torch.rand(2), torch.ones(2).bernoulli_(0.5)]
        torch.manual_seed(3)
        with FunctionDraw(model) as draw:
            first = model(x)
            found = [torch.randn(2), torch.rand(2), torch.ones(2).bernoulli_(0.5)]
            torch.multinomial(torch.ones(3), 2)
            assert torch.equal(model(x), first)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
        assert not draw.foreign


# learned rates


def loss_of(model: nn.Module, x: Tensor, index: Any) -> Tensor:
    with FunctionDraw(model, seed=1, index=index):
        out: Tensor = model(x)
    return out.square().sum()


@pytest.mark.parametrize("index", [3, [3, 5]])
@pytest.mark.parametrize("per", ["layer", "unit"])
def test_a_relaxed_rate_has_the_gradient_of_the_function(per: Any, index: Any) -> None:
    torch.manual_seed(0)
    layer = ConcreteDropout(nn.Linear(4, 3), 0.3, per=per, masks="relaxed", temperature=0.6).double()
    x = torch.randn(6, 4, dtype=torch.float64)
    loss_of(layer, x, index).backward()
    step = 1e-5
    for at in range(layer.logit_p.numel()):
        losses = []
        for sign in (1, -1):
            with torch.no_grad():
                layer.logit_p.reshape(-1)[at] += sign * step
            losses.append(loss_of(layer, x, index).item())
            with torch.no_grad():
                layer.logit_p.reshape(-1)[at] -= sign * step
        assert layer.logit_p.grad is not None
        slope = (losses[0] - losses[1]) / (2 * step)
        assert layer.logit_p.grad.reshape(-1)[at].item() == pytest.approx(slope, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("masks", ["hard", "straight-through"])
def test_a_hard_rate_has_the_gradient_of_straight_through_training(masks: Any) -> None:
    model, x = network(masks), torch.randn(6, 4, dtype=torch.float64)
    layer = model[0]
    with FunctionDraw(layer, seed=1, index=3) as draw:
        layer(x).square().sum().backward()
        found = layer.logit_p.grad.clone()
        mask = draw.noise.ready(layer, "input", x)
    # Another way: the random numbers of the draw, turned round, in the function that training uses.
    bits = draw.noise._made(".input", (1, 4), lambda s, g: random_bits(s, torch.device("cpu"), g))
    logits = layer.logit_p.detach().clone().requires_grad_()
    out = apply_straight_through(x, logits, ~bits.expand(6, 4).contiguous(), layer.temperature)
    assert torch.allclose(out, x * mask)
    layer.layer(out).square().sum().backward()
    assert logits.grad is not None
    assert found.item() == pytest.approx(logits.grad.item(), rel=1e-5)


def test_slopes_are_those_of_the_noise() -> None:
    logits = torch.tensor([-1.0, 0.3, 2.0], dtype=torch.float64)
    bits = random_bits((50, 3), torch.device("cpu"))
    uniform = (bits.to(torch.float64) % 2**32) / 2**32

    def relaxed(where: Tensor, u: Tensor) -> Tensor:
        return torch.sigmoid(-(torch.logit(u) + where) / 0.4) / torch.sigmoid(-where)

    step = 1e-6
    slope = (relaxed(logits + step, uniform) - relaxed(logits - step, uniform)) / (2 * step)
    assert torch.allclose(relaxed_slope(logits, bits, 0.4), slope, atol=1e-4)
    # Hard masks: the slope of the relaxed mask z, and that of the scale of the hard one.
    z = torch.sigmoid((torch.logit(uniform) - logits) / 0.4)
    p = torch.sigmoid(logits)
    wanted = -z * (1 - z) / 0.4 / (1 - p) + (uniform >= p) * p / (1 - p)
    assert torch.allclose(hard_slope(logits, bits, 0.4), wanted, atol=1e-4)


def test_many_backward_passes_go_through_one_draw() -> None:
    model, x = network(), torch.randn(6, 4, dtype=torch.float64)
    with FunctionDraw(model, index=1):
        with torch.no_grad():
            model(x)
        grads = []
        for _ in range(3):
            model.zero_grad()
            model(x).square().sum().backward()
            grads.append(model[0].logit_p.grad.clone())
        model.zero_grad()
        (model(x).square().sum() + model(x).square().sum()).backward()
    assert grads[0] != 0
    assert grads[0] == grads[1] == grads[2]
    assert torch.allclose(model[0].logit_p.grad, 2 * grads[0])


def test_a_rate_that_is_not_trained_has_no_gradient() -> None:
    model, x = network(), torch.randn(6, 4, dtype=torch.float64)
    for part in model.modules():
        if isinstance(part, ConcreteDropout):
            part.logit_p.requires_grad_(False)
    with FunctionDraw(model):
        model(x).square().sum().backward()
    assert model[0].logit_p.grad is None
    assert model[0].layer.weight.grad is not None


def test_a_draw_that_began_without_gradients_has_them_later() -> None:
    model, x = network(), torch.randn(6, 4, dtype=torch.float64)
    with FunctionDraw(model, index=1):
        with torch.inference_mode():
            first = model(x)
        out = model(x)
        out.sum().backward()
    assert torch.equal(first, out)
    assert model[0].logit_p.grad is not None


def test_parameters_that_stand_in_for_a_call_get_their_own_gradient() -> None:
    model, x = network("relaxed"), torch.randn(6, 4, dtype=torch.float64)
    others = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    with FunctionDraw(model, index=1):
        model(x).sum().backward()
        torch.func.functional_call(model, others, (x,)).sum().backward()
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter.grad, others[name].grad), name  # type: ignore[arg-type]
