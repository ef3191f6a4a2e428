"""The page about a model: the answer first (how good, can it be trusted, what to do), then the details."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from bayesdrop.metrics import Confusion, RiskCoverage, confusion, reliability_curve
from bayesdrop.page import Picture, bullets, note, page, pictures, shortened, shortened_apart, table
from bayesdrop.plots import (
    plot_calibration,
    plot_predicted,
    plot_reliability,
    plot_residuals,
    plot_risk_coverage,
    plot_score_histograms,
)
from bayesdrop.tables.baselines import CLEAR
from bayesdrop.tables.deferral import ranked
from bayesdrop.tables.findings import MEASURES, Findings
from bayesdrop.tables.judge import worst_slices
from bayesdrop.tables.report_inside import dependences, drop_rates, uncertain_rows, what_it_uses
from bayesdrop.tables.report_summary import summary
from bayesdrop.tables.written import counted, percent, written

__all__ = ["render_report"]

_MOST_SLICES, _MOST_DOTS, _MOST_LABELS, _MOST_COLUMNS = 8, 300, 12, 300
#: characters of names that are written whole, and of all labels together that may stand side by side
_NAME, _BESIDE = 120, 50
#: measures of any model, which baselines have too
_PLAIN = ("rmse", "mean_absolute_error", "r2", "accuracy", "balanced_accuracy", "log_loss", "brier")


def render_report(found: Findings, title: str) -> str:
    """The HTML page, with everything in it.

    Args:
        found: what was measured.
        title: of the page.
    """
    schema = found.model.schema
    columns = [
        (shortened(column.name, _NAME), column.kind, shortened(column.why, 200))
        for column in schema.columns[:_MOST_COLUMNS]
    ]
    left = len(schema.columns) - len(columns)
    labels = _labels(found) if found.judged.classes else ""
    parts = [
        note(
            f"{schema.task.capitalize()} of {shortened(schema.target, _NAME)}: {schema.why_task}. "
            f"{found.about_rows}"
        ),
        "<h2>In short</h2>",
        bullets(summary(found)),
        "<h2>Measures</h2>",
        _beside_baselines(found),
        labels or pictures(_number_pictures(found)),
        "<h2>Can its uncertainty be trusted?</h2>",
        _uncertainty_measures(found),
        pictures(_trust_pictures(found)),
        "<h3>Worst-calibrated slices</h3>",
        _slices(found),
        "<h2>Rows for a person</h2>",
        _handed_over(found),
        "<h2>What the model uses</h2>",
        what_it_uses(found),
        dependences(found),
        "<h2>Most uncertain rows</h2>",
        uncertain_rows(found),
        "<h2>Drop rates</h2>",
        drop_rates(found),
        "<h2>Columns</h2>",
        note(f"{counted(left, 'further column is', 'further columns are')} not shown." if left else ""),
        table(("column", "kind", "choice"), columns),
    ]
    return page(title, [part for part in parts if part])


def _beside_baselines(found: Findings) -> str:
    """The first table: measures of this model and of the baselines on the same rows."""
    names = [name for name in _PLAIN if name in found.measures]
    models = [("this model", found.measures), *((one.name, one.measures) for one in found.baselines)]
    rows = []
    for model, measured in models:
        cells = [_measure(name, measured.get(name, math.nan)) for name in names]
        rows.append((model, *cells))
    head = ("", *(MEASURES[name][0] for name in names))
    said = f"All on the same {counted(len(found.judged.target), 'row')}. "
    training = found.training
    if not found.baselines or training is None:
        said += "There are no baselines: the model's folder keeps no training rows (fit with --keep-rows)."
    elif len(training) < training.of:
        said += f"Baselines were fitted to {len(training):,} of the {training.of:,} rows that the model had."
    else:
        said += "Baselines were fitted to the same rows as the model, with scikit-learn's usual settings."
    if found.baselines:
        said += f" Below {CLEAR} standard errors, the model and the best of them cannot be told apart."
    return note(said) + table(head, rows, numbers=range(1, len(head)), strong=0)


def _measure(name: str, value: float) -> str:
    if name in ("accuracy", "balanced_accuracy"):
        return percent(value)
    return written(value) if name in ("rmse", "mean_absolute_error") else written(value, 0.1)


def _uncertainty_measures(found: Findings) -> str:
    skipped = {*_PLAIN, "rows", *(("log_likelihood",) if found.judged.classes else ())}
    names = [name for name in MEASURES if name in found.measures and name not in skipped]
    return table(("", "", ""), [found.measure_row(name) for name in names], numbers=(1,))


# pictures


def _dots(rows: int) -> tuple[np.ndarray, str]:
    """Places of the rows to draw, and words that say how many of all these are."""
    if rows <= _MOST_DOTS:
        return np.arange(rows), ""
    taken = np.random.default_rng(0).permutation(rows)[:_MOST_DOTS]
    return np.sort(taken), f" ({_MOST_DOTS} of {rows:,} rows)"


def _finite(found: Findings, *names: str) -> np.ndarray:
    """Places of rows whose scores of these names are finite: others cannot be drawn."""
    return np.flatnonzero(np.all([np.isfinite(found.judged.scores[name]) for name in names], 0))


def _number_pictures(found: Findings) -> Iterator[str]:
    """Predicted against actual numbers, and errors against predicted standard deviations."""
    judged = found.judged
    drawn = _finite(found, "mean", "std", "lower", "upper")
    if not len(drawn):
        return
    taken, few = _dots(len(drawn))
    places = drawn[taken]
    picture = Picture(f"Predicted against actual, with {100 * found.level:g} % intervals{few}")
    target = shortened(found.model.schema.target, 40)
    picture.ax.set(xlabel=f"actual {target}", ylabel="predicted")
    lower, upper = (judged.scores[name][places] for name in ("lower", "upper"))
    plot_predicted(picture.ax, judged.scores["mean"][places], judged.target[places], interval=(lower, upper))
    yield picture.html()
    errors = Picture(f"Errors against the predicted standard deviation{few}")
    plot_residuals(
        errors.ax, (judged.scores["mean"][places], judged.scores["std"][places]), judged.target[places]
    )
    errors.ax.set(xlabel="predicted standard deviation", ylabel="|actual - predicted|")
    yield errors.html()


def _trust_pictures(found: Findings) -> Iterator[str]:
    """Calibration, how sure the model was of right and of wrong labels, and how deferral lowers the error."""
    judged = found.judged
    picture = Picture("Calibration: on the diagonal, promises are kept")
    if judged.classes:
        prediction, labels = judged.as_prediction()
        curve = reliability_curve(prediction, labels, num_bins=10)
        picture.ax.set(xlabel="probability given to the label", ylabel="share of labels that were right")
        plot_reliability(picture.ax, curve, label="found, with 95 % chance about the diagonal")
    else:
        count = len(judged.target)
        plot_calibration(picture.ax, judged.calibration, num_targets=count, label="found; grey: 95 % chance")
    yield picture.html(legend="upper left")
    if judged.classes:
        errors = Picture("Labels that were right and wrong")
        entropy, wrong = judged.scores["entropy"], judged.loss > 0
        errors.ax.set_xlabel("entropy (nats)")
        names = ("right", "wrong")
        plot_score_histograms(
            errors.ax, entropy[~wrong], entropy[wrong], bins=20, labels=names, log=True, counts=True
        )
        yield errors.html()
    yield _deferral_picture(found)


def _deferral_picture(found: Findings) -> str:
    judged, root, by = found.judged, found.model.root, str(found.deferral.rule.by)
    picture = Picture("What handing rows over buys")
    picture.ax.set_ylabel("RMSE of the rest" if root else "share of wrong labels of the rest")
    score = ranked(judged.scores, np.zeros(len(judged.target), dtype=bool))[by]
    losses = RiskCoverage.from_losses(torch.from_numpy(score), torch.from_numpy(judged.loss))
    label = f"least sure first, by {by}; dotted: at random"
    plot_risk_coverage(picture.ax, losses, deferred=True, root=root, min_coverage=0.4, label=label)
    return picture.html()


# labels


def _labels(found: Findings) -> str:
    """Tables of the labels: how often each was found, and what it was taken for."""
    prediction, target = found.judged.as_prediction()
    counted_labels = confusion(prediction, target)
    classes = shortened_apart(found.model.schema.classes, _NAME)
    counts = counted_labels.counts.numpy()
    recall, precision = counted_labels.class_accuracy.numpy(), counted_labels.class_precision.numpy()
    order = list(range(len(classes)))
    said = ""
    if len(classes) > _MOST_LABELS:
        order = sorted(order, key=lambda place: -int(counts[place].sum()))[:_MOST_LABELS]
        said = f"The {_MOST_LABELS} commonest of {len(classes)} labels."
    rows = [
        (
            classes[place],
            f"{int(counts[place].sum()):,}",
            percent(float(recall[place])),
            percent(float(precision[place])),
        )
        for place in order
    ]
    head = ("label", "rows", "found (recall)", "right where given (precision)")
    parts = ["<h3>Every label</h3>", note(said), table(head, rows, numbers=(1, 2, 3)), "<h3>Taken for</h3>"]
    parts.append(_pairs(counted_labels, classes) if len(classes) > _MOST_LABELS else _matrix(counts, classes))
    return "".join(parts)


def _matrix(counts: np.ndarray, classes: list[str]) -> str:
    across = classes
    said = "True labels down, labels given across; shaded by the share of the true label."
    if sum(map(len, classes)) > _BESIDE:
        across = [str(place) for place in range(1, len(classes) + 1)]
        classes = [
            f"{place} {name}" for place, name in zip(across, shortened_apart(classes, 40), strict=True)
        ]
        said += " Labels given have the numbers of the true labels."
    rows = [(name, *(f"{count:,}" for count in line)) for name, line in zip(classes, counts, strict=True)]
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    shades = {(row, 1 + place): float(value) for (row, place), value in np.ndenumerate(share)}
    head = ("true label", *across)
    return note(said) + table(head, rows, numbers=range(1, len(head)), shades=shades)


def _pairs(counted_labels: Confusion, classes: list[str]) -> str:
    """The pairs of true label and label given that were mistaken most often, where there are many labels."""
    wrong = counted_labels.counts.clone()
    wrong.fill_diagonal_(0)
    flat = wrong.flatten()
    rows = []
    for place in flat.argsort(descending=True, stable=True)[:_MOST_LABELS].tolist():
        if flat[place] > 0:
            true, given = divmod(place, len(classes))
            rows.append((classes[true], classes[given], f"{int(flat[place]):,}"))
    if not rows:
        return note("No label was taken for another.")
    return table(("true label", "label given", "rows"), rows, numbers=(2,))


# slices, and rows for a person


def _slices(found: Findings) -> str:
    slices = worst_slices(found.judged, found.frame, found.model.schema, found.level)
    if not slices:
        return note("No part of the table has the 15 rows that would tell.")
    # The expected maximum of M independent |z| is near sqrt(2 log 2M), an upper bound.
    chance = math.sqrt(2 * math.log(2 * len(slices)))
    rows = [
        (
            shortened(part.column, _NAME) + shortened(part.values, 60),
            f"{part.rows:,}",
            percent(part.promised),
            percent(part.observed),
            f"{part.z:+.1f}",
        )
        for part in slices[:_MOST_SLICES]
    ]
    promised = "inside, promised" if found.model.root else "right, promised"
    said = note(
        f"{counted(len(slices), 'slice')} of at least 15 rows. z is the distance from the promise in "
        "standard errors, below 0 where the model is too sure; by chance alone the worst would be at about "
        f"{chance:.1f}."
    )
    return said + table(("slice", "rows", promised, "found", "z"), rows, numbers=(1, 2, 3, 4))


def _handed_over(found: Findings) -> str:
    result = found.outcome
    unit, shown = ("RMSE", written) if found.model.root else ("Share of wrong labels", percent)
    share = f"{result.deferred:,} of {counted(result.rows, 'row')} ({percent(result.deferred / result.rows)})"
    return note(
        f"Handed over: {found.deferral}. It would hand over {share}. {unit} of all rows: "
        f"{shown(result.error)}; of those that stay: {shown(result.error_kept)}."
    )
