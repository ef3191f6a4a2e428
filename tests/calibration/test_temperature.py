"""Temperature scaling of draws and of averages."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bayesdrop as bd
from bayesdrop import metrics
from bayesdrop.calibration import TemperatureScaling
from bayesdrop.calibration.temperature import _minimum

OVER = ["draws", "mean"]


def overconfident(
    rows: int, *, factor: float, draws: int = 20, seed: int = 0
) -> tuple[bd.Prediction, Tensor]:
    """Draws whose logits are `factor` times what the labels were sampled from."""
    generator = torch.Generator().manual_seed(seed)
    centre = 2 * torch.randn(rows, 5, generator=generator)
    logits = centre + 0.7 * torch.randn(draws, rows, 5, generator=generator)
    probs = logits.softmax(-1).mean(0)
    labels = torch.multinomial(probs, 1, generator=generator).squeeze(-1)
    return bd.Prediction.from_draws(factor * logits, bd.Categorical()), labels


def test_the_temperature_of_draws_undoes_what_was_done_to_them() -> None:
    factor, rows = 2.5, 20_000
    prediction, labels = overconfident(rows, factor=factor)
    scaling = TemperatureScaling().fit(prediction, labels)

    def loss(log_temperature: Tensor) -> Tensor:
        scaled = prediction.draws.double() / log_temperature.exp()
        return (
            -bd.Categorical()
            .class_log_probs(scaled, leading=1)
            .exp()
            .mean(0)
            .log()
            .gather(1, labels.unsqueeze(1))
            .mean()
        )

    at = torch.tensor(math.log(factor), dtype=torch.float64)
    # Fisher: at the truth, the standard error of log c is 1 / sqrt(rows x curvature).
    curvature = torch.autograd.functional.hessian(loss, at)
    assert abs(math.log(scaling.temperature) - math.log(factor)) <= 5 / math.sqrt(rows * float(curvature))


@pytest.mark.parametrize("over", OVER)
def test_the_temperature_found_is_the_best(over: Any) -> None:
    prediction, labels = overconfident(2000, factor=3.0)
    scaling = TemperatureScaling(over).fit(prediction, labels)
    least = float(metrics.mean_log_likelihood(scaling.apply(prediction), labels))
    for factor in (0.9, 0.99, 1.01, 1.1):
        other = TemperatureScaling(over)
        other.put({"temperature": factor * scaling.temperature})
        assert float(metrics.mean_log_likelihood(other.apply(prediction), labels)) < least


@pytest.mark.parametrize("deepest", [-2.1, -1.4, 0.2, 1.3, 2.4])
def test_the_deeper_of_two_valleys_is_found(deepest: float) -> None:
    """The likelihood of a mixture of draws may have several: a grid comes before the section."""

    def valleys(x: float) -> float:
        return min((x - deepest) ** 2 - 0.5, (x - 3) ** 2, (x + 3) ** 2)

    assert _minimum(valleys, -3.0, 3.0) == pytest.approx(deepest, abs=1e-5)


@pytest.mark.parametrize("over", OVER)
def test_scaling_calibrates_rows_it_has_not_seen(over: Any) -> None:
    seen, new = overconfident(3000, factor=3.0), overconfident(3000, factor=3.0, seed=1)
    scaled = TemperatureScaling(over).fit(*seen).apply(new[0])
    before = float(metrics.expected_calibration_error(*new))
    after = float(metrics.expected_calibration_error(scaled, new[1]))
    assert before > 0.1
    assert after < before / 3


def test_draws_are_divided_before_they_are_averaged() -> None:
    prediction, labels = overconfident(50, factor=2.0)
    scaling = TemperatureScaling("draws").fit(prediction, labels)
    scaled = scaling.apply(prediction)
    exact = (prediction.draws / scaling.temperature).softmax(-1).mean(0)
    torch.testing.assert_close(scaled.probs, exact)
    assert scaled.num_draws == prediction.num_draws
    assert torch.isfinite(scaled.mutual_information).all()
    assert "temperature" in scaled.plan


def test_the_mean_is_taken_to_a_power() -> None:
    prediction, labels = overconfident(50, factor=2.0)
    scaling = TemperatureScaling("mean").fit(prediction, labels)
    scaled = scaling.apply(prediction)
    power = prediction.probs ** (1 / scaling.temperature)
    torch.testing.assert_close(scaled.probs, power / power.sum(1, keepdim=True))
    assert torch.equal(scaled.label, prediction.label)
    assert scaled.mutual_information.isnan().all()


def test_the_two_forms_are_one_for_a_single_draw() -> None:
    prediction, labels = overconfident(300, factor=2.0, draws=1)
    forms = [TemperatureScaling(over).fit(prediction, labels) for over in ("draws", "mean")]
    assert forms[0].temperature == pytest.approx(forms[1].temperature, rel=1e-4)


def test_the_mean_needs_no_draws_and_draws_say_how_to_keep_them() -> None:
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 20), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(20, 4)
    )
    labels = torch.randint(4, (60,))
    prediction = bd.predict(net, torch.randn(60, 3), likelihood=bd.Categorical(), keep_draws=False)
    assert TemperatureScaling("mean").fit(prediction, labels).temperature > 0
    with pytest.raises(ValueError, match="keep_draws=True"):
        TemperatureScaling("draws").fit(prediction, labels)


def test_images_of_labels_and_void_labels() -> None:
    flat, labels = overconfident(60, factor=2.0)
    images = bd.Prediction.from_draws(
        flat.draws.reshape(20, 4, 3, 5, 5).permute(0, 1, 4, 2, 3), bd.Categorical()
    )
    one = TemperatureScaling().fit(flat, labels).temperature
    assert TemperatureScaling().fit(images, labels.reshape(4, 3, 5)).temperature == pytest.approx(one)
    half = bd.Prediction.from_draws(flat.draws[:, :30], bd.Categorical())
    void = labels.clone()
    void[30:] = 255
    with_void = TemperatureScaling().fit(flat, void, ignore_index=255).temperature
    assert with_void == pytest.approx(TemperatureScaling().fit(half, labels[:30]).temperature)


def test_where_every_label_is_right_the_temperature_is_the_lowest() -> None:
    prediction, _ = overconfident(50, factor=2.0)
    assert TemperatureScaling().fit(prediction, prediction.label).temperature < 0.06


@pytest.mark.parametrize("over", OVER)
def test_what_was_found_can_be_kept(over: Any, tmp_path: Path) -> None:
    prediction, labels = overconfident(50, factor=2.0)
    scaling = TemperatureScaling(over).fit(prediction, labels)
    scaling.save(tmp_path / "scaling.json")
    again = TemperatureScaling.load(tmp_path / "scaling.json")
    assert again.state() == scaling.state()
    assert torch.equal(again.apply(prediction).probs, scaling.apply(prediction).probs)
    assert [path.name for path in tmp_path.iterdir()] == ["scaling.json"]


def test_mistakes_are_named() -> None:
    prediction, labels = overconfident(10, factor=1.0)
    numbers = bd.Prediction.from_draws(torch.randn(3, 10, 1))
    with pytest.raises(ValueError, match=r"call fit\(prediction, y\) on a calibration set first"):
        TemperatureScaling().apply(prediction)
    with pytest.raises(ValueError, match="'draws' or 'mean'"):
        TemperatureScaling("logits")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a prediction of classes"):
        TemperatureScaling().fit(numbers, labels)
    with pytest.raises(TypeError, match="integer labels"):
        TemperatureScaling().fit(prediction, labels.float())
    with pytest.raises(ValueError, match="labels of shape"):
        TemperatureScaling().fit(prediction, labels[:5])
    with pytest.raises(ValueError, match="in 0 to 4"):
        TemperatureScaling().fit(prediction, labels + 3)
    with pytest.raises(ValueError, match="of a TemperatureScaling"):
        TemperatureScaling.from_state({"kind": "ConformalClassifier"})
    with pytest.raises(ValueError, match="a positive number"):
        TemperatureScaling().put({"temperature": -1.0})


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1, 2]")
    (tmp_path / "b.json").write_text("{")
    for name in ("a.json", "b.json"):
        with pytest.raises(ValueError, match="TemperatureScaling"):
            TemperatureScaling.load(tmp_path / name)


def test_a_file_that_is_not_as_it_was_written_is_refused_by_name(tmp_path: Path) -> None:
    scaling = TemperatureScaling()
    scaling.put({"temperature": 1.5})
    scaling.save(path := tmp_path / "scaling.json")
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"TemperatureScaling\.load: .*scaling\.json does not hold"):
            TemperatureScaling.load(path)
    for state in (
        {"kind": "TemperatureScaling", "options": {"over": "draws"}, "fitted": {"temperature": "1.5"}},
        {"kind": "TemperatureScaling", "options": {"over": "draws"}, "fitted": {"temperature": math.nan}},
        {"kind": "TemperatureScaling", "options": {"over": "draws"}, "fitted": []},
        {"kind": "TemperatureScaling", "options": {"over": "draws"}, "fitted": None, "more": 1},
        {"kind": "TemperatureScaling", "options": None, "fitted": None},
        {"kind": "TemperatureScaling"},
    ):
        path.write_text(json.dumps(state))
        with pytest.raises(ValueError, match=r"scaling\.json does not hold"):
            TemperatureScaling.load(path)
    # Files of before had no checksum.
    path.write_text(json.dumps(scaling.state()))
    assert TemperatureScaling.load(path).state() == scaling.state()
