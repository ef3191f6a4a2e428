"""ServedModel: what a server needs to know of a model, whatever it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, TypeVar

from bayesdrop.serve.served.answers import Answers, Ask

__all__ = ["BadRow", "Ready", "ServedModel", "TensorSpec"]

_T = TypeVar("_T")


class BadRow(ValueError):
    """A row is not what the model takes; the message says why."""


@dataclass(frozen=True)
class TensorSpec:
    """A named tensor of the Open Inference Protocol; -1 for any number of rows."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """As the protocol writes it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


class ServedModel(ABC):
    """A model that answers rows. Any number of threads may ask it.

    Attributes:
        kind: "table", "image" or "torch".
        task: "classification" or "regression".
        digest: SHA-256 of what it is made of.
        classes: labels, in the order of the probabilities; () for numbers.
        num_draws: T unless asked otherwise.
        level: coverage of intervals unless asked otherwise; None for classes.
        inputs: the tensors that it takes.
        about: facts for a person.
    """

    kind: str
    task: str
    digest: str
    classes: tuple[str, ...]
    num_draws: int
    level: float | None
    inputs: tuple[TensorSpec, ...]
    about: dict[str, Any]

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The tensors that it gives."""
        if self.task == "classification":
            numbers = ["entropy", "mutual_information", "uncertainty"]
            specs = [
                TensorSpec("label", "BYTES", (-1,)),
                TensorSpec("probs", "FP64", (-1, len(self.classes))),
            ]
        else:
            numbers = ["mean", "std", "epistemic_std", "aleatoric_std", "lower", "upper", "uncertainty"]
            specs = []
        specs += [TensorSpec(name, "FP64", (-1,)) for name in numbers]
        return (*specs, TensorSpec("defer", "BOOL", (-1,)), TensorSpec("reason", "BYTES", (-1,)))

    @abstractmethod
    def rows_of(self, tensors: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows from named tensors, as arrays; raises `BadRow`."""

    @abstractmethod
    def row(self, given: Any) -> dict[str, Any]:
        """A row as it is stored, from what a request gave: a dict, or values in order; raises `BadRow`.

        Only its form is looked at, in no time: this runs where all requests come in.
        """

    def canonical(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows as the store keeps them, from which `predict` gives the same answer; raises `BadRow`."""
        return list(rows)

    @abstractmethod
    def check(self, rows: Sequence[dict[str, Any]]) -> None:
        """Raise `BadRow` for rows that `predict` would refuse."""

    @abstractmethod
    def predict(self, rows: Sequence[dict[str, Any]], ask: Ask) -> Answers:
        """What the model says of canonical rows; raises `BadRow`."""


class Ready(Generic[_T]):
    """Things that take long to make, by key: those that were asked for more than once are kept.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._made: OrderedDict[Any, _T] = OrderedDict()
        self._asked: OrderedDict[Any, None] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Any, make: Callable[[], _T], *, at_once: bool = False) -> _T | None:
        """What was made for a key; None where it is asked for the first time.

        Args:
            key: names it.
            make: makes it.
            at_once: make it the first time too.
        """
        with self._lock:
            found = self._made.get(key)
            if found is not None:
                self._made.move_to_end(key)
                return found
            if not at_once and key not in self._asked:
                self._asked[key] = None
                if len(self._asked) > 64:
                    self._asked.popitem(last=False)
                return None
            made = self._made[key] = make()
            if len(self._made) > self._most:
                self._made.popitem(last=False)
            return made
