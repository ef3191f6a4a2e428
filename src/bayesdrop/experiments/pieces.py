"""Pieces of a long experiment, kept as they are finished, so that an interrupted run goes on where it was."""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from bayesdrop.data.files import cache_folder, write_whole
from bayesdrop.engines import Engine, engine_for
from bayesdrop.errors import must, whole_number
from bayesdrop.experiments.record import Record
from bayesdrop.progress import progress_bar
from bayesdrop.version import __version__

__all__ = ["Piece", "PieceCache", "run_groups", "run_pieces"]

Piece = dict[str, Any]
_Group = TypeVar("_Group", bound=Hashable)
# Entries of an npz file: all but the arrays, and what the arrays' names begin with.
_REST, _ARRAY = "json", "array "


class PieceCache:
    """Finished pieces of one experiment, each in a file of its own, found by its key.

    A key is what the piece depends on: settings, split, seed, number of epochs. Values may be numbers,
    strings, booleans, None, and tuples, lists, dicts and dataclasses of those. The package's version and
    the experiment's revision belong to every key.

    A piece is a dict with string keys: what JSON can hold, and arrays or tensors at the top level. What
    comes back is what a file gives (lists for tuples, numpy arrays for tensors), the first time as later.

    Args:
        experiment: its name.
        folder: where all experiments keep their pieces; `runs` in the user's cache if None.
        revision: raised when pieces from before must not be used.
        fresh: whether to compute every piece anew; what is computed is kept all the same.
        processes: how many pieces `run_pieces` computes at a time.
        earlier: the records of earlier runs, whose numbers an experiment may use instead of pieces.
        engine: computes pieces instead of processes of this machine, as a Ray cluster; a piece whose worker
            is lost is computed again. If None, the engine of `bayesdrop.engines.running_on`, where there is
            one.

    Attributes:
        found_seconds: what the pieces that were found took when they were computed.
    """

    def __init__(
        self,
        experiment: str,
        *,
        folder: str | os.PathLike[str] | None = None,
        revision: int = 1,
        fresh: bool = False,
        processes: int = 1,
        earlier: Sequence[Record] = (),
        engine: Engine | None = None,
    ) -> None:
        runs = cache_folder() / "runs" if folder is None else Path(folder)
        self.folder = runs / experiment
        self.revision = revision
        self.fresh = fresh
        self.processes = whole_number("PieceCache", "processes", processes, at_least=1)
        self.earlier = tuple(earlier)
        self.engine = engine
        self.found_seconds = 0.0
        self._made: set[Path] = set()
        self._found: set[Path] = set()

    def path(self, key: Mapping[str, Any]) -> Path:
        """The file of a piece."""
        whole = {"version": __version__, "revision": self.revision, "key": dict(key)}
        text = json.dumps(whole, sort_keys=True, default=_plain)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.npz"

    def find(self, key: Mapping[str, Any]) -> Piece | None:
        """The finished piece of a key, or None; with `fresh`, only pieces that this cache has kept count."""
        path = self.path(key)
        if self.fresh and path not in self._made:
            return None
        try:
            piece, seconds = _decoded(path.read_bytes())
        except Exception:
            # Missing, or damaged in one of the many ways that a zip file has: it is computed again.
            return None
        if path not in self._made | self._found:
            self._found.add(path)
            self.found_seconds += seconds
        return piece

    def keep(self, key: Mapping[str, Any], piece: Mapping[str, Any], seconds: float = 0.0) -> Piece:
        """Write a finished piece; returns it as its file gives it.

        Args:
            key: of the piece.
            piece: what was computed.
            seconds: that it took.
        """
        path = self.path(key)
        content = _encoded(piece, key, seconds)
        write_whole(path, content)
        self._made.add(path)
        return _decoded(content)[0]

    def get(self, key: Mapping[str, Any], compute: Callable[[], Mapping[str, Any]]) -> Piece:
        """The piece of a key: the finished one, or else `compute()`, which is then kept."""
        found = self.find(key)
        if found is not None:
            return found
        start = time.perf_counter()
        piece = compute()
        return self.keep(key, piece, time.perf_counter() - start)


