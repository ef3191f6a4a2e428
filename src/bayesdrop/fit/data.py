"""Training data as minibatches, in an order that depends on (seed, epoch) alone."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from bayesdrop.errors import must, must_be_finite
from bayesdrop.inputs import Inputs, num_rows, take_rows, to_device

__all__ = ["Batches", "ChosenBatches", "TrainingBatch", "WrappedBatches", "as_batches", "pieces"]

TrainingBatch = tuple[Inputs, Tensor]

#: numbers that are gathered at a time: few enough to stay in cache, many enough to save calls
_GATHERED = 2**18


class Batches(ABC):
    """A data set that gives its rows in minibatches, on the model's device."""

    #: N; None if it is not known
    num_rows: int | None = None

    @abstractmethod
    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        """The minibatches of one epoch of training, shuffled."""

    @abstractmethod
    def in_order(self) -> Iterator[TrainingBatch]:
        """All rows once, in order, for passes without gradients: batches may be larger."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """What distinguishes this data from other data, as far as that is cheap to find."""

    @abstractmethod
    def num_batches(self) -> int | None:
        """Minibatches of an epoch; None if that is not known."""

    def generators(self) -> dict[str, torch.Generator]:
        """The random generators of the data, with their names."""
        return {}


class RowBatches(Batches):
    """A data set whose rows can be chosen."""

    num_rows: int

    @abstractmethod
    def rows(self, chosen: Tensor) -> TrainingBatch:
        """A minibatch of these rows."""


class WrappedBatches(Batches):
    """The minibatches of another object, which subclasses change.

    Args:
        batches: that object.
    """

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self.num_rows = batches.num_rows

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        return self._batches.epoch(epoch)

    def in_order(self) -> Iterator[TrainingBatch]:
        return self._batches.in_order()

    def description(self) -> dict[str, Any]:
        return self._batches.description()

    def num_batches(self) -> int | None:
        return self._batches.num_batches()

    def generators(self) -> dict[str, torch.Generator]:
        return self._batches.generators()


class ChosenBatches(WrappedBatches):
    """Minibatches of rows that a function chooses.

    Args:
        batches: the data; its rows are counted from 0.
        choose: from the epoch, counted from 1, to the rows of its minibatches, one after another.
    """

    def __init__(self, batches: Batches, choose: Callable[[int], Iterable[Any]]) -> None:
        super().__init__(batches)
        if not isinstance(batches, RowBatches):
            want = "None with a DataLoader, whose batch_sampler chooses rows"
            raise ValueError(must("fit", "batches", want, choose))
        self._of_rows = batches.rows
        self._last = batches.num_rows - 1
        self._choose = choose

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        empty = True
        for rows in self._choose(epoch):
            empty = False
            yield self._of_rows(self._checked(rows))
        if empty:
            raise ValueError(must("fit", "batches", "at least one minibatch an epoch", 0))

    def num_batches(self) -> None:
        return None

    def _checked(self, rows: Any) -> Tensor:
        want = f"whole numbers from 0 to {self._last}, a list a minibatch"
        try:
            chosen = torch.as_tensor(rows)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(must("fit", "batches", want, rows)) from error
        is_whole = not (chosen.is_floating_point() or chosen.is_complex() or chosen.dtype == torch.bool)
        if not (chosen.dim() == 1 and is_whole and len(chosen)):
            raise TypeError(must("fit", "batches", want, rows))
        if chosen.min() < 0 or chosen.max() > self._last:
            raise ValueError(must("fit", "batches", want, rows))
        return chosen


def pieces(x: Inputs, y: Tensor, count: int) -> Iterator[tuple[Inputs, Tensor, float]]:
    """A minibatch in `count` pieces, each with its share of the rows; fewer if there are too few rows."""
    if count == 1:
        yield x, y, 1.0
        return
    total = y.shape[0]
    for start, stop in _bounds(total, -(-total // count)):
        rows = slice(start, stop)
        yield take_rows(x, rows), y[rows], (stop - start) / total


def as_batches(
    data: Any, argument: str, *, batch_size: int | None, seed: int, device: torch.device
) -> Batches:
    """Minibatches of (x, y) tensors or of a `Dataset`, or those of a `DataLoader`.

    Args:
        data: the user's data.
        argument: its name in errors.
        batch_size: rows of a minibatch; None for all rows, in their order. A `DataLoader` has its own.
        seed: of the order.
        device: the model's, where the batches are put.
    """
    if isinstance(data, DataLoader):
        return _LoaderBatches(data, argument, device)
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        data = data.tensors
    if isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[1], Tensor):
        return _TensorBatches(data[0], data[1], argument, batch_size, seed, device)
    indexed = isinstance(data, Dataset) and not isinstance(data, IterableDataset)
    if indexed and isinstance(data, Sized):
        return _DatasetBatches(data, argument, batch_size, seed, device)
    hint = "Wrap an IterableDataset in a DataLoader." if isinstance(data, IterableDataset) else ""
    raise TypeError(
        must("fit", argument, "(x, y) tensors, a Dataset with a length, or a DataLoader", type(data), hint)
    )


def _bounds(rows: int, batch_size: int) -> list[tuple[int, int]]:
    """Where minibatches start and stop. A single last row, which BatchNorm refuses, joins its neighbours."""
    starts = list(range(0, rows, batch_size))
    if len(starts) > 1 and batch_size > 1 and rows - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], rows], strict=True))


def _order(rows: int, seed: int, epoch: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng((seed % 2**63, epoch)).permutation(rows))


class _TensorBatches(RowBatches):
    """Minibatches of tensors, indexed without a loader, which costs more than a step of a small network."""

    def __init__(
        self, x: Any, y: Tensor, argument: str, batch_size: int | None, seed: int, device: torch.device
    ) -> None:
        parts = _named_tensors(x)
        if not parts:
            want = "(x, y) with x a tensor, or a tuple or mapping of tensors"
            raise TypeError(must("fit", argument, want, type(x)))
        rows = num_rows(x, "fit")
        if rows < 1:
            raise ValueError(must("fit", argument, "at least one row", 0))
        if y.dim() < 1 or y.shape[0] != rows:
            raise ValueError(must("fit", argument, f"y with {rows} rows, as x", tuple(y.shape)))
        for name, part in {**parts, "y": y}.items():
            must_be_finite("fit", f"{name} of {argument}", part)
        self.num_rows: int = rows
        self._x, self._y, self._parts = x, y, parts
        self._batch_size, self._seed, self._device = batch_size or rows, seed, device
        self._in_order = batch_size is None
        self._row_size = max(1, sum(part.numel() for part in parts.values()) // rows)

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        if self._in_order:
            yield self._placed(self._x, self._y)
            return
        order = _order(self.num_rows, self._seed, epoch).to(self._y.device)
        bounds = _bounds(self.num_rows, self._batch_size)
        group = max(1, _GATHERED // (self._row_size * self._batch_size))
        for first in range(0, len(bounds), group):
            some = bounds[first : first + group]
            base = some[0][0]
            chosen = order[base : some[-1][1]]
            x, y = self._placed(take_rows(self._x, chosen), self._y[chosen])
            for start, stop in some:
                rows = slice(start - base, stop - base)
                yield take_rows(x, rows), y[rows]

    def rows(self, chosen: Tensor) -> TrainingBatch:
        chosen = chosen.to(self._y.device)
        return self._placed(take_rows(self._x, chosen), self._y[chosen])

    def num_batches(self) -> int:
        return len(_bounds(self.num_rows, self._batch_size))

    def in_order(self) -> Iterator[TrainingBatch]:
        size = max(self._batch_size, min(4096, _GATHERED // self._row_size))
        for start in range(0, self.num_rows, size):
            rows = slice(start, start + size)
            yield self._placed(take_rows(self._x, rows), self._y[rows])

    def _placed(self, x: Inputs, y: Tensor) -> TrainingBatch:
        return to_device(x, self._device), y.to(self._device)

    def description(self) -> dict[str, Any]:
        sums = {name: _checksum(part) for name, part in {**self._parts, "y": self._y}.items()}
        return {"rows": self.num_rows, "checksum": sums}


class _DatasetBatches(RowBatches):
    """Minibatches of a map-style `Dataset` of (x, y) items."""

    def __init__(
        self, data: Any, argument: str, batch_size: int | None, seed: int, device: torch.device
    ) -> None:
        self.num_rows: int = len(data)
        if self.num_rows < 1:
            raise ValueError(must("fit", argument, "at least one row", 0))
        self._data, self._argument = data, argument
        self._batch_size, self._seed, self._device = batch_size or self.num_rows, seed, device
        self._in_order = batch_size is None
        self._fetch: Callable[[list[int]], Any] = getattr(
            data, "__getitems__", lambda rows: [data[row] for row in rows]
        )

    def _batches(self, order: list[int]) -> Iterator[TrainingBatch]:
        for start, stop in _bounds(self.num_rows, self._batch_size):
            yield self._collated(order[start:stop])

    def _collated(self, rows: list[int]) -> TrainingBatch:
        return _checked_pair(default_collate(self._fetch(rows)), self._argument, self._device)

    def rows(self, chosen: Tensor) -> TrainingBatch:
        return self._collated(chosen.tolist())

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        if self._in_order:
            return self.in_order()
        return self._batches(_order(self.num_rows, self._seed, epoch).tolist())

    def num_batches(self) -> int:
        return len(_bounds(self.num_rows, self._batch_size))

    def in_order(self) -> Iterator[TrainingBatch]:
        return self._batches(list(range(self.num_rows)))

    def description(self) -> dict[str, Any]:
        return {"rows": self.num_rows, "dataset": type(self._data).__name__}


class _LoaderBatches(Batches):
    """The minibatches of a `DataLoader`, which has its own order."""

    def __init__(self, loader: DataLoader[Any], argument: str, device: torch.device) -> None:
        self._loader, self._argument, self._device = loader, argument, device

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        return self.in_order()

    def num_batches(self) -> int | None:
        try:
            return len(self._loader)
        except TypeError:
            return None

    def in_order(self) -> Iterator[TrainingBatch]:
        empty = True
        for batch in self._loader:
            empty = False
            yield _checked_pair(batch, self._argument, self._device)
        if empty:
            raise ValueError(must("fit", self._argument, "at least one batch", 0))

    def description(self) -> dict[str, Any]:
        data = self._loader.dataset
        rows = len(data) if isinstance(data, Sized) else None
        return {"rows": rows, "dataset": type(data).__name__, "batch_size": self._loader.batch_size}

    def generators(self) -> dict[str, torch.Generator]:
        found = {
            "loader": self._loader.generator,
            "sampler": getattr(self._loader.sampler, "generator", None),
        }
        return {name: value for name, value in found.items() if isinstance(value, torch.Generator)}


def _checked_pair(batch: Any, argument: str, device: torch.device) -> TrainingBatch:
    if not (isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], Tensor)):
        raise TypeError(must("fit", argument, "a source of (x, y) pairs", type(batch)))
    return to_device(batch[0], device), batch[1].to(device)


def _named_tensors(x: Any) -> dict[str, Tensor]:
    if isinstance(x, Tensor):
        return {"x": x}
    if isinstance(x, Mapping):
        return {f"x[{name!r}]": part for name, part in x.items() if isinstance(part, Tensor)}
    if isinstance(x, tuple | list):
        return {f"x[{place}]": part for place, part in enumerate(x) if isinstance(part, Tensor)}
    return {}


def _checksum(value: Tensor) -> str:
    data: Any = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}:{zlib.crc32(data):08x}"
