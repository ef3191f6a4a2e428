"""The hand-written passes of a stack against autograd on the exported network and its objective."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, get_args

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.layers.kinds import KINDS
from bayesdrop.objectives import arm_loss
from bayesdrop.stacked import Settings, Trained, export, likelihood_of
from bayesdrop.stacked.job import trained_of
from bayesdrop.stacked.layers import NoisyInputs
from bayesdrop.stacked.parameters import ParameterLayout, Parameters
from bayesdrop.stacked.settings import Activation, Method, NoiseModel
from bayesdrop.stacked.stack import Stack, noise_shapes
from bayesdrop.stacked.streams import NoiseStreams

ROWS, INPUTS, NUM_DATA = 6, 3, 17
DIFFERENT = (
    {"p": 0.3, "input_p": 0.2, "length_scale": 0.5},
    {"p": 0.05, "input_p": 0.4, "length_scale": 2.0, "scale_by_fan_in": True},
    {"p": (0.6, 0.1), "input_p": 0.1, "length_scale": 1e-2},
)


def networks(method: str, **common: Any) -> list[Settings]:
    made = {"hidden": (5, 4), "method": method, "batch_size": ROWS, **common}
    return [Settings(**{**one, **made}) for one in DIFFERENT]


def stack_of(settings: list[Settings], targets: int = 2, *, size: float = 1.0, spread: float = 1.0) -> Stack:
    """Networks in double precision, their rates, widths and noise not where they started."""
    outputs = 2 * targets if settings[0].noise == "heteroscedastic" else targets
    layout = ParameterLayout(settings[0], INPUTS, outputs, targets)
    parameters = Parameters(layout, len(settings), torch.float64)
    parameters.draw_first_weights(range(len(settings)))
    for name, block in parameters.tensors.items():
        if name.startswith(("logit", "log_noise", "log_std", "bias_log_std")):
            block.copy_(torch.randn(block.shape, dtype=torch.float64) * spread - 1)
        elif name.startswith("weight"):
            block.mul_(size)
    level = None
    if settings[0].noise in ("fixed", "map"):
        level = torch.randn(len(settings), 1, targets, dtype=torch.float64) * 0.3
    return Stack(settings, parameters, torch.full((len(settings),), NUM_DATA, dtype=torch.float64), level)


def trained(stack: Stack, place: int) -> Trained:
    """Network `place` of the stack as it is."""
    tensors = stack.parameters.of_network(place)
    if stack.log_noise_std is not None:
        tensors["log_noise_std"] = stack.log_noise_std[place]
    settings = stack.settings[place]
    return trained_of(settings, stack.widths, tensors, seed=0, name="", num_data=NUM_DATA)


def data(stack: Stack, targets: int = 2) -> tuple[Tensor, Tensor]:
    size = len(stack.settings)
    x = torch.randn(size, ROWS, INPUTS, dtype=torch.float64)
    if stack.first.noise == "classes":
        return x, torch.randint(targets, (size, ROWS))
    if stack.first.noise == "labels":
        return x, torch.randint(2, (size, ROWS, targets)).double()
    return x, torch.randn(size, ROWS, targets, dtype=torch.float64)


def noise_of(stack: Stack, seed: int = 3) -> list[Tensor | None]:
    """The noise of one step."""
    seeds = range(seed, seed + len(stack.settings))
    shapes = noise_shapes(stack.first, stack.widths)
    source = NoiseStreams(list(seeds), shapes, normal=stack.first.has_normal_noise)
    source.make(1)
    return source.of_step(0)


def by_name(method: str, drawn: Tensor, p: Tensor) -> dict[str, Tensor]:
    """The noise of one layer of one network as our layers ask for it."""
    if method == "mixture":
        kept = (torch.special.ndtr(drawn[:-1, -1].double()) >= p) / (1 - p)
        return {"unit": kept, "weight": drawn[:-1, :-1].T.double(), "bias": drawn[-1:, :-1].double()}
    if method == "gaussian":
        return {"input": 1 + (p / (1 - p)).sqrt() * drawn.double()}
    kept = (uniform(drawn) >= p) / (1 - p)
    return {"input": kept} if method == "bernoulli" else {"weight": kept.T}


def uniform(words: Tensor) -> Tensor:
    """The middle of a word's interval of (0, 1)."""
    return (words.double() + 2**15 + 0.5) / 2**16


