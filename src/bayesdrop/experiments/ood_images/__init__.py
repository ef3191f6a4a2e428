"""Digits or not? LeNet's uncertainty on MNIST and Fashion-MNIST, 2016 to now: detect, defer, calibrate.

Networks that learned digits (MNIST) are shown clothes (Fashion-MNIST), and any folder of images (`folder`).
Uncertainty should tell the two apart (AUROC, FPR at 95 % TPR); among digits it should find the mistakes, so
that a person can be asked ("pass the input to a human to classify", Gal & Ghahramani 2015, section 4.2).
Probabilities are then calibrated: a temperature for the draws, and conformal sets on top of it.

"LeNet" is one pass with averaged weights. The variants named by a kind of noise have LeNet's features and a
last layer of that kind, trained on from LeNet's weights.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesdrop.data.mnist import load_fashion_mnist, load_mnist
from bayesdrop.errors import must, require
from bayesdrop.experiments.digits import as_inputs
from bayesdrop.experiments.ood_images.measure import SCORES, measured
from bayesdrop.experiments.ood_images.picture import draw
from bayesdrop.experiments.ood_images.variants import VARIANTS, Variants
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.progress import progress_bar

__all__ = ["REVISION", "SMOKE", "Config", "draw", "run"]

REVISION = 3
_TOO_FEW = (
    "It does where probabilities are far off, as with dropout after all layers. The others are calibrated to "
    "half a per cent, and a temperature fitted to labels with a handful of mistakes is noise."
)


@dataclass(frozen=True)
class Config:
    """Six networks on 4000 images of each kind."""

    variants: tuple[str, ...] = tuple(VARIANTS)
    num_images: int = 4000  #: of each kind, the first of its test set
    num_draws: int = 30
    level: float = 0.9  #: of conformal sets
    splits: int = 100  #: of the test images into calibration and test
    epochs: int = 8  #: of LeNet
    head_epochs: int = 3  #: of a variant's last layer
    num_train: int = 60_000
    folder: str | None = None  #: images to show as well
    seed: int = 0


SMOKE = Config(
    variants=("LeNet", "MC dropout", "concrete"), num_images=300, num_draws=4, splits=3, epochs=1,
    head_epochs=1, num_train=320,
)  # fmt: skip


def read_folder(path: str) -> Tensor:
    """All images of a folder as (N, 28, 28) bytes, grey and shrunk. Ink has to be bright, as in MNIST."""
    pillow = require("PIL.Image", extra="data", owner="ood-images")
    pictures = []
    for file in _image_files(path):
        with pillow.open(file) as image:
            pictures.append(np.asarray(image.convert("L").resize((28, 28)), dtype=np.uint8))
    return torch.from_numpy(np.stack(pictures))


def _image_files(path: str) -> list[Path]:
    endings = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"}
    files = sorted(file for file in Path(path).expanduser().glob("*") if file.suffix.lower() in endings)
    if not files:
        raise ValueError(must("ood-images", "folder", "a folder with images", path))
    return files


def _key(config: Config, variant: str) -> dict[str, Any]:
    """What a variant's numbers depend on: the settings, and the files of the folder as they are now."""
    key = {"variant": variant, **asdict(replace(config, variants=()))}
    if config.folder is not None:
        states = [(file.name, file.stat()) for file in _image_files(config.folder)]
        key["images"] = [[name, state.st_size, state.st_mtime_ns] for name, state in states]
    return key


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Every network's scores, deferral, calibration and coverage."""
    digits = load_mnist()
    inside, y = as_inputs(digits.x_test[: config.num_images]), digits.y_test[: config.num_images]
    sets = {"Fashion-MNIST": as_inputs(load_fashion_mnist().x_test[: config.num_images])}
    if config.folder is not None:
        sets["folder"] = as_inputs(read_folder(config.folder))
    variants = Variants(config, digits, cache, progress)
    rows: list[Row] = []
    arrays: dict[str, Any] = {"variants": list(config.variants), "level": config.level}
    found: dict[str, dict[str, Any]] = {}
    with progress_bar("networks", len(config.variants), show=progress) as advance:
        for name in config.variants:

            def compute(name: str = name) -> dict[str, Any]:
                predictions = {place: variants.predict(name, x) for place, x in sets.items()}
                return measured(variants.predict(name, inside), predictions, y, config.level, config.splits)

            found[name] = cache.get(_key(config, name), compute)
            rows += _rows(name, found[name], list(sets), config)
            arrays.update(
                {f"{name} {key}": value for key, value in found[name].items() if key.startswith("curve")}
            )
            advance(1, name)
    return Outcome(rows, _claims(found, config), arrays)


