"""Naive dropout, cosine units and the softmax of draws: their parts against closed forms."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bayesdrop as bd
from bayesdrop.experiments import PieceCache, gal2016_cosine, gal2016_softmax, herlau2022_naive
from bayesdrop.experiments.herlau2022_naive import DroppedRegression, laplace, sample_data
from bayesdrop.linear import BayesianDropoutRegression, DropPerturbation, dropout_log_posterior

CONFIG = herlau2022_naive.Config()


def model() -> DroppedRegression:
    return sample_data(CONFIG, 3, seed=4)


def test_both_posteriors_are_their_sums_over_masks() -> None:
    """Eq. 3 and Eq. 10 written out, mask by mask and row by row."""
    regression, w = model(), torch.tensor([0.7, -0.4, 0.2], dtype=torch.float64)
    naive = bayesian = -0.5 * float(w.square().sum())
    for x, y in zip(regression.x.tolist(), regression.y.tolist(), strict=True):
        total = expected = 0.0
        for mask in product((0, 1), repeat=3):
            chance = math.prod(0.7 if kept else 0.3 for kept in mask)
            mean = sum(kept * a * b for kept, a, b in zip(mask, x, w.tolist(), strict=True))
            density = math.exp(-0.5 * ((y - mean) / 0.3) ** 2) / (0.3 * math.sqrt(2 * math.pi))
            total += chance * density
            expected += chance * math.log(density)
        naive += math.log(total)
        bayesian += expected
    assert float(regression.log_posterior("naive", w)) == pytest.approx(naive)
    assert float(regression.log_posterior("bayesian", w)) == pytest.approx(bayesian)


def test_the_bayesian_one_is_the_rule_of_the_library() -> None:
    regression = model()
    rule = dropout_log_posterior(
        lambda w: -0.5 * w.square().sum(),
        lambda w: torch.distributions.Normal(regression.x @ w, 0.3).log_prob(regression.y).sum(),
        DropPerturbation(0.3),
    )
    for seed in range(3):
        w = torch.randn(3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(regression.log_posterior("bayesian", w), rule(w))


def test_without_dropping_all_three_are_plain_bayes() -> None:
    regression = model()
    undropped = DroppedRegression(regression.x, regression.y, 0.0, 0.3)
    w = torch.tensor([0.7, -0.4, 0.2], dtype=torch.float64)
    plain = regression.log_posterior("plain", w)
    for kind in ("naive", "bayesian"):
        torch.testing.assert_close(undropped.log_posterior(kind, w), plain)


def test_laplace_is_exact_for_the_closed_form() -> None:
    """The rule is quadratic in linear weights: its mode is mu, and its covariance sigma^2 / Lambda."""
    regression = model()
    mode, covariance = laplace(
        lambda w: regression.log_posterior("bayesian", w), torch.zeros(3, dtype=torch.float64)
    )
    exact = BayesianDropoutRegression(f=0.3, lambda0=0.3**2, fit_intercept=False)
    exact.fit(regression.x.numpy(), regression.y.numpy())
    np.testing.assert_allclose(mode.numpy(), exact.weights_, rtol=1e-6)
    gram = regression.x.T @ regression.x
    precision = 0.09 * torch.eye(3) + 0.21 * torch.diag(gram.diagonal()) + 0.49 * gram
    torch.testing.assert_close(covariance, 0.09 * torch.linalg.inv(precision.double()))


def test_what_data_cannot_tell_counts_in_full() -> None:
    """With all weights 0 every mask predicts the same: the masks are those of the prior."""
    regression = model()
    measures = regression.measures(torch.zeros(3, dtype=torch.float64))
    entropy = -3 * (0.3 * math.log(0.3) + 0.7 * math.log(0.7))
    assert float(measures["count"]) == pytest.approx(math.exp(entropy))
    assert float(measures["random"]) == pytest.approx(float(measures["chosen"]))
    # large weights tell the masks apart
    assert float(regression.measures(torch.full((3,), 50.0).double())["count"]) < 1.1


def test_the_posterior_of_naive_dropout_has_several_modes() -> None:
    found = herlau2022_naive._pair(CONFIG)
    assert found["modes, bayesian"] == found["modes, plain"] == 1
    assert found["modes, naive"] > 1
    assert found["count, naive"] < found["count, bayesian"]


def test_dropout_on_cosine_units_has_the_spread_that_is_told() -> None:
    """One hidden layer: p / (1 - p) sum_k w_k^2 s_k(x)^2, wherever x is."""
    net = bd.models.random_phases(
        bd.models.mlp(1, 40, 1, p=0.2, input_p=0, activation=bd.models.Cosine), length_scale=0.3
    ).double()
    x = torch.linspace(-2, 30, 9, dtype=torch.float64).unsqueeze(1)
    num_draws = 4000
    seen = bd.predict(net, x, num_draws=num_draws)
    first, cosine, last = net
    assert isinstance(first, nn.Linear)
    assert isinstance(last, bd.BernoulliDropout)
    with torch.no_grad():
        exact = 0.25 * (cosine(first(x)).square() @ last.layer.weight.square().T)
    squares = (seen.draws - seen.mean).square()
    error = squares.std(0) / num_draws**0.5
    assert ((seen.epistemic - exact).abs() <= 5 * error).all()


def test_kinks_are_not_smooth() -> None:
    grid = torch.linspace(-1, 1, 4001, dtype=torch.float64)
    smooth = torch.stack([torch.sin(40 * grid), torch.exp(grid)])
    # Kinks at places that have nothing to do with the grid's.
    places = torch.rand(200, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 0.5
    kinked = torch.cat([(grid - places).relu(), (grid + places).abs()])
    assert gal2016_cosine.smoothness(smooth) == pytest.approx(2, abs=0.01)
    assert gal2016_cosine.smoothness(kinked) == pytest.approx(1.5, abs=0.05)


def test_the_softmax_experiment_is_two_predictions_of_one_network(tmp_path: Path) -> None:
    config = gal2016_softmax.SMOKE
    cache = PieceCache("gal2016-softmax", folder=tmp_path)
    outcome = gal2016_softmax.run(config, cache=cache, progress=False)
    point, averaged = np.asarray(outcome.arrays["point"]), np.asarray(outcome.arrays["prob"])
    np.testing.assert_allclose(point, 1 / (1 + np.exp(-np.asarray(outcome.arrays["logit"]))), rtol=1e-5)
    assert not np.allclose(point, averaged)
    again = gal2016_softmax.run(config, cache=cache, progress=False)
    assert again.rows == outcome.rows


def test_the_softmax_claims_follow_their_numbers() -> None:
    sure = {"far_point": 0.999, "far_prob": 0.8, "far_logit": 7.0, "far_logit_std": 5.0}
    held = gal2016_softmax._claims([sure, {**sure, "far_point": 0.001, "far_prob": 0.1}])
    assert [claim.holds for claim in held] == [True, True]
    still = gal2016_softmax._claims([{**sure, "far_prob": 0.998}])
    assert [claim.holds for claim in still] == [True, False]
    assert still[1].correction
