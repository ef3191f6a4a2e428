"""Deferral: which rows go to a person, by a threshold that was found on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bayesdrop.calibration import conformal_quantile
from bayesdrop.errors import must
from bayesdrop.tables.cells import Array, Flags
from bayesdrop.tables.written import written

__all__ = ["Deferral", "DeferralResult", "Rule", "cross_checked", "find_deferral", "outcome", "ranked"]

#: what rows are ranked by; the first is the default
SCORES = {
    "regression": ("std", "epistemic", "aleatoric"),
    "classification": ("entropy", "mutual_information", "max_prob"),
}
#: rows that must stay for their error to be trusted
_LEAST_KEPT = 10


@dataclass(frozen=True)
class Rule:
    """What is asked for: a share of rows to hand to a person, or an error that the rest may have.

    Args:
        share: at most this share of rows is handed over, the least sure ones.
        error: as few rows as possible are handed over for the rest to have at most this error: the share of
            wrong labels, or the root mean squared error in the target's units.
        by: what rows are ranked by: std, epistemic or aleatoric; entropy, mutual_information or max_prob.
    """

    share: float | None = None
    error: float | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        if self.share is not None and self.error is not None:
            raise ValueError("deferral: give a share or an error, not both.")
        if self.share is not None and not 0 <= self.share < 1:
            raise ValueError(must("deferral", "share", "in [0, 1)", self.share))
        if self.error is not None and not 0 < self.error < math.inf:
            raise ValueError(must("deferral", "error", "a positive number", self.error))

    def for_task(self, task: str) -> Rule:
        """The rule with defaults for what is None: a share of 5 %, and the first of the task's `SCORES`."""
        by = SCORES[task][0] if self.by is None else self.by
        if by not in SCORES[task]:
            raise ValueError(must("deferral", "by", f"one of {', '.join(SCORES[task])} for {task}", by))
        if task == "classification" and self.error is not None and self.error >= 1:
            raise ValueError(must("deferral", "error", "in (0, 1), a share of wrong labels", self.error))
        share = 0.05 if self.share is None and self.error is None else self.share
        return Rule(share, self.error, by)


@dataclass(frozen=True)
class Deferral:
    """A rule and its threshold: rows whose score is above go to a person."""

    rule: Rule
    threshold: float

    def __call__(self, scores: Mapping[str, Array]) -> Flags:
        """(N,) which rows go to a person: those whose score is above the threshold, or not finite."""
        score = scores[str(self.rule.by)]
        return (score > self.threshold) | ~np.isfinite(score)

    def because(self, score: float) -> str:
        """Why a row of this score goes to a person."""
        if self.threshold == -math.inf:
            return "no threshold keeps the error that was asked for"
        score_text, threshold = (written(value, digits=4) for value in (score, self.threshold))
        return f"{self.rule.by} = {score_text}, above {threshold}"

    def __str__(self) -> str:
        rule = self.rule
        if rule.error is not None:
            asked = f"so that those that stay have an error of at most {written(rule.error, digits=6)}"
        else:
            asked = f"at most {100 * (rule.share or 0):g} % of rows on average"
        if self.threshold == -math.inf:
            return f"{asked}: no threshold does it, so that all rows go"
        if self.threshold == math.inf:
            few = rule.error is None and rule.share
            return f"{asked}: {'too few rows were held out to tell which' if few else 'none need to go'}"
        return f"{asked}: those with {rule.by} above {written(self.threshold, digits=4)}"


@dataclass(frozen=True)
class DeferralResult:
    """What a deferral does to rows whose targets are known; errors are as in `Rule`."""

    rows: int
    deferred: int
    error: float  #: of all rows
    error_kept: float  #: of rows that stay; NaN if none does


def finite_rows(scores: Mapping[str, Any]) -> Flags:
    """(N,) rows whose scores, arrays (N,) or (N, K) by name, are all finite."""
    columns = [np.isfinite(values).reshape(len(values), -1).all(1) for values in scores.values()]
    finite: Flags = np.logical_and.reduce(columns)
    return finite


def ranked(scores: Mapping[str, Array], outside: Flags) -> dict[str, Array]:
    """Scores (N,) by name, infinite for rows that go to a person in any case: `outside`, or not finite."""
    return {
        name: np.where(outside | ~np.isfinite(values), np.inf, values)
        for name, values in scores.items()
        if values.ndim == 1
    }


def find_deferral(rule: Rule, scores: Mapping[str, Array], loss: Array, *, root: bool) -> Deferral:
    """The threshold that a rule asks for.

    By share: the ceil((n + 1)(1 - share))-th smallest score, which a new row's exceeds with a chance of at
    most `share`. By error: as many of the surest rows stay as have a low enough error; of labels, with one
    wrong label added for the new row. Rows with an infinite score go to a person in any case.

    Args:
        rule: of `Rule.for_task`.
        scores: (n,) of held-out rows, by name, as `ranked` gives them.
        loss: (n,) of held-out rows: squared errors, or 1 for a wrong label.
        root: whether the error is the root of the mean loss.
    """
    score = scores[str(rule.by)]
    if rule.error is None:
        share = rule.share or 0.0
        return Deferral(rule, conformal_threshold(score, 1 - share) if share else math.inf)
    order = np.argsort(score, kind="stable")[: int(np.isfinite(score).sum())]
    count = np.arange(1, len(order) + 1)
    total = np.cumsum(loss[order])
    risk = np.sqrt(total / count) if root else (total + 1) / (count + 1)
    fits = np.flatnonzero((risk <= rule.error) & (count >= min(_LEAST_KEPT, len(order))))
    # Rows of one score stay or go together: the last of them must fit.
    ordered = score[order]
    ends = [place for place in fits if place + 1 == len(order) or ordered[place + 1] > ordered[place]]
    if not ends:
        return Deferral(rule, -math.inf)
    return Deferral(rule, math.inf if ends[-1] + 1 == len(order) else float(ordered[ends[-1]]))


def conformal_threshold(scores: Array, level: float) -> float:
    """`conformal_quantile` of (n,) scores; infinite without any."""
    return float(conformal_quantile(torch.from_numpy(scores), level)) if len(scores) else math.inf


def outcome(deferred: Flags, loss: Array, *, root: bool) -> DeferralResult:
    """The error of all rows, and of those that stay; `loss` and `root` as in `find_deferral`."""

    def error(part: Array) -> float:
        mean = float(part.mean()) if len(part) else math.nan
        return math.sqrt(mean) if root else mean

    return DeferralResult(len(loss), int(np.sum(deferred)), error(loss), error(loss[~deferred]))


def cross_checked(rule: Rule, scores: Mapping[str, Array], loss: Array, *, root: bool) -> DeferralResult:
    """What a rule does to held-out rows, each half of them with the threshold of the other half.

    Arguments as of `find_deferral`.
    """
    by = str(rule.by)
    half = np.random.default_rng(0).permutation(len(loss)) % 2 == 0
    deferred = np.zeros(len(loss), dtype=bool)
    for part in (half, ~half):
        found = find_deferral(rule, {by: scores[by][~part]}, loss[~part], root=root)
        deferred[part] = found({by: scores[by][part]})
    return outcome(deferred, loss, root=root)
