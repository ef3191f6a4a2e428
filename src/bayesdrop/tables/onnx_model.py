"""A table model as one ONNX file: from cells to predictions, intervals and deferral."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesdrop.errors import require
from bayesdrop.export.call import ROWS, checked_path
from bayesdrop.export.nodes import Handle, Weights, Writer
from bayesdrop.export.onnx_file import finished, rows_of, rows_to_try, write_quantities
from bayesdrop.export.program import Dims, Size
from bayesdrop.export.quantities import quantities_program
from bayesdrop.export.verify import onnx_runner, relative_error
from bayesdrop.storage import whole_file
from bayesdrop.tables.columns import MISSING, OTHER, Column
from bayesdrop.tables.deferral import Deferral, Rule
from bayesdrop.tables.model import TableModel
from bayesdrop.tables.onnx_inputs import write_inputs
from bayesdrop.tables.onnx_intervals import check_target_kind, write_interval
from bayesdrop.tables.onnx_networks import write_mixture
from bayesdrop.tables.score import predict_frame

__all__ = ["ExportedTable", "export_table"]

#: the largest difference from `predict_frame` that is let pass, relative to the largest number of a column
_TOLERANCE = 1e-5
_OF_NUMBERS = ("mean", "std", "epistemic", "aleatoric")
_OF_CLASSES = ("probs", "entropy", "mutual_information")


@dataclass(frozen=True)
class ExportedTable:
    """What `export_table` has written.

    Attributes:
        path: the file.
        inputs: what every input of the file is, by its name.
        outputs: names of the outputs.
        num_bytes: size of the file.
        num_draws: functions in it.
        largest_error: difference from `predict_frame`, relative to the largest number of a column.
    """

    path: Path
    inputs: dict[str, str]
    outputs: tuple[str, ...]
    num_bytes: int
    num_draws: int
    largest_error: float


def export_table(
    model: TableModel,
    path: str | os.PathLike[str],
    *,
    level: float | None = None,
    rule: Rule | None = None,
    prefix: str = "",
    overwrite: bool = False,
) -> ExportedTable:
    """Write a table model as one ONNX file that predicts what `predict_frame` does, to rounding.

    Every column that the model uses is an input of shape (N, 1): numbers and truth values in double
    precision, NaN where they are missing; dates as days since 1970; categories as texts. The outputs are
    vectors of N numbers, named as the columns of a prediction: mean, std, epistemic, aleatoric, lower and
    upper, or label, probs (N, K), entropy and mutual_information; and two truth values, "defer" and
    "outside", which is true for rows that are not like those of the fit.

    Before the file is put in its place, it is run on made-up rows, missing and new cells among them, and
    compared with `predict_frame`.

    Args:
        model: fitted.
        path: the file to write.
        level: coverage of the intervals; the model's own if None.
        rule: which rows are to be deferred; the model's own if None.
        prefix: put before the names of the outputs.
        overwrite: replace a file that is there.
    """
    target = checked_path(path, overwrite=overwrite)
    level = model.level if level is None else level
    if not 0 < level < 1:
        raise ValueError(f"export: the level must be between 0 and 1; got {level}.")
    check_target_kind(model)
    deferral = model.deferral(rule)
    made, inputs, outputs = _written(model, level, deferral, prefix)
    content: bytes = made.SerializeToString()
    sizes = (40, 7, *rows_to_try(made))
    with whole_file(target, owner="export") as draft:
        draft.write_bytes(content)
        error = _checked(model, str(draft), outputs, sizes, level, deferral, prefix)
    return ExportedTable(target, inputs, outputs, len(content), model.estimator.mixture_.num_draws, error)


def _written(
    model: TableModel, level: float, deferral: Deferral, prefix: str
) -> tuple[Any, dict[str, str], tuple[str, ...]]:
    """The ONNX model; what every input is, by its name; names of the outputs."""
    w, mixture = Writer(Weights(), None), model.estimator.mixture_
    w.weights.reserved = {column.name for column in model.schema.columns}
    made = write_inputs(w, model.schema)
    w.rows = rows_of(w, next(iter(made.kinds)))
    x = made.parts[0] if len(made.parts) == 1 else w.node("Concat", *made.parts, axis=1)
    draws = write_mixture(w, mixture, x)
    names = _OF_NUMBERS if model.root else _OF_CLASSES

    def example(rows: int | None) -> Tensor:
        shape = [size.at(rows or 1) if isinstance(size, Size) else size for size in draws.shape]
        return torch.linspace(-1, 1, math.prod(shape), dtype=torch.float64).reshape(shape)

    tail = quantities_program(example, mixture.likelihood, names, ROWS)
    found = dict(zip(names, write_quantities(w, tail, draws), strict=True))
    ends = _numbers(w, found, model, level, draws) if model.root else _classes(w, found, model)
    ends |= _deferral(w, ends, made.outside, x, model, deferral)
    ends.pop("max_prob", None)
    ends = {f"{prefix}{name}": value for name, value in ends.items()}
    w.weights.reserved |= ends.keys()
    both = [name for name in ends if name in made.kinds]
    if both:
        raise ValueError(f"export: column {both[0]!r} has the name of an output. Give the outputs a prefix.")
    facts = {
        "bayesdrop": f"a table model that predicts {model.schema.target}",
        "task": model.schema.task,
        "num_draws": str(mixture.num_draws),
        "level": str(level),
        "defer": str(deferral),
    } | {f"input {name}": what for name, what in made.kinds.items()}
    return finished(w, made.given, ends, facts), made.kinds, tuple(ends)


def _vector(w: Writer, name: str, dtype: torch.dtype = torch.float64) -> Handle:
    """A value (N, 1) or (N,) as (N,)."""
    return Handle((Size(1),), dtype, w.node("Reshape", name, w.whole(-1)))


def _double(w: Writer, value: float) -> str:
    return w.constant(value, torch.float64)


def _numbers(
    w: Writer, found: dict[str, Handle], model: TableModel, level: float, draws: Handle
) -> dict[str, Handle]:
    """The outputs for numbers, (N,) each: moments, and ends of intervals."""
    ends = {name: _vector(w, value.name) for name, value in found.items()}
    made = write_interval(w, model, model.intervals(level), draws, ends)
    for name, end in zip(("lower", "upper"), made, strict=True):
        ends[name] = Handle((Size(1),), torch.float64, end)
    return ends


def _classes(w: Writer, found: dict[str, Handle], model: TableModel) -> dict[str, Handle]:
    """The outputs for classes: the most probable label, all probabilities, and scores of uncertainty."""
    raw = found["probs"].name
    total = w.node("ReduceSum", raw, w.whole(1), keepdims=1)
    probs = w.node("Div", raw, total)
    at = w.node("ArgMax", probs, axis=1, keepdims=0)
    labels = w.node("Gather", w.weights.texts(model.schema.classes), at, axis=0)
    most = w.node("ReduceMax", raw, w.whole(1), keepdims=0)
    shape: Dims = (Size(1),)
    return {
        "label": Text(shape, torch.float64, labels),
        "probs": Handle((Size(1), len(model.schema.classes)), torch.float64, probs),
        "entropy": _vector(w, found["entropy"].name),
        "mutual_information": _vector(w, found["mutual_information"].name),
        "max_prob": Handle(shape, torch.float64, w.node("Sub", _double(w, 1.0), most)),
    }


class Text(Handle):
    """A value that holds texts."""

    is_text = True


def _deferral(
    w: Writer, ends: dict[str, Handle], outside: list[str], x: str, model: TableModel, deferral: Deferral
) -> dict[str, Handle]:
    """Which rows go to a person, and which are not like those of the fit."""
    seen = model.estimator.mixture_.seen
    flags = [w.node("Reshape", name, w.whole(-1)) for name in outside]
    start = 0
    for column in model.schema.used:
        if column.kind in ("numeric", "date"):
            own = w.node("Gather", x, w.constant(start, torch.int64), axis=1)
            flags.append(w.node("Less", own, _double(w, seen.least[start])))
            flags.append(w.node("Greater", own, _double(w, seen.most[start])))
        start += column.width
    scores = [ends[name].name for name in _FINITE if name in ends]
    if "probs" in ends:
        scores.append(w.node("ReduceSum", ends["probs"].name, w.whole(1), keepdims=0))
    for name in scores:
        flags.append(w.node("Or", w.node("IsNaN", name), w.node("IsInf", name)))
    any_flag = flags[0]
    for flag in flags[1:]:
        any_flag = w.node("Or", any_flag, flag)
    score = ends[str(deferral.rule.by)].name
    high = w.node("Greater", score, _double(w, deferral.threshold))
    shape: Dims = (Size(1),)
    return {
        "defer": Handle(shape, torch.bool, w.node("Or", high, any_flag)),
        "outside": Handle(shape, torch.bool, any_flag),
    }


_FINITE = (*_OF_NUMBERS, "lower", "upper", "entropy", "mutual_information", "max_prob")


# the check


def _checked(
    model: TableModel,
    path: str,
    outputs: tuple[str, ...],
    sizes: tuple[int, ...],
    level: float,
    deferral: Deferral,
    prefix: str,
) -> float:
    """Run the file on made-up rows, twice, and compare it with `predict_frame`; the largest difference."""
    try:
        run = onnx_runner(path, list(outputs))
    except Exception as error:
        raise RuntimeError(f"export: the file that was written cannot be loaded ({error}).") from error
    largest = 0.0
    for rows in sizes:
        frame, cells = made_up_rows(model, rows, seed=rows)
        truth = predict_frame(model, frame, level=level, deferral=deferral)
        found, again = run(cells), run(cells)
        for name, one, two in zip(outputs, found, again, strict=True):
            if not _equal(one, two):
                raise RuntimeError(f"export: the file's {name!r} differs between two runs.")
            largest = max(largest, _error(name.removeprefix(prefix), one, truth, model))
    return largest


def _equal(one: Any, two: Any) -> bool:
    return np.array_equal(one, two, equal_nan=one.dtype.kind == "f")


def _error(name: str, found: Any, truth: dict[str, Any], model: TableModel) -> float:
    if name == "outside":
        return 0.0  # `predict_frame` has no such column; it has a part in "defer", which is compared
    if name == "probs":
        wanted = np.stack([truth[f"p_{label}"] for label in model.schema.classes], 1)
    else:
        wanted = truth[name]
    if wanted.dtype.kind in "Ob":
        gap = 0.0 if np.array_equal(found, wanted) else math.inf
    else:
        of = truth["entropy"] if name == "mutual_information" else None
        gap = relative_error(found, wanted, of)
    if not gap <= _TOLERANCE:
        raise RuntimeError(
            f"export: the file's {name!r} differs from bayesdrop predict by {gap:.1e}, relative to its "
            "largest number; the file is not kept."
        )
    return gap


def made_up_rows(model: TableModel, rows: int, seed: int = 0) -> tuple[Any, dict[str, Any]]:
    """Rows that a model might meet, missing and new cells among them: as a frame, and as a file's inputs.

    Args:
        model: whose columns are meant.
        rows: how many.
        seed: of the cells.
    """
    pandas = require("pandas", extra="tables", owner="export")
    source, seen = np.random.default_rng(seed), model.estimator.mixture_.seen
    frame: dict[str, Any] = {}
    cells: dict[str, Any] = {}
    start = 0
    for column in model.schema.used:
        own = _some_cells(column, seen.low[start], seen.high[start], seen.margin[start], rows, source)
        cells[column.name] = own.reshape(-1, 1)
        if column.kind == "date":
            moments = np.array(
                [np.datetime64(round(day * 86400), "s") if np.isfinite(day) else None for day in own]
            )
            frame[column.name] = pandas.Series(pandas.to_datetime(moments))
        elif column.kind == "category":
            frame[column.name] = pandas.Series(own.tolist(), dtype=object)
        else:
            frame[column.name] = own
        start += column.width
    return pandas.DataFrame(frame), cells


def _some_cells(
    column: Column, low: float, high: float, margin: float, rows: int, source: np.random.Generator
) -> Any:
    """(rows,) cells of a column: a tenth of them missing, and a tenth new or far outside."""
    gone = source.random(rows) < 0.1
    odd = source.random(rows) < 0.1
    if column.kind == "category":
        known = [label for label in (*column.categories, *column.rare) if label not in (MISSING, OTHER)] or [
            "a"
        ]
        texts = source.choice(np.array(known, dtype=object), rows)
        texts[odd] = "never seen before"
        texts[gone] = ""
        return texts
    if column.kind == "boolean":
        values = source.integers(0, 2, rows).astype(np.float64)
    elif column.kind == "date":
        values = np.floor(column.last - source.uniform(low, high, rows))
    else:
        values = source.uniform(low, high, rows)
        values[odd] = high + 3 * margin
    values[gone] = np.nan
    return values
