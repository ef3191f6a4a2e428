"""Scores against the functions of probabilities, and selection."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import bayesdrop as bd
from bayesdrop import acquire
from bayesdrop.functional import mutual_information, predictive_entropy, variation_ratio


def classes(draws: int = 30, rows: int = 12, classes: int = 4) -> tuple[bd.Prediction, Tensor]:
    logits = 2 * torch.randn(draws, rows, classes, dtype=torch.float64)
    return bd.Prediction.from_draws(logits, bd.Categorical()), logits.softmax(-1)


def test_scores_are_functions_of_the_draws_probabilities() -> None:
    prediction, probs = classes()
    torch.testing.assert_close(acquire.entropy(prediction), predictive_entropy(probs))
    torch.testing.assert_close(acquire.bald(prediction), mutual_information(probs))
    torch.testing.assert_close(acquire.variation_ratio(prediction), variation_ratio(probs))
    torch.testing.assert_close(acquire.mean_std(prediction), probs.std(0, correction=0).mean(-1))


def test_zero_one_counts_the_errors_that_knowing_the_draw_would_spare() -> None:
    prediction, probs = classes(draws=5)
    # Whoever knows the draw t says argmax p_t, whoever does not argmax of the mean: chances of being right.
    knowing = torch.stack([probs[t].amax(-1) for t in range(5)]).mean(0)
    best = probs.mean(0).argmax(-1, keepdim=True)
    guessing = torch.stack([probs[t].gather(-1, best)[:, 0] for t in range(5)]).mean(0)
    torch.testing.assert_close(acquire.zero_one(prediction), knowing - guessing)
    # Draws of one opinion spare nothing, sure or not.
    agreeing = torch.tensor([[[3.0, 0.0]], [[0.1, 0.0]]])
    one = bd.Prediction.from_draws(agreeing, bd.Categorical())
    assert float(acquire.zero_one(one)) == pytest.approx(0, abs=1e-12)


def test_noise_is_uncertain_and_tells_nothing() -> None:
    """Row 0: all draws agree that both classes are as likely. Row 1: draws contradict each other."""
    logits = torch.zeros(10, 2, 2)
    logits[:5, 1] = torch.tensor([9.0, -9.0])
    logits[5:, 1] = torch.tensor([-9.0, 9.0])
    prediction = bd.Prediction.from_draws(logits, bd.Categorical())
    same = acquire.entropy(prediction)
    assert same[0] == pytest.approx(float(same[1]), abs=1e-4)
    for score in (acquire.bald, acquire.mean_std):
        assert score(prediction)[0] == pytest.approx(0, abs=1e-6)
        assert score(prediction)[1] > 0.4


def test_an_image_scores_the_mean_of_its_pixels() -> None:
    logits = torch.randn(6, 3, 4, 5, 5)
    prediction = bd.Prediction.from_draws(logits, bd.Categorical())
    torch.testing.assert_close(acquire.bald(prediction), prediction.mutual_information.mean((1, 2)).double())
    assert acquire.mean_std(prediction).shape == (3,)


def test_numbers_have_a_spread() -> None:
    draws = torch.randn(9, 5, 2, dtype=torch.float64)
    prediction = bd.Prediction.from_draws(draws, bd.Gaussian(3.0))
    torch.testing.assert_close(acquire.mean_std(prediction), draws.std(0, correction=0).mean(1))


def test_random_scores_are_those_of_their_seed() -> None:
    prediction, _ = classes()
    assert torch.equal(acquire.random(prediction, seed=3), acquire.random(prediction, seed=3))
    assert not torch.equal(acquire.random(prediction, seed=3), acquire.random(prediction, seed=4))


def test_select_takes_the_highest() -> None:
    scores = torch.randn(50)
    assert torch.equal(acquire.select(scores, 7), scores.topk(7).indices)
    allowed = torch.zeros(50, dtype=torch.bool)
    allowed[[4, 9, 30]] = True
    assert acquire.select(scores, 3, among=allowed).sort().values.tolist() == [4, 9, 30]
    by_index = acquire.select(scores, 2, among=torch.tensor([9, 4, 30]))
    assert torch.equal(by_index, acquire.select(scores, 2, among=allowed))
    assert acquire.select(torch.ones(5), 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("score", [acquire.entropy, acquire.bald, acquire.variation_ratio])
def test_numbers_are_told_what_to_use(score: Callable[[bd.Prediction], Tensor]) -> None:
    with pytest.raises(TypeError, match=r"Use acquire.mean_std for numbers"):
        score(bd.Prediction.from_draws(torch.randn(3, 4, 1)))


def test_mistakes_are_named() -> None:
    one = bd.Prediction.from_draws(torch.randn(1, 4, 3), bd.Categorical())
    for score in (acquire.bald, acquire.variation_ratio, acquire.mean_std):
        with pytest.raises(ValueError, match="of at least 2 draws"):
            score(one)
    with pytest.raises(TypeError, match="a Prediction"):
        acquire.entropy(torch.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="an int from 1 to 4"):
        acquire.select(torch.zeros(4), 5)
    with pytest.raises(ValueError, match="4 booleans"):
        acquire.select(torch.zeros(4), 1, among=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="must be finite"):
        acquire.select(torch.tensor([1.0, float("nan")]), 1)
    with pytest.raises(ValueError, match=r"a tensor \(N,\)"):
        acquire.select(torch.zeros(4, 2), 1)
