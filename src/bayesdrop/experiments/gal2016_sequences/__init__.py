"""Gal & Ghahramani (2015), section 4.2: dropout in recurrent networks, one mask over time or one a step.

"Another possible application is the adaptation of dropout to recurrent neural networks (RNNs). Currently,
dropout is not used with these models as the repeated application of noise over potentially thousands of
layers results in a very weak signal at the output. [...] one would expect there to exist a suitable dropout
approximation for these tasks as well." The paper has no numbers. The approximation, by the same authors a
year later, is one mask for all steps of a sequence: a random weight matrix, rather than fresh noise.

LSTMs and GRUs of one size are trained in one way, and differ in their noise alone:

- *no dropout*;
- *fresh masks*: drawn anew at every step, on inputs, recurrence and outputs;
- *fresh masks, none inside*: the same without noise on the recurrence, as was common practice;
- *one mask*: the same at all steps, on inputs, recurrence and outputs;
- *one mask, learned*: Concrete dropout, which finds a rate for each of the three.

They read three kinds of real sequences. *Text*: the characters of Python's own reference
(`pydoc_data.topics`, a part of every Python), of which the next is predicted. *Digits*: MNIST images, row
by row, of which the class is predicted at the end. *CO2* and *solar*: changes from month to month of carbon
dioxide, from year to year of the sun's irradiance, of which the next is predicted after 24; the last 30 %
of the time are held out.

Sequences outside the distribution are made from held-out ones: read backwards, shuffled, in rot13, turned
by a quarter, with every second step left out ("twice as fast"); for digits there are also images of clothes.
Whether draws disagree more about them is measured by an AUROC: of the mutual information (for a text its mean
over steps), or of the epistemic variance of numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from bayesdrop.data import DataNotFound
from bayesdrop.experiments.gal2016_sequences.networks import VARIANTS, train_and_score
from bayesdrop.experiments.gal2016_sequences.picture import draw
from bayesdrop.experiments.gal2016_sequences.problems import Sizes, load_problem
from bayesdrop.experiments.gal2016_sequences.report import gather_arrays, make_claims, make_notes, make_rows
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Outcome
from bayesdrop.experiments.settings import picked

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

#: the first weights of revision 1 did not follow the seed
REVISION = 2


@dataclass(frozen=True)
class Config:
    """Four kinds of sequences, two cells, three seeds."""

    problems: tuple[str, ...] = ("text", "digits", "CO2", "solar")
    cells: tuple[str, ...] = ("LSTM", "GRU")
    num_seeds: int = 3
    p: float = 0.25  #: of the fixed rates
    p_init: float = 0.1  #: where learned rates start
    text_sequences: int = 600  #: of 50 characters, to train on
    images: int = 1000  #: to train on
    num_test: int = 200  #: held-out sequences, and the same number of each kind from outside
    hidden: int = 128  #: units; a quarter of them for series
    text_epochs: int = 45
    image_epochs: int = 25
    series_epochs: int = 100
    batch_size: int = 32
    lr: float = 3e-3
    num_draws: int = 30
    length_scale: float = 1e-2
    seed: int = 0


SMOKE = Config(
    problems=("text", "CO2"), cells=("GRU",), num_seeds=2, text_sequences=16, num_test=8, hidden=8,
    text_epochs=1, series_epochs=1, num_draws=3,
)  # fmt: skip
PRESETS = {
    "quick": Config(
        problems=("text", "CO2"), cells=("LSTM",), text_sequences=400, num_test=60, text_epochs=8,
        series_epochs=20, num_draws=10,
    )
}  # fmt: skip


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Train every network on every problem; one whose data are absent is not run."""
    sizes = Sizes(config.text_sequences, config.images, config.num_test)
    present, absent = [], {}
    for name in config.problems:
        try:
            load_problem(name, sizes, config.seed)
            present.append(name)
        except DataNotFound as error:
            absent[name] = error.brief
    epochs = {"text": config.text_epochs, "digits": config.image_epochs}
    common = picked(config, "p", "p_init", "batch_size", "lr", "num_draws", "length_scale") | {"sizes": sizes}

    def keys(name: str, cell: str, variant: str) -> list[dict[str, Any]]:
        own = {
            "problem": name, "cell": cell, "variant": variant,
            "epochs": epochs.get(name, config.series_epochs),
            "hidden": config.hidden if name in epochs else max(1, config.hidden // 4),
        }  # fmt: skip
        return [{**own, **common, "seed": config.seed + seed} for seed in range(config.num_seeds)]

    groups = {place: keys(*place) for place in product(present, config.cells, VARIANTS)}
    found = run_groups(groups, train_and_score, cache=cache, progress=progress, label="Networks")
    return Outcome(
        make_rows(found, absent, config.cells),
        make_claims(found),
        gather_arrays(found),
        make_notes(config, absent),
    )