def run_pieces(
    keys: Sequence[Mapping[str, Any]],
    function: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    *,
    cache: PieceCache,
    processes: int | None = None,
    progress: bool = False,
    label: str = "Pieces",
) -> list[Piece]:
    """The pieces of all keys, in their order; those that are missing are computed, several at a time.

    An exception keeps its type and carries the key as a note; what was finished before it is kept.

    Args:
        keys: of the pieces.
        function: key -> piece. With more than one process it must be importable (a function of a module,
            or a `functools.partial` of one), and each process uses one torch thread.
        cache: where pieces are found and kept.
        processes: how many at a time; the cache's if None; 1 computes in this process.
        progress: whether to draw a bar.
        label: of the bar.
    """
    processes = cache.processes if processes is None else processes
    processes = whole_number("run_pieces", "processes", processes, at_least=1)
    pieces: dict[int, Piece] = {}
    missing: dict[Path, list[int]] = {}
    for index, key in enumerate(keys):
        found = cache.find(key)
        if found is None:
            missing.setdefault(cache.path(key), []).append(index)
        else:
            pieces[index] = found
    with progress_bar(label, len(keys), show=progress) as advance:
        advance(len(pieces), "found" if pieces else "")

        def keep(indices: list[int], piece: Mapping[str, Any], seconds: float) -> None:
            kept = cache.keep(keys[indices[0]], piece, seconds)
            pieces.update(dict.fromkeys(indices, kept))
            advance(len(indices), _brief(keys[indices[0]]))

        groups = list(missing.values())
        engine = cache.engine or engine_for(1 if len(groups) < 2 else processes)
        tasks = [keys[indices[0]] for indices in groups]
        for place, made in engine.run(partial(_timed, function), tasks):
            keep(groups[place], *made)
    return [pieces[index] for index in range(len(keys))]


def run_groups(
    groups: Mapping[_Group, Iterable[Mapping[str, Any]]],
    function: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    *,
    cache: PieceCache,
    progress: bool = False,
    label: str = "Pieces",
) -> dict[_Group, list[Piece]]:
    """The pieces of several groups of keys, as the seeds of every method: in their order, by group.

    Args:
        groups: keys by the name of their group.
        function: key -> piece, as of `run_pieces`.
        cache: where pieces are found and kept.
        progress: whether to draw a bar.
        label: of the bar.
    """
    keys = [(group, key) for group, own in groups.items() for key in own]
    pieces = run_pieces([key for _, key in keys], function, cache=cache, progress=progress, label=label)
    found: dict[_Group, list[Piece]] = {group: [] for group in groups}
    for (group, _), piece in zip(keys, pieces, strict=True):
        found[group].append(piece)
    return found


def _timed(
    function: Callable[[Mapping[str, Any]], Mapping[str, Any]], key: Mapping[str, Any]
) -> tuple[Mapping[str, Any], float]:
    start = time.perf_counter()
    try:
        piece = function(key)
    except Exception as error:
        error.add_note(f"in the piece {_brief(key)}")
        raise
    return piece, time.perf_counter() - start


def _brief(key: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name}={value}" for name, value in key.items())
    return text if len(text) <= 200 else f"{text[:197]}..."


def _plain(value: Any) -> Any:
    """A value of a key that JSON does not know, as one that it knows."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, np.generic | Tensor) or (isinstance(value, np.ndarray) and value.size == 1):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(must("PieceCache", "key", "made of numbers, strings, lists and dicts", value))


def _encoded(piece: Mapping[str, Any], key: Mapping[str, Any], seconds: float) -> bytes:
    arrays: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in piece.items():
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        if isinstance(array, np.ndarray):
            if array.dtype.hasobject:
                raise TypeError(must("PieceCache", name, "an array of numbers or strings", array.dtype))
            arrays[f"{_ARRAY}{name}"] = array
        else:
            rest[name] = value
    whole = {"piece": rest, "key": dict(key), "order": list(piece), "seconds": seconds}
    text = json.dumps(whole, default=_plain)
    entries: dict[str, Any] = {_REST: np.array(text), **arrays}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **entries)
    return buffer.getvalue()


def _decoded(content: bytes) -> tuple[Piece, float]:
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        whole = json.loads(str(stored[_REST]))
        rest = whole["piece"]
        names = whole["order"]
        piece = {name: rest[name] if name in rest else stored[f"{_ARRAY}{name}"] for name in names}
    # A piece may come without its time; it is no less finished.
    return piece, float(whole.get("seconds", 0.0))
