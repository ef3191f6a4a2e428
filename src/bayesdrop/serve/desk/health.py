"""The dashboard: whether the promises held."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from bayesdrop.serve.auth import Caller, session_with
from bayesdrop.serve.desk import charts
from bayesdrop.serve.desk.pages import page
from bayesdrop.serve.promises import (
    JudgedItem,
    agreement,
    calibration_of,
    drift_of,
    judged,
    periods,
    share_interval,
)
from bayesdrop.serve.store.history import ServedHistory

router = APIRouter(prefix="/desk/health")

_KEPT: WeakKeyDictionary[Any, tuple[Any, tuple[list[NumberTile], list[Chart], Any]]] = WeakKeyDictionary()
_LOCK = Lock()
#: labelled items that are looked at, rows that drift is told from, spans of time in a picture
_MOST, _ROWS, _SPANS = 5000, 500, 24


@dataclass(frozen=True)
class NumberTile:
    """A number that stands for itself."""

    name: str
    value: str
    about: str = ""
    bad: bool = False


@dataclass(frozen=True)
class Chart:
    """A picture with its title and what it tells."""

    title: str
    svg: Markup
    about: str


@router.get("")
async def health(
    request: Request, caller: Annotated[Caller, Depends(session_with("reader"))]
) -> HTMLResponse:
    """Tiles and pictures of how the model and the people do."""
    service = request.app.state.service
    serving = service.registry.current
    tiles, pictures, people = await asyncio.to_thread(_kept, service)
    return page(
        request,
        "health.html",
        caller,
        "/desk/health",
        tiles=tiles,
        charts=pictures,
        people=people,
        version=serving.record,
    )


def _kept(service: Any) -> tuple[list[NumberTile], list[Chart], Any]:
    """What `_read` found, kept while nothing new has come in: pictures take a while."""
    counts = service.store.overview.counts()
    now = (service.registry.current.record.id, counts, ServedHistory(service.store.database).label_mark())
    with _LOCK:
        kept = _KEPT.get(service)
        if kept is None or kept[0] != now:
            kept = _KEPT[service] = now, _read(service)
        return kept[1]


def _read(service: Any) -> tuple[list[NumberTile], list[Chart], Any]:
    overview, model = service.store.overview, service.registry.current.model
    history = ServedHistory(service.store.database)
    numbers = model.task == "regression"
    labelled = list(islice(overview.labelled(random=True), _MOST))
    found = judged(labelled)
    counts, spans = overview.counts(), _spans(service, history)
    together = agreement(overview.labelled())
    per_person = overview.per_person()
    pictures = []
    what = "coverage" if numbers else "accuracy"
    if found:
        pictures += _promise_charts(found, what, numbers)
    if spans:
        pictures.append(
            Chart(
                "Handed over to people", charts.deferred_chart(spans), "share of rows the model asked about"
            )
        )
        pictures.append(
            Chart("Uncertainty", charts.doubt_chart(spans), "a rise says that rows became stranger or harder")
        )
    rows = _halves(history, counts.items)
    moved = drift_of(*rows)
    if moved:
        told = sum(one.is_drift for one in moved)
        about = (
            f"{told} of the columns shown moved more than chance" if told else "no more than chance would do"
        )
        about += f"; the first {len(rows[0])} rows beside the latest {len(rows[1])}"
        pictures.append(Chart("Drift of inputs", charts.drift_chart(moved), about))
    times = history.label_times()
    if len(times) > 1:
        pictures.append(Chart("Labels", charts.people_chart(times), "how many, and whose"))
    tiles = _tiles(found, counts, together, per_person, what)
    adaptive = getattr(service, "adaptive", None)
    if adaptive is not None:
        tiles += [
            NumberTile(f"Adaptive interval{name}", text, "times the model's own")
            for name, text in adaptive.told()
        ]
    return tiles, pictures, per_person


def _promise_charts(found: list[JudgedItem], what: str, numbers: bool) -> list[Chart]:
    parts = periods(found)
    note = f"random items, {parts[0].count} or so a point; in the bands lie 95 % if the promise holds"
    made = [
        Chart(f"{what.capitalize()} beside the promise", charts.promise_chart(parts, what), note),
        Chart(
            "Calibration",
            charts.calibration_chart(calibration_of(found), numbers),
            "on the line, probabilities are frequencies; below it the model is too sure",
        ),
    ]
    return made


def _tiles(
    found: list[JudgedItem], counts: Any, together: Any, per_person: Any, what: str
) -> list[NumberTile]:
    tiles = []
    for name, own in (
        (f"{what.capitalize()}, all rows", found),
        (f"{what.capitalize()}, answered alone", [one for one in found if not one.defer]),
    ):
        kept, size = sum(one.kept for one in own), len(own)
        if not size:
            tiles.append(NumberTile(name, "-", "no random item is labelled yet"))
            continue
        low, high = share_interval(kept, size)
        promised = sum(one.promised for one in own) / size
        about = f"{_percent(low)} to {_percent(high)} by {size} labels; promised {_percent(promised)}"
        tiles.append(NumberTile(name, _percent(kept / size), about, bad=high < promised))
    asked = counts.deferred / counts.items if counts.items else 0.0
    tiles.append(NumberTile("Handed over", _percent(asked), f"{counts.deferred} of {counts.items} rows"))
    tiles.append(
        NumberTile(
            "Waiting", f"{counts.queued}", f"{counts.queued_random} of them random, {counts.leased} in hand"
        )
    )
    said = f"{together.agreeing} of {together.items} items with several labels"
    tiles.append(
        NumberTile(
            "People agree", _percent(together.agreeing / together.items) if together.items else "-", said
        )
    )
    known = [(one.seconds, one.labels) for one in per_person if one.seconds is not None and one.labels]
    size = sum(count for _, count in known)
    mean = sum(seconds * count for seconds, count in known) / size if size else None
    tiles.append(
        NumberTile(
            "Time of a label",
            "-" if mean is None else f"{mean:.0f} s",
            f"{counts.labels} labels, {counts.skips} skips",
        )
    )
    return tiles


def _spans(service: Any, history: ServedHistory) -> list[Any]:
    """What came in, in at most 24 spans of equal length."""
    overview, now = service.store.overview, service.store.now()
    oldest = history.first_time()
    if oldest is None:
        return []
    length = max(1.0, (now - oldest) / _SPANS)
    found: list[Any] = overview.spans(length)
    return found[-_SPANS - 1 :]


def _halves(history: ServedHistory, count: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The first and the latest rows, none in both."""
    size = min(_ROWS, count // 2)
    if not size:
        return [], []
    return history.rows(size, newest=False), history.rows(size, newest=True)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
