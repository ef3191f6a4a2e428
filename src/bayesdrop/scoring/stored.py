"""Models that are sent to workers: bytes in our safe format or a path with a checksum; loaded once."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from bayesdrop.storage import load, save

__all__ = ["StoredModule", "check_digest", "file_digest", "folder_digest", "loaded_once"]

#: models that a process keeps, those used last
_MOST_LOADED = 4
_LOADED: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_LOCK = threading.Lock()


@dataclass(frozen=True)
class StoredModule:
    """A module in our format: its bytes, or a file that every worker can read."""

    digest: str
    content: bytes | None = None
    path: str | None = None

    @staticmethod
    def of(module: nn.Module, argument: str, build: Callable[[], nn.Module] | None) -> StoredModule:
        """The bytes of a module, which can be loaded again.

        Args:
            module: a network or a likelihood.
            argument: its name in errors.
            build: makes the module without its weights, where these alone can be stored.
        """
        with tempfile.TemporaryDirectory(prefix="bayesdrop-") as folder:
            file = Path(folder) / "module.safetensors"
            save(module, file)
            content = file.read_bytes()
            try:
                load(file, into=None if build is None else build())
            except ValueError as error:
                hint = "Pass `build`, an importable function that makes the model without its weights."
                raise ValueError(f"Scorer: `{argument}` cannot be sent to workers: {error} {hint}") from error
        return StoredModule(hashlib.sha256(content).hexdigest(), content=content)

    def load(self, build: Callable[[], nn.Module] | None) -> nn.Module:
        """The module, on the CPU and in eval mode."""
        into = None if build is None else build()
        if self.path is not None:
            check_digest(self.path, file_digest(Path(self.path)), self.digest)
            return load(self.path, into=into)
        with tempfile.TemporaryDirectory(prefix="bayesdrop-") as folder:
            file = Path(folder) / "module.safetensors"
            file.write_bytes(self.content or b"")
            return load(file, into=into)


def folder_digest(path: str | os.PathLike[str]) -> str:
    """A checksum of a model folder: of its `table.json`, which has those of the other files.

    Args:
        path: a folder that `bayesdrop fit` wrote.
    """
    about = Path(path) / "table.json"
    if not about.is_file():
        raise ValueError(f"{path} does not hold a table model: there is no table.json.")
    return file_digest(about)


def loaded_once(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """What `make` gives, made once a process; the few used last are kept."""
    with _LOCK:
        if key not in _LOADED:
            _LOADED[key] = make()
        _LOADED.move_to_end(key)
        while len(_LOADED) > _MOST_LOADED:
            _LOADED.popitem(last=False)
        return _LOADED[key]


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    if not path.is_file():
        raise FileNotFoundError(f"Scorer: there is no file {path}.")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_digest(path: str, found: str, wanted: str) -> None:
    """Raise unless a model is the one that a scorer was made with."""
    if found != wanted:
        raise ValueError(f"Scorer: {path} is another model than when the scorer was made. Make it anew.")
