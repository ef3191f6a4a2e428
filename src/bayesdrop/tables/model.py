"""TableModel: a fitted table as a folder of safetensors, JSON and a report."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import file_digest
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from bayesdrop.storage import (
    BadJson,
    check_writable,
    from_json,
    read_tensors,
    recover_folder,
    to_json,
    whole_folder,
    write_tensors,
)
from bayesdrop.tables.cells import Array
from bayesdrop.tables.deferral import Deferral, Rule, find_deferral
from bayesdrop.tables.judge import Intervals
from bayesdrop.tables.prepare import Preparer
from bayesdrop.tables.rows import TrainingRows
from bayesdrop.tables.schema import Kind, Schema, Task
from bayesdrop.version import __version__

__all__ = ["TableModel", "check_folder", "load_table_model", "save_table_model"]

#: version 1 had no checksum of table.json, version 2 no dates and no ways to write numbers; up to version 3,
#: intervals were multiples of the standard deviation
_FORMAT, _VERSION = "bayesdrop-table-model", 4
_HELD, _ROWS = "bayesdrop-held-out", "bayesdrop-training-rows"
#: files that a prediction needs, and files for a person
_NEEDED = ("schema.json", "model.safetensors", "held-out.safetensors")
_ABOUT, _REPORT = "table.json", "report.html"
#: training rows, which predictions do not need: whoever must not pass them on may delete the file
_KEPT = "training-rows.safetensors"
FILES = (_ABOUT, *_NEEDED, _KEPT, _REPORT)


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted estimator with all it needs to read a table, make intervals and choose rows for a person.

    Attributes:
        schema: what the columns are.
        estimator: the DropoutRegressor or DropoutClassifier.
        held_out: (n,) scores of held-out rows by name, and their "loss"; each row was predicted by networks
            that were not fitted to it. For numbers also "shares", unless the estimator has its own (see
            `Intervals`), or, in folders of earlier versions, "scaled".
        level: coverage of the intervals unless another is asked for.
        rule: which rows go to a person unless another is asked for.
        about: facts for a person: rows, options, measures.
        rows: some of the rows that it was fitted to; None if none were kept.
    """

    schema: Schema
    estimator: Any
    held_out: Mapping[str, Array]
    level: float
    rule: Rule
    about: dict[str, Any] = field(default_factory=dict)
    rows: TrainingRows | None = None

    @property
    def prepare(self) -> Preparer:
        """Makes inputs of cells."""
        return Preparer(self.schema)

    @property
    def root(self) -> bool:
        """Whether it predicts numbers, whose error is the root of the mean loss; if not, labels."""
        return self.schema.task == "regression"

    def intervals(self, level: float | None = None) -> Intervals:
        """How intervals of numbers are made.

        Args:
            level: coverage; the model's own if None.
        """
        wanted = self.level if level is None else level
        return Intervals(wanted, self.held_out.get("shares"), self.held_out.get("scaled"))

    def deferral(self, rule: Rule | None = None) -> Deferral:
        """A rule with its threshold, found by the held-out rows; the model's own rule if None."""
        asked = (self.rule if rule is None else rule).for_task(self.schema.task)
        return find_deferral(asked, self.held_out, self.held_out["loss"], root=self.root)