def _rows(name: str, found: dict[str, Any], places: list[str], config: Config) -> list[Row]:
    rows = [Row(name, "test accuracy (%)", None, found["accuracy"])]
    for place in places:
        for score in SCORES:
            if f"auroc {place} {score}" in found:
                label = score.replace("_", " ")
                rows.append(Row(name, f"AUROC, {place}, {label}", None, found[f"auroc {place} {score}"]))
                rows.append(Row(name, f"FPR95, {place}, {label}", None, found[f"fpr {place} {score}"]))
    rows += [
        Row(name, f"error after deferring {share} % (%)", None, found[f"deferred {share}"])
        for share in (0, 1, 5, 10)
    ]
    rows += [
        Row(name, "calibration error (%)", None, found["ece"]),
        Row(name, "calibration error, draws scaled (%)", None, found["ece draws"]),
        Row(name, "calibration error, mean scaled (%)", None, found["ece mean"]),
        Row(name, "temperature of draws", None, found["temperature draws"]),
        Row(name, "negative log-likelihood (nats)", None, found["nll"]),
        Row(name, "negative log-likelihood, draws scaled (nats)", None, found["nll draws"]),
        Row(name, "negative log-likelihood, mean scaled (nats)", None, found["nll mean"]),
    ]
    for kind in ("lac", "aps", "raps"):
        coverage = found[f"coverage {kind}"]
        rows.append(
            Row(name, f"coverage of {kind} sets (%)", None, coverage, None, f"nominal {100 * config.level:g}")
        )
        rows.append(Row(name, f"classes in {kind} sets", None, found[f"size {kind}"]))
    return rows


def _claims(found: dict[str, dict[str, Any]], config: Config) -> tuple[Claim, ...]:
    """What these numbers should show."""
    best = max(found, key=lambda name: found[name]["auroc Fashion-MNIST entropy"])
    at_best = found[best]["auroc Fashion-MNIST entropy"]
    gaps = {
        f"{name}, {score}": found[name][f"coverage {score}"] - 100 * config.level
        for name in found
        for score in ("lac", "aps", "raps")
    }
    worst = max(gaps, key=lambda name: abs(gaps[name]))
    errors = {name: (part["deferred 0"], part["deferred 10"]) for name, part in found.items()}
    shown = "; ".join(f"{name} {before:.2f} % and {after:.2f} %" for name, (before, after) in errors.items())
    lowest = min(part["auroc Fashion-MNIST entropy"] for part in found.values())
    claims = [
        Claim(
            "Uncertainty tells clothes from digits.",
            f"AUROC of the entropy from {lowest:.3f} to {at_best:.3f} ({best}).",
            at_best > 0.9,
        ),
        Claim(
            "Gal & Ghahramani (2015), 4.2: passing the uncertain inputs to a person leaves few errors.",
            f"error before and after deferring 10 %: {shown}.",
            all(after < before / 2 for before, after in errors.values()),
        ),
        Claim(
            "Conformal sets on a scaled Monte Carlo predictive hold the label as often as they promise.",
            f"{config.splits} splits: coverage farthest from {100 * config.level:g} % is off by "
            f"{gaps[worst]:+.2f} % ({worst}).",
            abs(gaps[worst]) < 1,
        ),
    ]
    return (*claims, *_temperature_claims(found))


def _temperature_claims(found: dict[str, dict[str, Any]]) -> tuple[Claim, Claim]:
    """Every network counts: a temperature is fitted to the likelihood, and calibration should follow."""
    drawn = [name for name in found if name != "LeNet"]
    likelihood = "; ".join(
        f"{name} {found[name]['nll']:.4f}, {found[name]['nll draws']:.4f}, {found[name]['nll mean']:.4f}"
        for name in drawn
    )
    error = "; ".join(
        f"{name} {found[name]['ece']:.2f}, {found[name]['ece draws']:.2f}, {found[name]['ece mean']:.2f}"
        for name in drawn
    )
    likelier = [name for name in drawn if found[name]["nll mean"] <= found[name]["nll"]]
    lower = [name for name in drawn if found[name]["ece draws"] <= found[name]["ece"]]
    return (
        Claim(
            "A temperature raises the likelihood of labels that it was not fitted to.",
            f"negative log-likelihood as it is, draws scaled, mean scaled: {likelihood}. Lower with a scaled "
            f"mean for {len(likelier)} of {len(drawn)} networks.",
            len(likelier) == len(drawn),
            otherwise=_TOO_FEW,
        ),
        Claim(
            "A temperature lowers the calibration error of the Monte Carlo predictive.",
            f"per cent as it is, draws scaled, mean scaled: {error}. Lower with scaled draws for "
            f"{len(lower)} of {len(drawn)} networks.",
            len(lower) == len(drawn),
            otherwise=_TOO_FEW,
        ),
    )
