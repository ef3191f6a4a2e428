"""A piece of the benchmark: some splits of a set, fitted by one method, scored on their test rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesdrop.data import Table
from bayesdrop.experiments.uci.sets import load_set, set_stamp
from bayesdrop.metrics import interval_coverage, mean_log_likelihood, regression_calibration_error, rmse
from bayesdrop.predict import Prediction
from bayesdrop.stacked import Candidate, Component, Mixture, Settings, fit_tables, preset_recipe
from bayesdrop.stacked import FitRecipe as Recipe
from bayesdrop.stacked import TrainingTable as Rows
from bayesdrop.stacked.out_of_fold import interval_levels

__all__ = [
    "ESTIMATOR",
    "MANY_ROWS",
    "MEAN_FIELD",
    "METHODS",
    "METRICS",
    "OURS",
    "REVISION",
    "SECONDS",
    "fit_piece",
    "labels_of",
    "piece_keys",
    "single_fit_share",
]

#: of the pieces that both tables share: raised when those from before must not be used
REVISION = 2
#: of the estimator's own presets: raised with every change of them
ESTIMATOR = 6
#: methods that are presets of the estimator
OURS = ("default", "quick")

#: the metric of a row with processor time
SECONDS = "seconds a split"
METRICS = ("RMSE", "log-likelihood (nats)", "95 % coverage", "calibration error")

#: p and length scale of 2016, by set
SETTINGS_2016 = {
    "boston": (0.05, 1e-2),
    "concrete": (0.01, 1e-2),
    "energy": (0.05, 1e-2),
    "kin8nm": (0.05, 1e-2),
    "naval": (0.05, 1.0),
    "power": (0.005, 1e-2),
    "protein": (0.005, 1e-2),
    "wine": (0.05, 1e-2),
    "yacht": (0.01, 1e-1),
    "year": (0.05, 1e-4),
}
#: precisions of the grid of 2018, by set
PRECISIONS_2018 = {
    "boston": (0.1, 0.15, 0.2),
    "concrete": (0.025, 0.05, 0.075),
    "energy": (0.25, 0.5, 0.75),
    "kin8nm": (150.0, 200.0, 250.0),
    "naval": (3e4, 4e4, 5e4),
    "power": (0.05, 0.1, 0.15),
    "protein": (0.025, 0.05, 0.075),
    "wine": (2.5, 3.0, 3.5),
    "yacht": (0.25, 0.5, 0.75),
}
#: rows of a set that counts as large
MANY_ROWS = 5000
#: Length scales and paces of the noise that a validation set chooses from, with Concrete dropout. Noise that
#: follows the errors at once falls with them on a small set, and rates fall to zero, unless l is long.
PRIORS_2017 = (
    *((length_scale, pace) for length_scale in (0.1, 0.3, 1.0) for pace in (0.1, 0.2, 0.4, 0.8)),
    (1.0, None),
    (2.0, None),
)
#: the same for large sets, which take longer: rates fall to zero there at any pace
PRIORS_2017_MANY = ((0.1, 0.4), (0.1, 0.8), (0.3, 0.8), (1.0, None), (2.0, None))

#: length scales that a validation set chooses from, with Gaussian weights; times sqrt(K_in) for every layer
SCALES_VI = (0.1, 0.3, 1.0)
MEAN_FIELD = "meanfield (VI)"
#: candidates are chosen on the last fifth of the training rows, and the best is fitted to all
_CHOSEN: dict[str, Any] = {
    "folds": 5, "parts": 1, "holdout": "last", "refit": True, "calibrate": False, "num_draws": 1000,
    "judge_draws": 300,
}  # fmt: skip

#: set, training rows of several splits, key -> for every label of the method, one mixture a split
Fit = Callable[[str, Sequence[Rows], Mapping[str, Any]], dict[str, list[Mixture]]]


def piece_keys(
    name: str, method: str, splits: int, *, steps: int | None, num_draws: int | None, repeat: int = 0
) -> list[dict[str, Any]]:
    """Keys of the pieces of a set and a method: groups of splits.

    Args:
        name: of the set.
        method: a key of `METHODS`.
        splits: at most so many.
        steps: at most so many steps of training a network; the method's own if None.
        num_draws: T when scoring; the method's own if None.
        repeat: which of several fits to the same splits, each with a seed of its own.
    """
    table = load_set(name)
    count = min(splits, table.num_splits)
    size = METHODS[method][1]
    common = {"dataset": name, "stamp": set_stamp(name), "method": method}
    options = {"steps": steps, "num_draws": num_draws, **({"repeat": repeat} if repeat else {})}
    options |= {"estimator": ESTIMATOR} if method in OURS else {}
    return [
        {**common, "splits": list(range(first, min(first + size, count))), **options}
        for first in range(0, count, size)
    ]


def fit_piece(key: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score some splits.

    Returns: by label, `scores` (splits, metrics) on test rows, and `averaged` (splits,), the RMSE of the mean
    weights; CPU seconds of one split; for every split, `rates` of its networks and what its search tried.
    """
    table = load_set(key["dataset"])
    fit, _ = METHODS[key["method"]]
    rows = [_training_rows(table, split, key.get("repeat", 0)) for split in key["splits"]]
    start = time.process_time()
    found = fit(key["dataset"], rows, key)
    seconds = (time.process_time() - start) / len(rows)
    scores: dict[str, list[list[float]]] = {}
    for name, mixtures in found.items():
        scores[name] = [
            _scores(mixture, *_test_inputs(table, split, key), _test_targets(table, split))
            for mixture, split in zip(mixtures, key["splits"], strict=True)
        ]
    seconds_with_scores = (time.process_time() - start) / len(rows)
    last = list(found.values())[-1]
    return {
        "scores": scores,
        "averaged": {
            name: [
                _error(mixture.mean_weights(_test_inputs(table, split, key)[0]), _test_targets(table, split))
                for mixture, split in zip(mixtures, key["splits"], strict=True)
            ]
            for name, mixtures in found.items()
        },
        "seconds": seconds,
        "seconds_with_scores": seconds_with_scores,
        "rates": [mixture.rates() for mixture in last],
        "search": [_brief(mixture) for mixture in last],
    }


