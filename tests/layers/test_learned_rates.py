"""Learned rates: Concrete, learnable and variational Gaussian dropout against what is known of them."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayesdrop import (
    BernoulliDropout,
    Categorical,
    ConcreteDropout,
    FunctionDraw,
    Gaussian,
    HeteroscedasticGaussian,
    LearnableDropout,
    NegativeELBO,
    VariationalGaussianDropout,
    fit,
    predict,
    rates,
    total_kl,
)
from bayesdrop.functional.log_uniform import log_uniform_kl
from bayesdrop.layers.learned_rate import LearnedRateLayer

LEARNED = [ConcreteDropout, LearnableDropout]


def entropy(p: float) -> float:
    return -p * math.log(p) - (1 - p) * math.log(1 - p)


@pytest.mark.parametrize("kind", LEARNED)
def test_the_divergence_is_that_of_bernoulli_dropout_at_the_same_rate(kind: type[LearnedRateLayer]) -> None:
    for inner in (nn.Linear(4, 3), nn.Conv2d(4, 6, 3, groups=2)):
        for per, p in (("layer", 0.3), ("unit", torch.tensor([0.1, 0.2, 0.5, 0.9]))):
            learned = kind(inner, p, per=per, length_scale=0.4)
            fixed = BernoulliDropout(inner, p, length_scale=0.4)
            torch.testing.assert_close(learned.kl(), fixed.kl())


@pytest.mark.parametrize(
    ("multiple", "likelihood", "weight_coefficient", "entropy_coefficient"),
    [
        (1, Categorical(), 1 / 2, 1),  # cross-entropy
        (2, HeteroscedasticGaussian(), 1, 2),  # exp(-s) (y - m)^2 + s
        (2, Gaussian(1.0), 1, 2),  # squared error at unit precision
    ],
)
def test_the_regulariser_has_the_papers_coefficients(
    multiple: int, likelihood: object, weight_coefficient: float, entropy_coefficient: float
) -> None:
    """l^2 / (tau N) |W|^2 / (1 - p) - 2 / (tau N) K H(p) with squared error, half with cross-entropy."""
    num_data, l, p, channels = 50, 0.3, 0.2, 4
    for inner, units in ((nn.Linear(channels, 3), channels), (nn.Conv1d(channels, 3, 2), channels)):
        layer = ConcreteDropout(inner, p, length_scale=l, prior_on_bias=False)
        ours = multiple * total_kl(layer).item() / num_data
        weight = weight_coefficient * l**2 / num_data * inner.weight.square().sum().item() / (1 - p)
        assert ours == pytest.approx(
            weight - entropy_coefficient / num_data * units * entropy(p), rel=1e-5, abs=1e-7
        )
    assert likelihood is not None


def test_a_low_temperature_gives_the_objective_of_all_bernoulli_masks() -> None:
    torch.manual_seed(0)
    layer = ConcreteDropout(nn.Linear(3, 1), 0.3, temperature=1e-4).double()
    x, y = torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 1, dtype=torch.float64)
    masks = torch.tensor(list(product([0.0, 1.0], repeat=3)), dtype=torch.float64)
    weights = (0.7**masks * 0.3 ** (1 - masks)).prod(1)
    outputs = torch.stack([layer.layer(x * z / 0.7) for z in masks])
    exact = (weights[:, None] * (outputs - y).square()[..., 0]).sum(0).mean().item()
    layer.train()
    with torch.no_grad():
        losses = torch.stack([(layer(x) - y).square().mean() for _ in range(4000)])
    assert abs(losses.mean() - exact) <= 5 * losses.std() / 4000**0.5 + 1e-3 * exact


@pytest.mark.parametrize("kind", [*LEARNED, VariationalGaussianDropout])
def test_rates_follow_the_amount_of_data(kind: type[nn.Module]) -> None:
    """The divergence is divided by N: few data leave much noise, and more data less, in the same model."""
    torch.manual_seed(0)
    x = torch.randn(1000, 4)
    y = x.sum(1, keepdim=True)
    model = nn.Sequential(kind(nn.Linear(4, 1), 0.3))
    objective = NegativeELBO(Gaussian(1.0), num_data=4, length_scale=0.1)
    found = []
    for rows in (4, 1000):
        objective.num_data = rows
        seen = x[:rows], y[:rows]
        fit(
            model,
            seen,
            objective,
            epochs=400 if rows == 4 else 20,
            batch_size=50,
            lr=1e-2,
            rate_lr=3e-2,
            seed=0,
        )
        found.append(rates(model)["0"].mean().item())
    assert found[1] < 0.5 * found[0]


def test_masks_of_draws_are_relaxed_or_hard_as_asked() -> None:
    x = torch.ones(1, 50)
    values = {}
    for masks in ("relaxed", "hard", "straight-through"):
        layer = ConcreteDropout(nn.Linear(50, 50, bias=False), 0.4, temperature=0.5, masks=masks)
        nn.init.eye_(layer.layer.weight)
        with FunctionDraw(layer), torch.no_grad():
            values[masks] = layer(x)[0] * 0.6
    hard = {round(v, 5) for v in values["hard"].tolist()}
    assert hard == {0.0, 1.0}
    assert {round(v, 5) for v in values["straight-through"].tolist()} == hard
    inside = (values["relaxed"] > 0.01) & (values["relaxed"] < 0.99)
    assert inside.sum() > 10


def test_moments_without_draws_know_the_relaxation() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(ConcreteDropout(nn.Linear(6, 2), 0.2, temperature=2 / 3, masks="relaxed")).double()
    x = torch.randn(3, 6, dtype=torch.float64)
    exact = predict(model, x, method="moments")
    drawn = predict(model, x, num_draws=20_000)
    assert ((exact.mean - drawn.mean).abs() <= 5 * drawn.standard_error).all()
    torch.testing.assert_close(exact.variance, drawn.variance, rtol=0.08, atol=0)


def test_raw_masks_shrink_the_mean() -> None:
    torch.manual_seed(0)
    rate = torch.tensor([0.1, 0.5, 0.9])
    layer = LearnableDropout(nn.Linear(3, 2), rate, scaling="raw").eval()
    x = torch.randn(4, 3)
    expected = nn.functional.linear(x * (1 - rate), layer.layer.weight, layer.layer.bias)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(nn.functional.linear(x, layer.weight, layer.bias), expected)
    drawn = predict(layer, x, num_draws=4000)
    assert ((drawn.mean - expected).abs() <= 5 * drawn.standard_error).all()
    exact = predict(layer, x, method="moments")
    torch.testing.assert_close(exact.mean, expected)


def test_a_range_draws_rates_uniformly_in_their_logits() -> None:
    torch.manual_seed(0)
    layer = ConcreteDropout(nn.Linear(20_000, 1), (0.1, 0.5), per="unit")
    logits = layer.logit_p.detach()
    low, high = math.log(0.1 / 0.9), 0.0
    assert low <= logits.min()
    assert logits.max() <= high
    assert logits.mean().item() == pytest.approx(
        (low + high) / 2, abs=5 * (high - low) / math.sqrt(12 * 20_000)
    )


@pytest.mark.parametrize("kind", LEARNED)
def test_bad_input_is_refused(kind: type[LearnedRateLayer]) -> None:
    name = kind.__name__
    for bad in (0.0, 1.0, -0.1, math.nan, (0.5, 0.1), (0.1, 0.2, 0.3), torch.tensor([0.5, 1.0])):
        with pytest.raises(ValueError, match=f"{name}: `p_init` must be"):
            kind(nn.Linear(2, 2), bad, per="unit")
    with pytest.raises(TypeError, match=r"`layer` must be an nn\.Linear, .* or nn\.Embedding; got ReLU"):
        kind(nn.ReLU())
    with pytest.raises(ValueError, match="`per` must be 'layer' or 'unit'; got 'row'"):
        kind(nn.Linear(2, 2), per="row")
    for runaway in (math.inf, math.nan, 40.0):
        layer = kind(nn.Linear(2, 2)).train()
        nn.init.constant_(layer.logit_p, runaway)
        for use in (layer.kl, lambda layer=layer: layer(torch.ones(1, 2))):
            with pytest.raises(ValueError, match=f"{name}: `logit_p` must be finite and below 30"):
                use()


def test_bad_options_of_one_kind_are_refused() -> None:
    for bad in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="`temperature` must be a positive number"):
            ConcreteDropout(nn.Linear(2, 2), temperature=bad)
    with pytest.raises(ValueError, match="`masks` must be 'relaxed', 'hard' or 'straight-through'"):
        ConcreteDropout(nn.Linear(2, 2), masks="soft")
    with pytest.raises(ValueError, match="`scaling` must be 'inverted' or 'raw'"):
        LearnableDropout(nn.Linear(2, 2), scaling="other")
    with pytest.raises(ValueError, match="`per` must be one of"):
        VariationalGaussianDropout(nn.Linear(2, 2), noise="inputs", per="weight")
    with pytest.raises(ValueError, match=r"at most 0\.5 with capped=True"):
        VariationalGaussianDropout(nn.Linear(2, 2), 0.6, capped=True)


@pytest.mark.parametrize("log_alpha", [-6.0, -2.0, 0.0, 1.0, 3.0])
def test_the_log_uniform_divergence_agrees_with_the_integral(log_alpha: float) -> None:
    """-KL = 0.5 log a - E log|e| + const with e ~ N(1, a); the constant makes it vanish as a grows."""
    nodes, weights = np.polynomial.legendre.leggauss(400)

    def shape_of(a: float) -> float:
        # E log|1 + s t|, t standard normal, split at the singularity so that each half is smooth enough.
        s = math.sqrt(a)
        edges = [-14.0, -1 / s, 14.0] if 1 / s < 14 else [-14.0, 14.0]
        total = 0.0
        for low, high in pairwise(edges):
            # Squaring the distance to the end at which the logarithm runs away tames it.
            u = (nodes + 1) / 2
            v = u * u if low == -1 / s else 1 - (1 - u) ** 2
            jacobian = 2 * u if low == -1 / s else 2 * (1 - u)
            t = low + (high - low) * v
            density = np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi)
            total += float(
                (weights / 2 * jacobian * (high - low) * density * np.log(np.abs(1 + s * t))).sum()
            )
        return total - 0.5 * math.log(a)

    limit = shape_of(math.exp(12.0))
    exact = shape_of(math.exp(log_alpha)) - limit
    assert log_uniform_kl(torch.tensor(log_alpha)).item() == pytest.approx(exact, abs=0.012)


@pytest.mark.parametrize("per", ["layer", "unit", "weight"])
def test_sampled_outputs_have_the_moments_of_sampled_weights(per: str) -> None:
    torch.manual_seed(0)
    layer = VariationalGaussianDropout(nn.Linear(5, 3), 0.3, per=per).double()
    x = torch.randn(2, 5, dtype=torch.float64)
    alpha = 0.3 / 0.7
    variance = x.square() @ (alpha * layer.layer.weight.square()).t()
    drawn = predict(layer, x, num_draws=6000).draws
    with torch.no_grad():
        trained = torch.stack([layer.train()(x) for _ in range(6000)])
    for sample in (drawn, trained):
        error = sample.std(0) / 6000**0.5
        assert ((sample.mean(0) - layer.layer(x)).abs() <= 5 * error).all()
        square = (sample - sample.mean(0)).square()
        assert ((square.mean(0) - variance).abs() <= 5 * square.std(0) / 6000**0.5).all()


def test_capped_noise_stays_below_the_weight() -> None:
    layer = VariationalGaussianDropout(nn.Linear(2, 2), 0.4, capped=True)
    nn.init.constant_(layer.log_alpha, 3.0)
    assert layer.p.item() == pytest.approx(0.5)
    free = VariationalGaussianDropout(nn.Linear(2, 2), 0.4)
    nn.init.constant_(free.log_alpha, 3.0)
    assert free.p.item() == pytest.approx(1 / (1 + math.exp(-3)))


def gradient_norm(parameter: Tensor) -> float:
    assert parameter.grad is not None
    return float(parameter.grad.abs().sum())


@pytest.mark.parametrize("kind", [*LEARNED, VariationalGaussianDropout])
def test_one_objective_and_one_loop_serve_all(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(kind(nn.Linear(3, 8)), nn.ReLU(), kind(nn.Linear(8, 2)))
    objective = NegativeELBO(Categorical(), num_data=100)
    x, y = torch.randn(20, 3), torch.randint(2, (20,))
    objective(model, x, y).loss.backward()
    for layer in (model[0], model[2]):
        assert all(gradient_norm(parameter) > 0 for parameter in layer.rate_parameters())
        assert gradient_norm(layer.layer.weight) > 0
