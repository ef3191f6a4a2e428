"""Schema: what a model expects of a table; every choice about its columns, told from their cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesdrop.tables.cells import (
    Array,
    Flags,
    as_labels,
    as_numbers,
    as_truths,
    first_bad,
    is_text,
    missing_cells,
    type_of,
)

__all__ = ["Column", "Kind", "Schema", "Task", "check_target", "infer_column", "infer_columns", "infer_task"]

Kind = Literal["numeric", "boolean", "category", "left out"]
Task = Literal["regression", "classification"]

#: the category of rows whose cell is missing, and that of rare and of unseen texts
MISSING, OTHER = "(missing)", "(other)"
#: what stands for the value of a column of truth values that never changes
TRUTHS = ("false", "true")
#: rare texts that are kept of a column
MOST_RARE = 1000
#: distinct whole numbers of a target up to which it is taken for classes, and rows each must have on average
_FEW, _ROWS_EACH = 10, 5
_MOST_CATEGORIES, _MOST_CLASSES = 50, 200
_MEND = "Mend those cells, or name what stands for a missing one with --missing."


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
    why_task: str = ""

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that are inputs."""
        return tuple(column for column in self.columns if column.kind != "left out")

    def check_names(self, names: Sequence[str], owner: str) -> list[str]:
        """Raise where a column is not there, naming all of them; give back the columns nobody asked for."""
        lacking = [column.name for column in self.used if column.name not in names]
        known = {column.name for column in self.columns} | {self.target}
        extra = [name for name in names if name not in known]
        if lacking:
            said = f"{_columns(lacking)} must be there; the model was fitted with "
            said += "it." if len(lacking) == 1 else "them."
            raise ValueError(f"{owner}: {said}" + (f" {_columns(extra)} it does not know." if extra else ""))
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


