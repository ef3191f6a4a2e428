"""One model on one split: what it reaches, and what it took."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesdrop.experiments.boluki2020_recommender.models import MODELS

__all__ = ["split_of", "trial"]


def trial(key: Mapping[str, Any]) -> dict[str, Any]:
    """Recall@20, recall@50 and NDCG@100 of every test user, the course of training, and learned rates."""
    from bayesdrop.metrics import ndcg_at, recall_at
    from bayesdrop.recommend.autoencoder import Autoencoder

    split = split_of(key)
    options = {name: key[name] for name in ("hidden", "latent", "epochs", "sampled_items", "seed")}
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
    from bayesdrop.data.gowalla import load_gowalla
    from bayesdrop.data.movielens import load_movielens_1m, load_movielens_100k
    from bayesdrop.recommend import Interactions, UserSplit

    if key["data"] == "movielens-1m":
        return UserSplit.of(load_movielens_1m())
    if key["data"] == "movielens-100k":
        pairs = load_movielens_100k().liked(4).numpy()
    elif key["data"] == "gowalla":
        gowalla = load_gowalla()
        pairs = np.concatenate([gowalla.train.numpy(), gowalla.test.numpy()])
    elif key["data"] == "file":
        import pandas as pd

        table = pd.read_csv(key["file"])
        data = Interactions.from_table(table, user="userId", item="movieId", rating="rating", at_least=4)
        return _by_users(data, key)
    else:
        names = "movielens-1m, movielens-100k, gowalla or file"
        raise ValueError(f"boluki2020-recommender: data must be {names}; got {key['data']!r}.")
    return _by_users(Interactions.from_pairs(pairs), key)


def _by_users(data: Any, key: Mapping[str, Any]) -> Any:
    return data.split_by_users(validation=key["held_users"], test=key["held_users"], seed=key["split_seed"])
