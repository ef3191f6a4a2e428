"""ServedTable: a folder of `bayesdrop fit`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.serve.served.answers import Answers, Ask, plain
from bayesdrop.serve.served.base import BadRow, Ready, ServedModel, TensorSpec
from bayesdrop.serve.served.cells import checked_cell, frame_of
from bayesdrop.tables import TableModel, load_table_model
from bayesdrop.tables.prepare import Prepared
from bayesdrop.tables.score import predict_prepared

__all__ = ["ServedTable"]

_SKETCH = 8


class ServedTable(ServedModel):
    """A fitted table.

    A row's uncertainty is entropy / log K for classes. For numbers it is s / (s + t), s being the score that
    rows are deferred by and t the threshold: 0.5 is where the model begins to hand over. Rows outside what
    was learned have 1.

    Args:
        folder: that `bayesdrop fit` wrote.
        num_draws: T unless asked otherwise; the model's own if None.
        level: of intervals unless asked otherwise; the model's own if None.
    """

    kind = "table"

    def __init__(self, folder: Path, *, num_draws: int | None = None, level: float | None = None) -> None:
        self.model: TableModel = load_table_model(folder)
        schema = self.model.schema
        self.digest = sha256((folder / "table.json").read_bytes()).hexdigest()
        self.task, self.classes = schema.task, schema.classes
        self.num_draws = num_draws or self.model.estimator.mixture_.num_draws
        self.level = (level or self.model.level) if self.model.root else None
        self.names = [column.name for column in schema.used]
        text = {"category", "date"}
        self.inputs = tuple(
            TensorSpec(column.name, "BYTES" if column.kind in text else "FP64", (-1,))
            for column in schema.used
        )
        rows = {name: self.model.about.get(name) for name in ("rows", "rows_fitted", "rows_held_out")}
        self.about = {"target": schema.target, "measures": self.model.about.get("measures", {}), **rows}
        self._deferral = self.model.deferral()
        self._half = self._deferral.threshold
        if not (math.isfinite(self._half) and self._half > 0):
            held = self.model.held_out[str(self._deferral.rule.by)]
            held = held[np.isfinite(held)]
            self._half = max(float(np.quantile(held, 0.95)) if len(held) else 1.0, 1e-300)
        width = self.model.prepare.width
        self._projection = np.random.default_rng(0).normal(size=(width, _SKETCH)) / math.sqrt(width)
        self._ready: Ready[TableModel] = Ready()
        self._asking(Ask(self.num_draws, 0, self.level), at_once=True)

    def row(self, given: Any) -> dict[str, Any]:
        """See `ServedModel`."""
        if isinstance(given, list):
            if len(given) != len(self.names):
                raise BadRow(f"a row that is a list must have {len(self.names)} cells; got {len(given)}.")
            given = dict(zip(self.names, given, strict=True))
        if not isinstance(given, dict):
            raise BadRow("a row must be an object, a cell for each name, or a list of cells.")
        lacking = [name for name in self.names if name not in given]
        if lacking:
            raise BadRow(f"columns {', '.join(map(repr, lacking[:10]))} must be there (null where missing).")
        # Cells that the model does not know are kept with the row; their names are texts of a caller.
        return {checked_cell("a name", name): checked_cell(name, value) for name, value in given.items()}

    def rows_of(self, tensors: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows from one tensor a column, or one (N, columns) of numbers whatever its name."""
        if len(tensors) == 1:
            (name, values), *_ = tensors.items()
            if np.ndim(values) == 2 and (name not in self.names or np.shape(values)[1] != 1):
                return [self.row(row) for row in np.asarray(values, dtype=object).tolist()]
        columns = {name: _column(name, values) for name, values in tensors.items()}
        lengths = {len(values) for values in columns.values()}
        if len(lengths) != 1:
            raise BadRow("all inputs must have the same number of rows.")
        named = list(columns)
        return [
            self.row(dict(zip(named, cells, strict=True))) for cells in zip(*columns.values(), strict=True)
        ]

    def check(self, rows: Sequence[dict[str, Any]]) -> None:
        """See `ServedModel`."""
        self._prepared(rows)

    def predict(self, rows: Sequence[dict[str, Any]], ask: Ask) -> Answers:
        """See `ServedModel`."""
        prepared = self._prepared(rows)
        model = self._asking(ask, at_once=False)
        found, outside = predict_prepared(model, prepared, level=ask.level, deferral=self._deferral)
        if self.model.root:
            columns = {name: plain(found[name]) for name in ("mean", "std")}
            for name in ("epistemic", "aleatoric"):
                columns[f"{name}_std"] = plain(np.sqrt(found[name]))
            columns |= {name: plain(found[name]) for name in ("lower", "upper")}
            score = found[str(self._deferral.rule.by)]
            with np.errstate(invalid="ignore"):
                doubt = score / (score + self._half)
        else:
            probs = np.stack([found[f"p_{label}"] for label in self.classes], 1)
            columns = {"label": found["label"].tolist(), "probs": plain(probs)}
            columns |= {name: plain(found[name]) for name in ("entropy", "mutual_information")}
            doubt = found["entropy"] / math.log(max(2, len(self.classes)))
        doubt = np.where(outside | ~np.isfinite(doubt), 1.0, np.clip(doubt, 0.0, 1.0))
        reason = [str(text) for text in found["reason"]]
        return Answers(columns, doubt, found["defer"], reason, self._sketch(prepared.x))

    def _prepared(self, rows: Sequence[dict[str, Any]]) -> Prepared:
        try:
            return self.model.prepare(frame_of(rows, self.model.schema), "the request")
        except BadRow:
            raise
        except ValueError as error:
            # What it says of other ways to write a table is for the command line.
            raise BadRow(str(error).partition(" Another way")[0]) from error

    def _asking(self, ask: Ask, *, at_once: bool) -> TableModel:
        """The model with the draws that are asked for: held where they are asked for again and again."""
        key = (ask.num_draws, ask.seed)

        def make() -> TableModel:
            return replace(self.model, estimator=self.model.estimator.prepared(num_draws=key[0], seed=key[1]))

        found = self._ready.get(key, make, at_once=at_once)
        if found is not None:
            return found
        return replace(self.model, estimator=_Once(self.model.estimator.mixture_, *key))

    def _sketch(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N, 8) a random projection of the inputs, each scaled to the range that was seen."""
        seen = self.model.estimator.mixture_.seen
        width = np.where(seen.high > seen.low, seen.high - seen.low, 1.0)
        scaled = np.clip((seen.bounded(x) - seen.low) / width, -2.0, 3.0)
        sketch: NDArray[np.float64] = np.round(scaled @ self._projection, 4)
        return sketch


class _Once:
    """Draws that are made for one answer and not held."""

    def __init__(self, mixture: Any, num_draws: int, seed: int) -> None:
        self.mixture_, self._ask = mixture, (num_draws, seed)

    def predictions(self, x: NDArray[np.float64]) -> Iterator[Any]:
        """See `DropoutEstimator`."""
        yield self.mixture_.predict(x, *self._ask)


def _column(name: str, values: Any) -> list[Any]:
    if np.ndim(values) == 2 and np.shape(values)[1] == 1:
        values = np.asarray(values)[:, 0]
    if np.ndim(values) != 1:
        raise BadRow(f"input {name!r} must have the shape (rows,) or (rows, 1); got {np.shape(values)}.")
    cells: list[Any] = np.asarray(values).tolist()
    return cells
