"""Hostile tables, made from a seed: each is fitted or scored, and the outcome is right, refused or wrong.

    right    rows in are rows out, own cells come back as the csv module reads them, every row that was put
             outside what was learned is deferred with a reason, and no number that is not finite is passed as
             sure
    refused  an error of ours, which the command prints as one sentence
    wrong    anything else: another error, a cell altered, a row lost, a doubtful row that passes

`attacks(seed, count)` yields them one by one, with what went wrong; `outcomes(seed, count)` counts.
"""

from __future__ import annotations

import bz2
import csv
import datetime
import gzip
import io
import json
import lzma
import math
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from bayesdrop.errors import Diverged
from bayesdrop.tables import (
    FitOptions,
    FittedTable,
    Schema,
    TableModel,
    explain_row,
    fit_table,
    inspect_table,
    open_table,
    predict_frame,
    score_file,
)
from bayesdrop.tables.evaluate import fit_evaluation
from bayesdrop.tables.explain_page import explanation_page
from bayesdrop.tables.prepare import Preparer
from bayesdrop.tables.schema import infer_columns
from bayesdrop.tables.score import prediction_names

__all__ = ["Attack", "attacks", "outcomes"]

Source = np.random.Generator
TINY = {"preset": "quick", "hidden": (6,), "epochs": 2, "num_draws": 8, "search": "none", "restarts": 1}
OURS = (ValueError, OSError, Diverged)


class Attack(NamedTuple):
    """One hostile table and what came of it."""

    name: str
    outcome: str
    detail: str


class Wrong(AssertionError):
    """What must not be."""


def outcomes(seed: int, count: int) -> Counter[str]:
    """How many of `count` hostile tables were right, refused and wrong."""
    found = Counter({"right": 0, "refused": 0, "wrong": 0})
    for attack in attacks(seed, count):
        found[attack.outcome] += 1
        if attack.outcome == "wrong":
            print(f"{attack.name}: {attack.detail}", file=sys.stderr)
    return found


def attacks(seed: int, count: int) -> Iterator[Attack]:
    """Hostile tables one by one."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        folder = Path(name)
        models = {kind: fitted_model(kind) for kind in ("numbers", "classes", "one column")}
        for number in range(count):
            source = np.random.default_rng([seed, number])
            place = folder / str(number)
            place.mkdir()
            attack = ATTACKS[number % len(ATTACKS)]
            yield attack(source, place, models)


# What is attacked


def own_table(source: Source, rows: int) -> list[dict[str, str]]:
    """Ordinary rows, as texts."""
    made = []
    for row in range(rows):
        size, depth = source.uniform(30, 200), float(np.clip(source.normal(), -2.4, 2.8))
        town = str(source.choice(["Ahome", "Bford", "=Cton"]))
        made.append(
            {
                "size": f"{size:.2f}",
                "depth": f"{depth:.4f}",
                "age": "" if row % 7 == 3 else str(int(source.integers(1, 90))),
                "town": town,
                "garden": str(source.choice(["yes", "no"])),
                "land": "FR",
                "note": f"row {row} of {source.integers(10**9)}",
                "price": f"{2 * size + 30 * depth + 20 * (town == 'Ahome') + source.normal():.3f}",
            }
        )
    return made


LABELS = ("=cmd|' /C calc'!A0", "\x1b[31mred", "plain")


def fitted_model(kind: str) -> TableModel:
    """A model that is fitted once and scores many files."""
    frame = pd.DataFrame(own_table(np.random.default_rng(7), 150), dtype=str)
    if kind == "one column":
        frame = frame[["depth", "price"]]
    if kind == "classes":
        frame["price"] = [LABELS[int(float(price)) % 3] for price in frame["price"]]
    return fit_table(frame, FitOptions("price", estimator=TINY)).model


# A file that is scored


@dataclass
class File:
    """A table on its way to disk: what it holds, how it is written, and what must come of it."""

    header: list[str]
    rows: list[list[str]]
    separator: str = ","
    ending: str = "\n"
    encoding: str = "utf-8"
    quote_all: bool = False
    last_line_ends: bool = True
    blank_lines: bool = False
    suffix: str = ".csv"
    spoil: Callable[[bytes], bytes] | None = None
    deferred: set[int] = field(default_factory=set)  #: rows that must go to a person
    refused: bool | None = False  #: whether it must be refused; None: it may
    what: list[str] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)  #: rows that are as hostile as they should be
    any_rows: bool = False  #: whether other rows may be read than those that were written

    def data(self) -> bytes:
        """The bytes of the file."""
        lines = [self._line(self.header), *(self._line(row) for row in self.rows)]
        if self.blank_lines:
            lines.insert(1 + len(self.rows) // 2, "")
        text = self.ending.join(lines) + (self.ending if self.last_line_ends else "")
        data = text.encode(self.encoding, "replace")
        data = _pack(data, self.suffix)
        return data if self.spoil is None else self.spoil(data)

    def _line(self, cells: list[str]) -> str:
        if cells == [""]:
            return '""' if self.quote_all else ""
        return self.separator.join(map(self._cell, cells))

    def _cell(self, text: str) -> str:
        special = any(mark in text for mark in (self.separator, '"', "\r", "\n"))
        return '"' + text.replace('"', '""') + '"' if special or self.quote_all else text

    def set(self, row: int, name: str, cell: str) -> None:
        """Put a cell in its place."""
        self.rows[row][self.header.index(name)] = cell


Mutation = Callable[[File, Source], None]


def _pick(source: Source, options: Sequence[str]) -> str:
    """One of them. NumPy's own choice cuts a NUL off the end of a text."""
    return options[int(source.integers(len(options)))]


