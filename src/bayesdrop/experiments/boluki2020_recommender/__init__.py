"""Boluki et al. (2020), Table 2: recommenders with learnable dropout, and everything they are compared with.

A semi-implicit VAE drops choices from a user's history, each item at a rate of its own, which is learned
by an unbiased gradient, and is compared with VAEs of other posteriors, priors and dropouts and with linear
models. Test users are not in training at all; of each, a fifth of the items is hidden and should be ranked
before all others (Liang et al., 2018).

The paper's data sets are large and not at hand: its numbers, for MovieLens-20M, stand beside ours for
MovieLens-1M (and Gowalla) to be read for their order, not their size. Every network is run twice: with the
paper's settings, and with one recipe for all that was chosen on validation users (a linear decoder whose
biases begin at popularity, a normalised encoder, a divergence that weighs with the history's length, averaged
weights). The weight of the divergence is chosen on validation users in both, with the first seed of a row,
and so is whether scores are the mean network's or averaged over draws. Differences are paired over test
users, seeds averaged; the paper's settings have one seed. Gowalla, with 40,981 places and fewer choices a
user, has fewer rows, one seed, and the weight that MovieLens-1M chose.

With `--preset paper` the models run on MovieLens-20M, which is downloaded where a network exists, and with
`--preset netflix` and `--preset msd` on the others, from folders of your own (see `bayesdrop.data`): a day of
a large machine each. `--set data=file --set file=ratings.csv` takes a table userId,movieId,rating.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayesdrop.data import DataNotFound
from bayesdrop.experiments.boluki2020_recommender.models import MODELS, PRINTED
from bayesdrop.experiments.boluki2020_recommender.picture import draw
from bayesdrop.experiments.boluki2020_recommender.report import (
    Trials,
    make_arrays,
    make_claims,
    make_missing,
    make_notes,
    make_rows,
)
from bayesdrop.experiments.boluki2020_recommender.trials import split_of, trial
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.experiments.settings import picked

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

#: raised when a trial computes something else
REVISION = 2
_FEW = ("SIVAE, learnable", "VAE, dropout", "VAE", "EASE", "popularity")


@dataclass(frozen=True)
class Config:
    """All rows of the table on MovieLens-1M, five seeds, and a few of them on Gowalla."""

    data: str = "movielens-1m"  #: or movielens-100k, gowalla, movielens-20m, netflix, msd, file
    models: tuple[str, ...] = tuple(MODELS)
    recipes: tuple[str, ...] = ("our", "the paper's")
    num_seeds: int = 5  #: of our recipe
    paper_seeds: int = 1  #: of the paper's settings, which take several times as long
    epochs: int | None = None  #: at the most; as the models have it if None
    hidden: int = 600
    latent: int = 200
    sampled_items: int | None = None  #: in a step's softmax, beside those that its users chose; all if None
    file: str = ""  #: a table userId,movieId,rating for data = "file"
    held_users: int = 1000  #: validation users, and the same number of test users
    also: str = "gowalla"  #: a second data set, one seed, our settings; none if empty
    also_models: tuple[str, ...] = _FEW
    also_epochs: int | None = 10
    also_beta: float | None = 0.0035  #: the weight of the divergence that MovieLens-1M chose; None to search
    also_sampled_items: int | None = 4000
    also_held_users: int = 3000
    seed: int = 0


def _published(data: str, held_users: int, epochs: int) -> Config:
    """One of the paper's data sets, in its settings."""
    return Config(
        data=data, held_users=held_users, recipes=("the paper's",), num_seeds=1, epochs=epochs, also=""
    )


