"""explain_row(): why a prediction is as unsure as it is, and which label would make it surer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bayesdrop.tables.cells import Array
from bayesdrop.tables.functions import Functions, Parts, inputs_in_use, inputs_of, standardised
from bayesdrop.tables.model import TableModel
from bayesdrop.tables.rows import TrainingRows, cells_of, row_numbers, shown_cell
from bayesdrop.tables.score import predict_frame
from bayesdrop.tables.written import plainly

__all__ = [
    "ColumnEffect",
    "Explanation",
    "HelpfulLabel",
    "Neighbour",
    "column_effects",
    "explain_row",
    "helpful_label",
    "nearest_rows",
]

#: rows whose values stand in for a cell, and rows that are looked at as neighbours and labels
_STAND_INS, _CANDIDATES, _NEIGHBOURS = 100, 1000, 5


@dataclass(frozen=True)
class ColumnEffect:
    """What the value of one column does to a prediction, compared with values of other rows.

    Every number is the prediction's own, less its average when the column's value is taken from training rows
    instead: above 0, this value adds to it.
    """

    column: str
    value: str  #: the cell
    mean: float  #: the expected number, or the probability of the label given
    epistemic: float  #: variance (for classes, nats) from lack of data
    aleatoric: float  #: variance (for classes, nats) from noise
    shown: str = ""  #: the cell as a person writes it


@dataclass(frozen=True)
class Neighbour:
    """A training row that is near."""

    number: int  #: its place in the table, counted from 1
    distance: float  #: root mean squared difference of the standardised inputs
    target: str  #: its number or label; "" where it is not known
    cells: tuple[str, ...]  #: of the used columns


@dataclass(frozen=True)
class HelpfulLabel:
    """The row whose label would teach most about another one.

    Attributes:
        number: its place in the table of training rows, counted from 1.
        share: of the explained row's epistemic variance, what one more label of such a row would take away.
        own: the share that a label of the explained row itself would take away.
        cells: of the used columns.
    """

    number: int
    share: float
    own: float
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """Why a prediction is uncertain.

    Attributes:
        row: the row's place in its table, counted from 1.
        target: name of what is predicted.
        label: the label given; "" for numbers.
        prediction: what `predict` writes about the row, by name of column.
        epistemic: variance (for classes, nats) from lack of data.
        aleatoric: variance (for classes, nats) from noise.
        outside: what of the row lies outside what was learned, in words; "" if nothing does.
        effects: of the columns, those first that add most to the uncertainty.
        nearest: training rows, the nearest first.
        farther: share of training rows that lie nearer to their nearest row than this row does to its own;
            None with fewer than 2 training rows.
        label_to_ask: the most helpful label; None where the draws do not differ or are too few to tell.
        columns: names of the used columns.
        compared_with: training rows among which the nearest and the most helpful were looked for.
    """

    row: int
    target: str
    label: str
    prediction: dict[str, Any]
    epistemic: float
    aleatoric: float
    outside: str
    effects: tuple[ColumnEffect, ...]
    nearest: tuple[Neighbour, ...]
    farther: float | None
    label_to_ask: HelpfulLabel | None
    columns: tuple[str, ...]
    compared_with: int

    @property
    def epistemic_share(self) -> float:
        """Of the whole uncertainty, the share that is lack of data; NaN where there is none at all."""
        whole = self.epistemic + self.aleatoric
        return self.epistemic / whole if whole > 0 else math.nan

    def as_dict(self) -> dict[str, Any]:
        """As values that JSON can hold: NaN and infinite numbers are None."""
        found = _finite({**asdict(self), "epistemic_share": self.epistemic_share})
        assert isinstance(found, dict)
        return found


def _finite(value: Any) -> Any:
    """A value with all in it that is not finite replaced by None, and NumPy's types by Python's."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def explain_row(model: TableModel, frame: Any, rows: TrainingRows | None = None) -> Explanation:
    """Why the model is unsure of a row.

    Args:
        model: fitted.
        frame: a pandas frame with one row and the model's columns.
        rows: training rows; those that the model keeps if None.
    """
    if len(frame) != 1:
        raise ValueError(f"explain_row: `frame` must have one row; got {len(frame):,}.")
    rows = model.rows if rows is None else rows
    if rows is None or not len(rows):
        raise ValueError(
            "the model's folder keeps no training rows, which a row is compared with. Give them with "
            "--data train.csv, or fit with --keep-rows 1000."
        )
    found = predict_frame(model, frame)
    schema, prepared = model.schema, model.prepare(frame)
    model.prepare.add_far_numbers(prepared, model.estimator)
    x = prepared.x
    functions = Functions.of(model.estimator)
    own = functions.parts(x)
    label = int(own.mean[0].argmax())
    places = inputs_of(schema)
    stand_ins = rows.first(_STAND_INS).x
    cells = [str(frame[column.name].iloc[0]) for column, _ in places]
    shown = [shown_cell(column, frame[column.name], schema.missing_marks) for column, _ in places]
    effects = column_effects(functions, x, stand_ins, [where for _, where in places], label)
    near = rows.first(_CANDIDATES)
    scale, used = standardised(model.estimator, rows.x), inputs_in_use(model.estimator)
    order, distances, farther = nearest_rows(scale(x)[0, used], scale(near.x)[:, used])
    asked = helpful_label(functions, x, near.x, label, classes=not model.root)
    texts = cells_of(schema, near.x)
    names = [column.name for column, _ in places]
    made = [
        ColumnEffect(name, cell, float(effect[0]), float(effect[1]), float(effect[2]), as_shown)
        for name, cell, effect, as_shown in zip(names, cells, effects, shown, strict=True)
    ]
    prediction = {name: values[0] for name, values in found.items() if name != "reason"}
    return Explanation(
        row=int(row_numbers(frame)[0]),
        target=schema.target,
        label="" if model.root else str(prediction["label"]),
        prediction=prediction,
        epistemic=float(own.epistemic[0]),
        aleatoric=float(own.aleatoric[0]),
        outside=str(prepared.reasons.texts()[0]),
        effects=tuple(sorted(made, key=lambda one: -(one.epistemic + one.aleatoric))),
        nearest=tuple(
            Neighbour(
                int(near.numbers[place]),
                float(distances[place]),
                _target_text(model, near.y[place]),
                tuple(texts[place]),
            )
            for place in order[:_NEIGHBOURS]
        ),
        farther=farther,
        label_to_ask=None
        if asked is None
        else HelpfulLabel(int(near.numbers[asked[0]]), asked[1], asked[2], tuple(texts[asked[0]])),
        columns=tuple(names),
        compared_with=len(near),
    )


