"""Predictions for a table of any length: chunk after chunk, into a file that is whole or not there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.errors import require
from bayesdrop.progress import progress_bar
from bayesdrop.tables.deferral import Deferral, Rule
from bayesdrop.tables.judge import interval_of, predictions, row_scores
from bayesdrop.tables.model import TableModel
from bayesdrop.tables.reading import TableFile

__all__ = ["Scored", "predict_frame", "prediction_names", "score_file"]

_CSV, _PARQUET = (".csv", ".tsv", ".csv.gz"), (".parquet", ".pq")


@dataclass
class Scored:
    """What happened while a table was scored."""

    rows: int = 0
    deferred: int = 0
    extra: list[str] = field(default_factory=list)  #: columns the model does not know; passed through
    unseen: Counter[str] = field(default_factory=Counter)  #: cells with a category that is new
    filled: Counter[str] = field(default_factory=Counter)  #: missing cells of columns that never lacked one

    def lines(self) -> Iterator[str]:
        """For a person."""
        share = 100 * self.deferred / self.rows if self.rows else 0.0
        yield f"{self.rows:,} rows scored; {self.deferred:,} of them ({share:.1f} %) are to be deferred."
        if self.extra:
            yield f"Not used and passed through: {', '.join(self.extra)}."
        for name, count in sorted(self.unseen.items()):
            yield f"Column {name}: {count:,} cells hold a category that is new; their rows are deferred."
        for name, count in sorted(self.filled.items()):
            yield f"Column {name}: {count:,} cells are missing, as none was in the fit; they are filled."


def prediction_names(model: TableModel) -> list[str]:
    """The columns that a prediction adds."""
    if model.schema.task == "regression":
        return ["mean", "std", "epistemic", "aleatoric", "lower", "upper", "defer"]
    names = [f"p_{label}" for label in model.schema.classes]
    return ["label", *names, "entropy", "mutual_information", "defer"]


def predict_frame(
    model: TableModel,
    frame: Any,
    *,
    level: float | None = None,
    deferral: Deferral | None = None,
    owner: str = "the table",
    scored: Scored | None = None,
) -> dict[str, NDArray[Any]]:
    """What the model says about rows, one array a column of `prediction_names`.

    Args:
        model: fitted.
        frame: a pandas frame with the model's columns.
        level: coverage of the intervals; the model's own if None.
        deferral: which rows go to a person; the model's own rule if None.
        owner: the table, for errors.
        scored: is told what was met.
    """
    model.schema.check_names(list(frame.columns), owner)
    prepared = model.prepare(frame, owner)
    scaled = np.asarray(model.held_out.get("scaled", np.empty(0)))
    interval = interval_of(scaled, model.level if level is None else level)
    parts: list[dict[str, NDArray[Any]]] = []
    for _, prediction in predictions(model.estimator, prepared.x):
        part: dict[str, NDArray[Any]] = dict(row_scores(prediction))
        if model.schema.task == "regression":
            part["lower"], part["upper"] = interval(prediction)
        parts.append(part)
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
    names = prediction_names(model)
    if not parts:
        return {name: np.empty(0, dtype=bool if name == "defer" else np.float64) for name in names}
    deferral = model.deferral() if deferral is None else deferral
    # A category that no row of the fit had: the model cannot know how unsure it should be.
    found["defer"] = deferral(found) | prepared.unfamiliar
    if model.schema.task == "classification":
        classes = np.array(model.schema.classes, dtype=object)
        found["label"] = classes[found["probs"].argmax(1)]
        found |= {f"p_{label}": found["probs"][:, place] for place, label in enumerate(classes)}
    if scored is not None:
        scored.rows += len(frame)
        scored.deferred += int(found["defer"].sum())
        scored.unseen += prepared.unseen
        scored.filled += prepared.filled
    return {name: found[name] for name in names}


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
    _check_output(output, table.path, force)
    scored = Scored(extra=model.schema.check_names(table.names, str(table.path)))
    names = [f"{prefix}{name}" for name in prediction_names(model)]
    twice = [name for name in names if name in table.names]
    if twice:
        shown = ", ".join(map(repr, twice))
        raise ValueError(f"{table.path} has columns {shown} already. Give the new ones a --prefix.")
    deferral = model.deferral(rule)
    with (
        _writer(output, table) as write,
        progress_bar("predict", table.num_rows, show=progress) as advance,
    ):
        for frame in table.chunks(chunk_rows):
            found = predict_frame(
                model, frame, level=level, deferral=deferral, owner=str(table.path), scored=scored
            )
            write(frame.assign(**dict(zip(names, found.values(), strict=True))))
            advance(len(frame), "")
    return scored


def _check_output(output: Path, source: Path, force: bool) -> None:
    if not output.name.lower().endswith((*_CSV, *_PARQUET)):
        raise ValueError(f"the output must end in {', '.join((*_CSV, *_PARQUET))}; got {output}.")
    if output.is_dir():
        raise ValueError(f"the output {output} is a folder.")
    if not output.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {output.absolute().parent} to write {output.name} in.")
    if output.exists() and output.samefile(source):
        raise ValueError(f"the output must be another file than the table {source}.")
    if output.exists() and not force:
        raise ValueError(f"{output} is there already. Choose another name, or replace it with --force.")


@contextmanager
def _writer(output: Path, table: TableFile) -> Iterator[Any]:
    """Takes frames; the file appears under its name when the last one is written."""
    ending = "".join(output.suffixes[-2:]) if output.name.lower().endswith(".gz") else output.suffix
    draft = output.absolute().with_name(f".{output.stem}.{token_hex(4)}.tmp{ending}")
    try:
        if output.name.lower().endswith(_PARQUET):
            with _parquet_writer(draft) as write:
                yield write
        else:
            yield _csv_writer(draft, "\t" if ".tsv" in ending.lower() else (table.separator or ","))
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)


def _csv_writer(draft: Path, separator: str) -> Any:
    first = True

    def write(frame: Any) -> None:
        nonlocal first
        frame.to_csv(draft, sep=separator, index=False, mode="w" if first else "a", header=first)
        first = False

    return write


@contextmanager
def _parquet_writer(draft: Path) -> Iterator[Any]:
    arrow = require("pyarrow", extra="tables", owner="score_file")
    parquet = require("pyarrow.parquet", extra="tables", owner="score_file")
    writer: Any = None

    def write(frame: Any) -> None:
        nonlocal writer
        schema = None if writer is None else writer.schema
        table = arrow.Table.from_pandas(frame, schema=schema, preserve_index=False)
        if writer is None:
            writer = parquet.ParquetWriter(draft, table.schema)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
