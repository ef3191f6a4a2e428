"""What a calibrator learned, as a plain dict and as a JSON file."""

from __future__ import annotations

import json
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from bayesdrop.errors import must

__all__ = ["Calibrator"]


class Calibrator(ABC):
    """Something that is fitted on a calibration set and can be kept."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Arguments of the constructor."""

    @abstractmethod
    def fitted(self) -> dict[str, Any] | None:
        """What `fit` found, in plain values; None before it."""

    @abstractmethod
    def put(self, fitted: Mapping[str, Any]) -> None:
        """Take what `fitted` gave."""

    def state(self) -> dict[str, Any]:
        """Options and what was found, in what JSON can hold."""
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
        """Write `state` as JSON; the file is replaced at once."""
        path = Path(path)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
        try:
            draft.write_text(json.dumps(self.state(), indent=1, allow_nan=False), encoding="utf-8")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls.from_state(state)
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{cls.__name__}.load: {path} does not hold a {cls.__name__}.") from error

    def must_be_fitted(self, name: str) -> None:
        """Raise before `fit`."""
        if self.fitted() is None:
            kind = type(self).__name__
            raise ValueError(f"{kind}.{name}: call fit(prediction, y) on a calibration set first.")

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options().items())
        return f"{type(self).__name__}({options}){'' if self.fitted() is None else ', fitted'}"
