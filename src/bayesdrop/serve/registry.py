"""Registry: the version that answers, others that can, and where they are on the disk."""

from __future__ import annotations

import logging
import shutil
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bayesdrop.serve.served import ServedModel
from bayesdrop.serve.served.loading import load_model
from bayesdrop.storage import whole_folder

if TYPE_CHECKING:
    from bayesdrop.serve.settings import ServeSettings
    from bayesdrop.serve.store import SavedModel, Store

__all__ = ["ORIGIN", "Registry", "Serving"]

_log = logging.getLogger("bayesdrop.serve")
#: the source of a version that is code; versions that are folders are kept in the server's own
ORIGIN = "origin"
#: versions that are held in memory
_HELD = 3


@dataclass(frozen=True, eq=False)
class Serving:
    """A version in memory, and what the store knows of it."""

    model: ServedModel
    record: SavedModel


class Registry:
    """The versions of the one model that a server has.

    The model of the command line is a version too: the first, or a new one if it is none of those known.
    Another version may have become active since, by a refit: then that one answers.

    Args:
        settings: of the server.
        store: that knows the versions.
    """

    def __init__(self, settings: ServeSettings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._lock = threading.Lock()
        self._held: OrderedDict[int, Serving] = OrderedDict()
        self._current: Serving | None = None

    @property
    def name(self) -> str:
        """Of the model."""
        return self._settings.model_name

    @property
    def current(self) -> Serving:
        """The version that answers."""
        if self._current is None:
            raise RuntimeError("the model is not loaded yet.")
        return self._current

    @property
    def is_ready(self) -> bool:
        """Whether there is one."""
        return self._current is not None

    def open(self) -> Serving:
        """Load the model, and make known what is new."""
        model, versions = load_model(self._settings), self._store.versions
        record = versions.with_digest(self.name, model.digest)
        active = versions.active(self.name)
        if record is None:
            record = versions.add(
                name=self.name,
                kind=model.kind,
                task=model.task,
                digest=model.digest,
                source=self._kept(model),
                about=model.about,
            )
            active = None
        if active is None:
            record = active = versions.activate(record, why="given on the command line")
        if active.digest == model.digest:
            self._hold(Serving(model, active))
        else:
            _log.info("version %d answers, which was made from the model given", active.version)
        return self.use(active)

    def _kept(self, model: ServedModel) -> str:
        """Copy the model's folder: what is there may be replaced by another model one day."""
        if self._settings.is_code:
            return ORIGIN
        self.versions_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = model.digest[:16]
        with whole_folder(self.versions_folder / name, owner="serve") as draft:
            shutil.copytree(self._settings.model, draft, dirs_exist_ok=True)
        return name

    def use(self, record: SavedModel) -> Serving:
        """Answer with a version from now on. Requests that were accepted before keep theirs."""
        serving = self.load(record)
        self._current = serving
        return serving

    def load(self, record: SavedModel) -> Serving:
        """A version in memory, read if it is not there."""
        with self._lock:
            found = self._held.get(record.id)
            if found is not None:
                self._held.move_to_end(record.id)
                return found
        model = load_model(self._settings, None if record.source == ORIGIN else self.folder_of(record))
        if model.digest != record.digest:
            raise ValueError(f"version {record.version} of {record.name} is not as it was when it was added.")
        return self._hold(Serving(model, record))

    def numbered(self, version: int) -> Serving | None:
        """A version by its number; None if there is no such version."""
        if self.current.record.version == version:
            return self.current
        record = self._store.versions.numbered(self.name, version)
        return None if record is None else self.load(record)

    def follow(self) -> bool:
        """Answer with the version that is active in the store, if it is another; whether it was."""
        active = self._store.versions.active(self.name)
        if active is None or active.id == self.current.record.id:
            return False
        self.use(active)
        _log.info("version %d answers now", active.version)
        return True

    def folder_of(self, record: SavedModel) -> Path:
        """Where a version is."""
        if record.source == ORIGIN:
            raise ValueError(f"version {record.version} of {record.name} is code, not a folder.")
        return self.versions_folder / record.source

    @property
    def versions_folder(self) -> Path:
        """Where new versions are written."""
        return self._settings.folder / "versions"

    def _hold(self, serving: Serving) -> Serving:
        with self._lock:
            self._held[serving.record.id] = serving
            while len(self._held) > _HELD:
                self._held.popitem(last=False)
        return serving
