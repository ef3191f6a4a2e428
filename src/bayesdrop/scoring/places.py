"""Where tables come from and go to: files and folders of this machine, or addresses that fsspec knows."""

from __future__ import annotations

import glob
import os
import posixpath
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesdrop.errors import must, require
from bayesdrop.storage import only_one, write_file
from bayesdrop.tables.reading import ENDINGS

__all__ = ["Folder", "Source", "find_sources", "open_folder"]


def _is_remote(address: str) -> bool:
    return "://" in address


@dataclass(frozen=True)
class Source:
    """A table that is there to be scored.

    Attributes:
        address: a path, or an address as s3://bucket/name.parquet.
        size: bytes.
        stamp: what changes when the file is written anew: its time, or a tag of the store.
    """

    address: str
    size: int
    stamp: str

    @property
    def is_remote(self) -> bool:
        """Whether it has to be fetched."""
        return _is_remote(self.address)

    @property
    def name(self) -> str:
        """The name of the file."""
        return posixpath.basename(self.address) if self.is_remote else Path(self.address).name

    @contextmanager
    def local(self) -> Iterator[Path]:
        """A context with a path on this machine; what is fetched is gone at its end."""
        if not self.is_remote:
            yield Path(self.address)
            return
        with tempfile.TemporaryDirectory(prefix="bayesdrop-") as folder:
            path = Path(folder) / self.name
            files, inside = _file_system(self.address)
            files.get_file(inside, str(path))
            yield path

    def check_unchanged(self) -> None:
        """Raise if the file is not the one that was found."""
        now = _source_at(self.address)
        if now != self:
            raise ValueError(f"{self.address} was changed while it was scored. Start again with --force.")


def find_sources(addresses: Sequence[str | os.PathLike[str]]) -> list[Source]:
    """All tables of files, folders and patterns, in order, each once.

    Args:
        addresses: paths or addresses; a folder is all tables in it, in the order of their names; a pattern
            with * or ? is all files that it fits.
    """
    found: dict[str, Source] = {}
    for given in addresses:
        address = os.fspath(given)
        for one in _expanded(address):
            source = _source_at(one)
            found.setdefault(source.address, source)
    if not found:
        raise ValueError(must("predict", "data", "at least one table", list(map(str, addresses))))
    return list(found.values())


def _expanded(address: str) -> list[str]:
    if _is_remote(address):
        files, inside = _file_system(address)
        start = address.partition("://")[0]

        def full(path: str) -> str:
            return str(files.unstrip_protocol(path)) if "://" not in path else path

        if glob.has_magic(inside):
            names = sorted(map(str, files.glob(inside)))
        elif files.isdir(inside):
            names = _tables_in(address, sorted(str(name) for name in files.ls(inside, detail=False)))
        else:
            return [address]
        if not names:
            raise FileNotFoundError(f"there is no table that fits {address}.")
        return [full(name) if start != "file" else f"file://{name}" for name in names]
    path = Path(address)
    if path.is_dir():
        return _tables_in(address, sorted(str(entry) for entry in path.iterdir()))
    if not path.exists() and glob.has_magic(address):
        names = sorted(glob.glob(address))  # noqa: PTH207 (a pattern may be absolute)
        if not names:
            raise FileNotFoundError(f"there is no table that fits {address}.")
        return [inner for name in names for inner in _expanded(name)]
    return [address]


def _tables_in(folder: str, names: Sequence[str]) -> list[str]:
    shown = [name for name in names if not posixpath.basename(name).startswith((".", "_"))]
    other = [name for name in shown if not name.lower().endswith(ENDINGS)]
    if other or not shown:
        got = f"{posixpath.basename(other[0])!r}" if other else "none"
        raise ValueError(f"the folder {folder} must hold tables and nothing else; got {got}.")
    return shown


def _source_at(address: str) -> Source:
    if not address.lower().endswith(ENDINGS):
        raise ValueError(must("predict", "data", f"tables that end in {', '.join(ENDINGS)}", address))
    if not _is_remote(address):
        path = Path(address)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {address}.")
        about = path.stat()
        return Source(str(path.absolute()), about.st_size, str(about.st_mtime_ns))
    files, inside = _file_system(address)
    if not files.isfile(inside):
        raise FileNotFoundError(f"there is no file {address}.")
    told = files.info(inside)
    marks = ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime", "created")
    stamp = next((str(told[mark]) for mark in marks if told.get(mark) is not None), "")
    return Source(address, int(told.get("size") or 0), stamp)


