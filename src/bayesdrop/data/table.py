"""A table for regression with its train and test splits, and one standardised split of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesdrop.errors import must, whole_number

__all__ = ["Split", "Table", "from_table"]


@dataclass(frozen=True, eq=False)
class Split:
    """One split: inputs and training targets standardised by the training rows, test targets not.

    A prediction of standardised targets is y_mean + y_std * prediction in the target's own unit. A column
    that does not vary is divided by 1.
    """

    x_train: Tensor  #: (N, D) standardised
    y_train: Tensor  #: (N, 1) standardised
    x_test: Tensor  #: (M, D) standardised with the training rows' means and deviations
    y_test: Tensor  #: (M, 1) in the target's own unit
    y_mean: float
    y_std: float


@dataclass(frozen=True, eq=False)
class Table:
    """Rows for regression, and which of them train and test in every split. Values are float64."""

    name: str
    x: Tensor  #: (N, D)
    y: Tensor  #: (N, 1) in the target's own unit
    train: tuple[Tensor, ...]  #: row numbers, one tensor a split
    test: tuple[Tensor, ...]  #: row numbers, one tensor a split

    def __len__(self) -> int:
        """Number of rows."""
        return self.x.shape[0]

    @property
    def num_splits(self) -> int:
        """How many splits there are."""
        return len(self.train)

    def split(self, index: int, *, dtype: torch.dtype | None = None) -> Split:
        """One split, standardised in float64 and then given `dtype`.

        Args:
            index: from 0 to num_splits - 1.
            dtype: of the tensors; torch's default if None.
        """
        index = whole_number(self.name, "index", index, at_least=0, at_most=self.num_splits - 1)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        train, test = self.train[index], self.test[index]
        x_mean, x_std = _scale(self.x[train])
        y_mean, y_std = _scale(self.y[train])
        return Split(
            x_train=((self.x[train] - x_mean) / x_std).to(dtype),
            y_train=((self.y[train] - y_mean) / y_std).to(dtype),
            x_test=((self.x[test] - x_mean) / x_std).to(dtype),
            y_test=self.y[test].to(dtype),
            y_mean=y_mean.item(),
            y_std=y_std.item(),
        )


def from_table(
    x: Any, y: Any, *, splits: int = 20, test_fraction: float = 0.1, seed: int = 0, name: str = "table"
) -> Table:
    """A table from your own numbers, with random splits like those of the UCI sets.

    >>> table = from_table([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0], [0.0, 1.0]], [1, 2, 3, 4], test_fraction=0.25)
    >>> table.num_splits, table.split(0).x_train.shape
    (20, torch.Size([3, 2]))

    Args:
        x: (N, D) numbers: an array, a tensor, a pandas frame, nested lists.
        y: (N,) or (N, 1).
        splits: how many.
        test_fraction: of the rows, rounded to a whole number.
        seed: of the permutations.
        name: for messages.
    """
    rows, target = _numbers("x", x), _numbers("y", y)
    if rows.ndim == 1:
        rows = rows[:, None]
    target = target.reshape(-1, 1) if target.ndim == 1 else target
    if rows.ndim != 2 or target.shape != (len(rows), 1):
        got = f"shapes {rows.shape} and {target.shape}"
        raise ValueError(must("from_table", "y", "one number for each row of `x`", got))
    splits = whole_number("from_table", "splits", splits, at_least=1)
    num_test = round(test_fraction * len(rows)) if 0 < test_fraction < 1 else 0
    if not 0 < num_test < len(rows):
        requirement = f"a share that leaves rows to train and to test of {len(rows)}"
        raise ValueError(must("from_table", "test_fraction", requirement, test_fraction))
    generator = np.random.default_rng(seed)
    orders = [torch.from_numpy(generator.permutation(len(rows))) for _ in range(splits)]
    return Table(
        name=name,
        x=torch.from_numpy(rows),
        y=torch.from_numpy(target),
        train=tuple(order[num_test:] for order in orders),
        test=tuple(order[:num_test] for order in orders),
    )


def _numbers(argument: str, value: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    numbers = np.array(value.detach().cpu().numpy() if isinstance(value, Tensor) else value, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(must("from_table", argument, "finite", "NaN or infinity"))
    return numbers


def _scale(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and population standard deviation of every column; 1 where a column does not vary."""
    std = rows.std(0, correction=0)
    # The deviation of a constant column is the rounding error of its mean, not exactly 0.
    constant = rows.amax(0) == rows.amin(0)
    return rows.mean(0), torch.where(constant, torch.ones_like(std), std)