def _some_row(file: File, source: Source) -> int:
    """A row that nothing was done to yet; there are more rows than mutations."""
    row = int(source.choice(sorted(set(range(len(file.rows))) - file.touched)))
    file.touched.add(row)
    return row


FAR = ("1e100", "-1e9", "10000", "1e308", "-1.7e308", "inf", "-inf", "Infinity", "1e999", " 99999 ")


def far_number(file: File, source: Source) -> None:
    """A number far outside what was seen, or infinite."""
    row = _some_row(file, source)
    name = str(source.choice([name for name in ("size", "depth", "age") if name in file.header]))
    file.set(row, name, _pick(source, FAR))
    file.deferred.add(row)


def near_number(file: File, source: Source) -> None:
    """An ordinary number in an unusual spelling."""
    cells = ("0", "-0.0", "1e-300", " 0.5", "+1.5", "1.", ".5", "1E0", "5e-324", "0000.10")
    file.set(_some_row(file, source), "depth", _pick(source, cells))


def new_category(file: File, source: Source) -> None:
    """A town that nobody has seen."""
    row = _some_row(file, source)
    towns = ("teal", "Ä", "=1+1", "\x1b[2J", "ahome", "a,b", "日本", "0", "1e5", "(new)", "x" * 300)
    file.set(row, "town", _pick(source, towns))
    file.deferred.add(row)


def newly_missing(file: File, source: Source) -> None:
    """A cell that is missing where none was."""
    row = _some_row(file, source)
    name = str(source.choice([name for name in ("size", "depth", "town", "garden") if name in file.header]))
    file.set(row, name, str(source.choice(["", "NA", "NaN", "-nan", " null ", "None", "n/a", "#N/A"])))
    file.deferred.add(row)


def new_land(file: File, source: Source) -> None:
    """A column that never changed, changed."""
    row = _some_row(file, source)
    file.set(row, "land", _pick(source, ("US", "fr", "", "=FR", "FR\0")))
    file.deferred.add(row)


def usual_gap(file: File, source: Source) -> None:
    """A cell that is missing where some were."""
    file.set(_some_row(file, source), "age", str(source.choice(["", "NA", "nan", " "])))


def text_among_numbers(file: File, source: Source) -> None:
    """No number, or no truth value."""
    cells = ("abc", "1,5", "12 kg", "1_000", "٣", "0x10", "--1", "1e", ".", "1 2", "2020-01-01", "1\x00")
    if source.random() < 0.3 and "garden" in file.header:
        file.set(_some_row(file, source), "garden", str(source.choice(["maybe", "2", "01"])))
    else:
        file.set(_some_row(file, source), "depth", _pick(source, cells))
    file.refused = True


STRANGE = (
    'say "no"',
    "a\rb",
    "two\nlines",
    "c\r\nd",
    "x,y;z\tw|v",
    "  space  ",
    "=cmd|' /C calc'!A0",
    "@SUM(A1)",
    "-2+3",
    "9007199254740993",
    "18446744073709551616",
    "0007",
    "1.10",
    "a\x00b",
    "\u202egnp.exe",
    "🦄" * 50,
    "e\u0301",
    "'",
    '"',
    "NULL",
    "\\",
    "\x1b]0;title\x07",
    "z" * 60_000,
)


def strange_note(file: File, source: Source) -> None:
    """Cells that nobody uses must come back as they are."""
    for _ in range(3):
        file.set(_some_row(file, source), "note", _pick(source, STRANGE))


