"""A trial: one model trained on one split of the users, and its scores."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesdrop.experiments.boluki2020_recommender.models import MODELS

__all__ = ["split_of", "trial"]


def trial(key: Mapping[str, Any]) -> dict[str, Any]:
    """Train a model and score it on the test users.

    Returns: "recall20", "recall50" and "ndcg" (at 100) of every test user, (U,) each, and "cpu_seconds". For
    networks also what validation users chose ("chosen", "search") and, for every epoch, "validation" (NDCG)
    and "seconds"; where every item has a rate, "rates" and "popularity", the share of users who chose it.
    """
    from bayesdrop.metrics import ndcg_at, recall_at
    from bayesdrop.recommend.autoencoder import Autoencoder

    split = split_of(key)
    options = {name: key[name] for name in ("hidden", "latent", "epochs", "sampled_items", "seed")}
    options.update(key.get("scaled", {}))
    if key["beta"] is not None:
        options["beta"] = key["beta"]
    model = MODELS[key["model"]].make(options, key["recipe"] == "the paper's")
    start = time.process_time()
    model.fit(split.train, split.validation)
    spent = time.process_time() - start
    ranked = model.ranked(split.test)
    found: dict[str, Any] = {
        "recall20": recall_at(ranked, 20).values.numpy(),
        "recall50": recall_at(ranked, 50).values.numpy(),
        "ndcg": ndcg_at(ranked, 100).values.numpy(),
        "cpu_seconds": spent,
    }
    for name in ("recall20", "recall50", "ndcg"):
        found[name] = found[name][~np.isnan(found[name])]
    if isinstance(model, Autoencoder):
        found["chosen"], found["search"] = model.chosen, model.search
        found["validation"] = np.asarray(model.history)
        found["seconds"] = np.asarray(model.seconds)
        rates = model.rates()
        if rates is not None and rates.dim():
            found["rates"] = rates.numpy()
            found["popularity"] = split.train.counts() / len(split.train.users)
    return found


def split_of(key: Mapping[str, Any]) -> Any:
    """The users of a data set, split."""
    from bayesdrop.data.movielens import load_movielens_1m
    from bayesdrop.recommend import UserSplit

    # The file says which users are for training, for validation and for testing.
    if key["data"] == "movielens-1m":
        return UserSplit.of(load_movielens_1m())
    choices, min_items = _choices(key["data"], key.get("file", ""))
    held = key["held_users"]
    return choices.split_by_users(validation=held, test=held, min_items=min_items, seed=key["split_seed"])


def _choices(data: str, file: str) -> tuple[Any, int]:
    """What users liked, and how many items a user must have to be kept, as in Liang et al. (2018)."""
    from bayesdrop import data as sets
    from bayesdrop.recommend import Interactions

    if data == "file":
        import pandas as pd

        table = pd.read_csv(file)
        return Interactions.from_table(table, user="userId", item="movieId", rating="rating", at_least=4), 5
    if data == "gowalla":
        gowalla = sets.load_gowalla()
        return Interactions.from_pairs(np.concatenate([gowalla.train.numpy(), gowalla.test.numpy()])), 5
    if data == "msd":
        # Songs of at least 200 users first, then users of at least 20 songs.
        return Interactions.from_pairs(sets.load_msd().pairs().numpy()).frequent(min_users=200), 20
    rated = {
        "movielens-100k": sets.load_movielens_100k,
        "movielens-20m": sets.load_movielens_20m,
        "netflix": sets.load_netflix,
    }
    if data not in rated:
        names = ", ".join(["movielens-1m", *rated, "gowalla", "msd"])
        raise ValueError(f"boluki2020-recommender: data must be {names} or file; got {data!r}.")
    return Interactions.from_pairs(rated[data]().liked(4).numpy()), 5
