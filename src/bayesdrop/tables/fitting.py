"""fit_table(): from a frame and the name of its target to a model that was measured on held-out rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.errors import must, whole_number
from bayesdrop.tables.cells import Array, Flags, as_labels, as_numbers, is_truth, missing_cells
from bayesdrop.tables.deferral import SCORES, Rule, cross_checked, ranked
from bayesdrop.tables.habits import Habits
from bayesdrop.tables.infer import far_hint
from bayesdrop.tables.judge import Judged, judge, judge_out_of_fold, measures
from bayesdrop.tables.model import TableModel
from bayesdrop.tables.prepare import Prepared, Preparer, Reasons
from bayesdrop.tables.rows import TrainingRows, row_numbers
from bayesdrop.tables.schema import Schema, Task, check_target, infer_columns, infer_task, target_way
from bayesdrop.tables.spelling import PLAIN
from bayesdrop.tables.wishes import EditedSchema, check_known, wishes_for
from bayesdrop.tables.written import counted, plainly
from bayesdrop.threads import in_one_thread

__all__ = ["FitOptions", "FittedTable", "fit_table", "split_rows", "targets_of"]

#: rows that a table must have
_LEAST_ROWS = 10
#: the share of rows that is kept from the fit, where networks see all rows of the fit
_USUAL_SHARE = 0.15
#: rows, and numbers, that baselines learn from at most
_BASELINE_ROWS, _BASELINE_CELLS = 20_000, 1_000_000


@dataclass(frozen=True)
class FitOptions:
    """How a table is fitted.

    Args:
        target: name of the column to predict.
        task: "auto", "regression" or "classification".
        held_out: share of rows that are kept from the fit, for measures, intervals and thresholds. If None,
            all rows are fitted, and each is measured by the networks that have not seen it; with options
            whose networks see all rows, and with `refit`, None means 0.15.
        level: coverage of the intervals.
        rule: which rows go to a person.
        refit: fit once more to all rows when everything is measured.
        categorical: columns whose numbers are categories.
        ignore: columns to leave out.
        missing: texts that mean "missing".
        keep_rows: rows of the fit, at random, that the model's folder keeps for explanations; 0 for none.
        seed: of everything random.
        estimator: options of `DropoutRegressor` or `DropoutClassifier`.
        keep: columns to use, even if they look like identifiers of rows.
        numbers: how numbers are written, by column, as {"price": "1.234,5"}; "" stands for all others.
        dates: how dates are written, likewise, as {"": "31/03/2024"}.
        schema: what a file says of the columns; `read_schema` reads one.
        groups: a column whose rows of one value belong together, as those of a patient or a shop: they are
            held out together, and measures and intervals are those of new groups. It is no input itself,
            unless it is among `keep`.
    """

    target: str
    task: str = "auto"
    held_out: float | None = None
    level: float = 0.95
    rule: Rule = field(default_factory=Rule)
    refit: bool = False
    categorical: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    keep_rows: int = 1000
    seed: int = 0
    estimator: dict[str, Any] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    numbers: Mapping[str, str] = field(default_factory=dict)
    dates: Mapping[str, str] = field(default_factory=dict)
    schema: EditedSchema | None = None
    groups: str | None = None

    def __post_init__(self) -> None:
        if self.task not in ("auto", "regression", "classification"):
            raise ValueError(must("fit", "task", "auto, regression or classification", self.task))
        for name in ("held_out", "level"):
            value = getattr(self, name)
            if not (name == "held_out" and value is None) and not 0 < value < 1:
                raise ValueError(must("fit", name, "in (0, 1)", value))
        if self.groups is not None and self.groups == self.target:
            raise ValueError(must("fit", "groups", "another column than the target", self.groups))
        if self.groups is not None and self.groups not in (*self.keep, *self.ignore):
            object.__setattr__(self, "ignore", (*self.ignore, self.groups))
        whole_number("fit", "keep_rows", self.keep_rows, at_least=0)
        said = {} if self.schema is None else self.schema.said
        if said.get("target", self.target) != self.target:
            what = f"must be that of the schema, {said['target']!r}; got {self.target!r}"
            raise ValueError(f"fit: `target` {what}.")

    @property
    def marks(self) -> tuple[str, ...]:
        """All texts that mean "missing", those of the schema file too."""
        said = () if self.schema is None else self.schema.said.get("missing_marks", ())
        return tuple(dict.fromkeys((*self.missing, *said)))


@dataclass(frozen=True, eq=False)
class FittedTable:
    """A model, and the rows that it was measured on.

    Attributes:
        model: what is written to the folder.
        judged: the N rows that were held out, with what was predicted and what was true.
        frame: the same rows, as they were read.
        rows: some of the rows that were fitted, for baselines.
        first: the model that was measured, if `model` was then fitted to all rows; else None.
        numbers: (N,) numbers of the held-out rows in the table, counted from 1.
        groups: (N,) their groups, if there are any.
    """

    model: TableModel
    judged: Judged
    frame: Any
    rows: TrainingRows | None = None
    first: TableModel | None = None
    numbers: Array | None = None
    groups: NDArray[np.int64] | None = None


def fit_table(
    frame: Any,
    options: FitOptions,
    *,
    say: Callable[[str], None] = lambda line: None,
    show: Callable[[Schema], None] | None = None,
    progress: bool = False,
    hold: Flags | None = None,
) -> FittedTable:
    """Fit a table: learn columns and networks, measure them on rows they have not seen, find thresholds.

    Args:
        frame: a pandas frame.
        options: how.
        say: called with every choice that is made, a line each.
        show: called with the schema before training; if None, `say` gets a line for each column.
        progress: show bars.
        hold: (N,) which rows are kept from the fit; chosen by `options.held_out` if None. A row whose class
            no other row has is fitted all the same.
    """
    rows = len(frame)
    hold = _checked_hold(hold, frame, options)
    frame, y, schema = _with_target(frame, options, say)
    rule = options.rule.for_task(schema.task)
    groups = _groups_of(frame, options)
    share = _held_share(options, schema.task, len(y))
    if hold is not None:
        fitted, held = _learnable(y, np.flatnonzero(~hold), np.flatnonzero(hold), schema.task, groups)
    else:
        fitted, held = split_rows(y, share or 0.0, options.seed, schema.task, groups)
    schema = _learned(frame, options, schema, fitted)
    if show is not None:
        show(schema)
    else:
        for line in schema.lines():
            say(f"  {line}")
    prepare = Preparer(schema)
    # Both before training, so that a cell that cannot be read is found in seconds.
    inputs, tried = prepare(frame, rows=fitted), prepare(frame, rows=held)
    held_frame, with_target = frame.iloc[held], len(frame)
    numbers = row_numbers(frame)
    if share is not None and not options.refit:
        del frame  # texts of a long table take more room than its numbers
    how = "each network holds out a part"
    if share is not None:
        how = counted(len(held), "row is held out", "rows are held out")
    say(f"Fitting {counted(len(fitted), 'row')}, {counted(inputs.x.shape[1], 'input')}; {how}.")
    started = time.perf_counter()
    own = None if groups is None else groups[fitted]
    estimator = _fitted(inputs.x, y[fitted], schema, options, own, progress=progress)
    taken = _training_rows(inputs.x, _places(y[fitted], schema), numbers[fitted], options)
    if share is None:
        known = _places(y[fitted], schema)
        places, judged = in_one_thread(lambda: judge_out_of_fold(estimator, known, level=options.level))
        held = fitted[places]
        held_frame, tried = frame.iloc[held], Prepared(inputs.x[places], Reasons(len(held)))
    else:
        judged = judge(estimator, tried.x, _places(y[held], schema), level=options.level)
        prepare.add_far_numbers(tried, estimator)
    kept, first = taken, (schema, estimator)
    if options.refit:
        say("Fitting once more, to all rows; measures and thresholds are those of the first fit.")
        schema = _learned(frame, options, schema)
        x = Preparer(schema)(frame).x
        estimator = _fitted(x, y, schema, options, groups, progress=progress)
        kept = _training_rows(x, _places(y, schema), numbers, options)
    held_out = ranked({name: judged.scores[name] for name in SCORES[schema.task]}, tried.reasons.any)
    held_out["loss"] = judged.loss
    if share is not None and judged.shares is not None:
        held_out["shares"] = judged.shares
    about = {
        "rows": rows,
        "rows_without_target": rows - with_target,
        "rows_fitted": len(fitted),
        "rows_held_out": len(held),
        "held_out_share": share,
        "refitted_to_all_rows": options.refit,
        "out_of_fold": share is None,
        "groups": options.groups,
        "seed": options.seed,
        "seconds": time.perf_counter() - started,
        "networks": len(estimator.mixture_.components),
        "draws": estimator.mixture_.num_draws,
        "measures": measures(judged, options.level),
        "deferral": asdict(cross_checked(rule, held_out, judged.loss, root=not judged.classes)),
    }
    few = kept.first(options.keep_rows) if options.keep_rows else None
    if few is not None:
        say(f"The model keeps {counted(len(few), 'row')} of the fit, for explanations; --keep-rows 0: none.")
    model = TableModel(schema, estimator, held_out, options.level, rule, about, few)
    measured = replace(model, schema=first[0], estimator=first[1], rows=None) if options.refit else None
    tried_groups = None if groups is None else groups[held]
    return FittedTable(model, judged, held_frame, taken, measured, numbers[held], tried_groups)


def _checked_hold(hold: Flags | None, frame: Any, options: FitOptions) -> Flags | None:
    """Which of the rows with a target are kept from the fit."""
    if hold is None:
        return None
    if hold.shape != (len(frame),):
        raise ValueError(must("fit_table", "hold", f"of shape ({len(frame)},)", hold.shape))
    with_target: Flags = hold[~missing_cells(frame[options.target], options.marks)]
    return with_target


def _held_share(options: FitOptions, task: Task, rows: int) -> float | None:
    """The share of rows that is kept from the fit; None where networks hold rows out themselves."""
    if options.held_out is not None or options.refit:
        return _USUAL_SHARE if options.held_out is None else options.held_out
    return None if _estimator(task, options).holds_rows_out(rows, 1) else _USUAL_SHARE


def _groups_of(frame: Any, options: FitOptions) -> NDArray[np.int64] | None:
    """(N,) the group of every row: 0, 1, ...; None without groups."""
    if options.groups is None:
        return None
    check_known([options.groups], list(frame.columns))
    labels = as_labels(frame[options.groups], options.marks, numbers=False)
    lacking = [place for place, label in enumerate(labels) if label is None]
    if lacking:
        row = int(row_numbers(frame)[lacking[0]])
        raise ValueError(
            f"the column of groups {options.groups!r} must be known in every row; row {row} has none."
        )
    found: NDArray[np.int64] = np.unique(labels.astype(str), return_inverse=True)[1].astype(np.int64)
    if found.max() == 0:
        raise ValueError(f"the column of groups {options.groups!r} must have at least 2 values; it has one.")
    return found


def _training_rows(x: Array, y: NDArray[Any], numbers: NDArray[Any], options: FitOptions) -> TrainingRows:
    """Some of the rows of a fit: enough for baselines, and for the model's folder."""
    most = min(_BASELINE_ROWS, max(1000, _BASELINE_CELLS // x.shape[1]))
    return TrainingRows.drawn(x, y, numbers, most=max(most, options.keep_rows), seed=options.seed)


def targets_of(frame: Any, schema: Schema, owner: str) -> tuple[Any, NDArray[Any]]:
    """Rows of a table that have a target, and the targets: numbers, or places of the labels.

    Args:
        frame: with the target's column.
        schema: of the model.
        owner: the table, for errors.
    """
    if schema.target not in frame.columns:
        raise ValueError(f"{owner}: the target column {schema.target!r} must be there.")
    kept = frame[~missing_cells(frame[schema.target], schema.missing_marks)]
    y, bad = _read_target(kept[schema.target], schema, schema.missing_marks)
    if bad:
        how = f" written as {schema.target_format}" if schema.target_format else ""
        hint = "If they are written in another way: --numbers."
        raise ValueError(f"{owner}: the target {schema.target!r} must be numbers{how}. {hint}")
    return kept, _places(y, schema, owner)


def _with_target(
    frame: Any, options: FitOptions, say: Callable[[str], None]
) -> tuple[Any, NDArray[Any], Schema]:
    """Rows that have a target, the targets, and a schema without columns."""
    names, marks = list(frame.columns), options.marks
    check_known([options.target], names)
    _wishes(frame, options)
    lacking = missing_cells(frame[options.target], marks)
    kept = frame[~lacking] if lacking.any() else frame
    if len(kept) < _LEAST_ROWS:
        what = f"{len(kept)} of {len(frame)}" if lacking.any() else f"{len(frame)}"
        raise ValueError(f"the table must have at least {_LEAST_ROWS} rows with a target; got {what}.")
    if lacking.any():
        are = "has no target and is" if lacking.sum() == 1 else "have no target and are"
        say(f"{counted(int(lacking.sum()), 'row')} {are} left out.")
    series = kept[options.target]
    said = {} if options.schema is None else options.schema.said
    asked = said.get("task", "auto") if options.task == "auto" else options.task
    way = options.numbers.get(options.target) or said.get("target_format") or options.numbers.get("", "")
    if not way and asked != "classification":
        way = target_way(series, marks, Habits(kept, marks))
    task, number_labels, why = infer_task(series, marks, asked, len(kept), way)
    way = way if task == "regression" and way != PLAIN else ""
    written = f", written as {way}" if way else ""
    say(
        f"Target {options.target}: {task}, {why}{written}."
        + ("" if why == "as asked for" else " If that is wrong: --task.")
    )
    schema = Schema(options.target, task, (), (), number_labels, marks, why, way)
    y, _ = _read_target(series, schema, marks)
    classes: tuple[str, ...] = ()
    if task == "classification":
        # By value, then by digits: floats of large whole numbers may be equal.
        key = (lambda label: (float(label), label)) if number_labels else str
        classes = tuple(sorted(set(y.tolist()), key=key))
    check_target(options.target, task, y)
    if task == "regression" and (far := far_hint(y)):
        say(f"{options.target}: {far}. A slip there widens all intervals: mend it, or leave the row out.")
    if said.get("classes"):
        if set(said["classes"]) != set(classes):
            raise ValueError(
                f"the classes must be those of the schema, {said['classes']}; got {list(classes)}."
            )
        classes = tuple(said["classes"])
    return kept, y, replace(schema, classes=classes)


def _wishes(frame: Any, options: FitOptions) -> dict[str, Any]:
    return wishes_for(
        list(frame.columns),
        target=options.target,
        categorical=options.categorical,
        ignore=options.ignore,
        keep=options.keep,
        numbers=options.numbers,
        dates=options.dates,
        edited=options.schema,
    )


def _read_target(series: Any, schema: Schema, marks: Collection[str]) -> tuple[NDArray[Any], bool]:
    """(N,) numbers, or labels as texts; and whether a cell is not a number where it should be."""
    if schema.task == "classification":
        return as_labels(series, marks, numbers=schema.number_labels), False
    values, bad = as_numbers(series, marks, schema.target_format or PLAIN)
    return values, bool(bad.any())


def _learned(
    frame: Any, options: FitOptions, schema: Schema, rows: NDArray[np.int64] | None = None
) -> Schema:
    """The schema with its columns, learned from the rows of these places; from all if None."""
    asked: dict[str, Any] = {"categorical": (), "ignore": (), "marks": options.marks}
    columns = infer_columns(frame, options.target, rows=rows, wishes=_wishes(frame, options), **asked)
    return replace(schema, columns=columns)


def split_rows(
    y: NDArray[Any], share: float, seed: int, task: Task, groups: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of rows to fit and of rows to hold out, at random; every class keeps a row to learn it from.

    Args:
        y: (N,) targets.
        share: of rows to hold out; 0 for none.
        seed: of the choice.
        task: regression or classification.
        groups: (N,) numbers of groups that stay together, if any.
    """
    if not share:
        return np.arange(len(y)), np.empty(0, dtype=np.int64)
    count = min(max(2, round(share * len(y))), len(y) - 2)
    order = np.random.default_rng(seed).permutation(len(y))
    held, fitted = order[:count], order[count:]
    if groups is not None:
        # Whole groups, in the order of their first rows, as long as there are not too many rows.
        first = np.unique(groups[order], return_index=True)[1]
        names = np.argsort(first, kind="stable")
        total = np.bincount(groups)[names].cumsum()
        most = max(1, min(int((total <= count).sum()), len(names) - 1))
        apart = np.isin(groups, names[:most])
        held, fitted = np.flatnonzero(apart), np.flatnonzero(~apart)
    return _learnable(y, fitted, held, task, groups)


def _learnable(
    y: NDArray[Any],
    fitted: NDArray[np.int64],
    held: NDArray[np.int64],
    task: Task,
    groups: NDArray[np.int64] | None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of rows to fit and to hold out, sorted; classes that only held-out rows have are fitted."""
    if not len(held):
        return np.sort(fitted), held
    if task == "classification":
        alone = ~np.isin(y[held].astype(str), np.unique(y[fitted].astype(str)))
        if groups is not None:
            alone = np.isin(groups[held], groups[held][alone])
        held, fitted = held[~alone], np.concatenate([fitted, held[alone]])
    elif np.ptp(y[fitted]) == 0:
        raise ValueError(f"the target is {plainly(y[fitted][0])} in all rows that are not held out.")
    if not len(held):
        raise ValueError("no row can be held out: every class has one row.")
    return np.sort(fitted), np.sort(held)


def _estimator(task: Task, options: FitOptions, *, progress: bool = False) -> Any:
    from bayesdrop.estimators import DropoutClassifier, DropoutRegressor

    kind: Any = DropoutRegressor if task == "regression" else DropoutClassifier
    chosen = {name: value for name, value in options.estimator.items() if value is not None}
    return kind(random_state=options.seed, progress=progress, **chosen)


def _fitted(
    x: Array,
    y: NDArray[Any],
    schema: Schema,
    options: FitOptions,
    groups: NDArray[np.int64] | None,
    *,
    progress: bool,
) -> Any:
    estimator = _estimator(schema.task, options, progress=progress)
    with warnings.catch_warnings():
        # `check_target` has decided already how many classes are too many.
        warnings.filterwarnings("ignore", message="The number of unique classes")
        return estimator.fit(x, _places(y, schema), groups=groups)


def _places(y: NDArray[Any], schema: Schema, owner: str = "the table") -> NDArray[Any]:
    """(N,) numbers as they are, or places of labels among the schema's classes."""
    if schema.task == "regression":
        return y
    places = {label: place for place, label in enumerate(schema.classes)}
    truths = {is_truth(label): label for label in schema.classes}
    if truths.keys() == {True, False} and len(schema.classes) == 2:
        # What is "yes" in one file may be "True" in another.
        y = np.array([truths.get(is_truth(str(label)), label) for label in y.tolist()], dtype=object)
    unknown = sorted({str(label) for label in y.tolist()} - set(places))
    if unknown:
        shown = ", ".join(map(repr, unknown[:5]))
        raise ValueError(f"{owner}: the target must be one of {list(schema.classes)}; got {shown}.")
    return np.array([places[label] for label in y.tolist()], dtype=np.int64)
