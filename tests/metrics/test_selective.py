"""Risk and coverage, against all orders of the rows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesdrop import Categorical, Gaussian, Prediction
from bayesdrop.metrics import (
    RiskCoverage,
    accuracy,
    area_under_risk_coverage,
    mean_log_likelihood,
    risk_coverage,
    rmse,
    uncertainty,
)


def _classes(seed: int = 0, rows: int = 60) -> tuple[Prediction, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (rows,), generator=generator)
    draws = 2 * torch.randn(5, rows, 3, dtype=torch.double, generator=generator)
    return Prediction.from_draws(draws + 2 * torch.nn.functional.one_hot(y, 3), Categorical()), y


def _numbers(seed: int = 0, rows: int = 60) -> tuple[Prediction, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    width = torch.rand(rows, 1, dtype=torch.double, generator=generator)
    draws = width * torch.randn(5, rows, 2, dtype=torch.double, generator=generator)
    y = width * torch.randn(rows, 2, dtype=torch.double, generator=generator)
    return Prediction.from_draws(draws, Gaussian(0.1)), y


def _ranked(levels: list[int], errors: list[float]) -> tuple[Prediction, torch.Tensor]:
    """Numbers whose std is `levels`, and whose mean is off by `errors`."""
    half = torch.tensor(levels, dtype=torch.double).unsqueeze(1)
    return Prediction.from_draws(torch.stack([half, -half])), torch.tensor(
        errors, dtype=torch.double
    ).unsqueeze(1)


@pytest.mark.parametrize("score", ["entropy", "mutual_information", "max_prob"])
def test_risk_is_the_error_of_the_surest(score: str) -> None:
    prediction, y = _classes()
    curve = risk_coverage(prediction, y, score=score)  # type: ignore[arg-type]
    order = np.argsort(uncertainty(prediction, score).numpy())  # type: ignore[arg-type]
    wrong = (prediction.label != y).numpy()[order]
    expected = [wrong[:n].mean() for n in range(1, 61)]
    assert curve.risk.tolist() == pytest.approx(expected, abs=1e-12)
    assert curve.coverage.tolist() == pytest.approx([n / 60 for n in range(1, 61)])
    assert float(curve.risk[-1]) == pytest.approx(1 - float(accuracy(prediction, y)))


def test_risk_of_numbers_is_the_squared_error_of_the_surest() -> None:
    prediction, y = _numbers()
    curve = risk_coverage(prediction, y)
    order = np.argsort(prediction.variance.sum(1).numpy())
    loss = (prediction.mean - y).square().mean(1).numpy()[order]
    assert curve.risk.tolist() == pytest.approx([loss[:n].mean() for n in range(1, 61)], rel=1e-10)
    assert float(curve.risk[-1]) == pytest.approx(float(rmse(prediction, y)) ** 2)
    area = area_under_risk_coverage(prediction, y)
    assert float(area) == pytest.approx(float(curve.risk.mean()))
    assert float(area) < float(curve.risk[-1])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.floats(-3, 3)), min_size=1, max_size=5),
)
def test_ties_are_the_mean_over_all_orders(rows: list[tuple[int, float]]) -> None:
    prediction, y = _ranked([level for level, _ in rows], [error for _, error in rows])
    curves = []
    for order in itertools.permutations(rows):
        loss = np.array([error**2 for _, error in sorted(order, key=lambda row: row[0])])
        curves.append(loss.cumsum() / np.arange(1, len(rows) + 1))
    curve = risk_coverage(prediction, y)
    np.testing.assert_allclose(curve.risk.numpy(), np.mean(curves, 0), rtol=1e-9, atol=1e-12)
    assert float(area_under_risk_coverage(prediction, y)) == pytest.approx(
        np.mean(curves), rel=1e-9, abs=1e-12
    )


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1000))
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    prediction, y = _classes(seed, rows=25)
    order = torch.randperm(25, generator=torch.Generator().manual_seed(seed))
    shuffled = Prediction.from_draws(prediction.draws[:, order], Categorical())
    for score in ("entropy", "variation_ratio"):
        a = risk_coverage(prediction, y, score=score)  # type: ignore[arg-type]
        b = risk_coverage(shuffled, y[order], score=score)  # type: ignore[arg-type]
        torch.testing.assert_close(a.risk, b.risk)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(errors=st.lists(st.floats(-3, 3), min_size=1, max_size=12), seed=st.integers(0, 1000))
def test_no_ranking_beats_that_by_the_loss_itself(errors: list[float], seed: int) -> None:
    ordered = sorted(errors, key=abs)
    best = area_under_risk_coverage(*_ranked(list(range(len(errors))), ordered))
    worst = area_under_risk_coverage(*_ranked(list(range(len(errors))), ordered[::-1]))
    levels = torch.randperm(len(errors), generator=torch.Generator().manual_seed(seed)).tolist()
    some = area_under_risk_coverage(*_ranked(levels, errors))
    assert float(best) - 1e-9 <= float(some) <= float(worst) + 1e-9


def test_a_perfect_ranking_of_errors_has_the_known_area() -> None:
    # 6 right then 2 wrong: risks 0 x 6, 1/7, 2/8.
    prediction, y = _ranked([1] * 6 + [2, 3], [0.0] * 6 + [1.0, 1.0])
    assert float(area_under_risk_coverage(prediction, y)) == pytest.approx((1 / 7 + 2 / 8) / 8)


def test_a_score_that_says_nothing_has_the_mean_loss() -> None:
    prediction, y = _ranked([1, 1, 1, 1], [0.0, 1.0, 2.0, 3.0])
    assert risk_coverage(prediction, y).risk.tolist() == pytest.approx([3.5] * 4)
    assert float(area_under_risk_coverage(prediction, y)) == pytest.approx(3.5)


def test_other_losses() -> None:
    prediction, y = _numbers()
    risk = risk_coverage(prediction, y, loss="absolute_error").risk
    torch.testing.assert_close(risk[-1], (prediction.mean - y).abs().mean())
    risk = risk_coverage(prediction, y, loss="negative_log_likelihood").risk
    torch.testing.assert_close(risk[-1], -mean_log_likelihood(prediction, y))
    prediction, y = _classes()
    risk = risk_coverage(prediction, y, loss="negative_log_likelihood").risk
    torch.testing.assert_close(risk[-1], -mean_log_likelihood(prediction, y))


@pytest.mark.parametrize("loss", ["error", "negative_log_likelihood"])
def test_images_and_void_are_flat_labels_that_count(loss: str) -> None:
    prediction, y = _classes()
    keep = torch.arange(60) % 4 > 0
    kept = Prediction.from_draws(prediction.draws[:, keep], Categorical())
    image = Prediction.from_draws(prediction.draws.reshape(5, 2, 5, 6, 3).movedim(-1, 2), Categorical())
    void = torch.where(keep, y, 255).reshape(2, 5, 6)
    curve = risk_coverage(image, void, loss=loss, ignore_index=255)  # type: ignore[arg-type]
    expected = risk_coverage(kept, y[keep], loss=loss)  # type: ignore[arg-type]
    torch.testing.assert_close(curve.risk, expected.risk)
    assert curve.coverage.shape == (45,)


@pytest.mark.parametrize(
    ("classes", "options", "message"),
    [
        (True, {"loss": "squared_error"}, "`loss` must be error or negative_log_likelihood for classes"),
        (True, {"loss": "zero-one"}, "`loss` must be one of error, squared_error"),
        (False, {"loss": "error"}, "`loss` must be squared_error, say, for numbers"),
        (False, {"score": "entropy"}, "`score` must be one of std, epistemic, aleatoric for numbers"),
        (False, {"ignore_index": 0}, "`ignore_index` must be None unless the targets are labels"),
    ],
)
def test_risk_coverage_says_what_it_needs(classes: bool, options: dict[str, object], message: str) -> None:
    prediction, y = _classes() if classes else _numbers()
    with pytest.raises(ValueError, match=f"risk_coverage: {message}"):
        risk_coverage(prediction, y, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"area_under_risk_coverage: {message}"):
        area_under_risk_coverage(prediction, y, **options)  # type: ignore[arg-type]


def test_the_curve_of_scores_and_losses_is_that_of_the_prediction() -> None:
    prediction, y = _ranked([1, 2, 2, 3], [0.0, 1.0, 2.0, 3.0])
    whole = risk_coverage(prediction, y)
    loss = (prediction.mean - y).square()[:, 0]
    curve = RiskCoverage.from_losses(prediction.std[:, 0], loss)
    torch.testing.assert_close(curve.risk, whole.risk.double())
    with pytest.raises(ValueError, match="`loss` must be"):
        RiskCoverage.from_losses(torch.ones(3), torch.ones(4))
    with pytest.raises(ValueError, match="`score` must be numbers; got '1 NaN'"):
        RiskCoverage.from_losses(torch.tensor([1.0, torch.nan]), torch.ones(2))


@pytest.mark.parametrize("loss", ["error", "negative_log_likelihood"])
def test_the_void_label_of_the_likelihood_is_left_out_as_if_it_were_given(loss: Any) -> None:
    draws = torch.randn(5, 6, 3, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 2, 9, 1, 9, 0])
    own = risk_coverage(Prediction.from_draws(draws, Categorical(ignore_index=9)), y, loss=loss)
    given = risk_coverage(Prediction.from_draws(draws, Categorical()), y, loss=loss, ignore_index=9)
    assert len(own.risk) == 4
    torch.testing.assert_close(own.risk, given.risk)
