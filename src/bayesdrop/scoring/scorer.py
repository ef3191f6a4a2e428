"""Scorer: a model as a small object that engines send to their workers, from columns to predictions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from bayesdrop.blocks import BLOCK_ROWS, filled
from bayesdrop.errors import must, whole_number, whole_seed
from bayesdrop.likelihoods import Categorical, Likelihood
from bayesdrop.predict import predict
from bayesdrop.scoring.stored import StoredModule, check_digest, file_digest, folder_digest, loaded_once

__all__ = ["Scorer"]

Batch = dict[str, NDArray[Any]]
#: what a prediction can say of a row, for any likelihood, and of classes besides
_NUMBERS = ("mean", "std", "variance", "epistemic", "aleatoric", "standard_error")
_CLASSES = ("probs", "label", "entropy", "expected_entropy", "mutual_information", "variation_ratio")


class Scorer:
    """Scores batches of columns by a model: one object for a loop, Ray, Dask and Spark.

        scorer = bd.Scorer(model, num_draws=100, seed=0, likelihood=bd.Gaussian(0.1), inputs="x")
        scorer({"x": x})                                                     # {"mean": ..., "std": ...}
        dataset.map_batches(scorer, batch_format="numpy")                    # ray.data
        frame.map_partitions(scorer, meta=scorer(frame._meta))               # dask.dataframe
        predict_batch_udf(lambda: scorer, return_type=..., batch_size=...)   # pyspark.ml.functions

    A draw is a function, so that it does not matter which rows a worker gets, and in which order: rows are
    computed in blocks of 960, the last one filled with copies, so that the numbers of a row are the same to
    the last bit for every partition, batch size, order and number of workers, on machines with the same
    processor, torch and number of torch threads. They are those of `bd.predict(model, x, batch_size=960)`:
    to the last bit for whole blocks, to rounding for a remainder, which `predict` does not fill.

    It is pickled as settings with a path and its checksum, or with the model's bytes in our safe format; a
    process loads the model when the first batch comes, once, however many copies it is sent.

    Args:
        model: an `nn.Module`; the path of a file that `bd.save` wrote; or that of a folder that
            `bayesdrop fit` wrote, whose columns and outputs are then those of `bayesdrop predict`.
        num_draws: how many functions, T; None: 100, or the number of the folder.
        seed: of the draws.
        likelihood: what the outputs of a network mean; None for raw outputs, and for a folder.
        outputs: what to give, by the names of `Prediction`'s properties; None: "mean", "std", "epistemic" and
            "aleatoric"; of classes "probs", "entropy" and "mutual_information"; of a folder all its columns.
        inputs: where the model's input is in a batch. A name: that array. Several names: columns of numbers
            (N,), put side by side in that order. A mapping: the model's keyword arguments, from arrays by
            their names. None: a batch must hold one array. A folder knows its columns.
        keep: columns of the batch to give back as they are, as an identifier.
        build: for models of your own classes: an importable function that makes the model, which is then
            filled with the weights.
        device: where to compute, as "cuda"; where the model is loaded, the CPU, if None.

    >>> import bayesdrop as bd
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    >>> scorer = bd.Scorer(net, num_draws=20, likelihood=bd.Gaussian(0.1), keep=("id",), inputs="x")
    >>> scored = scorer({"id": np.arange(5), "x": np.zeros((5, 3))})
    >>> {name: values.shape for name, values in scored.items()}
    {'id': (5,), 'mean': (5, 1), 'std': (5, 1), 'epistemic': (5, 1), 'aleatoric': (5, 1)}
    """

    def __init__(
        self,
        model: nn.Module | str | os.PathLike[str],
        *,
        num_draws: int | None = None,
        seed: int = 0,
        likelihood: Likelihood | None = None,
        outputs: Sequence[str] | None = None,
        inputs: str | Sequence[str] | Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        build: Callable[[], nn.Module] | None = None,
        device: str | None = None,
    ) -> None:
        if num_draws is not None:
            num_draws = whole_number("Scorer", "num_draws", num_draws, at_least=1)
        if likelihood is not None and not isinstance(likelihood, Likelihood):
            raise TypeError(
                must("Scorer", "likelihood", "a Likelihood, as Categorical(), or None", likelihood)
            )
        if build is not None and not callable(build):
            raise TypeError(must("Scorer", "build", "a function that makes the model, or None", build))
        self.num_draws, self.seed = num_draws, whole_seed("Scorer", seed)
        self.keep = _names("keep", keep)
        self.device = device
        self._inputs = inputs if isinstance(inputs, str | Mapping | None) else _names("inputs", inputs)
        self._build = build
        self._folder: tuple[str, str] | None = None
        self._model: StoredModule | None = None
        self._likelihood: StoredModule | None = None
        if isinstance(model, nn.Module):
            if isinstance(model, Likelihood):
                raise TypeError(must("Scorer", "model", "a network, not what its outputs mean", model))
            self._model = StoredModule.of(model, "model", build)
        elif not isinstance(model, str | os.PathLike):
            raise TypeError(must("Scorer", "model", "an nn.Module, or the path of a file or folder", model))
        elif Path(model).is_dir():
            self._folder = str(Path(model).absolute()), folder_digest(model)
            if likelihood is not None or build is not None or inputs is not None or device is not None:
                want = "None for a folder, which has its own"
                raise ValueError(must("Scorer", "likelihood, build, inputs and device", want, "one of them"))
        else:
            path = str(Path(model).absolute())
            self._model = StoredModule(file_digest(Path(path)), path=path)
        if likelihood is not None:
            self._likelihood = StoredModule.of(likelihood, "likelihood", None)
        self.outputs = self._checked_outputs(outputs, likelihood)

    def __repr__(self) -> str:
        where = (self._folder or (None,))[0] or (self._model.path if self._model else None) or "a network"
        return f"Scorer({where}, num_draws={self.num_draws}, seed={self.seed}, outputs={self.outputs})"

    def __call__(self, *batch: Any) -> Any:
        """What the model says about rows.

        Args:
            batch: a mapping of arrays with N rows; or a pandas frame; or the model's arrays themselves, in
                the order of `inputs`.

        Returns: a dict of arrays with N rows; of a frame a frame, with its index and a column for every
        number of a row.
        """
        columns = self._columns(batch)
        lacking = [name for name in self.keep if name not in columns]
        if lacking:
            raise ValueError(must("Scorer", "keep", f"among the columns {sorted(columns)}", lacking))
        found = self._scored(columns)
        result = {**{name: columns[name] for name in self.keep}, **found}
        return _frame_like(batch[0], result) if _is_frame(batch[0]) else result

    # from a batch to the model's inputs

    def _columns(self, batch: tuple[Any, ...]) -> Batch:
        if len(batch) == 1 and (isinstance(batch[0], Mapping) or _is_frame(batch[0])):
            frame = batch[0]
            columns = {str(name): np.asarray(frame[name]) for name in frame}
        else:
            names = self._array_names(len(batch))
            columns = dict(zip(names, map(np.asarray, batch), strict=True))
        if not columns:
            raise ValueError(must("Scorer", "batch", "a mapping of arrays, a frame, or arrays", "nothing"))
        counts = {len(column) if column.ndim else -1 for column in columns.values()}
        if len(counts) != 1 or -1 in counts:
            shapes = {name: column.shape for name, column in columns.items()}
            raise ValueError(must("Scorer", "batch", "arrays with one common number of rows", shapes))
        return columns

    def _array_names(self, count: int) -> tuple[str, ...]:
        """The names of arrays that come without."""
        names = self._inputs
        if names is None or isinstance(names, str):
            known: tuple[str, ...] = (names or "x",)
        else:
            known = tuple(names.values()) if isinstance(names, Mapping) else tuple(names)
        # One array of several columns has them side by side already.
        if len(known) != count and not (count == 1 and not isinstance(names, Mapping)):
            raise ValueError(must("Scorer", "batch", f"{len(known)} arrays, as `inputs` says", count))
        return known if len(known) == count else ("x",)

    def _inputs_of(self, columns: Batch) -> NDArray[Any] | dict[str, NDArray[Any]]:
        names = self._inputs
        if names is None or (not isinstance(names, str) and list(columns) == ["x"] and "x" not in names):
            rest = [name for name in columns if name not in self.keep]
            if len(rest) != 1:
                hint = "Say which are the model's, as inputs='x' or inputs=('a', 'b')."
                raise ValueError(must("Scorer", "batch", "one array", sorted(rest), hint))
            return _stacked_cells(rest[0], columns[rest[0]])
        wanted = (
            [names]
            if isinstance(names, str)
            else list(names.values() if isinstance(names, Mapping) else names)
        )
        lacking = [name for name in wanted if name not in columns]
        if lacking:
            raise ValueError(must("Scorer", "inputs", f"among the columns {sorted(columns)}", lacking))
        if isinstance(names, str):
            return _stacked_cells(names, columns[names])
        if isinstance(names, Mapping):
            return {keyword: _stacked_cells(name, columns[name]) for keyword, name in names.items()}
        for name in wanted:
            if columns[name].ndim != 1 or columns[name].dtype.kind not in "fiub":
                got = f"{name!r} of {columns[name].dtype} and shape {columns[name].shape}"
                raise ValueError(must("Scorer", "inputs", "columns of one number a row", got))
        return np.stack([np.asarray(columns[name], dtype=np.float64) for name in wanted], 1)

    # the model

    def _scored(self, columns: Batch) -> Batch:
        if self._folder is not None:
            return self._scored_table(columns)
        model, likelihood = self._network()
        inputs = self._inputs_of(columns)
        rows = len(next(iter(columns.values())))
        x: Any = (
            filled(inputs) if isinstance(inputs, np.ndarray) else {k: filled(v) for k, v in inputs.items()}
        )
        prediction = predict(
            model,
            x,
            num_draws=100 if self.num_draws is None else self.num_draws,
            seed=self.seed,
            likelihood=likelihood,
            batch_size=BLOCK_ROWS,
            keep_draws=False,
        )
        return {name: _as_array(getattr(prediction, name))[:rows] for name in self.outputs}

    def _network(self) -> tuple[nn.Module, Likelihood | None]:
        model, stated = self._model, self._likelihood
        assert model is not None
        key = (model.digest, None if stated is None else stated.digest, self._build, self.device)

        def make() -> tuple[nn.Module, Any]:
            network = model.load(self._build)
            if self.device is not None:
                network = network.to(self.device)
            return network, None if stated is None else stated.load(None)

        loaded: tuple[nn.Module, Any] = loaded_once(key, make)
        return loaded

    def _scored_table(self, columns: Batch) -> Batch:
        from bayesdrop.errors import require
        from bayesdrop.tables import predict_frame

        pandas = require("pandas", extra="tables", owner="Scorer")
        frame = pandas.DataFrame({name: list(v) if v.ndim > 1 else v for name, v in columns.items()})
        found = predict_frame(
            self._table(),
            frame,
            owner="the batch",
            num_draws=self.num_draws,
            seed=self.seed,
            blocks=True,
        )
        return {name: found[name] for name in self.outputs}

    def _table(self) -> Any:
        from bayesdrop.tables import load_table_model

        assert self._folder is not None
        path, digest = self._folder

        def make() -> Any:
            check_digest(path, folder_digest(path), digest)
            return load_table_model(path)

        return loaded_once(("folder", path, digest), make)

    def _checked_outputs(
        self, outputs: Sequence[str] | None, likelihood: Likelihood | None
    ) -> tuple[str, ...]:
        classes = isinstance(likelihood, Categorical)
        if self._folder is not None:
            from bayesdrop.tables.score import prediction_names

            known: Sequence[str] = prediction_names(self._table())
            usual: Sequence[str] = known
        else:
            known = (*_NUMBERS, *(_CLASSES if classes else ()))
            usual = (
                ("probs", "entropy", "mutual_information")
                if classes
                else ("mean", "std", "epistemic", "aleatoric")
            )
        chosen = tuple(usual) if outputs is None else _names("outputs", outputs)
        wrong = [name for name in chosen if name not in known]
        if wrong or not chosen:
            raise ValueError(must("Scorer", "outputs", f"some of {', '.join(known)}", wrong or "none"))
        twice = [name for name in chosen if name in self.keep]
        if twice:
            raise ValueError(must("Scorer", "keep", "columns with other names than `outputs`", twice))
        return chosen


def _names(argument: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(must("Scorer", argument, "a list of names", names))
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ValueError(must("Scorer", argument, "names, each once", names))
    return tuple(names)


def _stacked_cells(name: str, column: NDArray[Any]) -> NDArray[Any]:
    """The array of a column; cells that are arrays themselves, as engines send them, are stacked."""
    if column.dtype == object and len(column):
        try:
            column = np.stack([np.asarray(cell) for cell in column])
        except ValueError as error:
            raise ValueError(
                must("Scorer", "batch", f"cells of one shape in {name!r}", str(error))
            ) from error
    if column.dtype.kind not in "fiub":
        raise TypeError(must("Scorer", "batch", f"numbers in {name!r}", column.dtype))
    return column


def _as_array(value: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = value.detach().cpu().numpy()
    return array


def _is_frame(batch: Any) -> bool:
    return hasattr(batch, "columns") and hasattr(batch, "index")


def _frame_like(frame: Any, columns: Batch) -> Any:
    """A frame of the same class; an array of several numbers a row is a column for each."""
    flat: dict[str, NDArray[Any]] = {}
    for name, values in columns.items():
        flat.update(dict(_flat_columns(name, values)))
    return type(frame)(flat, index=frame.index)


def _flat_columns(name: str, values: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    wide = values.reshape(len(values), int(np.prod(values.shape[1:], dtype=np.int64)))
    if wide.shape[1] == 1:
        yield name, wide[:, 0]
        return
    for place in range(wide.shape[1]):
        yield f"{name}_{place}", wide[:, place]
