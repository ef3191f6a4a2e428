"""Noise that stands alone: against sums over all masks, and against the nn.Dropout that it replaces."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop import Categorical, FunctionDraw, NegativeELBO, convert, predict, rates, total_kl
from bayesdrop.layers import (
    ActivationNoise,
    BernoulliNoise,
    ConcreteNoise,
    GaussianNoise,
    LearnableNoise,
    VariationalGaussianNoise,
)
from bayesdrop.layers.places import DROPOUTS
from bayesdrop.models import fc_densenet, unet

KINDS: dict[str, type[ActivationNoise]] = {
    "bernoulli": BernoulliNoise,
    "gaussian": GaussianNoise,
    "concrete": ConcreteNoise,
    "learnable": LearnableNoise,
    "variational": VariationalGaussianNoise,
}
NOISES: dict[str, Callable[[], ActivationNoise]] = {
    "bernoulli": lambda: BernoulliNoise(6, 0.4),
    "gaussian": lambda: GaussianNoise(6, 0.4),
    "concrete": lambda: ConcreteNoise(6, 0.4),
    "learnable": lambda: LearnableNoise(6, 0.4),
    "variational": lambda: VariationalGaussianNoise(6, 0.4),
    "bernoulli per unit": lambda: BernoulliNoise(6, [0.1, 0.5, 0.0, 0.3, 0.7, 0.2]),
    "bernoulli elementwise": lambda: BernoulliNoise(6, 0.4, elementwise=True),
    "concrete per unit": lambda: ConcreteNoise(6, (0.1, 0.6), per="unit", masks="straight-through"),
    "learnable per layer": lambda: LearnableNoise(6, 0.4, per="layer", elementwise=True),
}
every_noise = pytest.mark.parametrize("name", NOISES)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def binary_entropy(p: float) -> float:
    return -p * math.log(p) - (1 - p) * math.log(1 - p)


@every_noise
@pytest.mark.parametrize("shape", [(5, 6), (5, 6, 3, 4)])
def test_a_draw_is_a_function_and_evaluation_is_the_input(name: str, shape: tuple[int, ...]) -> None:
    noise = NOISES[name]().eval()
    x = torch.randn(shape, generator=seeded(0))
    assert torch.equal(noise(x), x)
    with FunctionDraw(noise, seed=1, index=3):
        whole = noise(x)
        rows = torch.cat([noise(row.unsqueeze(0)) for row in x])
    with FunctionDraw(noise, seed=1, index=3):
        again = noise(x)
    assert torch.equal(whole, rows)
    assert torch.equal(whole, again)
    assert not torch.equal(whole, x)
    if len(shape) == 4 and not getattr(noise, "elementwise", False):
        ratio = whole / x
        torch.testing.assert_close(ratio, ratio[:, :, :1, :1].expand_as(ratio))


@every_noise
def test_draws_average_to_the_input_with_the_noises_variance(name: str) -> None:
    noise = NOISES[name]().double().eval()
    x = torch.ones(1, 6, dtype=torch.float64)
    num_draws = 4000
    prediction = predict(noise, x, num_draws=num_draws)
    assert ((prediction.mean - 1).abs() <= 5 * prediction.standard_error + 1e-12).all()
    p = noise.p.detach().expand(6)
    square = (prediction.draws - 1).square()
    error = square.std(0) / math.sqrt(num_draws)
    assert ((square.mean(0) - p / (1 - p)).abs() <= 5 * error + 1e-9).all()


def test_the_divergence_is_that_of_the_masks_alone() -> None:
    expected = -6 * binary_entropy(0.4)
    for name in ("bernoulli", "concrete", "learnable", "bernoulli elementwise", "learnable per layer"):
        noise = NOISES[name]()
        assert noise.kl().item() == pytest.approx(expected, rel=1e-5)
        # There are no weights to have a length scale.
        assert noise.kl(10.0).item() == pytest.approx(expected, rel=1e-5)
    assert GaussianNoise(6, 0.4).kl().item() == 0
    wrapped = bd.VariationalGaussianDropout(nn.Linear(6, 1), 0.4, noise="inputs")
    assert VariationalGaussianNoise(6, 0.4).kl().item() == pytest.approx(wrapped.kl().item(), rel=1e-6)


def test_the_divergence_pulls_a_learned_rate_towards_a_half() -> None:
    for kind in (ConcreteNoise, LearnableNoise):
        noise = kind(3, 0.2, per="layer")
        noise.kl().backward()
        # d(-K H(p)) / d logit p = K p (1 - p) logit p
        expected = 3 * 0.2 * 0.8 * math.log(0.2 / 0.8)
        assert noise.logit_p.grad is not None
        assert noise.logit_p.grad.item() == pytest.approx(expected, rel=1e-4)


class Dense(nn.Module):
    """Two layers, the second of which sees the input beside the dropped output of the first."""

    def __init__(self, noise: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.noise = noise
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.norm(torch.cat([x, self.noise(self.first(x))], 1))))


@pytest.mark.parametrize("kind", ["bernoulli", "concrete", "learnable"])
@pytest.mark.parametrize("how", ["made", "converted"])
def test_moments_before_a_concatenation_are_sums_over_all_masks(kind: str, how: str) -> None:
    torch.manual_seed(0)
    p = 0.3
    net = Dense(nn.Dropout(p) if how == "converted" else KINDS[kind](3, p)).double().eval()  # type: ignore[call-arg]
    net.norm.running_mean.uniform_(-1, 1)
    x = torch.randn(4, 2, generator=seeded(0), dtype=torch.float64)
    if how == "converted":
        net = convert(net, kind, x=x)  # type: ignore[assignment]
        assert type(net.noise) is KINDS[kind]
    outputs, weights = [], []
    for bits in product([0.0, 1.0], repeat=3):
        z = torch.tensor(bits, dtype=torch.float64)
        h = torch.cat([x, net.first(x) * z / (1 - p)], 1)
        outputs.append(net.last(torch.tanh(net.norm(h))).detach())
        weights.append((p ** (1 - z) * (1 - p) ** z).prod())
    stack, weight = torch.stack(outputs), torch.stack(weights).reshape(-1, 1, 1)
    mean = (weight * stack).sum(0)
    variance = (weight * (stack - mean).square()).sum(0)
    num_draws = 4000
    prediction = predict(net, x, num_draws=num_draws)
    assert ((prediction.mean - mean).abs() <= 5 * prediction.standard_error + 1e-9).all()
    square = (prediction.draws - mean).square()
    error = square.std(0) / math.sqrt(num_draws)
    assert ((square.mean(0) - variance).abs() <= 5 * error + 1e-9).all()


def small(name: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    if name == "densenet":
        net: nn.Module = fc_densenet(None, 3, blocks=(1, 2), middle=2, growth=3, first=4, p=0.3, **options)
    else:
        net = unet(3, channels=(4, 6, 8), p=0.3, **options)
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.uniform_(-0.3, 0.3)  # type: ignore[union-attr]
    return net.eval()


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize("with_x", [False, True])
@pytest.mark.parametrize("name", ["densenet", "unet"])
def test_a_converted_network_has_the_moments_of_its_dropouts(
    name: str, with_x: bool, elementwise: bool
) -> None:
    net = small(name, elementwise=elementwise)
    x = torch.randn(2, 3, 9, 10, generator=seeded(0))
    new = convert(net, "bernoulli", x=x if with_x else None)
    assert not any(isinstance(part, DROPOUTS) for part in new.modules())
    num_dropouts = sum(isinstance(part, DROPOUTS) for part in net.modules())
    assert len(rates(new)) == num_dropouts
    assert {round(rate.item(), 6) for rate in rates(new).values()} == {0.3}
    torch.testing.assert_close(new(x), net(x))
    num_draws = 300
    old, ours = (predict(n, x, num_draws=num_draws, seed=seed) for n, seed in ((net, 1), (new, 2)))
    error = (old.standard_error.square() + ours.standard_error.square()).sqrt()
    assert ((old.mean - ours.mean).abs() <= 5 * error).all()
    spread = []
    for prediction in (old, ours):
        square = (prediction.draws - prediction.mean).square()
        spread.append((square.mean(0), square.var(0) / num_draws))
    bound = 5 * (spread[0][1] + spread[1][1]).sqrt()
    assert ((spread[0][0] - spread[1][0]).abs() <= bound).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_stands_in_a_densenet_trains_and_goes_through_a_file(kind: str, tmp_path: Path) -> None:
    x = torch.randn(4, 3, 9, 10, generator=seeded(0))
    y = torch.randint(0, 3, (4, 9, 10), generator=seeded(1))
    net = bd.layers.freeze_batch_norm(convert(small("densenet"), kind))
    noises = [part for part in net.modules() if isinstance(part, ActivationNoise)]
    assert len(noises) == 10
    assert {type(part) for part in noises} == {KINDS[kind]}
    learned = [parameter for part in noises for parameter in part.rate_parameters()]
    start = [parameter.detach().clone() for parameter in learned]
    objective = NegativeELBO(Categorical(), num_data=4)
    history = bd.fit(net, (x, y), objective, epochs=1, batch_size=2)
    assert math.isfinite(history.loss[-1])
    assert all(not torch.equal(a, b) for a, b in zip(start, learned, strict=True))
    assert bool(learned) == (kind in ("concrete", "learnable", "variational"))
    torch.testing.assert_close(total_kl(net), torch.stack([part.kl() for part in noises]).sum())
    bd.save(net, tmp_path / "net.safetensors")
    loaded = bd.load(tmp_path / "net.safetensors")
    first, second = (predict(n, x[:1], num_draws=3, seed=3).draws for n in (net, loaded))
    torch.testing.assert_close(first, second)


def test_kinds_change_and_go_away_again() -> None:
    net = small("densenet")
    x = torch.randn(1, 3, 9, 10, generator=seeded(0))
    learned = convert(net, "learnable")
    some = next(part for part in learned.modules() if isinstance(part, LearnableNoise))
    with torch.no_grad():
        some.logit_p.uniform_(-2, 0)
    fixed = convert(learned, "gaussian")
    for (path, old), new in zip(rates(learned).items(), rates(fixed).values(), strict=True):
        torch.testing.assert_close(*torch.broadcast_tensors(old, new), msg=path)
    per_unit = convert(fixed, "concrete")
    assert [p.shape for p in rates(per_unit).values()] == [p.shape for p in rates(learned).values()]
    plain = convert(learned, "none")
    assert rates(plain) == {}
    torch.testing.assert_close(plain(x), net(x))
    back = convert(convert(net, "bernoulli"), "dropout")
    kept = [type(part) for part in back.modules() if isinstance(part, DROPOUTS)]
    assert kept == [nn.Dropout2d] * 10
    with pytest.raises(ValueError, match=r"is noise that stands alone, and DropConnect is noise on weights"):
        convert(learned, "dropconnect")
    # Noise that stands alone stays where weights are meant, as dropouts do.
    both = convert(convert(net, "bernoulli"), "concrete", where="weights")
    assert sum(isinstance(part, BernoulliNoise) for part in both.modules()) == 10
    assert sum(isinstance(part, bd.ConcreteDropout) for part in both.modules()) > 10


def test_a_class_that_stands_alone_takes_the_place_of_every_dropout() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    assert type(convert(net, "concrete")[3]) is bd.ConcreteDropout  # type: ignore[index]
    new: Any = convert(net, ConcreteNoise, temperature=0.2)
    assert type(new[3]) is nn.Linear
    assert (new[2].num_units, new[2].temperature) == (8, 0.2)
    with pytest.raises(ValueError, match="`where` must be dropouts, which noise that stands alone can"):
        convert(net, ConcreteNoise, where="weights")
    with pytest.raises(TypeError, match=r"`options` must be options of ConcreteNoise .*; got 'length_scale'"):
        convert(net, ConcreteNoise, length_scale=1.0)
    with pytest.raises(TypeError, match="RecurrentDropout: `kind` must be"):
        bd.RecurrentDropout(nn.GRU(2, 2), ConcreteNoise)


class Twice(nn.Module):
    """A dropout that is used at two places, whose noise would be one and the same."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.drop(torch.sigmoid(self.drop(self.fc(x)))))


def test_one_dropout_at_two_places_is_not_made_one_noise() -> None:
    with pytest.raises(ValueError, match=r"'drop' goes through sigmoid .*, and is used at several places"):
        convert(Twice(), "concrete", x=torch.ones(2, 4))


def test_tokens_have_their_units_on_the_last_axis() -> None:
    net = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 5, 8, generator=seeded(0))
    new: Any = convert(net, "concrete", x=x)
    assert type(new.dropout1) is ConcreteNoise
    assert (new.dropout1.num_units, new.dropout1.axis, new.dropout1.elementwise) == (8, -1, True)
    torch.testing.assert_close(new(x), net(x))


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="BernoulliNoise: `num_units` must be"):
        BernoulliNoise(0)
    with pytest.raises(ValueError, match="ConcreteNoise: `axis` must be an axis other than 0"):
        ConcreteNoise(3, axis=0)
    with pytest.raises(ValueError, match="`p` must be one number or one per input unit"):
        GaussianNoise(3, [0.1, 0.2])
    with pytest.raises(ValueError, match=r"`x` must be an input with 3 units on axis 1; got \(5, 4\)"):
        BernoulliNoise(3).train()(torch.zeros(5, 4))