def _training_rows(table: Table, split: int, repeat: int) -> Rows:
    train = table.train[split]
    x, y = table.x[train].numpy(), table.y[train].numpy()
    return Rows(x, y, seed=split + 1000 * repeat, name=f"{table.name} {split}")


def _test_inputs(table: Table, split: int, key: Mapping[str, Any]) -> tuple[Any, int | None]:
    return table.x[table.test[split]].numpy(), key["num_draws"]


def _test_targets(table: Table, split: int) -> Tensor:
    return table.y[table.test[split]]


def _scores(mixture: Mixture, x: Any, num_draws: int | None, y: Tensor) -> list[float]:
    prediction = mixture.predict(x, num_draws)
    # Where rows were held out, they set the level of intervals, as in `DropoutRegressor.predict_interval`.
    level = 0.95 if mixture.shares is None else float(interval_levels(mixture.shares, 0.95)[0])
    return [
        float(rmse(prediction, y)),
        float(mean_log_likelihood(prediction, y)),
        float(interval_coverage(prediction, y, level=level)),
        float(regression_calibration_error(prediction, y)),
    ]


def _error(mean: Tensor, y: Tensor) -> float:
    return float(rmse(Prediction.from_draws(mean.unsqueeze(0)), y))


def _brief(mixture: Mixture) -> list[dict[str, Any]]:
    """What was tried: the candidate, its log-likelihood on held-out rows, the blocks that were picked."""
    names = ("candidate", "log_likelihood", "precision", "picked")
    return [{name: row[name] for name in names} for row in mixture.search]


