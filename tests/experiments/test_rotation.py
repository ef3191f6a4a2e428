"""The digit that turns: angles, directions, and claims that can come out false."""

from __future__ import annotations

import pytest
import torch

from bayesdrop.experiments.gal2016_mnist_rotation import (
    _claims,
    directions,
    envelopes_intersect,
    turned,
    turns_into_a_seven,
)
from bayesdrop.likelihoods import Categorical
from bayesdrop.predict import Prediction

DEGREES = torch.linspace(-135, 135, 23)


def test_a_quarter_turn_is_anticlockwise_and_loses_nothing() -> None:
    image = torch.zeros(28, 28, dtype=torch.uint8)
    image[2:10, 14] = 200
    quarter, back = turned(image, torch.tensor([90.0, -90.0]))
    torch.testing.assert_close(quarter, torch.rot90(image.float(), 1), atol=1e-2, rtol=0)
    torch.testing.assert_close(back, torch.rot90(image.float(), -1), atol=1e-2, rtol=0)


def test_a_bar_turned_by_135_degrees_leans_to_the_right() -> None:
    image = torch.zeros(28, 28, dtype=torch.uint8)
    image[4:24, 13:15] = 255
    (leaning,) = turned(image, torch.tensor([135.0]))
    rows, columns = (leaning > 128).nonzero().double().unbind(1)
    # Up is a smaller row: the stem of a 7 goes to the right as it goes up.
    assert float(torch.corrcoef(torch.stack([rows, columns]))[0, 1]) < -0.9


def test_both_directions_begin_upright() -> None:
    halves = directions(DEGREES)
    assert DEGREES[halves["anticlockwise"]].tolist() == pytest.approx(
        torch.linspace(0, 135, 12).tolist(), abs=1e-4
    )
    assert DEGREES[halves["clockwise"]].tolist() == pytest.approx(
        torch.linspace(0, -135, 12).tolist(), abs=1e-4
    )


def test_the_papers_classes_turn_into_a_seven_up_to_where_the_bar_is_a_1_again() -> None:
    paper = [1, 1, 1, 1, 1, 5, 5, 7, 7, 7, 7, 7]
    assert turns_into_a_seven(torch.tensor(paper))
    assert turns_into_a_seven(torch.tensor([*paper, 1, 1]))
    for other in ([1] * 12, [7] * 12, [1, 7, 5], [*paper, 5, 1], [1, 5, 1, 7], [2, 7, 7]):
        assert not turns_into_a_seven(torch.tensor(other))


def test_envelopes_are_two_standard_deviations_wide() -> None:
    noise = torch.randn(4000, 1, generator=torch.Generator().manual_seed(0))
    logits = torch.zeros(4000, 3, 10)
    # Apart by 5, 3.9 and 0 standard deviations: envelopes of two each meet at four.
    logits[:, 0, 1], logits[:, 1, 1] = 5 + noise[:, 0], 3.9 + noise[:, 0]
    logits[:, :, 2] += noise.flip(0)
    assert envelopes_intersect(logits).tolist() == [False, True, True]


def toy(labels: list[int], *, unsure: list[int]) -> Prediction:
    """Passes that agree on a class at each angle, but for the angles that are listed."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(100, len(labels), 10, generator=generator) * 0.1
    for place, label in enumerate(labels):
        logits[:, place, label] += 12
        if place in unsure:
            logits[:, place, label] -= 3
            logits[:, place, 3] += 9 + 6 * torch.randn(100, generator=generator)
    return Prediction.from_draws(logits, Categorical())


def test_claims_hold_for_the_papers_figure_and_fail_for_a_digit_that_never_changes() -> None:
    clockwise = [1] * 12
    anticlockwise = [1, 1, 1, 1, 1, 5, 5, 7, 7, 7, 7, 7]
    labels = [*clockwise[:0:-1], *anticlockwise]
    assert [claim.holds for claim in _claims("toy", toy(labels, unsure=[16, 17]), DEGREES)] == [True] * 5
    sure = [claim.holds for claim in _claims("toy", toy([1] * 23, unsure=[]), DEGREES)]
    assert sure == [False, False, True, False, False]
    assert not _claims("toy", toy([2] * 23, unsure=[]), DEGREES)[2].holds
