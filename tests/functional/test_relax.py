"""Relaxed masks against quadrature and automatic differentiation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bayesdrop.functional import bernoulli_dropout_kl, learned_dropout_kl, relaxed_keep, relaxed_moments
from bayesdrop.functional.relax import apply_relaxed, apply_straight_through
from bayesdrop.noise.bits import KeepRule, from_bits, random_bits, uniform_from_bits

CPU = torch.device("cpu")


def fine_grid(count: int = 2_000_000) -> Tensor:
    """Midpoints of (0, 1) as random bits are read."""
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def keep_of(logit_p: float, u: Tensor, t: float) -> Tensor:
    return torch.sigmoid(-(logit_p + torch.logit(u)) / t)


@pytest.mark.parametrize("t", [0.02, 0.1, 2 / 3, 2.0])
@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_moments_agree_with_a_fine_grid(p: float, t: float) -> None:
    logit_p = math.log(p / (1 - p))
    z = keep_of(logit_p, fine_grid(), t) / (1 - p)
    mean, variance = relaxed_moments(torch.tensor(logit_p, dtype=torch.float64), t)
    assert mean.item() == pytest.approx(z.mean().item(), abs=3e-6)
    assert variance.item() == pytest.approx(z.var(correction=0).item(), abs=3e-6 / (1 - p) ** 2)


@pytest.mark.parametrize(("p", "t", "mean"), [(0.05, 0.1, 0.999), (0.05, 0.67, 0.965), (0.2, 0.67, 0.939)])
def test_relaxation_shrinks_the_mean_as_known(p: float, t: float, mean: float) -> None:
    value, _ = relaxed_moments(torch.logit(torch.tensor(p, dtype=torch.float64)), t)
    assert value.item() == pytest.approx(mean, abs=6e-4)


def test_low_temperatures_tend_to_bernoulli_masks() -> None:
    p = torch.tensor([0.05, 0.3, 0.8], dtype=torch.float64)
    mean, variance = relaxed_moments(torch.logit(p), 1e-4)
    torch.testing.assert_close(mean, torch.ones_like(p), rtol=1e-4, atol=0)
    torch.testing.assert_close(variance, p / (1 - p), rtol=1e-3, atol=0)


def test_a_relaxed_mask_is_near_one_where_the_hard_one_keeps() -> None:
    torch.manual_seed(0)
    bits = random_bits((10_000,), CPU)
    logit_p = torch.logit(torch.tensor(0.3))
    relaxed = relaxed_keep(logit_p, bits, 1e-3)
    # Both read the same number: dropped where u < p, and z is small where u is large.
    u = uniform_from_bits(bits)
    assert torch.equal(relaxed > 0.5, u < 0.7)
    assert relaxed.mean().item() == pytest.approx(0.7, abs=5 * math.sqrt(0.21 / 10_000))


@pytest.mark.parametrize("shape", [(), (5,), (5, 1, 1)])
def test_gradients_are_those_of_automatic_differentiation(shape: tuple[int, ...]) -> None:
    x_shape = (7, 5) if len(shape) < 2 else (7, 5, 2, 3)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(x_shape, generator=generator, dtype=torch.float64, requires_grad=True)
    logit_p = (torch.randn(shape, generator=generator, dtype=torch.float64) - 1).requires_grad_()
    bits = torch.rand(x_shape, generator=generator, dtype=torch.float64)
    upstream = torch.randn(x_shape, generator=generator, dtype=torch.float64)
    ours = apply_relaxed(x, logit_p, bits, 0.3)
    plain = x * relaxed_keep(logit_p, bits, 0.3) / torch.sigmoid(-logit_p)
    torch.testing.assert_close(ours, plain)
    for mine, theirs in zip(
        torch.autograd.grad(ours, [x, logit_p], upstream),
        torch.autograd.grad(plain, [x, logit_p], upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_straight_through_is_hard_forwards_and_relaxed_backwards() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    logit_p = torch.tensor(-0.5, dtype=torch.float64, requires_grad=True)
    bits = torch.rand(50, 4, generator=generator, dtype=torch.float64)
    keep = torch.sigmoid(-logit_p)
    soft = relaxed_keep(logit_p, bits, 0.5)
    hard = (soft > 0.5).double()
    plain = x * (hard + soft - soft.detach()) / keep
    ours = apply_straight_through(x, logit_p, bits, 0.5)
    torch.testing.assert_close(ours, plain)
    upstream = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    for mine, theirs in zip(
        torch.autograd.grad(ours, [x, logit_p], upstream),
        torch.autograd.grad(plain, [x, logit_p], upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_the_gradient_of_an_expected_loss_agrees_with_quadrature() -> None:
    """d/dlogit E_u (x z / (1 - p) - y)^2, one unit: a grid over u against many random numbers."""
    t, x, y = 0.1, 1.3, 0.4
    logit_p = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
    z = torch.sigmoid(-(logit_p + torch.logit(fine_grid(400_000))) / t)
    (exact,) = torch.autograd.grad((x * z / torch.sigmoid(-logit_p) - y).square().mean(), logit_p)
    torch.manual_seed(0)
    count = 200_000
    inputs = torch.full((count, 1), x, dtype=torch.float64)
    per_row = logit_p.detach().expand(count, 1).clone().requires_grad_()
    out = apply_relaxed(inputs, per_row, random_bits((count, 1), CPU), t)
    (each,) = torch.autograd.grad((out - y).square().sum(), per_row)
    error = each.std() / count**0.5
    assert abs(each.mean() - exact) <= 5 * error


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("per_unit", [False, True])
def test_the_divergence_and_its_gradients_are_the_plain_ones(raw: bool, per_unit: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    shape = (3,) if per_unit else ()
    logit_p = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    p = torch.sigmoid(logit_p)
    mean_square = weight.square().sum(0) * ((1 - p) ** 2 if raw else 1)
    plain = bernoulli_dropout_kl(mean_square, p.expand(3), 0.7).sum()
    ours = learned_dropout_kl(weight, logit_p, 3, 0.7, raw=raw)
    torch.testing.assert_close(ours, plain)
    for mine, theirs in zip(
        torch.autograd.grad(ours * 2, [weight, logit_p]),
        torch.autograd.grad(plain * 2, [weight, logit_p]),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_fresh_bits_follow_the_seed_and_are_uniform() -> None:
    torch.manual_seed(5)
    first, second = random_bits((100_000,), CPU), random_bits((100_000,), CPU)
    torch.manual_seed(5)
    assert torch.equal(random_bits((100_000,), CPU), first)
    assert not torch.equal(first, second)
    for bits in (first, second):
        counts = np.histogram(uniform_from_bits(bits).numpy(), bins=50, range=(0, 1))[0]
        chi_square = ((counts - 2000) ** 2 / 2000).sum()
        assert chi_square < 49 + 5 * math.sqrt(2 * 49)
    together = torch.stack([uniform_from_bits(first), uniform_from_bits(second)]) - 0.5
    correlation = (together[0] * together[1]).mean() * 12
    assert abs(correlation) < 5 / math.sqrt(100_000)


@pytest.mark.parametrize("shape", [(1001,), (300, 400), (7, 3, 50, 50)])
def test_a_mirrored_mask_is_that_of_one_minus_u(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    bits = random_bits(shape, CPU)
    p = torch.rand(shape[-1])
    rule = KeepRule(p)
    u = bits.numpy().view(np.uint32).astype(np.float64) / 2**32
    scale = (1 / (1 - p)).numpy()
    np.testing.assert_allclose(rule.mask(bits).numpy(), (u >= p.numpy()) * scale, rtol=1e-6)
    mirrored = (1 - 2**-32 - u >= p.numpy()) * scale
    np.testing.assert_allclose(rule.mask(bits, mirrored=True).numpy(), mirrored, rtol=1e-6)
    assert set(from_bits(bits, p, scaled=False).unique().tolist()) == {0.0, 1.0}


def test_masks_can_be_batched_and_compiled_code_gets_plain_uniform_numbers() -> None:
    p = torch.tensor(0.5)

    def noise(_: Tensor) -> Tensor:
        return from_bits(random_bits((200,), CPU), p)

    many = torch.vmap(noise, randomness="different")(torch.zeros(3))
    assert many.shape == (3, 200)
    assert not torch.equal(many[0], many[1])


@pytest.mark.parametrize("apply", [apply_relaxed, apply_straight_through])
def test_one_rate_of_masks_of_channels_has_the_gradient_of_masks_of_pixels(apply: Any) -> None:
    x = torch.randn(2, 3, 4, 5, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    bits = torch.rand(2, 3, 1, 1, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    gradients = []
    for shape in ((2, 3, 1, 1), (2, 3, 4, 5)):
        logit_p = torch.tensor(-0.4, dtype=torch.double, requires_grad=True)
        apply(x, logit_p, bits.expand(shape), 0.5).square().sum().backward()
        gradients.append(logit_p.grad)
    torch.testing.assert_close(gradients[0], gradients[1])
