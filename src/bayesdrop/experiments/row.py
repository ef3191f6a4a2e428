"""What an experiment finds: rows of a table, claims that hold or do not, and the arrays of its picture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayesdrop.errors import must

__all__ = ["Claim", "Outcome", "Row"]


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


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, and whether it held here."""

    text: str  #: what the paper says
    measured: str  #: what was measured, with its numbers
    holds: bool  #: whether that bears the paper out
    correction: str = ""  #: what to say instead, where it does not

    def __post_init__(self) -> None:
        object.__setattr__(self, "holds", bool(self.holds))


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that a run found, and all that its picture needs."""

    rows: tuple[Row, ...]
    claims: tuple[Claim, ...] = ()
    #: for the picture, by name: numpy arrays, tensors, or what JSON can hold (nested lists, strings, numbers)
    arrays: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  #: sentences on what differs from the paper

    def __post_init__(self) -> None:
        for name in ("rows", "claims", "notes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "arrays", dict(self.arrays))
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
