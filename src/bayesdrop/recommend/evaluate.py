"""evaluate_lists(): the quality of the lists of a model, in a few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdrop.metrics.ranking import coverage_at, ndcg_at, novelty_at, recall_at
from bayesdrop.recommend.base import Recommender
from bayesdrop.recommend.interactions import HeldOutUsers, Interactions

__all__ = ["evaluate_lists"]


def evaluate_lists(
    model: Recommender, held_out: HeldOutUsers, train: Interactions | None = None
) -> dict[str, Any]:
    """Recall, NDCG, coverage and, where the training users are given, novelty and popularity bias.

    "popularity of lists" and "of what was chosen" are mean ranks of items by popularity, from 0 for the least
    popular item to 1 for the most: if the first is far above the second, lists favour popular items.

    Args:
        model: fitted.
        held_out: users that the model was not trained on.
        train: users that the model was trained on, for the popularity of items.

    Returns: "numbers" and "standard_errors" by name, "test_users", and with `train` "tenths": the shares of
    listed items, and of those that were chosen, in each tenth of all items by popularity, the least popular
    first.
    """
    items = len(model.items)
    ranked = model.ranked(held_out, min(100, items))
    long, short, top = min(100, items), min(50, items), min(20, items)
    means = {
        f"recall@{top}": recall_at(ranked, top),
        f"recall@{short}": recall_at(ranked, short),
        f"NDCG@{long}": ndcg_at(ranked, long),
    }
    numbers = {name: value.mean for name, value in means.items()}
    errors = {name: value.standard_error for name, value in means.items()}
    numbers[f"coverage@{top}"] = coverage_at(ranked, top, items)
    report: dict[str, Any] = {}
    if train is not None:
        counts = train.aligned(model.items).counts()
        share = torch.from_numpy((counts + 0.5) / (len(train.users) + 1))
        novelty = novelty_at(ranked, top, share)
        numbers[f"novelty@{top}, bits"] = novelty.mean
        errors[f"novelty@{top}, bits"] = novelty.standard_error
        rank = np.argsort(np.argsort(counts, kind="stable")) / max(1, items - 1)
        listed = ranked.items[:, :top].numpy()
        chosen = held_out.held.aligned(model.items).matrix.indices
        ranks = {"lists": rank[listed[listed >= 0]], "what was chosen": rank[chosen]}
        for name, values in ranks.items():
            numbers[f"popularity of {name}"] = float(values.mean())
        report["tenths"] = {name: _tenths(values) for name, values in ranks.items()}
    users = len(held_out.seen.users)
    return {"numbers": numbers, "standard_errors": errors, "test_users": users, **report}


def _tenths(ranks: NDArray[np.float64]) -> list[float]:
    counts = np.histogram(ranks, bins=10, range=(0, 1))[0]
    shares: list[float] = (counts / max(1, counts.sum())).tolist()
    return shares
