"""A cascade against what one computes by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.cascade import passed_on

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))


def _weak() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))


def _strong() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))


ASK = {"num_draws": 12, "likelihood": bd.Categorical(), "seed": 3}


@pytest.mark.parametrize(
    "score", ["entropy", "expected_entropy", "mutual_information", "variation_ratio", "max_prob"]
)
def test_the_least_sure_rows_are_the_strong_models(score: str) -> None:
    weak, strong = _weak(), _strong()
    found = bd.cascade(weak, strong, share=0.25, score=score, **ASK)(X)  # type: ignore[arg-type]
    first = bd.predict(weak, X, **ASK)  # type: ignore[arg-type]
    value = bd.metrics.uncertainty(first, score)  # type: ignore[arg-type]
    torch.testing.assert_close(found.score, value)
    chosen = sorted(range(40), key=lambda row: (-float(value[row]), row))[:10]
    assert sorted(found.passed.nonzero()[:, 0].tolist()) == sorted(chosen)
    assert found.share == 0.25
    second = bd.predict(strong, X[found.passed], **ASK)  # type: ignore[arg-type]
    for name in ("probs", "label", "entropy", "mean", "variance"):
        by_hand = getattr(first, name).clone()
        by_hand[found.passed] = getattr(second, name)
        assert torch.equal(getattr(found, name), by_hand)
    assert len(found) == 40
    assert len(found.weak) == 40


def test_nothing_and_everything_may_be_passed_on() -> None:
    weak, strong = _weak(), _strong()
    none = bd.cascade(weak, strong, share=0.0, **ASK)(X)  # type: ignore[arg-type]
    assert none.strong is None
    assert torch.equal(none.probs, none.weak.probs)
    every = bd.cascade(weak, strong, share=1.0, **ASK)(X)  # type: ignore[arg-type]
    assert torch.equal(every.probs, bd.predict(strong, X, **ASK).probs)  # type: ignore[arg-type]


def test_a_strong_model_need_not_be_random() -> None:
    strong = nn.Linear(3, 4)
    found = bd.cascade(_weak(), strong, share=0.5, batch_size=7, **ASK)(X)  # type: ignore[arg-type]
    exact = strong(X[found.passed]).softmax(1).detach()
    torch.testing.assert_close(found.probs[found.passed], exact)


def test_functions_and_numbers_do_as_well() -> None:
    draws = torch.randn(5, 6, 2, generator=torch.Generator().manual_seed(0))
    weak = bd.Prediction.from_draws(draws, bd.Gaussian(0.1))
    asked: list[Tensor] = []

    def strong(x: Tensor) -> bd.Prediction:
        asked.append(x)
        return bd.Prediction.from_draws(x.expand(3, *x.shape), bd.Gaussian(0.2))

    x = torch.arange(12.0).reshape(6, 2)
    found = bd.cascade(lambda _: weak, strong, share=1 / 3)(x)
    spread = weak.variance.sum(1).sqrt()
    best = spread.topk(2).indices.sort().values
    assert torch.equal(asked[0], x[best])
    assert torch.equal(found.mean[best], x[best])
    rest = ~found.passed
    assert torch.equal(found.mean[rest], weak.mean[rest])
    assert torch.equal(found.variance[rest], weak.variance[rest])


def test_a_threshold_is_chosen_by_the_share_of_validation_rows() -> None:
    both = bd.cascade(_weak(), _strong(), share=0.25, **ASK)  # type: ignore[arg-type]
    fixed = both.with_threshold(X)
    assert fixed.threshold is not None
    assert torch.equal(fixed(X).passed, both(X).passed)
    alone = torch.cat([fixed(row.unsqueeze(0)).passed for row in X[:10]])
    assert torch.equal(alone, both(X).passed[:10])


def _two() -> tuple[bd.Prediction, bd.Prediction, Tensor]:
    """Weak and strong predictions of eight rows of which the scores fall, and the labels."""
    sure = torch.tensor([0.5, 0.55, 0.6, 0.6, 0.7, 0.8, 0.9, 0.95]).double()
    weak = torch.stack([sure, 1 - sure], 1).log()
    strong = torch.tensor([[0.1, 0.9], [0.9, 0.1]] * 4).double().log()
    y = torch.tensor([1, 0, 1, 0, 0, 0, 0, 0])
    make = bd.Prediction.from_draws
    return make(weak.expand(2, 8, 2), bd.Categorical()), make(strong.expand(2, 8, 2), bd.Categorical()), y


@pytest.mark.parametrize("cost", [0.0, 0.05, 0.3, 0.45, 2.0])
def test_a_threshold_is_chosen_by_cost(cost: float) -> None:
    weak, strong, y = _two()

    def stronger(x: Tensor) -> bd.Prediction:
        rows = x[:, 0].long()
        return bd.Prediction.from_draws(strong.draws[:, rows], bd.Categorical())

    x = torch.arange(8.0).unsqueeze(1)
    both = bd.cascade(lambda _: weak, stronger, share=0.5, score="max_prob")
    fixed = both.with_threshold(x, y, cost=cost)

    def paid(threshold: float) -> float:
        passed = weak.class_probs.amax(-1) < 1 - threshold - 1e-12
        label = torch.where(passed, strong.label, weak.label)
        return float((label != y).sum() + cost * passed.sum())

    scores = (1 - weak.class_probs.amax(-1)).tolist()
    best = min(paid(threshold) for threshold in [-1.0, *scores])
    found = fixed(x)
    assert float((found.label != y).sum() + cost * found.passed.sum()) == pytest.approx(best)


def test_rows_of_equal_score_are_not_parted_by_a_threshold() -> None:
    weak, strong, y = _two()
    both = bd.cascade(lambda _: weak, lambda _: strong, share=3 / 8, score="max_prob")
    fixed = both.with_threshold(torch.zeros(8, 1))
    assert fixed.threshold == pytest.approx(0.4)
    cheap = both.with_threshold(torch.zeros(8, 1), y, cost=0.05)
    assert cheap.threshold is not None
    assert not math.isclose(cheap.threshold, 0.45)


def test_passed_on_counts_rows() -> None:
    score = torch.tensor([1.0, 3.0, 2.0, 3.0, 0.0])
    assert passed_on(score, 0.2).tolist() == [False, True, False, False, False]
    assert passed_on(score, 0.6).tolist() == [False, True, True, True, False]
    assert not passed_on(score, 0.0).any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"share": 1.5}, "`share` must be a share"),
        ({"share": None}, "`share` must be given"),
        ({"threshold": 0.5}, "`share` must be given if"),
        ({"score": "doubt"}, "`score` must be one of"),
        ({"weak": 3}, "`weak` must be an nn.Module"),
        ({"strong": lambda x: x}, "`strong` must be a function that gives a Prediction"),
        ({"num_draws": 0}, "`num_draws` must be a positive int"),
        ({"likelihood": "classes"}, "`likelihood` must be a Likelihood"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, object], words: str) -> None:
    given: dict[str, object] = {"weak": _weak(), "strong": _strong(), "share": 0.5, **ASK}
    with pytest.raises((ValueError, TypeError), match=words):
        bd.cascade(**{**given, **change})(X)  # type: ignore[arg-type]


def test_a_cost_needs_targets() -> None:
    both = bd.cascade(_weak(), _strong(), threshold=0.5, **ASK)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`cost` must be given"):
        both.with_threshold(X)
    with pytest.raises(ValueError, match="`y` must be given"):
        both.with_threshold(X, cost=0.1)
    with pytest.raises(ValueError, match="`y` must be of shape"):
        both.with_threshold(X, torch.zeros(3), cost=0.1)
