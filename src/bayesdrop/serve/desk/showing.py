"""show(): what a page shows of an item, in the words and lengths of a page."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayesdrop.serve.desk.learned import learned, target_range
from bayesdrop.serve.served.base import ServedModel
from bayesdrop.serve.store import Item
from bayesdrop.serve.store.records import SavedPrediction
from bayesdrop.tables.written import written

__all__ = ["Bar", "Interval", "LabelChoice", "Shown", "ShownCell", "choices_of", "show"]

#: keys of the desk that no class may have
_TAKEN = frozenset("sunmo?")
_KEYS = [*"1234567890", *(letter for letter in "abcdefghijklmnopqrstuvwxyz" if letter not in _TAKEN)]
_MOST_BARS = 10
_LONGEST = 400
#: the picture of an interval goes from 10 to 390
_LEFT, _RIGHT = 10.0, 390.0


@dataclass(frozen=True)
class LabelChoice:
    """A class that can be chosen, and its key, "" without one."""

    value: str
    key: str


@dataclass(frozen=True)
class Bar:
    """The probability of a class."""

    name: str
    prob: float
    text: str
    best: bool


@dataclass(frozen=True)
class ShownCell:
    """A cell of a row.

    Attributes:
        usual: what the model has learned from, in words.
        outside: how the value is outside of that, "" where it is not.
    """

    name: str
    value: str
    usual: str = ""
    outside: str = ""


@dataclass(frozen=True)
class Interval:
    """A predicted number with its interval, as texts and as places in a picture."""

    mean: str
    lower: str
    upper: str
    level: str
    picture: Mapping[str, Any] | None


@dataclass(frozen=True)
class Shown:
    """What a page shows of an item; see `show`."""

    id: str
    state: str
    random: bool
    opinions: int
    image: str
    cells: Sequence[ShownCell]
    choices: Sequence[LabelChoice]
    target: str
    bars: Sequence[Bar]
    more_classes: int
    more_prob: str
    interval: Interval | None
    reason: str
    facts: Sequence[tuple[str, str]]
    seconds: int = 0  #: that the lease lasts from now

    @property
    def has_usual(self) -> bool:
        """Whether anything is known of what the model has learned from."""
        return any(cell.usual for cell in self.cells)

    @property
    def short_choices(self) -> bool:
        """Whether all classes have names of a few letters."""
        return all(len(choice.value) <= 3 for choice in self.choices)

    @property
    def why(self) -> str:
        """Why the model asks, in words; "" where it does not."""
        if not self.reason:
            return ""
        if not self.bars:
            return f"It asks because of this: {self.reason}."
        first, *others = sorted(self.bars, key=lambda bar: -bar.prob)
        if others and others[0].prob > 0.5 * first.prob:
            near = f"It wavers between {first.name} and {others[0].name}"
        else:
            near = f"It leans to {first.name}, and is not sure enough"
        return f"{near}: {self.reason}."

    @property
    def lease_text(self) -> str:
        """As 4:59."""
        return f"{self.seconds // 60}:{self.seconds % 60:02d}"


def show(item: Item, served: ServedModel, *, now: float) -> Shown:
    """What a page shows of an item: the row or the image, and the latest prediction.

    Args:
        item: of the store.
        served: the model that answers now, a `ServedModel`.
        now: seconds since 1970.
    """
    said = item.predictions[-1] if item.predictions else None
    answer = said.answer if said is not None else {}
    classes = tuple(served.classes)
    bars, more, most = _bars(answer, classes)
    image = _image(item.data)
    return Shown(
        id=item.id,
        state=item.state,
        random=item.random,
        opinions=item.opinions,
        image=image,
        cells=() if image else _cells(item.data, served),
        choices=choices_of(classes),
        target=str(served.about.get("target", "")) if served.kind == "table" else "",
        bars=bars,
        more_classes=more,
        more_prob=most,
        interval=None if said is None else _interval(said, served),
        reason=said.reason if said is not None else "",
        facts=_facts(answer, said),
        seconds=0 if item.expires is None else max(0, round(item.expires - now)),
    )


def choices_of(classes: Sequence[str]) -> tuple[LabelChoice, ...]:
    """The classes with their keys: their own names where each is one letter or digit, else 1 to 9, 0, a...

    Args:
        classes: names, in the order of the model.

    >>> [choice.key for choice in choices_of(["0", "1", "2"])]
    ['0', '1', '2']
    >>> [choice.key for choice in choices_of(["cat", "dog"])]
    ['1', '2']
    """
    own = [name.lower() for name in classes]
    if len(set(own)) == len(own) and set(own) <= set(_KEYS):
        return tuple(LabelChoice(name, key) for name, key in zip(classes, own, strict=True))
    keys = [*_KEYS[: len(classes)], *[""] * (len(classes) - len(_KEYS))]
    return tuple(LabelChoice(name, key) for name, key in zip(classes, keys, strict=True))


def _bars(answer: Mapping[str, Any], classes: Sequence[str]) -> tuple[tuple[Bar, ...], int, str]:
    """Bars of the classes, the most probable ones of many; how many are left out, and their largest."""
    probs = answer.get("probs")
    if not isinstance(probs, list) or len(probs) != len(classes):
        return (), 0, ""
    values = [float(prob) if isinstance(prob, int | float) else 0.0 for prob in probs]
    order = sorted(range(len(values)), key=lambda place: -values[place])
    shown = sorted(order[:_MOST_BARS])
    best = order[0]
    bars = tuple(
        Bar(classes[place], min(1.0, max(0.0, values[place])), _percent(values[place]), place == best)
        for place in shown
    )
    rest = order[_MOST_BARS:]
    return bars, len(rest), _percent(values[rest[0]]) if rest else ""


def _interval(said: SavedPrediction, served: ServedModel) -> Interval | None:
    answer = said.answer
    if "mean" not in answer or isinstance(answer["mean"], list):
        return None
    said_ends = (answer.get(name) for name in ("mean", "lower", "upper"))
    mean, lower, upper = (float(end) if isinstance(end, int | float) else math.nan for end in said_ends)
    level = f"{100 * said.level:g} %" if said.level else "probably"
    ends = (mean, lower, upper)
    std = answer.get("std")
    spread = float(std) if isinstance(std, int | float) else None
    texts = [
        written(value, spread, digits=5 if spread is None else 2) if math.isfinite(value) else "unknown"
        for value in ends
    ]
    return Interval(texts[0], texts[1], texts[2], level, _picture(mean, lower, upper, served))


def _picture(mean: float, lower: float, upper: float, served: ServedModel) -> dict[str, Any] | None:
    """Places of the interval and of the numbers that the model learned from, on one axis."""
    if not all(map(math.isfinite, (mean, lower, upper))) or upper < lower:
        return None
    known = target_range(served)
    low, high = known or (lower, upper)
    first, last = min(lower, low, mean), max(upper, high, mean)
    room = 0.08 * (last - first) or 1.0
    first, last = first - room, last + room

    def place(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (value - first) / (last - first)

    left, right = place(lower), place(upper)
    return {
        "lower": left,
        "width": max(right - left, 1.0),
        "mean": place(mean),
        "learned": place(low),
        "learned_width": place(high) - place(low) if known else 0.0,
        # Texts of a narrow interval go outwards, so that they do not meet.
        "lower_anchor": "end" if right - left < 110 and left > 70 else "start",
        "upper_anchor": "start" if right - left < 110 and right < _RIGHT - 60 else "end",
    }


def _cells(data: Mapping[str, Any], served: ServedModel) -> tuple[ShownCell, ...]:
    known = learned(served, data)
    cells = []
    for name, value in data.items():
        usual, outside = known.get(name, ("", ""))
        cells.append(ShownCell(name, _value(value), usual, outside))
    return tuple(cells)


def _value(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return written(float(value), digits=8)
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _image(data: Mapping[str, Any]) -> str:
    """The address of a stored image, which is a PNG that the server itself has written."""
    content = data.get("image")
    if not isinstance(content, str) or set(data) != {"image"}:
        return ""
    try:
        start = base64.b64decode(content, validate=True)[:8]
    except binascii.Error:
        return ""
    return f"data:image/png;base64,{content}" if start == b"\x89PNG\r\n\x1a\n" else ""


def _facts(answer: Mapping[str, Any], said: SavedPrediction | None) -> list[tuple[str, str]]:
    facts = []
    for name, shown in (
        ("entropy", "Entropy"),
        ("mutual_information", "Of it from the model"),
        ("std", "Standard deviation"),
        ("epistemic_std", "From the model"),
        ("aleatoric_std", "From noise"),
    ):
        value = answer.get(name)
        if isinstance(value, int | float):
            unit = " nats" if name in ("entropy", "mutual_information") else ""
            facts.append((shown, f"{written(float(value), digits=3)}{unit}"))
    factor = answer.get("stretched")
    if isinstance(factor, int | float):
        facts.append(("Interval, by labels", f"{factor:.2f} times"))
    if said is not None:
        facts.append(("Draws", f"{said.num_draws}"))
    return facts


def _percent(prob: float) -> str:
    return f"{100 * prob:.1f} %" if prob < 0.9995 else "100 %"