def _shortened(recipe: Recipe, rows: int, steps: int | None) -> Recipe:
    """The recipe with no more than so many steps a network."""
    if steps is None:
        return recipe
    candidates = []
    for one in recipe.candidates:
        settings = one.settings
        epochs = max(1, min(settings.epochs, steps * settings.batch_size // rows))
        changed = replace(settings, epochs=epochs, check_every=min(settings.check_every, epochs))
        candidates.append(replace(one, settings=changed))
    return replace(recipe, candidates=tuple(candidates))


def _by_preset(preset: str, options: Callable[[str], dict[str, Any]]) -> Fit:
    def fit(name: str, rows: Sequence[Rows], key: Mapping[str, Any]) -> dict[str, list[Mixture]]:
        size = len(rows[0].x)
        recipe = preset_recipe(preset, size, rows[0].x.shape[1], **options(name))
        return {key["method"]: fit_tables(rows, _shortened(recipe, size, key["steps"]))}

    return fit


def _options_2016(name: str, **own: Any) -> dict[str, Any]:
    p, length_scale = SETTINGS_2016.get(name, (0.05, 1e-2))
    return {"p": p, "length_scale": length_scale, **own}


def _options_2018(name: str, **own: Any) -> dict[str, Any]:
    return {"precisions": PRECISIONS_2018.get(name), **own}


def _estimator(preset: str) -> Fit:
    """The estimator as users have it."""

    def fit(name: str, rows: Sequence[Rows], key: Mapping[str, Any]) -> dict[str, list[Mixture]]:
        from bayesdrop.estimators import DropoutRegressor

        made = []
        for one in rows:
            model = DropoutRegressor(preset=preset, random_state=one.seed)
            if key["steps"] is not None:
                model.set_params(epochs=max(1, 128 * key["steps"] // len(one.x)))
            made.append(model.fit(one.x, np.ravel(one.y)).mixture_)
        return {key["method"]: made}

    return fit


def _concrete(name: str, rows: Sequence[Rows], key: Mapping[str, Any]) -> dict[str, list[Mixture]]:
    """Two layers with Concrete dropout, inputs included; noise by MAP-EM, before and after a last M-step."""
    size = len(rows[0].x)
    width = 100 if size >= 40_000 else 50
    candidates = [
        Candidate(
            Settings(
                hidden=(width, width),
                method="concrete",
                noise="map",
                p=0.1,
                input_p=0.1,
                length_scale=length_scale,
                noise_pace=pace,
                scale_by_fan_in=True,
                epochs=10_000,
                lr=1e-3,
                schedule="constant",
                first_weights="glorot",
                check_every=500,
            )
        )
        for length_scale, pace in (PRIORS_2017_MANY if len(load_set(name)) >= MANY_ROWS else PRIORS_2017)
    ]
    mixtures = fit_tables(rows, _shortened(Recipe(tuple(candidates), **_CHOSEN), size, key["steps"]))
    return {"CDropout": [_before_last_step(mixture) for mixture in mixtures], "CDropoutM": mixtures}


def _mean_field(name: str, rows: Sequence[Rows], key: Mapping[str, Any]) -> dict[str, list[Mixture]]:
    """One layer of Gaussian weights with learned widths, noise at its mode after every epoch."""
    size = len(rows[0].x)
    many = size >= MANY_ROWS
    epochs = 200 if size >= 40_000 else 400
    settings = Settings(
        hidden=(100 if size >= 40_000 else 50,), method="meanfield", noise="map", p=0.01, input_p=0.01,
        scale_by_fan_in=True, epochs=epochs, batch_size=128 if many else 32, rate_lr=1e-2,
        check_every=epochs,
    )  # fmt: skip
    candidates = [Candidate(replace(settings, length_scale=length_scale)) for length_scale in SCALES_VI]
    recipe = Recipe(tuple(candidates), **_CHOSEN)
    return {MEAN_FIELD: fit_tables(rows, _shortened(recipe, size, key["steps"]))}


def single_fit_share(method: str, rows: int) -> float:
    """What one fit to all rows is of the time of a method: every candidate is fitted to four fifths of them.

    Args:
        method: "two-layers" or "concrete".
        rows: of the whole set.
    """
    concrete = len(PRIORS_2017_MANY if rows >= MANY_ROWS else PRIORS_2017)
    candidates = {"two-layers": 4, "concrete": concrete}[method]
    return 1 / (0.8 * candidates + 1)


def _before_last_step(mixture: Mixture) -> Mixture:
    """The noise as it was when training ended."""

    def before(one: Component) -> Component:
        network = one.network
        std = torch.tensor(network.history["noise_std"][-1], dtype=network.weights[0].dtype)
        return replace(one, network=network.with_noise(std.log()))

    return replace(mixture, components=tuple(before(one) for one in mixture.components))


#: method -> how it fits, and how many splits share a piece, and so a stack
METHODS: dict[str, tuple[Fit, int]] = {
    "default": (_estimator("default"), 1),
    "quick": (_estimator("quick"), 1),
    "gal2016": (_by_preset("gal2016", _options_2016), 10),
    "gal2018": (_by_preset("gal2018", _options_2018), 10),
    "two-layers": (_by_preset("two-layers", _options_2018), 10),
    "concrete": (_concrete, 10),
    "meanfield": (_mean_field, 10),
    "no-dropout": (_by_preset("gal2016", partial(_options_2016, p=0.0)), 10),
    "two-layers-no-dropout": (_by_preset("two-layers", partial(_options_2018, rates=(0.0,))), 10),
}
_LABELS = {"concrete": ("CDropout", "CDropoutM"), "meanfield": (MEAN_FIELD,)}


def labels_of(method: str) -> tuple[str, ...]:
    """Under which names the fits of a method are reported."""
    return _LABELS.get(method, (method,))
