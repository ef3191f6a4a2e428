"""What the papers say of these agents, and whether it held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.experiments.gal2016_thompson.lives import PLOTTED_EVERY
from bayesdrop.experiments.row import Claim, listed

__all__ = ["claims_of", "last_tenth", "time_to_reach"]

#: what `live` returns
Life = Mapping[str, Any]
#: "in four of five seeds"
_MOST = 0.8


def time_to_reach(ticks: NDArray[Any], reward: NDArray[Any], start: int) -> NDArray[np.float64]:
    """(M,) batches of 200 ticks after `start` until the average reward is above 1; infinite if it never is.

    Args:
        ticks: (P,) of the points.
        reward: (P, M) average reward there.
        start: the tick from which it counts.
    """
    above = (reward > 1) & (ticks[:, None] > start)
    first = np.where(above.any(0), (ticks[above.argmax(0)] - start) / PLOTTED_EVERY, np.inf)
    return np.asarray(first, np.float64)


def last_tenth(life: Life) -> int:
    """How many points of its curves the last tenth of a life has."""
    return max(1, len(life["ticks"]) // 10)


def claims_of(setting: str, own: Mapping[str, Life], early: int, start: int) -> list[Claim]:
    """The claims of one setting, for which their agents were run.

    Args:
        setting: its name.
        own: lives by kind of agent.
        early: the tick of the first comparison.
        start: the tick at which random actions end.
    """
    if "thompson" not in own:
        return []
    claims = []
    if "epsilon" in own:
        claims += [
            _faster(setting, own, early),
            _times_to_one(setting, own, start),
            _learning(setting, own, early),
        ]
    if "fast" in own:
        claims.append(_fast(setting, own, early))
    claims.append(_stalls(setting, own["thompson"]))
    if "concrete" in own:
        claims.append(_learned_rates(setting, own))
    return claims


def _at(life: Life, early: int) -> NDArray[Any]:
    """(M,) average reward at the tick `early`."""
    found: NDArray[Any] = life["reward"][int(np.searchsorted(life["ticks"], early))]
    return found


def _faster(setting: str, own: Mapping[str, Life], early: int) -> Claim:
    mine, other = _at(own["thompson"], early), _at(own["epsilon"], early)
    return Claim(
        f"5.4 ({setting}): Thompson sampling converges faster than epsilon-greedy; here: its average reward "
        f"at {early:,} ticks is higher in every seed.",
        f"{_listed(mine)} against {_listed(other)}, seed by seed.",
        bool((mine > other).all()),
    )


def _times_to_one(setting: str, own: Mapping[str, Life], start: int) -> Claim:
    times = [
        time_to_reach(own[kind]["ticks"], own[kind]["reward"], start) for kind in ("thompson", "epsilon")
    ]
    return Claim(
        f"5.4 ({setting}): Thompson sampling has a reward above 1 within 25 batches of the random start, "
        "epsilon-greedy takes 175; here: at most 25 in the median of the seeds, and seven times as long.",
        f"{_times(times[0])} batches against {_times(times[1])}, seed by seed.",
        bool(np.median(times[0]) <= 25 and np.median(times[1]) >= 7 * np.median(times[0])),
    )


def _learning(setting: str, own: Mapping[str, Life], early: int) -> Claim:
    life = own["thompson"]
    check = min(int(np.searchsorted(life["check"], early)), len(life["check"]) - 1)
    mine, other = (own[kind]["greedy_reward"][check] for kind in ("thompson", "epsilon"))
    holds = bool((mine > other).mean() >= _MOST)
    share = min(1.0, max(0.05, 1 - (early - 3_000) / 197_000))
    return Claim(
        f"5.4 ({setting}), implied: it is the learning that is faster; here: acting greedily after "
        f"{life['check'][check]:,} ticks, the Thompson agent has the higher reward in four of five seeds.",
        f"{_listed(mine)} against {_listed(other)}, seed by seed.",
        holds,
        otherwise="the curves differ because the one agent still acts at random in a share of "
        f"{share:.2f} of its ticks; what both have learned by then does not differ as the curves do.",
    )


def _fast(setting: str, own: Mapping[str, Life], early: int) -> Claim:
    mine, other = _at(own["thompson"], early), _at(own["fast"], early)
    return Claim(
        f"5.4 ({setting}), against an epsilon that falls at once: the average reward of Thompson sampling at "
        f"{early:,} ticks is higher in four of five seeds.",
        f"{_listed(mine)} against {_listed(other)}, seed by seed.",
        bool((mine > other).mean() >= _MOST),
    )


def _stalls(setting: str, life: Life) -> Claim:
    half, tenth = len(life["ticks"]) // 2, last_tenth(life)
    gain = life["reward"][-tenth:].mean() - life["reward"][half : half + tenth].mean()
    return Claim(
        f"5.4 ({setting}): the average reward of Thompson sampling stops improving, as it goes on sampling; "
        "here: less than 0.05 more in the last tenth than half-way.",
        f"{gain:+.3f}.",
        bool(gain < 0.05),
    )


def _learned_rates(setting: str, own: Mapping[str, Life]) -> Claim:
    tenth = last_tenth(own["concrete"])
    learned, fixed = (own[kind]["reward"][-tenth:].mean(0) for kind in ("concrete", "thompson"))
    rate = own["concrete"]["rates"][-1].mean(-1).max()
    return Claim(
        f"Gal, Hron & Kendall (2017), 1 ({setting}): with a fixed rate uncertainty does not fall as data "
        "come, and the agent explores for ever; here: at the end Concrete rates have the higher average "
        "reward in four of five seeds.",
        f"{_listed(learned)} with Concrete rates, {_listed(fixed)} with fixed ones; largest rate at the end, "
        f"mean of the seeds, {rate:.5f}.",
        bool((learned > fixed).mean() >= _MOST),
    )


def _listed(values: NDArray[Any]) -> str:
    return listed(values, ".2f", " ")


def _times(times: NDArray[np.float64]) -> str:
    return " ".join("never" if np.isinf(time) else f"{time:.0f}" for time in times)