@contextmanager
def noise_in_place(model: nn.Module, method: str, drawn: list[Tensor | None]) -> Iterator[None]:
    """The layers' own forward passes, with the given noise in the place of fresh noise."""
    some = [one for one in drawn if one is not None]
    with pytest.MonkeyPatch.context() as patch:
        for layer, one in zip(model[::2], drawn, strict=True):
            if one is None:
                patch.setattr(layer, "noise_for", lambda *_args, **_options: None)
            elif method in ("bernoulli", "gaussian", "dropconnect", "mixture"):
                named = by_name(method, one, layer.p.detach())
                patch.setattr(layer, "noise_for", lambda _x, name, *_, named=named, **_options: named[name])
        normal = iter([one.double() for one in some])
        patch.setattr(torch, "randn_like", lambda like: next(normal))
        for module in ("concrete", "mask_pass"):
            numbers = iter([uniform(one) for one in some if one.dtype == torch.int16])
            patch.setattr(f"bayesdrop.layers.{module}.random_bits", lambda *_, numbers=numbers: next(numbers))
        yield


def autograd(
    network: Trained, x: Tensor, y: Tensor, weight: Tensor | None, drawn: list[Tensor | None]
) -> tuple[dict[str, Tensor], Tensor]:
    """Gradients of the negative evidence lower bound of the exported network, and its divergence."""
    model, likelihood = export(network).train(), likelihood_of(network).double()
    if network.log_noise_std is not None:
        # A likelihood is made in single precision: losses of some hundreds would be off by 1e-5, and the
        # slope of a rate, in which they nearly cancel, by a thousandth of a percent and more.
        likelihood.log_noise_std.data.copy_(network.log_noise_std.flatten())

    def losses(net: nn.Module) -> Tensor:
        rows = -likelihood.log_prob(net(x), y).reshape(len(x), -1).sum(1)
        return rows if weight is None else rows * weight

    with noise_in_place(model, network.settings.method, drawn):
        learnable = network.settings.method == "learnable"
        nll = arm_loss(model, losses) if learnable else losses(model).mean()
        kl = bd.total_kl(model) / NUM_DATA
        (nll + kl).backward()
    found = {}
    for index, layer in enumerate(model[::2]):
        found[f"weight{index}"] = layer.layer.weight.grad.T
        found[f"bias{index}"] = layer.layer.bias.grad.unsqueeze(0)
        for name, ours in {"logit_p": "logit", "log_alpha": "logit"}.items():
            if hasattr(layer, name):
                found[f"{ours}{index}"] = getattr(layer, name).grad.reshape(1, -1)
        if hasattr(layer, "log_std"):
            found[f"log_std{index}"] = layer.log_std.grad.T
            found[f"bias_log_std{index}"] = layer.bias_log_std.grad.unsqueeze(0)
    if network.settings.noise == "learned":
        found["log_noise_std"] = likelihood.log_noise_std.grad.reshape(1, -1)
    return found, kl.detach()


def test_a_stack_has_every_posterior_that_convert_knows_but_fixed_masks() -> None:
    assert set(get_args(Method)) == set(KINDS) - {"masksembles"}


