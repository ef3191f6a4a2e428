"""Rows and claims of the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.experiments.boluki2020_recommender.models import MODELS
from bayesdrop.experiments.row import Claim, Row

__all__ = ["make_claims", "make_notes", "make_rows"]

Trials = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
_METRICS = (("recall@20 (%)", "recall20"), ("recall@50 (%)", "recall50"), ("NDCG@100 (%)", "ndcg"))


def make_rows(data: str, trials: Trials) -> Iterator[Row]:
    """Three numbers a model and recipe, in per cent: means over seeds and users, errors over users."""
    note = "" if data == "file" else f"printed for MovieLens-20M; ours is {data}"
    for (model, recipe), found in trials.items():
        printed = MODELS[model].printed
        setting = f"{model}, {recipe} settings" if MODELS[model].has_recipes else model
        for place, (metric, name) in enumerate(_METRICS):
            mean, error = _summary(_users(found, name))
            paper = None if printed is None else f"{printed[place]:.2f}"
            yield Row(setting, metric, paper, 100 * mean, 100 * error, note if printed else "")
        seconds = float(np.mean([piece["cpu_seconds"] for piece in found]))
        yield Row(setting, "training (CPU s)", None, seconds)


def make_claims(trials: Trials) -> Iterator[Claim]:
    """What the paper says, each time for the paper's settings and for ours; two standard errors decide."""
    for recipe in dict.fromkeys(recipe for _, recipe in trials):

        def difference(first: str, second: str, recipe: str = recipe) -> tuple[float, float] | None:
            if (first, recipe) not in trials or (second, recipe) not in trials:
                return None
            gap = _users(trials[first, recipe], "ndcg") - _users(trials[second, recipe], "ndcg")
            return _summary(gap)

        for name in ("VAE", "Vamp", "IAF"):
            found = difference(f"{name}, dropout", name)
            if found is not None:
                yield _claim(f"Dropout of choices is crucial to the {name}", recipe, found, above=True)
        for name in ("concrete", "gaussian"):
            found = difference(f"SIVAE, {name}", "VAE, dropout")
            if found is not None:
                text = f"SIVAE with {name} dropout is worse than the VAE with dropout"
                yield _claim(text, recipe, found, above=False)
        rivals = [model for model, other in trials if other == recipe and MODELS[model].has_recipes]
        gaps = {
            model: gap
            for model in rivals
            if model != "SIVAE, learnable" and (gap := difference("SIVAE, learnable", model)) is not None
        }
        if gaps:
            nearest = min(gaps, key=lambda model: gaps[model][0])
            mean, error = gaps[nearest]
            yield Claim(
                f"SIVAE with learnable dropout is best of all VAEs ({recipe} settings): above each of them "
                "by two paired standard errors.",
                f"NDCG@100, learnable minus {nearest}, the nearest: {100 * mean:+.2f} ± {100 * error:.2f} %.",
                mean > 2 * error,
                "" if mean > 2 * error else f"It is not told apart from, or is below, {nearest}.",
            )


def _claim(text: str, recipe: str, found: tuple[float, float], *, above: bool) -> Claim:
    mean, error = found
    holds = mean > 2 * error if above else mean < -2 * error
    return Claim(
        f"{text} ({recipe} settings): NDCG@100 differs by two paired standard errors.",
        f"{100 * mean:+.2f} ± {100 * error:.2f} %.",
        holds,
        "" if holds else "The difference is within two standard errors, or of the other sign.",
    )


def make_notes(data: str) -> list[str]:
    """What differs from the paper."""
    notes = [
        "The gradient of learned rates is DisARM's with common noise, plus the path through 1 / (1 - p), "
        "which the published code leaves out.",
        "WMF is the `implicit` package's; its weight and penalty were chosen on validation users. CDAE has "
        "no vectors of users, as new users have none.",
        "Epochs and the weights that are kept are chosen by validation users, for every model alike.",
    ]
    if data != "file":
        notes.insert(0, f"The data are {data}; the paper's are MovieLens-20M, Netflix and MSD.")
    return notes


def _users(found: Sequence[Mapping[str, Any]], name: str) -> NDArray[np.float64]:
    """(U,) means over seeds."""
    value: NDArray[np.float64] = np.mean([np.asarray(piece[name]) for piece in found], axis=0)
    return value


def _summary(values: NDArray[np.float64]) -> tuple[float, float]:
    return float(values.mean()), float(values.std() / len(values) ** 0.5)
