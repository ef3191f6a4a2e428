"""Pieces: found again when nothing changed, computed again when something did, never lost with the run."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bayesdrop.experiments.pieces
from bayesdrop.engines import LocalEngine, running_on
from bayesdrop.experiments import PieceCache, run_groups, run_pieces


class Counted:
    """A computation that counts how often it is made."""

    def __init__(self, **piece: Any) -> None:
        self.piece, self.times = piece, 0

    def __call__(self, key: Any = None) -> dict[str, Any]:
        self.times += 1
        return self.piece


def test_a_piece_is_computed_once(tmp_path: Path) -> None:
    compute = Counted(loss=0.1)
    for _ in range(2):
        piece = PieceCache("toy", folder=tmp_path).get({"split": 3, "seed": 0}, compute)
        assert piece == {"loss": 0.1}
    assert compute.times == 1


def test_what_comes_back_is_the_same_the_first_time_and_later(tmp_path: Path) -> None:
    made = Counted(
        losses=[0.1, 1 / 3, float("nan")],
        file=torch.arange(3.0),
        rates=np.eye(2, dtype=np.float32),
        names=np.array(["a", "bc"]),
        pair=(1, 2),
        count=np.int64(4),
        score=torch.tensor(0.25),
        none=None,
    )
    cache = PieceCache("toy", folder=tmp_path)
    first, second = cache.get({}, made), cache.get({}, made)
    assert made.times == 1
    assert list(first) == list(second) == list(made.piece)
    for piece in (first, second):
        assert piece["losses"][:2] == [0.1, 1 / 3]
        assert np.isnan(piece["losses"][2])
        assert piece["file"].dtype == np.float32
        assert piece["file"].tolist() == [0, 1, 2]
        assert (piece["rates"] == np.eye(2)).all()
        assert piece["names"].tolist() == ["a", "bc"]
        assert piece["pair"] == [1, 2]
        assert (piece["count"], float(piece["score"]), piece["none"]) == (4, 0.25, None)


@dataclass(frozen=True)
class Settings:
    width: int = 3


@pytest.mark.parametrize(
    "other",
    [
        {"folder_name": "other"},
        {"revision": 2},
        {"key": {"seed": 1, "net": Settings()}},
        {"key": {"seed": 0, "net": Settings(4)}},
        {"version": "99"},
    ],
)
def test_another_key_revision_version_or_experiment_is_another_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    key = {"seed": 0, "net": Settings()}
    PieceCache("toy", folder=tmp_path).get(key, Counted(x=1))
    same = PieceCache("toy", folder=tmp_path).find({"net": Settings(), "seed": 0})
    assert same == {"x": 1}
    if "version" in other:
        monkeypatch.setattr(bayesdrop.experiments.pieces, "__version__", other["version"])
    cache = PieceCache(other.get("folder_name", "toy"), folder=tmp_path, revision=other.get("revision", 1))
    assert cache.find(other.get("key", key)) is None


def test_fresh_computes_again_and_replaces(tmp_path: Path) -> None:
    PieceCache("toy", folder=tmp_path).get({}, Counted(x=1))
    fresh, again = PieceCache("toy", folder=tmp_path, fresh=True), Counted(x=2)
    assert [fresh.get({}, again)["x"] for _ in range(2)] == [2, 2]
    assert again.times == 1, "what this run has made itself is fresh"
    assert PieceCache("toy", folder=tmp_path).find({}) == {"x": 2}


def test_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    cache = PieceCache("toy", folder=tmp_path)
    cache.get({}, Counted(x=1))
    path = cache.path({})
    for content in (b"", b"not a zip", path.read_bytes()[:50]):
        path.write_bytes(content)
        assert cache.find({}) is None
    assert cache.get({}, Counted(x=2)) == {"x": 2}
    assert [file.name for file in cache.folder.iterdir()] == [path.name], "no drafts are left"


def test_objects_are_refused_as_keys_and_as_arrays(tmp_path: Path) -> None:
    cache = PieceCache("toy", folder=tmp_path)
    with pytest.raises(TypeError, match="`key` must be made of numbers"):
        cache.get({"model": object()}, Counted(x=1))
    with pytest.raises(TypeError, match="`x` must be an array of numbers"):
        cache.get({}, Counted(x=np.array([object()])))


def test_the_users_cache_is_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESDROP_CACHE", str(tmp_path / "mine"))
    assert PieceCache("toy").folder == tmp_path / "mine" / "runs" / "toy"


def test_pieces_come_in_the_order_of_their_keys_and_repeated_ones_once(tmp_path: Path) -> None:
    seen = []

    def square(key: Any) -> dict[str, Any]:
        seen.append(key["n"])
        return {"square": key["n"] ** 2}

    cache = PieceCache("toy", folder=tmp_path)
    cache.get({"n": 2}, lambda: {"square": 4})
    pieces = run_pieces([{"n": n} for n in (3, 2, 1, 3)], square, cache=cache)
    assert [piece["square"] for piece in pieces] == [9, 4, 1, 9]
    assert seen == [3, 1]


def test_processes_give_what_one_process_gives(tmp_path: Path, toy: str) -> None:
    piece = importlib.import_module(toy).piece
    keys = [{"number": n, "power": 2.0} for n in (4, 1, 3)]
    alone = run_pieces(keys, piece, cache=PieceCache("alone", folder=tmp_path))
    both = run_pieces(keys, piece, cache=PieceCache("both", folder=tmp_path, processes=2))
    assert [found["value"] for found in alone] == [found["value"] for found in both] == [16, 1, 9]
    assert {found["process"] for found in alone} == {os.getpid()}
    assert os.getpid() not in {found["process"] for found in both}
    assert {found["threads"] for found in both} == {1}


class Noted(LocalEngine):
    """One process, and a list of the tasks that it was given."""

    def __init__(self) -> None:
        super().__init__(1)
        self.tasks: list[Any] = []

    def run(self, function: Any, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        self.tasks += tasks
        return super().run(function, tasks)


def test_the_engine_of_a_run_computes_the_pieces_of_every_cache(tmp_path: Path) -> None:
    """The UCI tables and CamVid make a cache of their own, which other experiments share."""
    engine = Noted()
    with running_on(engine):
        run_pieces([{"split": 0}], Counted(a=1), cache=PieceCache("shared", folder=tmp_path))
    assert engine.tasks == [{"split": 0}]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_failure_names_its_piece_and_the_finished_ones_are_kept(
    tmp_path: Path, toy: str, processes: int
) -> None:
    piece = importlib.import_module(toy).piece
    cache = PieceCache("toy", folder=tmp_path)
    keys = [{"number": n, "power": 2.0} for n in (1, 2)]
    run_pieces(keys, piece, cache=cache)
    with pytest.raises(LookupError, match="thirteen") as raised:
        run_pieces(
            [*keys, {"number": 13, "power": 2.0}, {"number": 13, "power": 1.0}],
            piece,
            cache=cache,
            processes=processes,
        )
    assert any("number=13" in note for note in raised.value.__notes__)
    assert all(cache.find(key) is not None for key in keys)


@pytest.mark.parametrize("processes", [0, 1.5, True])
def test_a_number_of_processes_is_positive(tmp_path: Path, processes: Any) -> None:
    with pytest.raises(ValueError, match="`processes` must be a positive int"):
        run_pieces([], Counted(), cache=PieceCache("toy", folder=tmp_path), processes=processes)
    with pytest.raises(ValueError, match="`processes` must be a positive int"):
        PieceCache("toy", folder=tmp_path, processes=processes)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_found_piece_says_how_long_it_had_taken(tmp_path: Path, processes: int) -> None:
    keys = [{"n": 1}, {"n": 2}]
    cache = PieceCache("toy", folder=tmp_path)
    for key, seconds in zip(keys, (50.0, 20.0), strict=True):
        cache.keep(key, {}, seconds)
    assert cache.found_seconds == 0, "they were not found"
    again = PieceCache("toy", folder=tmp_path)
    for _ in range(2):
        run_pieces(keys, Counted(), cache=again, processes=processes)
    assert again.found_seconds == 70, "and a piece counts once however often it is asked for"


def test_a_computed_piece_is_kept_with_its_time(tmp_path: Path) -> None:
    cache = PieceCache("toy", folder=tmp_path)
    run_pieces([{"n": 1}], Counted(), cache=cache)
    assert cache.found_seconds == 0, "it was computed in this run"
    again = PieceCache("toy", folder=tmp_path)
    run_pieces([{"n": 1}], Counted(), cache=again)
    assert again.found_seconds > 0


def test_progress_is_drawn_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = PieceCache("toy", folder=tmp_path)
    run_pieces([{"n": 1}], Counted(x=1), cache=cache, progress=True, label="Splits")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Splits" in shown.err
    assert "1/1" in shown.err


def test_a_damaged_piece_is_computed_again(tmp_path: Path) -> None:
    cache = PieceCache("flips", folder=tmp_path)
    kept = cache.keep({"a": 1}, {"rmse": 0.5, "weights": np.arange(4.0)}, seconds=1.0)
    path = cache.path({"a": 1})
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 5):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(content)
        found = PieceCache("flips", folder=tmp_path).find({"a": 1})
        assert found is None or (
            found["rmse"] == kept["rmse"] and np.array_equal(found["weights"], kept["weights"])
        )


def test_groups_keep_their_pieces_in_order_and_empty_ones_stay(tmp_path: Path) -> None:
    groups = {"a": [{"n": 1}, {"n": 2}], "none": [], ("b", 2): [{"n": 1}, {"n": 5}]}
    asked = []

    def function(key: Any) -> dict[str, Any]:
        asked.append(key["n"])
        return {"square": key["n"] ** 2}

    found = run_groups(groups, function, cache=PieceCache("toy", folder=tmp_path))
    assert {name: [piece["square"] for piece in own] for name, own in found.items()} == {
        "a": [1, 4],
        "none": [],
        ("b", 2): [1, 25],
    }
    # A key that two groups share is computed once.
    assert sorted(asked) == [1, 2, 5]