@pytest.mark.parametrize("method", get_args(Method))
@given(
    noise=st.sampled_from(get_args(NoiseModel)),
    activation=st.sampled_from(get_args(Activation)),
    per_unit=st.booleans(),
    weighted=st.booleans(),
    inputs_too=st.booleans(),
    # Small weights: components of a mixture that are near each other.
    size=st.sampled_from([1.0, 0.03]),
    # Wide rates: those of variational dropout run into their ceiling.
    spread=st.sampled_from([1.0, 4.0]),
    seed=st.integers(0, 10_000),
)
@example(
    noise="learned", activation="gelu", per_unit=False, weighted=False, inputs_too=False,
    size=1.0, spread=1.0, seed=744,
)  # fmt: skip
@examples(max_examples=15, deadline=None)
def test_every_gradient_is_that_of_the_objective(
    method: str,
    noise: str,
    activation: str,
    per_unit: bool,
    weighted: bool,
    inputs_too: bool,
    size: float,
    spread: float,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    common: dict[str, Any] = {"noise": noise, "activation": activation, "per_unit": per_unit}
    if not inputs_too:
        common["input_p"] = 0.0
    spread = spread if method == "variational" else 1.0
    stack = stack_of(networks(method, temperature=0.5, **common), size=size, spread=3 * spread - 2)
    x, y = data(stack)
    weight = torch.rand(len(DIFFERENT), ROWS, dtype=torch.float64) + 0.5 if weighted else None
    drawn = noise_of(stack, seed)
    loss = stack.step_gradient(x, y, weight, drawn)
    divergence = stack.kl()
    assert loss.shape == (len(DIFFERENT), ROWS)
    # Noise of e^5 times the weights can make a log-variance that no number has the exponential of.
    assume(bool((loss.abs() < 1e12).all()))
    for place in range(len(DIFFERENT)):
        own = None if weight is None else weight[place]
        noises = [None if one is None else one[place] for one in drawn]
        expected, kl = autograd(trained(stack, place), x[place], y[place], own, noises)
        torch.testing.assert_close(divergence[place], kl, rtol=1e-6, atol=1e-9)
        assert set(expected) == set(stack.grads.tensors)
        for name, gradient in expected.items():
            largest = float(gradient.abs().max())
            # A single rate of variational dropout has the sum of many terms that nearly cancel.
            largest = max(largest, 1.0) if method == "variational" else largest
            torch.testing.assert_close(
                stack.grads[name][place], gradient, rtol=1e-5, atol=1e-6 * largest + 1e-9, msg=name
            )


def numeric_gradient(stack: Stack, name: str, objective: object) -> Tensor:
    """Central differences of the sum over networks, which do not touch each other."""
    block = stack.parameters[name]
    found = torch.zeros_like(block)
    step = 1e-5
    for index in product(*map(range, block.shape)):
        kept = block[index].item()
        values = []
        for shift in (step, -step):
            block[index] = kept + shift
            values.append(objective()[index[0]])  # type: ignore[operator]
        block[index] = kept
        found[index] = (values[0] - values[1]) / (2 * step)
    return found


@pytest.mark.parametrize("per_unit", [False, True])
def test_learnable_rates_have_an_unbiased_gradient(per_unit: bool) -> None:
    one = Settings(
        hidden=(3,), method="learnable", p=0.3, per_unit=per_unit, batch_size=1000, length_scale=0.7
    )
    stack = stack_of([one], targets=1)
    x, y = data(stack, 1)
    # The same row a thousand times: a batch is an average of a thousand estimates.
    x, y = x[:, :1].expand(1, 1000, INPUTS), y[:, :1].expand(1, 1000, 1)
    name = "logit1"
    masks = [torch.tensor(bits, dtype=torch.float64) for bits in product([0.0, 1.0], repeat=3)]

    def exact() -> Tensor:
        """The expectation over all masks, by enumeration."""
        stack.update_rates()
        layer = stack.layers[1]
        assert isinstance(layer, NoisyInputs)
        keep = (1 - layer.p).expand(1, 1, 3).reshape(-1)
        total = torch.zeros(1, dtype=torch.float64)
        for mask in masks:
            assert layer.mask is not None
            layer.mask.copy_(mask.expand_as(layer.mask))
            chance = torch.where(mask > 0, keep, 1 - keep).prod()
            total += chance * stack.head.loss(stack.forward(x), y, None).mean(1)
        return total + stack.kl()

    expected = numeric_gradient(stack, name, exact)
    source = NoiseStreams([8], noise_shapes(stack.first, stack.widths), normal=False)
    draws = 100
    source.make(draws)
    found = torch.empty(draws, *stack.grads[name].shape, dtype=torch.float64)
    for step in range(draws):
        stack.step_gradient(x, y, None, source.of_step(step))
        found[step] = stack.grads[name]
    error = found.std(0) / draws**0.5
    # 2^-16 is the resolution of the rate in the masks
    assert ((found.mean(0) - expected).abs() <= 5 * error + 1e-4).all()
    assert (error < 0.1 * expected.abs().max()).all()


def test_masks_are_kept_with_the_right_chance() -> None:
    stack = stack_of([Settings(hidden=(8,), p=0.3, input_p=0.05, batch_size=64)], targets=1)
    source = NoiseStreams([1], noise_shapes(stack.first, stack.widths), normal=False)
    kept = [0.0, 0.0]
    steps = 200
    source.make(steps)
    for step in range(steps):
        stack.set_noise(source.of_step(step))
        for place, layer in enumerate(stack.layers):
            assert isinstance(layer, NoisyInputs)
            assert layer.mask is not None
            kept[place] += float(layer.mask.mean()) / steps
    for share, p, units in zip(kept, (0.05, 0.3), (INPUTS, 8), strict=True):
        error = (p * (1 - p) / (steps * 64 * units)) ** 0.5
        assert abs(share - (1 - p)) <= 5 * error


def test_units_of_a_mixture_are_kept_with_the_right_chance() -> None:
    stack = stack_of([Settings(hidden=(40,), method="mixture", p=0.3, input_p=0.05)], targets=1)
    steps, kept, spread = 300, [0.0, 0.0], 0.0
    source = NoiseStreams([1], noise_shapes(stack.first, stack.widths), normal=True)
    source.make(steps)
    for step in range(steps):
        stack.set_noise(source.of_step(step))
        for place, layer in enumerate(stack.layers):
            kept[place] += float((layer.kept[0, :, 0] > 0).double().mean()) / steps  # type: ignore[attr-defined]
        output = stack.forward(torch.zeros(1, stack.first.batch_size, INPUTS, dtype=torch.float64))
        spread += float((output - output.mean(1, keepdim=True)).abs().max())
    for share, p, units in zip(kept, (0.05, 0.3), (INPUTS, 40), strict=True):
        assert abs(share - (1 - p)) <= 5 * math.sqrt(p * (1 - p) / (steps * units))
    assert spread < 1e-10  # one set of weights for a batch
