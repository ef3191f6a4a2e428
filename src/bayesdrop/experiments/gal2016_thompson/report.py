"""Rows, curves and claims from the lives of all agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesdrop.experiments.gal2016_thompson.claims import claims_of, last_tenth, time_to_reach
from bayesdrop.experiments.gal2016_thompson.lives import KINDS, PLOTTED_EVERY, SETTINGS
from bayesdrop.experiments.row import Claim, Outcome, Row

__all__ = ["report"]

#: what `live` returns, by setting and kind of agent
Lives = Mapping[tuple[str, str], Mapping[str, Any]]
#: as in the paper: batches of 200 ticks after the random start until the average reward is above 1
PAPER_TIMES = {"thompson": 25.0, "epsilon": 175.0}
#: every fifth point of the curves is in the picture
_THINNED = 5


def report(lives: Lives, *, early: int, random_steps: int | None) -> Outcome:
    """The outcome of all lives.

    Args:
        lives: by setting and kind of agent, as `live` gives them.
        early: the tick of the first comparison.
        random_steps: those of the start; of the setting if None.
    """
    rows: list[Row] = []
    arrays: dict[str, Any] = {}
    claims: list[Claim] = []
    for setting in dict.fromkeys(setting for setting, _ in lives):
        own = {kind: life for (where, kind), life in lives.items() if where == setting}
        start = SETTINGS[setting].random_steps if random_steps is None else random_steps
        for kind, life in own.items():
            rows += _rows(setting, kind, life, early, start)
            arrays |= _curves(f"{setting} {kind}", life)
        claims += claims_of(setting, own, early, start)
    film = next((life["film"] for (setting, kind), life in lives.items() if kind == "thompson"), None)
    arrays["film"] = np.zeros(1, np.int64) if film is None else film
    arrays["lives"] = [f"{setting} {kind}" for setting, kind in lives]
    notes = (
        "Average reward is the mean of the last 1,000 rewards, noted every 200 ticks, the paper's batches.",
        "Every agent has a world of its own; the demo page has both agents in one.",
        "An item is seen at the foot of its perpendicular on the ray; the published code puts it up to 20 "
        "pixels off on one side.",
        "Concrete rates start where the fixed ones are and have KL / N in the loss, N being the ticks so "
        "far, prior length scale 0.01 and ten times the learning rate of the weights.",
    )
    return Outcome(rows, claims, arrays, notes)


def _rows(setting: str, kind: str, life: Mapping[str, Any], early: int, start: int) -> list[Row]:
    name = f"{setting}: {KINDS[kind]}"
    first = int(np.searchsorted(life["ticks"], early))
    check = min(int(np.searchsorted(life["check"], early)), len(life["check"]) - 1)
    last = life["reward"][-last_tenth(life) :].mean(0)
    times = time_to_reach(life["ticks"], life["reward"], start)
    reached = np.isfinite(times)
    whole = (life["ticks"][-1] - start) / PLOTTED_EVERY
    note = f"median of seeds; {reached.sum()} of {len(times)} reach it, the others count as the whole run"
    median = float(np.median(np.where(reached, times, whole)))
    rows = [
        Row.of_runs(name, f"average reward at {early:,} ticks", life["reward"][first]),
        Row.of_runs(name, "average reward at the end, mean of the last tenth", last),
        Row(name, "batches from the random start to a reward of 1", PAPER_TIMES.get(kind), median, note=note),
        Row.of_runs(name, f"greedy: reward at {early:,} ticks", life["greedy_reward"][check]),
    ]
    # The mean over the evaluations of the last fifth, as single ones are noisy.
    late = max(1, len(life["check"]) // 5)
    labels = {"reward": "reward", "food": "food in 1,000 ticks", "poison": "poison in 1,000 ticks"}
    for what, label in labels.items():
        last = life[f"greedy_{what}"][-late:].mean(0)
        rows.append(Row.of_runs(name, f"greedy: {label} at the end", last))
    if kind == "concrete":
        used = [layer for layer in life["rates"][-1] if layer.max() > 0]
        rows.append(Row.of_runs(name, "largest rate at the end", np.max(used, 0)))
    return rows


def _curves(name: str, life: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of the picture, thinned and rounded, as people read the results file too."""
    arrays: dict[str, Any] = {f"{name} ticks": life["ticks"][_THINNED - 1 :: _THINNED]}
    arrays[f"{name} reward"] = np.round(life["reward"][_THINNED - 1 :: _THINNED].astype(float), 3)
    arrays[f"{name} check"] = life["check"]
    for what in ("reward", "food", "poison"):
        arrays[f"{name} greedy {what}"] = np.round(life[f"greedy_{what}"].astype(float), 3)
    arrays[f"{name} rates"] = np.round(life["rates"].mean(-1).astype(float), 5)
    return arrays
