"""The routes of a Label Studio ML backend: its projects get predictions, and its annotations come here."""

from __future__ import annotations

import asyncio
from html.parser import HTMLParser
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Depends, HTTPException, Request
from fastapi.responses import RedirectResponse, Response

from bayesdrop.harmless import visible
from bayesdrop.serve.auth import Caller, may
from bayesdrop.serve.routes.speech import collected, errors_told, json_body, reply, service_of
from bayesdrop.serve.service import Service
from bayesdrop.serve.store import Item
from bayesdrop.serve.store.ids import is_id
from bayesdrop.serve.transfer import FROM_NAME, TO_NAME, label_of_annotation, prediction_of, version_text

router = APIRouter()

_ANNOTATED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")


@router.get("/", include_in_schema=False)
@router.get("/health")
async def health(request: Request) -> Response:
    """That it runs; a browser that comes to / goes on to the desk."""
    if request.url.path == "/" and "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("/desk", 303)
    return reply({"status": "UP", "model_class": "bayesdrop"})


@router.post("/setup")
async def setup(request: Request, caller: Annotated[Caller, Depends(may("reader"))]) -> Response:
    """The version that answers. Nothing of the project is kept: every request brings its configuration."""
    await json_body(request)
    return reply({"model_version": version_text(service_of(request).registry.current.record)})


async def predict(request: Request, caller: Caller, payload: dict[str, Any]) -> Response:
    """Predictions of tasks: {"tasks": [{"id", "data"}], "project", "label_config"}.

    A task whose data cannot be read has the score 0, so that a person sees it first. Pictures must be data
    URLs: nothing is fetched from anywhere.
    """
    service = service_of(request)
    tasks = payload["tasks"]
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise HTTPException(422, "tasks must be a list of objects")
    if len(tasks) > service.settings.max_rows:
        raise HTTPException(422, f"at most {service.settings.max_rows} tasks")
    names = _names(payload.get("label_config"))
    project = payload.get("project")
    results = await asyncio.gather(*(_result(service, caller, task, project, names) for task in tasks))
    version = version_text(service.registry.current.record)
    return reply({"results": list(results), "model_version": version})


async def _result(
    service: Service, caller: Caller, task: dict[str, Any], project: Any, names: tuple[str, str]
) -> dict[str, Any]:
    serving = service.registry.current
    version = version_text(serving.record)
    external = _external(project, task.get("id"))
    known = await asyncio.to_thread(service.store.overview.by_external, external) if external else None
    if known is not None:
        # A task is asked for again and again, and is one item; a new version has its say once.
        if known.predictions[-1].model_id != serving.record.id:
            with errors_told():
                known = (await service.rescored([known], serving))[0]
        said = known.predictions[-1]
        return prediction_of(said.answer, said.uncertainty, version, *names)
    try:
        with errors_told():
            ask = service.answering.ask(serving, {})
            data = task.get("data")
            about = {"route": "label-studio", "person_id": caller.person.id}
            outside = [external] if external else []
            order = service.answering.order(serving, [data], ask, external=outside, **about)
        _, part = await collected(service, order)
    except HTTPException as error:
        if error.status_code != 422:
            raise
        return {"model_version": version, "score": 0.0, "result": [], "error": error.detail}
    answer = part.answers[0]
    return prediction_of(answer, answer["uncertainty"], version, *names)


@router.post("/webhook", status_code=201)
@router.post("/train", status_code=201)
async def webhook(
    request: Request, background: BackgroundTasks, caller: Annotated[Caller, Depends(may("labeller"))]
) -> dict[str, Any]:
    """Annotations that were made, changed or taken away there; a wish to train.

    A training takes longer than Label Studio waits: it goes on in the background.
    """
    payload, _ = await json_body(request)
    service = service_of(request)
    action = payload.get("action") if isinstance(payload, dict) else None
    if action in _ANNOTATED:
        return await _annotated(service, payload, changed=action == "ANNOTATION_UPDATED")
    if action == "ANNOTATION_DELETED":
        named = _annotation_name(payload.get("annotation"))
        if named is not None:
            await asyncio.to_thread(service.store.queue.take_back, named)
        return {"taken_back": named is not None}
    if action == "START_TRAINING":
        if not caller.person.may("admin"):
            raise HTTPException(403, "training needs the role admin")
        background.add_task(service.learning.refit_quietly, caller.person.id)
        return {"training": True}
    return {}


async def _annotated(service: Service, payload: dict[str, Any], *, changed: bool) -> dict[str, Any]:
    annotation = payload.get("annotation")
    item = await asyncio.to_thread(_item_of, service, payload)
    found = label_of_annotation(annotation)
    if item is None or found is None:
        return {"stored": False}
    value, skipped = found
    named = _annotation_name(annotation)
    by = annotation.get("completed_by") if isinstance(annotation, dict) else None
    who = by.get("id") if isinstance(by, dict) else by
    name = f"label studio {who}" if isinstance(who, int | str) else "label studio"

    def store() -> None:
        person = service.store.people.local(visible(name)[:100], "labeller")
        if changed and named is not None:
            service.store.queue.take_back(named)
        if not skipped:
            options: dict[str, Any] = {"source": "label studio", "external": named}
            service.store.queue.label(item.id, person.id, value, needs_lease=False, **options)

    with errors_told():
        if not skipped:
            value = service.checked_label(value, new_class=False)
        await asyncio.to_thread(store)
    return {"stored": not skipped}


def _item_of(service: Service, payload: dict[str, Any]) -> Item | None:
    task = payload.get("task")
    if not isinstance(task, dict):
        return None
    data = task.get("data")
    own = data.get("bayesdrop_item") if isinstance(data, dict) else None
    if isinstance(own, str) and is_id(own):
        return service.store.overview.item(own)
    project = payload.get("project")
    external = _external(project.get("id") if isinstance(project, dict) else project, task.get("id"))
    return service.store.overview.by_external(external) if external else None


def _external(project: Any, task: Any) -> str | None:
    """The name of a task: its project, without the time that stands behind the point, and its number."""
    if not isinstance(task, int | str) or isinstance(task, bool):
        return None
    return visible(f"label-studio:{str(project).partition('.')[0]}:{task}")[:200]


def _annotation_name(annotation: Any) -> str | None:
    number = annotation.get("id") if isinstance(annotation, dict) else None
    return visible(f"label-studio:{number}")[:200] if isinstance(number, int | str) else None


class _Config(HTMLParser):
    """Finds the first control of a labelling configuration; entities are never expanded."""

    def __init__(self) -> None:
        super().__init__()
        self.found: tuple[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        named = dict(attrs)
        if self.found is None and tag in ("choices", "number") and named.get("name") and named.get("toname"):
            self.found = str(named["name"]), str(named["toname"])


def _names(config: Any) -> tuple[str, str]:
    """What a project calls its control, and the object that it is about."""
    if not isinstance(config, str):
        return FROM_NAME, TO_NAME
    reader = _Config()
    reader.feed(config[:100_000])
    return reader.found or (FROM_NAME, TO_NAME)
