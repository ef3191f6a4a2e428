"""The tables: the ten UCI sets by name, or a file of one's own."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from bayesdrop.data import Table, from_table, load_uci
from bayesdrop.data.uci import UCI
from bayesdrop.errors import must, require

__all__ = ["load_set", "set_stamp"]


def load_set(name: str) -> Table:
    """A UCI set by its name, or a CSV file: all columns numbers, the target last, 20 random splits.

    Args:
        name: a key of `bayesdrop.data.UCI`, or the path of a file that ends in .csv.
    """
    stamp = set_stamp(name)
    return _own(name, stamp) if stamp else load_uci(name)


def set_stamp(name: str) -> str:
    """What tells one state of a file from another; empty for the UCI sets, which do not change."""
    if name in UCI:
        return ""
    path = Path(name)
    if path.suffix != ".csv" or not path.is_file():
        want = f"one of {', '.join(UCI)}, or a CSV file"
        raise ValueError(must("load_set", "name", want, name))
    state = path.stat()
    return f"{state.st_size} bytes, {state.st_mtime_ns}"


@lru_cache(maxsize=4)
def _own(name: str, stamp: str) -> Table:
    pandas = require("pandas", extra="data", owner="load_set")
    frame = pandas.read_csv(name)
    words = [str(column) for column in frame.columns if frame[column].dtype.kind not in "biuf"]
    if words:
        hint = "Encode them, or use `bayesdrop fit`, which does."
        raise ValueError(must("load_set", name, "columns of numbers", f"text in {', '.join(words)}", hint))
    if frame.shape[1] < 2:
        raise ValueError(must("load_set", name, "at least two columns, the target last", frame.shape[1]))
    values = frame.to_numpy(dtype="float64")
    return from_table(values[:, :-1], values[:, -1], name=Path(name).stem)