def check_folder(path: str | os.PathLike[str], *, force: bool) -> Path:
    """The path, if a model may be written there; else raise. To be called before training, too.

    A folder is replaced only if it holds a model and nothing else, and only with `force`. A link stays a
    link: the folder that it points to is replaced.

    Args:
        path: the folder.
        force: whether a model that is there may be replaced.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ValueError(f"{path} must be a folder or not exist; it is a file or a link that leads nowhere.")
    if not target.parent.is_dir():
        raise ValueError(f"there is no folder {target.parent} to put {target.name} in.")
    recover_folder(target)
    names = {entry.name for entry in path.iterdir()} if path.exists() else set()
    if names - set(FILES) or (names and _ABOUT not in names):
        shown = ", ".join(sorted(names - set(FILES))[:5]) or ", ".join(sorted(names))
        raise ValueError(f"{path} holds files that are no model's ({shown}); they are not touched.")
    if names and not force:
        raise ValueError(f"{path} holds a model already. Choose another folder, or replace it with --force.")
    check_writable(path, owner="the model")
    return path


def save_table_model(
    model: TableModel, path: str | os.PathLike[str], *, report: str, force: bool = False
) -> None:
    """Write the folder under another name, then exchange the two: there is a whole model at any moment.

    Args:
        model: what to write.
        path: the folder.
        report: HTML.
        force: replace a model that is there.
    """
    check_folder(path, force=force)
    with whole_folder(path, owner="the model") as draft:
        schema = json.dumps(model.schema.as_dict(), indent=1, ensure_ascii=False) + "\n"
        (draft / "schema.json").write_text(schema, encoding="utf-8")
        model.estimator.save(draft / "model.safetensors")
        tensors = {name: torch.from_numpy(values) for name, values in model.held_out.items()}
        write_tensors(draft / "held-out.safetensors", tensors, kind=_HELD, header={})
        files = list(_NEEDED)
        if model.rows is not None:
            _write_rows(draft / _KEPT, model.rows)
            files.append(_KEPT)
        (draft / _REPORT).write_text(report, encoding="utf-8")
        about = {
            "format": _FORMAT,
            "format_version": _VERSION,
            "bayesdrop_version": __version__,
            "sha256": {name: _digest(draft / name) for name in files},
            "level": model.level,
            "deferral": asdict(model.rule),
            "about": model.about,
        }
        (draft / _ABOUT).write_bytes(to_json(about))


def load_table_model(path: str | os.PathLike[str]) -> TableModel:
    """Read a folder; every file but the report is checked against what was written."""
    path = Path(path)
    recover_folder(path)
    while True:
        before = _identity(path)
        try:
            return _loaded(path)
        except (ValueError, OSError):
            # A folder that was replaced while it was read has files of two models: it is read again.
            if _identity(path) == before:
                raise


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and number of a folder, which another folder at the same path does not have."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _loaded(path: Path) -> TableModel:
    from bayesdrop.estimators import DropoutClassifier, DropoutRegressor

    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "does not exist"
        raise ValueError(f"the model folder {path} {what}.")
    about, has_checksum = _read(path, _ABOUT)
    if about.get("format") != _FORMAT:
        raise ValueError(f"{path} does not hold a table model.")
    version, digests = about.get("format_version"), about.get("sha256")
    if type(version) is not int or version < 1 or not isinstance(digests, dict):
        raise _damaged(path, f"{_ABOUT} does not say what it holds")
    if version > _VERSION:
        by = about.get("bayesdrop_version", "a newer bayesdrop")
        raise ValueError(f"{path} was written by bayesdrop {by}, which is newer than {__version__}.")
    if version > 1 and not has_checksum:
        raise _damaged(path, f"{_ABOUT} is not as it was written")
    kept = (path / _KEPT).is_file()
    for name in (*_NEEDED, _KEPT) if kept else _NEEDED:
        if not (path / name).is_file():
            raise ValueError(f"the model folder {path} is not whole: {name} is missing.")
        if _digest(path / name) != digests.get(name):
            raise _damaged(path, f"{name} is not as it was written")
    try:
        schema = _schema(_read(path, "schema.json")[0])
        kind = DropoutRegressor if schema.task == "regression" else DropoutClassifier
        tensors, _ = read_tensors(path / "held-out.safetensors", kind=_HELD, owner="load_table_model")
        model = TableModel(
            schema=schema,
            estimator=kind.load(path / "model.safetensors"),
            held_out={name: tensor.numpy() for name, tensor in tensors.items()},
            level=about["level"],
            rule=Rule(**about["deferral"]),
            about=about["about"],
            rows=_read_rows(path / _KEPT) if kept else None,
        )
        _check(model)
    except Exception as error:
        raise _damaged(path, str(error).removesuffix(".")) from error
    return model


def _write_rows(path: Path, rows: TrainingRows) -> None:
    tensors = {name: torch.from_numpy(getattr(rows, name)) for name in ("x", "y", "numbers")}
    write_tensors(path, tensors, kind=_ROWS, header={"of": rows.of})


def _read_rows(path: Path) -> TrainingRows:
    tensors, header = read_tensors(path, kind=_ROWS, owner="load_table_model")
    x, y, numbers = (tensors[name].numpy() for name in ("x", "y", "numbers"))
    if any(values.dtype != np.float64 for values in (x, y, numbers)) or type(header.get("of")) is not int:
        raise ValueError(f"{_KEPT} does not hold rows")
    return TrainingRows(x, y, numbers, header["of"])


def _damaged(path: Path, what: str) -> ValueError:
    return ValueError(f"the model folder {path} is damaged: {what}.")


def _schema(state: dict[str, Any]) -> Schema:
    """The schema of a file; raises if it holds what no fit writes."""
    schema = Schema.from_dict(state)
    texts = [schema.target, schema.why_task, schema.target_format, *schema.classes, *schema.missing_marks]
    for column in schema.columns:
        texts += [column.name, column.why, column.format, *column.categories, *column.rare]
        numbers = type(column.marked) is bool and type(column.numbers) is bool
        numbers = numbers and _is_number(column.fill) and _is_number(column.last)
        if column.kind not in get_args(Kind) or not numbers:
            raise ValueError(f"column {column.name!r} of schema.json makes no sense")
    names = [column.name for column in schema.columns]
    if not all(isinstance(text, str) for text in texts) or len({*names, schema.target}) != len(names) + 1:
        raise ValueError("the names in schema.json make no sense")
    schema.check_formats()
    if schema.task not in get_args(Task) or type(schema.number_labels) is not bool:
        raise ValueError("the task in schema.json makes no sense")
    return schema


def _check(model: TableModel) -> None:
    """Raise unless all files are of one model."""
    if not (_is_number(model.level) and 0 < model.level < 1 and isinstance(model.about, dict)):
        raise ValueError(f"{_ABOUT} holds no level between 0 and 1, or no facts")
    inputs = model.estimator.n_features_in_
    classes = len(getattr(model.estimator, "classes_", ()))
    if model.prepare.width != inputs or classes != len(model.schema.classes):
        raise ValueError("the model and schema.json are of different tables")
    if model.rows is not None and model.rows.x.shape[1] != inputs:
        raise ValueError(f"the model and {_KEPT} are of different tables")
    if model.rows is not None and classes:
        known = model.rows.y[~np.isnan(model.rows.y)]
        if not np.isin(known, np.arange(classes)).all():
            raise ValueError(f"{_KEPT} has labels that the model does not know")
    rule = model.rule.for_task(model.schema.task)
    rows = {name: values.shape for name, values in model.held_out.items() if name not in ("scaled", "shares")}
    sound = all(values.dtype == np.float64 for values in model.held_out.values())
    if not {"loss", rule.by} <= rows.keys() or len(set(rows.values())) != 1 or not sound:
        raise ValueError("held-out.safetensors does not hold what thresholds are found with")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read(folder: Path, name: str) -> tuple[dict[str, Any], bool]:
    """What a JSON file holds, and whether it has a checksum."""
    try:
        return from_json((folder / name).read_bytes())
    except FileNotFoundError as error:
        raise ValueError(f"the model folder {folder} is not whole: {name} is missing.") from error
    except BadJson as error:
        raise _damaged(folder, f"{name}: {error}") from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
