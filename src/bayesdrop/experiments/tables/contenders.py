"""Who is compared, and one of them on one split of a table."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdrop.errors import require
from bayesdrop.experiments.registry import unknown
from bayesdrop.experiments.tables import peers
from bayesdrop.experiments.tables.catalogue import entry_of
from bayesdrop.experiments.tables.measures import class_measures, gaussian_prediction, number_measures
from bayesdrop.experiments.tables.sources import load_table
from bayesdrop.experiments.tables.split import TableSplit, as_arrays, split_table

__all__ = ["CONTENDERS", "LEVEL", "OURS_REVISION", "Contender", "contender_of", "peers_python", "trial"]

#: raised with every change of our estimators or tables: their pieces are then computed again, and no others
OURS_REVISION = 6
#: of the intervals
LEVEL = 0.95


@dataclass(frozen=True)
class Contender:
    """A way from a table to predictions.

    Attributes:
        title: for pictures and rows.
        where: "ours"; "here", by a library of this environment; "apart", in the environment of the peers.
        revision: raised when its pieces from before must not be used.
        options: of `bayesdrop.tables.FitOptions`, for ours.
    """

    title: str
    where: Literal["ours", "here", "apart"]
    revision: int = 1
    options: Mapping[str, Any] | None = None


CONTENDERS: dict[str, Contender] = {
    "ours": Contender("bayesdrop", "ours", OURS_REVISION, {}),
    "quick": Contender("bayesdrop (quick)", "ours", OURS_REVISION, {"estimator": {"preset": "quick"}}),
    "refit": Contender("bayesdrop (refit to all rows)", "ours", OURS_REVISION, {"refit": True}),
    "ngboost": Contender("NGBoost", "apart"),
    "catboost": Contender("CatBoost", "apart"),
    "lightgbm": Contender("LightGBM (conformal)", "apart"),
    "process": Contender("Gaussian process", "here"),
    "linear": Contender("linear", "here"),
}


def contender_of(name: str) -> Contender:
    """The contender of a name.

    Args:
        name: one of `CONTENDERS`.
    """
    if name not in CONTENDERS:
        raise ValueError(unknown("contender", name, CONTENDERS))
    return CONTENDERS[name]


def peers_python() -> Path | None:
    """The Python of the peers' environment: `$BAYESDROP_PEERS`, or `.venv-tables` of a checkout; or None."""
    named = os.environ.get("BAYESDROP_PEERS", "")
    path = Path(named) if named else Path(__file__).parents[4] / ".venv-tables" / "bin" / "python"
    return path if path.is_file() else None


def trial(key: Mapping[str, Any]) -> dict[str, Any]:
    """Measures and CPU seconds of a contender on one split; `failed` says why a peer has none.

    Args:
        key: `table`, `split`, `contender`, `revision` and `max_rows`.
    """
    with _one_thread():
        return _trial(key)


def _trial(key: Mapping[str, Any]) -> dict[str, Any]:
    entry, contender = entry_of(key["table"]), contender_of(key["contender"])
    split = split_table(entry, load_table(entry, key["max_rows"]), key["split"])
    if contender.where == "ours":
        return _ours(split, contender.options or {}, seed=key["split"])
    given = as_arrays(split, seed=key["split"], level=LEVEL)
    run = _apart if contender.where == "apart" else peers.fit_and_predict
    found = run(key["contender"], given)
    failed = str(found.get("failed", ""))
    if failed:
        return {"failed": failed, "seconds": None, "measures": {}}
    y = split.targets(split.test)
    if entry.kind == "classification":
        measures = class_measures(np.asarray(found["probs"]), y)
    else:
        prediction = gaussian_prediction(np.asarray(found["mean"]), np.asarray(found["std"]))
        measures = number_measures(
            [prediction], y, found.get("lower"), found.get("upper"), level=LEVEL, spread=_spread(split)
        )
    return {"failed": "", "seconds": float(found["seconds"]), "measures": measures}


def _ours(split: TableSplit, options: Mapping[str, Any], *, seed: int) -> dict[str, Any]:
    """What `bayesdrop fit` and `bayesdrop predict` do, without the files."""
    from bayesdrop.tables import FitOptions, fit_table, predict_frame
    from bayesdrop.tables.fitting import targets_of

    entry = split.entry
    asked = {"task": entry.kind, "level": LEVEL, "categorical": entry.categorical, "seed": seed, **options}
    start = time.process_time()
    model = fit_table(split.train, FitOptions(entry.target, **asked)).model
    told = predict_frame(model, split.test)
    spent = time.process_time() - start
    frame, y = targets_of(split.test, model.schema, entry.name)
    if entry.kind == "classification":
        probs = np.stack([told[f"p_{label}"] for label in model.schema.classes], axis=1)
        return {"failed": "", "seconds": spent, "measures": class_measures(probs, y)}
    parts = model.estimator.predictions(model.prepare(frame).x)
    measures = number_measures(parts, y, told["lower"], told["upper"], level=LEVEL, spread=_spread(split))
    return {"failed": "", "seconds": spent, "measures": measures}


def _apart(name: str, given: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """`peers.fit_and_predict` by the Python of the peers' environment, with one thread."""
    python = peers_python()
    if python is None:
        raise RuntimeError(
            f"{name}: the environment of the peers is not there; make it with: make tables-peers"
        )
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "given.npz", Path(folder) / "found.npz"
        arrays: dict[str, Any] = dict(given)
        np.savez(source, **arrays)
        command = [str(python), "-I", str(peers.__file__), name, str(source), str(target)]
        environment = {**os.environ, **threads}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise RuntimeError(f"{name} stopped in the peers' environment: {said}")
        with np.load(target, allow_pickle=False) as stored:
            return {part: stored[part] for part in stored.files}


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread for torch and for what numpy and scikit-learn compute with."""
    limits = require("threadpoolctl", extra="sklearn", owner="The experiment tables").threadpool_limits
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _spread(split: TableSplit) -> float:
    """The width of an interval that holds 95 % of the training targets: what one knows without columns."""
    ends = np.quantile(split.targets(split.train), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(ends[1] - ends[0])
