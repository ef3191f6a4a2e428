"""Where arrays are looked for, in which order, and what is said where they are nowhere."""

from __future__ import annotations

import gc
import hashlib
import sys
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bayesdrop.data import DATASETS, DataNotFound, DataSet, cache_folder, data_folder
from bayesdrop.data.arrays import arrays_digest, load_arrays, read_npz
from bayesdrop.data.files import write_whole

ARRAYS = {"x": np.arange(3), "y": np.array([0.5, 0.25])}
TEXT = b"0 1 2\n"


def convert(fetch: Any) -> dict[str, Any]:
    return {**ARRAYS, "x": np.loadtxt(fetch("numbers.txt", hashlib.sha256(TEXT).hexdigest()), dtype=np.int64)}


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    sha256 = arrays_digest(ARRAYS)
    monkeypatch.setitem(
        DATASETS, "toy", DataSet("toy", "toys/toy.npz", "https://toy.org", "https://x/", sha256)
    )


def store(folder: Path, **arrays: Any) -> None:
    (folder / "toys").mkdir(parents=True)
    np.savez(folder / "toys" / "toy.npz", **arrays)


def load() -> dict[str, Any]:
    return load_arrays("toy", read_npz, convert)


def test_the_data_folder_comes_before_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(cache / "data", x=np.array([1]))
    assert load()["x"].tolist() == [1]
    store(tmp_path / "mine", x=np.array([2]))
    monkeypatch.setenv("BAYESDROP_DATA", str(tmp_path / "mine"))
    assert load()["x"].tolist() == [2]


def put_original(cache: Path, content: bytes) -> Path:
    return write_whole(cache / "data" / "originals" / "toy" / "numbers.txt", content)


def test_original_files_put_by_hand_are_converted_once(cache: Path) -> None:
    path = put_original(cache, TEXT)
    assert load()["x"].tolist() == [0, 1, 2]
    path.unlink()
    again = load()
    assert arrays_digest(again) == arrays_digest(ARRAYS)


def test_a_damaged_original_is_refused(cache: Path) -> None:
    put_original(cache, b"0 1 3\n")
    with pytest.raises(DataNotFound, match="is damaged: its SHA-256 is not"):
        load()
    assert not (cache / "data" / "converted").exists()


def test_arrays_that_are_not_the_registered_ones_are_refused_and_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_original(cache, TEXT)
    monkeypatch.setitem(ARRAYS, "y", np.array([0.5, 0.75]))
    with pytest.raises(DataNotFound, match="its SHA-256 is another"):
        load()
    assert not (cache / "data" / "converted").exists()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that a server on this machine gives out, as the home of the toy."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}/"
    monkeypatch.setenv("BAYESDROP_OFFLINE", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setitem(DATASETS, "toy", DataSet("toy", "toys/toy.npz", home, home, arrays_digest(ARRAYS)))
    yield folder
    server.shutdown()
    server.server_close()
    # A refused answer leaves the client's socket to the garbage collector, which warns of it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_what_is_nowhere_is_downloaded_checked_and_kept(served: Path, cache: Path) -> None:
    (served / "numbers.txt").write_bytes(TEXT)
    assert load()["x"].tolist() == [0, 1, 2]
    assert (cache / "data" / "originals" / "toy" / "numbers.txt").read_bytes() == TEXT
    (served / "numbers.txt").unlink()
    assert load()["x"].tolist() == [0, 1, 2]


def test_a_download_of_something_else_is_refused(served: Path, cache: Path) -> None:
    (served / "numbers.txt").write_bytes(b"0 1 3\n")
    with pytest.raises(DataNotFound, match="could not be downloaded"):
        load()
    assert not (cache / "data" / "originals" / "toy" / "numbers.txt").exists()


def test_a_download_that_fails_says_what_to_do(served: Path, cache: Path) -> None:
    with pytest.raises(DataNotFound) as raised:
        load()
    for piece in (
        "The data set toy is not available here.",
        "toys/toy.npz in $BAYESDROP_DATA, which is not set,",
        "numbers.txt could not be downloaded (HTTPError",
        f"put numbers.txt into {cache / 'data' / 'originals' / 'toy'}.",
        "Its home: http://127.0.0.1",
    ):
        assert piece in str(raised.value)


def test_offline_nothing_is_asked_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataNotFound, match="BAYESDROP_OFFLINE is set"):
        load()


def test_without_a_converter_nothing_is_downloaded() -> None:
    with pytest.raises(DataNotFound, match="no checksum of it is on record"):
        load_arrays("toy", read_npz)


def test_the_digest_sees_names_types_shapes_and_values() -> None:
    digest = arrays_digest(ARRAYS)
    assert digest == arrays_digest({name: ARRAYS[name] for name in reversed(ARRAYS)})
    assert digest == arrays_digest({**ARRAYS, "y": ARRAYS["y"].astype(">f8")})
    others = (
        {"x": ARRAYS["x"], "z": ARRAYS["y"]},
        {**ARRAYS, "x": ARRAYS["x"].astype(np.int32)},
        {**ARRAYS, "x": ARRAYS["x"].reshape(1, 3)},
        {**ARRAYS, "x": np.array([0, 1, 3])},
    )
    assert len({digest, *(arrays_digest(other) for other in others)}) == 5


@pytest.mark.parametrize(
    ("platform", "variables", "ending"),
    [
        ("linux", {"XDG_CACHE_HOME": "/caches"}, "/caches/bayesdrop"),
        ("linux", {}, ".cache/bayesdrop"),
        ("darwin", {}, "Library/Caches/bayesdrop"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/bayesdrop"),
        ("win32", {}, "AppData/Local/bayesdrop"),
        ("linux", {"BAYESDROP_CACHE": "/mine"}, "/mine"),
    ],
)
def test_the_cache_is_where_the_system_keeps_caches(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], ending: str
) -> None:
    for name in ("BAYESDROP_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, variables.get(name, ""))
    monkeypatch.setattr("bayesdrop.data.files.sys", SimpleNamespace(platform=platform))
    assert cache_folder().as_posix().endswith(ending)


def test_an_empty_variable_names_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESDROP_DATA", "")
    assert data_folder() is None


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_whole(tmp_path / "a" / "file", b"old")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert [file.read_bytes() for file in path.parent.iterdir()] == [b"old"]
