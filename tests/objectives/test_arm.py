"""Gradients of learned masks against the sum over all masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayesdrop import Categorical, Gaussian, LearnableDropout, NegativeELBO, arm_loss, fit, predict, total_kl
from bayesdrop.functional.arm import rate_gradient
from bayesdrop.layers import LearnableNoise, freeze_batch_norm
from bayesdrop.layers.weights import num_units
from bayesdrop.objectives import RowsMeet
from bayesdrop.objectives.arm import learns_masks

ESTIMATORS = [("disarm", None), ("arm", None), ("loo", 3), ("reinforce", None)]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def all_masks(count: int) -> Tensor:
    return torch.tensor(list(product([0.0, 1.0], repeat=count)), dtype=torch.float64)


class FixedMasks(nn.Module):
    """A learnable layer whose masks are given: the function of z that the expectation is over."""

    def __init__(self, layer: LearnableDropout) -> None:
        super().__init__()
        self.inner = layer
        self.z: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        assert self.z is not None
        layer = self.inner
        z = self.z if layer.scaling == "raw" else self.z / layer.laid_out(1 - layer.p, x)
        return layer.layer(x * z)


def exact_loss(model: nn.Sequential, loss: Callable[[nn.Module], Tensor]) -> Tensor:
    """E_z of the mean loss, the masks of all layers enumerated.

    Rows do not meet, so that one mask for all rows at a time gives each row's expectation.
    """
    learned = [layer for layer in model if isinstance(layer, LearnableDropout)]
    units = [num_units(layer.layer) for layer in learned]
    fixed = nn.Sequential(*[FixedMasks(m) if isinstance(m, LearnableDropout) else m for m in model])
    stand_ins = [m for m in fixed if isinstance(m, FixedMasks)]
    total = torch.zeros((), dtype=torch.float64)
    for bits in all_masks(sum(units)):
        weight = torch.ones((), dtype=torch.float64)
        for stand_in, z in zip(stand_ins, bits.split(units), strict=True):
            p = stand_in.inner.p
            weight = weight * (p ** (1 - z) * (1 - p) ** z).prod()
            stand_in.z = z if stand_in.inner.layer.weight.dim() == 2 else z.reshape(-1, 1, 1)
        total = total + weight * loss(fixed).mean()
    return total


def within_five_standard_errors(
    estimate: Callable[[], Sequence[Tensor]], exact: Sequence[Tensor], repeats: int
) -> None:
    first = [torch.zeros_like(g) for g in exact]
    second = [torch.zeros_like(g) for g in exact]
    for _ in range(repeats):
        for s, q, g in zip(first, second, estimate(), strict=True):
            s.add_(g)
            q.add_(g.square())
    for s, q, truth in zip(first, second, exact, strict=True):
        mean = s / repeats
        error = ((q / repeats - mean.square()).clamp_min(0) / repeats).sqrt()
        assert ((mean - truth).abs() <= 5 * error + 1e-9).all(), (mean, truth, error)


def mlp(per: str, scaling: str) -> nn.Sequential:
    torch.manual_seed(3)
    return (
        nn.Sequential(
            nn.Linear(2, 3),
            nn.Tanh(),
            LearnableDropout(nn.Linear(3, 2), (0.2, 0.7), per=per, scaling=scaling),
            nn.ReLU(),
            LearnableDropout(nn.Linear(2, 1), 0.4, per=per, scaling=scaling),
        )
        .double()
        .train()
    )


@pytest.mark.parametrize(("estimator", "passes"), ESTIMATORS)
@pytest.mark.parametrize("scaling", ["inverted", "raw"])
@pytest.mark.parametrize("per", ["unit", "layer"])
def test_gradients_are_those_of_the_sum_over_all_masks(
    estimator: str, passes: int | None, scaling: str, per: str
) -> None:
    model = mlp(per, scaling)
    x = torch.randn(4, 2, generator=seeded(0), dtype=torch.float64)
    y = torch.randn(4, 1, generator=seeded(1), dtype=torch.float64)

    def loss(network: nn.Module) -> Tensor:
        return (network(x) - y).square().sum(1)

    parameters = list(model.parameters())
    exact = torch.autograd.grad(exact_loss(model, loss), parameters)
    torch.manual_seed(0)
    within_five_standard_errors(
        lambda: torch.autograd.grad(
            arm_loss(model, loss, estimator=estimator, num_passes=passes), parameters
        ),
        exact,
        repeats=400,
    )


@pytest.mark.parametrize("estimator", ["disarm", "arm"])
def test_channels_of_a_convolution(estimator: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 2),
        nn.ReLU(),
        LearnableDropout(nn.Conv2d(3, 2, 2), 0.3),
        nn.Flatten(),
        LearnableDropout(nn.Linear(2, 1), 0.6, per="layer"),
    ).double()
    x = torch.randn(3, 1, 3, 3, generator=seeded(0), dtype=torch.float64)

    def loss(network: nn.Module) -> Tensor:
        return network(x).square().sum(1)

    parameters = list(model.parameters())
    exact = torch.autograd.grad(exact_loss(model, loss), parameters)
    within_five_standard_errors(
        lambda: torch.autograd.grad(arm_loss(model, loss, estimator=estimator), parameters), exact, 300
    )


@pytest.mark.parametrize("estimator", ["disarm", "arm"])
def test_rows_that_meet_in_batch_norm_are_credited_together(estimator: str) -> None:
    torch.manual_seed(1)
    layer = LearnableDropout(nn.Linear(2, 2), torch.tensor([0.3, 0.6])).double()
    norm = nn.BatchNorm1d(2).double()
    head = nn.Linear(2, 1).double()
    model = nn.Sequential(layer, norm, head)
    x = torch.randn(3, 2, generator=seeded(0), dtype=torch.float64)
    y = torch.randn(3, 1, generator=seeded(1), dtype=torch.float64)

    def loss(network: nn.Module) -> Tensor:
        return (network(x) - y).square().sum(1)

    exact_value = torch.zeros((), dtype=torch.float64)
    for z in all_masks(6).reshape(-1, 3, 2):
        weight = (layer.p ** (1 - z) * (1 - layer.p) ** z).prod()
        hidden = layer.layer(x * z / (1 - layer.p))
        normed = nn.functional.batch_norm(hidden, None, None, norm.weight, norm.bias, True, 0.1, norm.eps)
        exact_value = exact_value + weight * (head(normed) - y).square().sum(1).mean()
    parameters = list(model.parameters())
    exact = torch.autograd.grad(exact_value, parameters)
    with pytest.warns(RowsMeet, match=r"rows after the learned masks of '0':"):
        arm_loss(model, loss, estimator=estimator)
    # once a model
    within_five_standard_errors(
        lambda: torch.autograd.grad(arm_loss(model, loss, estimator=estimator), parameters), exact, 800
    )


@pytest.mark.parametrize("how", ["frozen", "eval"])
@pytest.mark.parametrize("learned", ["weights", "alone"])
def test_rows_do_not_meet_in_batch_norm_that_stands_still(how: str, learned: str) -> None:
    """Every row is credited with its own loss: no warning, and exact; one mask for all rows enumerates it."""
    torch.manual_seed(1)
    layer = LearnableDropout(nn.Linear(2, 2)) if learned == "weights" else LearnableNoise(2)
    model = nn.Sequential(nn.Linear(2, 2), layer, nn.BatchNorm1d(2), nn.Tanh(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        layer.logit_p.copy_(torch.logit(torch.tensor([0.3, 0.6])))
        model[2].running_mean.fill_(0.3)
        model[2].running_var.fill_(0.4)
    if how == "frozen":
        model = freeze_batch_norm(model).train()
    else:
        model[2].eval()
    x = torch.randn(3, 2, generator=seeded(0), dtype=torch.float64)
    y = torch.randn(3, 1, generator=seeded(1), dtype=torch.float64)

    def loss(network: nn.Module) -> Tensor:
        return (network(x) - y).square().sum(1)

    parameters = list(model.parameters())
    exact = torch.autograd.grad(exact_loss(model, loss), parameters)
    within_five_standard_errors(lambda: torch.autograd.grad(arm_loss(model, loss), parameters), exact, 400)


def test_a_mask_behind_the_last_batch_norm_keeps_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    first, last = LearnableDropout(nn.Linear(2, 2), 0.5), LearnableDropout(nn.Linear(2, 1), 0.5)
    model = nn.Sequential(first, nn.BatchNorm1d(2), last).double()
    x = torch.randn(8, 2, dtype=torch.float64)
    credited = []

    def spied(estimator: Any, values: list[Tensor], *rest: Any, **options: Any) -> Tensor:
        credited.append(values[0].shape)
        return rate_gradient(estimator, values, *rest, **options)

    monkeypatch.setattr("bayesdrop.objectives.arm.rate_gradient", spied)
    with pytest.warns(RowsMeet, match=r"masks of '0':"):
        arm_loss(model, lambda m: m(x).square().sum(1))
    # one loss for the batch where rows meet later, one for each row where they do not
    assert credited == [(), (8,)]


def test_disarm_has_less_variance_than_arm() -> None:
    x = torch.randn(16, 2, generator=seeded(0), dtype=torch.float64)
    variance = {}
    for estimator in ("disarm", "arm"):
        model = mlp("unit", "inverted")
        logits = [layer.logit_p for layer in model if isinstance(layer, LearnableDropout)]

        def gradient(model: nn.Module = model, estimator: str = estimator, logits: list = logits) -> Tensor:
            loss = arm_loss(model, lambda m: m(x).square().sum(1), estimator=estimator)
            return torch.cat(torch.autograd.grad(loss, logits))

        torch.manual_seed(0)
        variance[estimator] = torch.stack([gradient() for _ in range(600)]).var(0).sum().item()
    assert variance["disarm"] < variance["arm"]


def test_the_elbo_is_that_of_all_masks_and_its_loop_does_not_change() -> None:
    model = mlp("unit", "inverted")
    x = torch.randn(5, 2, generator=seeded(0), dtype=torch.float64)
    y = torch.randn(5, 1, generator=seeded(1), dtype=torch.float64)
    objective = NegativeELBO(Gaussian(0.7), num_data=50, length_scale=0.3)

    def loss(network: nn.Module) -> Tensor:
        return -Gaussian(0.7).log_prob(network(x), y)

    parameters = list(model.parameters())
    exact = exact_loss(model, loss) + total_kl(model, 0.3) / 50
    gradients = torch.autograd.grad(exact, parameters)
    torch.manual_seed(0)
    values = []

    def estimate() -> Sequence[Tensor]:
        terms = objective(model, x, y)
        values.append(terms.loss.item())
        return torch.autograd.grad(terms.loss, parameters)

    within_five_standard_errors(estimate, gradients, 400)
    spread = torch.tensor(values)
    assert abs(spread.mean() - exact) <= 5 * spread.std() / 400**0.5


def test_what_comes_before_the_first_mask_runs_once() -> None:
    calls = {"before": 0, "after": 0}

    class Watched(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is nn.functional.linear:
                calls["before" if args[1] is first.weight else "after"] += 1
            return func(*args, **(kwargs or {}))

    first, last = nn.Linear(3, 4), Watched(4, 2)
    model = nn.Sequential(first, nn.Dropout(0.5), nn.ReLU(), LearnableDropout(last), nn.Linear(2, 1))
    x = torch.randn(6, 3)
    with Seen():
        arm_loss(model, lambda m: m(x).square().sum(1)).backward()
    assert calls["before"] == 1
    assert calls["after"] >= 2
    assert first.weight.grad.abs().sum() > 0


def test_batch_statistics_move_once_a_step() -> None:
    torch.manual_seed(0)
    learned = nn.Sequential(nn.BatchNorm1d(3), LearnableDropout(nn.Linear(3, 4)), nn.BatchNorm1d(4))
    x = torch.randn(8, 3)
    with pytest.warns(RowsMeet, match="masks of '1'"):
        arm_loss(learned, lambda m: m(x).square().sum(1)).backward()
    for norm in (learned[0], learned[2]):
        assert norm.num_batches_tracked == 1
    expected = nn.BatchNorm1d(3)
    expected(x)
    torch.testing.assert_close(learned[0].running_mean, expected.running_mean)


def test_other_noise_is_the_same_in_both_passes_and_the_random_stream_goes_on_as_after_one() -> None:
    model = nn.Sequential(LearnableDropout(nn.Linear(3, 50), 1e-6), nn.Dropout(0.5), nn.Linear(50, 1))
    x = torch.randn(4, 3)
    seen = []

    def loss(network: nn.Module) -> Tensor:
        out = network(x)
        seen.append(out.detach())
        return out.square().sum(1)

    torch.manual_seed(0)
    arm_loss(model, loss)
    after = torch.rand(1)
    # At a rate of one in a million nothing is dropped: the passes differ by other noise alone.
    assert torch.equal(seen[0], seen[1])
    torch.manual_seed(0)
    arm_loss(model, loss, estimator="reinforce")
    assert torch.equal(torch.rand(1), after)


def test_a_skip_that_is_changed_in_place_is_computed_again() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 3)
            self.second = LearnableDropout(nn.Linear(3, 3), 0.5)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            masked = self.second(h)
            h = h.detach()
            h += masked
            return h.sum(1, keepdim=True)

    model = InPlace().double()
    x = torch.randn(3, 2, dtype=torch.float64)
    learned = model.second
    total = torch.zeros((), dtype=torch.float64)
    h = model.first(x).detach()
    for z in all_masks(3):
        weight = (learned.p ** (1 - z) * (1 - learned.p) ** z).prod()
        out = (h + learned.layer(h * z / (1 - learned.p))).sum(1, keepdim=True)
        total = total + weight * out.square().sum(1).mean()
    exact = torch.autograd.grad(total, [learned.logit_p])
    within_five_standard_errors(
        lambda: torch.autograd.grad(arm_loss(model, lambda m: m(x).square().sum(1)), [learned.logit_p]),
        exact,
        400,
    )


def test_asking_for_the_gradient_of_a_mask_in_the_usual_way_is_an_error() -> None:
    model = nn.Sequential(LearnableDropout(nn.Linear(3, 1)))
    with pytest.raises(RuntimeError, match="Use NegativeELBO or arm_loss"):
        model(torch.ones(2, 3)).sum().backward()
    model[0].logit_p.requires_grad_(False)
    model(torch.ones(2, 3)).sum().backward()
    assert model[0].layer.weight.grad is not None


def test_a_loss_that_is_averaged_is_refused() -> None:
    model = nn.Sequential(LearnableDropout(nn.Linear(3, 1)))
    x = torch.ones(4, 3)
    with pytest.raises(ValueError, match=r"loss_per_example.*averaged or summed over rows"):
        arm_loss(model, lambda m: m(x).square().mean())
    with pytest.raises(ValueError, match=r"shape \(N,\); got \(4, 1\)"):
        arm_loss(model, lambda m: m(x).square())
    with pytest.raises(ValueError, match="`estimator` must be one of 'disarm', 'arm', 'loo', 'reinforce'"):
        arm_loss(model, lambda m: m(x).square().sum(1), estimator="magic")
    with pytest.raises(ValueError, match="`num_passes` must be 2 for 'arm'; got 3"):
        NegativeELBO(Gaussian(1.0), num_data=3, estimator="arm", num_passes=3)


def test_rates_learn_to_drop_what_only_disturbs_and_keep_what_helps() -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 4)
    y = 3 * x[:, :1]
    model = nn.Sequential(LearnableDropout(nn.Linear(4, 1), 0.3))
    objective = NegativeELBO(Gaussian(0.3), num_data=400, length_scale=0.1)
    fit(model, (x, y), objective, epochs=60, batch_size=50, lr=1e-2, seed=0)
    rates = model[0].p.detach()
    assert rates[0] < 0.02
    assert rates[1:].min() > 3 * rates[0]
    prediction = predict(model, x[:5], num_draws=50)
    assert prediction.std.max() < 1


def test_evaluation_and_no_grad_need_no_second_pass() -> None:
    model = nn.Sequential(LearnableDropout(nn.Linear(3, 2)))
    assert learns_masks(model)
    assert not learns_masks(model.eval())
    with torch.no_grad():
        assert not learns_masks(model.train())
    objective = NegativeELBO(Categorical(), num_data=10)
    terms = objective(model.eval(), torch.ones(2, 3), torch.tensor([0, 1]))
    assert torch.isfinite(terms.loss)