def _file_system(address: str) -> tuple[Any, str]:
    core = require("fsspec.core", extra="tables", owner="An address as s3://")
    try:
        files, inside = core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise ValueError(f"{address} cannot be opened: {error}") from error
    return files, str(inside)


class Folder(ABC):
    """A folder of scored parts. Names may have one folder before them, as `_parts/00001.json`."""

    @abstractmethod
    def make(self) -> None:
        """Make the folder where there is none."""

    @abstractmethod
    def names(self, under: str = "") -> dict[str, int]:
        """Names of the files in it, or in a folder of it, and their sizes."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """The bytes of a file; None if there is none."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of a file."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Write a file as a whole."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def draft(self, name: str) -> Any:
        """A context with a path of this machine to write whole; at its end the file is in its place."""

    @abstractmethod
    def only_one(self) -> Any:
        """A context that one driver at a time is in, where the place can tell."""


@dataclass(frozen=True)
class _LocalFolder(Folder):
    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def make(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"the output {self.path} must be a folder; it is a file.")
        self.path.mkdir(parents=True, exist_ok=True)

    def names(self, under: str = "") -> dict[str, int]:
        folder = self.path / under
        if not folder.is_dir():
            return {}
        hidden = ".tmp"
        return {
            entry.name: entry.stat().st_size for entry in folder.iterdir() if not entry.name.endswith(hidden)
        }

    def size(self, name: str) -> int | None:
        path = self.path / name
        return path.stat().st_size if path.is_file() else None

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        (self.path / name).parent.mkdir(exist_ok=True)
        write_file(self.path / name, content, owner="predict")

    def remove(self, name: str) -> None:
        path = self.path / name
        path.unlink(missing_ok=True)
        if path.parent != self.path:
            with suppress(OSError):  # it holds others
                path.parent.rmdir()

    def draft(self, name: str) -> Any:
        # What writes tables writes them beside their place and renames them.
        return nullcontext(self.path / name)

    def only_one(self) -> Any:
        return only_one(self.path / "_lock", owner="predict", what=f"scoring into {self.path}")


@dataclass(frozen=True)
class _RemoteFolder(Folder):
    address: str

    def __str__(self) -> str:
        return self.address

    def _at(self, name: str) -> tuple[Any, str]:
        return _file_system(f"{self.address.rstrip('/')}/{name}".rstrip("/"))

    def make(self) -> None:
        files, inside = self._at("")
        files.makedirs(inside, exist_ok=True)

    def names(self, under: str = "") -> dict[str, int]:
        files, inside = self._at(under)
        files.invalidate_cache()
        if not files.exists(inside):
            return {}
        entries = files.ls(inside, detail=True)
        return {posixpath.basename(str(one["name"])): int(one.get("size") or 0) for one in entries}

    def size(self, name: str) -> int | None:
        files, inside = self._at(name)
        files.invalidate_cache()
        return int(files.info(inside).get("size") or 0) if files.isfile(inside) else None

    def read(self, name: str) -> bytes:
        files, inside = self._at(name)
        content: bytes = files.cat_file(inside)
        return content

    def write(self, name: str, content: bytes) -> None:
        files, inside = self._at(name)
        files.makedirs(posixpath.dirname(inside), exist_ok=True)
        files.pipe_file(inside, content)

    def remove(self, name: str) -> None:
        files, inside = self._at(name)
        if files.exists(inside):
            files.rm_file(inside)

    @contextmanager
    def draft(self, name: str) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(prefix="bayesdrop-"))
        try:
            yield folder / name
            files, inside = self._at(name)
            files.put_file(str(folder / name), inside)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def only_one(self) -> Any:
        return nullcontext()


def open_folder(address: str | os.PathLike[str]) -> Folder:
    """The folder of a path or an address, there or not.

    Args:
        address: a path, or an address as s3://bucket/scored.
    """
    text = os.fspath(address)
    return _RemoteFolder(text) if _is_remote(text) else _LocalFolder(Path(text).absolute())
