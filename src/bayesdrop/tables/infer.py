"""What the columns of a table are: told from their cells, and said in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.tables.cells import Array, as_labels, as_numbers, as_truths, first_bad, is_text, missing_cells
from bayesdrop.tables.schema import MISSING, MOST_RARE, OTHER, TRUTHS, Column, Task

__all__ = ["infer_column", "infer_columns", "infer_task"]

#: distinct whole numbers of a target up to which it is taken for classes, and rows each must have on average
_FEW, _ROWS_EACH = 10, 5
_MOST_CATEGORIES, _MOST_CLASSES = 50, 200


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
        hint = "Mend those cells, or name what stands for a missing one with --missing."
        raise ValueError(f"{owner} must be finite numbers; got {first_bad(series, infinite)}. {hint}")
    if task == "regression":
        if bad.any():
            raise ValueError(f"{owner} must be numbers for --task regression; got {first_bad(series, bad)}.")
        return "regression", False, "as asked for"
    all_numbers = not bad.any() and not str(series.dtype).startswith("bool")
    if task == "classification":
        return "classification", all_numbers, "as asked for"
    if not all_numbers:
        if bad.mean() < 0.5 and is_text(series):
            hint = "Mend those cells, or name what stands for a missing one with --missing."
            raise ValueError(f"{owner} is numbers but for {first_bad(series, bad)}. {hint}")
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
    """What becomes of a column.

    Args:
        series: a pandas column.
        marks: texts that mean "missing".
        categorical: its values are names, even if they are numbers.
    """
    name = str(series.name)
    missing = missing_cells(series, marks)
    cells = series[~missing]
    if not len(cells):
        return Column(name, "left out", categories=(MISSING,), why="all cells are missing")
    values, bad = as_numbers(cells, marks)
    truths, not_truth = as_truths(cells, marks)
    typed_truth = str(series.dtype).startswith("bool")
    boolean = typed_truth or (bad.all() and not not_truth.any())
    if not categorical and (boolean or not bad.any()):
        present = truths if boolean else values
        if present.min() == present.max() and not missing.any():
            one = as_labels(series[:1], marks, numbers=True)[0]
            label = TRUTHS[int(present[0])] if boolean else one
            why = f"it is {present[0]:g} in every row"
            return Column(name, "left out", categories=(label,), why=why, numbers=not boolean)
        return _filled(name, "boolean" if boolean else "numeric", present, missing)
    if str(series.dtype).startswith(("timestamp", "date", "time", "duration")) or "datetime" in str(
        series.dtype
    ):
        return Column(name, "left out", why="dates and times are not used; make a number of them first")
    if not categorical and bad.mean() < 0.5:
        hint = "Mend those cells, name what stands for a missing one with --missing, or use --categorical."
        raise ValueError(f"column {name!r} is numbers but for {first_bad(cells, bad)}. {hint}")
    numbers = not bad.any()
    labels = as_labels(series, marks, numbers=numbers)
    return _categories(name, labels.tolist(), numbers, identifier=not categorical)


def _filled(name: str, kind: Any, present: Array, missing: NDArray[np.bool_]) -> Column:
    """A number or a truth value; where some are missing, the median or the commoner value stands in."""
    # Of halves: the sum of the two middle ones may be beyond the largest double.
    fill = 2 * float(np.median(0.5 * present)) if kind == "numeric" else float(present.mean() > 0.5)
    if not missing.any():
        return Column(
            name, kind, fill, why=f"{present.min():g} to {present.max():g}" if kind == "numeric" else ""
        )
    stand_in = f"{fill:g}" if kind == "numeric" else ("true" if fill else "false")
    why = f"{int(missing.sum()):,} missing cells are filled with {stand_in} and marked"
    return Column(name, kind, fill, marked=True, why=why)


def _categories(name: str, labels: Sequence[str | None], numbers: bool, identifier: bool) -> Column:
    """Common texts have a column each; rare ones share one, which unseen texts use too."""
    counts = Counter(label for label in labels if label is not None)
    present = sum(counts.values())
    lacking = len(labels) - present
    if len(counts) == 1 and not lacking:
        label = next(iter(counts))
        return Column(
            name, "left out", categories=(label,), why=f"it is {label!r} in every row", numbers=numbers
        )
    if identifier and len(counts) > max(20, present // 2):
        return Column(name, "left out", why=f"{len(counts):,} texts in {present:,} rows name rows, not kinds")
    least = max(2, present // 200)
    common = [label for label, count in counts.most_common(_MOST_CATEGORIES) if count >= least]
    # A reserved word in the data itself is the same as what it stands for.
    common = sorted(set(common) - {MISSING, OTHER})
    rest = [label for label, _ in counts.most_common() if label not in common]
    rare = len(rest)
    why = f"{len(common)} categories"
    if rare:
        why += f", and {rare:,} rare ones as one"
    if lacking:
        why += f"; {lacking:,} missing cells are one of their own"
    kept = (*common, *([OTHER] if rare else []), *([MISSING] if lacking else []))
    return Column(name, "category", categories=kept, rare=tuple(rest[:MOST_RARE]), why=why, numbers=numbers)
