"""Rows and claims of the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.experiments.boluki2020_recommender.models import MODELS, PRINTED
from bayesdrop.experiments.row import Claim, Row

__all__ = ["Trials", "make_arrays", "make_claims", "make_missing", "make_notes", "make_rows"]

#: what `trial` returned for every seed, by model and recipe
Trials = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
_METRICS = (("recall@20 (%)", "recall20"), ("recall@50 (%)", "recall50"), ("NDCG@100 (%)", "ndcg"))


def make_rows(data: str, trials: Trials) -> Iterator[Row]:
    """For every model and recipe three scores, in per cent, and the time that training took.

    Scores are means over seeds and users; their standard errors are over users.
    """
    for (model, recipe), found in trials.items():
        printed, note = _printed(data, model)
        setting = _setting(data, model, recipe)
        for place, (metric, name) in enumerate(_METRICS):
            mean, error = _summary(_users(found, name))
            yield Row(setting, metric, printed and printed[place], 100 * mean, 100 * error, note)
        seconds = float(np.mean([piece["cpu_seconds"] for piece in found]))
        yield Row(setting, "training (CPU s)", None, seconds, note=_searched(found[0]))


def make_missing(data: str, model: str, recipe: str, reason: str) -> Row:
    """The row of a model whose data set is not at hand."""
    printed, _ = _printed(data, model)
    return Row(_setting(data, model, recipe), _METRICS[2][0], printed and printed[2], None, note=reason)


def _printed(data: str, model: str) -> tuple[tuple[str, str, str] | None, str]:
    """What the paper prints for a data set, or else for MovieLens-20M, and the note of the row."""
    if data in PRINTED:
        return PRINTED[data].get(model), ""
    printed = PRINTED["movielens-20m"].get(model)
    return printed, f"printed for MovieLens-20M; ours is {data}" if printed and data != "file" else ""


def _setting(data: str, model: str, recipe: str) -> str:
    return f"{data}: {model}, {recipe} settings" if MODELS[model].has_recipes else f"{data}: {model}"


def _searched(piece: Mapping[str, Any]) -> str:
    """The note of a row: what validation users chose."""
    if "chosen" not in piece:
        return ""
    chosen, tried = piece["chosen"], len(piece["search"])
    beta = f"beta {chosen['beta']:g} of {tried} tried by the first seed, " if "beta" in chosen else ""
    return f"{beta}score by {'the mean network' if chosen['score'] == 'mean' else 'an average over draws'}"


def make_arrays(data: str, trials: Trials) -> dict[str, Any]:
    """For the picture: scores during training and learned rates of the first seed, and NDCG of all seeds."""
    arrays: dict[str, Any] = {}
    for (model, recipe), found in trials.items():
        for name in ("validation", "seconds", "rates", "popularity"):
            if name in found[0]:
                arrays[f"{data}|{model}|{recipe}|{name}"] = found[0][name]
        arrays[f"{data}|{model}|{recipe}|ndcg"] = [float(piece["ndcg"].mean()) for piece in found]
    return arrays


def make_claims(data: str, trials: Trials) -> Iterator[Claim]:
    """What the paper says, for its settings and for ours. A difference counts from two standard errors on."""
    for recipe in dict.fromkeys(recipe for _, recipe in trials):
        where = f"{data}, {recipe} settings"

        def difference(first: str, second: str, recipe: str = recipe) -> tuple[float, float] | None:
            if (first, recipe) not in trials or (second, recipe) not in trials:
                return None
            gap = _users(trials[first, recipe], "ndcg") - _users(trials[second, recipe], "ndcg")
            return _summary(gap)

        for name in ("VAE", "Vamp", "IAF"):
            found = difference(f"{name}, dropout", name)
            if found is not None:
                yield _claim(f"Dropout of choices is crucial to the {name}", where, found, above=True)
        for name in ("concrete", "gaussian"):
            found = difference(f"SIVAE, {name}", "VAE, dropout")
            if found is not None:
                text = f"SIVAE with {name} dropout is worse than the VAE with dropout"
                yield _claim(text, where, found, above=False)
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
                f"SIVAE with learnable dropout is best of all VAEs ({where}): above each of them "
                "by two paired standard errors.",
                f"NDCG@100, learnable minus {nearest}, the nearest: {100 * mean:+.2f} ± {100 * error:.2f} %.",
                mean > 2 * error,
                otherwise=f"It is not told apart from, or is below, {nearest}.",
            )


def _claim(text: str, where: str, found: tuple[float, float], *, above: bool) -> Claim:
    mean, error = found
    holds = mean > 2 * error if above else mean < -2 * error
    return Claim(
        f"{text} ({where}): NDCG@100 differs by two paired standard errors.",
        f"{100 * mean:+.2f} ± {100 * error:.2f} %.",
        holds,
        otherwise="The difference is within two standard errors, or of the other sign.",
    )


def make_notes(data: str) -> list[str]:
    """What differs from the paper."""
    notes = [
        "The gradient of learned rates is DisARM's with common noise, plus the path through 1 / (1 - p), "
        "which the published code leaves out.",
        "WMF is the `implicit` package's; its weight and penalty were chosen on validation users. CDAE has "
        "no vectors of users, as new users have none.",
        "Epochs, the weights that are kept, the weight of the divergence and whether scores are averaged "
        "over draws are chosen by validation users, for every model alike.",
    ]
    if data != "file" and data not in PRINTED:
        notes.insert(0, f"The data are {data}; the paper's are MovieLens-20M, Netflix and MSD.")
        notes.append(
            "In the paper's settings the divergence reaches its full weight after 400 steps, that of SIVAE "
            "with its larger batches after 200, instead of 40,000: there are fewer users."
        )
    return notes


def _users(found: Sequence[Mapping[str, Any]], name: str) -> NDArray[np.float64]:
    """(U,) a score of every test user, mean over seeds."""
    value: NDArray[np.float64] = np.mean([np.asarray(piece[name]) for piece in found], axis=0)
    return value


def _summary(values: NDArray[np.float64]) -> tuple[float, float]:
    return float(values.mean()), float(values.std() / len(values) ** 0.5)
