"""The demo, in a small version that takes a second."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from bayesdrop.data import load_co2
from bayesdrop.demo import DemoConfig, DemoResult, draw_demo, print_report, run_demo
from bayesdrop.demo.experiment import Calendar, Rescale, split_record
from bayesdrop.plots import save_figure

QUICK = DemoConfig(epochs=3, width=32, num_draws=20)


@pytest.fixture(scope="module")
def result() -> DemoResult:
    return run_demo(QUICK, progress=False)


def test_the_record_is_split_without_overlap_or_loss() -> None:
    record = load_co2()
    split = split_record(record, QUICK)
    parts = (split.train, split.interpolation, split.extrapolation)
    assert torch.equal(torch.cat([part.x for part in parts]).sort(0).values, record.x)
    assert float(split.train.x.max()) < 1985
    assert float(split.interpolation.x.max()) < 1985
    assert float(split.extrapolation.x.min()) > 1985
    assert len(split.interpolation) == round(0.1 * (len(split.train) + len(split.interpolation)))


def test_the_season_repeats_and_time_goes_on() -> None:
    calendar = Calendar(load_co2().x)
    now, later = calendar(torch.tensor([[1970.25]])), calendar(torch.tensor([[1990.25]]))
    torch.testing.assert_close(now[:, 1:], later[:, 1:])
    torch.testing.assert_close(now[:, 1:], torch.tensor([[1.0, 0.0, 0.0, -1.0]]), atol=1e-5, rtol=0)
    assert float(later[0, 0]) > float(now[0, 0])


def test_rescaling_undoes_standardising() -> None:
    y = load_co2().y
    torch.testing.assert_close(Rescale(y)((y - y.mean()) / y.std()), y)


def test_scores_are_those_of_the_two_predictions(result: DemoResult) -> None:
    kinds = [(score.months, score.method) for score in result.scores]
    assert kinds == [
        (months, method)
        for months in ("interpolation", "extrapolation")
        for method in ("MC dropout", "standard dropout")
    ]
    assert all(score.rmse > 0 and 0 <= score.coverage <= 1 for score in result.scores)


def test_standard_dropout_has_one_function_and_the_noise_alone(result: DemoResult) -> None:
    assert float(result.standard.epistemic.max()) == 0
    noise = torch.full_like(result.standard.std, result.noise_std)
    torch.testing.assert_close(result.standard.std, noise)
    assert float(result.mc.epistemic.min()) > 0
    torch.testing.assert_close(result.mc.aleatoric, noise.square())


def test_the_same_seed_gives_the_same_numbers_on_any_number_of_threads(result: DemoResult) -> None:
    state = torch.random.get_rng_state()
    torch.set_num_threads(2)
    again = run_demo(QUICK, progress=False)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == 2
    assert again.scores == result.scores
    assert torch.equal(again.mc.draws, result.mc.draws)
    other = run_demo(replace(QUICK, seed=1), progress=False)
    assert other.scores != result.scores


def test_the_picture_shows_bands_draws_and_data(result: DemoResult) -> None:
    figure = draw_demo(result)
    left, right = figure.axes
    shown = [months.between(1972, 2005) for months in (result.split.train, result.split.extrapolation)]
    for ax, functions in ((left, 1 + 4), (right, 1)):
        lines = [line for line in ax.lines if line.get_linestyle() != "None"]
        dots = [line for line in ax.lines if line.get_linestyle() == "None"]
        assert len(lines) == functions
        assert [len(line.get_xdata()) for line in dots] == [len(months) for months in shown]
        assert len(ax.collections) == 2
        assert ax.get_xlim() == (1972, 2005)
    assert left.get_ylim() == right.get_ylim()


def test_the_picture_prints_the_coverage_that_was_measured(result: DemoResult) -> None:
    for ax, method in zip(draw_demo(result).axes, ("MC dropout", "standard dropout"), strict=True):
        coverage = result.score("extrapolation", method).coverage
        assert any(f"{100 * coverage:.0f} % of these" in text.get_text() for text in ax.texts)


def test_two_draws_are_enough_for_a_picture(tmp_path: Path) -> None:
    small = run_demo(replace(QUICK, num_draws=2, epochs=1), progress=False)
    picture = save_figure(draw_demo(small), tmp_path / "demo.png", dpi=50)
    assert picture.stat().st_size > 1000


def printed(result: DemoResult, path: Path, width: int = 120) -> str:
    from rich.console import Console

    stream = StringIO()
    print_report(result, path, console=Console(file=stream, width=width))
    return stream.getvalue()


def test_the_table_holds_every_score(result: DemoResult) -> None:
    text = printed(result, Path("demo.png"))
    for score in result.scores:
        row = next(
            line
            for line in text.splitlines()
            if score.method in line
            and f"{score.rmse:.2f}" in line
            and f"{100 * score.coverage:.0f} %" in line
        )
        assert f"{score.log_likelihood:.2f}" in row


def test_the_path_is_printed_in_one_piece(result: DemoResult) -> None:
    path = Path("/a") / ("folder [red] " * 12) / "demo.png"
    assert f"Picture: {path}\n" in printed(result, path, width=40)


BAD: list[dict[str, Any]] = [
    {"num_draws": 1},
    {"epochs": 0},
    {"width": True},
    {"seed": -1},
    {"p": 0.0},
    {"held_out": 1.0},
    {"train_until": 1950.0},
    {"train_until": 1990.0, "test_until": 1980.0},
    {"train_until": 2001.99},
    {"plot_until": 1960.0},
]


@pytest.mark.parametrize("options", BAD, ids=str)
def test_a_bad_setting_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"DemoConfig: `.*{next(iter(options))}.*` must be"):
        DemoConfig(**options)