def ragged(file: File, source: Source) -> None:
    """A row that is too short or too long."""
    row = file.rows[_some_row(file, source)]
    if source.random() < 0.5:
        row.pop()
    else:
        row.extend(["x"] * int(source.integers(1, 4)))
    file.refused = True


def names(file: File, source: Source) -> None:
    """A header that is odd but right, or wrong."""
    kind = int(source.integers(8))
    if kind == 0:
        order = source.permutation(len(file.header))
        file.header = [file.header[place] for place in order]
        file.rows = [[row[place] for place in order] for row in file.rows]
    elif kind == 1:
        file.header = [f" {name} " for name in file.header]
    elif kind == 2:
        file.header.append(str(source.choice(["", "\x1b[1mbold", "=1+1", "a\nb", "☃", 'q"'])))
        for row in file.rows:
            row.append("7")
    else:
        place = file.header.index("size") if "size" in file.header else 0
        wrong = ("si\0ze", "Size", file.header[-1], "mean" if file.header[place] == "x" else "label\0")
        file.header[place] = wrong[kind % 4]
        file.refused = True


def encoding(file: File, source: Source) -> None:
    """Another encoding of the text: one that its mark or its bytes tell, or one that nobody can tell."""
    kind = str(source.choice(["utf-8-sig", "cp1252", "utf-16", "utf-32", "utf-16-le", "cp037"]))
    if kind != "utf-8-sig":
        # A letter that these encodings write otherwise.
        file.header.append("é")
        for row in file.rows:
            row.append("ü")
    if kind in ("utf-16-le", "cp037"):
        file.refused = True
    # Bytes that no text has: what is not UTF-8 is then no text at all.
    elif kind == "cp1252" and any("\0" in cell or "\x1b" in cell for row in file.rows for cell in row):
        file.refused = file.refused or None
    file.encoding = kind


def lines(file: File, source: Source) -> None:
    """Other ends of lines, blank lines, no end at the end."""
    file.ending = str(source.choice(["\n", "\r\n", "\r"]))
    file.last_line_ends = bool(source.random() < 0.5)
    file.blank_lines = bool(source.random() < 0.5) and len(file.header) > 1


def dialect(file: File, source: Source) -> None:
    """Another separator, quotes everywhere."""
    if len(file.header) > 1:
        file.separator = str(source.choice([",", ";", "\t", "|"]))
    file.quote_all = bool(source.random() < 0.5)


def few_rows(file: File, source: Source) -> None:
    """No row, or one."""
    file.rows = file.rows[: int(source.integers(2))]
    file.deferred &= set(range(len(file.rows)))
    if file.refused:  # what was wrong may be gone
        file.refused = None


def _pack(data: bytes, suffix: str) -> bytes:
    ending = suffix.rpartition(".")[2]
    if ending == "zst":
        return bytes(pa.compress(data, codec="zstd", asbytes=True))
    return {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}.get(ending, bytes)(data)


def _unpack(data: bytes, suffix: str) -> bytes:
    ending = suffix.rpartition(".")[2]
    if ending == "zst":
        return bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read())
    return {"gz": gzip.decompress, "bz2": bz2.decompress, "xz": lzma.decompress}.get(ending, bytes)(data)


def packed(file: File, source: Source) -> None:
    """A packed file that is whole, cut off, altered, or none."""
    suffix = str(source.choice([".csv.gz", ".csv.bz2", ".csv.xz", ".csv.zst"]))
    file.suffix = suffix
    kind = int(source.integers(5))
    if kind == 1:
        share = float(source.uniform(0.1, 0.95))
        file.spoil = lambda data: data[: int(share * len(data))]
    elif kind == 2:
        bit = float(source.uniform(0.2, 0.9))
        file.spoil = lambda data: _flipped(data, int(bit * len(data)))
    elif kind == 3:
        file.spoil = lambda data: _unpack(data, suffix)
    elif kind == 4:
        file.spoil = lambda data: b""
    if kind == 2 and suffix == ".csv.zst":  # it may have no checksum: what is read is then another table
        file.refused, file.any_rows = None, True
    else:
        file.refused = file.refused or kind > 0


def open_quote(file: File, source: Source) -> None:
    """A quote that is never closed."""
    file.spoil = lambda data: data.rstrip(b"\r\n") + b'\n"never closed'
    file.refused = True


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]


CELLS: tuple[Mutation, ...] = (
    far_number,
    far_number,
    new_category,
    newly_missing,
    new_land,
    near_number,
    usual_gap,
    strange_note,
    strange_note,
    text_among_numbers,
)
WHOLES: tuple[Mutation, ...] = (
    *(ragged, names, names, encoding, lines, lines, dialect, dialect, few_rows, packed, packed, open_quote),
)


