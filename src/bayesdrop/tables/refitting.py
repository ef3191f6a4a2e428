"""refit_table(): a model fitted anew to its table and to further rows, and compared with the old one.

Rows that either model was fitted to say nothing about which is better. Both are therefore compared on further
rows that were picked at random, and on the rows that the first fit held out, if it held any out: the new fit
sees neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.errors import must, require
from bayesdrop.tables.cells import Array, Flags, as_days, as_labels, as_numbers, as_truths, missing_cells
from bayesdrop.tables.columns import Column, Schema
from bayesdrop.tables.fitting import FitOptions, FittedTable, fit_table, split_rows, targets_of
from bayesdrop.tables.infer import Wish
from bayesdrop.tables.judge import scores_of
from bayesdrop.tables.model import TableModel
from bayesdrop.tables.spelling import ISO, PLAIN
from bayesdrop.tables.wishes import EditedSchema

__all__ = ["RefitDecision", "Refitted", "Trial", "decided", "refit_table", "typed_frame"]

#: the least probability that a class is scored with: that of a class which a model does not know
_LEAST_PROBABILITY = 1e-6
#: random rows from which on they decide alone
_ENOUGH = 30


@dataclass(frozen=True)
class Trial:
    """Both models on rows that the new one was not fitted to.

    Attributes:
        rows: how many.
        old: measures of the old model: "log_score" and "accuracy", or "rmse", "coverage" and "level".
        new: the same of the new model.
        difference: mean log score of the new model, less that of the old.
        standard_error: of the difference, by the differences row by row.
        fair: whether the old model was not fitted to these rows either.
    """

    rows: int
    old: dict[str, float]
    new: dict[str, float]
    difference: float
    standard_error: float
    fair: bool = True

    @property
    def worse(self) -> bool:
        """Whether the new model is worse by more than two standard errors."""
        return self.difference < -2 * self.standard_error

    @staticmethod
    def of(
        old: tuple[Array, dict[str, float]], new: tuple[Array, dict[str, float]], *, fair: bool = True
    ) -> Trial:
        """The trial of both models, each with its log scores (N,) and measures."""
        away = new[0] - old[0]
        error = float(away.std(ddof=1) / math.sqrt(len(away))) if len(away) > 1 else math.inf
        return Trial(len(away), old[1], new[1], float(away.mean()), error, fair)


@dataclass(frozen=True)
class RefitDecision:
    """Trials by name, "held_out" and "random", whether the new model is better, and why."""

    trials: dict[str, Trial]
    better: bool
    why: str


@dataclass(frozen=True, eq=False)
class Refitted:
    """The new model as it was fitted, and how it compares."""

    fitted: FittedTable
    comparison: RefitDecision


def decided(trials: dict[str, Trial]) -> RefitDecision:
    """Whether the new model is better.

    In no trial may it be worse by more than two standard errors. If that is so, the higher mean log score
    wins: on the random rows if there are 30 or more, since they are what the model meets today; else on the
    rows of all trials.

    Args:
        trials: by name; those that are not fair do not count.
    """
    fair = {name: trial for name, trial in trials.items() if trial.fair and trial.rows}
    if not fair:
        return RefitDecision(trials, False, "there are no rows that neither model has seen")
    for name, trial in fair.items():
        if trial.worse:
            return RefitDecision(trials, False, f"it is worse on the {_NAMES[name]} rows")
    random = fair.get("random")
    if random is not None and random.rows >= _ENOUGH:
        chosen, told = random.difference, "on the random rows"
    else:
        total = sum(trial.rows for trial in fair.values())
        chosen = sum(trial.difference * trial.rows for trial in fair.values()) / total
        told = "on the rows that neither model has seen"
    word = "higher" if chosen > 0 else "not higher"
    return RefitDecision(trials, chosen > 0, f"its mean log score is {word} {told}")


_NAMES = {"held_out": "held-out", "random": "random"}


def refit_table(
    old: TableModel,
    table: Any,
    more: Any,
    random: Flags,
    *,
    say: Callable[[str], None] = lambda line: None,
    progress: bool = False,
) -> Refitted:
    """Fit a model's table and further rows with the model's own options, and compare.

    Args:
        old: the model.
        table: the frame that it was fitted to, as it was read, with the target.
        more: a frame of further rows with their target, typed as `typed_frame` makes it.
        random: (n,) which of the further rows were picked at random: they are held out.
        say: called with every choice that is made, a line each.
        progress: show bars.
    """
    pandas = require("pandas", extra="tables", owner="refit")
    schema = old.schema
    if old.about.get("groups") is not None:
        said = (
            f"refit: this model was fitted with groups ({old.about['groups']!r}), which labelled rows lack."
        )
        raise ValueError(f"{said} Fit it anew with bayesdrop fit.")
    schema.check_names(list(table.columns), "the table of the fit")
    held = held_rows(old, table)
    own = table[~missing_cells(table[schema.target], schema.missing_marks)]
    base = typed_frame(own, schema, "the table of the fit")
    base[schema.target] = _typed_target(own[schema.target], schema)
    more = more.reindex(columns=base.columns)
    whole = pandas.concat([base, more], ignore_index=True) if len(more) else base
    masks = np.concatenate([held, random])
    say(f"{len(base):,} rows of the table and {len(more):,} labelled ones, {int(random.sum()):,} at random.")
    options = _options(old)
    fitted = fit_table(whole, options, say=say, progress=progress, hold=masks)
    fitted = replace(fitted, model=_like(fitted.model, old, table))
    first = fitted.model
    trials = {}
    if held.any():
        fair = not old.about.get("refitted_to_all_rows", False)
        trials["held_out"] = _trial(old, first, base[held], fair=fair)
    if random.any():
        trials["random"] = _trial(old, first, more[random])
    return Refitted(fitted, decided(trials))


def held_rows(model: TableModel, table: Any) -> Flags:
    """(N,) which rows with a target the first fit held out; raises if that was a fit to another table.

    Args:
        model: fitted to the table, or refitted to it and further rows.
        table: the frame, as it was read.
    """
    kept, places = targets_of(table, model.schema, "the table of the fit")
    y: NDArray[Any] = places
    about = model.about
    digest = about.get("table_digest")
    if digest is None and len(table) != about.get("rows"):
        got = f"{len(table):,} rows instead of {about.get('rows'):,}"
        raise ValueError(f"the data must be the table that the model was fitted to; it has {got}.")
    if digest is not None and digest != _table_digest(table, model.schema):
        raise ValueError("the data must be the table that the model was fitted to; its target is another.")
    share, seed = about.get("held_out_share", 0.15), about.get("seed", 0)
    mask = np.zeros(len(kept), dtype=bool)
    if share is None:
        return mask  # no row was kept from all networks: each held out others
    _, held = split_rows(y, share, seed, model.schema.task)
    mask[held] = True
    if digest is None and not about.get("refitted_to_all_rows"):
        _check_losses(model, kept, y, mask)
    return mask


def _check_losses(model: TableModel, kept: Any, y: NDArray[Any], held: Flags) -> None:
    """Raise unless the model's errors on held-out rows are those that its fit wrote down."""
    x = model.prepare(kept, "the table of the fit", rows=np.flatnonzero(held)).x
    scores = scores_of(model.estimator, x)
    wrong = scores["probs"].argmax(1) != y[held] if "probs" in scores else (y[held] - scores["mean"]) ** 2
    stored = model.held_out["loss"]
    if len(stored) != len(x) or not np.allclose(wrong.astype(np.float64), stored, rtol=1e-3, atol=1e-6):
        raise ValueError(
            "the data must be the table that the model was fitted to, in the same order; the model's errors "
            "on the rows that it held out are not those that were written down."
        )


