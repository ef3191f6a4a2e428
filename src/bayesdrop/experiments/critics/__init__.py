"""The critics of MC dropout, 2016 to 2025: four objections, each measured, and what to do about it.

- *Off the data* ("Unreliable uncertainty estimates with Monte Carlo dropout", arXiv 2512.14851): the spread
  does not grow where there are no data, as that of a Gaussian process and of a Bayesian network does. On a
  curve in one dimension with a gap, the standard deviation of the function is measured in the gap and far
  outside, as a multiple of that at the data. The process has the squared exponential kernel, the Bayesian
  network is the exact one of infinitely many units.
- *Two kinds* ("Benchmarking uncertainty disentanglement", arXiv 2402.19460): in practice no method keeps
  aleatoric and epistemic uncertainty apart. On digits, on blends of two digits with the label of either, and
  on images of another kind, the rank correlation of the two estimates is measured, and what each detects.
- *More data* (Osband, 2016, "Risk versus uncertainty in deep learning"): at a fixed rate the spread does not
  shrink as data come. Friedman's function is learned at a fixed and at a learned (Concrete) rate.
- *Labels to ask for* ("zero-one" epistemic uncertainty, arXiv 2512.12341): E[max p] - max E[p] chooses labels
  in active learning, instead of the mutual information.

Claims and thresholds were written before any number was seen. Where a claim of the critics holds, the text
after it says what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bayesdrop.data import DataNotFound
from bayesdrop.experiments.critics.labels import LABEL_METHODS, label_piece
from bayesdrop.experiments.critics.off_data import CURVE_METHODS, curve_piece
from bayesdrop.experiments.critics.picture import draw
from bayesdrop.experiments.critics.report import gather_arrays, make_claims, make_rows
from bayesdrop.experiments.critics.two_kinds import kinds_piece
from bayesdrop.experiments.friedman import train_network
from bayesdrop.experiments.injected.images import load_images
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Outcome

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]


@dataclass(frozen=True)
class Config:
    """All that the numbers depend on."""

    seeds: int = 2
    curve_rows: int = 80
    curve_steps: int = 1200
    images: str = "mnist"  #: or "digits"
    num_train: int = 4000  #: images, of which a fifth are blends
    epochs: int = 5
    num_test: int = 1000  #: images of each kind
    sizes: tuple[int, ...] = (100, 1000, 10_000)
    steps: int = 1500  #: on Friedman's function
    repeats: int = 2  #: of active learning
    most: int = 260  #: labels at which a run of active learning ends
    num_draws: int = 50


SMOKE = Config(
    seeds=1, curve_rows=20, curve_steps=10, images="digits", num_train=300, epochs=1, num_test=60,
    sizes=(40, 80), steps=8, repeats=1, most=40, num_draws=4,
)  # fmt: skip
PRESETS = {
    "quick": Config(
        seeds=1, curve_steps=600, num_train=2000, epochs=3, num_test=500, sizes=(100, 1000), steps=600,
        repeats=1, most=120, num_draws=30,
    )
}  # fmt: skip
#: the rate at which the spread is said not to shrink
FIXED = 0.2


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Every objection on its own; what needs images that are not at hand is not run."""
    seeds = range(config.seeds)
    curve = {"rows": config.curve_rows, "steps": config.curve_steps, "num_draws": config.num_draws}
    groups: dict[str, list[dict[str, Any]]] = {
        f"curve {method}": [{"method": method, "seed": seed, **curve} for seed in seeds]
        for method in CURVE_METHODS
    }
    found = run_groups(groups, curve_piece, cache=cache, progress=progress, label="Curves")
    common = {
        "length_scale": 0.01, "width": 100, "steps": config.steps, "batch_size": 100, "lr": 1e-3,
        "rate_lr": None, "num_test": 500, "num_draws": config.num_draws,
    }  # fmt: skip
    groups = {
        f"size {name} {size}": [
            {"learned": name == "learned", "p": FIXED, "size": size, "seed": seed, **common} for seed in seeds
        ]
        for name in ("fixed", "learned")
        for size in config.sizes
    }
    found |= run_groups(groups, train_network, cache=cache, progress=progress, label="Sizes")
    notes = []
    try:
        load_images(config.images)
    except DataNotFound as error:
        notes.append(error.brief)
    else:
        shared = {"images": config.images, "num_test": config.num_test, "num_draws": config.num_draws}
        keys = [
            {"seed": seed, "num_train": config.num_train, "epochs": config.epochs, **shared} for seed in seeds
        ]
        found |= run_groups({"kinds": keys}, kinds_piece, cache=cache, progress=progress, label="Kinds")
        groups = {
            f"asked {method}": [
                {"method": method, "repeat": repeat, "most": config.most, **shared}
                for repeat in range(config.repeats)
            ]
            for method in LABEL_METHODS
        }
        found |= run_groups(groups, label_piece, cache=cache, progress=progress, label="Labels")
    return Outcome(
        make_rows(found, config), make_claims(found, config), gather_arrays(found, config), tuple(notes)
    )
