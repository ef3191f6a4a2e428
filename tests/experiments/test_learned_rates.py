"""Experiments on learned rates: the toy's gradient is exact, and the networks are those of the papers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bayesdrop.experiments import PieceCache, load_experiment
from bayesdrop.experiments.boluki2020_toy_gradients.survey import survey_grid
from bayesdrop.experiments.boluki2020_toy_gradients.toy import ESTIMATORS, Toy
from bayesdrop.experiments.gal2017_mnist.networks import make_network
from bayesdrop.experiments.gal2017_mnist.plan import Pieces, Plan
from bayesdrop.experiments.gal2017_mnist.report import make_rows
from bayesdrop.experiments.gal2017_synthetic.networks import TwoHeads, sample_data, train_network
from bayesdrop.layers import BernoulliDropout, ConcreteDropout, total_kl

LOGITS = torch.tensor([0.7, -1.1], dtype=torch.float64)


@pytest.fixture
def toy() -> Toy:
    return Toy(200, seed=0)


def test_the_exact_gradient_is_that_of_the_enumerated_loss(toy: Toy) -> None:
    a = LOGITS.clone().requires_grad_()
    (automatic,) = torch.autograd.grad(toy.exact_loss(a), a)
    torch.testing.assert_close(toy.exact_gradient(LOGITS), automatic)


def test_the_relaxed_gradient_tends_to_the_exact_one_as_the_temperature_falls(toy: Toy) -> None:
    exact = toy.exact_gradient(LOGITS)
    gaps = [float((toy.relaxed_gradient(LOGITS, t) - exact).norm()) for t in (2 / 3, 0.1, 0.01)]
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2]
    assert gaps[2] < 0.01 * float(exact.norm())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimates_have_the_mean_that_is_known(toy: Toy, name: str) -> None:
    torch.manual_seed(0)
    estimator = ESTIMATORS[name]
    known = (
        toy.exact_gradient(LOGITS) if isinstance(estimator, str) else toy.relaxed_gradient(LOGITS, estimator)
    )
    estimates = toy.estimates(LOGITS.float(), estimator, 400)
    error = estimates.std(0) / 20
    assert ((estimates.mean(0) - known).abs() <= 5 * error).all()


def test_a_survey_takes_bias_spread_and_error_from_the_same_estimates() -> None:
    found = survey_grid({"num_data": 50, "seed": 1, "keeps": (0.4, 0.8), "count": 30})
    np.testing.assert_allclose(found["mse"], found["bias"] ** 2 + found["std"] ** 2 * 29 / 30, rtol=1e-9)
    at = torch.logit(torch.tensor([0.8, 0.4], dtype=torch.float64))
    np.testing.assert_allclose(found["exact"][1, 0], Toy(50, 1).exact_gradient(at), rtol=1e-5)


def test_the_line_has_slope_two_and_noise_one() -> None:
    x, y = sample_data(100_000, torch.Generator().manual_seed(0))
    residual = (y - 2 * x - 8).squeeze(1)
    assert abs(float(residual.mean())) < 5 / math.sqrt(1e5)
    assert abs(float(residual.std()) - 1) < 5 / math.sqrt(2e5)
    assert abs(float((residual * x.squeeze(1)).mean())) < 5 / math.sqrt(1e5)


def test_heads_drop_units_of_their_own_and_biases_have_no_prior() -> None:
    torch.manual_seed(0)
    network = TwoHeads(16, p_init=0.5, temperature=0.1, length_scale=1e-4)
    layers = [part for part in network.modules() if isinstance(part, ConcreteDropout)]
    assert len(layers) == 5
    entropy = math.log(2) * (1 + 4 * 16)
    weights = sum(float(layer.weight.detach().square().sum()) for layer in layers)
    expected = torch.tensor(0.5 * 1e-8 * weights / 0.5 - entropy)
    torch.testing.assert_close(total_kl(network).detach(), expected)
    # Were the heads' masks one and the same, equal weights would give equal outputs.
    with torch.no_grad():
        for name, value in network.mean.named_parameters():
            network.log_variance.get_parameter(name).copy_(value)
        mean, log_variance = network.train()(torch.ones(20, 1)).unbind(1)
        assert not torch.equal(mean, log_variance)
        mean, log_variance = network.eval()(torch.ones(20, 1)).unbind(1)
    assert torch.equal(mean, log_variance)


def piece(size: int, **settings: Any) -> dict[str, Any]:
    common = {
        "epochs": 150, "seed": 0, "width": 32, "batch_size": 100, "lr": 3e-3, "rate_lr": 3e-2, "cosine": True,
        "p_init": 0.1, "temperature": 0.1, "length_scale": 1e-4, "num_test": 100, "num_draws": 20,
    }  # fmt: skip
    return train_network({"size": size, **common, **settings})


def test_few_data_raise_the_rates_of_hidden_units() -> None:
    few, many = piece(10), piece(2000, epochs=8)
    # 32 entropies over 10 points outweigh the fit; over 2000 they do not.
    assert few["rates"][1:].min() > 0.3
    assert many["rates"][1:4].max() < 0.2
    assert few["epistemic"] > many["epistemic"]
    assert math.isclose(few["predictive"] ** 2, few["epistemic"] ** 2 + few["aleatoric"] ** 2)
    assert few["steps"][-1] == 150
    assert few["trace"].shape == (len(few["steps"]), 5)


def digits_key(**settings: Any) -> dict[str, Any]:
    config = load_experiment("gal2017-mnist").config()
    return {**Plan.of(config).main[0], **settings}


def test_the_network_of_the_digits_has_learned_rates_and_a_prior_by_fan_in() -> None:
    network = make_network(digits_key(width=8))
    layers = [part for part in network.modules() if isinstance(part, ConcreteDropout)]
    assert [tuple(layer.weight.shape) for layer in layers] == [(8, 784), (8, 8), (8, 8), (10, 8)]
    assert [layer.prior_length_scale() for layer in layers] == [
        pytest.approx(1e-2 * math.sqrt(fan_in)) for fan_in in (784, 8, 8, 8)
    ]
    assert not any(layer.prior_on_bias for layer in layers)
    fixed = make_network(digits_key(width=8, posterior="bernoulli"))
    rates = [float(part.p) for part in fixed.modules() if isinstance(part, BernoulliDropout)]
    assert rates == [pytest.approx(rate) for rate in (0.2, 0.5, 0.5, 0.5)]


def test_a_network_that_serves_two_figures_is_trained_once() -> None:
    plan = Plan.of(load_experiment("gal2017-mnist").config())
    assert plan.sizes[50_000] == plan.main
    assert plan.scales[1e-2] == plan.widths[128]
    paths = {PieceCache("any", folder="nowhere").path(key) for key in plan.keys}
    # 4 + 4 + 6 in the scans, of which one is two figures', one for the accuracy, and one with fixed rates.
    assert len(paths) == 15
    assert all(key["num_data"] == size for size, keys in plan.sizes.items() for key in keys)


def test_the_wide_preset_runs_three_times_and_scans_at_the_papers_width() -> None:
    experiment = load_experiment("gal2017-mnist")
    plan = Plan.of(experiment.config("wide"))
    assert {key["width"] for keys in plan.scales.values() for key in keys} == {512}
    assert plan.scales[1e-2] == plan.widths[512]
    assert [key["seed"] for key in plan.main] == [0, 1, 2]
    # What the default has trained is not trained again.
    paths, default = (
        {PieceCache("any", folder="nowhere").path(key) for key in Plan.of(config).keys}
        for config in (experiment.config("wide"), experiment.config())
    )
    assert len(paths) == 45
    assert len(paths & default) == 10


def test_three_runs_have_standard_errors_and_one_has_none() -> None:
    config = replace(load_experiment("gal2017-mnist").config("smoke"), repeats=3)
    plan = Plan.of(config)

    def made(key: dict[str, Any]) -> dict[str, Any]:
        seed = key["seed"]
        return {
            "accuracy": 98.0 + seed,
            "log_likelihood": -0.1,
            "elbo": -0.2,
            "rates": np.full(4, 0.1 * seed),
        }

    rows = make_rows(config, plan, Pieces(plan.keys, [made(key) for key in plan.keys]))
    found = {row.metric: row for row in rows if row.setting == rows[0].setting}
    # Of 98, 99, 100 and of 0, 0.1, 0.2: standard deviations of 1 and 0.1, over the root of three.
    assert found["accuracy (%)"].standard_error == pytest.approx(3**-0.5)
    assert found["rate, hidden 2"].ours == pytest.approx(0.1)
    assert found["rate, hidden 2"].standard_error == pytest.approx(0.1 * 3**-0.5)
    once = replace(config, repeats=1)
    plan = Plan.of(once)
    alone = make_rows(once, plan, Pieces(plan.keys, [made(key) for key in plan.keys]))
    assert all(row.standard_error is None for row in alone)


def test_digits_that_are_not_at_hand_are_rows_that_were_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from bayesdrop.data import DataNotFound
    from bayesdrop.experiments import gal2017_mnist

    def absent() -> tuple[Tensor, ...]:
        raise DataNotFound("no digits")

    monkeypatch.setattr(gal2017_mnist, "load_digits", absent)
    outcome = gal2017_mnist.run(gal2017_mnist.SMOKE, cache=PieceCache("any", folder=tmp_path), progress=False)
    assert outcome.notes == ("no digits",)
    assert outcome.rows
    assert all(row.ours is None for row in outcome.rows)
    gal2017_mnist.draw(outcome).savefig(tmp_path / "picture.png", dpi=20)
