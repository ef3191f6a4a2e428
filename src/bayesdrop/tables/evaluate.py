"""evaluate_table(): what a model is worth on rows whose targets are known, in numbers and as an HTML page."""

from __future__ import annotations

from bayesdrop.tables.deferral import Rule, cross_checked, finite_rows, outcome, ranked
from bayesdrop.tables.findings import Findings
from bayesdrop.tables.fitting import FittedTable, targets_of
from bayesdrop.tables.judge import judge
from bayesdrop.tables.model import TableModel
from bayesdrop.tables.reading import TableFile
from bayesdrop.tables.report import render_report
from bayesdrop.tables.written import counted

__all__ = ["Evaluation", "evaluate_table", "fit_evaluation"]


class Evaluation(Findings):
    """What was found about a model, as lines and as a page."""

    def report(self, title: str | None = None) -> str:
        """The HTML page, with everything in it."""
        return render_report(self, self.title if title is None else title)


def evaluate_table(
    model: TableModel, table: TableFile, *, level: float | None = None, rule: Rule | None = None
) -> Evaluation:
    """Compare predictions with targets. Intervals and thresholds are the model's, not set by these rows.

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
        raise ValueError(f"{owner} must have a row with a target; got none in {counted(len(read), 'row')}.")
    prepared = model.prepare(frame, owner)
    level = model.level if level is None else level
    judged = judge(model.estimator, prepared.x, y, intervals=model.intervals(level), level=level)
    deferral = model.deferral(rule)
    model.prepare.add_far_numbers(prepared, model.estimator)
    outside = prepared.reasons.any | ~finite_rows(judged.scores)
    result = outcome(deferral(ranked(judged.scores, outside)), judged.loss, root=model.root)
    rows = f"About {counted(len(frame), 'row')} of {table.path.name}, all that have a target."
    return Evaluation(model, judged, frame, level, deferral, result, table.path.name, rows, model.rows)


def fit_evaluation(fitted: FittedTable) -> Evaluation:
    """What a fit found on the rows it held out. No row helps to set its own interval or threshold."""
    model, judged, about = fitted.first or fitted.model, fitted.judged, fitted.model.about
    result = cross_checked(fitted.model.rule, fitted.model.held_out, judged.loss, root=model.root)
    if about["out_of_fold"]:
        rows = (
            f"{counted(about['rows_fitted'], 'row')} were fitted, and every network held out a part of them. "
            f"All below is about {counted(about['rows_held_out'], 'row')}, each as the networks see it that "
            "were not fitted to it. They set the thresholds that predictions use; here each half of them is "
            "measured with the thresholds of the other half."
        )
    else:
        rows = (
            f"{counted(about['rows_fitted'], 'row')} were fitted; all below is about "
            f"{counted(about['rows_held_out'], 'other')}, which were held out. They set the thresholds that "
            "predictions use; here each half of them is measured with the thresholds of the other half."
        )
    if about["groups"]:
        rows += f" Rows of one {about['groups']} were held out together."
    if about["refitted_to_all_rows"]:
        rows += " The model in the folder was then fitted once more, to all rows; thresholds are the first's."
    deferral, target = fitted.model.deferral(), model.schema.target
    return Evaluation(
        model, judged, fitted.frame, model.level, deferral, result, target, rows, fitted.rows,
        fitted.numbers, fitted.groups,
    )  # fmt: skip
