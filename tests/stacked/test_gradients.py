"""The hand-written passes of a stack against autograd on the exported network and its objective."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

import bayesdrop as bd
from bayesdrop.noise.samplers import Noise
from bayesdrop.stacked import Settings, export, likelihood_of
from bayesdrop.stacked.job import Trained
from bayesdrop.stacked.network import Stack, layout_of, noise_shapes
from bayesdrop.stacked.parameters import Parameters
from bayesdrop.stacked.streams import NoiseStreams

ROWS, INPUTS, NUM_DATA = 6, 3, 17


def stack_of(settings: list[Settings], targets: int = 2, *, spread: float = 1.0) -> Stack:
    """Three networks in double precision, their rates and noise not where they started."""
    outputs = 2 * targets if settings[0].noise == "heteroscedastic" else targets
    layout = layout_of(settings[0], INPUTS, outputs, targets)
    parameters = Parameters(layout, len(settings), torch.float64)
    parameters.start(range(len(settings)))
    for name, block in parameters.blocks.items():
        if name.startswith(("logit", "log_noise", "log_std", "bias_log_std")):
            block.copy_(torch.randn(block.shape, dtype=torch.float64) * spread - 1)
    level = None
    if settings[0].noise in ("fixed", "map"):
        level = torch.randn(len(settings), 1, targets, dtype=torch.float64) * 0.3
    return Stack(settings, parameters, torch.full((len(settings),), NUM_DATA, dtype=torch.float64), level)


def trained(stack: Stack, place: int) -> Trained:
    """Network `place` of the stack as it is."""
    settings = stack.settings[place]
    stack.update_rates()
    level = stack.noise_level()
    rates = [layer.p[place].reshape(-1) for layer in stack.layers]
    return Trained(
        settings=settings,
        seed=0,
        name="",
        widths=stack.widths,
        weights=[layer.weight[place].clone() for layer in stack.layers],
        biases=[layer.bias[place].reshape(-1).clone() for layer in stack.layers],
        p=[rate[0] if len(rate) == 1 else rate for rate in rates],
        log_noise_std=None if level is None else level[place].reshape(-1).clone(),
        num_data=NUM_DATA,
        **widths(stack, place),
    )


def widths(stack: Stack, place: int) -> dict[str, list[Tensor | None]]:
    """Of Gaussian weights."""
    if stack.first.method != "meanfield":
        return {}
    found: dict[str, list[Tensor | None]] = {"stds": [], "bias_stds": []}
    for index in range(len(stack.layers)):
        std, bias_std = stack.parameters.get(f"log_std{index}"), stack.parameters.get(f"bias_log_std{index}")
        found["stds"].append(None if std is None else std[place].exp())
        found["bias_stds"].append(None if bias_std is None else bias_std[place].exp().reshape(-1))
    return found


def data(stack: Stack, targets: int = 2) -> tuple[Tensor, Tensor]:
    size = len(stack.settings)
    x = torch.randn(size, ROWS, INPUTS, dtype=torch.float64)
    if stack.first.noise == "classes":
        return x, torch.randint(targets, (size, ROWS))
    if stack.first.noise == "labels":
        return x, torch.randint(2, (size, ROWS, targets)).double()
    return x, torch.randn(size, ROWS, targets, dtype=torch.float64)


NOISES = ("fixed", "map", "learned", "heteroscedastic", "classes", "labels")
DIFFERENT = (
    {"p": 0.3, "input_p": 0.2, "length_scale": 0.5},
    {"p": 0.05, "input_p": 0.4, "length_scale": 2.0, "scale_by_fan_in": True},
    {"p": (0.6, 0.1), "input_p": 0.1, "length_scale": 1e-2},
)


def networks(method: str, noise: str = "heteroscedastic", **common: object) -> list[Settings]:
    made = {"hidden": (5, 4), "method": method, "noise": noise, "batch_size": ROWS, **common}
    return [Settings(**{**made, **one}) for one in DIFFERENT]  # type: ignore[arg-type]


class Given(Noise):
    """Noise that is known beforehand, in the place of a layer's own."""

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __call__(self, shape: tuple[int, ...], generator: object, /) -> Tensor:
        assert self.value.shape == shape
        return self.value

    mean = variance = torch.ones(())  # type: ignore[assignment]


def masks_of(stack: Stack, place: int) -> list[Tensor | None]:
    """What each layer's input (or weight) was multiplied by, 1 / (1 - p) included."""
    found: list[Tensor | None] = []
    for layer in stack.layers:
        if layer.kind == "none":
            found.append(None)
        elif stack.first.method == "dropconnect":
            found.append(layer._kept[place].T.clone())  # type: ignore[attr-defined]
        else:
            assert layer.mask is not None
            scale = 1.0 if layer.kind == "normal" else 1 / (1 - layer.p[place])
            found.append(layer.mask[place] * scale)
    return found


