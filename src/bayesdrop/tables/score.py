"""Predictions for a table of any length: chunk after chunk, into a file that appears when it is whole."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.progress import progress_bar
from bayesdrop.tables.cells import Flags
from bayesdrop.tables.deferral import Deferral, Rule, finite_rows, ranked
from bayesdrop.tables.judge import scores_of
from bayesdrop.tables.model import TableModel
from bayesdrop.tables.prepare import Prepared
from bayesdrop.tables.reading import TableFile
from bayesdrop.tables.writing import check_output, table_writer
from bayesdrop.tables.written import counted

__all__ = ["Scored", "predict_frame", "predict_prepared", "prediction_names", "score_file"]


@dataclass
class Scored:
    """Counts of what was met while a table was scored."""

    rows: int = 0
    deferred: int = 0
    extra: list[str] = field(default_factory=list)  #: columns the model does not know; passed through
    unseen: Counter[str] = field(default_factory=Counter)  #: cells with a new category, by column
    filled: Counter[str] = field(default_factory=Counter)  #: missing cells of columns that lacked none
    outside: int = 0  #: rows that lie outside what was learned, for any reason

    def lines(self) -> Iterator[str]:
        """The counts as sentences, for a person."""
        share = 100 * self.deferred / self.rows if self.rows else 0.0
        verb = "is" if self.deferred == 1 else "are"
        scored = f"{counted(self.rows, 'row')} scored"
        yield f"{scored}; {self.deferred:,} of them ({share:.1f} %) {verb} to be deferred."
        if self.outside:
            lie = "lies" if self.outside == 1 else "lie"
            yield f"{self.outside:,} of these {lie} outside what was learned; column reason says how."
        if self.extra:
            yield f"Not used and passed through: {', '.join(self.extra)}."
        for name, count in sorted(self.unseen.items()):
            hold, rows = ("holds", "its row is") if count == 1 else ("hold", "their rows are")
            yield f"Column {name}: {counted(count, 'cell')} {hold} a category that is new; {rows} deferred."
        for name, count in sorted(self.filled.items()):
            are, rows = ("is", "its row is") if count == 1 else ("are", "their rows are")
            yield f"Column {name}: {counted(count, 'cell')} {are} missing, as none was; {rows} deferred."


def prediction_names(model: TableModel) -> list[str]:
    """The columns that a prediction adds."""
    if model.root:
        return ["mean", "std", "epistemic", "aleatoric", "lower", "upper", "defer", "reason"]
    names = [f"p_{label}" for label in model.schema.classes]
    return ["label", *names, "entropy", "mutual_information", "defer", "reason"]


def predict_frame(
    model: TableModel,
    frame: Any,
    *,
    level: float | None = None,
    deferral: Deferral | None = None,
    owner: str = "the table",
    scored: Scored | None = None,
    num_draws: int | None = None,
    seed: int = 0,
    blocks: bool = False,
) -> dict[str, NDArray[Any]]:
    """Predictions of rows: an array (N,) for each column of `prediction_names`.

    A row that lies outside what was learned, or whose prediction is not finite, is deferred by any rule.

    Args:
        model: fitted.
        frame: a pandas frame with the model's columns.
        level: coverage of the intervals; the model's own if None.
        deferral: which rows go to a person; the model's own rule if None.
        owner: the table, for errors.
        scored: counts that are added to.
        num_draws: functions drawn; the model's own number if None.
        seed: of the draws.
        blocks: compute rows in blocks of one size, so that a row's numbers do not depend on the rows beside
            it, not even in the last bit; a few rows then take as long as 960.
    """
    model.schema.check_names(list(frame.columns), owner)
    prepared = model.prepare(frame, owner)
    drawing: dict[str, Any] = {"num_draws": num_draws, "seed": seed, "blocks": blocks}
    return predict_prepared(model, prepared, level=level, deferral=deferral, scored=scored, **drawing)[0]


def predict_prepared(
    model: TableModel,
    prepared: Prepared,
    *,
    level: float | None = None,
    deferral: Deferral | None = None,
    scored: Scored | None = None,
    **drawing: Any,
) -> tuple[dict[str, NDArray[Any]], Flags]:
    """`predict_frame` of rows that `model.prepare` has prepared, and (N,) which rows lie outside.

    Args:
        model: fitted.
        prepared: rows; further reasons are added to theirs.
        level: coverage of the intervals; the model's own if None.
        deferral: which rows go to a person; the model's own rule if None.
        scored: counts that are added to.
        drawing: options of `estimator.predictions`: `num_draws`, `seed`, `blocks`.
    """
    names = prediction_names(model)
    if not len(prepared.x):
        kinds: dict[str, Any] = {"defer": bool, "reason": object, "label": object}
        empty = {name: np.empty(0, dtype=kinds.get(name, np.float64)) for name in names}
        return empty, np.zeros(0, dtype=bool)
    intervals = model.intervals(level) if model.root else None
    found: dict[str, NDArray[Any]] = scores_of(model.estimator, prepared.x, intervals=intervals, **drawing)
    deferral = model.deferral() if deferral is None else deferral
    reasons = prepared.reasons
    model.prepare.add_far_numbers(prepared, model.estimator)
    reasons.add(~finite_rows(found), lambda row: "the prediction is not finite")
    outside = reasons.any
    found["defer"] = deferral(ranked(found, outside))
    reasons.add(found["defer"] & ~outside, lambda row: deferral.because(found[str(deferral.rule.by)][row]))
    found["reason"] = reasons.texts()
    if not model.root:
        classes = np.array(model.schema.classes, dtype=object)
        found["label"] = classes[found["probs"].argmax(1)]
        found |= {f"p_{label}": found["probs"][:, place] for place, label in enumerate(classes)}
    if scored is not None:
        scored.rows += len(prepared.x)
        scored.deferred += int(found["defer"].sum())
        scored.outside += int(outside.sum())
        scored.unseen += prepared.unseen
        scored.filled += prepared.filled
    return {name: found[name] for name in names}, outside


def score_file(
    model: TableModel,
    table: TableFile,
    output: str | os.PathLike[str],
    *,
    level: float | None = None,
    rule: Rule | None = None,
    prefix: str = "",
    force: bool = False,
    chunk_rows: int = 10_000,
    progress: bool = False,
) -> Scored:
    """Write a table with its predictions beside its own columns.

    Args:
        model: fitted.
        table: what to score.
        output: a .csv, .tsv or .parquet file.
        level: coverage of the intervals; the model's own if None.
        rule: which rows go to a person; the model's own if None.
        prefix: put before the names of the new columns.
        force: replace a file that is there.
        chunk_rows: rows that are held at a time.
        progress: show a bar.
    """
    output = Path(output)
    # A table from a pipe has no file that the output might overwrite.
    source = table.path if table.path.exists() else Path(os.devnull)
    check_output(output, source, force=force)
    scored = Scored(extra=model.schema.check_names(table.names, str(table.path)))
    names = [f"{prefix}{name}" for name in prediction_names(model)]
    twice = [name for name in names if name in table.names]
    if twice:
        shown = ", ".join(map(repr, twice))
        raise ValueError(f"{table.path} has columns {shown} already. Give the new ones a --prefix.")
    deferral = model.deferral(rule)
    with (
        table_writer(output, table, names) as write,
        progress_bar("predict", table.num_rows, show=progress) as advance,
    ):
        for frame in table.chunks(chunk_rows):
            asked: dict[str, Any] = {"level": level, "deferral": deferral, "owner": str(table.path)}
            found = predict_frame(model, frame, scored=scored, blocks=True, **asked)
            write(frame, list(found.values()))
            advance(len(frame), "")
    return scored
