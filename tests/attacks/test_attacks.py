"""Attacks against linear models, whose worst inputs have a closed form, and against other roads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor, nn

from bayesdrop import BernoulliDropout, Categorical, ConcreteDropout, FunctionDraw, Gaussian, NoRandomness
from bayesdrop.attacks import fgsm, loss_gradient, pgd
from bayesdrop.attacks.ball import BALLS


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=seeded(seed))


def linear(outputs: int, features: int = 5, seed: int = 0) -> nn.Linear:
    layer = nn.Linear(features, outputs).double()
    with torch.no_grad():
        layer.weight.copy_(torch.randn(outputs, features, dtype=torch.float64, generator=seeded(seed)))
        layer.bias.zero_()
    return layer


def noisy(kind: Any = BernoulliDropout) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        kind(nn.Linear(5, 8), 0.3), nn.Tanh(), nn.BatchNorm1d(8), kind(nn.Linear(8, 3), 0.4)
    ).double()


def labels(count: int, classes: int) -> Tensor:
    return torch.randint(classes, (count,), generator=seeded(7))


# closed forms


def worst_of_two_classes(net: nn.Linear, x: Tensor, y: Tensor, eps: float, norm: str, clamp: Any) -> Tensor:
    """The likelihood of y falls with its margin w . x alone: every entry goes against w, as far as it may."""
    w = net.weight[y] - net.weight[1 - y]
    if norm == "l2":
        return x - eps * w / w.norm(dim=1, keepdim=True)
    moved = x - eps * w.sign()
    return moved if clamp is None else moved.clamp(*clamp)


@pytest.mark.parametrize("goal", ["wrong", "sure"])
@pytest.mark.parametrize(("norm", "clamp"), [("linf", None), ("linf", (0.0, 1.0)), ("l2", None)])
def test_the_worst_inputs_of_two_linear_classes_are_found(norm: Any, clamp: Any, goal: Any) -> None:
    net, x, y = linear(2), rows(6, 5), labels(6, 2)
    exact = worst_of_two_classes(net, x, y, 0.3, norm, clamp)
    options: dict[str, Any] = {"eps": 0.3, "norm": norm, "clamp": clamp, "goal": goal}
    torch.testing.assert_close(fgsm(net, x, y, Categorical(), **options), exact)
    # What a start has across the gradient is halved by every step of length eps that is put back.
    options |= {"steps": 60, "step_size": 0.3}
    for random_start in (True, False):
        found = pgd(net, x, y, Categorical(), random_start=random_start, **options)
        torch.testing.assert_close(found, exact)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_worst_inputs_of_a_linear_regression_are_found(norm: Any) -> None:
    net, x = linear(1), rows(6, 5)
    y = net(x).detach() + torch.tensor([[1.0], [-1.0]], dtype=torch.float64).repeat(3, 1)
    away = torch.sign(net(x).detach() - y)
    w = net.weight
    exact = x + 0.2 * away * (w.sign() if norm == "linf" else w / w.norm())
    options: dict[str, Any] = {"eps": 0.2, "norm": norm}
    torch.testing.assert_close(fgsm(net, x, y, Gaussian(0.5), **options), exact)
    found = pgd(net, x, y, Gaussian(0.5), random_start=False, steps=50, **options)
    torch.testing.assert_close(found, exact)


def test_a_sure_attack_reaches_what_bounded_optimisation_finds() -> None:
    net, x = linear(4), rows(5, 5)
    with torch.no_grad():
        y = net(x).argmax(1)
        rival = net(x).scatter(1, y.unsqueeze(1), -torch.inf).argmax(1)
        w, b = net.weight.numpy(), net.bias.numpy()
    # With this small ball the most probable other class stays the same.
    found = pgd(net, x, y, Categorical(), eps=0.05, steps=300, step_size=1e-3, goal="sure", clamp=(0, 1))
    for row in range(5):

        def height(value: Any, row: int = row) -> float:
            logits = w @ value + b
            return float(np.log(np.exp(logits).sum()) - logits[int(rival[row])])

        centre = x[row].numpy()
        bounds = list(zip((centre - 0.05).clip(0, 1), (centre + 0.05).clip(0, 1), strict=True))
        best = minimize(height, centre, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-14})
        assert height(found[row].numpy()) == pytest.approx(best.fun, abs=2e-3)


# gradients


def test_the_gradient_through_the_mean_is_autograds() -> None:
    net, x, y = noisy().train(), rows(6, 5), labels(6, 3)
    found = loss_gradient(net, x, y, Categorical())
    leaf = x.clone().requires_grad_()
    nn.functional.cross_entropy(net.eval()(leaf), y, reduction="sum").backward()
    torch.testing.assert_close(found, leaf.grad)


@pytest.mark.parametrize("kind", [BernoulliDropout, ConcreteDropout])
def test_the_gradient_through_draws_is_the_mean_of_theirs(kind: Any) -> None:
    net, x, y = noisy(kind), rows(6, 5), labels(6, 3)
    found = loss_gradient(net, x, y, Categorical(), through="draws", num_draws=4, seed=3)
    slopes = []
    for index in range(4):
        leaf = x.clone().requires_grad_()
        with FunctionDraw(net, seed=3, index=index):
            nn.functional.cross_entropy(net(leaf), y, reduction="sum").backward()
        slopes.append(leaf.grad)
    torch.testing.assert_close(found, torch.stack(slopes).mean(0))  # type: ignore[arg-type]
    assert not torch.allclose(slopes[0], slopes[1])  # type: ignore[arg-type]


def test_the_gradient_through_draws_tends_to_the_sum_over_all_masks() -> None:
    net = nn.Sequential(BernoulliDropout(linear(1, features=3), 0.3))
    x, y = rows(2, 3), rows(2, 1, seed=1)
    w = net[0].layer.weight[0].detach()
    # L = (y - w.z x)^2 / 2: E dL/dx_k = E (w.z x - y) w_k z_k, from the first two moments of z / (1 - p).
    second = torch.ones(3, 3, dtype=torch.float64) + torch.eye(3, dtype=torch.float64) * (1 / 0.7 - 1)
    exact = w * ((x * w) @ second - y)
    parts = [
        loss_gradient(net, x, y, Gaussian(1.0), through="draws", num_draws=50, seed=seed)
        for seed in range(40)
    ]
    found = torch.stack(parts)
    assert ((found.mean(0) - exact).abs() <= 5 * found.std(0) / 40**0.5).all()


def test_later_steps_see_other_functions() -> None:
    net, x, y = noisy(), rows(6, 5), labels(6, 3)
    options: dict[str, Any] = {"through": "draws", "num_draws": 2, "seed": 5, "random_start": False}
    found = pgd(net, x, y, Categorical(), eps=1.0, norm="l2", steps=2, step_size=0.1, **options)
    now = x
    for step in range(2):
        leaf = now.clone().requires_grad_()
        for index in (2 * step, 2 * step + 1):
            with FunctionDraw(net, seed=5, index=index):
                nn.functional.cross_entropy(net(leaf), y, reduction="sum").backward()
        assert leaf.grad is not None
        now = now + 0.1 * leaf.grad / leaf.grad.norm(dim=1, keepdim=True)
    torch.testing.assert_close(found, now)


# balls


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    norm=st.sampled_from(["linf", "l2"]),
    eps=st.floats(0, 2),
    steps=st.integers(1, 5),
    size=st.floats(0.01, 3),
    start=st.booleans(),
    through=st.sampled_from(["mean", "draws"]),
    seed=st.integers(0, 100),
)
def test_attacked_inputs_stay_in_the_ball_and_the_range(
    norm: Any, eps: float, steps: int, size: float, start: bool, through: Any, seed: int
) -> None:
    net, x, y = noisy(), rows(4, 5, seed=seed), labels(4, 3)
    found = pgd(
        net, x, y, Categorical(), eps=eps, norm=norm, steps=steps, step_size=size, random_start=start,
        clamp=(0.0, 1.0), through=through, num_draws=2, seed=seed,
    )  # fmt: skip
    change = found - x
    length = change.abs().amax(1) if norm == "linf" else change.norm(dim=1)
    assert (length <= eps * (1 + 1e-12) + 1e-15).all()
    assert found.min() >= 0
    assert found.max() <= 1


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_starts_are_uniform_in_the_ball(norm: str) -> None:
    like = torch.zeros(4000, 3, dtype=torch.float64)
    found = BALLS[norm].uniform(like, 2.0, seeded(1))
    length = found.abs().amax(1) if norm == "linf" else found.norm(dim=1)
    assert (length <= 2).all()
    # The volume inside a radius is its share to the power of the dimension.
    share = (length / 2) ** 3
    assert abs(float(share.mean()) - 0.5) <= 5 * float(share.std()) / 4000**0.5
    assert (found.mean(0).abs() <= 5 * found.std(0) / 4000**0.5).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_rows_without_a_gradient_stay_where_they_are(norm: Any) -> None:
    net, x, y = linear(2), rows(3, 5), labels(3, 2)
    with torch.no_grad():
        net.weight.zero_()
    assert torch.equal(fgsm(net, x, y, Categorical(), eps=0.5, norm=norm), x)
    tiny = torch.full((1, 4), 1e-300, dtype=torch.float64)
    torch.testing.assert_close(BALLS["l2"].steepest(tiny), torch.full((1, 4), 0.5, dtype=torch.float64))


# what they do


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("through", ["mean", "draws"])
def test_the_loss_goes_up_and_with_many_steps_further(norm: Any, through: Any) -> None:
    net, x, y = noisy(), rows(40, 5), labels(40, 3)
    options: dict[str, Any] = {"eps": 0.5, "norm": norm, "through": through, "num_draws": 8, "seed": 2}

    def loss(new: Tensor) -> Tensor:
        if through == "mean":
            return nn.functional.cross_entropy(net.eval()(new), y)
        total = torch.zeros((), dtype=torch.float64)
        for index in range(8):
            with FunctionDraw(net, seed=2, index=index):
                total += nn.functional.cross_entropy(net(new), y)
        return total / 8

    with torch.no_grad():
        before = loss(x)
        once = loss(fgsm(net, x, y, Categorical(), **options))
        often = loss(pgd(net, x, y, Categorical(), steps=30, random_start=False, **options))
    assert before < once
    assert before < often
    if through == "mean":
        assert once <= often + 1e-6


@pytest.mark.parametrize("through", ["mean", "draws"])
def test_a_sure_attack_makes_another_class_more_probable(through: Any) -> None:
    net, x = noisy(), rows(60, 5)
    with torch.no_grad():
        y = net.eval()(x).argmax(1)

    def rival(goal: Any) -> float:
        new = pgd(net, x, y, Categorical(), eps=1.5, goal=goal, through=through, num_draws=8)
        with torch.no_grad():
            probs = net.eval()(new).softmax(1)
        return float(probs.scatter(1, y.unsqueeze(1), 0.0).amax(1).mean())

    assert rival("sure") > rival("wrong")


# nothing is left behind


@pytest.mark.parametrize("through", ["mean", "draws"])
@pytest.mark.parametrize("goal", ["wrong", "sure"])
def test_the_model_and_the_random_state_are_left_alone(through: Any, goal: Any) -> None:
    net = noisy().train()
    net[2].eval()
    flags = [part.training for part in net.modules()]
    state = {name: value.clone() for name, value in net.state_dict().items()}
    x, y = rows(6, 5).requires_grad_(), labels(6, 3)
    torch.manual_seed(4)
    random = torch.get_rng_state()
    for found in (
        fgsm(net, x, y, Categorical(), eps=0.1, through=through, goal=goal),
        pgd(net, x, y, Categorical(), eps=0.1, steps=3, through=through, goal=goal),
    ):
        assert not found.requires_grad
        assert not torch.equal(found, x)
    assert torch.equal(random, torch.get_rng_state())
    assert [part.training for part in net.modules()] == flags
    assert all(parameter.grad is None for parameter in net.parameters())
    assert all(parameter.requires_grad for parameter in net.parameters())
    assert x.grad is None
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())


class Breaks(nn.Module):
    """Raises in its second pass."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.passes = noisy(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.passes == 2:
            raise RuntimeError("broken")
        out: Tensor = self.net(x)
        return out