SMOKE = Config(
    data="movielens-100k",
    models=(
        "SIVAE, learnable",
        "SIVAE, concrete",
        "SIVAE, gaussian",
        "VAE, dropout",
        "VAE",
        "EASE",
        "popularity",
    ),
    num_seeds=2,
    epochs=2,
    hidden=16,
    latent=4,
    held_users=60,
    also="",
)
PRESETS = {
    "quick": Config(
        data="movielens-100k", models=_FEW, recipes=("our",), num_seeds=1, held_users=90, also=""
    ),
    "gowalla": Config(
        data="gowalla", models=_FEW, recipes=("our",), num_seeds=1, epochs=10, sampled_items=4000,
        held_users=3000, also="",
    ),
    "paper": _published("movielens-20m", 10_000, 200),
    "netflix": _published("netflix", 40_000, 200),
    "msd": _published("msd", 50_000, 100),
}  # fmt: skip


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Recall and NDCG of every model, and what the paper says of them."""
    rows: list[Row] = []
    tables: list[_Table] = []
    for table in _tables(config):
        try:
            split_of(table.common)
            tables.append(table)
        except DataNotFound as error:
            rows += [make_missing(table.data, model, recipe, str(error)) for model, recipe in table.rows()]
    found = _pieces(tables, cache=cache, progress=progress)
    claims: list[Claim] = []
    arrays: dict[str, Any] = {}
    for table, trials in zip(tables, found, strict=True):
        rows += make_rows(table.data, trials)
        claims += make_claims(table.data, trials)
        arrays.update(make_arrays(table.data, trials))
    return Outcome(rows, claims, arrays, make_notes(config.data))


@dataclass(frozen=True)
class _Table:
    """The rows of one data set, and how often each is run."""

    data: str
    models: tuple[str, ...]
    recipes: tuple[str, ...]
    num_seeds: int
    paper_seeds: int
    beta: float | None  #: weight of the divergence; chosen by validation users if None
    common: Mapping[str, Any]  #: what is in the keys of all its pieces

    def key(self, model: str, recipe: str, *, seed: int, beta: float | None) -> dict[str, Any]:
        """The key of a piece.

        Args:
            model: of the row.
            recipe: of the row.
            seed: 0 for the first run of the row, 1 for the next.
            beta: weight of the divergence; chosen by validation users if None.
        """
        first = int(self.common["split_seed"])
        key = {**self.common, "model": model, "recipe": recipe, "seed": first + seed, "beta": beta}
        if recipe != "the paper's" or not MODELS[model].has_recipes:
            return key
        # As published, the weight grows by 1 / 200,000 in every step: it is 0.2 after 40,000.
        scaled = {"anneal_steps": 40_000} if self.data in PRINTED else dict(MODELS[model].scaled)
        return {**key, "scaled": scaled} if scaled else key

    def seeds_of(self, model: str, recipe: str) -> int:
        """How often a row is run."""
        if not MODELS[model].has_seeds:
            return 1
        return self.paper_seeds if recipe == "the paper's" else self.num_seeds

    def rows(self) -> list[tuple[str, str]]:
        """Model and recipe of every row."""
        return [
            (model, recipe)
            for model in self.models
            for recipe in (self.recipes if MODELS[model].has_recipes else self.recipes[:1])
        ]


def _tables(config: Config) -> list[_Table]:
    common = picked(config, "hidden", "latent", "file") | {"split_seed": config.seed}
    names = ("epochs", "held_users", "sampled_items")
    first = {**common, "data": config.data, **picked(config, *names)}
    seeds = (config.num_seeds, config.paper_seeds)
    tables = [_Table(config.data, config.models, config.recipes, *seeds, None, first)]
    if config.also:
        own = {name: getattr(config, f"also_{name}") for name in names}
        second = {**common, "data": config.also, **own}
        beta = config.also_beta
        tables.append(_Table(config.also, config.also_models, config.recipes[:1], 1, 1, beta, second))
    return tables


def _pieces(tables: Sequence[_Table], *, cache: PieceCache, progress: bool) -> list[Trials]:
    """The trials of every table: first seeds choose the weight of the divergence, the others take it."""
    found: list[dict[tuple[str, str], list[Mapping[str, Any]]]] = [{} for _ in tables]

    def compute(planned: list[tuple[int, dict[str, Any]]], label: str) -> None:
        """Pieces of (place of the table, key); they are put into `found`."""
        keys = [key for _, key in planned]
        made = run_pieces(keys, trial, cache=cache, progress=progress, label=label)
        for (place, key), piece in zip(planned, made, strict=True):
            found[place].setdefault((key["model"], key["recipe"]), []).append(piece)

    places = range(len(tables))
    # The second data set has the longest pieces: they begin first, so that no process waits for the last.
    first = [
        (place, tables[place].key(*row, seed=0, beta=tables[place].beta))
        for place in reversed(places)
        for row in tables[place].rows()
    ]
    compute(first, "recommenders, first seeds")
    others = [
        (place, tables[place].key(model, recipe, seed=seed, beta=_beta(found[place][model, recipe][0])))
        for place in places
        for model, recipe in tables[place].rows()
        for seed in range(1, tables[place].seeds_of(model, recipe))
    ]
    compute(others, "recommenders, other seeds")
    return [{row: found[place][row] for row in tables[place].rows()} for place in places]


def _beta(piece: Mapping[str, Any]) -> float | None:
    """The weight of the divergence that a trial chose; None for models that have none."""
    chosen = piece.get("chosen", {}).get("beta")
    return None if chosen is None else float(chosen)