def _hostile_file(source: Source, kind: str) -> File:
    table = own_table(source, int(source.integers(12, 30)))
    header = ["depth"] if kind == "one column" else ["size", "depth", "age", "town", "garden", "land", "note"]
    file = File(header, [[row[name] for name in header] for row in table])
    only = (far_number, near_number, newly_missing, newly_missing, text_among_numbers)
    cells = only if kind == "one column" else CELLS
    for _ in range(int(source.integers(0, 4))):
        mutation = cells[source.integers(len(cells))]
        mutation(file, source)
        file.what.append(mutation.__name__)
    if source.random() < 0.7:
        mutation = WHOLES[source.integers(len(WHOLES))]
        if kind == "one column" and mutation in (ragged, names):
            mutation = lines
        mutation(file, source)
        file.what.append(mutation.__name__)
    return file


def _score_attack(source: Source, place: Path, models: dict[str, TableModel]) -> Attack:
    kind = str(source.choice(list(models), p=[0.5, 0.35, 0.15]))
    if source.random() < 0.2 and kind != "one column":
        return _parquet_attack(source, place, models[kind])
    file = _hostile_file(source, kind)
    path = place / f"in{file.suffix}"
    path.write_bytes(file.data())
    output = place / f"out{source.choice(['.csv', '.tsv', '.csv.gz', '.parquet'])}"
    name = f"{kind}: {' + '.join(file.what) or 'nothing'} -> {output.name}"
    return _tried(name, lambda: _score(models[kind], file, path, output, source), file.refused)


def _tried(name: str, run: Callable[[], None], refused: bool | None) -> Attack:
    """The outcome of something that is right, or is refused with an error of ours."""
    try:
        run()
    except Wrong as error:
        return Attack(name, "wrong", str(error))
    except OURS as error:
        said = str(error)
        if refused is False:
            return Attack(name, "wrong", f"refused: {said}")
        if not said or "\n" in said:
            return Attack(name, "wrong", f"not one sentence: {said!r}")
        return Attack(name, "refused", said)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-4:]
        places = "; ".join(f"{Path(part.filename).name}:{part.lineno}" for part in where)
        return Attack(name, "wrong", f"{type(error).__name__}: {error} ({places})")
    if refused:
        return Attack(name, "wrong", "it was not refused")
    return Attack(name, "right", "")


def _score(model: TableModel, file: File, path: Path, output: Path, source: Source) -> None:
    try:
        score_file(model, open_table(path), output, chunk_rows=int(source.choice([1, 7, 10_000])))
    except OURS:
        _no_file_but(path)
        raise
    encoding = "utf-8-sig" if file.encoding == "utf-8" else file.encoding
    text = _unpack(path.read_bytes(), file.suffix).decode(encoding)
    given = list(csv.reader(io.StringIO(text, newline=""), delimiter=file.separator, strict=True))
    width = len(given[0])
    given = [row or [""] for row in given if row or width == 1]
    scored = _read_back(output, file.separator)
    _check_scored(model, given, scored, None if file.any_rows else file.deferred)


def _no_file_but(path: Path) -> None:
    left = [other.name for other in path.parent.iterdir() if other != path]
    if left:
        raise Wrong(f"left behind: {left}")


def _read_back(output: Path, separator: str) -> list[list[str]]:
    if output.suffix == ".parquet":
        table = pq.read_table(output)
        columns = [column.to_pylist() for column in table.columns]
        rows = [["" if cell is None else str(cell) for cell in row] for row in zip(*columns, strict=True)]
        return [table.column_names, *rows]
    data = output.read_bytes()
    text = (gzip.decompress(data) if output.suffix == ".gz" else data).decode()
    delimiter = "\t" if ".tsv" in output.name else separator
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))


def _check_scored(
    model: TableModel, given: list[list[str]], scored: list[list[str]], deferred: set[int] | None
) -> None:
    if len(given) != len(scored):
        raise Wrong(f"{len(given)} lines in, {len(scored)} out")
    width, added = len(given[0]), prediction_names(model)
    if any(len(row) != width + len(added) for row in scored):
        raise Wrong("rows of different lengths")
    for row, (before, after) in enumerate(zip(given, scored, strict=True)):
        if before != after[:width]:
            raise Wrong(f"row {row} was altered: {before} came back as {after[:width]}")
    for row, cells in enumerate(scored[1:]):
        found = dict(zip(added, cells[width:], strict=True))
        handed = found["defer"] == "True"
        numbers = [float(found[name]) for name in added if name not in ("label", "defer", "reason")]
        if not handed and not all(math.isfinite(number) for number in numbers):
            raise Wrong(f"row {row + 1} passes with {numbers}")
        if handed != bool(found["reason"]):
            raise Wrong(f"row {row + 1}: deferred {handed}, reason {found['reason']!r}")
        if deferred is None:
            continue
        outside = ("seen" in found["reason"] or "missing" in found["reason"]) and handed
        if outside != (row in deferred):
            raise Wrong(f"row {row + 1}: outside {row in deferred}, reason {found['reason']!r}")
        if max(map(abs, numbers)) > 1e6:
            raise Wrong(f"row {row + 1} has run away: {numbers}")


