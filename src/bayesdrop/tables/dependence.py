"""Partial dependence: what a model expects on average when a column takes one value after another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesdrop.tables.cells import Array
from bayesdrop.tables.functions import Functions
from bayesdrop.tables.prepare import date_inputs
from bayesdrop.tables.schema import DATE_INPUTS, Column
from bayesdrop.tables.written import plainly

__all__ = ["Dependence", "dependence", "grid_of"]

_MOST_POINTS, _MOST_CATEGORIES = 16, 10


@dataclass(frozen=True, eq=False)
class Dependence:
    """Partial dependence of the expected target on one column.

    Attributes:
        column: which.
        labels: (G,) the values of the column, as texts.
        values: (G,) the same on the axis of a picture: numbers, years of dates, 0, 1, ... of categories.
        mean: (G, 1) numbers or (G, classes) probabilities, averaged over rows and draws.
        std: of the same shape, standard deviation over draws of the average over rows: how little the model
            knows of it. Noise is not in it.
    """

    column: Column
    labels: tuple[str, ...]
    values: Array
    mean: Array
    std: Array


def grid_of(column: Column, inputs: Array) -> tuple[tuple[str, ...], Array, Array]:
    """Values to try for a column: `labels` and `values` of `Dependence`, and their inputs (G, W).

    Of numbers and dates, quantiles of those given, from 2 % to 98 %; of categories the commonest.

    Args:
        column: one that the model uses.
        inputs: (N, W) its inputs in rows of the table.
    """
    if column.kind == "category":
        common = np.argsort(-inputs.sum(0), kind="stable")[:_MOST_CATEGORIES]
        common = np.sort(common)
        return (
            tuple(column.categories[place] for place in common),
            np.arange(float(len(common))),
            np.eye(column.width)[common],
        )
    present = inputs[inputs[:, -1] == 0, 0] if column.marked else inputs[:, 0]
    present = present if len(present) else inputs[:, 0]
    if column.kind == "boolean":
        values = np.array([0.0, 1.0])
    else:
        values = np.unique(present)
        if len(values) > _MOST_POINTS:
            # Halves, since the largest double may be less than the distance of two numbers.
            values = 2 * np.unique(np.quantile(0.5 * present, np.linspace(0.02, 0.98, _MOST_POINTS)))
    made = np.zeros((len(values), column.width))
    if column.kind == "date":
        # A date's first input is its age in days; pictures have it in years.
        days = np.sort(column.last - values)
        made[:, : len(DATE_INPUTS)] = date_inputs(days, column.last)
        return tuple(map(column.shown, days)), 1970 + days / 365.2425, made
    made[:, 0] = values
    names = ("no", "yes") if column.kind == "boolean" else tuple(map(plainly, values))
    return names, values, made


def dependence(functions: Functions, x: Array, column: Column, where: slice, rows: Array) -> Dependence:
    """Partial dependence, with the spread of the draws.

        f_t(v) = (1/N) sum_n E_t[y | x_n with the column at v];   its mean and standard deviation over t

    Args:
        functions: of the model.
        x: (N, K) inputs of rows to average over, N at least 1.
        column: which.
        where: which of the K inputs are the column's.
        rows: (M, K) inputs of rows whose values of the column are tried.
    """
    labels, values, inputs = grid_of(column, rows[:, where])
    changed = np.repeat(x[None], len(inputs), 0)
    changed[:, :, where] = inputs[:, None]
    found = functions.values(changed.reshape(-1, x.shape[1]))
    curves = found.reshape(len(found), len(inputs), len(x), -1).mean(2)
    return Dependence(column, labels, values, curves.mean(0), curves.std(0))
