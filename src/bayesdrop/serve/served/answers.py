"""What a model is asked for besides its rows, and what it says of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Answers", "Ask", "plain"]


@dataclass(frozen=True)
class Ask:
    """What an answer can be reproduced by, with the rows and the model's digest.

    Attributes:
        num_draws: functions drawn, T.
        seed: of the draws.
        level: coverage of intervals; None for classes, which have none.
    """

    num_draws: int
    seed: int
    level: float | None


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model says of N rows.

    Attributes:
        columns: N values each: "mean", "std", "epistemic_std", "aleatoric_std", "lower" and "upper"; or
            "label", "probs", "entropy" and "mutual_information".
        uncertainty: (N,) 0 to 1.
        defer: (N,) which rows should go to a person.
        reason: (N,) why, "" for the others.
        sketch: (N, S) a few numbers of each row; near ones are alike.
    """

    columns: Mapping[str, list[Any]]
    uncertainty: NDArray[np.float64]
    defer: NDArray[np.bool_]
    reason: list[str]
    sketch: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.reason)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dict a row, as JSON can hold it."""
        names = list(self.columns)
        for place, values in enumerate(zip(*self.columns.values(), strict=True)):
            row = dict(zip(names, values, strict=True))
            row["defer"], row["reason"] = bool(self.defer[place]), self.reason[place]
            yield row


def plain(values: Any) -> list[Any]:
    """Numbers of an array or a tensor as lists, None in the place of those that JSON cannot hold."""
    array = np.asarray(values)
    listed: list[Any] = array.tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return [_finite(value) for value in listed]
    return listed


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return value if math.isfinite(value) else None
