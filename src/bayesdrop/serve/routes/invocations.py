"""POST /invocations, /ping and /version, as a scoring server of MLflow has them."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import Response

from bayesdrop.serve.auth import Caller, may
from bayesdrop.serve.routes.plain import heading
from bayesdrop.serve.routes.speech import collected, errors_told, json_body, named, reply, service_of
from bayesdrop.serve.served import ServedModel
from bayesdrop.version import __version__

router = APIRouter()

_FORMS = ("dataframe_split", "dataframe_records", "inputs", "instances")


@router.get("/ping")
async def ping(request: Request) -> Response:
    """Whether it answers."""
    return Response(b"\n", 200 if service_of(request).registry.is_ready else 503)


@router.get("/version")
async def version() -> Response:
    """Of the package."""
    return Response(__version__, media_type="text/plain")


@router.post("/invocations")
async def invocations(request: Request, caller: Annotated[Caller, Depends(may("reader"))]) -> Response:
    """Answers of a frame: dataframe_split, dataframe_records, inputs or instances, and params."""
    payload, body = await json_body(request)
    given = [form for form in _FORMS if isinstance(payload, dict) and form in payload]
    if len(given) != 1:
        raise HTTPException(400, f"the body must be an object with one of {', '.join(_FORMS)}")
    parameters = payload.get("params") or {}
    if not isinstance(parameters, dict):
        raise HTTPException(400, "params must be an object")
    service = service_of(request)
    with errors_told():
        serving = service.registry.current
        rows = _rows(given[0], payload[given[0]], serving.model)
        ask = service.answering.ask(serving, parameters)
        about = {"route": "mlflow", "person_id": caller.person.id, **named(request, body)}
        order = service.answering.order(serving, rows, ask, **about)
    order, part = await collected(service, order)
    pairs = zip(part.items, part.answers, strict=True)
    predictions = [{"item": item, **answer} for item, answer in pairs]
    return reply({"predictions": predictions, "metadata": heading(order)})


def _rows(form: str, given: Any, model: ServedModel) -> list[Any]:
    if form == "dataframe_split":
        columns, data = (given.get(key) if isinstance(given, dict) else None for key in ("columns", "data"))
        if not isinstance(columns, list) or not isinstance(data, list):
            raise ValueError('dataframe_split must be {"columns": [...], "data": [[...]]}.')
        if len(set(map(str, columns))) != len(columns):
            raise ValueError("every column must have its own name.")
        if not all(isinstance(row, list) and len(row) == len(columns) for row in data):
            raise ValueError(f"every row of dataframe_split must have {len(columns)} cells.")
        return [dict(zip(map(str, columns), row, strict=True)) for row in data]
    if isinstance(given, list):
        return given
    if isinstance(given, dict) and form == "inputs":
        return list(model.rows_of({str(name): _array(values) for name, values in given.items()}))
    raise ValueError(f"{form} must be a list of rows.")


def _array(values: Any) -> Any:
    array = np.array(values) if isinstance(values, list) else np.empty(0)
    # Numbers and texts mixed: as they are.
    if array.dtype.kind not in "iufb":
        array = np.empty(len(values), dtype=object)
        array[:] = values
    return array
