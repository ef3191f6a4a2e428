"""Conformal sets: their scores by hand, and their coverage against its exact law."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

import bayesdrop as bd
from bayesdrop.calibration import ConformalClassifier, PredictionSets, TemperatureScaling, coverage_law

SCORES = ["lac", "aps", "raps"]


def known(rows: int, seed: int, *, classes: int = 6, wrong: float = 1.0) -> tuple[bd.Prediction, Tensor]:
    """Labels from softmax(f); the prediction says softmax(wrong f)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)
    return bd.Prediction.from_draws(wrong * logits.unsqueeze(0), bd.Categorical()), labels


@pytest.mark.parametrize("wrong", [1.0, 4.0])
@pytest.mark.parametrize(
    ("score", "randomized"), [("lac", True), ("aps", True), ("raps", True), ("aps", False)]
)
def test_coverage_follows_its_exact_law(score: Any, randomized: bool, wrong: float) -> None:
    """Covered test rows given n calibration rows are beta-binomial, however wrong the model is."""
    repeats, calibration, test, level = 300, 60, 100, 0.8
    law = coverage_law(calibration, level)
    covered = []
    for repeat in range(repeats):
        prediction, labels = known(calibration + test, repeat, wrong=wrong)
        parts = [
            bd.Prediction.from_draws(prediction.draws[:, rows], bd.Categorical())
            for rows in (slice(calibration), slice(calibration, None))
        ]
        conformal = ConformalClassifier(level, score=score, randomized=randomized)
        conformal.fit(parts[0], labels[:calibration], seed=repeat)
        sets = conformal.sets(parts[1], seed=repeat)
        covered.append(int(sets.covers(labels[calibration:]).sum()))
    exact = stats.betabinom(test, law.a, law.b)
    count = torch.tensor(covered, dtype=torch.float64)
    assert abs(count.mean() - exact.mean()) <= 5 * exact.std() / repeats**0.5
    fourth = exact.expect(lambda k: (k - exact.mean()) ** 4)
    variance_error = math.sqrt((fourth - exact.var() ** 2) / repeats)
    assert abs(count.var() - exact.var()) <= 5 * variance_error


def test_the_aps_threshold_of_a_true_model_is_beta_distributed() -> None:
    """With the true probabilities the randomised score is uniform, so the threshold is an order statistic."""
    calibration, level = 40, 0.8
    thresholds = []
    for repeat in range(1000):
        prediction, labels = known(calibration, repeat)
        fitted = ConformalClassifier(level, score="aps").fit(prediction, labels, seed=repeat)
        thresholds.append(float(fitted.threshold))
    law = coverage_law(calibration, level)
    assert stats.kstest(thresholds, stats.beta(law.a, law.b).cdf).pvalue > 1e-4


def three(*probs: float) -> bd.Prediction:
    return bd.Prediction.from_draws(torch.tensor([[probs]], dtype=torch.float64).log(), bd.Categorical())


def with_threshold(value: float | list[float], **options: Any) -> ConformalClassifier:
    conformal = ConformalClassifier(0.8, **options)
    conformal.put({"threshold": value, "num_calibration": 10})
    return conformal


def test_members_are_the_classes_whose_score_is_low_enough() -> None:
    row = three(0.2, 0.5, 0.3)
    assert with_threshold(0.75).sets(row)[0] == [1, 2]  # 1 - p: 0.8, 0.5, 0.7
    plain: dict[str, Any] = {"score": "aps", "randomized": False}
    assert with_threshold(0.79, **plain).sets(row)[0] == [1]  # 1, 0.5, 0.8
    assert with_threshold(0.81, **plain).sets(row)[0] == [1, 2]
    dear: dict[str, Any] = {"score": "raps", "randomized": False, "penalty": 0.5, "free_ranks": 1}
    assert with_threshold(1.29, **dear).sets(row)[0] == [1]  # 2, 0.5, 1.3
    assert with_threshold(1.31, **dear).sets(row)[0] == [1, 2]


def test_a_random_share_is_one_for_a_row_and_another_for_fit() -> None:
    prediction = three(0.2, 0.5, 0.3)
    conformal = ConformalClassifier(0.8, score="aps")
    first = conformal._scores("sets", prediction, seed=3, stream=1)[0]
    share = first[1] / 0.5
    torch.testing.assert_close(first, torch.stack([0.8 + share * 0.2, share * 0.5, 0.5 + share * 0.3]))
    assert not torch.equal(conformal._scores("fit", prediction, seed=3, stream=0)[0], first)