def autograd_gradients(
    stack: Stack, place: int, x: Tensor, y: Tensor, weight: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Tensor], Tensor]:
    """Gradients of NegativeELBO on the exported network with the stack's own masks."""
    network = trained(stack, place)
    model, likelihood = export(network).train(), likelihood_of(network)
    for layer, mask in zip(model[::2], masks_of(stack, place), strict=True):
        if mask is not None:
            monkeypatch.setattr(layer, "noise_for", lambda *_args, value=mask, **_options: value)
    log_prob = likelihood.log_prob(model(x), y)
    per_row = log_prob.reshape(len(x), -1).sum(1)  # all labels of a row, as NegativeELBO has them
    data_term = -(per_row if weight is None else per_row * weight).mean()
    loss = data_term + bd.total_kl(model) / NUM_DATA
    loss.backward()
    found = {}
    for index, layer in enumerate(model[::2]):
        found[f"weight{index}"] = layer.layer.weight.grad.T
        found[f"bias{index}"] = layer.layer.bias.grad.unsqueeze(0)
    if stack.first.noise == "learned":
        found["log_noise_std"] = likelihood.log_noise_std.grad.reshape(1, -1).double()
    return found, bd.total_kl(model).detach() / NUM_DATA


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("method", ["bernoulli", "gaussian", "dropconnect"])
def test_gradients_are_those_of_the_objective(
    method: str, noise: str, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = stack_of(networks(method, noise))
    x, y = data(stack)
    weight = torch.rand(len(DIFFERENT), ROWS, dtype=torch.float64) + 0.5 if weighted else None
    source = NoiseStreams([3, 4, 5], noise_shapes(stack.first, stack.widths), normal=method == "gaussian")
    source.make(1)
    loss = stack.step_gradient(x, y, weight, source.of_step(0))
    divergence = stack.kl()
    for place in range(len(DIFFERENT)):
        own = None if weight is None else weight[place]
        expected, kl = autograd_gradients(stack, place, x[place], y[place], own, monkeypatch)
        for name, gradient in expected.items():
            torch.testing.assert_close(stack.grads[name][place], gradient, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(divergence[place], kl, rtol=1e-5, atol=1e-7)
    assert loss.shape == (len(DIFFERENT), ROWS)


@pytest.mark.parametrize("input_p", [0.1, 0.0])
@pytest.mark.parametrize("noise", NOISES)
def test_gaussian_weights_have_the_gradient_of_the_objective(
    noise: str, input_p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = stack_of([replace(one, input_p=input_p) for one in networks("meanfield", noise)])
    x, y = data(stack)
    source = NoiseStreams([3, 4, 5], noise_shapes(stack.first, stack.widths), normal=True)
    source.make(1)
    drawn = source.of_step(0)
    stack.step_gradient(x, y, None, drawn)
    divergence = stack.kl()
    for place in range(len(DIFFERENT)):
        network = trained(stack, place)
        model = export(network).train()
        normal = iter([one[place].double() for one in drawn if one is not None])
        monkeypatch.setattr(torch, "randn_like", lambda like, normal=normal: next(normal))
        objective = bd.NegativeELBO(likelihood_of(network), num_data=NUM_DATA).double()
        terms = objective(model, x[place], y[place])
        terms.loss.backward()
        torch.testing.assert_close(divergence[place], terms.kl.detach())
        for index, layer in enumerate(model[::2]):
            expected = {"weight": layer.layer.weight.grad.T, "bias": layer.layer.bias.grad.unsqueeze(0)}
            if index or input_p:
                expected |= {
                    "log_std": layer.log_std.grad.T,
                    "bias_log_std": layer.bias_log_std.grad.unsqueeze(0),
                }
            for name, gradient in expected.items():
                torch.testing.assert_close(
                    stack.grads[f"{name}{index}"][place], gradient, rtol=1e-5, atol=1e-7
                )
        if noise == "learned":
            level = objective.likelihood.log_noise_std.grad.reshape(1, -1)
            torch.testing.assert_close(
                stack.grads["log_noise_std"][place], level.double(), rtol=1e-5, atol=1e-7
            )


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "tanh"])
def test_every_activation_has_its_derivative(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = stack_of(networks("bernoulli", activation=activation))
    x, y = data(stack)
    source = NoiseStreams([3, 4, 5], noise_shapes(stack.first, stack.widths), normal=False)
    source.make(1)
    stack.step_gradient(x, y, None, source.of_step(0))
    expected, _ = autograd_gradients(stack, 1, x[1], y[1], None, monkeypatch)
    for name, gradient in expected.items():
        torch.testing.assert_close(stack.grads[name][1], gradient, rtol=1e-5, atol=1e-7)


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
def test_concrete_rates_have_the_gradient_of_the_relaxed_objective(per_unit: bool) -> None:
    stack = stack_of(networks("concrete", per_unit=per_unit, temperature=0.5))
    x, y = data(stack)
    source = NoiseStreams([3, 4, 5], noise_shapes(stack.first, stack.widths), normal=False)
    source.make(1)
    noise = source.of_step(0)

    def objective() -> Tensor:
        stack.update_rates()
        stack.make_masks(noise)
        return stack.head.loss(stack.forward(x), y, stack.noise_level()).mean(1) + stack.kl()

    expected = {name: numeric_gradient(stack, name, objective) for name in ("logit0", "logit1", "logit2")}
    stack.step_gradient(x, y, None, noise)
    for name, gradient in expected.items():
        torch.testing.assert_close(stack.grads[name], gradient, rtol=1e-5, atol=1e-7)


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
        stack.make_masks(source.of_step(step))
        for place, layer in enumerate(stack.layers):
            assert layer.mask is not None
            kept[place] += float(layer.mask.mean()) / steps
    for share, p, units in zip(kept, (0.05, 0.3), (INPUTS, 8), strict=True):
        error = (p * (1 - p) / (steps * 64 * units)) ** 0.5
        assert abs(share - (1 - p)) <= 5 * error
