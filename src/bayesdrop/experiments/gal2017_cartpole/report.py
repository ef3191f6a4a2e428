"""Rows, claims and notes of the cart-pole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesdrop.experiments.gal2017_cartpole.learning import OUTPUTS
from bayesdrop.experiments.gal2017_cartpole.variants import VARIANTS
from bayesdrop.experiments.row import Claim, Row

if TYPE_CHECKING:
    from bayesdrop.experiments.gal2017_cartpole import Config

__all__ = ["LAST", "LAYERS", "make_claims", "make_notes", "make_rows"]

LAYERS = ("input", "hidden 1", "hidden 2")
PAPER_REWARD = 16.5
LAST = 5  #: trials at the end that are averaged
# Fixed before anything was run: what counts as the published reward, and as a fall.
ENOUGH, ENOUGH_WORST, FALLEN, MPC_ENOUGH = 14.5, 12.0, 1 / 3, 14.0
#: by variant, then by name: arrays of shape (seeds, trials, ...)
Found = Mapping[str, Mapping[str, np.ndarray[Any, Any]]]


def last_means(found: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """(seeds,) mean reward of the last trials' policies over all starts."""
    means: np.ndarray[Any, Any] = found["means"][:, 1:][:, -LAST:].mean(1)
    return means


def make_rows(config: Config, found: Found) -> Iterator[Row]:
    """Reward, rates and epistemic std of every agent."""
    for name, own in found.items():
        title, trials = VARIANTS[name].title, own["rewards"].shape[1]
        span = f"trials {max(trials - LAST + 1, 2)} to {trials}"
        if VARIANTS[name].control != "mpc":
            metric = f"reward, mean of {config.starts} starts, {span}"
            paper = PAPER_REWARD if name == "concrete" else None
            yield Row.of_runs(title, metric, last_means(own), paper=paper)
            worst = last_means(own).min()
            yield Row(title, f"{metric}, worst seed", None, worst)
            # Agents that went on for longer are shown at the age of the others, too.
            if trials > 10:
                early = own["means"][:, 5:10].mean(1)
                metric = f"reward, mean of {config.starts} starts, trials 6 to 10"
                yield Row.of_runs(title, metric, early)
        single = own["rewards"][:, 1:][:, -LAST:].mean(1)
        yield Row.of_runs(title, f"reward, single episodes, {span}", single)
        yield Row.of_runs(title, f"reward, best episode of {trials}", own["rewards"].max(1))
        for trial in sorted({1, min(10, trials), trials}):
            rates, spreads = own["rates"][:, trial - 1].T, own["epistemic"][:, trial - 1].T
            for layer, values in zip(LAYERS, rates, strict=True):
                yield Row.of_runs(title, f"rate, {layer}, trial {trial}", values)
            for output, values in zip(OUTPUTS, spreads, strict=True):
                yield Row.of_runs(title, f"epistemic std of {output}, trial {trial}", values)


def make_claims(config: Config, found: Found) -> Iterator[Claim]:
    """What the paper says of reward, rates and uncertainty; then what is beside it."""
    for name in ("concrete, mirrored", "concrete"):
        if name not in found:
            continue
        own, title = found[name], VARIANTS[name].title
        values = last_means(own)
        good = bool(values.mean() >= ENOUGH and values.min() >= ENOUGH_WORST)
        yield Claim(
            f"4.5: with Concrete dropout the agent reaches a cumulative reward of {PAPER_REWARD} in 25 "
            f"steps; here counted as reached from {ENOUGH} on average and {ENOUGH_WORST:g} in the worst "
            "seed.",
            f"{title}: mean of {config.starts} starts in the last {LAST} of {own['rewards'].shape[1]} "
            f"trials {values.mean():.1f}, by seed {_listed(values)}; best single episode "
            f"{own['rewards'].max():.1f}.",
            good,
            otherwise=f"{int((values >= ENOUGH).sum())} of {len(values)} seeds reach it. What is slow is "
            "the search of a policy, which swings the pole up early and learns late to catch it.",
        )
        yield from _falls(title, own)
    for name in ("fixed", "scheduled"):
        if name in found:
            yield _fixed_or_scheduled(name, found[name])
    if "mpc" in found:
        best = found["mpc"]["rewards"].max(1)
        when = [_first_above(row, MPC_ENOUGH) for row in found["mpc"]["rewards"]]
        trials = found["mpc"]["rewards"].shape[1]
        yield Claim(
            f"Beside the paper: planning anew at every step with the same model passes {MPC_ENOUGH:g} "
            f"within {trials} trials.",
            f"best episode by seed {_listed(best)}; first above {MPC_ENOUGH:g} at trial "
            f"{', '.join(map(str, when))}.",
            bool((best > MPC_ENOUGH).all()),
        )
    if "plain" in found:
        values = last_means(found["plain"])
        good = bool(values.mean() >= ENOUGH)
        yield Claim(
            "4.5: the search is that of deep PILCO: gradients from a random policy of radial basis "
            "functions, with moment matching.",
            f"{config.plain_steps} steps a trial: {values.mean():.1f} in the last trials of "
            f"{found['plain']['rewards'].shape[1]}, by seed {_listed(values)}.",
            good,
            otherwise="Not from there in so few steps: the reward is flat where the pole hangs.",
        )


