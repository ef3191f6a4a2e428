"""Boluki et al. (2020), Table 2: recommenders with learnable dropout, and everything they are compared with.

A semi-implicit VAE drops choices from a user's history, each item at a rate of its own that is learned
without bias, and is compared with VAEs of other posteriors, priors and dropouts and with linear models. Users
are held out whole; of each a fifth of the items must be ranked before all others (Liang et al., 2018).

The paper's data sets are large and not at hand: its numbers, for MovieLens-20M, stand beside ours for
MovieLens-1M (and Gowalla) to be read for their order, not their size. Every network is run twice: with the
paper's settings, and with one recipe for all that was chosen on validation users (a linear decoder whose
biases begin at popularity, a normalised encoder, a divergence that weighs with the history's length, averaged
weights). Differences are paired over test users, seeds averaged.

With `--preset paper` the models run on MovieLens-20M, from a table that `--set file=ratings.csv` names.
"""

from __future__ import annotations

from dataclasses import dataclass

from bayesdrop.experiments.boluki2020_recommender.models import MODELS
from bayesdrop.experiments.boluki2020_recommender.picture import draw
from bayesdrop.experiments.boluki2020_recommender.report import make_claims, make_notes, make_rows
from bayesdrop.experiments.boluki2020_recommender.trials import trial
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Outcome

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]


@dataclass(frozen=True)
class Config:
    """All rows of the table on MovieLens-1M, five seeds, and a few of them on Gowalla."""

    data: str = "movielens-1m"  #: movielens-1m, movielens-100k, gowalla or file
    models: tuple[str, ...] = tuple(MODELS)
    recipes: tuple[str, ...] = ("our", "the paper's")
    num_seeds: int = 5
    epochs: int | None = None  #: at the most; as the models have it if None
    hidden: int = 600
    latent: int = 200
    file: str = ""  #: a table userId,movieId,rating for data = "file"
    held_users: int = 1000  #: validation users, and as many to test on
    seed: int = 0


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
    num_seeds=1,
    epochs=2,
    hidden=16,
    latent=4,
    held_users=60,
)
_FEW = ("SIVAE, learnable", "VAE, dropout", "VAE", "EASE", "popularity")
PRESETS = {
    "quick": Config(data="movielens-100k", models=_FEW, recipes=("our",), num_seeds=1, held_users=90),
    "gowalla": Config(data="gowalla", models=_FEW, recipes=("our",), num_seeds=1, held_users=3000),
    "paper": Config(data="file", held_users=10_000, recipes=("the paper's",), num_seeds=1),
}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Recall and NDCG of every model, and what the paper says of them."""
    common = {
        "data": config.data,
        "epochs": config.epochs,
        "hidden": config.hidden,
        "latent": config.latent,
        "file": config.file,
        "held_users": config.held_users,
        "split_seed": config.seed,
    }
    keys = [
        {**common, "model": model, "recipe": recipe, "seed": config.seed + seed}
        for model in config.models
        for recipe in (config.recipes if MODELS[model].has_recipes else config.recipes[:1])
        for seed in range(config.num_seeds if MODELS[model].has_seeds else 1)
    ]
    pieces = run_pieces(keys, trial, cache=cache, progress=progress, label="recommenders")
    trials = {
        (model, recipe): [
            piece
            for key, piece in zip(keys, pieces, strict=True)
            if (key["model"], key["recipe"]) == (model, recipe)
        ]
        for model in config.models
        for recipe in config.recipes
    }
    trials = {name: found for name, found in trials.items() if found}
    arrays = {}
    for (model, recipe), found in trials.items():
        for name in ("validation", "seconds", "rates", "popularity"):
            if name in found[0]:
                arrays[f"{model}|{recipe}|{name}"] = found[0][name]
        arrays[f"{model}|{recipe}|ndcg"] = [float(piece["ndcg"].mean()) for piece in found]
    return Outcome(
        tuple(make_rows(config.data, trials)),
        tuple(make_claims(trials)),
        arrays,
        tuple(make_notes(config.data)),
    )