def _target_text(model: TableModel, value: float) -> str:
    if math.isnan(value):
        return ""
    return plainly(value) if model.root else model.schema.classes[int(value)]


def column_effects(
    functions: Functions, x: Array, stand_ins: Array, columns: Sequence[slice], label: int = 0
) -> Array:
    """What each column's value does to a row: its mean, and the two parts of its uncertainty.

        s(x) - (1/M) sum_m s(x with the column's inputs of row m)

    for s the mean (or the probability of a label), the epistemic and the aleatoric part, all by the same
    draws.

    Args:
        functions: of the model.
        x: (1, K) inputs of the row.
        stand_ins: (M, K) inputs of other rows.
        columns: which of the K inputs are those of every column.
        label: place of the label whose probability is meant; 0 for numbers.

    Returns: (columns, 3): mean, epistemic, aleatoric.
    """
    changed = np.repeat(np.repeat(x[None], len(stand_ins), 1), len(columns), 0)
    for place, where in enumerate(columns):
        changed[place, :, where] = stand_ins[:, where]
    own = _three(functions.parts(x), label)
    others = _three(functions.parts(changed.reshape(-1, x.shape[1])), label)
    effects: Array = own - others.reshape(len(columns), len(stand_ins), 3).mean(1)
    return effects


def _three(parts: Parts, label: int) -> Array:
    """(N, 3): mean, epistemic and aleatoric part of N rows."""
    return np.stack([parts.mean[:, label], parts.epistemic, parts.aleatoric], 1)


def nearest_rows(z: Array, rows: Array) -> tuple[list[int], Array, float | None]:
    """Training rows by their distance from a row, and how far out the row lies.

    Args:
        z: (K,) standardised inputs of the row.
        rows: (N, K) standardised inputs of training rows.

    Returns: places, the nearest first; (N,) root mean squared differences; the share of training rows that
        lie nearer to their own nearest row than this one does to its, None with fewer than 2 rows.
    """
    distances = np.sqrt(np.mean((rows - z) ** 2, 1))
    order = np.argsort(distances, kind="stable").tolist()
    if len(rows) < 2:
        return order, distances, None
    squares = (rows**2).sum(1)
    between = squares[:, None] + squares - 2 * rows @ rows.T
    np.fill_diagonal(between, np.inf)
    own = np.sqrt(np.maximum(between.min(1), 0) / rows.shape[1])
    return order, distances, float(np.mean(own < distances.min()))


def helpful_label(
    functions: Functions, x: Array, rows: Array, label: int = 0, *, classes: bool
) -> tuple[int, float, float] | None:
    """The row whose label, asked for once more, would take most of the epistemic variance at x away.

    With f the function, one observation y_m = f(x_m) + noise leaves the variance (for jointly Gaussian
    values; for others that of the best linear estimate)

        Var f(x) - Cov(f(x), f(x_m))^2 / Var y_m

    The row is chosen by every other draw, and its share measured by the rest: measured by the same draws, the
    largest of many estimates would be too large.

    Args:
        functions: of the model.
        x: (1, K) inputs of the row.
        rows: (M, K) inputs of rows that could be labelled.
        label: place of the label whose probability is meant; 0 for numbers.
        classes: whether the model predicts labels: Var y_m is then p (1 - p).

    Returns: the place of the row, the share of the variance that its label takes away, and the share that a
        label of x itself would; None where there is no variance, or fewer than 8 draws to measure it.
    """
    both = np.concatenate([x, rows])
    values = functions.values(both)[:, :, label]
    parts = functions.parts(both)
    if len(values) < 8 or values[:, 0].std() == 0:
        return None
    p = parts.mean[:, label]
    noise = np.maximum(p * (1 - p) - values.var(0), 0) if classes else parts.aleatoric
    chosen = int(_shares(values[::2], noise)[1:].argmax())
    shares = _shares(values[1::2], noise)
    return chosen, float(shares[1 + chosen]), float(shares[0])


def _shares(values: Array, noise: Array) -> Array:
    """(N,) share of the first row's variance over draws (T, N) that a noisy value of each row takes away."""
    away = values - values.mean(0)
    covariance = away[:, 0] @ away / len(away)
    variance = np.mean(away**2, 0)
    with np.errstate(all="ignore"):
        shares: Array = covariance**2 / ((variance + noise) * variance[0])
    return np.nan_to_num(shares, nan=0.0)
