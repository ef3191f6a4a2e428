"""Perceptrons on Friedman's function: the data, the networks, and claims that can come out false."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from bayesdrop.experiments import gal2017_start, gal2017_weights
from bayesdrop.experiments.friedman import INPUTS, NOISE_STD, make_network, sample_data, train_network
from bayesdrop.layers import BernoulliDropout, ConcreteDropout


def key(**changes: Any) -> dict[str, Any]:
    common = {
        "size": 200, "width": 16, "steps": 60, "batch_size": 50, "lr": 3e-3, "rate_lr": None, "seed": 0,
        "length_scale": 1e-2, "num_test": 100, "num_draws": 20, "learned": True, "p": 0.1,
    }  # fmt: skip
    return {**common, **changes}


def test_the_function_is_friedmans_and_its_noise_is_known() -> None:
    x, y = sample_data(200_000, torch.Generator().manual_seed(0))
    assert x.shape == (200_000, INPUTS)
    assert y.shape == (200_000, 1)
    assert float(x.mean()) == pytest.approx(0, abs=5 / math.sqrt(x.numel()))
    # The fourth moment of a standardised uniform is 9/5.
    assert float(x.square().mean()) == pytest.approx(1, abs=5 * math.sqrt(0.8 / x.numel()))
    u = x.double() / math.sqrt(12) + 0.5
    truth = (
        10 * torch.sin(math.pi * u[:, 0] * u[:, 1]) + 20 * (u[:, 2] - 0.5) ** 2 + 10 * u[:, 3] + 5 * u[:, 4]
    )
    noise = 4.9 * y[:, 0].double() + 14.4 - truth
    assert float(noise.mean()) == pytest.approx(0, abs=5 / math.sqrt(len(noise)))
    assert float(noise.std()) == pytest.approx(4.9 * NOISE_STD, abs=5 / math.sqrt(2 * len(noise)) + 1e-3)
    assert float(y.mean()) == pytest.approx(0, abs=0.05)
    assert float(y.std()) == pytest.approx(1, abs=0.05)


def test_rates_are_fixed_or_learned_before_all_four_weight_layers() -> None:
    fixed = [part for part in make_network(key(learned=False, p=0.3)) if isinstance(part, BernoulliDropout)]
    assert len(fixed) == 4
    assert all(float(part.p) == pytest.approx(0.3) for part in fixed)
    learned = [part for part in make_network(key()) if isinstance(part, ConcreteDropout)]
    assert [part.layer.in_features for part in learned] == [10, 16, 16, 16]
    assert not any(part.prior_on_bias for part in learned)


def test_a_piece_has_the_papers_weights_and_a_spread() -> None:
    found = train_network(key(learned=False, p=0.25, steps=0))
    # One epoch of 4 steps at 3e-3: weights are near where they start, U(+-1 / sqrt(K)), over 1 - p.
    start = np.array([1 / math.sqrt(3 * fan_in) for fan_in in (10, 16, 16, 16)]) / 0.75
    np.testing.assert_allclose(found["weights"], start, rtol=0.35)
    assert found["rates"] == pytest.approx([0.25] * 4)
    assert found["spread"] > 0
    assert found["trace"].shape == (1, 0)
    without = train_network(key(learned=False, p=0.0))
    assert without["spread"] == 0
    assert without["rmse"] < 1.0
    learned = train_network(key())
    assert learned["trace"].shape == (len(learned["steps"]), 4)
    assert learned["rates"] == pytest.approx(learned["trace"][-1], rel=1e-5)


# starts


def starts(
    ends: tuple[float, float], *, slow: tuple[float, float] = (0.1, 0.1), worse: float = 0.0
) -> list[bool]:
    config = gal2017_start.Config(starts=(0.05, 0.5))
    rates = np.array([ends, slow])[:, :, None, None] * np.ones((2, 2, 3, 4))
    likelihood = np.zeros((2, 2, 3))
    likelihood[0, 1] -= worse
    claims = gal2017_start.make_claims(config, {"rates": rates, "log_likelihood": likelihood})
    assert all(claim.holds or claim.correction for claim in claims)
    return [claim.holds for claim in claims]


def test_claims_on_starts_hold_and_fail() -> None:
    assert starts((0.1, 0.14)) == [True, True, True]
    assert starts((0.1, 0.16)) == [False, True, True]
    assert starts((0.1, 0.1), worse=0.06) == [True, False, True]
    assert starts((0.1, 0.1), slow=(0.1, 0.3)) == [True, True, False]


# weights


def network(weights: float = 0.1, spread: float = 0.1, rmse: float = 0.3) -> list[dict[str, Any]]:
    return [{"weights": np.full(4, weights), "spread": spread, "rmse": rmse}] * 2


def verdicts(**changes: Any) -> list[bool]:
    config = gal2017_weights.Config(rates=(0.0, 0.2, 0.5), length_scales=(0.01, 4.0), sizes=(100, 1000))
    found = {name: network() for name in gal2017_weights.plan(config)}
    found |= {
        "p = 0.5": network(0.04),
        "l = 4": network(0.05, 0.02),
        "learned p, N = 1,000": network(spread=0.04),
    }
    found |= {name.replace("_", " "): value for name, value in changes.items()}
    claims = gal2017_weights.make_claims(config, found)
    return [claim.holds for claim in claims]


def test_every_claim_on_weights_can_hold() -> None:
    assert verdicts() == [True] * 6


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        (0, {"l = 4": network(0.05, 0.2)}),
        (1, {"p = 0.2, N = 1,000": network(spread=0.04)}),
        (2, {"learned p, N = 1,000": network(spread=0.06)}),
        (3, {"p = 0.5": network(0.06)}),
        (4, {"learned p": network(0.04)}),
        (5, {"learned p": network(rmse=0.32)}),
    ],
)
def test_every_claim_on_weights_can_fail(place: int, changes: dict[str, Any]) -> None:
    assert verdicts(**changes) == [index != place for index in range(6)]


def test_networks_that_are_wanted_twice_are_trained_once() -> None:
    plan = gal2017_weights.plan(gal2017_weights.Config())
    assert plan["p = 0.2"] == plan["l = 0.01"] == plan["p = 0.2, N = 1,000"]
    assert plan["learned p"] == plan["learned p, N = 1,000"]
    assert len({repr(sorted(settings.items())) for settings in plan.values()}) == 13
