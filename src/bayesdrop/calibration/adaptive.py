"""Intervals whose coverage is kept while the data drift, by a level that is moved after every row."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from bayesdrop.calibration.numbers import ConformalRegressor, Score
from bayesdrop.calibration.rank import check_level, threshold_rank
from bayesdrop.calibration.saved import Calibrator
from bayesdrop.errors import must, must_be_tensor, real_number, whole_number
from bayesdrop.predict import Prediction

__all__ = ["AdaptiveConformal", "AdaptiveThreshold"]


class AdaptiveThreshold:
    """The threshold of one stream of scores, moved so that the wanted share of them stays below it.

    With alpha = 1 - level and alpha_1 = alpha, after the score s_t of every row

        miss_t = [s_t > quantile of the latest scores at 1 - alpha_t],
        alpha_(t + 1) = alpha_t + rate (alpha - miss_t).

    Then, for every sequence of scores, drifting or chosen by an adversary,

        |(1/T) sum_t miss_t - alpha| <= (max(alpha_1, 1 - alpha_1) + rate) / (T rate).

    If alpha_t is 0 or less nothing is a miss, and if it is 1 or more everything is. Where a target becomes
    known only after up to `d` others have, the bound has (d + 1) rate in the place of rate above the line.

    Args:
        level: wanted share of scores at or below the threshold, as 0.9.
        rate: how far a row moves the level. Large follows fast and wavers, small the reverse.
        window: how many scores are remembered, the latest.
        scores: to begin with, the oldest first.

    Reference: Gibbs & Candes (2021), Eq. (2) and Proposition 4.1. Their gamma is our `rate`.

    >>> threshold = AdaptiveThreshold(0.9, rate=0.05, scores=[1.0] * 50)
    >>> drifting = [1 + 0.01 * t for t in range(2000)]  # each larger than all that were before
    >>> misses = sum(not threshold.observe(score) for score in drifting)
    >>> abs(misses / 2000 - 0.1) <= (0.9 + 0.05) / (2000 * 0.05)
    True
    """

    def __init__(
        self, level: float = 0.9, *, rate: float = 0.01, window: int = 1000, scores: Iterable[float] = ()
    ) -> None:
        owner = "AdaptiveThreshold"
        self.level = check_level(owner, level)
        self.rate = real_number(owner, "rate", rate, "a positive number", above=0)
        self.window = whole_number(owner, "window", window, at_least=1)
        self.alpha = 1 - self.level  #: the share of misses that the next threshold is made for
        self._latest: deque[float] = deque()
        self._ordered: list[float] = []
        for score in scores:
            self._remember(_checked_score(score))

    @property
    def scores(self) -> tuple[float, ...]:
        """The scores that are remembered, the oldest first."""
        return tuple(self._latest)

    @property
    def value(self) -> float:
        """The threshold now: infinite if everything is let in, minus infinite if nothing is."""
        if self.alpha >= 1:
            return -math.inf
        wanted = 1 - self.alpha
        # At alpha_1 the level as it was given: 1 - (1 - 0.9) is not 0.9, and the rank is counted exactly.
        rank = threshold_rank(
            len(self._ordered), self.level if math.isclose(wanted, self.level, abs_tol=1e-12) else wanted
        )
        return math.inf if self.alpha <= 0 or rank > len(self._ordered) else self._ordered[rank - 1]

    def observe(self, score: float, *, covered: bool | None = None) -> bool:
        """Take the score of a row whose target has become known; whether it was covered.

        Args:
            score: of the target.
            covered: by the threshold that was given out for this row; by the one of now if None.
        """
        score = _checked_score(score)
        # Above 1 nothing is covered, not even a score of minus infinity.
        found = score <= self.value and self.alpha < 1 if covered is None else bool(covered)
        self.alpha += self.rate * ((1 - self.level) - (not found))
        self._remember(score)
        return found

    def _remember(self, score: float) -> None:
        self._latest.append(score)
        insort(self._ordered, score)
        if len(self._latest) > self.window:
            del self._ordered[bisect_left(self._ordered, self._latest.popleft())]


class AdaptiveConformal(Calibrator):
    """Conformal intervals that keep their coverage when the data drift.

    `ConformalRegressor` promises coverage for rows like those of its calibration set. This one is told the
    targets as they become known (`update`), and then moves its level and forgets old scores: over T rows in
    their order, whatever they are,

        |share of rows that were covered - level| <= (max(level, 1 - level) + rate) / (T rate).

    The promise is about the average over time, for each output, or for all outputs of a row at once with
    `joint`; and for each group on its own where groups are given, with T the rows of that group. A group that
    `fit` has not seen begins with the scores of all.

    Args:
        level: coverage, as 0.9.
        rate: how far a row moves the level: 0.005 to 0.05. The width wavers with its size.
        window: how many of the latest scores, of a group, quantiles are taken of.
        score: "scaled", "quantile" or "absolute", as of `ConformalRegressor`.
        joint: cover all outputs of a row at once.

    Reference: Gibbs & Candes (2021). See `AdaptiveThreshold` for the update.

    >>> from bayesdrop import Gaussian, Prediction
    >>> _ = torch.manual_seed(0)
    >>> y = torch.randn(3000, 1) * torch.linspace(1, 4, 3000)[:, None]  # ever noisier
    >>> says = Prediction.from_draws(torch.zeros(2, 3000, 1), Gaussian(1.0))
    >>> online = AdaptiveConformal(0.9, rate=0.02).fit(says, torch.randn(3000, 1))
    >>> covered = online.update(says, y)
    >>> abs(float(covered.double().mean()) - 0.9) <= (0.9 + 0.02) / (3000 * 0.02)
    True
    """

    def __init__(
        self,
        level: float = 0.9,
        *,
        rate: float = 0.01,
        window: int = 1000,
        score: Score = "scaled",
        joint: bool = False,
    ) -> None:
        self._base = ConformalRegressor(level, score=score, joint=joint)
        self._start = AdaptiveThreshold(level, rate=rate, window=window)
        self._shape: tuple[int, ...] | None = None
        self._groups: dict[Hashable, list[AdaptiveThreshold]] = {}
        self._pooled: list[tuple[float, ...]] = []

    @property
    def level(self) -> float:
        """The coverage that is promised."""
        return self._base.level

    @property
    def groups(self) -> tuple[Hashable, ...]:
        """The groups that were seen; (None,) without any."""
        return tuple(self._groups)

    def alpha(self, group: Hashable = None) -> Tensor:
        """alpha_t of every output of a group, 1 - level at the start. Shape of a row; () if `joint`."""
        return self._of_group("alpha", group, "alpha")

    def threshold(self, group: Hashable = None) -> Tensor:
        """c of every output of a group, as of `ConformalRegressor.threshold`; it may be infinite."""
        return self._of_group("threshold", group, "value")

    def fit(self, prediction: Prediction, y: Tensor, *, groups: Sequence[Hashable] | None = None) -> Self:
        """Begin with the scores of a calibration set; the level is as it was given.

        Args:
            prediction: of numbers, mean (N, D).
            y: (N, D) targets.
            groups: of every row: texts or whole numbers.

        Returns: itself.
        """
        scores = self._base.scores(prediction, y)
        names = _group_names("AdaptiveConformal.fit", groups, len(scores))
        flat = scores.reshape(len(scores), -1)
        self._shape = tuple(scores.shape[1:])
        self._pooled = [tuple(column) for column in flat[-self._start.window :].T.tolist()]
        self._groups = {}
        for name in dict.fromkeys(names):
            own = flat[torch.tensor([other == name for other in names])]
            self._groups[name] = [self._threshold(column) for column in own.T.tolist()]
        return self

    def intervals(
        self, prediction: Prediction, *, groups: Sequence[Hashable] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Lower and upper ends for rows whose targets are not known yet, each of the shape of the mean.

        Ends are infinite while the level asks for more than the scores can tell, and both are the middle
        where it asks for nothing.

        Args:
            prediction: of numbers.
            groups: of every row.
        """
        self.must_be_fitted("intervals")
        assert self._shape is not None
        names = _group_names("AdaptiveConformal.intervals", groups, len(prediction.mean))
        found = {name: self.threshold(name) for name in dict.fromkeys(names)}
        if not names:
            return self._base.intervals_at(prediction, torch.zeros(0, *self._shape, dtype=torch.float64))
        return self._base.intervals_at(prediction, torch.stack([found[name] for name in names]))

    def update(
        self,
        prediction: Prediction,
        y: Tensor,
        *,
        groups: Sequence[Hashable] | None = None,
        covered: Tensor | None = None,
    ) -> Tensor:
        """Learn from rows whose targets have become known, one after the other in their order.

        Args:
            prediction: of numbers, mean (N, D).
            y: (N, D) targets.
            groups: of every row.
            covered: (N, D), or (N,) if `joint`: whether the intervals that were given out contained the
                targets, for rows that are told late; each row is judged by the state just before it if None.

        Returns: (N, D), or (N,) if `joint`: whether each was covered.
        """
        owner = "AdaptiveConformal.update"
        self.must_be_fitted("update")
        scores = self._base.scores(prediction, y)
        names = _group_names(owner, groups, len(scores))
        if tuple(scores.shape[1:]) != self._shape:
            want = f"of outputs {self._shape}, as the calibration set's"
            raise ValueError(must(owner, "prediction", want, tuple(scores.shape[1:])))
        if covered is not None:
            must_be_tensor(owner, "covered", covered)
            if covered.shape != scores.shape or covered.dtype != torch.bool:
                want = f"booleans of shape {tuple(scores.shape)}"
                raise ValueError(must(owner, "covered", want, f"{covered.dtype} {tuple(covered.shape)}"))
        told = torch.zeros(scores.shape, dtype=torch.bool).reshape(len(scores), -1)
        given = None if covered is None else covered.reshape(len(scores), -1).tolist()
        for row, (name, values) in enumerate(zip(names, scores.reshape(told.shape).tolist(), strict=True)):
            for place, threshold in enumerate(self._online(name)):
                known = None if given is None else given[row][place]
                told[row, place] = threshold.observe(values[place], covered=known)
        return told.reshape(scores.shape)

    def options(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        own = {"level": self.level, "rate": self._start.rate, "window": self._start.window}
        return own | {"score": self._base.score, "joint": self._base.joint}

    def fitted(self) -> dict[str, Any] | None:
        """The shape of a row, the calibration scores of all, and levels and scores of every group."""
        if self._shape is None:
            return None
        groups = [
            {"name": name, "outputs": [{"alpha": one.alpha, "scores": list(one.scores)} for one in outputs]}
            for name, outputs in self._groups.items()
        ]
        return {"shape": list(self._shape), "pooled": [list(one) for one in self._pooled], "groups": groups}

    def put(self, fitted: Mapping[str, Any]) -> None:
        """Set what `fitted` gave."""
        self._shape = tuple(int(size) for size in fitted["shape"])
        self._pooled = [tuple(float(score) for score in column) for column in fitted["pooled"]]
        self._groups = {}
        for group in fitted["groups"]:
            outputs = [self._threshold(one["scores"]) for one in group["outputs"]]
            for threshold, one in zip(outputs, group["outputs"], strict=True):
                threshold.alpha = real_number("AdaptiveConformal", "alpha", one["alpha"], "a finite number")
            self._groups[group["name"]] = outputs

    def _threshold(self, scores: Iterable[float]) -> AdaptiveThreshold:
        start = self._start
        return AdaptiveThreshold(start.level, rate=start.rate, window=start.window, scores=scores)

    def _online(self, name: Hashable) -> list[AdaptiveThreshold]:
        if name not in self._groups:
            self._groups[name] = [self._threshold(column) for column in self._pooled]
        return self._groups[name]

    def _of_group(self, owner: str, group: Hashable, what: str) -> Tensor:
        self.must_be_fitted(owner)
        assert self._shape is not None
        outputs = self._groups.get(group)
        if outputs is None:  # a question changes nothing
            outputs = [self._threshold(column) for column in self._pooled]
        found = [getattr(one, what) for one in outputs]
        return torch.tensor(found, dtype=torch.float64).reshape(self._shape)


def _checked_score(score: float) -> float:
    if math.isnan(score):
        raise ValueError(must("AdaptiveThreshold", "score", "a number", score))
    return float(score)


def _group_names(owner: str, groups: Sequence[Hashable] | None, rows: int) -> list[Hashable]:
    """The group of every row, as JSON can hold it."""
    if groups is None:
        return [None] * rows
    names = list(groups)
    if len(names) != rows:
        raise ValueError(must(owner, "groups", f"one for each of {rows} rows", f"{len(names)}"))
    for name in names:
        if name is not None and (isinstance(name, bool) or not isinstance(name, str | int)):
            raise TypeError(must(owner, "groups", "texts or whole numbers", name))
    return names
