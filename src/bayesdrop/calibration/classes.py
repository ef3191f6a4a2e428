"""Sets of classes that hold the true one with a chance that is guaranteed."""

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
from bayesdrop.errors import must
from bayesdrop.predict import Prediction

__all__ = ["ConformalClassifier", "PredictionSets"]

Score = Literal["lac", "aps", "raps"]
# Far from the seeds that people give their own generators: u must not follow the labels.
_STREAMS = 0x5E7_C0DE_0000


@dataclass(frozen=True, eq=False)
class PredictionSets:
    """A set of classes for every row."""

    members: Tensor  #: (N, K) whether a class is in the set

    @property
    def size(self) -> Tensor:
        """(N,) how many classes each set holds."""
        return self.members.sum(1)

    def covers(self, y: Tensor) -> Tensor:
        """(N,) whether each set holds its label."""
        return self.members.gather(1, y.long().unsqueeze(1)).squeeze(1)

    def coverage(self, y: Tensor) -> Tensor:
        """Share of sets that hold their label. Shape ()."""
        return self.covers(y).to(torch.float64).mean()

    def __len__(self) -> int:
        return self.members.shape[0]

    def __getitem__(self, row: int) -> list[int]:
        """The classes of one row."""
        found: list[int] = self.members[row].nonzero().flatten().tolist()
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

    u is uniform in [0, 1], one a row, or 1 with `randomized=False`, for sets that chance has no part in.

    Args:
        level: coverage, as 0.9.
        score: "lac", "aps" or "raps".
        randomized: see above ("aps" and "raps").
        penalty: a rank's price beyond the free ones ("raps").
        free_ranks: how many ranks cost nothing ("raps").
        per_class: a threshold for every class: coverage holds for each class's rows. A class with fewer
            than level / (1 - level) calibration rows is in every set.
        never_empty: put the most probable class into sets that would be empty, which covers more.

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
        check_level(owner, level)
        if score not in get_args(Score):
            raise ValueError(must(owner, "score", f"one of {', '.join(get_args(Score))}", score))
        if not 0 <= penalty < math.inf:
            raise ValueError(must(owner, "penalty", "a number of at least 0", penalty))
        if isinstance(free_ranks, bool) or not isinstance(free_ranks, int) or free_ranks < 0:
            raise ValueError(must(owner, "free_ranks", "an int of at least 0", free_ranks))
        self.level = float(level)
        self.score: Score = score
        self.randomized = randomized
        self.penalty = float(penalty)
        self.free_ranks = free_ranks
        self.per_class = per_class
        self.never_empty = never_empty
        self._threshold: Tensor | None = None
        self._num_calibration = 0

    @property
    def threshold(self) -> Tensor:
        """The largest score of a member: shape (), or (K,) with `per_class`. Infinite admits all classes."""
        self.must_be_fitted("threshold")
        assert self._threshold is not None
        return self._threshold

    @property
    def num_calibration(self) -> int:
        """n, rows of the calibration set."""
        return self._num_calibration

    def fit(self, prediction: Prediction, y: Tensor, *, seed: int = 0) -> Self:
        """Find the threshold on a calibration set that neither training nor another calibrator has seen.

        Args:
            prediction: of classes, probabilities (N, K).
            y: (N,) labels.
            seed: of the u's.

        Returns: itself.
        """
        scores = self._scores("fit", prediction, seed, stream=0)
        labels = check_labels("ConformalClassifier.fit", prediction, y)
        own = scores.gather(1, labels.unsqueeze(1)).squeeze(1)
        if self.per_class:
            parts = [own[labels == k] for k in range(scores.shape[1])]
            self._threshold = torch.stack(
                [
                    conformal_quantile(part, self.level) if len(part) else own.new_tensor(math.inf)
                    for part in parts
                ]
            )
        else:
            self._threshold = conformal_quantile(own, self.level)
        self._num_calibration = len(own)
        return self

    def sets(self, prediction: Prediction, *, seed: int = 0) -> PredictionSets:
        """A set of classes for every row.

        Args:
            prediction: of classes, probabilities (N, K).
            seed: of the u's; those of `fit` are others.
        """
        self.must_be_fitted("sets")
        scores = self._scores("sets", prediction, seed, stream=1)
        if self.threshold.dim() and self.threshold.shape[0] != scores.shape[1]:
            want = f"of {self.threshold.shape[0]} classes, as the calibration set's"
            raise ValueError(must("ConformalClassifier.sets", "prediction", want, scores.shape[1]))
        members = scores <= self.threshold
        if self.never_empty:
            empty = ~members.any(1)
            members[empty, prediction.probs.argmax(1)[empty]] = True
        return PredictionSets(members)

    def options(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        names = ("level", "score", "randomized", "penalty", "free_ranks", "per_class", "never_empty")
        return {name: getattr(self, name) for name in names}

    def fitted(self) -> dict[str, Any] | None:
        """The threshold (null: infinite) and n."""
        if self._threshold is None:
            return None
        finite = [value if math.isfinite(value) else None for value in self._threshold.reshape(-1).tolist()]
        return {
            "threshold": finite if self._threshold.dim() else finite[0],
            "num_calibration": self._num_calibration,
        }

    def put(self, fitted: Mapping[str, Any]) -> None:
        """Take a threshold and n."""
        found = fitted["threshold"]
        values = found if isinstance(found, list) else [found]
        threshold = torch.tensor([math.inf if v is None else float(v) for v in values], dtype=torch.float64)
        self._threshold = threshold if isinstance(found, list) else threshold[0]
        self._num_calibration = int(fitted["num_calibration"])

    def _scores(self, name: str, prediction: Prediction, seed: int, stream: int) -> Tensor:
        """(N, K) scores of all classes, in double precision."""
        owner = f"ConformalClassifier.{name}"
        check_classes(owner, prediction)
        if prediction.mean.dim() != 2:
            hint = "Pixels of one image are not exchangeable."
            got = tuple(prediction.mean.shape)
            raise ValueError(must(owner, "prediction", "of one label a row, probabilities (N, K)", got, hint))
        probs = prediction.probs.to(torch.float64)
        if self.score == "lac":
            return 1 - probs
        ordered, order = probs.sort(dim=1, descending=True, stable=True)
        below = ordered.cumsum(1) - ordered
        share = torch.ones(len(probs), 1, dtype=torch.float64)
        if self.randomized:
            generator = torch.Generator().manual_seed(_STREAMS + 2 * seed + stream)
            share = torch.rand(len(probs), 1, generator=generator, dtype=torch.float64)
        score = below + share * ordered
        if self.score == "raps":
            rank = torch.arange(1, probs.shape[1] + 1, dtype=torch.float64)
            score = score + self.penalty * (rank - self.free_ranks).clamp_min(0)
        return torch.empty_like(score).scatter(1, order, score)