def test_without_randomness_sets_do_not_depend_on_the_seed() -> None:
    prediction, labels = known(400, 0)
    for randomized in (True, False):
        conformal = ConformalClassifier(0.9, score="aps", randomized=randomized)
        first, second = (
            conformal.fit(prediction, labels, seed=seed).sets(prediction, seed=seed).members
            for seed in (0, 1)
        )
        assert torch.equal(first, second) != randomized


def test_lac_has_the_smallest_sets_and_raps_the_shortest_tails() -> None:
    seen, new = known(4000, 0, classes=30), known(4000, 1, classes=30)
    size = {}
    for score in SCORES:
        conformal = ConformalClassifier(0.9, score=score, penalty=0.1, free_ranks=3)  # type: ignore[arg-type]
        size[score] = conformal.fit(*seen).sets(new[0]).size.double()
    assert size["lac"].mean() < size["aps"].mean()
    assert size["raps"].max() < size["aps"].max()


def test_a_threshold_a_class_covers_every_class() -> None:
    """A model blind to class 0: marginal coverage is bought with the other classes' rows."""
    prediction, labels = known(6000, 0, classes=3)
    blind = prediction.draws.clone()
    blind[..., 0] -= 3
    parts = [
        bd.Prediction.from_draws(blind[:, rows], bd.Categorical())
        for rows in (slice(3000), slice(3000, None))
    ]
    coverage = {}
    for per_class in (False, True):
        conformal = ConformalClassifier(0.9, per_class=per_class).fit(parts[0], labels[:3000])
        covered = conformal.sets(parts[1]).covers(labels[3000:]).double()
        coverage[per_class] = torch.stack([covered[labels[3000:] == k].mean() for k in range(3)])
    assert coverage[False].min() < 0.8
    law = coverage_law(int((labels[:3000] == 0).sum()), 0.9)
    rows = int((labels[3000:] == 0).sum())
    spread = stats.betabinom(rows, law.a, law.b).std() / rows
    assert (coverage[True] - 0.9).abs().max() <= 5 * spread + 1e-3


def test_a_class_without_calibration_rows_is_in_every_set() -> None:
    prediction, labels = known(200, 0)
    kept = labels != 4
    part = bd.Prediction.from_draws(prediction.draws[:, kept], bd.Categorical())
    conformal = ConformalClassifier(0.9, per_class=True).fit(part, labels[kept])
    assert conformal.threshold[4] == math.inf
    assert conformal.sets(prediction).members[:, 4].all()


def test_sets_need_not_be_empty() -> None:
    prediction, labels = known(300, 0, wrong=0.2)
    assert with_threshold(0.01).sets(prediction).size.max() == 0
    filled = with_threshold(0.01, never_empty=True).sets(prediction)
    assert filled.size.min() == filled.size.max() == 1
    assert torch.equal(filled.members.long().argmax(1), prediction.label)
    assert labels.shape == (300,)


@pytest.mark.parametrize("score", SCORES)
def test_every_place_of_a_row_has_a_threshold_of_its_own(score: Any) -> None:
    """Tokens (N, L, K): as L calibrators of (N, K) would, except for the random share of aps."""
    logits = torch.randn(1, 120, 3, 5, dtype=torch.float64) * torch.tensor([0.3, 1.0, 3.0])[:, None]
    labels = torch.randint(5, (120, 3))
    tokens = bd.Prediction.from_draws(logits, bd.Categorical(class_axis=-1))
    conformal = ConformalClassifier(0.8, score=score, randomized=False).fit(tokens, labels)
    sets = conformal.sets(tokens)
    assert sets.members.shape == (120, 3, 5)
    assert conformal.threshold.shape == (3,)
    assert sets.covers(labels).shape == sets.size.shape == (120, 3)
    for place in range(3):
        one = bd.Prediction.from_draws(logits[:, :, place], bd.Categorical())
        alone = ConformalClassifier(0.8, score=score, randomized=False).fit(one, labels[:, place])
        assert torch.equal(alone.sets(one).members, sets.members[:, place])
        assert sets[7, place] == alone.sets(one)[7]
    again = ConformalClassifier.from_state(conformal.state())
    assert torch.equal(again.threshold, conformal.threshold)
    first = bd.Prediction.from_draws(logits.movedim(-1, 2), bd.Categorical(class_axis=1))
    assert torch.equal(ConformalClassifier.from_state(conformal.state()).sets(first).members, sets.members)


