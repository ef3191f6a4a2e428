"""Schema: what a model expects of a table, every choice that was made about its columns, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Column", "Kind", "Schema", "Task"]

Kind = Literal["numeric", "boolean", "category", "left out"]
Task = Literal["regression", "classification"]

#: the category of rows whose cell is missing, and that of rare and of unseen texts
MISSING, OTHER = "(missing)", "(other)"
#: what stands for the value of a column of truth values that never changes
TRUTHS = ("false", "true")
#: rare texts that are kept of a column
MOST_RARE = 1000


@dataclass(frozen=True)
class Column:
    """What becomes of one column.

    Attributes:
        name: in the header.
        kind: "numeric", "boolean", "category" or "left out".
        fill: what stands in for a missing number or truth value.
        marked: whether missing cells have a column of their own that says so.
        categories: texts that have a column each; `MISSING` and `OTHER` among them where there are such rows.
            Of a column that was left out because it was the same in every row: that text.
        rare: texts that share `OTHER`, the commonest of them.
        why: a few words on the choice.
        numbers: whether the categories are numbers, so that 1 and 1.0 are one of them.
    """

    name: str
    kind: Kind
    fill: float = 0.0
    marked: bool = False
    categories: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    why: str = ""
    numbers: bool = False

    @property
    def width(self) -> int:
        """How many inputs it becomes."""
        if self.kind == "left out":
            return 0
        return len(self.categories) if self.kind == "category" else 1 + self.marked


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
        why_task: how the task was told.
    """

    target: str
    task: Task
    columns: tuple[Column, ...]
    classes: tuple[str, ...] = ()
    number_labels: bool = False
    missing_marks: tuple[str, ...] = ()
    why_task: str = field(default="")

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that are inputs."""
        return tuple(column for column in self.columns if column.kind != "left out")

    def check_names(self, names: Sequence[str], owner: str) -> list[str]:
        """Raise where a column is not there, naming all of them; give back the columns nobody asked for.

        Args:
            names: of the table.
            owner: the table, for the error.
        """
        lacking = [column.name for column in self.used if column.name not in names]
        known = {column.name for column in self.columns} | {self.target}
        extra = [name for name in names if name not in known]
        if lacking:
            sentence = f"{owner}: {_listed(lacking, 'column')} must be there; the model was fitted with it."
            if len(lacking) > 1:
                sentence = sentence.replace("with it.", "with them.")
            raise ValueError(
                f"{sentence} {_listed(extra, 'column')} it does not know." if extra else sentence
            )
        return extra

    def lines(self) -> Iterator[str]:
        """One line a column, for a person."""
        width = max((len(column.name) for column in self.columns), default=0)
        for column in self.columns:
            yield f"{column.name.ljust(width)}  {column.kind}: {column.why}".removesuffix(": ")

    def as_dict(self) -> dict[str, Any]:
        """In what JSON can hold; `from_dict` is the way back."""
        return asdict(self)

    @staticmethod
    def from_dict(state: Mapping[str, Any]) -> Schema:
        """From what `as_dict` gave. Raises KeyError or TypeError where it is not that."""
        columns = [
            Column(**{**row, "categories": tuple(row["categories"]), "rare": tuple(row["rare"])})
            for row in state["columns"]
        ]
        lists = {name: tuple(state[name]) for name in ("classes", "missing_marks")}
        return Schema(**{**state, "columns": tuple(columns), **lists})


def _listed(names: Sequence[str], what: str) -> str:
    shown = ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return f"{what}{'s' if len(names) > 1 else ''} {shown}"