# Parquet


def _parquet_attack(source: Source, place: Path, model: TableModel) -> Attack:
    rows = own_table(source, int(source.integers(0, 20)))
    size: Any = pa.array([float(row["size"]) for row in rows])
    deferred: set[int] = set()
    refused = False
    kind = str(source.choice(["plain", "nan", "inf", "null", "float32", "decimal", "text", "bytes", "cut"]))
    at = int(source.integers(len(rows))) if rows else -1
    values: list[Any] = size.to_pylist()
    if rows and kind in ("nan", "inf", "null"):
        values[at] = {"nan": math.nan, "inf": math.inf, "null": None}[kind]
        size = pa.array(values, pa.float64())
        deferred.add(at)
    elif kind == "float32":
        size = size.cast(pa.float32())
    elif kind == "decimal":
        size = pa.array(values, pa.float64()).cast(pa.decimal128(20, 6), safe=False)
    elif kind == "text":
        size = pa.array([row["size"] for row in rows], pa.string_view())
    elif kind == "bytes" and rows:
        size = pa.array([b"\xff\x00"] * len(rows), pa.binary())
        refused = True
    town = pa.array([row["town"] for row in rows], pa.string())
    extra: dict[str, Any] = {
        "big": pa.array([2**63 + row for row in range(len(rows))], pa.uint64()),
        "when": pa.array(range(len(rows)), pa.timestamp("us")),
        "list": pa.array([[row, None] for row in range(len(rows))], pa.list_(pa.int64())),
        "nothing": pa.nulls(len(rows)),
        "half": pa.array([math.nan if row % 2 else 0.5 for row in range(len(rows))], pa.float32()),
    }
    kept = [name for name in extra if source.random() < 0.5]
    table = pa.table(
        {
            "size": size,
            "depth": pa.array([float(row["depth"]) for row in rows], pa.float64()),
            "age": pa.array([float(row["age"]) if row["age"] else math.nan for row in rows], pa.float64()),
            "town": town.dictionary_encode() if source.random() < 0.5 else town,
            "garden": pa.array([row["garden"] == "yes" for row in rows], pa.bool_()),
            **{name: extra[name] for name in kept},
        }
    )
    path, output = place / "in.parquet", place / f"out{source.choice(['.csv', '.parquet'])}"
    pq.write_table(table, path, row_group_size=max(1, int(source.integers(1, 9))))
    if kind == "cut":
        data = path.read_bytes()
        path.write_bytes(data[: int(source.uniform(0, 0.99) * len(data))])
        refused = True

    def run() -> None:
        try:
            score_file(model, open_table(path), output, chunk_rows=int(source.choice([1, 7, 10_000])))
        except OURS:
            _no_file_but(path)
            raise
        scored = _read_back(output, ",")
        # Texts of typed cells are for the format to choose: the number of rows is what is compared here.
        own = [row[: table.num_columns] for row in scored]
        if output.suffix == ".parquet":
            back = pq.read_table(output).select(table.column_names)
            for name in table.column_names:
                before, after = table[name].to_pylist(), back[name].to_pylist()
                if repr(before) != repr(after):
                    raise Wrong(f"{name}: {before} came back as {after}")
        elif "big" in kept and [row[own[0].index("big")] for row in own[1:]] != [
            str(2**63 + row) for row in range(len(rows))
        ]:
            raise Wrong("large whole numbers were altered")
        if len(own) != len(rows) + 1:
            raise Wrong(f"{len(rows)} rows in, {len(own) - 1} out")
        _check_scored(model, own, scored, deferred)

    return _tried(f"parquet: {kind} with {kept} -> {output.name}", run, refused)


# The same table in another format


def _typed_rows(rows: list[dict[str, str]]) -> Any:
    """Own rows with types, as a spreadsheet or a data frame holds them."""
    frame = pd.DataFrame(rows).drop(columns=["note", "price"])
    for name in ("size", "depth", "age"):
        frame[name] = pd.to_numeric(frame[name])
    return frame.assign(garden=frame["garden"] == "yes")


