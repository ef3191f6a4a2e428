"""The models of the demo, fitted in seconds, and the rows that callers send them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bayesdrop.errors import require
from bayesdrop.fit import fit
from bayesdrop.layers import BernoulliDropout
from bayesdrop.likelihoods import Categorical
from bayesdrop.objectives import NegativeELBO
from bayesdrop.serve.served.images import ImageModel, save_image_model
from bayesdrop.serve.served.pictures import png_of
from bayesdrop.serve.settings import ServeSettings
from bayesdrop.tables import FitOptions, fit_table, save_table_model
from bayesdrop.tables.deferral import Rule
from bayesdrop.tables.evaluate import fit_evaluation

__all__ = ["DIABETES", "DIGITS", "Stage", "prepare"]

DIGITS, DIABETES = "digits", "diabetes"
#: digits that the first version learns from: few, so that people have something to teach it
_LEARNED, _TRIED = 240, 160
_TARGET = "progression"


@dataclass(frozen=True, eq=False)
class Stage:
    """A model on the disk, and rows for it with the truth of each.

    Attributes:
        settings: to serve it with.
        rows: what callers send, in order.
        truth: labels, as people give them.
    """

    settings: ServeSettings
    rows: list[dict[str, Any]]
    truth: list[str | float]


def prepare(name: str, folder: Path, *, port: int = 0, seed: int = 0) -> Stage:
    """Fit a model, or take the one that is there, and make rows for it.

    Args:
        name: "digits" or "diabetes".
        folder: of the demo.
        port: to listen on later.
        seed: of everything random.
    """
    require("sklearn", extra="serve", owner="bayesdrop desk-demo")
    folder.mkdir(parents=True, exist_ok=True)
    return (_digits if name == DIGITS else _diabetes)(folder, port, seed)


def _digits(folder: Path, port: int, seed: int) -> Stage:
    from sklearn.datasets import load_digits

    found, source = load_digits(), np.random.default_rng(seed)
    images = np.clip(np.round(found.images * (255 / 16)), 0, 255).astype(np.uint8)
    order = source.permutation(len(images))
    images, labels = images[order], found.target[order]
    model = folder / DIGITS
    if not model.exists():
        own = torch.from_numpy(images[: _LEARNED + _TRIED]).unsqueeze(1)
        save_image_model(_classifier(own, torch.from_numpy(labels[: len(own)]), seed), model)
    rest = np.arange(_LEARNED + _TRIED, len(images))
    # Scanners age: strokes fade and specks appear as time goes on.
    rows = []
    for place, row in enumerate(rest):
        age = place / len(rest)
        noise = source.normal(0, 12 + 45 * age, images[row].shape)
        worn = np.clip(images[row] * (1 - 0.25 * age) + noise, 0, 255).astype(np.uint8)
        rows.append({"image": png_of(worn)})
    settings = ServeSettings(
        str(model), home=folder / f"{DIGITS}.desk", port=port, second_share=0.1, random_every=2
    )
    return Stage(settings, rows, [str(labels[row]) for row in rest])


def _classifier(images: torch.Tensor, labels: torch.Tensor, seed: int) -> ImageModel:
    torch.manual_seed(seed)
    net = nn.Sequential(
        BernoulliDropout(nn.Conv2d(1, 24, 3, padding=1), p=0.05),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        BernoulliDropout(nn.Linear(24 * 16, 96), p=0.2),
        nn.ReLU(),
        BernoulliDropout(nn.Linear(96, 10), p=0.3),
    )
    held = torch.arange(len(images)) >= _LEARNED
    recipe = {"epochs": 25, "lr": 3e-3, "batch_size": 32, "length_scale": 1e-2, "seed": seed}
    made = ImageModel(
        net,
        tuple("0123456789"),
        (8, 8),
        mean=(0.3,),
        std=(0.37,),
        num_draws=50,
        recipe=recipe,
        images=images,
        labels=labels.long(),
        held=held,
        about={"data": "handwritten digits of scikit-learn", "defer_share": 0.2},
    )
    objective = NegativeELBO(Categorical(), num_data=_LEARNED, length_scale=1e-2)
    x = made.normalised(images[~held]), labels[~held].long()
    fit(net, x, objective, epochs=25, lr=3e-3, batch_size=32, seed=seed, progress=False)
    net.eval()
    return ImageModel(
        **{name: getattr(made, name) for name in ImageModel.__dataclass_fields__ if name != "defer_above"},
        defer_above=made.threshold(0.2),
    )


def _diabetes(folder: Path, port: int, seed: int) -> Stage:
    from sklearn.datasets import load_diabetes

    frame = load_diabetes(as_frame=True, scaled=False).frame.rename(columns={"target": _TARGET})
    frame["sex"] = frame["sex"].map({1.0: "female", 2.0: "male"})
    frame = frame.sample(frac=1, random_state=seed).reset_index(drop=True)
    table, model = folder / "diabetes.csv", folder / DIABETES
    learned = frame.iloc[:260]
    if not model.exists():
        learned.to_csv(table, index=False)
        estimator = {"preset": "quick", "num_draws": 60}
        options = FitOptions(
            _TARGET, level=0.9, held_out=0.3, seed=seed, estimator=estimator, rule=Rule(share=0.15)
        )
        fitted = fit_table(learned, options)
        save_table_model(fitted.model, model, report=fit_evaluation(fitted).report("The demo of the desk"))
    rest = frame.iloc[260:]
    source = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    truth: list[str | float] = []
    for turn in range(3):
        for place, (_, row) in enumerate(rest.iterrows()):
            age = (turn * len(rest) + place) / (3 * len(rest))
            cells = {name: _cell(value) for name, value in row.items() if name != _TARGET}
            # Another clinic sends its people too: they are heavier, and its forms are not always filled in.
            cells["bmi"] = round(float(cells["bmi"]) + 6 * age * float(source.random()), 1)
            chance = source.random()
            if chance < 0.03:
                cells["bp"] = None
            elif chance < 0.05:
                cells["s3"] = round(float(cells["s3"]) * 10, 1)
            rows.append(cells)
            truth.append(float(row[_TARGET]) + 3.0 * (float(cells["bmi"]) - float(row["bmi"])))
    settings = ServeSettings(
        str(model),
        home=folder / f"{DIABETES}.desk",
        data=table,
        port=port,
        second_share=0.1,
        random_every=2,
        adaptive=True,
    )
    return Stage(settings, rows, truth)


def _cell(value: Any) -> Any:
    return value if isinstance(value, str) else float(value)