def _table_digest(table: Any, schema: Schema) -> str:
    """SHA-256 of the targets, in their order, which tells one table from another."""
    _, y = targets_of(table, schema, "the table of the fit")
    return sha256(np.ascontiguousarray(y, dtype=np.float64).tobytes()).hexdigest()


# frames whose cells have types, so that tables written in different ways can be joined


def typed_frame(frame: Any, schema: Schema, owner: str) -> Any:
    """The columns of a schema as numbers, truth values, dates and texts; without the target.

    Args:
        frame: with the schema's columns, however they are written.
        schema: of the model.
        owner: the table, for errors.
    """
    pandas = require("pandas", extra="tables", owner="refit")
    columns: dict[str, Any] = {}
    for column in schema.columns:
        constant = column.kind == "left out" and column.categories and column.name in frame.columns
        if column.kind != "left out" or constant:
            columns[column.name] = _typed(frame[column.name], column, schema, owner, pandas)
    return pandas.DataFrame(columns, index=pandas.RangeIndex(len(frame)))


def _typed(series: Any, column: Column, schema: Schema, owner: str, pandas: Any) -> Any:
    marks = schema.missing_marks
    if column.kind in ("category", "left out"):
        return as_labels(series, marks, numbers=column.numbers)
    if column.kind == "date":
        days, bad = as_days(series, marks, column.format or ISO)
        values: Any = pandas.to_datetime(pandas.Series(np.round(days * 86_400_000)), unit="ms").to_numpy()
    elif column.kind == "boolean":
        values, bad = as_truths(series, marks)
    else:
        values, bad = as_numbers(series, marks, column.format or PLAIN)
        bad = bad & ~np.isinf(values)
    if bad.any():
        raise ValueError(must(owner, column.name, f"a {column.kind} column", f"{int(bad.sum())} other cells"))
    return values