@pytest.mark.parametrize("through", ["mean", "draws"])
def test_flags_are_put_back_after_an_error(through: Any) -> None:
    net = Breaks().train()
    with pytest.raises(RuntimeError, match="broken") as caught:
        pgd(net, rows(6, 5), labels(6, 3), Categorical(), eps=0.1, steps=2, through=through)
    # The exception is still held here, and its frames with it.
    assert all(part.training for part in net.modules())
    assert caught.value is not None


@pytest.mark.parametrize("switched", [torch.no_grad, torch.inference_mode])
def test_attacks_work_where_gradients_are_switched_off(switched: Any) -> None:
    net, x, y = noisy(), rows(6, 5), labels(6, 3)
    expected = pgd(net, x, y, Categorical(), eps=0.1, steps=2, through="draws")
    with switched():
        found = pgd(net, rows(6, 5), y, Categorical(), eps=0.1, steps=2, through="draws")
    assert torch.equal(found, expected)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_batches_make_no_difference(norm: Any) -> None:
    net, x, y = noisy(), rows(7, 5), labels(7, 3)
    options: dict[str, Any] = {"eps": 0.2, "norm": norm, "steps": 3, "through": "draws", "num_draws": 3}
    whole = pgd(net, x, y, Categorical(), **options)
    torch.testing.assert_close(pgd(net, x, y, Categorical(), batch_size=2, **options), whole)
    other = pgd(net, x, y, Categorical(), **options, seed=1)
    assert not torch.allclose(other, whole)


