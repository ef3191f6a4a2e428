"""The folders of data sets: the user's data folder and the cache."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bayesdrop.storage import write_file

__all__ = ["DataNotFound", "cache_folder", "data_folder", "write_whole"]


class DataNotFound(FileNotFoundError):
    """A data set was not found and cannot be downloaded."""

    @property
    def brief(self) -> str:
        """What is missing, without the folders that were searched, which differ between machines."""
        return str(self).partition(". ")[0]


def data_folder() -> Path | None:
    """The folder that `$BAYESDROP_DATA` names; None if the variable is empty or not set."""
    named = os.environ.get("BAYESDROP_DATA", "")
    return Path(named).expanduser() if named else None


def cache_folder() -> Path:
    """`$BAYESDROP_CACHE`, or the folder `bayesdrop` where the system keeps a user's caches.

    The folder need not exist yet.
    """
    named = os.environ.get("BAYESDROP_CACHE", "")
    if named:
        return Path(named).expanduser()
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA", "")
        return Path(home) / "bayesdrop" if home else Path.home() / "AppData" / "Local" / "bayesdrop"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "bayesdrop"
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home else Path.home() / ".cache") / "bayesdrop"


def write_whole(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file so that readers see the old one or the whole new one; its folder is made if needed."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_file(target, content, owner="write_whole")
    return target
