"""Calibrators, and their state as a plain dict and as a JSON file."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from bayesdrop.errors import must
from bayesdrop.storage import from_json, to_json, write_file

__all__ = ["Calibrator"]


class Calibrator(ABC):
    """The base of objects that are fitted on a calibration set and can be saved."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Arguments of the constructor."""

    @abstractmethod
    def fitted(self) -> dict[str, Any] | None:
        """The result of `fit` in plain values; None before it."""

    @abstractmethod
    def put(self, fitted: Mapping[str, Any]) -> None:
        """Set the result of `fit`, as from `fitted`."""

    def state(self) -> dict[str, Any]:
        """Options and the result of `fit`, in a form that JSON can hold."""
        return {"kind": type(self).__name__, "options": self.options(), "fitted": self.fitted()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The calibrator whose `state` this is."""
        kind = state.get("kind") if isinstance(state, Mapping) else None
        if kind != cls.__name__:
            raise ValueError(must(f"{cls.__name__}.from_state", "state", f"of a {cls.__name__}", kind))
        made = cls(**state["options"])
        if state["fitted"] is not None:
            made.put(state["fitted"])
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `state` as JSON with a checksum; the file is replaced as a whole."""
        json.dumps(self.state(), allow_nan=False)  # raises for NaN and infinity
        write_file(path, to_json(self.state()), owner=f"{type(self).__name__}.save")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that `save` has written; raise if it was changed."""
        content = Path(path).read_bytes()
        try:
            state, _ = from_json(content)
            made = cls.from_state(state)
            # `save` writes no numbers as texts, and no names that are not read.
            if json.loads(json.dumps(made.state(), allow_nan=False)) != state:
                raise ValueError("it holds something else")
        except Exception as error:
            raise ValueError(
                f"{cls.__name__}.load: {path} does not hold a {cls.__name__} ({error})."
            ) from error
        return made

    def must_be_fitted(self, name: str) -> None:
        """Raise if `fit` was not called yet."""
        if self.fitted() is None:
            kind = type(self).__name__
            raise ValueError(f"{kind}.{name}: call fit(prediction, y) on a calibration set first.")

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options().items())
        return f"{type(self).__name__}({options}){'' if self.fitted() is None else ', fitted'}"