def test_padding_does_not_count() -> None:
    logits = torch.randn(1, 60, 2, 4, dtype=torch.float64)
    labels = torch.randint(4, (60, 2))
    labels[40:, 1] = -100
    tokens = bd.Prediction.from_draws(logits, bd.Categorical(class_axis=-1))
    conformal = ConformalClassifier(0.8).fit(tokens, labels, ignore_index=-100)
    short = bd.Prediction.from_draws(logits[:, :40, 1], bd.Categorical())
    alone = ConformalClassifier(0.8).fit(short, labels[:40, 1])
    assert conformal.threshold[1] == alone.threshold
    nothing = labels.clone()
    nothing[:, 1] = -100
    never = ConformalClassifier(0.8, per_class=True).fit(tokens, nothing, ignore_index=-100)
    assert never.threshold.shape == (2, 4)
    assert never.sets(tokens).members[:, 1].all()


def test_conformal_sets_stand_on_scaled_draws() -> None:
    """Peers refuse this combination: draws, then temperature, then sets, each on rows of its own."""
    prediction, labels = known(3000, 0, wrong=4.0)
    parts = [
        bd.Prediction.from_draws(prediction.draws[:, start : start + 1000], bd.Categorical())
        for start in (0, 1000, 2000)
    ]
    scaling = TemperatureScaling().fit(parts[0], labels[:1000])
    conformal = ConformalClassifier(0.9, score="aps").fit(scaling.apply(parts[1]), labels[1000:2000])
    coverage = float(conformal.sets(scaling.apply(parts[2])).coverage(labels[2000:]))
    law = coverage_law(1000, 0.9)
    assert abs(coverage - law.mean) <= 5 * stats.betabinom(1000, law.a, law.b).std() / 1000


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("score", SCORES)
def test_what_was_found_can_be_kept(score: Any, per_class: bool, tmp_path: Path) -> None:
    prediction, labels = known(70, 0)
    conformal = ConformalClassifier(0.93, score=score, per_class=per_class).fit(prediction, labels)
    conformal.save(tmp_path / "sets.json")
    again = ConformalClassifier.load(tmp_path / "sets.json")
    assert again.state() == conformal.state()
    assert again.num_calibration == 70
    assert torch.equal(again.sets(prediction).members, conformal.sets(prediction).members)


def test_sets_answer_for_themselves() -> None:
    sets = PredictionSets(torch.tensor([[True, False, True], [False, False, False]]))
    assert len(sets) == 2
    assert sets.size.tolist() == [2, 0]
    assert sets[0] == [0, 2]
    assert sets.covers(torch.tensor([2, 1])).tolist() == [True, False]
    assert sets.coverage(torch.tensor([2, 1])) == 0.5


def test_mistakes_are_named() -> None:
    prediction, labels = known(20, 0)
    with pytest.raises(ValueError, match=r"`level` must be in \(0, 1\)"):
        ConformalClassifier(90)
    with pytest.raises(ValueError, match="one of lac, aps, raps"):
        ConformalClassifier(score="top")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`penalty` must be"):
        ConformalClassifier(penalty=-1.0)
    with pytest.raises(ValueError, match="`free_ranks` must be"):
        ConformalClassifier(free_ranks=-1)
    with pytest.raises(ValueError, match="call fit"):
        ConformalClassifier().sets(prediction)
    with pytest.raises(ValueError, match="labels of shape"):
        ConformalClassifier().fit(prediction, labels[:3])
    tokens = bd.Prediction.from_draws(torch.randn(2, 20, 3, 6), bd.Categorical(class_axis=-1))
    with pytest.raises(ValueError, match=r"of rows with labels \(\), as the calibration set's; got \(3,\)"):
        ConformalClassifier().fit(prediction, labels).sets(tokens)
    with pytest.raises(ValueError, match="`seed` must be an int"):
        ConformalClassifier().fit(prediction, labels, seed=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="labels of shape"):
        ConformalClassifier().fit(prediction, labels).sets(prediction).covers(labels[:3])
    fitted = ConformalClassifier(per_class=True).fit(prediction, labels)
    with pytest.raises(ValueError, match="of 6 classes"):
        fitted.sets(known(5, 0, classes=4)[0])
