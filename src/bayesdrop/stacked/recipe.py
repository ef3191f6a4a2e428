"""Recipe: how a table is fitted, from candidates that are tried to the networks that are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bayesdrop.errors import must, whole_number
from bayesdrop.stacked.settings import Settings

__all__ = ["Candidate", "Recipe"]


@dataclass(frozen=True)
class Candidate:
    """A network to try.

    Args:
        settings: how it is built and trained.
        bins: intervals of the piecewise-linear encoding of every column (see `Encoder`); 0 for none.
    """

    settings: Settings
    bins: int = 0

    def __post_init__(self) -> None:
        bins = whole_number("Candidate", "bins", self.bins, at_least=0, at_most=10_000)
        object.__setattr__(self, "bins", bins)

    def __str__(self) -> str:
        one = self.settings
        shape = "-".join(str(width) for width in one.hidden)
        extra = "" if one.noise_pace is None else f", noise pace {one.noise_pace:g}"
        extra += f", {self.bins} bins" if self.bins else ""
        return f"{one.method} {shape} {one.activation}, p {one.p}, l {one.length_scale:g}{extra}"


@dataclass(frozen=True)
class Recipe:
    """How a table is fitted. No test row is ever looked at: all choices are made inside the table.

    Every candidate is trained `parts` times, each time without one part of the rows. What the networks
    say about the rows they have not seen chooses among candidates and sets the noise. Then either one
    candidate is trained anew on all rows (`refit`), or the networks that held rows out are themselves kept
    and joined by others: a mixture of dropout posteriors with equal weights, whose components are picked
    one block after another so as to make unseen rows most probable. Where every row is held out in turn,
    each block cuts the table anew; else all blocks hold out the same rows.

    Args:
        candidates: what to try. One candidate and `parts=0` is a plain fit.
        folds: the table is cut into so many parts at random.
        parts: how many of them are held out, by a network each; 0 for no search at all.
        blocks: how many blocks of `parts` networks are picked.
        holdout: "random" parts, or the "last" rows as they stand (one part: folds of 5 are 20 %).
        refit: train the candidate that is best on all rows, `restarts` times.
        restarts: networks of a refit, or of a fit without search.
        calibrate: set the noise by the rows that were held out.
        tails: whether the noise may be Student's t, with degrees of freedom that suit those rows.
        precisions: precisions tau, in the target's units, to choose from; needs a fixed noise. Networks
            are trained at the middle one: at small length scales it does not matter for the weights.
        num_draws: draws of all networks together, when predicting.
        judge_draws: draws of each network for the rows it held out. The log of a mean over few draws is too
            low, the more so the more draws differ: among rates, few draws prefer the small ones.
        rounds: rounds of Bayesian optimisation, each of `batch` candidates.
        batch: candidates of a round.
    """

    candidates: tuple[Candidate, ...]
    folds: int = 10
    parts: int = 10
    blocks: int = 1
    holdout: Literal["random", "last"] = "random"
    refit: bool = False
    restarts: int = 1
    calibrate: bool = True
    tails: bool = False
    precisions: tuple[float, ...] | None = None
    num_draws: int = 300
    judge_draws: int = 24
    rounds: int = 0
    batch: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(self.candidates))
        if not self.candidates:
            raise ValueError(must("Recipe", "candidates", "at least one Candidate", self.candidates))
        if self.folds < 2:
            raise ValueError(must("Recipe", "folds", "at least 2", self.folds))
        if not 0 <= self.parts <= self.folds:
            raise ValueError(must("Recipe", "parts", f"from 0 to folds ({self.folds})", self.parts))
        if self.parts == 0 and (len(self.candidates) > 1 or self.precisions is not None or self.rounds):
            hint = "Nothing could choose among candidates."
            raise ValueError(must("Recipe", "parts", "at least 1 with something to choose", 0, hint))
        if self.holdout == "last" and self.parts > 1:
            raise ValueError(must("Recipe", "parts", "1 with holdout='last'", self.parts))
        for name in ("blocks", "restarts", "num_draws", "judge_draws", "batch"):
            object.__setattr__(self, name, whole_number("Recipe", name, getattr(self, name), at_least=1))
        if self.precisions is not None and any(one.settings.noise != "fixed" for one in self.candidates):
            raise ValueError(must("Recipe", "precisions", "None unless noise='fixed'", self.precisions))