def _write_typed(frame: Any, path: Path) -> None:
    if path.suffix == ".xlsx":
        frame.to_excel(path, index=False, engine="openpyxl")
    elif path.suffix == ".ods":
        frame.to_excel(path, index=False, engine="odf")
    elif path.suffix == ".feather":
        frame.to_feather(path)
    else:
        frame.to_csv(path, index=False)


def _format_attack(source: Source, place: Path, models: dict[str, TableModel]) -> Attack:
    """The rows of a CSV in another format, hurt or not: the same predictions, or refused."""
    model = models[str(source.choice(["numbers", "classes"]))]
    frame = _typed_rows(own_table(source, int(source.integers(2, 12))))
    suffix = str(source.choice([".xlsx", ".ods", ".feather", ".csv"]))
    kind = str(source.choice(["whole", "cut", "flip", "folder", "another header", "text", "gap", "bomb"]))
    expected = predict_frame(model, frame)
    path = place / f"in{suffix}"
    refused: bool | None = False
    if kind in ("folder", "another header"):
        path = place / "in"
        path.mkdir()
        cut = int(source.integers(1, len(frame)))
        second = frame[cut:]
        if kind == "another header":
            second, refused = second.rename(columns={"size": "sizes"}), True
        _write_typed(frame[:cut].reset_index(drop=True), path / f"1{suffix}")
        _write_typed(second.reset_index(drop=True), path / f"2{suffix}")
    elif kind == "text":
        frame = frame.astype({"size": object})
        frame.loc[int(source.integers(len(frame))), "size"] = "big"
        refused = True
        _write_typed(frame if suffix != ".feather" else frame.astype({"size": str}), path)
    else:
        if kind == "gap":
            frame.loc[0, "size"] = math.nan
            expected = predict_frame(model, frame)
        _write_typed(frame, path)
    if suffix == ".xlsx" and frame["town"].str.startswith("=").any() and refused is False:
        # What openpyxl takes for a formula, it writes as one, without a value.
        refused = True
    data = path.read_bytes() if path.is_file() else b""
    if kind == "cut" and suffix != ".csv":
        path.write_bytes(data[: int(source.uniform(0, 0.98) * len(data))])
        refused = True
    elif kind == "flip" and suffix != ".csv":
        path.write_bytes(_flipped(data, int(source.integers(len(data)))))
        refused = None
    elif kind == "bomb" and suffix in (".xlsx", ".ods"):
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("bomb.xml", bytes(120_000_000))
        refused = True

    def run() -> None:
        output = place / f"out{source.choice(['.csv', '.parquet'])}"
        try:
            score_file(model, open_table(path), output, chunk_rows=int(source.choice([1, 3, 10_000])))
        except OURS:
            _no_file_but(path)
            raise
        # A bit that was flipped in a file without checksums is another cell.
        if kind == "flip" and suffix == ".feather":
            return
        scored = pd.read_csv(output) if output.suffix == ".csv" else pd.read_parquet(output)
        name = "mean" if model.root else "entropy"
        if not np.allclose(scored[name].astype(float), expected[name], rtol=1e-5, atol=1e-7):
            raise Wrong(f"{name}: {expected[name]} came back as {scored[name].tolist()}")
        if scored["defer"].astype(bool).tolist() != expected["defer"].tolist():
            raise Wrong("other rows are deferred")

    return _tried(f"format: {kind} {suffix}", run, refused)


# The same numbers and dates in another spelling


def _spelled(value: float, decimals: int, thousands: str, decimal: str) -> str:
    text = f"{value:,.{decimals}f}"
    return text.replace(",", "T").replace(".", decimal).replace("T", thousands)


