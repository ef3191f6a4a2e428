"""Sets of classes that contain the true class with a guaranteed probability."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from bayesdrop.calibration.rank import check_level, conformal_quantile
from bayesdrop.calibration.saved import Calibrator
from bayesdrop.calibration.targets import check_classes, check_labels
from bayesdrop.errors import (
    is_one_of,
    must,
    must_be_flag,
    must_be_tensor,
    real_number,
    whole_number,
    whole_seed,
)
from bayesdrop.predict import Prediction

__all__ = ["ConformalClassifier", "PredictionSets"]

Score = Literal["lac", "aps", "raps"]
# Far from the seeds that users choose: u must be independent of the labels.
_STREAMS = 0x5E7_C0DE_0000


@dataclass(frozen=True, eq=False)
class PredictionSets:
    """A set of classes for every label; a row may have several labels."""

    members: Tensor  #: (N, ..., K) whether a class is in the set, classes on the last axis

    @property
    def size(self) -> Tensor:
        """(N, ...) number of classes in each set."""
        return self.members.sum(-1)

    def covers(self, y: Tensor) -> Tensor:
        """(N, ...) whether each set contains its label."""
        owner, classes = "PredictionSets.covers", self.members.shape[-1]
        must_be_tensor(owner, "y", y)
        if y.shape != self.members.shape[:-1]:
            want = f"labels of shape {tuple(self.members.shape[:-1])}"
            raise ValueError(must(owner, "y", want, tuple(y.shape)))
        known = (y >= 0) & (y < classes) & (y == y.long())
        if not bool(known.all()):
            raise ValueError(must(owner, "y", f"in 0 to {classes - 1}", y[~known].flatten()[0].item()))
        return self.members.gather(-1, y.long().unsqueeze(-1)).squeeze(-1)

    def coverage(self, y: Tensor) -> Tensor:
        """Share of sets that contain their label. Shape ()."""
        return self.covers(y).to(torch.float64).mean()

    def __len__(self) -> int:
        return self.members.shape[0]

    def __getitem__(self, row: int | tuple[int, ...]) -> list[int]:
        """The classes of one set: `sets[row]`, or `sets[row, output]` where a row has several labels."""
        place = row if isinstance(row, tuple) else (row,)
        if len(place) != self.members.dim() - 1:
            want = f"{self.members.dim() - 1} indices, one set's place"
            raise IndexError(must("PredictionSets", "row", want, row))
        found: list[int] = self.members[place].nonzero().flatten().tolist()
        return found


class ConformalClassifier(Calibrator):
    """Split conformal prediction on top of averaged class probabilities.

    For rows that are exchangeable with the calibration set, whatever the model,

        P(y in set) >= level,    and at most level + 1 / (n + 1) for scores without ties.

    A class is in the set if its score is at most the ceil((n + 1) level)-th smallest score of the
    calibration labels. With p_(1) >= p_(2) >= ... and r the rank of class k:

        lac    1 - p_k                                        smallest sets on average
        aps    p_(1) + ... + p_(r - 1) + u p_k                sets that adapt to hard rows
        raps   the same + penalty max(0, r - free_ranks)      without aps's long tails of classes

    u is uniform in [0, 1], one number a label; with `randomized=False` it is 1, so that sets are not random.

    Where rows have several labels (outputs of a `Bernoulli`, tokens, pixels) every place has its own
    threshold, from the n rows, and the guarantee holds at each place: labels of one row are not exchangeable
    with each other. The set of a `Bernoulli`'s output is {}, {0}, {1} or {0, 1}.

    Args:
        level: coverage, as 0.9.
        score: "lac", "aps" or "raps".
        randomized: see above ("aps" and "raps").
        penalty: added to the score for every rank beyond the free ones ("raps").
        free_ranks: ranks without a penalty ("raps").
        per_class: a threshold for every class: coverage holds for the rows of each class. A class with fewer
            than level / (1 - level) calibration rows is in every set.
        never_empty: put the most probable class into sets that would be empty, which raises coverage.

    Reference: Sadinle, Lei & Wasserman (2019) (lac); Romano, Sesia & Candes (2020) (aps); Angelopoulos et
    al. (2021) (raps).
    """

    def __init__(
        self,
        level: float = 0.9,
        *,
        score: Score = "lac",
        randomized: bool = True,
        penalty: float = 0.01,
        free_ranks: int = 5,
        per_class: bool = False,
        never_empty: bool = False,
    ) -> None:
        owner = "ConformalClassifier"
        self.level = check_level(owner, level)
        if not is_one_of(score, get_args(Score)):
            raise ValueError(must(owner, "score", f"one of {', '.join(get_args(Score))}", score))
        must_be_flag(owner, randomized=randomized, per_class=per_class, never_empty=never_empty)
        self.score: Score = score
        self.randomized = randomized
        self.penalty = real_number(owner, "penalty", penalty, "a number of at least 0", at_least=0)
        self.free_ranks = whole_number(owner, "free_ranks", free_ranks, at_least=0)
        self.per_class = per_class
        self.never_empty = never_empty
        self._threshold: Tensor | None = None
        self._num_calibration = 0

    @property
    def threshold(self) -> Tensor:
        """The largest score of a member; infinite admits all classes.

        Shape (), or of a row's labels where it has several; with `per_class`, K of them on a last axis.
        """
        self.must_be_fitted("threshold")
        assert self._threshold is not None
        return self._threshold

    @property
    def num_calibration(self) -> int:
        """n, rows of the calibration set."""
        return self._num_calibration

    def fit(
        self, prediction: Prediction, y: Tensor, *, seed: int = 0, ignore_index: int | None = None
    ) -> Self:
        """Find the threshold on a calibration set that neither training nor another calibrator has seen.

        Args:
            prediction: of classes.
            y: (N,) labels, or (N, ...) where rows have several.
            seed: of the u's.
            ignore_index: a label that does not count, as of padding; its place then has fewer rows.

        Returns: itself.
        """
        owner = "ConformalClassifier.fit"
        scores = self._scores("fit", prediction, seed, stream=0)
        labels = check_labels(owner, prediction, y, ignore_index)
        valid = torch.ones_like(labels, dtype=torch.bool) if ignore_index is None else labels != ignore_index
        own = scores.gather(-1, torch.where(valid, labels, 0).unsqueeze(-1)).squeeze(-1)
        if self.per_class:
            by_class = [_thresholds(own, valid & (labels == k), self.level) for k in range(scores.shape[-1])]
            self._threshold = torch.stack(by_class, -1)
        else:
            self._threshold = _thresholds(own, valid, self.level)
        self._num_calibration = len(own)
        return self

    def sets(self, prediction: Prediction, *, seed: int = 0) -> PredictionSets:
        """A set of classes for every label.

        Args:
            prediction: of classes, as that of `fit`.
            seed: of the u's, which differ from those of `fit`.
        """
        self.must_be_fitted("sets")
        scores = self._scores("sets", prediction, seed, stream=1)
        owner, places = "ConformalClassifier.sets", self.threshold.shape
        if self.per_class and places[-1] != scores.shape[-1]:
            want = f"of {places[-1]} classes, as the calibration set's"
            raise ValueError(must(owner, "prediction", want, scores.shape[-1]))
        places = places[:-1] if self.per_class else places
        if places != scores.shape[1:-1]:
            want = f"of rows with labels {tuple(places)}, as the calibration set's"
            raise ValueError(must(owner, "prediction", want, tuple(scores.shape[1:-1])))
        members = scores <= (self.threshold if self.per_class else self.threshold.unsqueeze(-1))
        if self.never_empty:
            best = prediction.label.unsqueeze(-1)
            empty = ~members.any(-1, keepdim=True)
            members |= torch.zeros_like(members).scatter(-1, best, empty)
        return PredictionSets(members)

    def options(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        names = ("level", "score", "randomized", "penalty", "free_ranks", "per_class", "never_empty")
        return {name: getattr(self, name) for name in names}

    def fitted(self) -> dict[str, Any] | None:
        """The threshold (None: infinite), its shape if it has more than one axis, and n."""
        if self._threshold is None:
            return None
        finite = [value if math.isfinite(value) else None for value in self._threshold.reshape(-1).tolist()]
        found: dict[str, Any] = {
            "threshold": finite if self._threshold.dim() else finite[0],
            "num_calibration": self._num_calibration,
        }
        return found | ({"shape": list(self._threshold.shape)} if self._threshold.dim() > 1 else {})

    def put(self, fitted: Mapping[str, Any]) -> None:
        """Set the threshold and n."""
        found = fitted["threshold"]
        values = found if isinstance(found, list) else [found]
        threshold = torch.tensor([math.inf if v is None else float(v) for v in values], dtype=torch.float64)
        shape = fitted.get("shape", [len(values)] if isinstance(found, list) else [])
        self._threshold = threshold.reshape(shape)
        self._num_calibration = int(fitted["num_calibration"])

    def _scores(self, name: str, prediction: Prediction, seed: int, stream: int) -> Tensor:
        """(N, ..., K) scores of all classes, in double precision."""
        owner = f"ConformalClassifier.{name}"
        check_classes(owner, prediction)
        seed = whole_seed(owner, seed)
        probs = prediction.class_probs.to(torch.float64)
        if self.score == "lac":
            return 1 - probs
        ordered, order = probs.sort(dim=-1, descending=True, stable=True)
        below = ordered.cumsum(-1) - ordered
        share = torch.ones(*probs.shape[:-1], 1, dtype=torch.float64)
        if self.randomized:
            generator = torch.Generator().manual_seed((_STREAMS + 2 * seed + stream) % 2**64)
            share = torch.rand(share.shape, generator=generator, dtype=torch.float64)
        score = below + share * ordered
        if self.score == "raps":
            rank = torch.arange(1, probs.shape[-1] + 1, dtype=torch.float64)
            score = score + self.penalty * (rank - self.free_ranks).clamp_min(0)
        return torch.empty_like(score).scatter(-1, order, score)


def _thresholds(own: Tensor, counted: Tensor, level: float) -> Tensor:
    """The conformal quantile, at every place, of the scores (N, ...) that count."""
    if bool(counted.all()):
        return conformal_quantile(own, level)
    places = zip(own.reshape(len(own), -1).T, counted.reshape(len(own), -1).T, strict=True)
    found = [
        conformal_quantile(scores[some], level) if bool(some.any()) else own.new_tensor(math.inf)
        for scores, some in places
    ]
    return torch.stack(found).reshape(own.shape[1:])
