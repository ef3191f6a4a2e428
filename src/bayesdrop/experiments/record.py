"""The results file of a run: JSON that a table, a page and a picture are made from."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from bayesdrop.data.files import DataNotFound, write_whole
from bayesdrop.errors import must
from bayesdrop.experiments.row import Claim, Outcome, Row

__all__ = ["NotReusable", "Record", "read_record", "read_records", "write_record"]

#: significant digits of the floats in `arrays`: a picture needs no more
DIGITS = 6
#: most characters of a results file, which people read and the repository keeps
MOST_CHARACTERS = 2_000_000


class NotReusable(ValueError):
    """A results file whose numbers are not what this code would compute."""


@dataclass(frozen=True, eq=False)
class Record:
    """A run: what was asked, what came of it, and with which code."""

    experiment: str
    title: str
    preset: str
    overrides: Mapping[str, Any]  #: settings that differ from the preset's
    config: Mapping[str, Any]
    version: str
    commit: str | None  #: of a checkout; None if bayesdrop is installed from elsewhere
    seconds: float  #: of this run, and those that the pieces it found had taken
    outcome: Outcome

    @property
    def stem(self) -> str:
        """Name of its files without the ending: a reproduction has the experiment's own."""
        preset = "" if self.preset == "default" else f"-{self.preset}"
        return f"{self.experiment}{preset}{'-custom' if self.overrides else ''}"

    @property
    def digest(self) -> str:
        """A fingerprint of what its picture is drawn from."""
        return hashlib.sha256(_lines(self, ("rows", "claims", "arrays")).encode()).hexdigest()


def write_record(record: Record, folder: str | os.PathLike[str]) -> Path:
    """Write `<stem>.json`, whole or not at all; returns its path.

    Raises:
        DataNotFound: the file has numbers where the record has none, for want of data: the file stays.
    """
    text = _lines(record)
    if len(text) > MOST_CHARACTERS:
        sizes = {name: len(_dumped(_packed(value))) for name, value in record.outcome.arrays.items()}
        largest = max(sizes, key=lambda name: sizes[name], default="")
        requirement = f"small enough for a file of {MOST_CHARACTERS:,} characters"
        hint = f"The largest is {largest!r}: keep what the picture shows and no more."
        raise ValueError(must(record.experiment, "arrays", requirement, f"{len(text):,}", hint))
    path = Path(folder) / f"{record.stem}.json"
    lost = _lost(record, path)
    if lost:
        raise DataNotFound(
            f"{record.experiment}: {lost} could not be run, for want of data. {path} has numbers and stays."
        )
    return write_whole(path, text.encode())


def _lost(record: Record, path: Path) -> str:
    """The settings of rows that have numbers in a file and none in a record; empty if there are none."""
    if not path.exists():
        return ""
    old = read_record(path)
    had = {(row.setting, row.metric) for row in old.outcome.rows if row.ours is not None}
    missing = [row for row in record.outcome.rows if row.ours is None]
    if had and len(missing) == len(record.outcome.rows):
        return "all of it"
    gone = [row.setting for row in missing if (row.setting, row.metric) in had]
    return ", ".join(dict.fromkeys(gone))


def read_record(path: str | os.PathLike[str]) -> Record:
    """The record in a results file."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        outcome = Outcome(
            rows=(Row(**row) for row in found.pop("rows")),
            claims=(Claim(**claim) for claim in found.pop("claims")),
            arrays={name: _unpacked(value) for name, value in found.pop("arrays").items()},
            notes=found.pop("notes"),
        )
        return Record(**found, outcome=outcome)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"read_record: {path} is not a results file of an experiment ({error}).") from error


def read_records(folder: str | os.PathLike[str]) -> dict[str, Record]:
    """All records in a folder, by stem; other JSON files, as those of benchmarks, are left out."""
    records = {}
    for path in sorted(Path(folder).glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict) and "experiment" in found:
            records[path.stem] = read_record(path)
    return records


def _lines(record: Record, parts: tuple[str, ...] | None = None) -> str:
    """JSON with a line for every row, claim and array, so that a change is seen where it is."""
    outcome = record.outcome
    whole: dict[str, Any] = {
        "experiment": record.experiment,
        "title": record.title,
        "preset": record.preset,
        "overrides": dict(record.overrides),
        "config": dict(record.config),
        "version": record.version,
        "commit": record.commit,
        "seconds": round(record.seconds, 1),
        "rows": [asdict(row) for row in outcome.rows],
        "claims": [asdict(claim) for claim in outcome.claims],
        "notes": list(outcome.notes),
        "arrays": {name: _packed(value) for name, value in outcome.arrays.items()},
    }
    lines = [
        f"  {_dumped(name)}: {_laid_out(value)}"
        for name, value in whole.items()
        if parts is None or name in parts
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _laid_out(value: Any) -> str:
    """JSON with a line for every part of a dict or a list."""
    if isinstance(value, dict) and value:
        inner = [f"    {_dumped(name)}: {_dumped(part)}" for name, part in value.items()]
        return "{\n" + ",\n".join(inner) + "\n  }"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {_dumped(part)}" for part in value) + "\n  ]"
    return _dumped(value)


def _dumped(value: Any) -> str:
    # JSON has no NaN: arrays hold it as null, and a row cannot have it.
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _packed(value: Any) -> Any:
    """An array as its type, shape and values in one list; anything else as JSON has it."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        return json.loads(_dumped(value))
    if value.dtype.kind not in "fiubU":
        raise TypeError(must("Outcome", "arrays", "of real numbers, booleans or strings", value.dtype))
    values = value.ravel().tolist()
    if value.dtype.kind == "f":
        if np.isinf(value).any():
            raise ValueError(must("Outcome", "arrays", "finite or NaN", "infinity"))
        values = [None if math.isnan(number) else _short(number) for number in values]
    return {"dtype": value.dtype.name, "shape": list(value.shape), "values": values}


def _short(number: float) -> float | int:
    rounded = float(f"{number:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 10**DIGITS else rounded


def _unpacked(value: Any) -> Any:
    if not (isinstance(value, dict) and value.keys() == {"dtype", "shape", "values"}):
        return value
    # Strings get the width that the longest needs.
    dtype = np.str_ if value["dtype"].startswith("str") else np.dtype(value["dtype"])
    numbers = [math.nan if number is None else number for number in value["values"]]
    return np.array(numbers, dtype=dtype).reshape(value["shape"])
