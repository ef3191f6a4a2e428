"""AUROC and false positive rate, against scikit-learn."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from bayesdrop import Categorical, Gaussian, Prediction
from bayesdrop.metrics import misclassification_auroc, ood_auroc, ood_fpr, uncertainty

CLASS_SCORES = ("entropy", "expected_entropy", "mutual_information", "variation_ratio", "max_prob")


def _classes(seed: int = 0, rows: int = 120, pull: float = 2.0) -> tuple[Prediction, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (rows,), generator=generator)
    logits = 2 * torch.randn(5, rows, 3, dtype=torch.double, generator=generator)
    return Prediction.from_draws(logits + pull * torch.nn.functional.one_hot(y, 3), Categorical()), y


def _numbers(seed: int, rows: int, spread: float, outputs: int = 2) -> Prediction:
    generator = torch.Generator().manual_seed(seed)
    draws = spread * torch.randn(6, rows, outputs, dtype=torch.double, generator=generator)
    return Prediction.from_draws(draws, Gaussian(0.5))


@pytest.mark.parametrize("score", CLASS_SCORES)
def test_misclassification_auroc_is_scikit_learns(score: str) -> None:
    prediction, y = _classes()
    value = misclassification_auroc(prediction, y, score=score)  # type: ignore[arg-type]
    wrong = prediction.label != y
    scores = 1 - prediction.probs.amax(1) if score == "max_prob" else getattr(prediction, score)
    if score == "variation_ratio":
        assert scores.unique().numel() < 5  # the case has many ties
    assert float(value) == pytest.approx(roc_auc_score(wrong.numpy(), scores.numpy()), rel=1e-12)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    inside=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    outside=st.lists(st.integers(0, 4), min_size=1, max_size=30),
)
def test_ties_count_half(inside: list[int], outside: list[int]) -> None:
    def spread(levels: list[int]) -> Prediction:
        half = torch.tensor(levels, dtype=torch.double).unsqueeze(1)
        return Prediction.from_draws(torch.stack([half, -half]))

    truth = [0] * len(inside) + [1] * len(outside)
    expected = roc_auc_score(truth, inside + outside)
    a, b = spread(inside), spread(outside)
    assert float(ood_auroc(a, b)) == pytest.approx(expected, rel=1e-12)
    assert float(ood_auroc(b, a)) == pytest.approx(1 - expected, rel=1e-12)
    assert float(ood_auroc(a, a)) == 0.5

    for tpr in (0.5, 0.95, 1.0):
        # Inside is positive: the surer a row, the more it passes for inside.
        fprs, tprs, _ = roc_curve(
            [1 - t for t in truth], [-s for s in inside + outside], drop_intermediate=False
        )
        assert float(ood_fpr(a, b, tpr=tpr)) == pytest.approx(min(fprs[tprs >= tpr - 1e-12]), rel=1e-12)


@pytest.mark.parametrize("score", ["std", "epistemic", "aleatoric"])
def test_ood_auroc_of_numbers_ranks_rows_by_their_total_variance(score: str) -> None:
    inside, outside = _numbers(0, 50, 1.0), _numbers(1, 70, 1.5)
    value = ood_auroc(inside, outside, score=score)  # type: ignore[arg-type]
    name = "variance" if score == "std" else score
    scores = torch.cat([getattr(inside, name), getattr(outside, name)]).sum(1)
    expected = roc_auc_score([0] * 50 + [1] * 70, scores.numpy())
    assert float(value) == pytest.approx(expected, rel=1e-12)
    assert (expected == 0.5) == (score == "aleatoric")


def test_images_are_ranked_label_by_label() -> None:
    inside, _ = _classes(0, rows=60)
    outside, _ = _classes(1, rows=40, pull=0.0)
    expected = ood_auroc(inside, outside, score="max_prob")
    maps = [
        Prediction.from_draws(part.draws.reshape(5, 2, -1, 5, 3).movedim(-1, 2), Categorical())
        for part in (inside, outside)
    ]
    torch.testing.assert_close(ood_auroc(*maps, score="max_prob"), expected)
    assert 0.5 < float(expected) < 1


def test_void_labels_do_not_count() -> None:
    prediction, y = _classes()
    keep = torch.arange(len(y)) % 3 > 0
    kept = Prediction.from_draws(prediction.draws[:, keep], Categorical())
    value = misclassification_auroc(prediction, torch.where(keep, y, -1), ignore_index=-1)
    torch.testing.assert_close(value, misclassification_auroc(kept, y[keep]))


def test_separable_rows_have_auroc_1_and_no_false_positives() -> None:
    inside, outside = _numbers(0, 50, 0.01), _numbers(1, 70, 10.0)
    assert float(ood_auroc(inside, outside)) == 1
    assert float(ood_fpr(inside, outside)) == 0
    assert float(ood_fpr(outside, inside)) == 1


def test_the_share_that_passes_is_not_rounded_up_by_a_digit() -> None:
    def spread(levels: torch.Tensor) -> Prediction:
        return Prediction.from_draws(torch.stack([levels, -levels]).unsqueeze(-1))

    inside = spread(torch.arange(1.0, 101.0))
    # 7 of 100 are needed, those up to 7; 0.07 * 100 is a little more than 7.
    assert float(ood_fpr(inside, spread(torch.tensor([7.0, 7.5])), tpr=0.07)) == 0.5


@pytest.mark.parametrize(("label", "kind"), [(0, "right"), (1, "wrong")])
def test_misclassification_needs_both_kinds(label: int, kind: str) -> None:
    prediction = Prediction.from_draws(torch.tensor([[[2.0, 0.0]]]).expand(2, 4, 2), Categorical())
    with pytest.raises(ValueError, match=f"some predictions are right and some wrong; got 'all 4 {kind}'"):
        misclassification_auroc(prediction, torch.full((4,), label))


def test_scores_fit_the_kind_of_prediction() -> None:
    classes, y = _classes(rows=20)
    numbers = _numbers(0, 20, 1.0)
    with pytest.raises(ValueError, match=r"`score` must be one of entropy, .* for classes; got 'std'"):
        misclassification_auroc(classes, y, score="std")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`score` must be one of std, .* for numbers; got 'entropy'"):
        ood_auroc(numbers, numbers, score="entropy")
    with pytest.raises(TypeError, match="ood_auroc: `outside` must be of classes as `inside` is"):
        ood_auroc(classes, numbers)
    with pytest.raises(TypeError, match="ood_fpr: `outside` must be of numbers as `inside` is"):
        ood_fpr(numbers, classes)
    with pytest.raises(ValueError, match=r"ood_fpr: `tpr` must be in \(0, 1\]"):
        ood_fpr(numbers, numbers, tpr=0.0)


@pytest.mark.parametrize("score", ["std", "epistemic"])
def test_one_draw_has_no_spread(score: str) -> None:
    one = Prediction.from_draws(torch.zeros(1, 3, 1), Gaussian(1.0))
    with pytest.raises(ValueError, match="`prediction` must be of at least 2 draws"):
        ood_auroc(one, one, score=score)  # type: ignore[arg-type]
    assert float(ood_auroc(one, one, score="aleatoric")) == 0.5


def test_max_prob_makes_no_ties_by_rounding() -> None:
    logits = 0.1 * torch.randn(1, 20_000, 4, generator=torch.Generator().manual_seed(0))
    prediction = Prediction.from_draws(logits, Categorical())
    largest = prediction.probs.amax(1)
    assert (1 - largest).unique().numel() < largest.unique().numel()  # single precision would
    assert uncertainty(prediction, "max_prob").unique().numel() == largest.unique().numel()


def test_the_score_is_the_total_uncertainty_unless_another_is_named() -> None:
    classes, _ = _classes()
    assert torch.equal(uncertainty(classes), classes.entropy)
    numbers = _numbers(0, 20, 1.0, outputs=1)
    torch.testing.assert_close(uncertainty(numbers), numbers.std.squeeze(1))


@pytest.mark.parametrize("score", CLASS_SCORES)
def test_sequences_are_ranked_by_the_mean_of_their_labels(score: str) -> None:
    generator = torch.Generator().manual_seed(4)
    pair = [
        Prediction.from_draws(
            scale * torch.randn(5, rows, 7, 3, dtype=torch.double, generator=generator),
            Categorical(class_axis=-1),
        )
        for rows, scale in ((30, 2.0), (20, 1.0))
    ]
    means = [uncertainty(part, score).mean(1) for part in pair]  # type: ignore[arg-type]
    for part, mean in zip(pair, means, strict=True):
        torch.testing.assert_close(uncertainty(part, score, by="row"), mean)  # type: ignore[arg-type]
    expected = roc_auc_score([0] * 30 + [1] * 20, torch.cat(means).numpy())
    found = ood_auroc(*pair, score=score, by="row")  # type: ignore[arg-type]
    assert float(found) == pytest.approx(expected, rel=1e-12)
    assert float(found) != float(ood_auroc(*pair, score=score))  # type: ignore[arg-type]
    passed = (means[1] <= means[0].sort().values[28]).double().mean()
    assert float(ood_fpr(*pair, score=score, by="row")) == pytest.approx(float(passed))  # type: ignore[arg-type]


def test_by_must_be_a_label_or_a_row() -> None:
    prediction, _ = _classes()
    with pytest.raises(ValueError, match="ood_auroc: `by` must be 'label' or 'row'; got 'pixel'"):
        ood_auroc(prediction, prediction, by="pixel")  # type: ignore[arg-type]
