"""An explanation as lines for a terminal and as an HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bayesdrop.page import bullets, note, page, shortened, shortened_apart, table
from bayesdrop.tables.explain import Explanation, HelpfulLabel
from bayesdrop.tables.written import counted, percent, written

__all__ = ["explanation_lines", "explanation_page"]

_MOST_EFFECTS, _MOST_COLUMNS = 12, 60
#: characters of a name that are written on a page, and in a terminal
_NAME, _SHORT = 120, 40


def explanation_lines(found: Explanation) -> Iterator[str]:
    """An explanation as lines of text: sentences, then two tables."""
    yield from _sentences(found)
    yield ""
    yield "What each cell adds, beside values of other rows in its place:"
    yield from _aligned([_effect_head(found), *_effect_rows(found, _SHORT)])
    yield ""
    yield "The nearest training rows:"
    near = [
        (f"{one.number:,}", written(one.distance, 0.1), _cell(one.target or "-")) for one in found.nearest
    ]
    yield from _aligned([("row", "distance", shortened(found.target, _SHORT)), *near])


def explanation_page(found: Explanation, title: str) -> str:
    """An explanation as an HTML page.

    Args:
        found: the explanation.
        title: of the page.
    """
    parts = [
        bullets(_sentences(found)),
        "<h2>What each cell adds</h2>",
        note(
            f"Each number is the prediction's own, less the average of what it would be with values of "
            f"{_rows(found, 100)} of training data in the cell's place. The draws stay the same, so that "
            "nothing else changes. Above 0, this cell adds to it."
        ),
        table(_effect_head(found), _effect_rows(found, _NAME), numbers=(2, 3, 4)),
        "<h2>The nearest training rows</h2>",
        note(
            "By the root mean squared difference of the model's standardised inputs, among "
            f"{_rows(found, found.compared_with)} of the fit. Rows are counted from 1, below the header."
        ),
        _side_by_side(found),
    ]
    asked = found.label_to_ask
    if asked is not None:
        parts.append("<h2>The label that would help most</h2>")
        parts.append(note(_asked(asked)))
        parts.append(_columns_down(found, [f"row {asked.number:,}"], [asked.cells]))
    return page(title, parts)


def _side_by_side(found: Explanation) -> str:
    """The row beside the nearest ones: how far they are, their targets, and all cells."""
    near = found.nearest
    own = found.label or written(float(found.prediction["mean"]), float(found.prediction["std"]))
    first = [
        ("distance", "", *(written(one.distance, 0.1) for one in near)),
        (
            shortened(found.target, _NAME),
            f"predicted: {_cell(own)}",
            *(_cell(one.target or "-") for one in near),
        ),
    ]
    names = [f"row {one.number:,}" for one in near]
    return _columns_down(found, names, [one.cells for one in near], first)


def _columns_down(
    found: Explanation, names: list[str], others: list[tuple[str, ...]], first: Sequence[tuple[str, ...]] = ()
) -> str:
    """Cells of the row and of others, columns going down: those first that add most uncertainty."""
    places = {name: place for place, name in enumerate(found.columns)}
    rows = [
        (
            shortened(one.column, _NAME),
            _cell(one.shown),
            *(_cell(cells[places[one.column]]) for cells in others),
        )
        for one in found.effects[:_MOST_COLUMNS]
    ]
    left = len(found.effects) - len(rows)
    more = note(f"{counted(left, 'further column is', 'further columns are')} not shown." if left else "")
    return table(("column", "this row", *names), [*first, *rows]) + more


def _cell(text: str) -> str:
    return shortened(text.strip() or "(empty)", 60)


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
            cell = f"{shortened(best.column, _NAME)} = {_cell(best.shown)}"
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


def _effect_rows(found: Explanation, most: int) -> list[tuple[str, ...]]:
    """Effects on the mean in its own unit; on lack of data and noise, as shares of the whole uncertainty."""
    whole = found.epistemic + found.aleatoric
    shown = found.effects[:_MOST_EFFECTS]
    names = shortened_apart([one.column for one in shown], most)
    rows = []
    for name, one in zip(names, shown, strict=True):
        mean = (
            _signed_percent(one.mean, 1) if found.label else _signed(one.mean, float(found.prediction["std"]))
        )
        parts = [
            _signed_percent(value / whole, 0) if whole > 0 else "-"
            for value in (one.epistemic, one.aleatoric)
        ]
        rows.append((name, _cell(one.shown), mean, *parts))
    return rows


def _signed_percent(share: float, decimals: int) -> str:
    text = f"{100 * share:+.{decimals}f}"
    return f"{text if float(text) else 0} %"


def _signed(value: float, spread: float) -> str:
    text = written(value, spread)
    return text if text.startswith("-") or not value else f"+{text}"


def _aligned(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The rows of a table as lines, in columns."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
