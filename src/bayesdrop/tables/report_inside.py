"""What is inside a model, for its report: columns that it uses, rows that it is unsure of, drop rates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.page import Picture, note, pictures, shortened, shortened_apart, table
from bayesdrop.plots import COLORS, plot_bands, plot_estimates
from bayesdrop.tables.cells import Array
from bayesdrop.tables.dependence import Dependence, dependence
from bayesdrop.tables.explain import column_effects
from bayesdrop.tables.findings import Findings
from bayesdrop.tables.functions import inputs_of
from bayesdrop.tables.rows import row_numbers, shown_cell
from bayesdrop.tables.written import counted, percent, written

__all__ = ["dependences", "drop_rates", "uncertain_rows", "what_it_uses"]

_MOST_ROWS, _MOST_CELLS, _MOST_TELLING, _MOST_IMPORTANT = 10, 4, 3, 15
#: pictures of dependence, rows that each averages over, classes in one
_DEPENDENCES, _AVERAGED, _MOST_CLASSES = 4, 100, 4
#: rows whose values replace a cell's, and columns whose cells are replaced, to find telling cells
_STAND_INS, _TRIED = 16, 12
#: numbers of draws that are held for a picture of dependence, at most
_HELD = 4_000_000


def what_it_uses(found: Findings) -> str:
    """Permutation importance with standard errors, as table and picture; learned rates of inputs, if any."""
    order = found.importances
    if not order:
        return note("One row cannot tell what the model uses.")
    names = [column.name for column, _ in inputs_of(found.model.schema)]
    unit = "the rise of the log-loss, in nats a row" if found.judged.classes else "the fall of R squared"
    rates = _input_rates(found)
    shown = order[:_MOST_IMPORTANT]
    digits = 10 * float(np.median([one.error for one in shown])) or 1.0
    head = ["column", "cost", "± standard error"] + (["learned drop rate"] if rates is not None else [])
    rows = []
    for one in shown:
        row = [shortened(names[one.place], 120), written(one.value, digits), written(one.error, digits)]
        rows.append(row + ([written(rates[one.place], 0.1)] if rates is not None else []))
    left = len(names) - len(shown)
    more = f" {counted(left, 'column')} that cost less are not shown." if left else ""
    said = note(
        f"How much worse the predictions are when a column is shuffled among at most 400 rows: {unit}. A "
        "column within two standard errors of 0 may as well be left out; one that another column repeats "
        f"seems unused.{more}"
    )
    beside = table(head, rows, numbers=range(1, len(head)))
    return said + pictures([_importance_picture(found, shown, names), beside])


def _importance_picture(found: Findings, shown: list[Any], names: list[str]) -> str:
    picture = Picture("Cost of shuffling a column, ± 2 standard errors", height=0.9 + 0.26 * len(shown))
    short = shortened_apart([names[one.place] for one in shown], 30)
    estimates: dict[str, Any] = {
        name: (one.value, 2 * one.error) for name, one in zip(short, shown, strict=True)
    }
    plot_estimates(picture.ax, estimates)
    picture.ax.axvline(0, color="#666666", linewidth=1, linestyle=":")
    picture.ax.set_xlabel("rise of the log-loss (nats)" if found.judged.classes else "fall of R squared")
    return picture.html()


def _input_rates(found: Findings) -> list[float] | None:
    """Mean learned rate of dropping the inputs of every column; None unless each input has its own.

    NaN for a column that no network uses.
    """
    mixture = found.model.estimator.mixture_
    places = inputs_of(found.model.schema)
    total, count = np.zeros(places[-1][1].stop), np.zeros(places[-1][1].stop)
    for component in mixture.components:
        p, encoder = component.network.p[0], mixture.encoders[component.encoder]
        chosen = np.arange(len(total)) if encoder.chosen is None else encoder.chosen
        if component.network.settings.method not in ("concrete", "learnable") or p.numel() < len(chosen):
            return None
        # The columns come first among the inputs, then predictions of the guess, then encodings.
        total[chosen] += p.double().numpy().reshape(-1)[: len(chosen)]
        count[chosen] += 1
    sums = [(float(total[where].sum()), float(count[where].sum())) for _, where in places]
    return [rate / networks if networks else math.nan for rate, networks in sums]


# partial dependence


def dependences(found: Findings) -> str:
    """What the model expects on average as the most important columns change."""
    drawn = list(_dependence_pictures(found))
    if not drawn:
        return ""
    rows = min(len(found.x), _AVERAGED)
    said = (
        f"What the model expects on average over {counted(rows, 'row')} when one column takes each value in "
        f"turn and the others stay ({found.functions.num_draws} draws). Bands are two standard deviations of "
        "the draws: how little the model knows of the curve. Noise is not in them."
    )
    return "<h3>How predictions depend on the columns</h3>" + note(said) + pictures(drawn)


def _dependence_pictures(found: Findings) -> Iterator[str]:
    if not np.isfinite(found.x).all() or not found.importances:
        return
    places = inputs_of(found.model.schema)
    outputs = max(1, len(found.model.schema.classes))
    most = _HELD // (found.functions.num_draws * 16 * outputs)
    taken = np.random.default_rng(3).permutation(len(found.x))[: max(2, min(_AVERAGED, most))]
    rows = found.x if found.training is None else found.training.x[:2000]
    for one in found.importances[:_DEPENDENCES]:
        column, where = places[one.place]
        curve = dependence(found.functions, found.x[taken], column, where, rows)
        if len(curve.values) > 1 and np.isfinite(curve.mean).all() and np.isfinite(curve.std).all():
            yield _dependence_picture(found, curve)


def _dependence_picture(found: Findings, curve: Dependence) -> str:
    classes = found.model.schema.classes
    name = shortened(curve.column.name, 50)
    what = "Probabilities" if classes else f"Expected {shortened(found.model.schema.target, 80)}"
    picture = Picture(f"{what} by {shortened(curve.column.name, 100)}")
    shown = _shown_classes(found)
    categories = curve.column.kind not in ("numeric", "date")
    labels = shortened_apart([classes[place] for place in shown], 30) if classes else [""]
    texts = shortened_apart(curve.labels, 26)
    for number, place in enumerate(shown):
        label = labels[number] or None
        color = COLORS[number % len(COLORS)]
        mean, std = curve.mean[:, place], curve.std[:, place]
        if categories:
            estimates = {
                f"{text}{' ' * index}": (float(mean[index]), 2 * float(std[index]))
                for index, text in enumerate(texts)
            }
            shift = 0.18 * (number - (len(shown) - 1) / 2)
            plot_estimates(picture.ax, estimates, color=color, shift=shift, label=label)
        else:
            plot_bands(picture.ax, curve.values, (mean, std), num_std=(2.0,), color=color, label=label)
    expected = "probability" if classes else f"expected {shortened(found.model.schema.target, 30)}"
    if categories:
        picture.ax.set_xlabel(expected)
    else:
        picture.ax.set(xlabel=name, ylabel=expected)
    return picture.html()


def _shown_classes(found: Findings) -> list[int]:
    """Places of outputs to draw: the number; of two classes the second; of more the commonest."""
    classes = len(found.model.schema.classes)
    if classes <= 2:
        return [max(0, classes - 1)]
    counts = np.bincount(found.judged.target, minlength=classes)
    return sorted(np.argsort(-counts, kind="stable")[:_MOST_CLASSES].tolist())


# rows


def uncertain_rows(found: Findings) -> str:
    """The rows that the model is least sure of, the reason, and the cells that make it so."""
    judged, by = found.judged, str(found.deferral.rule.by)
    score = np.nan_to_num(judged.scores[by], nan=np.inf)
    order = np.argsort(-score, kind="stable")[:_MOST_ROWS]
    # Rows that the model is nearly sure of are not shown.
    order = order[(score[order] >= 0.01 * score[order[0]]) | np.isinf(score[order])]
    numbers = row_numbers(found.frame)[order]
    telling, reasons = _telling(found, order), _reasons(found, order)
    columns = [column.name for column, _ in inputs_of(found.model.schema)]
    important = [columns[one.place] for one in found.importances[:_MOST_CELLS]] or columns[:_MOST_CELLS]
    head, spread = _score_names(found), _spread(judged.target)
    rows = []
    for place, at in enumerate(order):
        cells = (_cell(found, name, at) for name in important)
        said = _score_cells(found, int(at), spread)
        rows.append((f"{int(numbers[place]):,}", *said, reasons[place], telling[place], *cells))
    left = len(columns) - len(important)
    more = f" {counted(left, 'further column is', 'further columns are')} not shown." if left else ""
    text = (
        "Rows are counted from 1, below the header. Lack of data: the model's own functions disagree, and "
        "labels of such rows would help. Noise: they agree that the target varies. Telling cells add most to "
        f"the uncertainty, beside values of {_STAND_INS} other rows in their place.{more}"
    )
    names = ("row", *head, "reason", "telling cells", *shortened_apart(important, 40))
    return note(text) + table(
        names, rows, numbers=(0, *range(1, 1 + len(head))) if found.model.root else (0,)
    )


def _score_names(found: Findings) -> tuple[str, ...]:
    if found.judged.classes:
        return ("label given", "its probability", "true label", str(found.deferral.rule.by))
    return ("predicted", "± std", "actual", "interval")


def _score_cells(found: Findings, at: int, spread: float) -> tuple[str, ...]:
    scores, classes = found.judged.scores, found.model.schema.classes
    target = found.judged.target[at]
    if found.judged.classes:
        best = int(scores["probs"][at].argmax())
        score = written(float(scores[str(found.deferral.rule.by)][at]), 1.0)
        return (
            shortened(classes[best], 60),
            percent(scores["probs"][at, best]),
            shortened(classes[int(target)], 60),
            score,
        )
    mean, std, lower, upper = (float(scores[name][at]) for name in ("mean", "std", "lower", "upper"))
    room = std if 0 < std < spread else spread
    ends = f"{written(lower, room)} to {written(upper, room)}"
    return written(mean, room), written(std), written(float(target), room), ends


def _spread(target: Array) -> float:
    """How far targets lie apart, which says how many digits to write; above 0."""
    return float(np.std(target)) or abs(float(target[0])) or 1.0


def _cell(found: Findings, name: str, row: int) -> str:
    schema = found.model.schema
    column = next(one for one in schema.used if one.name == name)
    return shortened(shown_cell(column, found.frame[name].iloc[[row]], schema.missing_marks), 60)


def _reasons(found: Findings, order: NDArray[np.int64]) -> list[str]:
    """Noise or lack of data, and what lies outside, for each of some rows."""
    scores = found.judged.scores
    prepared = found.model.prepare(found.frame.iloc[order])
    found.model.prepare.add_far_numbers(prepared, found.model.estimator)
    outside = prepared.reasons.texts()
    texts = []
    for place, at in enumerate(order):
        if found.judged.classes:
            part, whole = scores["mutual_information"][at], scores["entropy"][at]
        else:
            part, whole = scores["epistemic"][at], scores["epistemic"][at] + scores["aleatoric"][at]
        share = float(part / whole) if whole > 0 else 0.0
        if not np.isfinite(share):
            text = "the prediction is not finite"
        elif share >= 0.5:
            text = f"lack of data ({percent(share, 0)})"
        else:
            text = f"noise ({percent(1 - share, 0)})"
        texts.append(f"{text}; {outside[place]}" if outside[place] else text)
    return texts


def _telling(found: Findings, order: NDArray[np.int64]) -> list[str]:
    """Telling cells of each of some rows: those, of the most important columns, that add most uncertainty."""
    places = inputs_of(found.model.schema)
    tried = [one.place for one in found.importances[:_TRIED]] or list(range(len(places)))[:_TRIED]
    rows = found.x if found.training is None else found.training.x
    stand_ins = rows[:_STAND_INS]
    names = shortened_apart([column.name for column, _ in places], 40)
    texts = []
    for at in order:
        x = found.x[[at]]
        effects = column_effects(found.functions, x, stand_ins, [places[place][1] for place in tried])
        added = effects[:, 1] + effects[:, 2]
        whole = found.functions.parts(x)
        least = 0.1 * float(whole.epistemic[0] + whole.aleatoric[0])
        best = [place for place in np.argsort(-added, kind="stable")[:_MOST_TELLING] if added[place] > least]
        cells = []
        for place in best:
            name = places[tried[place]][0].name
            cells.append(f"{names[tried[place]]} = {_cell(found, name, at)}")
        texts.append(", ".join(cells) or "none alone")
    return texts


# rates


def drop_rates(found: Findings) -> str:
    """Mean drop rate of every layer, over all networks of one architecture."""
    mixture = found.model.estimator.mixture_
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