def test_plain_dropout_and_images_are_attacked_too() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(3 * 36, 4))
    x = torch.rand(5, 1, 8, 8, generator=seeded(1))
    found = pgd(net, x, labels(5, 4), Categorical(), eps=0.1, steps=3, clamp=(0, 1), through="draws")
    assert found.shape == x.shape
    assert found.dtype == x.dtype
    assert float((found - x).abs().max()) <= 0.1 + 1e-6


# errors


def test_what_cannot_be_attacked_is_refused() -> None:
    net, x, y = linear(3), rows(4, 5), labels(4, 3)
    with pytest.raises(ValueError, match=r"attacks.fgsm: `eps` must be a number of at least 0.*got -0.1"):
        fgsm(net, x, y, Categorical(), eps=-0.1)
    with pytest.raises(ValueError, match=r"attacks.pgd: `norm` must be 'linf' or 'l2'; got 'l1'"):
        pgd(net, x, y, Categorical(), eps=0.1, norm="l1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"attacks.fgsm: `x` must be within clamp=0, 0.5; got .values from"):
        fgsm(net, x, y, Categorical(), eps=0.1, clamp=(0, 0.5))
    with pytest.raises(
        ValueError, match=r"attacks.pgd: `goal` must be 'wrong' unless the likelihood is Categorical"
    ):
        pgd(net, x, rows(4, 3), Gaussian(1.0), eps=0.1, goal="sure")
    with pytest.raises(ValueError, match="`y` must be 4 rows, as `x` has"):
        fgsm(net, x, y[:3], Categorical(), eps=0.1)
    with pytest.raises(TypeError, match=r"attacks.fgsm: `x` must be"):
        fgsm(net, x.long(), y, Categorical(), eps=0.1)


def test_a_model_without_a_gradient_is_refused() -> None:
    class Rounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.detach().round()

    with pytest.raises(ValueError, match=r"attacks.fgsm: `model` must be differentiable in its inputs"):
        fgsm(Rounded(), rows(4, 3), labels(4, 3), Categorical(), eps=0.1)


def test_draws_of_a_model_without_noise_are_refused() -> None:
    with pytest.raises(NoRandomness):
        fgsm(linear(3), rows(4, 5), labels(4, 3), Categorical(), eps=0.1, through="draws")
