"""Carbon dioxide and solar irradiance: the data, the networks, and claims that can come out false."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayesdrop.errors import Diverged
from bayesdrop.experiments import PieceCache, gal2016_co2, gal2016_solar
from bayesdrop.experiments.curves import training
from bayesdrop.experiments.curves.alike import likeness, means_apart, spreads_are_alike
from bayesdrop.experiments.curves.measures import at, few_draws, roughness, season
from bayesdrop.experiments.curves.network import Network, linear_maps, make_network
from bayesdrop.experiments.curves.process import fit_process
from bayesdrop.experiments.curves.series import GAP, RUNS, Curve, co2_curve, solar_curve
from bayesdrop.experiments.curves.training import (
    few_errors,
    make_optimizer,
    make_schedule,
    stops,
    train,
    train_curves,
)
from bayesdrop.experiments.gal2016_co2.claims import make_claims
from bayesdrop.experiments.gal2016_solar.report import coverage, widening
from bayesdrop.experiments.gal2016_solar.report import make_claims as solar_claims
from bayesdrop.layers import BernoulliDropout

RELU, TANH = gal2016_co2.NETWORKS["relu"], gal2016_co2.NETWORKS["tanh"]


# data


def test_carbon_dioxide_is_272_even_months_without_a_slope() -> None:
    curve = co2_curve()
    x, y = curve.x[:, 0], curve.y[:, 0]
    assert len(x) == 272
    assert len(curve.x_test) == 521 - 272
    for values in (x, y):
        assert float(values.mean()) == pytest.approx(0, abs=1e-12)
        assert float(values.std(correction=0)) == pytest.approx(1, abs=1e-12)
    assert float(x @ y) == pytest.approx(0, abs=1e-9)
    whole = torch.cat([curve.x, curve.x_test])[:, 0]
    assert np.allclose(whole.diff(), 0.012736, atol=5e-7)
    assert float(x[-1]) == pytest.approx(1.7257, abs=5e-5)
    assert curve.period == pytest.approx(12 * 0.012736, abs=1e-5)


def test_solar_irradiance_is_375_years_with_five_gaps() -> None:
    curve = solar_curve()
    x, y = torch.cat([curve.x, curve.x_test])[:, 0], torch.cat([curve.y, curve.y_test])[:, 0]
    assert len(x) == 375
    for values in (x, y):
        assert float(values.mean()) == pytest.approx(0, abs=1e-9)
        assert float(values.std(correction=0)) == pytest.approx(1, abs=1e-9)
    order = x.sort().values
    step = float(order[1] - order[0])
    assert np.allclose(order.diff(), step)
    steps = (curve.x[:, 0].diff() / step).round()
    ends = torch.nonzero(steps > 1)[:, 0] + 1
    assert np.diff([0, *ends.tolist(), len(curve.x)]).tolist() == [17, 55, 55, 55, 55, 38] == list(RUNS)
    assert steps[ends - 1].tolist() == [GAP + 1] * 5


# networks


@pytest.mark.parametrize("network", [*gal2016_co2.NETWORKS.values(), *gal2016_solar.NETWORKS.values()])
def test_a_network_drops_after_every_hidden_layer_and_not_its_input(network: Network) -> None:
    net = make_network(network, 6, seed=0)
    assert type(net[0]) is nn.Linear
    dropped = [part for part in net if isinstance(part, BernoulliDropout)]
    assert len(dropped) == network.depth
    assert all(float(part.p) == pytest.approx(network.p) for part in dropped)
    kind = nn.ReLU if network.activation == "relu" else nn.Tanh
    assert sum(isinstance(part, kind) for part in net) == network.depth


def test_weights_of_the_paper_have_variance_one_over_fan_in_and_no_biases() -> None:
    maps = linear_maps(make_network(RELU, 200, seed=0))
    assert [tuple(part.weight.shape) for part in maps] == [
        (200, 1),
        (200, 200),
        (200, 200),
        (200, 200),
        (1, 200),
    ]
    for part in maps:
        assert float(part.weight.detach().abs().max()) <= math.sqrt(3 / part.in_features)
        assert not part.bias.any()
    # The fourth moment of a uniform is 9/5 of its variance's square, so that of 40,000 squares is known.
    square = maps[1].weight.detach().square() * 200
    assert float(square.mean()) == pytest.approx(1, abs=5 * math.sqrt(0.8 / square.numel()))


def test_a_seed_is_a_network_and_leaves_the_random_state_alone() -> None:
    state = torch.get_rng_state()
    first, again, other = (make_network(TANH, 5, seed=seed, period=0.2).eval() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    x = torch.linspace(-1, 1, 7).unsqueeze(1)
    assert torch.equal(first(x), again(x))
    assert not torch.equal(first(x), other(x))


def test_half_of_the_second_layer_starts_as_tents_narrower_than_the_period() -> None:
    period = 0.15
    net = make_network(RELU, 256, seed=0, period=period).eval()
    first, second, *_ = linear_maps(net)
    grid = torch.linspace(-1.8, 1.8, 1801).unsqueeze(1)
    with torch.no_grad():
        tents = second(first(grid).relu())[:, :128].relu()
    places = torch.linspace(-1.8, 1.8, 128)
    assert float((grid[tents.argmax(0), 0] - places).abs().median()) < 0.2 * period
    width = (tents > 0).sum(0) * 0.002
    assert float(width.median()) == pytest.approx(2 * 0.65 * period, rel=0.3)
    assert float(tents.amax(0).min()) > 0.99


def test_the_other_half_is_still_there_far_from_the_data() -> None:
    net = make_network(RELU, 64, seed=0, period=0.15)
    first, second, *_ = linear_maps(net)
    far = second(first(torch.tensor([[5.0]])).relu())[0]
    # Those at the very edge may have no unit beyond them that silences them.
    assert bool((far[:28] < 0).all())
    assert bool((far[32:] > 0).any())


def test_a_network_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="`activation` must be 'relu' or 'tanh'; got 'gelu'"):
        make_network(replace(RELU, activation="gelu"), 4, seed=0)


# training


def test_the_papers_solver_has_its_rates_decay_and_schedule() -> None:
    config = gal2016_co2.PRESETS["paper"]
    assert (config.width, config.steps, config.head_start) == (1024, 1_000_000, False)
    shallow = gal2016_co2.NETWORKS["shallow"]
    optimizer = make_optimizer(make_network(shallow, 4, seed=0), shallow, asdict(config))
    scheduler = make_schedule(optimizer, shallow, asdict(config))
    assert isinstance(optimizer, torch.optim.SGD)
    weights, biases = optimizer.param_groups
    assert (weights["lr"], biases["lr"], weights["momentum"], weights["weight_decay"]) == (
        1e-2,
        2e-2,
        0.9,
        1e-6,
    )
    for _ in range(3):
        optimizer.step()
        scheduler.step()
    assert weights["lr"] == pytest.approx(1e-2 * (1 + 3e-5) ** -0.1, rel=1e-12)


def whole_key(name: str, **changes: Any) -> dict[str, Any]:
    config = replace(gal2016_co2.PRESETS["paper"], width=8, steps=2, num_draws=10, num_grid=30)
    key = asdict(replace(config, **changes)) | {"network": asdict(gal2016_co2.NETWORKS[name]), "data": "co2"}
    return {**key, "between": (-1.9, 4.9), "watched": (1.7, 3.0)}


@pytest.mark.parametrize("name", gal2016_co2.NETWORKS)
def test_the_papers_setting_runs_at_a_small_width(name: str, tmp_path: Path) -> None:
    (piece,) = train_curves([whole_key(name)], cache=PieceCache("co2", folder=tmp_path), progress=False)
    assert piece["grid_std"].shape == (30,)
    assert piece["train_mean"].shape == (272,)
    assert piece["test_standard"].shape == (249,)
    assert piece["look_step"].tolist() == [0, 1, 2]
    assert math.isfinite(piece["loss"])
    error = piece["train_mean"] - co2_curve().y[:, 0].numpy()
    assert piece["train_rmse"] == pytest.approx(float(np.sqrt(np.mean(error**2))), rel=1e-5)


def test_the_wide_preset_is_the_papers_width_and_else_the_default() -> None:
    for module in (gal2016_co2, gal2016_solar):
        wide = module.PRESETS["wide"]
        assert (wide.width, wide.steps) == (1024, 4000)
        assert replace(wide, width=256, steps=2500) == module.Config()


def test_a_run_that_is_killed_in_a_stretch_ends_as_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = whole_key("relu", steps=64, solver="adam", lr=1e-2, head_start=True)
    whole = train_curves([key], cache=PieceCache("whole", folder=tmp_path), progress=False)[0]
    monkeypatch.setattr(training, "CHECKPOINT_STEPS", 3)
    made = {"steps": 0}
    count = training.half_squared_error

    def dies(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        made["steps"] += 1
        if made["steps"] == 54:
            raise KeyboardInterrupt
        return count(net, x, y)

    # What a checkpoint knows an objective by is its name.
    dies.__qualname__ = "half_squared_error"
    cache = PieceCache("cut", folder=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(training, "half_squared_error", dies)
        with pytest.raises(KeyboardInterrupt):
            train_curves([key], cache=cache, progress=False)
    assert stops(64)[-3:] == [49, 56, 64]
    assert [path.suffix for path in cache.folder.iterdir()].count(".checkpoint") == 2
    steps = {"count": 0}

    def counts(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        steps["count"] += 1
        return count(net, x, y)

    counts.__qualname__ = "half_squared_error"
    monkeypatch.setattr(training, "half_squared_error", counts)
    again = train_curves([key], cache=PieceCache("cut", folder=tmp_path), progress=False)[0]
    # It was killed in its 54th step, and the last checkpoint before that is of step 51.
    assert steps["count"] == 64 - 51
    for name in ("grid_mean", "grid_std", "look_std", "paths"):
        assert np.array_equal(again[name], whole[name]), name
    assert again["loss"] == whole["loss"]
    assert not any(path.suffix == ".checkpoint" for path in cache.folder.iterdir())


def test_a_fresh_run_does_not_go_on_from_an_old_checkpoint(tmp_path: Path) -> None:
    key = whole_key("tanh", steps=8, solver="adam", lr=1e-2)
    first = train_curves([key], cache=PieceCache("co2", folder=tmp_path), progress=False)[0]
    cache = PieceCache("co2", folder=tmp_path, fresh=True)
    stale = training._checkpoint(key, 8, cache)
    stale.write_bytes(b"not a checkpoint")
    again = train_curves([key], cache=cache, progress=False)[0]
    assert np.array_equal(first["grid_mean"], again["grid_mean"])


def small_key(**changes: Any) -> dict[str, Any]:
    return asdict(replace(gal2016_co2.SMOKE, steps=60, lr=1e-2, **changes))


def test_training_lowers_the_loss_and_stops_where_it_is_not_finite() -> None:
    x = torch.linspace(-1, 1, 40).unsqueeze(1)
    net = make_network(RELU, 16, seed=0, period=0.5)
    history = train(net, x, torch.sin(6 * x), RELU, small_key(), steps=60)
    assert len(history) == 60
    assert np.mean(history.loss[-3:]) < 0.5 * float(torch.sin(6 * x).square().mean())
    assert history.lr[-1] == pytest.approx(1e-4)
    with pytest.raises(Diverged, match="the loss was inf at step 1"):
        train(net, x, x + 1e30, RELU, small_key(), steps=60)
    with pytest.raises(ValueError, match="`solver` must be 'adam' or 'sgd'"):
        train(net, x, x, RELU, small_key(solver="lbfgs"), steps=60)


def test_a_single_hidden_layer_starts_with_kinks_alone() -> None:
    first, last = linear_maps(make_network(gal2016_co2.NETWORKS["one"], 64, seed=0, period=0.15))
    kinks = -(first.bias / first.weight[:, 0]).detach()
    assert float(kinks.abs().max()) <= 1.8
    assert bool(torch.isfinite(last.weight).all())
    assert float(last.weight.detach().abs().max()) <= math.sqrt(3 / 64) / 3


def test_the_process_returns_to_its_prior_far_from_the_data() -> None:
    key = {"data": "co2", "between": (-1.9, 4.9), "num_grid": 69, "restarts": 0, "seed": 0}
    found = fit_process(key)
    assert at(found, "std", 4.0) == pytest.approx(found["prior_std"], rel=1e-6)
    assert at(found, "mean", 4.0) == pytest.approx(0, abs=1e-6)
    assert float(np.mean(found["train_std"])) < found["noise_std"]


# measures and claims


def test_the_season_is_what_a_yearly_mean_leaves() -> None:
    months = np.arange(240)
    assert season(2 + 0.1 * months) == pytest.approx(0, abs=1e-12)
    assert season(0.1 * months + 3 * np.cos(2 * np.pi * months / 12)) == pytest.approx(3 / 2**0.5, rel=1e-9)


def test_straight_paths_are_not_rough() -> None:
    assert roughness(np.linspace(0, [1, 5], 20).T) == pytest.approx(0, abs=1e-12)
    assert roughness(np.array([[0.0, 1.0, 0.0, 1.0]])) == pytest.approx(2)


GRID = np.linspace(-1.9, 4.9, 69)


def toy_curve() -> Curve:
    x = torch.linspace(-1.7, 1.7, 272, dtype=torch.float64).unsqueeze(1)
    x_test = torch.linspace(1.71, 4.9, 249, dtype=torch.float64).unsqueeze(1)
    return Curve(x, torch.sin(41 * x), x_test, torch.sin(41 * x_test), period=0.153)


def piece(
    std: np.ndarray[Any, Any], *, value: float = 0.0, looks: tuple[float, ...] = (1.0, 1.0)
) -> dict[str, Any]:
    """What a network with a constant mean would say."""
    curve = toy_curve()
    found: dict[str, Any] = {
        "grid": GRID,
        "look_std": np.array(looks),
        "look_step": np.array([0, 9]),
        "prior_std": 1.0,
        "few_mean_error": 0.3,
        "few_std_error": 0.2,
    }
    for place, x in (("grid", GRID), ("train", curve.x[:, 0].numpy()), ("test", curve.x_test[:, 0].numpy())):
        mean = np.full(len(x), value)
        found |= {f"{place}_mean": mean, f"{place}_standard": mean, f"{place}_few_mean": mean}
        found |= {f"{place}_std": np.interp(x, GRID, std), f"{place}_few_std": np.interp(x, GRID, std)}
    return found


def fitting(std: np.ndarray[Any, Any]) -> dict[str, Any]:
    """What a network would say that has learned the seasons."""
    return piece(std) | {"train_mean": toy_curve().y[:, 0].numpy()}


GROWING = 0.1 + np.maximum(GRID - 1.7, 0)
FLAT = np.full(len(GRID), 0.3)


def verdicts(**changes: Any) -> list[bool]:
    found = {"relu": fitting(GROWING), "shallow": fitting(GROWING), "tanh": piece(FLAT, looks=(0.2, 0.3))}
    found |= {"tanh2": piece(FLAT, looks=(0.4, 0.31)), "two": piece(FLAT), "one": piece(FLAT)}
    found |= changes
    process = found.pop("process", piece(np.where(GRID > 1.75, 1.0, 0.1)))
    claims = make_claims(gal2016_co2.Config(), toy_curve(), found, process)
    assert all(claim.holds or claim.correction for claim in (claims[0], *claims[4:7], claims[9]))
    return [claim.holds for claim in claims]


def test_every_claim_on_carbon_dioxide_can_hold() -> None:
    holds = verdicts(tanh=piece(FLAT + 0.3, looks=(0.2, 0.3)))
    assert holds == [True] * 10


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        (0, {"relu": piece(GROWING, value=1.6)}),
        (1, {"process": piece(FLAT)}),
        (2, {"shallow": piece(FLAT)}),
        (3, {"tanh": piece(GROWING, looks=(0.2, 0.3))}),
        (4, {"tanh2": piece(FLAT, looks=(0.4, 0.6))}),
        (4, {"tanh2": piece(FLAT, looks=(0.2, 0.3))}),
        (5, {"shallow": piece(5 * GROWING)}),
        (5, {"shallow": piece(GROWING, value=0.4)}),
        (6, {"two": fitting(FLAT)}),
        (6, {"one": fitting(FLAT)}),
        (6, {"relu": piece(GROWING)}),
        (7, {"process": piece(FLAT) | {"test_mean": toy_curve().y_test[:, 0].numpy()}}),
        (8, {"tanh": piece(FLAT, value=5.0, looks=(0.2, 0.3))}),
        (9, {"relu": fitting(GROWING) | {"few_std_error": 2.0}}),
        (9, {"relu": fitting(GROWING) | {"few_mean_error": 2.0}}),
    ],
)  # fmt: skip
def test_every_claim_on_carbon_dioxide_can_fail(place: int, changes: dict[str, Any]) -> None:
    assert not verdicts(**changes)[place]


def test_the_same_is_within_a_standard_deviation_and_a_factor_of_a_quarter() -> None:
    names = {"train": "here", "test": "there"}
    one = piece(FLAT)
    assert likeness(one, one, **names).same
    assert likeness(one, piece(1.2 * FLAT, value=0.3), **names).same
    assert not likeness(one, piece(1.3 * FLAT), **names).same
    assert not likeness(one, piece(FLAT / 1.3), **names).same
    apart = likeness(one, piece(FLAT, value=0.36), **names)
    assert apart.apart == {"here": pytest.approx(1.2), "there": pytest.approx(1.2)}
    assert not apart.same
    # Alike where they were trained is not the same everywhere.
    elsewhere = likeness(one, one | {"test_mean": one["test_mean"] + 0.5}, **names)
    assert elsewhere.correction == "Not the same: the means there."
    wider = likeness(one, piece(2 * FLAT), **names)
    assert wider.differing == ["the spreads here", "the spreads there"]
    assert likeness(one, one, **names).correction == ""
    assert means_apart([0, 0], [3, 4], 1.0) == pytest.approx(math.sqrt(12.5))
    assert [spreads_are_alike(ratio) for ratio in (0.79, 0.81, 1.24, 1.26)] == [False, True, True, False]


def test_few_draws_are_compared_with_theory_over_all_networks() -> None:
    config = gal2016_co2.Config()
    one = piece(FLAT) | {"few_mean_error": 0.3, "few_std_error": 0.1}
    claim = few_draws("", config, one)
    assert claim.holds
    assert "off by 0.30 standard deviations (theory: 0.32)" in claim.measured
    assert "the standard deviation by 10 % (theory: 24 %)" in claim.measured
    both = few_draws("", config, one, one | {"few_std_error": 0.7})
    assert not both.holds
    assert "by 50 % (theory" in both.measured


def test_independent_gaussian_draws_have_the_errors_of_theory() -> None:
    draws = 3 + 2 * torch.randn(20_000, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    full = torch.full((5,), 1.0, dtype=torch.float64)
    found = few_errors(draws, 10, mean=3 * full, std=2 * full)
    # 10,000 sets in all; the square of a normal has the variance 2 of its own mean's square.
    square = 1 / 10
    assert found["few_mean_error"] ** 2 == pytest.approx(square, abs=5 * square * math.sqrt(2 / 10_000))
    # E s = sqrt(2 / n) Gamma(n / 2) / Gamma((n - 1) / 2) for the deviation with n = 10 in the denominator.
    expected = math.sqrt(2 / 10) * math.exp(math.lgamma(5) - math.lgamma(4.5))
    truth = 0.9 - 2 * expected + 1
    # A square error has about the spread of its own size.
    assert found["few_std_error"] ** 2 == pytest.approx(truth, abs=5 * 2 * truth / math.sqrt(10_000))


def gaps(std: float, *, train_std: float = 0.1, value: float = 0.0) -> dict[str, Any]:
    values, ones = np.full(100, value), np.ones(100)
    grid = {f"grid_{name}": values for name in ("mean", "few_mean")}
    return grid | {
        "grid_std": ones, "grid_few_std": ones, "train_std": np.full(275, train_std),
        "test_std": std * ones, "test_mean": values, "test_standard": values,
        "train_mean": np.full(275, value), "few_mean_error": 0.3, "few_std_error": 0.2,
    }  # fmt: skip


def test_claims_on_solar_irradiance_hold_and_fail() -> None:
    column = torch.tensor([0.1] * 90 + [0.9] * 10, dtype=torch.float64).unsqueeze(1)
    curve = Curve(column, column, column, column, period=0.1)
    config = gal2016_solar.Config()

    def holds(relu: dict[str, Any], shallow: dict[str, Any]) -> list[bool]:
        claims = solar_claims(config, curve, {"relu": relu, "shallow": shallow}, gaps(1.0))
        assert claims[1].holds or claims[1].correction
        return [claim.holds for claim in claims]

    assert holds(gaps(0.5), gaps(0.5)) == [True] * 5
    assert holds(gaps(0.3), gaps(0.3)) == [True, False, True, True, True]
    assert holds(gaps(0.05), gaps(0.5))[0] is False
    assert holds(gaps(0.5) | {"test_standard": np.full(100, 9.0)}, gaps(0.5))[2] is False
    assert holds(gaps(0.5), gaps(0.5, value=5.0))[3] is False


def test_coverage_counts_years_and_widening_makes_up_for_what_is_missing() -> None:
    y = np.linspace(0, 1, 100)
    assert coverage(gaps(0.25), y) == pytest.approx(0.5)
    factor = widening(gaps(0.25), y)
    assert coverage(gaps(0.25 * factor), y) == pytest.approx(0.95, abs=0.011)
