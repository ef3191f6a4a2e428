"""Findings: a model, rows whose targets are known, and all that is measured on them, each computed once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.tables.baselines import Baseline, Comparison, compare, fit_baselines
from bayesdrop.tables.cells import Array
from bayesdrop.tables.deferral import Deferral, DeferralResult
from bayesdrop.tables.functions import Functions, affordable_rows, inputs_of, standardised
from bayesdrop.tables.importance import Importance, importances
from bayesdrop.tables.judge import Judged, measures
from bayesdrop.tables.model import TableModel
from bayesdrop.tables.rows import TrainingRows
from bayesdrop.tables.written import percent, written

__all__ = ["MEASURES", "Findings"]

#: by the name of a measure: what it is called for a person, and how to read it
MEASURES = {
    "rows": ("Rows", ""),
    "rmse": ("RMSE", "in the target's units"),
    "mean_absolute_error": ("Mean absolute error", "in the target's units"),
    "r2": ("R squared", "1 is perfect, 0 is the mean"),
    "accuracy": ("Accuracy", "share of right labels"),
    "balanced_accuracy": ("Balanced accuracy", "mean over the labels of the share that was found"),
    "log_loss": ("Log-loss", "nats a row, lower is better"),
    "brier": ("Brier score", "lower is better"),
    "log_likelihood": ("Log-likelihood", "nats a row, higher is better"),
    "coverage": ("Targets inside their interval", ""),
    "interval_width": ("Mean width of the intervals", "in the target's units"),
    "calibration_error": ("Calibration error", "0 is calibrated"),
    "misclassification_auroc": ("AUROC of the entropy for wrong labels", "0.5 says nothing, 1 finds all"),
}
#: draws that importances and dependences are measured with, at most
DRAWS = 64


@dataclass(frozen=True, eq=False)
class Findings:
    """A model, rows whose targets are known, and how they compare.

    Attributes:
        model: the one that predicted the rows.
        judged: N rows, with what was predicted and what was true.
        frame: the same rows, as they were read.
        level: coverage that was asked of the intervals.
        deferral: which rows go to a person.
        outcome: what that does to the error.
        title: of the page.
        about_rows: what the rows are, a sentence or two.
        training: rows that the model was fitted to, for baselines; None if there are none.
        numbers: (N,) numbers of the rows in the model's table; None if they are of another.
        groups: (N,) the group of each row, if they were held out in groups.
    """

    model: TableModel
    judged: Judged
    frame: Any
    level: float
    deferral: Deferral
    outcome: DeferralResult
    title: str
    about_rows: str
    training: TrainingRows | None = None
    numbers: Array | None = None
    groups: NDArray[np.int64] | None = None

    @cached_property
    def measures(self) -> dict[str, float]:
        """The value of every measure, by the measure's name."""
        return measures(self.judged, self.level)

    @cached_property
    def x(self) -> Array:
        """(N, K) inputs of the rows."""
        return self.model.prepare(self.frame).x

    @cached_property
    def baselines(self) -> list[Baseline]:
        """Simpler models, scored on the rows; none if there are no rows to fit them to."""
        if self.training is None or not np.isfinite(self.training.y).any():
            return []
        return fit_baselines(
            self.training,
            self.x,
            self.judged.target,
            classes=len(self.model.schema.classes),
            standardise=standardised(self.model.estimator, self.training.x),
            numbers=self.numbers,
            groups=self.groups,
        )

    @cached_property
    def compared(self) -> Comparison | None:
        """The model beside the best baseline; None without baselines."""
        judged = self.judged
        loss = np.minimum(-judged.log_prob, -np.log(1e-15)) if judged.classes else judged.loss
        return compare(self.baselines, loss, self.measures) if self.baselines else None

    @cached_property
    def functions(self) -> Functions:
        """Draws of the model, the same while columns are changed."""
        return Functions.of(self.model.estimator, DRAWS)

    @cached_property
    def affordable(self) -> int:
        """How many rows one section of a report may predict."""
        return affordable_rows(self.model.estimator, self.functions.num_draws)

    @cached_property
    def importances(self) -> list[Importance]:
        """What shuffling each column costs, the most important first; none for a single row."""
        if len(self.x) < 2:
            return []
        columns = [where for _, where in inputs_of(self.model.schema)]
        target = self.judged.target
        return importances(self.functions, self.x, target, columns, most_rows=self.affordable)

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Name, value and hint of every measure, of the best baseline and of deferral, for a person."""
        found = self.measures
        for name in MEASURES:
            # The log-likelihood of classes is minus the log-loss.
            if name in found and not (name == "log_likelihood" and "log_loss" in found):
                yield self.measure_row(name)
        if self.compared is not None:
            best = next(one for one in self.baselines if one.name == self.compared.best)
            name = "log_loss" if self.judged.classes else "rmse"
            verdict = self.compared.verdict
            shown = written(best.measures[name], digits=4)
            yield f"{MEASURES[name][0]} of the best baseline", shown, f"{best.name}; the model is {verdict}"
        result = self.outcome
        yield "Rows to hand to a person", percent(result.deferred / result.rows), str(self.deferral)
        if self.model.root:
            whole, kept = (written(value, digits=4) for value in (result.error, result.error_kept))
            yield "RMSE of those that stay", kept, f"{whole} of all"
        else:
            whole, kept = (percent(value, 2) for value in (result.error, result.error_kept))
            yield "Wrong labels of those that stay", kept, f"{whole} of all"

    def measure_row(self, name: str) -> tuple[str, str, str]:
        """Name, value and hint of one measure, for a person."""
        title, hint = MEASURES[name]
        value = self.measures[name]
        shown = f"{value:,.0f}" if name == "rows" else written(value, digits=4)
        if name in ("coverage", "accuracy", "balanced_accuracy"):
            shown = percent(value)
        return title, shown, f"{100 * self.level:g} % was asked for" if name == "coverage" else hint

    def as_dict(self) -> dict[str, Any]:
        """As values that JSON can hold."""
        baselines = {one.name: one.measures for one in self.baselines}
        return {
            **self.measures,
            "deferral": {**asdict(self.outcome), "rule": str(self.deferral)},
            "baselines": baselines,
        }
