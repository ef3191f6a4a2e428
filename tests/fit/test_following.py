"""Following a run: callbacks, time, schedules by name, an optimiser for rates, lines of progress."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, IterableDataset

import bayesdrop as bd
from bayesdrop.fit import History, fit
from bayesdrop.fit import loop as fit_loop
from bayesdrop.fit.schedules import NamedSchedule
from bayesdrop.progress import progress_bar


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        bd.ConcreteDropout(nn.Linear(3, 8), 0.2),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        bd.DropConnect(nn.Linear(8, 1)),
    )


def data(rows: int = 40) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(1))
    return x, x.sum(1, keepdim=True).sin()


def trained(**options: Any) -> tuple[dict[str, Tensor], History]:
    model = network()
    objective = bd.NegativeELBO(bd.Gaussian(), num_data=40)
    history = fit(model, data(), objective, batch_size=10, **({"epochs": 3} | options))
    return {name: value.clone() for name, value in model.state_dict().items()}, history


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


class Clock:
    """Seconds that pass at every look."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


# callback


def test_a_callback_follows_the_run_and_does_not_change_it() -> None:
    seen: list[tuple[int, int, float]] = []

    def look(epoch: int, history: History) -> None:
        torch.randn(100)
        seen.append((epoch, len(history), history.loss[-1]))

    plain, history = trained()
    followed, _ = trained(callback=look)
    assert_same(plain, followed)
    assert seen == [(epoch + 1, epoch + 1, loss) for epoch, loss in enumerate(history.loss)]


def test_a_callback_that_leaves_the_model_in_eval_mode_does_not_change_the_run() -> None:
    model = network()
    fit(
        model,
        data(),
        lambda m, x, y: (m(x) - y).square().mean(),
        epochs=3,
        callback=lambda *_: model.eval() and None,
    )
    other = network()
    fit(other, data(), lambda m, x, y: (m(x) - y).square().mean(), epochs=3)
    assert_same(dict(model.state_dict()), dict(other.state_dict()))


def test_a_callback_can_stop_the_run_which_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    _, history = trained(epochs=6, checkpoint=path, checkpoint_every=4, callback=lambda epoch, _: epoch == 2)
    assert len(history) == 2
    assert history.stopped_by == "callback"
    assert not history.stopped_early
    assert "stopped by callback" in repr(history)
    resumed, whole = trained(epochs=6, checkpoint=path, checkpoint_every=4)
    straight, wanted = trained(epochs=6)
    assert_same(resumed, straight)
    assert whole.loss == wanted.loss
    assert whole.stopped_by is None


def test_a_callback_must_be_one() -> None:
    with pytest.raises(TypeError, match=r"fit: `callback` must be callable with an epoch and a History"):
        trained(callback=3)
    with pytest.raises(TypeError, match=r"fit: `callback` must be a function that gives True, False or None"):
        trained(callback=lambda *_: "stop")


# time


def test_time_that_runs_out_ends_the_run_after_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_loop, "_clock", Clock(1.0))
    rows: list[int] = []

    def objective(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        rows.append(len(x))
        return (model(x) - y).square().mean()

    history = fit(network(), data(), objective, epochs=5, batch_size=10, max_seconds=1e-6, progress=False)
    assert rows == [10]
    assert history.stopped_by == "time"
    assert len(history) == len(history.lr) == len(history.seconds) == 1


def test_a_run_without_time_goes_on_as_if_it_had_never_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "run.safetensors"
    straight, wanted = trained(epochs=6)
    # Looks at the clock: at the start, before every step but the first, and after every epoch of four steps.
    monkeypatch.setattr(fit_loop, "_clock", Clock(1.0))
    _, cut = trained(epochs=6, max_seconds=10.5, checkpoint=path, checkpoint_every=50, progress=False)
    assert cut.stopped_by == "time"
    assert 1 < len(cut) < 6
    assert cut.loss[:-1] == wanted.loss[: len(cut) - 1]
    assert cut.loss[-1] != wanted.loss[len(cut) - 1]  # of the steps so far
    resumed, history = trained(epochs=6, max_seconds=1e9, checkpoint=path, progress=False)
    assert_same(resumed, straight)
    assert history.loss == wanted.loss
    assert history.stopped_by is None


def test_enough_time_changes_nothing() -> None:
    assert_same(trained()[0], trained(max_seconds=1e9)[0])


# schedules


def lrs_of(schedule: Callable[[torch.optim.Optimizer], Any], steps: int) -> list[float]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    made = schedule(optimizer)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        made.step()
    return found


@pytest.mark.parametrize(
    ("name", "torchs"),
    [
        ("constant", lambda o: lr_scheduler.LambdaLR(o, lambda _: 1.0)),
        ("linear", lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, total_iters=40)),
        ("cosine", lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=40)),
        ("one-cycle", lambda o: lr_scheduler.OneCycleLR(o, 0.3, total_steps=40, cycle_momentum=False)),
    ],
)
def test_schedules_by_name_are_those_of_torch(name: str, torchs: Callable[[Any], Any]) -> None:
    steps = 39 if name == "one-cycle" else 40
    found = lrs_of(lambda o: NamedSchedule(o, name, 40), steps)
    assert found == pytest.approx(lrs_of(torchs, steps), rel=1e-9, abs=1e-12)


