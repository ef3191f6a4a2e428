"""Prepared rows: from the cells of a table to the numbers that an estimator takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.errors import require
from bayesdrop.tables.cells import Array, Flags, as_labels, as_numbers, as_truths, first_bad, missing_cells
from bayesdrop.tables.schema import MISSING, OTHER, Column, Schema

__all__ = ["Prepared", "Preparer"]


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows that are ready, and what was met on the way.

    Attributes:
        x: (N, K) numbers.
        unfamiliar: (N,) rows with a category that no row of the fit had.
        unseen: how many cells of each column had such a category.
        filled: how many cells were missing in columns that never lacked one.
    """

    x: Array
    unfamiliar: Flags
    unseen: Counter[str]
    filled: Counter[str]


class Preparer:
    """Makes inputs of cells by a schema, with scikit-learn's ColumnTransformer.

    All that was learned stands in the schema and goes into the constructors of the transformers, so that
    the JSON of a schema brings the same preparation back and nothing is pickled.

    Args:
        schema: what the columns are.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def __call__(self, frame: Any, owner: str = "the table") -> Prepared:
        """Prepare rows; raises where a number or a truth value was expected and something else stands.

        Args:
            frame: a pandas frame with the schema's columns.
            owner: the table, for errors.
        """
        pandas = require("pandas", extra="tables", owner="bayesdrop.tables")
        unseen: Counter[str] = Counter()
        filled: Counter[str] = Counter()
        unfamiliar = np.zeros(len(frame), dtype=bool)
        cleaned: dict[str, NDArray[Any]] = {}
        for column in self.schema.used:
            series = frame[column.name]
            if column.kind == "category":
                cleaned[column.name], new, lacking = self._categories(series, column)
                filled[column.name] += lacking
                unseen[column.name] += int(new.sum())
                unfamiliar |= new
                continue
            read = as_numbers if column.kind == "numeric" else as_truths
            values, bad = read(series, self.schema.missing_marks)
            if bad.any():
                what = "numbers" if column.kind == "numeric" else "true or false"
                raise ValueError(
                    f"{owner}: column {column.name!r} must be {what}; got {first_bad(series, bad)}."
                )
            if not column.marked:
                filled[column.name] += int(np.isnan(values).sum())
            cleaned[column.name] = values
        if not len(frame):
            return Prepared(np.empty((0, self.width)), unfamiliar, unseen, filled)
        x: Array = self.transformer.transform(pandas.DataFrame(cleaned, index=frame.index))
        return Prepared(np.asarray(x, dtype=np.float64), unfamiliar, +unseen, +filled)

    @property
    def width(self) -> int:
        """K."""
        return sum(column.width for column in self.schema.used)

    @cached_property
    def transformer(self) -> Any:
        """The fitted ColumnTransformer: one imputer or one-hot encoder a column."""
        pandas = require("pandas", extra="tables", owner="bayesdrop.tables")
        compose = require("sklearn.compose", extra="tables", owner="bayesdrop.tables")
        impute = require("sklearn.impute", extra="tables", owner="bayesdrop.tables")
        preprocessing = require("sklearn.preprocessing", extra="tables", owner="bayesdrop.tables")
        steps: list[tuple[str, Any, list[str]]] = []
        example: dict[str, list[Any]] = {}
        for place, column in enumerate(self.schema.used):
            step: Any
            if column.kind == "category":
                step = preprocessing.OneHotEncoder(
                    categories=[np.array(column.categories, dtype=object)],
                    handle_unknown="ignore",
                    sparse_output=False,
                )
                example[column.name] = [column.categories[0]] * 2
            else:
                step = impute.SimpleImputer(
                    strategy="constant",
                    fill_value=column.fill,
                    add_indicator=column.marked,
                    keep_empty_features=True,
                )
                # A missing cell in the example is what makes the imputer mark missing cells.
                example[column.name] = [column.fill, np.nan if column.marked else column.fill]
            steps.append((f"{place}", step, [column.name]))
        made = compose.ColumnTransformer(steps, sparse_threshold=0, verbose_feature_names_out=False)
        return made.fit(pandas.DataFrame(example))

    def _categories(self, series: Any, column: Column) -> tuple[NDArray[np.object_], Flags, int]:
        """Texts that the encoder knows, which cells hold a new one, and how many are missing unexpectedly."""
        marks = self.schema.missing_marks
        labels = as_labels(series, marks, numbers=column.numbers)
        texts = labels.astype(str)
        missing = missing_cells(series, marks)
        known = np.isin(texts, column.categories)
        cells = labels.copy()
        cells[missing] = MISSING
        cells[~known & ~missing] = OTHER
        new: Flags = ~known & ~missing & ~np.isin(texts, column.rare)
        return cells, new, 0 if MISSING in column.categories else int(missing.sum())
