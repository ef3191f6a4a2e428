"""What goes into the store and what comes out of it, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "ROLES",
    "Item",
    "Label",
    "NewItem",
    "NewPrediction",
    "NewRequest",
    "Person",
    "Request",
    "Role",
    "SavedModel",
    "SavedPrediction",
]

Role = Literal["reader", "labeller", "admin"]
#: from the least to the most allowed: who may do something may do all that is before it
ROLES: tuple[Role, ...] = ("reader", "labeller", "admin")


@dataclass(frozen=True)
class NewItem:
    """A row or an image that was answered.

    Attributes:
        id: of `new_id`.
        data: what was asked about, as JSON can hold it: cells by name, or {"image": base64 of a PNG}.
        answer: what the model said, as JSON can hold it.
        uncertainty: 0 to 1.
        defer: whether it goes to a person.
        reason: why.
        random: whether people see it whatever the model thinks.
        sketch: a few numbers; near ones are alike.
        external: its name elsewhere.
        place: in its request.
        opinions: labels that are wanted of different people.
        queued: ask people about it, whatever the model thinks.
    """

    id: str
    data: dict[str, Any]
    answer: dict[str, Any]
    uncertainty: float
    defer: bool
    reason: str
    random: bool = False
    sketch: tuple[float, ...] = ()
    external: str | None = None
    place: int = 0
    opinions: int = 1
    queued: bool = False


@dataclass(frozen=True)
class NewPrediction:
    """What another version, or other draws, say of an item that is there; see `NewItem`."""

    item_id: str
    model_id: int
    num_draws: int
    seed: int
    level: float | None
    answer: dict[str, Any]
    uncertainty: float
    defer: bool
    reason: str
    sketch: tuple[float, ...] = ()


@dataclass(frozen=True)
class NewRequest:
    """A request with its items: stored together or not at all.

    Attributes:
        id: of `new_id`.
        route: which protocol it came by.
        model_id: what answered it.
        num_draws: T.
        seed: of the draws.
        level: of the intervals; None for classes.
        items: its rows, or some of them: the others come later under the same id.
        num_rows: how many there are in all.
        key: the caller's own name of it.
        body_digest: of what was sent under this name.
        person_id: who sent it.
        first: whether these are the first of its items, so that the request itself is to be written.
    """

    id: str
    route: str
    model_id: int
    num_draws: int
    seed: int
    level: float | None
    items: tuple[NewItem, ...]
    num_rows: int
    key: str | None = None
    body_digest: str | None = None
    person_id: int | None = None
    first: bool = True


@dataclass(frozen=True)
class SavedModel:
    """A version of a model; see `schema.models`."""

    id: int
    name: str
    version: int
    kind: str
    task: str
    digest: str
    source: str
    active: bool
    parent: int | None
    created: float
    activated: float | None
    about: dict[str, Any]
    comparison: dict[str, Any] | None


@dataclass(frozen=True)
class Person:
    """Somebody who labels, or a program with a token."""

    id: int
    name: str
    role: Role
    disabled: bool
    created: float
    has_token: bool

    def may(self, role: Role) -> bool:
        """Whether the person's role is this one or includes it."""
        return not self.disabled and ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True)
class SavedPrediction:
    """What a version said about an item."""

    model_id: int
    num_draws: int
    seed: int
    level: float | None
    answer: dict[str, Any]
    uncertainty: float
    defer: bool
    reason: str
    created: float


@dataclass(frozen=True)
class Label:
    """What a person said about an item; `value` is None where it was skipped."""

    id: int
    item_id: str
    person_id: int
    person: str
    value: Any
    skipped: bool
    note: str
    seconds: float | None
    source: str
    created: float
    external: str | None = None


@dataclass(frozen=True)
class Item:
    """An item with all that is known of it; the latest prediction and the latest label come last.

    Attributes:
        state: "answered": nobody is asked; "queued": people are; "done": enough have spoken; "withdrawn".
        opinions: labels that are wanted.
        labels: those that hold: none that was undone.
    """

    id: str
    request_id: str
    place: int
    external: str | None
    data: dict[str, Any]
    state: str
    random: bool
    uncertainty: float
    opinions: int
    created: float
    predictions: tuple[SavedPrediction, ...] = field(default=())
    labels: tuple[Label, ...] = field(default=())
    expires: float | None = None  #: end of the lease, where one was just given

    @property
    def agreed(self) -> Any:
        """The label that most people gave, None without any or where they disagree evenly.

        Numbers are not voted on: their label is the mean.
        """
        values = [label.value for label in self.labels if not label.skipped]
        if not values:
            return None
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            return sum(values) / len(values)
        counts = {repr(value): values.count(value) for value in values}
        most = max(counts.values())
        best = [value for value in values if counts[repr(value)] == most]
        return best[0] if all(value == best[0] for value in best) else None

    @property
    def disagreement(self) -> bool:
        """Whether people gave different labels."""
        return len({repr(label.value) for label in self.labels if not label.skipped}) > 1


@dataclass(frozen=True)
class Request:
    """A stored request; see `schema.requests`."""

    id: str
    key: str | None
    body_digest: str | None
    route: str
    person_id: int | None
    model_id: int | None
    num_draws: int
    seed: int
    level: float | None
    num_rows: int
    received: float
    items: tuple[Item, ...]
