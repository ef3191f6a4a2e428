"""An explanation as lines for a terminal and as an HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bayesdrop.page import bullets, note, page, shortened, table
from bayesdrop.tables.explain import Explanation, HelpfulLabel
from bayesdrop.tables.written import counted, percent, written

__all__ = ["explanation_lines", "explanation_page"]

_MOST_EFFECTS = 12


def explanation_lines(found: Explanation) -> Iterator[str]:
    """An explanation as lines of text: sentences, then two tables."""
    yield from _sentences(found)
    yield ""
    yield "What each cell adds, beside values of other rows in its place:"
    yield from _aligned([_effect_head(found), *_effect_rows(found)])
    yield ""
    yield "The nearest training rows:"
    yield from _aligned([("row", "distance", found.target), *(row[:3] for row in _neighbour_rows(found))])


def explanation_page(found: Explanation, title: str) -> str:
    """An explanation as an HTML page.

    Args:
        found: the explanation.
        title: of the page.
    """
    columns = tuple(shortened(name, 30) for name in found.columns)
    parts = [
        bullets(_sentences(found)),
        "<h2>What each cell adds</h2>",
        note(
            f"Each number is the prediction's own, less the average of what it would be with values of "
            f"{_rows(found, 100)} of training data in the cell's place. The draws stay the same, so that "
            "nothing else changes. Above 0, this cell adds to it."
        ),
        table(_effect_head(found), _effect_rows(found), numbers=(2, 3, 4)),
        "<h2>The nearest training rows</h2>",
        note(
            "By the root mean squared difference of the model's standardised inputs, among "
            f"{_rows(found, found.compared_with)} of the fit. Rows are counted from 1, below the header."
        ),
        table(
            ("row", "distance", shortened(found.target, 30), *columns), _neighbour_rows(found), numbers=(0, 1)
        ),
    ]
    asked = found.label_to_ask
    if asked is not None:
        parts.append("<h2>The label that would help most</h2>")
        parts.append(note(_asked(asked)))
        parts.append(
            table(("row", *columns), [(f"{asked.number:,}", *map(_cell, asked.cells))], numbers=(0,))
        )
    return page(title, parts)


def _cell(text: str) -> str:
    return shortened(text.strip() or "(empty)", 40)


def _rows(found: Explanation, most: int) -> str:
    return counted(min(most, found.compared_with), "row")


def _sentences(found: Explanation) -> Iterator[str]:
    said, share = found.prediction, found.epistemic_share
    if found.label:
        chance = said[f"p_{found.label}"]
        yield f"Row {found.row:,}: {found.target} is {found.label} with probability {percent(chance)}."
    else:
        std = float(said["std"])
        ends = " to ".join(written(float(said[name]), std) for name in ("lower", "upper"))
        mean = written(float(said["mean"]), std)
        said_so = f"{mean} ± {written(std)} (standard deviation), interval {ends}"
        yield f"Row {found.row:,}: {found.target} is {said_so}."
    if math.isnan(share):
        yield "The model is sure of it."
    else:
        advice = (
            "labels of such rows would help"
            if share >= 0.5
            else "more rows of these columns would help little"
        )
        parts = f"{percent(share, 0)} of the uncertainty is lack of data, {percent(1 - share, 0)} is noise"
        yield f"{parts}: {advice}."
    for part, name in (("epistemic", "lack of data"), ("aleatoric", "noise")):
        added = [float(getattr(one, part)) for one in found.effects]
        whole = float(getattr(found, part))
        if whole > 0 and max(added) > 0.05 * whole:
            best = found.effects[added.index(max(added))]
            cell = f"{shortened(best.column, 40)} = {_cell(best.shown)}"
            taken = percent(min(1.0, max(added) / whole), 0)
            yield f"The cell that adds most to the {name} is {cell}: others in its place take {taken} away."
    yield (
        f"Outside what was learned: {found.outside}."
        if found.outside
        else "No cell is outside what was learned."
    )
    if found.farther is not None:
        shown = percent(found.farther, 1 if 0.99 < found.farther < 1 else 0)
        yield f"It lies farther from its nearest training row than {shown} of training rows do from theirs."
    if found.label_to_ask is not None:
        yield _asked(found.label_to_ask)
    yield "It goes to a person." if bool(said["defer"]) else "It does not go to a person."


def _asked(asked: HelpfulLabel) -> str:
    return (
        f"The label that would help most is one more of a row like row {asked.number:,} of the training data:"
        f" it would take about {percent(asked.share, 0)} of the lack of data away; a label of the row "
        f"itself would take {percent(asked.own, 0)}."
    )


def _effect_head(found: Explanation) -> tuple[str, ...]:
    mean = (
        f"chance of {shortened(found.label, 30)}"
        if found.label
        else f"expected {shortened(found.target, 30)}"
    )
    return ("column", "cell", f"adds to {mean}", "adds to lack of data", "adds to noise")


def _effect_rows(found: Explanation) -> list[tuple[str, ...]]:
    """Effects on the mean in its own unit; on lack of data and noise, as shares of the whole uncertainty."""
    whole = found.epistemic + found.aleatoric
    rows = []
    for one in found.effects[:_MOST_EFFECTS]:
        mean = (
            f"{100 * one.mean:+.1f} %" if found.label else _signed(one.mean, float(found.prediction["std"]))
        )
        parts = [
            f"{100 * value / whole:+.0f} %" if whole > 0 else "-" for value in (one.epistemic, one.aleatoric)
        ]
        rows.append((shortened(one.column, 40), _cell(one.shown), mean, *parts))
    return rows


def _signed(value: float, spread: float) -> str:
    text = written(value, spread)
    return text if text.startswith("-") else f"+{text}"


def _neighbour_rows(found: Explanation) -> list[tuple[str, ...]]:
    return [
        (f"{one.number:,}", written(one.distance, 0.1), _cell(one.target) or "-", *map(_cell, one.cells))
        for one in found.nearest
    ]


def _aligned(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The rows of a table as lines, in columns."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
