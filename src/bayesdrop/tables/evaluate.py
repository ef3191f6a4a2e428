"""evaluate_table(): what a model is worth on rows whose targets are known, in numbers and as an HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from bayesdrop.metrics import RiskCoverage, reliability_curve
from bayesdrop.page import Picture, note, page, table
from bayesdrop.plots import (
    plot_calibration,
    plot_reliability,
    plot_residuals,
    plot_risk_coverage,
    plot_score_histograms,
)
from bayesdrop.tables.deferral import (
    Deferral,
    DeferralResult,
    Rule,
    cross_checked,
    finite_rows,
    outcome,
    ranked,
)
from bayesdrop.tables.fitting import FittedTable, targets_of
from bayesdrop.tables.judge import Judged, judge, measures, worst_slices
from bayesdrop.tables.model import TableModel
from bayesdrop.tables.reading import TableFile

__all__ = ["Evaluation", "evaluate_table", "fit_evaluation"]

#: what measures are called, and how to read them
_MEASURES = {
    "rows": ("Rows", ""),
    "rmse": ("RMSE", "in the target's units"),
    "mean_absolute_error": ("Mean absolute error", "in the target's units"),
    "r2": ("R squared", "1 is perfect, 0 is the mean"),
    "accuracy": ("Accuracy", "share of right labels"),
    "brier": ("Brier score", "lower is better"),
    "log_likelihood": ("Log-likelihood", "nats a row, higher is better"),
    "coverage": ("Targets inside their interval", ""),
    "interval_width": ("Mean width of the intervals", "in the target's units"),
    "calibration_error": ("Calibration error", "0 is calibrated"),
    "misclassification_auroc": ("AUROC of the entropy for wrong labels", "0.5 says nothing, 1 finds all"),
}
_MOST_SLICES, _MOST_ROWS, _MOST_COLUMNS = 8, 10, 8


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model, rows whose targets are known, and how they compare.

    Attributes:
        model: fitted.
        judged: the rows.
        frame: the same rows, as they were read.
        level: coverage that was asked of the intervals.
        deferral: which rows go to a person.
        outcome: what that does to the error.
        title: of the page.
        about_rows: what the rows are, a sentence or two.
    """

    model: TableModel
    judged: Judged
    frame: Any
    level: float
    deferral: Deferral
    outcome: DeferralResult
    title: str
    about_rows: str

    @property
    def measures(self) -> dict[str, float]:
        """The value of every measure, by the measure's name."""
        return measures(self.judged, self.level)

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Name, value and hint of every measure, for a person."""
        yield from self._measure_rows()
        result = self.outcome
        yield "Rows to hand to a person", f"{100 * result.deferred / result.rows:.1f} %", str(self.deferral)
        if self.model.root:
            yield "RMSE of those that stay", f"{result.error_kept:.4g}", f"{result.error:.4g} of all"
        else:
            kept, whole = 100 * result.error_kept, 100 * result.error
            yield "Wrong labels of those that stay", f"{kept:.2f} %", f"{whole:.2f} % of all"

    def _measure_rows(self) -> Iterator[tuple[str, str, str]]:
        found = self.measures
        for name, (title, hint) in _MEASURES.items():
            if name not in found:
                continue
            value = f"{found[name]:,.0f}" if name == "rows" else f"{found[name]:.4g}"
            if name in ("coverage", "accuracy"):
                value = f"{100 * found[name]:.1f} %"
            yield title, value, f"{100 * self.level:g} % was asked for" if name == "coverage" else hint

    def as_dict(self) -> dict[str, Any]:
        """In what JSON can hold."""
        return {**self.measures, "deferral": {**asdict(self.outcome), "rule": str(self.deferral)}}

    def report(self, title: str | None = None) -> str:
        """The HTML page, with everything in it."""
        schema = self.model.schema
        columns = [(column.name, column.kind, column.why) for column in schema.columns]
        parts = [
            note(f"{schema.task.capitalize()} of {schema.target}: {schema.why_task}. {self.about_rows}"),
            "<h2>Measures</h2>",
            table(("", "", ""), self._measure_rows(), numbers=(1,)),
            '<div class="pictures">',
            *self._pictures(),
            "</div>",
            "<h2>Rows for a person</h2>",
            self._handed_over(),
            "<h2>Worst-calibrated slices</h2>",
            self._slices(),
            "<h2>Most uncertain rows</h2>",
            f'<div class="wide">{self._uncertain()}</div>',
            "<h2>Drop rates</h2>",
            self._rates(),
            "<h2>Columns</h2>",
            table(("column", "kind", "choice"), columns),
        ]
        return page(self.title if title is None else title, parts)

    # parts of the page

    @property
    def _by(self) -> str:
        """What rows are ranked by."""
        return str(self.deferral.rule.by)

    def _pictures(self) -> Iterator[str]:
        """Calibration, errors against what was said of them, and what handing rows over buys."""
        judged, root = self.judged, self.model.root
        calibration = Picture("Calibration")
        if judged.classes:
            prediction, labels = judged.as_prediction()
            curve = reliability_curve(prediction, labels, num_bins=10)
            calibration.ax.set(
                xlabel="probability given to the label", ylabel="share of labels that were right"
            )
            plot_reliability(calibration.ax, curve, label="found")
        else:
            plot_calibration(
                calibration.ax, judged.calibration, num_targets=len(judged.target), label="found"
            )
        yield calibration.html(legend="lower right")
        if judged.classes:
            errors = Picture("Labels that were right and wrong")
            entropy, wrong = judged.scores["entropy"], judged.loss > 0
            errors.ax.set_xlabel("entropy (nats)")
            plot_score_histograms(
                errors.ax,
                entropy[~wrong],
                entropy[wrong],
                bins=20,
                labels=("right", "wrong"),
                log=True,
                counts=True,
            )
        else:
            errors = Picture("Residuals against predicted std")
            plot_residuals(errors.ax, (judged.scores["mean"], judged.scores["std"]), judged.target)
        yield errors.html()
        bought = Picture("What handing rows over buys")
        bought.ax.set_ylabel("RMSE of the rest" if root else "share of wrong labels of the rest")
        score = ranked(judged.scores, np.zeros(len(judged.target), dtype=bool))[self._by]
        losses = RiskCoverage.from_losses(torch.from_numpy(score), torch.from_numpy(judged.loss))
        label = f"least sure first, by {self._by}; dotted: at random"
        plot_risk_coverage(bought.ax, losses, deferred=True, root=root, min_coverage=0.4, label=label)
        yield bought.html()

    def _handed_over(self) -> str:
        result, unit = self.outcome, "RMSE" if self.model.root else "Share of wrong labels"
        share = f"{result.deferred:,} of {result.rows:,} rows ({100 * result.deferred / result.rows:.1f} %)"
        return note(
            f"Handed over: {self.deferral}. It would hand over {share}. {unit} of all rows: "
            f"{result.error:.4g}; of those that stay: {result.error_kept:.4g}."
        )

    def _slices(self) -> str:
        slices = worst_slices(self.judged, self.frame, self.model.schema, self.level)
        # The expected maximum of M independent |z| is near sqrt(2 log 2M), an upper bound.
        chance = math.sqrt(2 * math.log(2 * len(slices))) if slices else 0.0
        rows = [
            (
                part.name,
                part.rows,
                f"{100 * part.promised:.1f} %",
                f"{100 * part.came:.1f} %",
                f"{part.z:+.1f}",
            )
            for part in slices[:_MOST_SLICES]
        ]
        promised = "inside, promised" if self.model.root else "right, promised"
        said = note(
            f"{len(slices)} slices of at least 15 rows. z is the distance from the promise in standard "
            "errors, below 0 where the model is too sure; by chance alone the worst would be at about "
            f"{chance:.1f}."
        )
        return said + table(("slice", "rows", promised, "found", "z"), rows, numbers=(1, 2, 3, 4))

    def _uncertain(self) -> str:
        judged, frame, classes = self.judged, self.frame, self.model.schema.classes
        used = [column.name for column in self.model.schema.used]
        inputs, more = used[:_MOST_COLUMNS], len(used[_MOST_COLUMNS:])
        names = ("label given", "its probability", "true label", self._by)
        rows = []
        for place in np.argsort(-judged.scores[self._by], kind="stable")[:_MOST_ROWS]:
            scores = {name: values[place] for name, values in judged.scores.items()}
            target = judged.target[place]
            if judged.classes:
                best = int(scores["probs"].argmax())
                sure, score = f"{scores['probs'][best]:.3f}", f"{scores[self._by]:.3g}"
                said = (classes[best], sure, classes[int(target)], score)
            else:
                names = ("mean", "std", "target", "interval")
                ends = f"{scores['lower']:.4g} to {scores['upper']:.4g}"
                said = (f"{scores['mean']:.4g}", f"{scores['std']:.3g}", f"{target:.4g}", ends)
            cells = (str(frame[name].iloc[place]) for name in inputs)
            rows.append((f"{int(frame.index[place]) + 1:,}", *said, *cells))
        hint = f"Rows are counted from 1, below the header. {more} further columns are not shown."
        return note(hint if more else "") + table(("row", *names, *inputs), rows, numbers=(0,))

    def _rates(self) -> str:
        """Mean rate of every layer over the networks, group by group of equal architecture."""
        mixture = self.model.estimator.mixture_
        groups: dict[str, list[list[float]]] = {}
        for component, rates in zip(mixture.components, mixture.rates(), strict=True):
            settings = component.network.settings
            shape = "-".join(map(str, component.network.widths))
            name = f"{settings.method} {shape} {settings.activation}, started at p {settings.p}"
            groups.setdefault(name, []).append(rates)
        rows = []
        for name, members in groups.items():
            values = np.array(members)
            shown = ", ".join(f"{rate:.3f}" for rate in values.mean(0))
            ends = zip(values.min(0), values.max(0), strict=True)
            spread = ", ".join(f"{low:.3f} to {high:.3f}" for low, high in ends)
            rows.append((name, len(members), shown, spread))
        learned = any("concrete" in name or "learnable" in name for name in groups)
        kind = "learned." if learned else "chosen, not learned (--method concrete)."
        said = f"Chance of dropping an input of each layer, first layer first. These rates were {kind}"
        return note(said) + table(("network", "how many", "mean rates", "from, to"), rows, numbers=(1,))


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
    level = model.level if level is None else level
    judged = judge(model.estimator, prepared.x, y, scaled=model.scaled, level=level)
    deferral = model.deferral(rule)
    model.prepare.add_far_numbers(prepared, model.estimator)
    outside = prepared.reasons.any | ~finite_rows(judged.scores)
    result = outcome(deferral(ranked(judged.scores, outside)), judged.loss, root=model.root)
    rows = f"The {len(frame):,} rows of {table.path.name} that have a target."
    return Evaluation(model, judged, frame, level, deferral, result, table.path.name, rows)


def fit_evaluation(fitted: FittedTable) -> Evaluation:
    """What a fit found on the rows it held out: no row has a say in its own interval or threshold."""
    model, judged, about = fitted.model, fitted.judged, fitted.model.about
    result = cross_checked(model.rule, model.held_out, judged.loss, root=model.root)
    rows = (
        f"{about['rows_fitted']:,} rows were fitted; all below is about {about['rows_held_out']:,} others, "
        "which were held out. They set the thresholds that predictions use; here each half of them is "
        "measured with the thresholds of the other half."
    )
    if about["refitted_to_all_rows"]:
        rows += " The model in the folder was then fitted once more, to all rows; thresholds are the first's."
    deferral, target = model.deferral(), model.schema.target
    return Evaluation(model, judged, fitted.frame, model.level, deferral, result, target, rows)
