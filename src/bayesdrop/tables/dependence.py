"""Dependence: what a model expects on average when a column takes one value after another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesdrop.tables.cells import Array
from bayesdrop.tables.functions import Functions
from bayesdrop.tables.schema import Column

__all__ = ["Dependence", "dependence", "grid_of"]

_MOST_POINTS, _MOST_CATEGORIES = 16, 10


@dataclass(frozen=True, eq=False)
class Dependence:
    """Partial dependence of the expected target on one column.

    Attributes:
        column: which.
        labels: (G,) the values of the column, as texts.
        values: (G,) the same as numbers; places of categories.
        mean: (G, 1) numbers or (G, K) probabilities, averaged over rows and draws.
        std: (G, 1) or (G, K) standard deviation over draws of the average over rows: what the model does
            not know of it. Noise is not in it.
    """

    column: Column
    labels: tuple[str, ...]
    values: Array
    mean: Array
    std: Array


def grid_of(column: Column, inputs: Array) -> tuple[tuple[str, ...], Array, Array]:
    """Values to try for a column: their texts, numbers, and inputs (G, W).

    Of numbers, quantiles of those given, from 2 % to 98 %; of categories the commonest.

    Args:
        column: a used one.
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
            # Halves, since numbers may lie farther apart than the largest there is.
            values = 2 * np.unique(np.quantile(0.5 * present, np.linspace(0.02, 0.98, _MOST_POINTS)))
    made = np.zeros((len(values), column.width))
    made[:, 0] = values
    names = ("no", "yes") if column.kind == "boolean" else tuple(f"{value:.6g}" for value in values)
    return names, values, made


def dependence(functions: Functions, x: Array, column: Column, where: slice, rows: Array) -> Dependence:
    """Partial dependence, with the spread of the draws.

        f_t(v) = (1/N) sum_n E_t[y | x_n with the column at v];   its mean and standard deviation over t

    Args:
        functions: of the model.
        x: (N, K) rows to average over, N at least 1.
        column: which.
        where: its inputs.
        rows: (M, K) rows whose values of the column are tried.
    """
    labels, values, inputs = grid_of(column, rows[:, where])
    changed = np.repeat(x[None], len(inputs), 0)
    changed[:, :, where] = inputs[:, None]
    found = functions.values(changed.reshape(-1, x.shape[1]))
    curves = found.reshape(len(found), len(inputs), len(x), -1).mean(2)
    return Dependence(column, labels, values, curves.mean(0), curves.std(0))
