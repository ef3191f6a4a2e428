"""DropoutRegressor: units, intervals, further rows, files, and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import bayesdrop as bd
from bayesdrop.estimators import DropoutClassifier, DropoutRegressor
from bayesdrop.storage import read_tensors, write_tensors

Array = NDArray[np.float64]
SMALL: dict[str, Any] = {
    "preset": "quick",
    "hidden": (16,),
    "epochs": 30,
    "batch_size": 32,
    "num_draws": 40,
    "lr": 2e-2,
    "random_state": 0,
}


def waves(rows: int = 300, seed: int = 0) -> tuple[Array, Array]:
    """Noise that grows to the right, in units far from one."""
    source = np.random.default_rng(seed)
    x = source.uniform(-2, 2, (rows, 2))
    y = 1e4 + 300 * (np.sin(2 * x[:, 0]) + (0.1 + 0.1 * (x[:, 1] + 2)) * source.normal(size=rows))
    return x, y


@pytest.fixture(scope="module")
def fitted() -> DropoutRegressor:
    torch.set_num_threads(1)
    return DropoutRegressor(**{**SMALL, "epochs": 80}).fit(*waves())


def test_everything_is_in_the_units_of_the_target(fitted: DropoutRegressor) -> None:
    x, y = waves(seed=1)
    mean, std = fitted.predict(x, return_std=True)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.8 * y.std()
    assert 0.5 < np.mean(((y - mean) / std) ** 2) < 2
    low, high = fitted.predict_interval(x, 0.9)
    assert 0.8 < np.mean((low <= y) & (y <= high)) < 0.98
    prediction = fitted.predict_dist(x)
    np.testing.assert_allclose(prediction.mean[:, 0], mean)
    np.testing.assert_allclose(prediction.std[:, 0], std)
    expected = prediction.log_prob(torch.from_numpy(y)[:, None])
    np.testing.assert_allclose(fitted.log_likelihood(x, y), expected, rtol=1e-6)
    assert float(expected.mean()) > -math.log(y.std() * math.sqrt(2 * math.pi * math.e))


def test_rows_at_a_time_are_those_of_the_whole(
    fitted: DropoutRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, _ = waves(23, seed=5)
    monkeypatch.setattr("bayesdrop.estimators.base._NUMBERS", 10 * 3 * fitted.mixture_.num_draws)
    parts = list(fitted.predictions(x))
    assert [len(part) for part in parts] == [10, 10, 3]
    whole = fitted.predict_dist(x)
    torch.testing.assert_close(torch.cat([part.mean for part in parts]), whole.mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(torch.cat([part.std for part in parts]), whole.std, rtol=1e-5, atol=0)


def test_options_of_the_noise_are_those_of_numbers_alone() -> None:
    shared, more = set(DropoutClassifier().get_params()), set(DropoutRegressor().get_params())
    assert more - shared == {"noise", "noise_std"}
    assert shared < more


def test_a_shift_and_a_scale_of_the_target_pass_through() -> None:
    x, y = waves(100)
    first = DropoutRegressor(**SMALL).fit(x, y)
    second = DropoutRegressor(**SMALL).fit(x, 10 * y - 3)
    np.testing.assert_allclose(second.predict(x), 10 * first.predict(x) - 3, rtol=1e-4)
    np.testing.assert_allclose(
        second.log_likelihood(x, 10 * y - 3), first.log_likelihood(x, y) - math.log(10), atol=1e-2
    )


def test_the_same_random_state_gives_the_same_model() -> None:
    x, y = waves(100)
    one, same = (DropoutRegressor(**SMALL).fit(x, y).predict(x) for _ in range(2))
    np.testing.assert_array_equal(one, same)
    other = DropoutRegressor(**{**SMALL, "random_state": 1}).fit(x, y).predict(x)
    assert not np.allclose(one, other)


def test_the_global_random_state_is_left_alone() -> None:
    x, y = waves(60)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    DropoutRegressor(**SMALL).fit(x, y).predict(x)
    torch.testing.assert_close(torch.rand(3), expected)


@pytest.mark.parametrize(
    "method",
    ["bernoulli", "concrete", "learnable", "gaussian", "dropconnect", "mixture", "variational", "meanfield"],
)
@pytest.mark.parametrize("noise", ["fixed", "map", "learned", "heteroscedastic"])
def test_every_posterior_and_noise_fits(method: str, noise: str) -> None:
    x, y = waves(80)
    model = DropoutRegressor(**SMALL, method=method, noise=noise, p=0.05, search="none", restarts=2)  # type: ignore[arg-type]
    mean, std = model.fit(x, y).predict(x, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert len(model.mixture_.components) == 2


@pytest.mark.parametrize("method", ["mixture", "variational"])
def test_other_posteriors_are_saved_and_go_on_with_more_rows(tmp_path: Path, method: str) -> None:
    x, y = waves(120)
    model = DropoutRegressor(**SMALL, method=method, p=0.05, input_p=0.02).fit(x[:80], y[:80])
    model.save(tmp_path / "model.safetensors")
    loaded = DropoutRegressor.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))
    assert np.isfinite(model.partial_fit(x[80:], y[80:]).predict(x)).all()


@pytest.mark.parametrize("noise", ["map", "heteroscedastic"])
@pytest.mark.parametrize("input_p", [0.0, 0.05])
def test_gaussian_weights_are_saved_and_go_on_with_more_rows(
    tmp_path: Path, noise: str, input_p: float
) -> None:
    x, y = waves(120)
    options: dict[str, Any] = {"method": "meanfield", "noise": noise, "p": 0.05, "input_p": input_p}
    model = DropoutRegressor(**SMALL, **options, length_scale=0.5).fit(x[:80], y[:80])
    network = model.mixture_.components[0].network
    assert [std is None for std in network.stds] == [input_p == 0] + [False] * (len(network.weights) - 1)
    model.save(tmp_path / "model.safetensors")
    loaded = DropoutRegressor.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))
    np.testing.assert_array_equal(loaded.log_likelihood(x, y), model.log_likelihood(x, y))
    assert np.isfinite(model.partial_fit(x[80:], y[80:]).predict(x)).all()


def test_several_targets_have_intervals_each() -> None:
    x, y = waves(150)
    both = np.stack([y, -2 * x[:, 1]], 1)
    model = DropoutRegressor(**SMALL).fit(x, both)
    low, high = model.predict_interval(x)
    assert model.predict(x).shape == low.shape == high.shape == (150, 2)
    assert (low < high).all()
    assert (high - low)[:, 0].mean() > 20 * (high - low)[:, 1].mean()
    assert model.score(x, both) > 0.3


def test_a_fixed_noise_is_given_in_the_units_of_the_target() -> None:
    x, y = waves(80)
    model = DropoutRegressor(**SMALL, noise="fixed", noise_std=75.0, search="none").fit(x, y)
    np.testing.assert_allclose(model.predict_dist(x).aleatoric, 75.0**2, rtol=1e-5)


def test_constant_columns_do_no_harm() -> None:
    x, y = waves(80)
    wide = np.concatenate([x, np.full((80, 1), 1e9), np.zeros((80, 1))], 1)
    assert np.isfinite(DropoutRegressor(**SMALL).fit(wide, y).predict(wide)).all()


def test_it_works_in_pipelines_searches_and_frames() -> None:
    x, y = waves(90)
    frame = pd.DataFrame(x, columns=["left", "right"])
    small = {**SMALL, "epochs": 5}
    pipeline = make_pipeline(PolynomialFeatures(2), DropoutRegressor(**small)).fit(frame, pd.Series(y))
    assert pipeline.predict(frame).shape == (90,)
    found = GridSearchCV(DropoutRegressor(**small), {"p": [0.01, 0.2]}, cv=2).fit(frame, y)
    assert found.best_params_["p"] in (0.01, 0.2)
    assert cross_val_predict(DropoutRegressor(**small), x, y, cv=3).shape == (90,)
    assert list(found.best_estimator_.feature_names_in_) == ["left", "right"]
    with pytest.raises(ValueError, match="feature names"):
        found.best_estimator_.predict(frame.rename(columns={"left": "up"}))


def test_options_replace_those_of_the_preset() -> None:
    model = DropoutRegressor(method="concrete", hidden=[30, 20], p=[0.1, 0.2], bins=0, lr=1e-3, restarts=30)
    recipe = model.recipe(500, 7)
    for candidate in recipe.candidates:
        settings = candidate.settings
        assert (settings.method, settings.hidden, settings.p, settings.lr) == (
            "concrete",
            (30, 20),
            (0.1, 0.2),
            1e-3,
        )
        assert candidate.bins == 0
    assert recipe.parts * recipe.blocks >= 30
    assert (
        len(DropoutRegressor(search="grid", grid={"p": [0.1, 0.2], "bins": [0, 4]}).recipe(99, 3).candidates)
        == 4
    )
    assert clone(model).get_params() == model.get_params()


def test_the_search_chooses_what_unseen_rows_ask_for() -> None:
    x, y = waves(200)
    options = {**SMALL, "epochs": 60, "search": "grid", "grid": {"p": [0.02, 0.8]}}
    model = DropoutRegressor(**options).fit(x, y)
    rows = {row["settings"]["p"]: row for row in model.search_results_}
    assert rows[0.02]["log_likelihood"] > rows[0.8]["log_likelihood"]
    assert rows[0.02]["picked"] > rows[0.8]["picked"]


def test_bayesian_search_adds_candidates() -> None:
    x, y = waves(60)
    model = DropoutRegressor(**{**SMALL, "epochs": 4}, search="bayes").fit(x, y)
    tried = {(row["settings"]["p"], row["settings"]["length_scale"]) for row in model.search_results_}
    assert len(tried) == 1 + 4 * 4


def test_weights_of_zero_leave_rows_out() -> None:
    x, y = waves(80)
    weight = np.ones(80)
    weight[40:] = 0
    spoiled = np.where(weight > 0, y, -1e6)
    one = DropoutRegressor(**SMALL).fit(x, spoiled, sample_weight=weight)
    np.testing.assert_array_equal(one.predict(x), DropoutRegressor(**SMALL).fit(x[:40], y[:40]).predict(x))


def test_heavy_rows_are_fitted_better() -> None:
    x, y = waves(200)
    up = np.where(np.arange(200) < 100, y + 600, y - 600)
    weight = np.where(np.arange(200) < 100, 9.0, 1.0)
    model = DropoutRegressor(**SMALL).fit(x, up, sample_weight=weight)
    share = (model.predict(x).mean() - (y.mean() - 600)) / 1200
    assert 0.75 < share < 1.0


def test_further_rows_teach_the_networks() -> None:
    x, y = waves(400)
    left = x[:, 0] < 0
    model = DropoutRegressor(**{**SMALL, "epochs": 60}).partial_fit(x[left], y[left])
    networks = len(model.mixture_.components)
    before = model.log_likelihood(x[~left], y[~left]).mean()
    model.partial_fit(x[~left], y[~left])
    assert model.log_likelihood(x[~left], y[~left]).mean() > before + 0.5
    assert len(model.mixture_.components) == networks
    seen = {network.network.num_data for network in model.mixture_.components}
    assert min(seen) > left.sum()


def test_early_stopping_stops() -> None:
    x, y = waves(60)
    options = {**SMALL, "epochs": 2000, "lr": 1e-2, "early_stopping": True, "patience": 3}
    model = DropoutRegressor(**options).fit(x, y)
    last = [one.network.history["epoch"][-1] for one in model.mixture_.components]
    assert max(last) < 2000
    assert all(one.network.best_epoch is not None for one in model.mixture_.components)


def test_a_damaged_or_senseless_file_is_refused_by_name(fitted: DropoutRegressor, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), len(whole) // 100):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            DropoutRegressor.load(path)
    path.write_bytes(whole)
    tensors, header = read_tensors(path, kind="bayesdrop-estimator")
    row = header["components"][0]
    for change in (
        {"components": []},
        {"components": [row | {"widths": [2.5, 3]}]},
        {"components": [row | {"settings": row["settings"] | {"p": "x"}}]},
        {"components": [row | {"encoder": -1}]},
        {"columns": 99},
        {"num_draws": 0},
        {"dof": "many"},
        {"options": {"odd": 1}},
        {"options": 3},
        {"classes": ["a"]},
        {"one_target": None},
    ):
        write_tensors(path, tensors, kind="bayesdrop-estimator", header=header | change)
        with pytest.raises(ValueError, match=r"the description in .*model\.safetensors is damaged"):
            DropoutRegressor.load(path)
    for name in ("0.0.weight", "target.mean", "target.low"):
        other = tensors | {name: tensors[name].unsqueeze(0)}
        write_tensors(path, other, kind="bayesdrop-estimator", header=header)
        with pytest.raises(ValueError, match=r"the description in .*model\.safetensors is damaged"):
            DropoutRegressor.load(path)
    for other in (
        {name: tensor for name, tensor in tensors.items() if name != "target.high"},
        tensors | {"target.low": tensors["target.high"] + 1},
    ):
        write_tensors(path, other, kind="bayesdrop-estimator", header=header)
        with pytest.raises(ValueError, match=r"its target make no sense"):
            DropoutRegressor.load(path)


def test_a_file_of_an_earlier_version_has_no_range_of_targets(
    fitted: DropoutRegressor, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    tensors, header = read_tensors(path, kind="bayesdrop-estimator")
    older = {name: one for name, one in tensors.items() if name not in ("target.low", "target.high")}
    write_tensors(path, older, kind="bayesdrop-estimator", header=header)
    loaded = DropoutRegressor.load(path)
    x = waves(30, seed=2)[0]
    np.testing.assert_array_equal(loaded.predict(x), fitted.predict(x))
    loaded.save(path)
    assert set(read_tensors(path, kind="bayesdrop-estimator")[0]) == set(older)


def test_a_file_brings_the_estimator_back(fitted: DropoutRegressor, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    loaded = DropoutRegressor.load(path)
    x, y = waves(30, seed=2)
    np.testing.assert_array_equal(loaded.predict(x), fitted.predict(x))
    np.testing.assert_array_equal(loaded.log_likelihood(x, y), fitted.log_likelihood(x, y))
    assert loaded.get_params()["epochs"] == 80
    assert loaded.search_results_ == fitted.search_results_
    with pytest.raises(ValueError, match="does not hold the rows"):
        loaded.partial_fit(x, y)
    with pytest.raises(ValueError, match="a file of a DropoutClassifier"):
        DropoutClassifier.load(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"):
        DropoutRegressor.load(path)


def test_a_component_is_a_plain_module(fitted: DropoutRegressor) -> None:
    from bayesdrop.stacked import export, likelihood_of

    component = fitted.mixture_.components[0]
    x, _ = waves(20, seed=3)
    inputs = fitted.mixture_.encoders[component.encoder](x)
    likelihood = likelihood_of(component.network)
    with pytest.warns(bd.PartlyRandom, match="p = 0"):  # nothing drops the inputs
        prediction = bd.predict(export(component.network), inputs, num_draws=5, likelihood=likelihood)
    assert prediction.mean.shape == (20, 1)


def test_what_makes_no_sense_is_refused() -> None:
    x, y = waves(40)
    with pytest.raises(ValueError, match="the target is 3 in all 40 rows"):
        DropoutRegressor(**SMALL).fit(x, np.full(40, 3.0))
    with pytest.raises(ValueError, match="1 sample"):
        DropoutRegressor(**SMALL).fit(x[:1], y[:1])
    with pytest.raises(ValueError, match="preset` must be one of 'default'"):
        DropoutRegressor(preset="bestest").fit(x, y)
    with pytest.raises(ValueError, match="`noise` must be"):
        DropoutRegressor(noise="classes").fit(x, y)
    with pytest.raises(ValueError, match="`search` must be"):
        DropoutRegressor(search="random").fit(x, y)
    with pytest.raises(ValueError, match="`grid` must be"):
        DropoutRegressor(search="grid", grid={"rate": [0.1]}).fit(x, y)
    with pytest.raises(ValueError, match="non-zero"):
        DropoutRegressor(**SMALL).fit(x, y, sample_weight=np.zeros(40))
    with pytest.raises(ValueError, match="NaN"):
        DropoutRegressor(**SMALL).fit(x * np.nan, y)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"random_state": 1.0}, "DropoutRegressor: `random_state` must be an int from 0"),
        ({"random_state": True}, "DropoutRegressor: `random_state` must be an int from 0"),
        ({"random_state": "0"}, "DropoutRegressor: `random_state` must be an int from 0"),
        ({"hidden": 2.5}, "DropoutRegressor: `hidden` must be the widths"),
        ({"processes": 1.5}, "DropoutRegressor: `processes` must be a positive int"),
        ({"preset": ["quick"]}, "DropoutRegressor: `preset` must be one of"),
        ({"p": "0.1"}, "Settings: `p` must be"),
        ({"search": "grid", "grid": {"p": 0.1}}, "DropoutRegressor: `grid` must be a list of values for 'p'"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], sentence: str) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises((ValueError, TypeError), match=sentence):
        DropoutRegressor(**{"preset": "quick"} | options).fit(x, x[:, 0])


def test_an_int_is_one_hidden_layer() -> None:
    assert DropoutRegressor(hidden=7).recipe(100, 3).candidates[0].settings.hidden == (7,)


def test_a_cell_far_outside_is_told_of_and_does_not_run_away() -> None:
    source = np.random.default_rng(0)
    x = source.normal(size=(200, 3))
    y = 5 * x[:, 0] + np.exp(0.5 * x[:, 1]) * source.normal(size=200)
    model = DropoutRegressor(preset="quick", epochs=30, random_state=0).fit(x, y)
    rows = np.repeat(x[:1], 4, 0)
    rows[1:, 1] = [1e4, -1e100, 1.79e308]
    assert model.outside(rows).tolist() == [[False] * 3] + [[False, True, False]] * 3
    mean, std = model.predict(rows, return_std=True)
    edge = model.mixture_.seen.bounded(rows)
    same_mean, same_std = model.predict(edge, return_std=True)
    np.testing.assert_array_equal(mean, same_mean)
    np.testing.assert_array_equal(std, same_std)
    assert std.max() < 20 * model.predict(x, return_std=True)[1].max()
    lower, upper = model.predict_interval(rows)
    assert np.isfinite([lower, upper]).all()


def test_the_range_grows_with_further_rows() -> None:
    x = np.linspace(0, 1, 40)[:, None]
    model = DropoutRegressor(preset="quick", epochs=5, hidden=(8,), random_state=0).fit(x, x[:, 0])
    assert model.outside([[9.0]]).all()
    model.partial_fit(x + 9, x[:, 0] + 9)
    assert not model.outside([[9.0]]).any()


@pytest.mark.parametrize("size", [1e-165, 1e165])
def test_targets_whose_variance_is_no_number_are_refused(size: float) -> None:
    x = np.linspace(0, 1, 40)[:, None]
    with pytest.raises(ValueError, match=r"between 1e-100 and 1e100.*another unit"):
        DropoutRegressor(preset="quick", epochs=2).fit(x, x[:, 0] * size)
