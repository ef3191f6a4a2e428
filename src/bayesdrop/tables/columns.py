"""Column and Schema: what a model expects of a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from bayesdrop.tables.cells import Array, Flags, as_days, as_numbers, as_truths, day_of
from bayesdrop.tables.spelling import DATES, ISO, NUMBERS, PLAIN, ZERO_ONE
from bayesdrop.tables.written import plainly

__all__ = [
    "DATE_INPUTS",
    "MISSING",
    "MOST_RARE",
    "OTHER",
    "TRUTHS",
    "Column",
    "Kind",
    "Schema",
    "Task",
    "listed",
]

Kind = Literal["numeric", "boolean", "category", "date", "left out"]
Task = Literal["regression", "classification"]

#: the category of rows whose cell is missing, and that of rare and of unseen texts
MISSING, OTHER = "(missing)", "(other)"
#: how 0 and 1 of a column of truth values are written in a schema
TRUTHS = ("false", "true")
#: rare texts that are kept of a column, at most
MOST_RARE = 1000
#: the inputs that a date becomes; its age is in days before the last date of the fit
DATE_INPUTS = ("age", "year", "month", "weekday", "day of the year")


@dataclass(frozen=True)
class Column:
    """What becomes of one column.

    Attributes:
        name: in the header.
        kind: "numeric", "boolean", "category", "date" or "left out".
        fill: what stands in for a missing number, truth value or date, the last in days since 1970.
        marked: whether a further input says which cells are missing.
        categories: texts that have an input each; `MISSING` and `OTHER` among them where there are such rows.
            Of a column that was left out because it was the same in every row: that text.
        rare: texts that share `OTHER`, the commonest of them.
        why: a few words on the choice.
        numbers: whether the categories are numbers, so that 1 and 1.0 are the same.
        format: how texts are written: an example of `spelling.NUMBERS` or `spelling.DATES`, or "0 or 1".
        last: of dates: the last one of the fit, in days since 1970.
    """

    name: str
    kind: Kind
    fill: float = 0.0
    marked: bool = False
    categories: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    why: str = ""
    numbers: bool = False
    format: str = ""
    last: float = 0.0

    @property
    def width(self) -> int:
        """How many inputs it becomes."""
        if self.kind == "left out":
            return 0
        if self.kind == "category":
            return len(self.categories)
        return (len(DATE_INPUTS) if self.kind == "date" else 1) + self.marked

    @property
    def how(self) -> str:
        """How its texts are written, for a person; "" if as programs write them."""
        return "" if self.format in ("", PLAIN) else f"written as {self.format}"

    def read(self, series: Any, marks: Collection[str] = ()) -> tuple[Array, Flags]:
        """(N,) cells of a column of numbers, truth values or dates as numbers; (N,) which are not such.

        Missing cells are NaN; a date is in days since 1970.

        Args:
            series: a pandas column.
            marks: texts that mean "missing".
        """
        if self.kind == "boolean":
            return as_truths(series, marks)
        if self.kind == "date":
            return as_days(series, marks, self.format or ISO)
        return as_numbers(series, marks, self.format or PLAIN)

    def shown(self, value: float) -> str:
        """One of the numbers that `read` gives, as a person writes it."""
        if self.kind == "date":
            return day_of(value)
        return ("no", "yes")[int(value)] if self.kind == "boolean" else plainly(value)


@dataclass(frozen=True)
class Schema:
    """What a model expects of a table.

    Attributes:
        target: name of the target column.
        task: "regression" or "classification".
        columns: all other columns of the table it was fitted to, in their order.
        classes: labels, in the order of the probabilities.
        number_labels: whether the labels are numbers.
        missing_marks: texts that mean "missing" besides the common ones.
        why_task: why the task was chosen.
        target_format: how numbers of the target are written, an example of `spelling.NUMBERS`.
    """

    target: str
    task: Task
    columns: tuple[Column, ...]
    classes: tuple[str, ...] = ()
    number_labels: bool = False
    missing_marks: tuple[str, ...] = ()
    why_task: str = ""
    target_format: str = ""

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that are inputs."""
        return tuple(column for column in self.columns if column.kind != "left out")

    def check_names(self, names: Sequence[str], owner: str) -> list[str]:
        """Raise if columns that the model uses are not there; returns names that the model does not know.

        Args:
            names: of the columns that are there.
            owner: the table, for errors.
        """
        lacking = [column.name for column in self.used if column.name not in names]
        known = {column.name for column in self.columns} | {self.target}
        extra = [name for name in names if name not in known]
        if lacking:
            said = f"{_columns(lacking)} must be there; the model was fitted with "
            said += "it." if len(lacking) == 1 else "them."
            unknown = f" The model does not know {_columns(extra)}." if extra else ""
            raise ValueError(f"{owner}: {said}{unknown}")
        return extra

    def written(self, numbers: Mapping[str, str], dates: Mapping[str, str]) -> Schema:
        """The schema for a table that writes numbers or dates in another way than the table of the fit.

        Args:
            numbers: ways to write numbers, by column; that of "" holds for all others.
            dates: ways to write dates, likewise.
        """
        columns = []
        for column in self.columns:
            asked = {"numeric": numbers, "date": dates}.get(column.kind, {})
            way = asked.get(column.name, asked.get("", column.format))
            columns.append(replace(column, format=way) if way != column.format else column)
        target = numbers.get(self.target, numbers.get("", self.target_format))
        return replace(self, columns=tuple(columns), target_format=target)

    def lines(self) -> Iterator[str]:
        """One line a column, for a person."""
        width = max((len(column.name) for column in self.columns), default=0)
        for column in self.columns:
            yield f"{column.name.ljust(width)}  {column.kind}: {column.why}".removesuffix(": ")

    def as_dict(self) -> dict[str, Any]:
        """As values that JSON can hold; `from_dict` is the way back."""
        return asdict(self)

    @staticmethod
    def from_dict(state: Mapping[str, Any]) -> Schema:
        """The schema of what `as_dict` gave; KeyError or TypeError if it is not that."""
        columns = [
            Column(**{**row, "categories": tuple(row["categories"]), "rare": tuple(row["rare"])})
            for row in state["columns"]
        ]
        lists = {name: tuple(state[name]) for name in ("classes", "missing_marks")}
        return Schema(**{**state, "columns": tuple(columns), **lists})

    def check_formats(self) -> None:
        """Raise if a column or the target has a `format` that is not known for its kind."""
        for column in self.columns:
            known = {"numeric": (*NUMBERS, ZERO_ONE), "date": (*DATES,), "left out": (*DATES, *NUMBERS)}
            if column.format and column.format not in known.get(column.kind, ()):
                raise ValueError(f"the format {column.format!r} of column {column.name!r} is not known")
        if self.target_format and self.target_format not in NUMBERS:
            raise ValueError(f"the format {self.target_format!r} of the target is not known")


def listed(names: Sequence[str], most: int) -> str:
    """The first `most` names, in quotes: "'a', 'b' and 3 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def _columns(names: Sequence[str]) -> str:
    return f"column{'s' if len(names) > 1 else ''} {listed(names, 10)}"
