"""Numbers that an earlier results file holds, so that contenders need not be run again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesdrop.errors import must
from bayesdrop.experiments.record import NotReusable, Record
from bayesdrop.experiments.tables.contenders import CONTENDERS
from bayesdrop.experiments.tables.measures import METRICS
from bayesdrop.version import __version__

__all__ = ["known_pieces"]

#: revisions of contenders in the files that do not tell them; ours had others by then
_FIRST = {name: 1 for name, one in CONTENDERS.items() if one.where != "ours"}


def known_pieces(record: Record, same: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """A piece for every table and contender whose numbers would be the same now: means over its splits.

    Args:
        record: of an earlier run.
        same: settings that numbers depend on, with their values now.

    Raises `NotReusable` if the record is of another version or has other settings.
    """
    owner = f"the results file of {record.experiment}"
    for what, want, found in [
        ("version", __version__, record.version),
        *((name, value, record.config.get(name)) for name, value in same.items()),
    ]:
        if want != found:
            raise NotReusable(must(owner, what, repr(want), found, "Run without --from to run all again."))
    arrays = record.outcome.arrays
    names = {one.title: name for name, one in CONTENDERS.items()}
    revisions = arrays.get("revisions", _FIRST)
    pieces = {}
    for column, title in enumerate(arrays["contenders"]):
        name = names.get(title)
        if name is None or revisions.get(name) != CONTENDERS[name].revision:
            continue
        for row, table in enumerate(arrays["tables"]):
            values = {key: float(np.array(arrays[f"values|{key}"])[row, column]) for key in METRICS}
            measures = {key: value for key, value in values.items() if math.isfinite(value)}
            # One that failed is tried again: why it failed is not in the numbers.
            if measures:
                seconds = float(np.array(arrays["values|seconds"])[row, column])
                pieces[table, name] = {"failed": "", "seconds": seconds, "measures": measures}
    return pieces
