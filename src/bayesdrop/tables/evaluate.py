"""evaluate_table(): what a model is worth on rows whose targets are known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bayesdrop.storage import check_writable, write_file
from bayesdrop.tables.deferral import Deferral, Outcome, Rule, cross_checked, outcome
from bayesdrop.tables.fitting import FittedTable, targets_of
from bayesdrop.tables.judge import Judged, judge, measures
from bayesdrop.tables.model import TableModel
from bayesdrop.tables.outside import add_far_numbers, finite_rows, ranked
from bayesdrop.tables.reading import TableFile
from bayesdrop.tables.report import measure_rows, render_report

__all__ = ["Evaluation", "check_report", "evaluate_table", "fit_evaluation"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model, rows whose targets are known, and how they compare."""

    model: TableModel
    judged: Judged
    frame: Any
    level: float
    deferral: Deferral
    outcome: Outcome
    title: str
    about_rows: str

    @property
    def measures(self) -> dict[str, float]:
        """By name."""
        return measures(self.judged, self.level)

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Name, value and hint of every measure, for a person."""
        yield from measure_rows(self.measures)
        result, unit = self.outcome, "RMSE" if self.model.root else "Wrong labels"
        share = 100 * result.deferred / result.rows
        yield "Rows to hand to a person", f"{share:.1f} %", str(self.deferral)
        if self.model.root:
            yield f"{unit} of those that stay", f"{result.error_kept:.4g}", f"{result.error:.4g} of all"
        else:
            kept, whole = 100 * result.error_kept, 100 * result.error
            yield f"{unit} of those that stay", f"{kept:.2f} %", f"{whole:.2f} % of all"

    def as_dict(self) -> dict[str, Any]:
        """In what JSON can hold."""
        return {**self.measures, "deferral": {**self.outcome.as_dict(), "rule": str(self.deferral)}}

    def report(self, title: str | None = None) -> str:
        """The HTML page."""
        return render_report(
            self.model,
            self.judged,
            self.frame,
            found=self.measures,
            deferral=self.deferral,
            result=self.outcome,
            title=self.title if title is None else title,
            rows=self.about_rows,
            level=self.level,
        )

    def write_report(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the page; a file that is there is replaced only with `force`, and at once."""
        write_file(check_report(path, force=force), self.report(), owner="evaluate")


def check_report(path: str | os.PathLike[str], *, force: bool) -> Path:
    """The path, if a report may be written there.

    Args:
        path: of the page.
        force: whether a file that is there may be replaced.
    """
    path = Path(path)
    if path.exists() and not (force and path.is_file()):
        raise ValueError(f"{path} is there already. Choose another name, or replace it with --force.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {path.absolute().parent} to write {path.name} in.")
    check_writable(path, owner="evaluate")
    return path


def evaluate_table(
    model: TableModel, table: TableFile, *, level: float | None = None, rule: Rule | None = None
) -> Evaluation:
    """Compare predictions with targets. Intervals and thresholds are the model's: these rows set nothing.

    Args:
        model: fitted.
        table: with the model's columns and its target.
        level: coverage of the intervals; the model's own if None.
        rule: which rows go to a person; the model's own if None.
    """
    owner = str(table.path)
    model.schema.check_names(table.names, owner)
    read = table.read()
    frame, y = targets_of(read, model.schema, owner)
    if not len(frame):
        raise ValueError(f"{owner} must have a row with a target; got none in {len(read):,} rows.")
    prepared = model.prepare(frame, owner)
    chosen = model.level if level is None else level
    scaled = np.asarray(model.held_out.get("scaled", np.empty(0)))
    judged = judge(model.estimator, prepared.x, y, scaled=scaled, level=chosen)
    deferral = model.deferral(rule)
    add_far_numbers(prepared.reasons, model.schema, model.estimator, prepared.x)
    outside = prepared.reasons.any | ~finite_rows(judged.scores)
    result = outcome(deferral(ranked(judged.scores, outside)), judged.loss, root=model.root)
    rows = f"The {len(frame):,} rows of {table.path.name} that have a target."
    return Evaluation(model, judged, frame, chosen, deferral, result, f"{table.path.name}", rows)


def fit_evaluation(fitted: FittedTable) -> Evaluation:
    """What a fit found on the rows it held out: no row has a say in its own interval or threshold."""
    model, judged = fitted.model, fitted.judged
    about = model.about
    result = cross_checked(model.rule, model.held_out, judged.loss, root=model.root)
    rows = (
        f"{about['rows_fitted']:,} rows were fitted; all below is about {about['rows_held_out']:,} others, "
        "which were held out. They set the thresholds that predictions use; here each half of them is "
        "measured with the thresholds of the other half."
    )
    if about["refitted_to_all_rows"]:
        rows += " The model in the folder was then fitted once more, to all rows; thresholds are the first's."
    deferral = model.deferral()
    return Evaluation(model, judged, fitted.frame, model.level, deferral, result, model.schema.target, rows)