def make_notes(config: Config) -> list[str]:
    """What differs from the paper."""
    return [
        f"Pole of 0.6 m, five Runge-Kutta steps of 0.02 s, measurement noise 0.01, starts N(hanging, 0.1^2). "
        f"Single episodes are noisy: policies are measured over {config.starts} starts that are the same for "
        "all.",
        "Inputs and outputs are scaled by fixed numbers; the noise is predicted (heteroscedastic), at least "
        "exp(-2) output scales. Imagined episodes go along the mean of each function, without that noise.",
        "Fixed and scheduled rates leave the six inputs alone: to drop one of them in ten hurts.",
        "The search is helped by a second, wider reward (0.8 m; weight 0.5 for three trials, then 0.1). The "
        "published search has the paper's reward alone.",
        "Mirrored data double N, and are prior knowledge that the paper does not use. They are marked.",
        "Epistemic std: of the functions' means, root of its mean square over transitions that were held "
        "out, one in eight of all so far, so that the set grows and moves with the policy.",
        "Settings of the search were chosen on earlier runs of seeds 0 and 1, the smoothness of plans by "
        "what plans return in models learned with seeds 0 and 3; all are among the five. What "
        "counts as reached or fallen was fixed before any run, but for the scheduled rate and the published "
        "search.",
        "The paper prints no numbers in this figure but the reward.",
    ]


def _falls(title: str, own: Mapping[str, np.ndarray[Any, Any]]) -> Iterator[Claim]:
    """Rates and epistemic uncertainty with Concrete dropout."""
    for what, names, text in (
        ("rates", LAYERS, "Fig. 9a-c: the drop rates fall as data come in"),
        ("epistemic", OUTPUTS, "Fig. 9d-g: the epistemic uncertainty falls as data come in"),
    ):
        late = min(10, own[what].shape[1])
        first, then = own[what][:, 0].mean(0), own[what][:, late - 1].mean(0)
        holds = bool((then < FALLEN * first).all())
        yield Claim(
            f"{text}; here to less than a third of trial 1 at trial {late}.",
            f"{title}: "
            + "; ".join(f"{name} {a:.3g} to {b:.2g}" for name, a, b in zip(names, first, then, strict=True))
            + ".",
            holds,
        )


def _fixed_or_scheduled(name: str, own: Mapping[str, np.ndarray[Any, Any]]) -> Claim:
    """Epistemic uncertainty stays where the rate is fixed, and falls where it is set to fall."""
    late = min(10, own["epistemic"].shape[1])
    first, then = own["epistemic"][:, 0].mean(0), own["epistemic"][:, late - 1].mean(0)
    ratio = float((then / first).mean())
    values = last_means(own)
    what = "a fixed rate" if name == "fixed" else "a rate that falls by hand"
    wanted = ratio >= FALLEN if name == "fixed" else ratio < FALLEN
    says = "stays" if name == "fixed" else "falls"
    where = "4.5, fig. 9" if name == "fixed" else "Beside the paper"
    return Claim(
        f"{where}: with {what} the epistemic uncertainty {says}: at trial {late} "
        f"{'at least' if name == 'fixed' else 'less than'} a third of that at trial 1.",
        f"{VARIANTS[name].title}: "
        + "; ".join(f"{part} {a:.3g} to {b:.2g}" for part, a, b in zip(OUTPUTS, first, then, strict=True))
        + f"; {ratio:.2f} of it on average. Reward in the last trials {values.mean():.1f}.",
        wanted,
        "" if wanted or name == "fixed" else "By hand it falls as the schedule says, not as the data do.",
    )


def _first_above(rewards: np.ndarray[Any, Any], level: float) -> int | str:
    above = np.flatnonzero(rewards > level)
    return int(above[0]) + 1 if len(above) else "none"


def _listed(values: np.ndarray[Any, Any]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)
