"""No dropout in my network: injected on 6 UCI tables and MNIST, against 6 other ways to be unsure.

A network was trained without dropout, and now its uncertainty is wanted. `inject` puts dropout in front of
its last linear map and chooses the rate on held-out rows. Does that help, and what would have helped more?

On six UCI tables a heteroscedastic network (a mean and a log-variance) is trained, on MNIST a small
convolutional one. Compared are, on the same splits:

- *bare*: the network itself, without epistemic uncertainty; *temperature*: its logits divided by a number,
  or its variances multiplied by one, fitted to held-out rows;
- *injected*: before the last map, by held-out likelihood; *everywhere*: before every map; *no labels*: at
  the largest rate at which predictions keep 95 % of their mutual information with the rows;
- *last-layer Laplace*: the Gaussian at the last map with the curvature of the loss, in closed form, its prior
  chosen on the same held-out rows;
- what has to be trained for it: *dropout* at a fixed rate, *mean-field VI*, an *ensemble* of five.

Measured are log-likelihood, calibration, the AUROC of telling foreign rows (the test rows three times as far
from the mean; the images of Fashion-MNIST), and CPU time. No paper has this table. Claims and thresholds were
written before any number was seen. A look at one split showed that networks of tables, trained to the end,
are far too sure (-12 nats on boston), which every method repairs; they are therefore stopped early, on the
held-out rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from bayesdrop.data import DataNotFound
from bayesdrop.experiments.injected.images import image_piece, load_images
from bayesdrop.experiments.injected.picture import draw
from bayesdrop.experiments.injected.report import gather_arrays, make_claims, make_notes, make_rows
from bayesdrop.experiments.injected.tables import load_table, table_piece
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Outcome
from bayesdrop.experiments.settings import picked

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]


@dataclass(frozen=True)
class Config:
    """All that the numbers depend on."""

    tables: tuple[str, ...] = ("boston", "concrete", "energy", "kin8nm", "power", "protein")
    splits: int = 5
    most_rows: int = 10_000  #: training rows of a table at most: the first ones
    steps: int = 1000  #: of a table's network
    images: tuple[str, ...] = ("mnist",)
    num_seeds: int = 2  #: of the image networks
    num_train: int = 3000
    epochs: int = 4
    held_out: float = 0.2  #: share of a table's training rows
    held_out_images: int = 1000
    num_test: int = 1000  #: images of each set
    num_draws: int = 100  #: on tables
    image_draws: int = 30
    p: float = 0.05  #: rate of dropout that is trained, on tables
    image_p: float = 0.3  #: the same, on images
    members: int = 5  #: networks of an ensemble


SMOKE = Config(
    tables=("friedman",), splits=2, most_rows=200, steps=40, images=("digits",), num_seeds=1, num_train=300,
    epochs=1, held_out_images=100, num_test=100, num_draws=6, image_draws=6, members=2,
)  # fmt: skip
PRESETS = {
    "quick": Config(
        tables=("boston", "energy"), splits=2, steps=500, images=("mnist",), num_seeds=1, num_train=2000,
        epochs=4, held_out_images=500, num_test=500, num_draws=50, image_draws=20, members=3,
    )
}  # fmt: skip


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Train and score everything; sets that are not at hand are not run."""
    tables = picked(config, "splits", "most_rows", "steps", "held_out", "num_draws", "p", "members")
    images = picked(
        config, "num_train", "epochs", "held_out_images", "num_test", "image_draws", "image_p", "members"
    )
    groups: dict[str, list[dict[str, object]]] = {}
    missing: list[str] = []
    for name in config.tables:
        try:
            load_table(name)
        except DataNotFound as error:
            missing.append(error.brief)
            continue
        groups[name] = [{"dataset": name, **tables}]
    made = run_groups(groups, table_piece, cache=cache, progress=progress, label="Tables")
    found = {
        name: [{what: values[n] for what, values in piece.items()} for n in range(config.splits)]
        for name, (piece,) in made.items()
    }
    groups = {}
    for name in config.images:
        try:
            load_images(name)
        except DataNotFound as error:
            missing.append(error.brief)
            continue
        groups[name] = [{"dataset": name, "seed": seed, **images} for seed in range(config.num_seeds)]
    found |= run_groups(groups, image_piece, cache=cache, progress=progress, label="Images")
    return Outcome(
        make_rows(found, config),
        make_claims(found, config),
        gather_arrays(found, config),
        (*make_notes(found, config), *missing),
    )