def _typed_target(series: Any, schema: Schema) -> Any:
    if schema.task == "classification":
        return as_labels(series, schema.missing_marks, numbers=schema.number_labels)
    return as_numbers(series, schema.missing_marks, schema.target_format or PLAIN)[0]


# the fit


def _options(old: TableModel) -> FitOptions:
    """The options of the old fit, as far as they shape the model."""
    schema, about = old.schema, old.about
    wishes = {column.name: Wish(column.kind, keep=True) for column in schema.used}
    estimator = dict(old.estimator.get_params())
    for name in ("random_state", "progress"):
        estimator.pop(name, None)
    return FitOptions(
        schema.target,
        task=schema.task,
        held_out=about.get("held_out_share", 0.15),
        level=old.level,
        rule=old.rule,
        missing=schema.missing_marks,
        keep_rows=0 if old.rows is None else max(1000, len(old.rows)),
        seed=about.get("seed", 0),
        estimator=estimator,
        schema=EditedSchema("the old model", wishes, {"target": schema.target}),
    )


def _like(new: TableModel, old: TableModel, table: Any) -> TableModel:
    """The new model, made to read texts as the old one does and to know which table it was fitted to."""
    before = {column.name: column for column in old.schema.columns}
    columns = []
    for column in new.schema.columns:
        was = before.get(column.name)
        same = was is not None and was.kind == column.kind and column.kind in ("numeric", "date")
        columns.append(replace(column, format=was.format) if was is not None and same else column)
    # Columns that were left out as identifiers of rows were not looked at.
    columns += [was for name, was in before.items() if name not in {column.name for column in columns}]
    schema = replace(
        new.schema,
        columns=tuple(columns),
        target_format=old.schema.target_format,
        number_labels=old.schema.number_labels,
        why_task=old.schema.why_task,
    )
    about = new.about | {"table_digest": _table_digest(table, old.schema)}
    return replace(new, schema=schema, about=about)


# the comparison


def _trial(old: TableModel, new: TableModel, frame: Any, *, fair: bool = True) -> Trial:
    return Trial.of(_tried(old, frame), _tried(new, frame), fair=fair)


def _tried(model: TableModel, frame: Any) -> tuple[Array, dict[str, float]]:
    """(N,) log scores of a model at the targets of rows, and measures by name."""
    x = model.prepare(frame, "the rows").x
    if model.root:
        y = frame[model.schema.target].to_numpy(dtype=np.float64)
        scores = scores_of(model.estimator, x, y, intervals=model.intervals())
        inside = (scores["lower"] <= y) & (y <= scores["upper"])
        rmse = math.sqrt(float(np.mean((scores["mean"] - y) ** 2)))
        found = {"rmse": rmse, "coverage": float(inside.mean()), "level": model.level}
        log_scores = scores["log_prob"]
    else:
        places = {label: place for place, label in enumerate(model.schema.classes)}
        labels = as_labels(frame[model.schema.target], numbers=model.schema.number_labels)
        y = np.array([places.get(label, -1) for label in labels], dtype=np.int64)
        probs = scores_of(model.estimator, x)["probs"]
        given = np.where(y >= 0, probs[np.arange(len(y)), np.maximum(y, 0)], 0.0)
        log_scores = np.log(np.maximum(given, _LEAST_PROBABILITY))
        found = {"accuracy": float(np.mean(probs.argmax(1) == y))}
    return log_scores, {"log_score": float(log_scores.mean()), **found}
