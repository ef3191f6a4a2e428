"""The first lines of a report: how good a model is, whether to trust it, and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bayesdrop.metrics import confusion
from bayesdrop.page import shortened, shortened_apart
from bayesdrop.tables.findings import Findings
from bayesdrop.tables.written import counted, percent, written

__all__ = ["summary"]

#: rows below which the summary warns that they are few, and rows that a label must have to be named as weak
_FEW, _LABEL_ROWS = 50, 5
#: weak labels that have a sentence each; of more of them, so many are named in one
_NAMED = 3


def summary(found: Findings) -> Iterator[str]:
    """A few sentences that can be acted on."""
    yield _how_good(found)
    if found.compared is not None:
        said, rows = found.compared.sentence, found.training
        if found.compared.verdict == "worse" and found.model.estimator.preset == "quick":
            said += " A longer fit, --preset default, may do better."
        if found.compared.verdict != "worse" and rows is not None and len(rows) < rows.of:
            said += (
                f" It was fitted to {len(rows):,} of {rows.of:,} rows only, which is not quite fair to it."
            )
        yield said
    yield _trust_in_labels(found) if found.judged.classes else _trust_in_intervals(found)
    yield from _weak_labels(found)
    yield _where_from(found)
    yield _to_do(found)
    if (count := len(found.judged.target)) < _FEW:
        yield f"All of this is told by {counted(count, 'row')}, which is few: other rows may say otherwise."


def _how_good(found: Findings) -> str:
    measured, rows = found.measures, len(found.judged.target)
    if found.judged.classes:
        right = rows - round(float(found.judged.loss.sum()))
        low, high = _wilson(right, rows)
        return (
            f"{percent(measured['accuracy'])} of the labels are right ({right:,} of {rows:,}; between "
            f"{percent(low, 0)} and {percent(high, 0)} with 95 % confidence)."
        )
    target = shortened(found.model.schema.target, 80)
    text = f"Predictions of {target} are off by {written(measured['rmse'])} (RMSE)"
    text += f" and by {written(measured['mean_absolute_error'])} on average"
    explained = measured.get("r2")
    if explained is None:
        return f"{text}."
    if explained <= 0:
        return f"{text}: no better than the mean of these rows."
    return f"{text}; they explain {percent(explained, 0)} of its variance."


def _wilson(right: int, rows: int) -> tuple[float, float]:
    """Wilson's 95 % interval of the share right / rows."""
    z = 1.96
    middle = (right + z * z / 2) / (rows + z * z)
    half = z / (rows + z * z) * math.sqrt(right * (rows - right) / rows + z * z / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def _trust_in_intervals(found: Findings) -> str:
    level, coverage, rows = found.level, found.measures["coverage"], len(found.judged.target)
    z = (coverage - level) / math.sqrt(level * (1 - level) / rows)
    said = f"Its {100 * level:g} % intervals hold {percent(coverage)} of the targets"
    if z < -2:
        return f"{said}: fewer than promised. Do not rely on them for rows like these."
    if z > 2:
        return f"{said}: more than promised, so that they are wider than need be."
    return f"{said}, as promised."


def _trust_in_labels(found: Findings) -> str:
    given = found.judged.scores["probs"].max(1)
    right = 1 - found.judged.loss
    error = math.sqrt(float(np.sum(given * (1 - given)))) / len(given)
    z = float(right.mean() - given.mean()) / max(error, 0.5 / len(given))
    said = f"It gives its labels a probability of {percent(float(given.mean()))} on average, and "
    said += f"{percent(float(right.mean()))} are right"
    if z < -2:
        return f"{said}: it is too sure of itself. Use its probabilities to rank rows, and for no more."
    if z > 2:
        return f"{said}: it is less sure than it could be."
    return f"{said}: as far as these rows can tell, its probabilities can be taken as they are."


def _weak_labels(found: Findings) -> Iterator[str]:
    """Which labels are found in less than half of their rows."""
    if not found.judged.classes:
        return
    counts = confusion(*found.judged.as_prediction())
    totals, recalls = counts.counts.sum(1).tolist(), counts.class_accuracy.tolist()
    names = shortened_apart(found.model.schema.classes, 60)
    weak = [place for place, total in enumerate(totals) if total >= _LABEL_ROWS and recalls[place] < 0.5]
    if len(weak) <= _NAMED:
        for place in weak:
            yield (
                f"Label {names[place]} is found in {percent(recalls[place], 0)} of its {totals[place]:,} "
                "rows only: do not rely on the model to find it."
            )
        return
    worst = sorted(weak, key=lambda place: -totals[place])[:_NAMED]
    some = ", ".join(f"{names[place]} ({percent(recalls[place], 0)} of {totals[place]:,})" for place in worst)
    yield (
        f"{len(weak)} of {len(names)} labels are found in less than half of their rows: do not rely on the "
        f"model to find them. The commonest of these: {some}."
    )


def _where_from(found: Findings) -> str:
    """How much of the uncertainty is lack of data, how much noise, and what would help."""
    scores = found.judged.scores
    if found.judged.classes:
        part, whole = scores["mutual_information"], scores["entropy"]
    else:
        part, whole = scores["epistemic"], scores["epistemic"] + scores["aleatoric"]
    finite = np.isfinite(part) & np.isfinite(whole)
    total = float(whole[finite].mean()) if finite.any() else 0.0
    if total <= 0:
        return "The model is sure of every row."
    share = float(part[finite].mean()) / total
    text = f"{percent(share, 0)} of the uncertainty is lack of data, {percent(1 - share, 0)} is noise"
    if share > 0.5:
        return f"{text}: more rows, above all rows like the uncertain ones below, should make it better."
    if share < 0.2:
        return f"{text}: more rows of these columns would change little; a further column may tell more."
    return f"{text}: more rows would help somewhat, and a further column may tell more."


def _to_do(found: Findings) -> str:
    result, rule, root = found.outcome, found.deferral, found.model.root
    if not result.deferred:
        return f"None of these rows goes to a person by the rule: {rule}."
    if result.deferred == result.rows:
        return f"Hand all rows to a person: {rule}."
    whole, kept = (written(e) if root else percent(e) for e in (result.error, result.error_kept))
    what = "the RMSE of the rest" if root else "the share of wrong labels among the rest"
    which = f"rows with {rule.rule.by} above {written(rule.threshold, digits=4)}"
    which = which if math.isfinite(rule.threshold) else "rows outside what was learned"
    by = "falls" if result.error_kept < result.error else "goes"
    share = percent(result.deferred / result.rows)
    return f"Hand {which} to a person, {share} of these: {what} {by} from {whole} to {kept}."
