"""PAvPU, against loops over pixels and patches."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bayesdrop import Categorical, Prediction
from bayesdrop.metrics import accuracy, pavpu, predictive_entropy

VOID = 9


def _case(
    seed: int = 0, rows: int = 3, height: int = 6, width: int = 8, classes: int = 3
) -> tuple[Prediction, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (rows, height, width), generator=generator)
    draws = 2 * torch.randn(3, rows, classes, height, width, dtype=torch.double, generator=generator)
    draws += 1.5 * torch.nn.functional.one_hot(y, classes).movedim(-1, 1)
    return Prediction.from_draws(draws, Categorical()), y


def _by_loops(
    prediction: Prediction,
    y: Tensor,
    threshold: float,
    size: int,
    void: int | None,
    stride: int | None = None,
) -> tuple[float, float, float]:
    entropy, label = prediction.entropy, prediction.label
    ac = au = ic = iu = 0
    step = size if stride is None else stride

    def starts(length: int) -> list[int]:
        # As many as it takes for the last to reach the end.
        found = [0]
        while found[-1] + size < length:
            found.append(found[-1] + step)
        return found

    for n in range(y.shape[0]):
        for top in starts(y.shape[1]):
            for left in starts(y.shape[2]):
                pixels = [
                    (n, i, j)
                    for i in range(top, min(top + size, y.shape[1]))
                    for j in range(left, min(left + size, y.shape[2]))
                    if void is None or int(y[n, i, j]) != void
                ]
                if not pixels:
                    continue
                accurate = sum(bool(label[at] == y[at]) for at in pixels) / len(pixels) > 0.5
                uncertain = sum(float(entropy[at]) for at in pixels) / len(pixels) > threshold
                ac += accurate and not uncertain
                au += accurate and uncertain
                ic += not accurate and not uncertain
                iu += not accurate and uncertain
    return (
        ac / (ac + ic) if ac + ic else math.nan,
        iu / (ic + iu) if ic + iu else math.nan,
        (ac + iu) / (ac + au + ic + iu),
    )


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    size=st.integers(1, 4),
    void=st.floats(0, 0.9),
    stride=st.one_of(st.none(), st.integers(1, 4)),
)
def test_pavpu_is_a_loop_over_patches(
    seed: int, height: int, width: int, size: int, void: float, stride: int | None
) -> None:
    stride = None if stride is None else min(stride, size)
    prediction, y = _case(seed, 2, height, width)
    y[torch.rand(y.shape, generator=torch.Generator().manual_seed(seed)) < void] = VOID
    y[0, 0, 0] = 0
    entropy = prediction.entropy[y != VOID]
    low, high = float(entropy.min()), float(entropy.max())
    # Thresholds at the ends are decided by the last digit of a mean; they are held by tests of their own.
    result = pavpu(prediction, y, patch=size, stride=stride, ignore_index=VOID, num_thresholds=6)
    for m in range(1, 5):
        threshold = low + m / 5 * (high - low)
        if low == high:
            continue
        expected = _by_loops(prediction, y, threshold, size, VOID, stride)
        got = (result.accurate_if_certain[m], result.uncertain_if_inaccurate[m], result.pavpu[m])
        assert [float(value) for value in got] == pytest.approx(expected, rel=1e-12, nan_ok=True)
        assert float(result.thresholds[m]) == pytest.approx(threshold, rel=1e-12)


def test_thresholds_run_from_the_least_to_the_largest_entropy_in_tenths() -> None:
    prediction, y = _case()
    result = pavpu(prediction, y)
    low, high = float(prediction.entropy.min()), float(prediction.entropy.max())
    assert result.thresholds.tolist() == pytest.approx([low + t / 10 * (high - low) for t in range(11)])
    assert float(result.mean) == pytest.approx(sum(result.pavpu.tolist()) / 11)


def test_at_the_ends_pavpu_is_the_error_rate_and_the_accuracy() -> None:
    prediction, y = _case()
    result = pavpu(prediction, y)
    right = float(accuracy(prediction, y))
    assert float(result.pavpu[-1]) == pytest.approx(right)
    assert float(result.accurate_if_certain[-1]) == pytest.approx(right)
    assert float(result.uncertain_if_inaccurate[-1]) == 0
    # The surest label of all is not above its own entropy: it alone is certain at t = 0.
    surest = int(prediction.entropy.argmin())
    assert bool(prediction.label.flatten()[surest] == y.flatten()[surest])
    assert float(result.pavpu[0]) == pytest.approx(1 - right + 1 / y.numel())


def test_patches_are_blocks_of_rows_and_columns() -> None:
    # A 4 x 4 map whose right half is wrong. Strips of whole rows would all be half right.
    y = torch.zeros(1, 4, 4, dtype=torch.long)
    logits = torch.zeros(1, 1, 2, 4, 4)
    logits[..., 0, :, :2] = 5.0
    logits[..., 1, :, 2:] = 0.5
    result = pavpu(Prediction.from_draws(logits, Categorical()), y, patch=2, threshold=0.3)
    assert [float(v) for v in (result.accurate_if_certain, result.uncertain_if_inaccurate, result.pavpu)] == [
        1.0,
        1.0,
        1.0,
    ]


@pytest.mark.parametrize(("right", "accurate"), [(1, 0.0), (2, 0.0), (3, 1.0)])
def test_half_right_is_not_accurate(right: int, accurate: float) -> None:
    y = torch.tensor([0] * right + [1] * (4 - right)).reshape(1, 2, 2)
    logits = torch.zeros(1, 1, 2, 2, 2)
    logits[:, :, 0] = 3.0
    result = pavpu(Prediction.from_draws(logits, Categorical()), y, patch=2, threshold=1.0)
    assert float(result.pavpu) == accurate


def test_partial_patches_at_the_border_count_as_one() -> None:
    # 3 x 3 in patches of 2: blocks of 4, 2, 2 and 1 labels; only the lone corner is wrong.
    y = torch.zeros(1, 3, 3, dtype=torch.long)
    y[0, 2, 2] = 1
    logits = torch.zeros(1, 1, 2, 3, 3)
    logits[:, :, 0] = 3.0
    prediction = Prediction.from_draws(logits, Categorical())
    assert float(pavpu(prediction, y, patch=2, threshold=1.0).pavpu) == 0.75
    assert float(pavpu(prediction, y, patch=5, threshold=1.0).pavpu) == 1


def test_a_sliding_window_has_a_patch_at_every_position() -> None:
    """3 x 4 positions, windows of 2 x 2: 2 x 3 of them, each wholly inside."""
    y = torch.zeros(1, 3, 4, dtype=torch.long)
    label = torch.tensor([[[0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]])
    logits = 20 * torch.nn.functional.one_hot(label, 2).movedim(-1, 1).double().unsqueeze(0)
    prediction = Prediction.from_draws(logits, Categorical())
    slid = pavpu(prediction, y, patch=2, stride=1, threshold=1.0)
    # Right labels of the windows: 2, 1, 3 and 3, 3, 4; more than two make one accurate.
    assert slid.counts.tolist() == [[4, 0, 2, 0]]
    apart = pavpu(prediction, y, patch=2, threshold=1.0)
    assert apart.counts.tolist() == [[3, 0, 1, 0]]
    assert torch.equal(pavpu(prediction, y, patch=2, stride=2, threshold=1.0).counts, apart.counts)
    for bad in (0, 3, 1.5):
        with pytest.raises((ValueError, TypeError), match="pavpu: `stride` must be"):
            pavpu(prediction, y, patch=2, stride=bad)  # type: ignore[arg-type]


def test_patches_of_nothing_but_void_are_left_out() -> None:
    prediction, y = _case(rows=1, height=4, width=4)
    y[0, :2, :] = VOID
    whole = pavpu(prediction, y, patch=2, ignore_index=VOID, threshold=0.5)
    half = Prediction.from_draws(prediction.draws[..., 2:, :], Categorical())
    rest = pavpu(half, y[:, 2:], patch=2, threshold=0.5)
    assert torch.equal(whole.pavpu, rest.pavpu)


@pytest.mark.parametrize("side", [3, 7])
def test_equal_entropies_never_exceed_their_own_maximum(side: int) -> None:
    logits = torch.tensor([0.3, 0.1, -1.7], dtype=torch.double).reshape(1, 1, 3, 1, 1)
    prediction = Prediction.from_draws(logits.expand(2, 1, 3, side, side), Categorical())
    result = pavpu(prediction, torch.zeros(1, side, side, dtype=torch.long), patch=side)
    assert result.pavpu.tolist() == [1.0] * 11


@pytest.mark.parametrize("shape", [(7,), (5,), (4, 3, 5)])
def test_sequences_and_volumes_have_patches_too(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(2, (2, *shape), generator=generator)
    draws = torch.randn(3, 2, 2, *shape, dtype=torch.double, generator=generator)
    prediction = Prediction.from_draws(draws, Categorical(class_axis=1))
    result = pavpu(prediction, y, patch=max(shape), threshold=0.6)
    axes = tuple(range(1, y.dim()))
    accurate = (prediction.label == y).double().mean(axes) > 0.5
    uncertain = prediction.entropy.mean(axes) > 0.6
    assert float(result.pavpu) == float((accurate != uncertain).double().mean())


def test_classes_may_be_on_the_last_axis() -> None:
    prediction, y = _case()
    last = Prediction.from_draws(prediction.draws.movedim(2, -1), Categorical(class_axis=-1))
    for patch in (1, 2):
        torch.testing.assert_close(pavpu(last, y, patch=patch).pavpu, pavpu(prediction, y, patch=patch).pavpu)


def test_rows_without_positions_are_patches_of_one() -> None:
    prediction, y = _case()
    flat = Prediction.from_draws(prediction.draws.movedim(2, -1).reshape(3, -1, 3), Categorical())
    torch.testing.assert_close(pavpu(flat, y.flatten()).pavpu, pavpu(prediction, y).pavpu)
    with pytest.raises(ValueError, match="pavpu: `patch` must be 1 for labels without positions; got 2"):
        pavpu(flat, y.flatten(), patch=2)


def test_the_range_comes_from_validation_if_it_is_given() -> None:
    prediction, y = _case()
    validation, _ = _case(seed=1)
    low, high = float(validation.entropy.min()), float(validation.entropy.max())
    a = pavpu(prediction, y, entropy_range=validation)
    b = pavpu(prediction, y, entropy_range=(low, high))
    assert torch.equal(a.thresholds, b.thresholds)
    assert torch.equal(a.pavpu, b.pavpu)
    assert float(a.thresholds[0]) == low
    assert float(a.thresholds[-1]) == high


def test_the_last_threshold_is_the_end_of_the_range_to_the_last_digit() -> None:
    prediction, y = _case()
    low, high = 0.07837985890347726, 0.6516563630394637
    assert low + (high - low) < high  # a patch at the maximum would be above the last threshold
    assert float(pavpu(prediction, y, entropy_range=(low, high)).thresholds[-1]) == high


def test_void_does_not_set_the_range() -> None:
    prediction, y = _case()
    y[prediction.entropy > 0.8] = VOID
    assert float(pavpu(prediction, y, ignore_index=VOID).thresholds[-1]) <= 0.8


def test_a_threshold_may_be_the_mean_entropy() -> None:
    prediction, y = _case()
    threshold = float(predictive_entropy(prediction))
    result = pavpu(prediction, y, threshold=threshold, patch=2)
    got = [float(v) for v in (result.accurate_if_certain, result.uncertain_if_inaccurate, result.pavpu)]
    assert got == pytest.approx(_by_loops(prediction, y, threshold, 2, None))
    assert result.thresholds.tolist() == [threshold]


def test_conditions_that_never_hold_give_nan_and_pavpu_stays_defined() -> None:
    logits = torch.zeros(1, 2, 2, 1, 1)
    logits[:, :, 0] = 1.0
    prediction = Prediction.from_draws(logits, Categorical())
    result = pavpu(prediction, torch.zeros(2, 1, 1, dtype=torch.long), threshold=0.0)
    assert math.isnan(float(result.accurate_if_certain))
    assert math.isnan(float(result.uncertain_if_inaccurate))
    assert float(result.pavpu) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch": 0}, "`patch` must be a positive int"),
        ({"num_thresholds": 1}, "`num_thresholds` must be an int of at least 2"),
        ({"threshold": math.nan}, "`threshold` must be finite"),
        ({"entropy_range": (1.0, 0.5)}, "`entropy_range` must be two finite numbers"),
        ({"entropy_range": (0.0, math.inf)}, "`entropy_range` must be two finite numbers"),
        ({"entropy_range": (0.0, 1.0), "threshold": 0.5}, "`entropy_range` must be None when a threshold"),
    ],
)
def test_pavpu_says_what_it_needs(options: dict[str, float], message: str) -> None:
    prediction, y = _case()
    with pytest.raises(ValueError, match=message):
        pavpu(prediction, y, **options)  # type: ignore[arg-type]