def _spelling_attack(source: Source, place: Path, models: dict[str, TableModel]) -> Attack:
    """Numbers and dates as some country writes them: read as they were meant, or refused."""
    decimal = str(source.choice([".", ","]))
    thousands = str(source.choice(["", "." if decimal == "," else ",", " ", "\u202f", "'"]))
    rows = int(source.integers(25, 60))
    truth: dict[str, Any] = {"sure": source.uniform(0, 1, rows).round(2)}
    cells: dict[str, list[str]] = {"sure": [_spelled(value, 2, "", decimal) for value in truth["sure"]]}
    for number in range(int(source.integers(1, 4))):
        decimals = int(source.choice([0, 0, 1, 2, 3, 4]))
        values = (source.uniform(-1, 1, rows) * 10.0 ** source.integers(1, 8)).round(decimals) + 0.0
        truth[f"n{number}"] = values
        cells[f"n{number}"] = [_spelled(value, decimals, thousands, decimal) for value in values]
    pattern = str(
        source.choice(["%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y-%m-%dT%H:%M:%S", "%d %b %Y"])
    )
    days = source.integers(0, 20_000, rows)
    moments = [datetime.datetime(1970, 1, 1) + datetime.timedelta(days=int(day)) for day in days]
    cells["day"] = [moment.strftime(pattern) for moment in moments]
    names = list(cells)
    what, refused = str(source.choice(["whole", "whole", "gaps", "a stranger", "another way"])), False
    if what == "gaps":
        for name in names:
            cells[name][int(source.integers(rows))] = str(source.choice(["", "NA", " "]))
    elif what == "a stranger":
        cells[str(source.choice(names[1:]))][int(source.integers(rows))] = str(
            source.choice(["?", "1.2.3", "12 kg"])
        )
        refused = True
    elif what == "another way":
        other = "," if decimal == "." else "."
        cells["sure"][int(source.integers(rows))] = f"1{other}55"
        refused = True
    path = place / "in.csv"
    frame = pd.DataFrame(cells)
    separator = str(source.choice([";", "\t", "|", ","]))
    frame.assign(t=range(rows)).to_csv(path, sep=separator, index=False)

    def run() -> None:
        read = open_table(path).read()
        columns = infer_columns(read, "t", categorical=(), ignore=(), marks=("?",) if what == "gaps" else ())
        prepared = Preparer(Schema("t", "regression", columns))(read).x
        start = 0
        for column in columns:
            found = prepared[:, start]
            start += column.width
            whole = np.array([cell not in ("", "NA", " ") for cell in cells[column.name]])
            if column.kind == "date":
                meant = days.max() if whole.all() else days[whole].max()
                if not np.array_equal(found[whole], (meant - days)[whole]):
                    raise Wrong(f"{column.name} {pattern}: {cells[column.name][:3]} read as {found[:3]}")
            elif column.name == "day":
                raise Wrong(f"{column.name} {pattern} is {column.kind}: {column.why}")
            elif column.kind != "numeric" or not np.array_equal(found[whole], truth[column.name][whole]):
                said = f"{column.kind}, {column.format}: {found[:3] if column.width else column.why}"
                raise Wrong(f"{cells[column.name][:3]} read as {said}")

    return _tried(f"spelling: {what}, 1{thousands}234{decimal}5, {pattern}", run, refused or None)


# A table that is fitted

Column = Callable[[Source, int], list[str]]


def _normal(source: Source, rows: int) -> list[str]:
    return [f"{value:.5g}" for value in source.normal(size=rows)]


def _gappy(source: Source, rows: int) -> list[str]:
    gaps = source.choice(["", "NA", "nan", " "], rows)
    return [
        gap if source.random() < 0.3 else cell for gap, cell in zip(gaps, _normal(source, rows), strict=True)
    ]


COLUMNS: dict[str, Column] = {
    "normal": _normal,
    "gappy": _gappy,
    "constant": lambda source, rows: ["7"] * rows,
    "empty": lambda source, rows: [""] * rows,
    "huge": lambda source, rows: [f"{value:.5g}e300" for value in source.normal(size=rows)],
    "largest": lambda source, rows: [f"{value:.5g}e308" for value in source.uniform(-1.7, 1.7, rows)],
    "tiny": lambda source, rows: [f"{value:.5g}e-310" for value in source.normal(size=rows)],
    "typo": lambda source, rows: ["1e100", *_normal(source, rows - 1)] if rows else [],
    "infinite": lambda source, rows: ["inf", *_normal(source, rows - 1)] if rows else [],
    "kinds": lambda source, rows: source.choice(["a", "b", "=c", "é", "\x1b[31m"], rows).tolist(),
    "names": lambda source, rows: [f"id {row}" for row in range(rows)],
    "mixed": lambda source, rows: source.choice(["1", "2.5", "three", "true", "2020-01-01"], rows).tolist(),
    "dates": lambda source, rows: [f"2020-01-{1 + row % 28:02d}" for row in range(rows)],
    "truths": lambda source, rows: source.choice(["yes", "No", "T", "false"], rows).tolist(),
    "large": lambda source, rows: [str(2**53 + int(value)) for value in source.integers(3, size=rows)],
    "rare": lambda source, rows: ["once", *["often"] * (rows - 1)] if rows else [],
    "words": lambda source, rows: source.choice(["(other)", "(missing)", "None ", "x"], rows).tolist(),
    "commas": lambda source, rows: [f"{value:.2f}".replace(".", ",") for value in source.normal(size=rows)],
    "thousands": lambda source, rows: [f"{value:,}" for value in source.integers(1, 10**6, rows)],
    "either": lambda source, rows: [f"{value:,}" for value in source.integers(1000, 9999, rows)],
    "slashes": lambda source, rows: [f"0{1 + row % 9}/0{1 + row % 7}/2020" for row in range(rows)],
    "stamps": lambda source, rows: [f"2020-02-{1 + row % 29:02d}T0{row % 9}:30:00Z" for row in range(rows)],
    "running": lambda source, rows: [str(1000 + row) for row in range(rows)],
    "answers": lambda source, rows: source.choice(["yes", "1", "0", "FALSE"], rows).tolist(),
    "zeros": lambda source, rows: source.choice(["0", "1"], rows).tolist(),
}
TARGETS: dict[str, Column] = {
    **{name: COLUMNS[name] for name in ("normal", "kinds", "truths", "gappy", "large", "constant", "empty")},
    **{name: COLUMNS[name] for name in ("huge", "tiny", "infinite", "mixed", "names", "dates")},
    **{name: COLUMNS[name] for name in ("commas", "thousands", "either", "answers", "zeros", "slashes")},
    "singles": lambda source, rows: [f"c{row // 2 if row % 5 else row}" for row in range(rows)],
    "formulas": lambda source, rows: source.choice(["=1+1", "-x", "@y", "+5", "-5"], rows).tolist(),
}


