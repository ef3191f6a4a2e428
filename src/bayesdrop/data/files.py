"""Where files are kept: the folder of the user's data, the cache, and files that are written whole."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bayesdrop.storage import write_file

__all__ = ["DataNotFound", "cache_folder", "data_folder", "write_whole"]


class DataNotFound(FileNotFoundError):
    """A data set is not at hand and cannot be had from here."""

    @property
    def brief(self) -> str:
        """What is missing, without the places that were looked at: those are of one machine."""
        return str(self).partition(". ")[0]


def data_folder() -> Path | None:
    """The folder that `$BAYESDROP_DATA` names; None if the variable is empty or not set."""
    named = os.environ.get("BAYESDROP_DATA", "")
    return Path(named).expanduser() if named else None


def cache_folder() -> Path:
    """`$BAYESDROP_CACHE`, or bayesdrop's folder in the place where the system keeps a user's caches.

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
    """Write a file so that a reader sees the old one or the whole new one; its folder is made if need be."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_file(target, content, owner="write_whole")
    return target
