"""Drop rates along a schedule: their values, in `fit`, and from a checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop import (
    BernoulliDropout,
    ConcreteDropout,
    DropConnect,
    GaussianDropout,
    MixtureDropout,
    NegativeELBO,
    RateSchedule,
    fit,
    rates,
    set_rates,
)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        BernoulliDropout(nn.Linear(2, 4), p=[0.1, 0.2]),
        nn.ReLU(),
        nn.Dropout(0.9),
        GaussianDropout(nn.Linear(4, 4), p=0.3),
        nn.ReLU(),
        ConcreteDropout(nn.Linear(4, 1), 0.2),
    )


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(24, 2, generator=generator)
    return x, x[:, :1] - x[:, 1:]


def train(model: nn.Module, **options: Any) -> bd.History:
    objective = NegativeELBO(bd.Gaussian(0.3), num_data=24)
    return fit(model, data(), objective, batch_size=6, **{"epochs": 4, **options})


def test_shapes_have_their_formulas() -> None:
    a, b = 0.5, 0.05
    for s in (0.0, 0.2, 0.5, 0.99, 1.0):
        assert RateSchedule(a, b)(s) == pytest.approx(a + (b - a) * s)
        cosine = b + (a - b) * (1 + math.cos(math.pi * s)) / 2
        assert RateSchedule(a, b, shape="cosine")(s) == pytest.approx(cosine)
        assert RateSchedule(a, b, shape="geometric")(s) == pytest.approx(a * (b / a) ** s)
        early = RateSchedule(a, b, until=0.4)(s)
        assert early == pytest.approx(a + (b - a) * min(1, s / 0.4))
    assert RateSchedule(0.1, 0.7)(1.0) == 0.7
    assert repr(RateSchedule(a, b)) == "RateSchedule(0.5, 0.05, shape='linear', until=1)"


def test_set_rates_sets_what_is_not_learned() -> None:
    model = network()
    set_rates(model, 0.25)
    found = rates(model)
    assert found["0"].tolist() == [0.25, 0.25]
    assert found["3"].item() == 0.25
    assert found["5"].item() == pytest.approx(0.2)
    assert isinstance(model[2], nn.Dropout)
    assert model[2].p == 0.25
    set_rates(model, {"0": torch.tensor([0.1, 0.6]), "2": 0.4})
    assert rates(model)["0"].tolist() == pytest.approx([0.1, 0.6])
    assert model[2].p == 0.4
    assert rates(model)["3"].item() == 0.25
    both = nn.Sequential(DropConnect(nn.Linear(2, 2)), MixtureDropout(nn.Linear(2, 2)))
    set_rates(both, 0.7)
    assert [rate.item() for rate in rates(both).values()] == pytest.approx([0.7, 0.7])
    set_rates(both, rates(both))


def test_a_rate_that_was_set_is_that_of_the_draws_and_of_the_divergence() -> None:
    linear, x = nn.Linear(3, 2), torch.ones(2, 3)
    changed, made = BernoulliDropout(linear, p=0.9), BernoulliDropout(linear, p=0.2)
    bd.predict(changed, x, num_draws=3)
    set_rates(changed, 0.2)
    torch.testing.assert_close(changed.kl(), made.kl())
    assert torch.equal(bd.predict(changed, x, num_draws=5).draws, bd.predict(made, x, num_draws=5).draws)


def test_fit_sets_the_rate_of_every_step() -> None:
    model, seen = network(), []

    class Watched(NegativeELBO):
        def forward(self, model: nn.Module, x: Any, y: Tensor) -> Any:
            seen.append((float(model[0].p[0]), float(model[2].p), float(model[3].p)))  # type: ignore[index, union-attr]
            return super().forward(model, x, y)

    schedule = RateSchedule(0.5, 0.1)
    objective = Watched(bd.Gaussian(0.3), num_data=24)
    history = fit(model, data(), objective, batch_size=6, epochs=4, p_schedule=schedule)
    expected = [schedule(step / 16) for step in range(16)]
    for column in range(3):
        assert [row[column] for row in seen] == pytest.approx(expected, rel=1e-6)
    assert rates(model)["3"].item() == pytest.approx(0.1)
    assert history.rates["3"] == pytest.approx([schedule(epoch / 4) for epoch in (1, 2, 3, 4)])
    assert rates(model)["5"].item() != pytest.approx(0.1)


def test_a_run_goes_on_from_its_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    schedule = RateSchedule(0.5, 0.1, shape="cosine")
    whole = network()
    train(whole, p_schedule=schedule)
    stopped, again = network(), network()

    def stop(epoch: int, history: bd.History) -> bool:
        return epoch == 2

    path = tmp_path / "run"
    train(stopped, p_schedule=schedule, checkpoint=path, callback=stop)
    assert rates(stopped)["3"].item() == pytest.approx(schedule(0.5))
    # The same object, whose rates have moved, and a fresh one.
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    train(again, p_schedule=schedule, checkpoint=path)
    train(stopped, p_schedule=schedule, checkpoint=copy)
    for model in (again, stopped):
        for name, value in whole.state_dict().items():
            assert torch.equal(value, model.state_dict()[name]), name
        assert model[2].p == whole[2].p == 0.1  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"other settings: p_schedule\.rates"):
        train(network(), p_schedule=RateSchedule(0.5, 0.1, shape="linear"), checkpoint=path)
    with pytest.raises(ValueError, match=r"other settings: p_schedule\.total_steps"):
        train(network(), p_schedule=schedule, checkpoint=path, epochs=6)


def test_the_best_epochs_rate_comes_back_with_its_weights() -> None:
    scores = iter([1.0, 3.0, 2.0, 0.0])
    model, schedule = network(), RateSchedule(0.5, 0.1)
    history = train(model, p_schedule=schedule, score=lambda model: next(scores))
    assert history.best_epoch == 2
    assert rates(model)["3"].item() == pytest.approx(schedule(0.5))
    assert model[2].p == pytest.approx(schedule(0.5))  # type: ignore[union-attr]


def test_bad_schedules_are_refused() -> None:
    for bad in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="RateSchedule: `start` must be"):
            RateSchedule(bad, 0.1)
        with pytest.raises(ValueError, match="set_rates: `p` must be"):
            set_rates(network(), bad)
    with pytest.raises(ValueError, match="`shape` must be 'linear' or 'cosine' where a rate is 0"):
        RateSchedule(0.5, 0.0, shape="geometric")
    with pytest.raises(ValueError, match="RateSchedule: `shape` must be"):
        RateSchedule(0.5, 0.1, shape="steps")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="RateSchedule: `until` must be"):
        RateSchedule(0.5, 0.1, until=0.0)
    with pytest.raises(ValueError, match="`model` must be a model with rates that are not learned"):
        set_rates(nn.Sequential(ConcreteDropout(nn.Linear(2, 2))), 0.1)
    with pytest.raises(ValueError, match=r"paths of rates that are not learned: '0', '2', '3'; got '5'"):
        set_rates(network(), {"5": 0.1})
    with pytest.raises(ValueError, match=r"`p\['0'\]` must be one number or one per input unit \(2\)"):
        set_rates(network(), {"0": torch.tensor([0.1, 0.2, 0.3])})
    with pytest.raises(ValueError, match=r"`p\['3'\]` must be one number; got \(4,\)"):
        set_rates(network(), {"3": [0.1, 0.2, 0.3, 0.4]})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="below 1 when it is rounded to float32"):
        set_rates(network(), 1 - 1e-9)
    with pytest.raises(TypeError, match="fit: `p_schedule` must be a function"):
        train(network(), p_schedule=0.3)
    with pytest.raises(ValueError, match="fit: `p_schedule` must be a function that gives rates in"):
        train(network(), p_schedule=lambda done: 1.0)
