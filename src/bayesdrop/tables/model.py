"""TableModel: a fitted table as a folder of safetensors, JSON and a report."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any

import torch

from bayesdrop.storage import read_tensors, write_tensors
from bayesdrop.tables.cells import Array
from bayesdrop.tables.deferral import Deferral, Rule, find_deferral
from bayesdrop.tables.prepare import Preparer
from bayesdrop.tables.schema import Schema
from bayesdrop.version import __version__

__all__ = ["TableModel", "check_folder", "load_table_model", "save_table_model"]

_FORMAT, _VERSION = "bayesdrop-table-model", 1
_HELD = "bayesdrop-held-out"
#: what a prediction needs, and what a person reads
_NEEDED = ("schema.json", "model.safetensors", "held-out.safetensors")
_ABOUT, _REPORT = "table.json", "report.html"
FILES = (_ABOUT, *_NEEDED, _REPORT)


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted estimator with all it needs to read a table and to keep its promises.

    Attributes:
        schema: what the columns are.
        estimator: the DropoutRegressor or DropoutClassifier.
        held_out: of rows that it was not fitted to: scores by name, "loss", and "scaled" for numbers.
        level: coverage of the intervals unless another is asked for.
        rule: which rows go to a person unless another is asked for.
        about: facts for a person: rows, options, measures.
    """

    schema: Schema
    estimator: Any
    held_out: Mapping[str, Array]
    level: float
    rule: Rule
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def prepare(self) -> Preparer:
        """From cells to inputs."""
        return Preparer(self.schema)

    @property
    def root(self) -> bool:
        """Whether errors are roots of mean losses."""
        return self.schema.task == "regression"

    def deferral(self, rule: Rule | None = None) -> Deferral:
        """A rule's threshold by the held-out rows; the model's own rule if None.

        Args:
            rule: a share or an error; its gaps are filled.
        """
        asked = (self.rule if rule is None else rule).for_task(self.schema.task)
        return find_deferral(asked, self.held_out, self.held_out["loss"], root=self.root)


def check_folder(path: str | os.PathLike[str], *, force: bool) -> Path:
    """The path, if a model may be written there; asked before training.

    A folder is replaced only if it holds a model and nothing else, and only with `force`.

    Args:
        path: the folder.
        force: whether a model that is there may be replaced.
    """
    path = Path(path)
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise ValueError(f"{path} must be a folder or not exist; it is a file or a link.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {path.absolute().parent} to put {path.name} in.")
    names = {entry.name for entry in path.iterdir()} if path.exists() else set()
    if names - set(FILES) or (names and _ABOUT not in names):
        shown = ", ".join(sorted(names - set(FILES))[:5]) or ", ".join(sorted(names))
        raise ValueError(f"{path} holds files that are no model's ({shown}); they are not touched.")
    if names and not force:
        raise ValueError(f"{path} holds a model already. Choose another folder, or replace it with --force.")
    return path


def save_table_model(
    model: TableModel, path: str | os.PathLike[str], *, report: str, force: bool = False
) -> None:
    """Write the folder beside its place, then move it there: it is whole or not there.

    Args:
        model: what to write.
        path: the folder.
        report: HTML.
        force: replace a model that is there.
    """
    path = check_folder(path, force=force).absolute()
    draft = path.with_name(f".{path.name}.{token_hex(4)}.tmp")
    draft.mkdir()
    try:
        _write(draft / "schema.json", model.schema.as_dict())
        model.estimator.save(draft / "model.safetensors")
        tensors = {name: torch.from_numpy(values) for name, values in model.held_out.items()}
        write_tensors(draft / "held-out.safetensors", tensors, kind=_HELD, header={})
        (draft / _REPORT).write_text(report, encoding="utf-8")
        rule = {"share": model.rule.share, "error": model.rule.error, "by": model.rule.by}
        about = {
            "format": _FORMAT,
            "format_version": _VERSION,
            "bayesdrop_version": __version__,
            "sha256": {name: _digest(draft / name) for name in _NEEDED},
            "level": model.level,
            "deferral": rule,
            "about": model.about,
        }
        _write(draft / _ABOUT, about)
        _move(draft, path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def load_table_model(path: str | os.PathLike[str]) -> TableModel:
    """Read a folder; every file is checked against what was written.

    Args:
        path: the folder.
    """
    from bayesdrop.estimators import DropoutClassifier, DropoutRegressor

    path = Path(path)
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "does not exist"
        raise ValueError(f"the model folder {path} {what}.")
    about = _read(path, _ABOUT)
    if about.get("format") != _FORMAT:
        raise ValueError(f"{path} does not hold a table model.")
    try:
        version, digests = int(about["format_version"]), dict(about["sha256"])
        if version > _VERSION:
            by = about.get("bayesdrop_version", "a newer bayesdrop")
            raise ValueError(f"{path} was written by bayesdrop {by}, which is newer than {__version__}.")
        for name in _NEEDED:
            if not (path / name).is_file():
                raise ValueError(f"the model folder {path} is not whole: {name} is missing.")
            if _digest(path / name) != digests[name]:
                raise ValueError(f"the model folder {path} is damaged: {name} is not as it was written.")
        schema = Schema.from_dict(_read(path, "schema.json"))
        kind = DropoutRegressor if schema.task == "regression" else DropoutClassifier
        tensors, _ = read_tensors(path / "held-out.safetensors", kind=_HELD, owner="load_table_model")
        return TableModel(
            schema=schema,
            estimator=kind.load(path / "model.safetensors"),
            held_out={name: tensor.numpy() for name, tensor in tensors.items()},
            level=float(about["level"]),
            rule=Rule(**about["deferral"]),
            about=dict(about["about"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"the model folder {path} is damaged: {_ABOUT} lacks {error}.") from error


def _move(draft: Path, path: Path) -> None:
    """Put the new folder in its place; an old one is deleted only after that."""
    old = path.with_name(f".{path.name}.{token_hex(4)}.old")
    there = path.exists()
    if there:
        path.rename(old)
    try:
        draft.rename(path)
    except BaseException:
        if there:
            old.rename(path)
        raise
    if there:
        shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _read(folder: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"the model folder {folder} is not whole: {name} is missing.") from error
    except ValueError as error:
        raise ValueError(f"the model folder {folder} is damaged: {name} is not JSON.") from error
    if not isinstance(content, dict):
        raise ValueError(f"the model folder {folder} is damaged: {name} is not what it should be.")
    return content


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