def _fit_attack(source: Source, place: Path, models: dict[str, TableModel]) -> Attack:
    rows = int(source.choice([0, 1, 9, 10, 12, 25, 60], p=[0.03, 0.03, 0.04, 0.2, 0.2, 0.25, 0.25]))
    kinds = [str(kind) for kind in source.choice(list(COLUMNS), int(source.integers(1, 6)))]
    goal = str(source.choice(list(TARGETS)))
    columns = {f"{kind} {place}": COLUMNS[kind](source, rows) for place, kind in enumerate(kinds)}
    columns["t"] = TARGETS[goal](source, rows)
    file = File(list(columns), [list(row) for row in zip(*columns.values(), strict=True)])
    path, output = place / "in.csv", place / "out.csv"
    path.write_bytes(file.data())
    task = str(source.choice(["auto", "auto", "auto", "classification", "regression"]))

    def run() -> None:
        options = FitOptions(
            "t", task=task, estimator=TINY, held_out=float(source.choice([0.001, 0.15, 0.5]))
        )
        frame = open_table(path).read()
        # Whatever a fit says to it: an inspection stops at nothing.
        try:
            told = [column.name for column in inspect_table(frame, target="t", task=task).columns]
        except OURS as error:
            raise Wrong(f"inspect: {error}") from error
        if told != list(columns):
            raise Wrong(f"inspect tells of {told}")
        fitted = fit_table(frame, options)
        _check_pages(fitted, open_table(path).read(), whole=source.random() < 0.2)
        score_file(fitted.model, open_table(path), output)
        given = [file.header, *file.rows]
        scored = _read_back(output, ",")
        _check_scored(fitted.model, given, scored, None)
        _check_labels(fitted.model, scored, columns["t"])

    return _tried(f"fit: {kinds} to {goal}, {rows} rows, {task}", run, None)


def _check_pages(fitted: FittedTable, frame: Any, *, whole: bool) -> None:
    """What was fitted can be told of: a report that is refused would lose the fit."""
    try:
        evaluation = fit_evaluation(fitted)
        lines = ["".join(row) for row in evaluation.rows()]
        if whole:
            explained = explain_row(fitted.model, frame.iloc[[0]])
            json.dumps(explained.as_dict(), allow_nan=False)
            lines += [evaluation.report(), explanation_page(explained, "row")]
            if any("\x1b" in page for page in lines[-2:]):
                raise Wrong("a page holds an escape")
    except OURS as error:
        raise Wrong(f"the report was refused: {traceback.format_exc()}") from error


def _check_labels(model: TableModel, scored: list[list[str]], target: list[str]) -> None:
    """Labels are labels of the table, and none of them is an order to a spreadsheet or a terminal."""
    if model.schema.task != "classification":
        return
    if not set(model.schema.classes) <= {label.strip() for label in target}:
        raise Wrong(f"classes {model.schema.classes} are not those of the table")
    at = scored[0].index("label")
    for row in scored[1:]:
        label = row[at]
        if "\x1b" in label or (label[:1] in ("=", "@", "+", "-") and not _is_number(label)):
            raise Wrong(f"label {label!r}")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


ATTACKS = (
    *(
        _score_attack,
        _score_attack,
        _spelling_attack,
        _score_attack,
        _format_attack,
        _score_attack,
        _fit_attack,
    ),
)
