"""What an experiment finds: rows of a table, claims that hold or do not, and the arrays of its picture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np

from bayesdrop.errors import must

__all__ = ["Claim", "Outcome", "Row", "listed", "mean_and_error", "paired", "told"]


def mean_and_error(values: Any) -> tuple[float, float | None]:
    """The mean of runs, and its standard error: None for one run, which has none.

    >>> mean_and_error([1.0, 2.0, 3.0]), mean_and_error([2.0])
    ((2.0, 0.5773502691896258), (2.0, None))
    """
    runs = np.asarray(values, dtype=np.float64)
    error = float(runs.std(ddof=1) / math.sqrt(len(runs))) if len(runs) > 1 else None
    return float(runs.mean()), error


def paired(ours: Any, theirs: Any, form: str = ".2g") -> tuple[float, str]:
    """The mean of ours - theirs over paired runs, and the same as text with its standard error.

    >>> paired([2.0, 4.0], [1.0, 2.0])
    (1.5, '+1.5 +- 0.5')
    """
    mean, error = mean_and_error(np.subtract(ours, theirs))
    return mean, f"{mean:+{form}}" + ("" if error is None else f" +- {error:{form}}")


def listed(values: Iterable[float], form: str = ".3f", between: str = ", ") -> str:
    """Numbers as text, for a sentence.

    >>> listed([0.5, 0.25], ".2f")
    '0.50, 0.25'
    """
    return between.join(f"{value:{form}}" for value in values)


def told(
    numbers: Mapping[str, float], form: str = ".2f", *, behind: bool = False, between: str = ", "
) -> str:
    """Named numbers as text, for a sentence: the name before the number or, in brackets, behind it.

    >>> told({"a": 0.5, "b": 0.25}), told({"a": 0.5}, behind=True)
    ('a 0.50, b 0.25', '0.50 (a)')
    """
    shown = {name: f"{value:{form}}" for name, value in numbers.items()}
    return between.join(f"{text} ({name})" if behind else f"{name} {text}" for name, text in shown.items())


@dataclass(frozen=True)
class Row:
    """One number of a published table or figure, beside ours."""

    setting: str  #: what it is a number of, as "yacht" or "N = 100, layer 2"
    metric: str  #: what is measured, with its unit, as "RMSE" or "log-likelihood (nats)"
    paper: float | str | None  #: as printed; a string keeps "2.80" or "2.97 ± 0.85"; None if it prints none
    ours: float | None  #: as measured; None is "not run"
    standard_error: float | None = None  #: of ours
    note: str = ""  #: what a reader must know to compare the two

    def __post_init__(self) -> None:
        for name in ("ours", "standard_error"):
            value = getattr(self, name)
            if value is None:
                continue
            # Tensors and numpy numbers of one element are numbers too.
            number = float(value)
            if not math.isfinite(number):
                hint = "Give None, and say in `note` what happened."
                raise ValueError(
                    must(f"Row({self.setting!r}, {self.metric!r})", name, "finite", number, hint)
                )
            object.__setattr__(self, name, number)
        if self.paper is not None and not isinstance(self.paper, str):
            object.__setattr__(self, "paper", float(self.paper))

    @classmethod
    def of_runs(
        cls, setting: str, metric: str, values: Any, *, paper: float | str | None = None, note: str = ""
    ) -> Row:
        """The mean of several runs, with its standard error.

        Args:
            setting: of the row.
            metric: of the row.
            values: a number for every run; an empty list is "not run".
            paper: of the row.
            note: of the row.
        """
        mean, error = mean_and_error(values) if len(values) else (None, None)
        return cls(setting, metric, paper, mean, error, note)


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, and whether it held here."""

    text: str  #: what the paper says
    measured: str  #: what was measured, with its numbers
    holds: bool  #: whether `measured` agrees with `text`
    correction: str = ""  #: what is said instead where it does not hold, or "to be precise" where it does
    otherwise: InitVar[str] = ""  #: the correction of a claim that does not hold, and of no other

    def __post_init__(self, otherwise: str) -> None:
        object.__setattr__(self, "holds", bool(self.holds))
        if otherwise and not self.holds:
            object.__setattr__(self, "correction", otherwise)


@dataclass(frozen=True, eq=False, init=False)
class Outcome:
    """All that a run found, and all that its picture needs."""

    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    #: for the picture, by name: numpy arrays, tensors, or what JSON can hold (nested lists, strings, numbers)
    arrays: Mapping[str, Any]
    notes: tuple[str, ...]  #: sentences on what differs from the paper

    def __init__(
        self,
        rows: Iterable[Row],
        claims: Iterable[Claim] = (),
        arrays: Mapping[str, Any] | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        parts = {
            "rows": tuple(rows),
            "claims": tuple(claims),
            "arrays": dict(arrays or {}),
            "notes": tuple(notes),
        }
        for name, part in parts.items():
            object.__setattr__(self, name, part)
        twice = [key for key, n in Counter((row.setting, row.metric) for row in self.rows).items() if n > 1]
        if twice:
            raise ValueError(must("Outcome", "rows", "one for each setting and metric", twice))

    def row(self, setting: str, metric: str) -> Row:
        """The row of a setting and a metric."""
        for row in self.rows:
            if (row.setting, row.metric) == (setting, metric):
                return row
        raise KeyError(f"Outcome: there is no row of {setting!r}, {metric!r}.")

    @property
    def complete(self) -> bool:
        """Whether every row was run."""
        return all(row.ours is not None for row in self.rows)
