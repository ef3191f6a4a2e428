"""Rows and claims from all dives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesdrop.experiments.deep_sea.dives import KINDS
from bayesdrop.experiments.row import Claim, Outcome, Row

__all__ = ["report"]

Found = Mapping[tuple[str, int], Any]


def report(found: Found, fading: Mapping[str, Any], config: Any) -> Outcome:
    """The outcome of all dives.

    Args:
        found: by kind of agent and depth, as `dive` gives them.
        fading: by kind of agent, as `fade` gives them, at the greatest depth.
        config: of the run.
    """
    depths, agents, limit, looks = config.depths, config.agents, config.episodes, config.looks
    rows = []
    for (agent, depth), piece in found.items():
        solved = np.asarray(piece["solved"])
        median = float(np.median(np.where(solved > 0, solved, limit)))
        note = (
            f"median of seeds; {(solved > 0).sum()} of {len(solved)} solve it, the others count as the limit"
        )
        rows.append(Row(f"depth {depth}: {KINDS[agent]}", "episodes until solved", None, median, note=note))
    deepest = max(depths)
    for agent, piece in fading.items():
        for place, cell in enumerate(("first cell", "cell of the treasure")):
            for look in (0, len(looks) - 1):
                values = np.asarray(piece["spread"])[place, look]
                metric = f"spread of functions after {looks[look]} episodes, {cell}"
                rows.append(Row(f"depth {deepest}: {KINDS[agent]}", metric, None, float(values.mean())))
    arrays: dict[str, Any] = {
        "agents": list(agents),
        "depths": list(depths),
        "limit": limit,
        "looks": list(looks),
        "solved": np.array([[found[agent, depth]["solved"] for depth in depths] for agent in agents]),
        **{f"fading {agent}": np.asarray(piece["spread"]) for agent, piece in fading.items()},
    }
    notes = (
        "First weights of the first layer are N(0, 1), as inputs are one-hot; settings other than those of "
        "exploration were chosen at depth 6 so that epsilon-greedy and the ensemble learn.",
    )
    return Outcome(rows, _claims(found, _why(fading, looks[-1]), agents, deepest, limit), arrays, notes)


def _claims(found: Found, why: str, agents: Sequence[str], depth: int, limit: int) -> tuple[Claim, ...]:
    if set(agents) != set(KINDS):
        return ()
    solved = {agent: np.asarray(found[agent, depth]["solved"]) for agent in KINDS}
    median = {agent: float(np.median(np.where(each > 0, each, limit))) for agent, each in solved.items()}
    share = {agent: f"{(each > 0).sum()} of {len(each)} solved" for agent, each in solved.items()}
    told = {agent: f"{median[agent]:.0f} episodes ({share[agent]})" for agent in KINDS}
    before, after = np.asarray(found["episode", depth]["spread"]).mean(1)
    learned = np.asarray(found["concrete", depth]["spread"]).mean(1)
    return (
        Claim(
            "Gal & Ghahramani (2016), 5.4, carried over: functions drawn by dropout explore; here: held an "
            f"episode, dropout 0.5 solves depth {depth} in at most half of epsilon-greedy's median.",
            f"{told['episode']} against {told['epsilon']}; at 0.1 {told['low']}, "
            f"Concrete {told['concrete']}.",
            median["episode"] <= 0.5 * median["epsilon"],
            otherwise=why,
        ),
        Claim(
            f"Osband et al. (2016): a bootstrapped ensemble explores deeply; here: it solves depth {depth} "
            "in at most half of epsilon-greedy's median.",
            f"{told['ensemble']} against {told['epsilon']}.",
            median["ensemble"] <= 0.5 * median["epsilon"],
        ),
        Claim(
            "Osband et al. (2016): exploration must be consistent over an episode; here: dropout 0.5 held an "
            f"episode has a lower median than held a step at depth {depth}.",
            f"{told['episode']} against {told['step']}.",
            median["episode"] < median["step"],
        ),
        Claim(
            "Osband (2016): dropout at a fixed rate does not concentrate with data; here: the spread of "
            "functions in the first cell, which every episode visits, does not fall below half of its first.",
            f"{before:.3f} before and {after:.3f} after with dropout 0.5; {learned[0]:.3f} and "
            f"{learned[1]:.3f} with Concrete rates.",
            bool(after >= 0.5 * before),
        ),
    )


def _why(fading: Mapping[str, Any], episodes: int) -> str:
    """The correction of the first claim: how functions come to agree before a treasure is found."""
    if not {"episode", "ensemble"} <= set(fading):
        return ""
    told = []
    for agent in ("episode", "ensemble"):
        values = np.asarray(fading[agent]["spread"]).mean(-1)[1]
        told.append(f"from {values[0]:.2f} to {values[-1]:.4f} ({KINDS[agent]})")
    return (
        "values are learned to be 0 while no treasure is found, and noise that multiplies them vanishes with "
        "them, in cells that were never seen too: in the treasure's the standard deviation over functions "
        f"falls, in {episodes} episodes, {told[0]} and {told[1]}."
    )
