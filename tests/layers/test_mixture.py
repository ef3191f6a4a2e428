"""Extensions of the mixture posterior: learned widths, more components, covariances of low rank."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Independent, LowRankMultivariateNormal, Normal, kl_divergence

import bayesdrop as bd
from bayesdrop import FunctionDraw, MixtureDropout, convert, predict
from bayesdrop.functional import low_rank_kl
from bayesdrop.functional.kl import component_information, mixture_information


def means_of(layer: MixtureDropout) -> list[list[tuple[float, Tensor]]]:
    """For every input unit of a linear layer: chances and means (J,) of its components."""
    weight = layer.layer.weight.detach()
    offsets = layer.centred_offsets()
    units = []
    for k in range(weight.shape[1]):
        p = float(layer.p if layer.p.dim() == 0 else layer.p[k])
        kept = weight[:, k] / (1 - p)
        parts = [(p, torch.zeros_like(kept))]
        count = layer.components - 1
        for c in range(count):
            shift = 0.0 if offsets is None else offsets[c, :, k].detach()
            parts.append(((1 - p) / count, kept + shift))
        units.append(parts)
    return units


def sampled_kl(layer: MixtureDropout, num_draws: int) -> tuple[float, float]:
    """KL of the weights by enumerating the components of all units at once, and its standard error."""
    units, l = means_of(layer), layer.prior_length_scale()
    weight = layer.layer.weight.detach()
    size = weight.numel()
    rank = max(layer.rank, 1)
    factors = torch.zeros(rank, *weight.shape, dtype=torch.float64)
    if layer.factors is not None:
        factors = layer.factors.detach()
    # Units outside, the weights of each inside.
    loading = factors.transpose(1, 2).reshape(rank, size).T
    variance = torch.full((size,), float(layer.sigma.detach()) ** 2, dtype=torch.float64)
    chances, means = [], []
    for chosen in product(*units):
        chances.append(math.prod(chance for chance, _ in chosen))
        means.append(torch.cat([mean for _, mean in chosen]))
    weights, centres = torch.tensor(chances, dtype=torch.float64), torch.stack(means)
    torch.manual_seed(0)
    which = torch.multinomial(weights, num_draws, replacement=True)
    noise = LowRankMultivariateNormal(torch.zeros(size, dtype=torch.float64), loading, variance)
    sample = centres[which] + noise.sample((num_draws,))
    log_q = torch.full((num_draws,), -math.inf, dtype=torch.float64)
    for weight_of, centre in zip(weights, centres, strict=True):
        if weight_of > 0:
            log_q = torch.logaddexp(log_q, weight_of.log() + noise.log_prob(sample - centre))
    prior = Independent(Normal(torch.zeros(size, dtype=torch.float64), 1 / l), 1)
    ratio = log_q - prior.log_prob(sample)
    return ratio.mean().item(), ratio.std().item() / num_draws**0.5


def made(separation: float, spread: float, **options: object) -> MixtureDropout:
    """A layer whose components are about `separation` widths apart, and its factors `spread` widths."""
    torch.manual_seed(1)
    linear = nn.Linear(3, 2, bias=False).double()
    layer = MixtureDropout(linear, p=[0.3, 0.5, 0.0], sigma=0.2, length_scale=0.7, **options)  # type: ignore[arg-type]
    torch.manual_seed(2)  # the same weights, whatever was drawn before
    with torch.no_grad():
        linear.weight.copy_(0.2 * separation * torch.randn(2, 3))
        if layer.offsets is not None:
            layer.offsets.copy_(0.2 * separation * torch.randn(layer.offsets.shape))
        if layer.factors is not None:
            layer.factors.copy_(0.2 * spread * torch.randn(layer.factors.shape))
    return layer


@pytest.mark.parametrize("separation", [0.5, 2.0, 5.0])
@pytest.mark.parametrize("options", [{"components": 3}, {"rank": 2}, {"components": 4, "rank": 1}], ids=str)
def test_the_divergence_is_an_upper_bound_of_the_true_one_and_near_it(
    separation: float, options: dict[str, int]
) -> None:
    layer = made(separation, 1.0, **options)
    value = layer.kl().item()
    exact, error = sampled_kl(layer, 40_000)
    assert value >= exact - 5 * error
    # The bound gives away some of the information, which is at most the entropy of the choices.
    entropy = sum(-c * math.log(c) for unit in means_of(layer) for c, _ in unit if c > 0)
    assert value <= exact + entropy + 5 * error
    # And no more than what the upper bound of the information leaves.
    if layer.rank == 0:
        assert _lower_bound(layer) <= exact + 5 * error


def _lower_bound(layer: MixtureDropout) -> float:
    """KL with the upper bound of the information: d^2 / 2 in the place of d^2 / 8."""
    low = high = 0.0
    for unit in means_of(layer):
        chance = torch.tensor([c for c, _ in unit], dtype=torch.float64)
        mean = torch.stack([m for _, m in unit]) / float(layer.sigma)
        square = (mean.unsqueeze(0) - mean.unsqueeze(1)).square().sum(-1)
        low += component_information(square, chance).item()
        high += component_information(4 * square, chance).item()
    assert high >= low
    return layer.kl().item() + low - high


@pytest.mark.parametrize("options", [{"components": 3}, {"rank": 2}, {"components": 3, "rank": 2}], ids=str)
def test_the_divergence_is_exact_for_components_far_apart(options: dict[str, int]) -> None:
    layer = made(60.0, 0.5, **options)
    exact, error = sampled_kl(layer, 20_000)
    assert layer.kl().item() == pytest.approx(exact, abs=5 * error + 1e-6)


@pytest.mark.parametrize("options", [{"components": 3}, {"rank": 2}, {"components": 3, "rank": 2}], ids=str)
def test_the_divergence_is_exact_where_all_components_coincide(options: dict[str, int]) -> None:
    layer = made(0.0, 1.0, **options)
    exact, error = sampled_kl(layer, 4000)
    assert layer.kl().item() == pytest.approx(exact, abs=5 * error + 1e-9)


def test_without_offsets_and_factors_it_is_the_exact_divergence_of_two_components() -> None:
    plain, tied = made(2.0, 1.0), made(2.0, 0.0, rank=2)
    torch.testing.assert_close(tied.kl(), plain.kl())
    exact, error = sampled_kl(plain, 40_000)
    assert plain.kl().item() == pytest.approx(exact, abs=5 * error)
    # Offsets of zero: three components of which two are one. The bound gives something away.
    same = made(2.0, 1.0, components=3)
    with torch.no_grad():
        assert same.offsets is not None
        same.offsets.fill_(0.4)
    assert same.kl() >= plain.kl()


def test_component_information_of_two_is_below_the_integral() -> None:
    p = torch.tensor([0.1, 0.5, 0.8, 0.0], dtype=torch.float64)
    for distance in (0.0, 0.5, 1.0, 2.0, 4.0, 30.0):
        square = torch.tensor([[0.0, distance**2], [distance**2, 0.0]], dtype=torch.float64)
        bound = component_information(square.expand(4, 2, 2), torch.stack([p, 1 - p], -1))
        exact = mixture_information(torch.full_like(p, distance), p)
        assert (bound <= exact + 1e-7).all()
        if distance in (0.0, 30.0):
            torch.testing.assert_close(bound, exact, atol=1e-7, rtol=0)


def test_low_rank_kl_is_that_of_torch() -> None:
    torch.manual_seed(0)
    factors, sigma, l = torch.randn(3, 7, dtype=torch.float64), torch.tensor(0.4, dtype=torch.float64), 0.6
    q = LowRankMultivariateNormal(torch.zeros(7).double(), factors.T, torch.full((7,), 0.16).double())
    p = LowRankMultivariateNormal(
        torch.zeros(7).double(), torch.zeros(7, 1).double(), torch.full((7,), l**-2).double()
    )
    torch.testing.assert_close(low_rank_kl(factors, sigma, 7, l), kl_divergence(q, p))


def test_draws_have_the_moments_of_the_mixture() -> None:
    """E W = W, and Cov(W x) = sum_k x_k^2 Cov(m_k) + s^2 |x|^2 I + (U x)(U x)^T."""
    layer = made(2.0, 1.5, components=4, rank=2).eval()
    assert layer.factors is not None
    x, num_draws = torch.randn(2, 3, dtype=torch.float64), 6000
    covariance = []
    for row in x:
        total = layer.sigma.detach() ** 2 * row.square().sum() * torch.eye(2, dtype=torch.float64)
        for k, unit in enumerate(means_of(layer)):
            mean = sum(c * m for c, m in unit)
            torch.testing.assert_close(mean, layer.layer.weight.detach()[:, k])
            total = total + row[k] ** 2 * sum(c * torch.outer(m - mean, m - mean) for c, m in unit)
        pushed = layer.factors.detach() @ row
        covariance.append(total + pushed.T @ pushed)
    for kind in ("shared", "independent"):
        prediction = predict(layer, x, num_draws=num_draws, draws=kind)
        draws = prediction.draws
        with torch.no_grad():
            assert ((prediction.mean - layer.layer(x)).abs() <= 5 * prediction.standard_error).all()
        away = draws - draws.mean(0)
        products = away.unsqueeze(-1) * away.unsqueeze(-2)
        error = products.std(0) / num_draws**0.5
        assert ((products.mean(0) - torch.stack(covariance)).abs() <= 5 * error).all()


def test_factors_tie_the_weights_of_different_units() -> None:
    layer = made(0.0, 3.0, rank=1)
    assert layer.factors is not None
    draws = []
    for index in range(4000):
        with torch.no_grad(), FunctionDraw(layer, index=index):
            draws.append(layer(torch.eye(3, dtype=torch.float64)).flatten())
    found = torch.stack(draws)
    factor = layer.factors.detach()[0].T.flatten()
    exact = torch.outer(factor, factor) + 0.04 * torch.eye(6, dtype=torch.float64)
    products = found.unsqueeze(-1) * found.unsqueeze(-2)
    error = products.std(0) / 4000**0.5
    assert ((products.mean(0) - exact).abs() <= 5 * error).all()
    assert (exact[0, 2:].abs() > 5 * error[0, 2:]).any()


def test_a_learned_width_goes_to_where_the_divergence_is_least() -> None:
    """Without data, l sigma = 1 is the prior itself."""
    layer = MixtureDropout(nn.Linear(4, 3), p=0.0, sigma=0.1, learn_sigma=True, length_scale=2.0)
    nn.init.zeros_(layer.layer.weight)
    optimizer = torch.optim.Adam([layer.log_sigma], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        layer.kl().backward()
        optimizer.step()
    assert layer.sigma.item() == pytest.approx(0.5, rel=1e-3)
    assert not MixtureDropout(nn.Linear(4, 3)).log_sigma.requires_grad


def test_fit_learns_widths_offsets_and_factors() -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 3)
    y = x[:, :1].relu() + 0.1 * torch.randn(60, 1)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
    model = convert(net, "mixture", learn_sigma=True, components=3, rank=2, sigma=0.05)
    layer = model[3]
    assert isinstance(layer, MixtureDropout)
    assert layer.p.item() == pytest.approx(0.1)
    torch.testing.assert_close(model.eval()(x), net.eval()(x))
    before = {name: value.detach().clone() for name, value in layer.named_parameters()}
    assert {"log_sigma", "offsets", "factors"} <= before.keys()
    bd.fit(model, (x, y), bd.NegativeELBO(bd.Gaussian(0.2), num_data=60), epochs=5, lr=0.01)
    for name, value in layer.named_parameters():
        assert not torch.equal(before[name], value), name
    changed = convert(model, "bernoulli")
    torch.testing.assert_close(changed.eval()(x), model.eval()(x))


def test_files_keep_what_was_learned_and_old_files_can_be_read(tmp_path: Path) -> None:
    x = torch.randn(4, 3)
    model = nn.Sequential(MixtureDropout(nn.Linear(3, 2), 0.3, learn_sigma=True, components=3, rank=2))
    bd.save(model, tmp_path / "mixture.pt")
    again = bd.load(tmp_path / "mixture.pt")
    assert torch.equal(predict(model, x, num_draws=4).draws, predict(again, x, num_draws=4).draws)
    assert "components=3, rank=2" in repr(again)
    old = MixtureDropout(nn.Linear(3, 2), sigma=0.3)
    state = dict(MixtureDropout(nn.Linear(3, 2), sigma=0.05).state_dict())
    del state["log_sigma"]
    state["sigma"] = torch.tensor(0.05)
    old.load_state_dict(state)
    assert old.sigma.item() == pytest.approx(0.05)
    assert "sigma" in state  # the caller's own dictionary is left alone


def test_bad_options_are_refused() -> None:
    for bad in (1, 0, 2.5, 1000, True):
        with pytest.raises((ValueError, TypeError), match="MixtureDropout: `components` must be"):
            MixtureDropout(nn.Linear(2, 2), components=bad)  # type: ignore[arg-type]
    for bad in (-1, 0.5, "full"):
        with pytest.raises((ValueError, TypeError), match="MixtureDropout: `rank` must be"):
            MixtureDropout(nn.Linear(2, 2), rank=bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`learn_sigma` must be"):
        MixtureDropout(nn.Linear(2, 2), learn_sigma="yes")  # type: ignore[arg-type]
