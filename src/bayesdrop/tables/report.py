"""The report: one HTML file with everything in it, nothing fetched from anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.tables.deferral import Deferral, Outcome
from bayesdrop.tables.judge import Judged
from bayesdrop.tables.model import TableModel
from bayesdrop.tables.page import note, page, picture, table
from bayesdrop.tables.pictures import calibration_picture, deferral_picture, error_picture
from bayesdrop.tables.slices import chance_z, worst_slices

__all__ = ["MEASURES", "measure_rows", "render_report"]

#: what measures are called, and how to read them
MEASURES = {
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


def render_report(
    model: TableModel,
    judged: Judged,
    frame: Any,
    *,
    found: dict[str, float],
    deferral: Deferral,
    result: Outcome,
    title: str,
    rows: str,
    level: float,
) -> str:
    """A page about a model and what it said of rows whose targets are known.

    Args:
        model: fitted.
        judged: those rows.
        frame: the same rows, as they were read.
        found: their measures.
        deferral: which rows go to a person.
        result: what that does to the error.
        title: of the page.
        rows: what the rows are, a sentence or two.
        level: coverage that was asked of the intervals.
    """
    schema, root = model.schema, model.root
    by = str(deferral.rule.by)
    unit = "RMSE" if root else "Share of wrong labels"
    count, chance = chance_z(judged, frame, schema, level)
    slices = [
        (part.name, part.rows, f"{100 * part.promised:.1f} %", f"{100 * part.came:.1f} %", f"{part.z:+.1f}")
        for part in worst_slices(judged, frame, schema, level)
    ]
    promised = "inside, promised" if root else "right, promised"
    kept = f"{result.deferred:,} of {result.rows:,} rows ({100 * result.deferred / result.rows:.1f} %)"
    handed = f"It would hand over {kept}. {unit} of all rows: {result.error:.4g}; of those that stay: "
    handed += f"{result.error_kept:.4g}."
    pictures = [
        ("Calibration", calibration_picture(judged)),
        ("Errors", error_picture(judged)),
        ("Deferral", deferral_picture(judged.scores[by], judged.loss, root=root, by=by)),
    ]
    parts = [
        note(f"{schema.task.capitalize()} of {schema.target}: {schema.why_task}. {rows}"),
        "<h2>Measures</h2>",
        table(("", "", ""), measure_rows(found), numbers=(1,)),
        '<div class="pictures">',
        *(picture(name, data) for name, data in pictures),
        "</div>",
        "<h2>Rows for a person</h2>",
        note(f"Handed over: {deferral}. {handed}"),
        "<h2>Worst-calibrated slices</h2>",
        note(
            f"{count} slices of at least 15 rows. z is the distance from the promise in standard errors, "
            f"below 0 where the model is too sure; by chance alone the worst would be at about {chance:.1f}."
        ),
        table(("slice", "rows", promised, "found", "z"), slices, numbers=(1, 2, 3, 4)),
        "<h2>Most uncertain rows</h2>",
        f'<div class="wide">{_uncertain(model, judged, frame, by)}</div>',
        "<h2>Drop rates</h2>",
        _rates(model),
        "<h2>Columns</h2>",
        table(("column", "kind", "choice"), [(one.name, one.kind, one.why) for one in schema.columns]),
    ]
    return page(title, parts)


def measure_rows(found: dict[str, float]) -> list[tuple[str, str, str]]:
    """Name, value and hint of every measure, in a fixed order."""
    rows = []
    for name, (title, hint) in MEASURES.items():
        if name not in found:
            continue
        value = f"{found[name]:,.0f}" if name == "rows" else f"{found[name]:.4g}"
        if name in ("coverage", "accuracy"):
            value = f"{100 * found[name]:.1f} %"
        asked = f"{100 * found['interval_level']:g} % was asked for" if name == "coverage" else hint
        rows.append((title, value, asked))
    return rows


def _uncertain(model: TableModel, judged: Judged, frame: Any, by: str, most: int = 10) -> str:
    order = np.argsort(-judged.scores[by], kind="stable")[:most]
    inputs = [column.name for column in model.schema.used][:8]
    if judged.classes:
        classes = model.schema.classes
        names = ("row", "label given", "its probability", "true label", by)
    else:
        names = ("row", "mean", "std", "target", "interval")
    rows = []
    for place in order:
        number = f"{int(frame.index[place]) + 1:,}"
        scores = {name: values[place] for name, values in judged.scores.items()}
        said: tuple[str, ...]
        if judged.classes:
            best = int(scores["probs"].argmax())
            truth = classes[int(judged.target[place])]
            said = (classes[best], f"{scores['probs'][best]:.3f}", truth, f"{scores[by]:.3g}")
        else:
            ends = f"{scores['lower']:.4g} to {scores['upper']:.4g}"
            said = (f"{scores['mean']:.4g}", f"{scores['std']:.3g}", f"{judged.target[place]:.4g}", ends)
        rows.append((number, *said, *(str(frame[name].iloc[place]) for name in inputs)))
    more = len(model.schema.used) - len(inputs)
    said_below = note(
        f"Rows are counted from 1, below the header. {more} further columns are not shown." if more else ""
    )
    return said_below + table((*names, *inputs), rows, numbers=(0,))


def _rates(model: TableModel) -> str:
    """Mean rate of every layer over the networks, group by group of equal architecture."""
    groups: dict[str, list[list[float]]] = {}
    for component, rates in zip(
        model.estimator.mixture_.components, model.estimator.mixture_.rates(), strict=True
    ):
        settings = component.network.settings
        shape = "-".join(str(width) for width in component.network.widths)
        groups.setdefault(
            f"{settings.method} {shape} {settings.activation}, started at p {settings.p}", []
        ).append(rates)
    rows = []
    for name, members in groups.items():
        values = np.array(members)
        shown = ", ".join(f"{rate:.3f}" for rate in values.mean(0))
        spread = ", ".join(
            f"{low:.3f} to {high:.3f}" for low, high in zip(values.min(0), values.max(0), strict=True)
        )
        rows.append((name, len(members), shown, spread))
    learned = any("concrete" in name or "learnable" in name for name in groups)
    kind = (
        "These rates were learned."
        if learned
        else "These rates were chosen, not learned (--method concrete)."
    )
    said = note(f"Chance of dropping an input of each layer, first layer first. {kind}")
    return said + table(("network", "how many", "mean rates", "from, to"), rows, numbers=(1,))