def listed(names: Sequence[str], most: int) -> str:
    """Names in quotes, the first of them: "'a', 'b' and 3 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def _columns(names: Sequence[str]) -> str:
    return f"column{'s' if len(names) > 1 else ''} {listed(names, 10)}"


# told from the cells; everywhere `series` is a pandas column and `marks` are texts that mean "missing"


def infer_task(series: Any, marks: Collection[str], task: str, rows: int) -> tuple[Task, bool, str]:
    """Regression or classification, whether labels are numbers, and why.

    Args:
        series: the target, without missing cells.
        marks: texts that mean "missing".
        task: "auto", "regression" or "classification".
        rows: N.
    """
    owner = f"target {series.name!r}"
    values, bad = as_numbers(series, marks)
    infinite = np.isinf(values)
    if task != "classification" and infinite.any() and (bad == infinite).all():
        raise ValueError(f"{owner} must be finite numbers; got {first_bad(series, infinite)}. {_MEND}")
    if task == "regression":
        if bad.any():
            raise ValueError(f"{owner} must be numbers for --task regression; got {first_bad(series, bad)}.")
        return "regression", False, "as asked for"
    all_numbers = not bad.any() and type_of(series) != "truths"
    if task == "classification":
        return "classification", all_numbers, "as asked for"
    if not all_numbers:
        if bad.mean() < 0.5 and is_text(series):
            raise ValueError(f"{owner} is numbers but for {first_bad(series, bad)}. {_MEND}")
        return "classification", False, "it is text or truth values"
    distinct = np.unique(values)
    whole = bool((values == np.round(values)).all())
    if whole and len(distinct) <= min(_FEW, max(2, rows // _ROWS_EACH)):
        return "classification", True, f"it has {len(distinct)} different whole numbers"
    return "regression", False, f"it has {len(distinct):,} different numbers"


def check_target(name: str, task: Task, y: NDArray[Any]) -> None:
    """Raise where there is nothing to learn from a target."""
    distinct = Counter(y.tolist())
    if len(distinct) < 2:
        raise ValueError(f"target {name!r} must vary; it is {next(iter(distinct))!r} in all {len(y):,} rows.")
    if task == "classification" and len(distinct) > min(_MOST_CLASSES, len(y) // 2):
        hint = "Is it the column you meant? Numbers are fitted with --task regression."
        got = f"{len(distinct):,} of them in {len(y):,} rows"
        raise ValueError(f"target {name!r} must have a few classes with several rows each; got {got}. {hint}")


def infer_columns(
    frame: Any,
    target: str,
    *,
    categorical: Collection[str],
    ignore: Collection[str],
    marks: Collection[str],
    rows: NDArray[np.int64] | None = None,
) -> tuple[Column, ...]:
    """What becomes of every column but the target.

    Args:
        frame: what to learn it from.
        target: name of the target.
        categorical: columns whose numbers are names.
        ignore: columns to leave out.
        marks: texts that mean "missing".
        rows: places of the rows to learn it from; all if None.
    """
    columns = []
    for name in frame.columns:
        if name == target:
            continue
        if name in ignore:
            columns.append(Column(name, "left out", why="as asked for"))
        else:
            series = frame[name] if rows is None else frame[name].iloc[rows]
            columns.append(infer_column(series, marks, categorical=name in categorical))
    if not any(column.width for column in columns):
        said = "; ".join(f"{column.name!r}: {column.why}" for column in columns[:5]) or "there are no others"
        raise ValueError(f"the table must have a column to predict {target!r} from; {said}.")
    return tuple(columns)


def infer_column(series: Any, marks: Collection[str] = (), *, categorical: bool = False) -> Column:
    """What becomes of a column; if `categorical`, its values are names, even if they are numbers."""
    name = str(series.name)
    missing = missing_cells(series, marks)
    cells = series[~missing]
    if not len(cells):
        return Column(name, "left out", categories=(MISSING,), why="all cells are missing")
    values, bad = as_numbers(cells, marks)
    truths, not_truth = as_truths(cells, marks)
    boolean = type_of(series) == "truths" or (bad.all() and not not_truth.any())
    if not categorical and (boolean or not bad.any()):
        present = truths if boolean else values
        if present.min() == present.max() and not missing.any():
            one = as_labels(series[:1], marks, numbers=True)[0]
            label = TRUTHS[int(present[0])] if boolean else one
            why = f"it is {present[0]:g} in every row"
            return Column(name, "left out", categories=(label,), why=why, numbers=not boolean)
        return _filled(name, "boolean" if boolean else "numeric", present, missing)
    if type_of(series) == "times":
        return Column(name, "left out", why="dates and times are not used; make a number of them first")
    if not categorical and bad.mean() < 0.5:
        hint = _MEND.replace(", or name", ", name").replace("--missing.", "--missing, or use --categorical.")
        raise ValueError(f"column {name!r} is numbers but for {first_bad(cells, bad)}. {hint}")
    numbers = not bad.any()
    labels = as_labels(series, marks, numbers=numbers)
    return _categories(name, labels.tolist(), numbers, identifier=not categorical)


def _filled(name: str, kind: Kind, present: Array, missing: Flags) -> Column:
    """A number or a truth value; where some are missing, the median or the commoner value stands in."""
    numeric = kind == "numeric"
    # Of halves: the sum of the two middle ones may be beyond the largest double.
    fill = 2 * float(np.median(0.5 * present)) if numeric else float(present.mean() > 0.5)
    if not missing.any():
        return Column(name, kind, fill, why=f"{present.min():g} to {present.max():g}" if numeric else "")
    stand_in = f"{fill:g}" if numeric else TRUTHS[int(fill)]
    why = f"{int(missing.sum()):,} missing cells are filled with {stand_in} and marked"
    return Column(name, kind, fill, marked=True, why=why)


def _categories(name: str, labels: Sequence[str | None], numbers: bool, identifier: bool) -> Column:
    """Common texts have a column each; rare ones share one, which unseen texts use too."""
    counts = Counter(label for label in labels if label is not None)
    present = sum(counts.values())
    lacking = len(labels) - present
    if len(counts) == 1 and not lacking:
        label, why = next(iter(counts)), f"it is {next(iter(counts))!r} in every row"
        return Column(name, "left out", categories=(label,), why=why, numbers=numbers)
    if identifier and len(counts) > max(20, present // 2):
        why = f"{len(counts):,} different texts in {present:,} rows: names of rows, not categories"
        return Column(name, "left out", why=why)
    least = max(2, present // 200)
    common = [label for label, count in counts.most_common(_MOST_CATEGORIES) if count >= least]
    # A reserved word in the data itself is the same as what it stands for.
    common = sorted(set(common) - {MISSING, OTHER})
    rest = [label for label, _ in counts.most_common() if label not in common]
    why = f"{len(common)} categories"
    if rest:
        why += f", and {len(rest):,} rare ones as one"
    if lacking:
        why += f"; {lacking:,} missing cells are one of their own"
    kept = (*common, *([OTHER] if rest else []), *([MISSING] if lacking else []))
    return Column(name, "category", categories=kept, rare=tuple(rest[:MOST_RARE]), why=why, numbers=numbers)