def test_a_warm_up_rises_to_the_schedule() -> None:
    found = lrs_of(lambda o: NamedSchedule(o, "linear", 20, 0.25), 20)
    assert found[:5] == pytest.approx([0.3 * (k + 1) / 5 for k in range(5)])
    assert found[5:] == pytest.approx([0.3 * (1 - k / 15) for k in range(15)])


def test_fit_knows_how_many_steps_there_are() -> None:
    _, history = trained(epochs=4, lr=0.1, scheduler="linear")
    assert history.lr == pytest.approx([0.1 * (1 - epoch / 4) for epoch in range(1, 5)])
    _, warm = trained(epochs=4, lr=0.1, warmup=0.5)
    assert warm.lr == pytest.approx([0.1 * 5 / 8, 0.1, 0.1, 0.1])


def test_a_schedule_by_name_is_kept_in_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    options = {"epochs": 6, "lr": 0.01, "scheduler": "cosine", "warmup": 0.2}
    trained(checkpoint=path, callback=lambda epoch, _: epoch == 3, **options)
    resumed, history = trained(checkpoint=path, **options)
    straight, wanted = trained(**options)
    assert_same(resumed, straight)
    assert history.lr == wanted.lr
    with pytest.raises(ValueError, match=r"scheduler\.total_steps was 24 and is 36"):
        trained(checkpoint=path, **(options | {"epochs": 9}))


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(zip(*data(), strict=True))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scheduler": "cosin"}, r"`scheduler` must be one of 'constant', 'linear', 'cosine', 'one-cycle'"),
        ({"scheduler": "one-cycle", "warmup": 0.1}, r"`warmup` must be 0 with scheduler='one-cycle'"),
        ({"warmup": 1.0}, r"`warmup` must be a share of all steps, in \[0, 1\)"),
        ({"warmup": -0.1}, "`warmup` must be a number of at least 0"),
        ({"max_seconds": 0.0}, "`max_seconds` must be a number above 0"),
        (
            {"scheduler": lr_scheduler.ConstantLR, "warmup": 0.1},
            "0 with a scheduler of your own",
        ),
    ],
)
def test_bad_options_are_errors(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        trained(**options)


def test_a_schedule_by_name_needs_a_number_of_steps() -> None:
    loader = DataLoader(Endless(), batch_size=10)
    with pytest.raises(ValueError, match="number of steps is not known"):
        fit(network(), loader, lambda m, x, y: m(x).mean(), epochs=1, scheduler="cosine")


# an optimiser for the rates


def test_adam_for_the_rates_and_adam_for_the_rest_are_one_adam() -> None:
    def adam(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return torch.optim.Adam(groups)

    together, _ = trained(optimizer=adam, scheduler="cosine")
    apart, _ = trained(optimizer=adam, rate_optimizer=adam, scheduler="cosine")
    assert_same(together, apart)


def test_rates_are_trained_by_their_own_optimiser() -> None:
    model, _ = trained(epochs=1, rate_optimizer=lambda groups: torch.optim.SGD(groups, lr=1.0), rate_lr=1e-30)
    assert model["0.logit_p"] == network()[0].logit_p  # type: ignore[union-attr]
    assert not torch.equal(model["0.layer.weight"], network()[0].layer.weight)  # type: ignore[arg-type, union-attr]


def test_two_optimisers_are_kept_in_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    options = {"epochs": 6, "rate_optimizer": lambda groups: torch.optim.SGD(groups, momentum=0.9)}
    trained(checkpoint=path, callback=lambda epoch, _: epoch == 2, **options)
    resumed, _ = trained(checkpoint=path, **options)
    straight, _ = trained(**options)
    assert_same(resumed, straight)
    with pytest.raises(ValueError, match=r"optimizer\.class was Adam and SGD and is Adam"):
        trained(checkpoint=path, epochs=6)


def test_an_optimiser_for_rates_that_are_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="`rate_optimizer` must be None for a model without learned rates"):
        fit(
            nn.Linear(3, 1),
            data(),
            lambda m, x, y: m(x).mean(),
            epochs=1,
            rate_optimizer=torch.optim.SGD,
        )
    with pytest.raises(TypeError, match="`rate_optimizer` must be a callable from parameter groups"):
        trained(rate_optimizer="adam")


# lines of progress


def lines(capsys: pytest.CaptureFixture[str], *, show: bool | None, step: float, count: int = 8) -> list[str]:
    with progress_bar("fit", count, show=show, clock=Clock(step)) as advance:
        for place in range(count):
            advance(1, f"loss {place}")
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_a_file_gets_a_line_now_and_then_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(capsys, show=True, step=3.0)
    assert [line.split(",")[:2] for line in found] == [["fit 4/8", " loss 3"], ["fit 8/8", " loss 7"]]
    assert lines(capsys, show=True, step=0.001) == ["fit 8/8, loss 7, 0 s"]


def test_short_work_is_silent_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, show=None, step=0.001) == []
    assert [line.split(",")[0] for line in lines(capsys, show=None, step=3.0)] == ["fit 4/8", "fit 8/8"]
    assert lines(capsys, show=False, step=100.0) == []


def test_fit_writes_lines_to_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit_loop, "_clock", Clock(11.0))
    trained()
    found = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in found] == ["fit 1/3", "fit 2/3", "fit 3/3"]
    assert "loss" in found[0]
