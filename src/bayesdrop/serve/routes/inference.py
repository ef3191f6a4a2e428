"""The Open Inference Protocol, version 2, which clients of KServe and Triton speak."""

from __future__ import annotations

import asyncio
import math
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import Response

from bayesdrop.serve.auth import Caller, may
from bayesdrop.serve.registry import Serving
from bayesdrop.serve.routes.plain import parameters_of
from bayesdrop.serve.routes.speech import collected, errors_told, json_body, named, reply, service_of
from bayesdrop.version import __version__

router = APIRouter(prefix="/v2")

_KINDS: dict[str, Any] = {
    "BOOL": bool,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": object,
}


@router.get("")
async def server() -> Response:
    """What the server is."""
    return reply({"name": "bayesdrop", "version": __version__, "extensions": []})


@router.get("/health/live")
async def live() -> Response:
    """That it runs."""
    return reply({"live": True})


@router.get("/health/ready")
async def ready(request: Request) -> Response:
    """Whether it answers. The specification calls the key `live` here, its readers expect `ready`."""
    is_ready = service_of(request).registry.is_ready
    return reply({"ready": is_ready, "live": is_ready}, 200 if is_ready else 503)


async def _serving(request: Request, name: str, version: str | None) -> Serving:
    registry = service_of(request).registry
    if name != registry.name or not registry.is_ready:
        raise HTTPException(404, f"there is no model {name!r}; there is {registry.name!r}")
    if version is None:
        return registry.current
    known = version.isdecimal() and len(version) < 10
    with errors_told():
        found = await asyncio.to_thread(registry.numbered, int(version)) if known else None
    if found is None:
        raise HTTPException(404, f"there is no version {version!r} of {name!r}")
    return found


@router.get("/models/{name}")
@router.get("/models/{name}/versions/{version}")
async def about(
    request: Request,
    name: str,
    caller: Annotated[Caller, Depends(may("reader"))],
    version: str | None = None,
) -> Response:
    """What the model takes and gives."""
    serving = await _serving(request, name, version)
    registry = service_of(request).registry
    versions = await asyncio.to_thread(service_of(request).store.versions.all, registry.name)
    model = serving.model
    return reply(
        {
            "name": registry.name,
            "versions": [str(one.version) for one in reversed(versions)],
            "platform": f"bayesdrop_{model.kind}",
            "inputs": [spec.as_dict() for spec in model.inputs],
            "outputs": [spec.as_dict() for spec in model.outputs],
            "parameters": {"digest": model.digest, "num_draws": model.num_draws, "task": model.task},
        }
    )


@router.get("/models/{name}/ready")
@router.get("/models/{name}/versions/{version}/ready")
async def model_ready(request: Request, name: str, version: str | None = None) -> Response:
    """Whether the model answers."""
    serving = await _serving(request, name, version)
    return reply({"name": serving.record.name, "ready": True})


@router.post("/models/{name}/infer")
@router.post("/models/{name}/versions/{version}/infer")
async def infer(
    request: Request,
    name: str,
    caller: Annotated[Caller, Depends(may("reader"))],
    version: str | None = None,
) -> Response:
    """Answers of rows in named tensors."""
    payload, body = await json_body(request)
    if not isinstance(payload, dict) or not isinstance(payload.get("inputs"), list):
        raise HTTPException(400, 'the body must be {"inputs": [{"name", "shape", "datatype", "data"}]}')
    parameters = payload.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise HTTPException(400, "parameters must be an object")
    serving, service = await _serving(request, name, version), service_of(request)
    wanted = _wanted(payload.get("outputs"), serving)
    with errors_told():
        tensors = dict(_tensor(one) for one in payload["inputs"])
        if len(tensors) != len(payload["inputs"]):
            raise ValueError("every input must have its own name.")
        rows = serving.model.rows_of(tensors)
        ask = service.answering.ask(serving, parameters)
        about = {"route": "v2", "person_id": caller.person.id, **named(request, body)}
        order = service.answering.order(serving, rows, ask, **about)
    order, part = await collected(service, order)
    columns = {
        spec.name: [answer.get(spec.name) for answer in part.answers] for spec in serving.model.outputs
    }
    made = {
        "model_name": order.serving.record.name,
        "model_version": str(order.serving.record.version),
        "id": str(payload["id"]) if "id" in payload else order.id,
        "parameters": {
            **parameters_of(order.ask),
            "digest": order.serving.record.digest,
            "request": order.id,
        },
        "outputs": [
            _output(spec.name, spec.datatype, columns[spec.name])
            for spec in serving.model.outputs
            if wanted is None or spec.name in wanted
        ],
    }
    return reply(made)


def _wanted(outputs: Any, serving: Serving) -> set[str] | None:
    if outputs is None:
        return None
    known = {spec.name for spec in serving.model.outputs}
    listed = outputs if isinstance(outputs, list) else [None]
    names = [one.get("name") if isinstance(one, dict) else None for one in listed]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise HTTPException(400, f"there is no output {unknown[0]!r}; there are {', '.join(sorted(known))}")
    return set(map(str, names))


def _tensor(given: Any) -> tuple[str, Any]:
    """The name of an input, and its values as an array of its shape."""
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise ValueError("an input must be an object with a name.")
    name: str = given["name"]
    shape, kind, data = (given.get(key) for key in ("shape", "datatype", "data"))
    if kind not in _KINDS:
        raise ValueError(f"the datatype of {name!r} must be one of {', '.join(_KINDS)}; got {kind!r}.")
    good = isinstance(shape, list) and shape and all(type(side) is int and side >= 0 for side in shape)
    if not good or not isinstance(shape, list) or not isinstance(data, list):
        raise ValueError(f"{name!r} must have a shape, a list of whole numbers, and data, a list.")
    flat, size = _flat(data, len(shape)), math.prod(shape)
    if len(flat) != size:
        raise ValueError(f"{name!r} must have {size} values for its shape; got {len(flat)}.")
    if kind == "BYTES":
        if not all(isinstance(value, str) or value is None for value in flat):
            raise ValueError(f"{name!r} must be texts.")
        array = np.empty(len(flat), dtype=object)
        array[:] = flat
        return name, array.reshape(shape)
    allowed = (bool,) if kind == "BOOL" else (int, float) if kind.startswith("FP") else (int,)
    if not all(type(value) in allowed or (value is None and kind.startswith("FP")) for value in flat):
        raise ValueError(f"{name!r} must be numbers of the datatype {kind}.")
    try:
        if any(value is None for value in flat):
            # A missing cell: only a table has such, and takes them as they are.
            array = np.empty(len(flat), dtype=object)
            array[:] = flat
            return name, array.reshape(shape)
        return name, np.array(flat, dtype=_KINDS[kind]).reshape(shape)
    except OverflowError as error:
        raise ValueError(f"{name!r} must fit into {kind}.") from error


def _flat(data: list[Any], depth: int) -> list[Any]:
    """Row-major values of data that is nested as its shape says, or flat already."""
    for _ in range(depth - 1):
        if not any(isinstance(part, list) for part in data):
            break
        if not all(isinstance(part, list) for part in data):
            raise ValueError("data must be nested evenly.")
        data = [value for part in data for value in part]
    return data


def _output(name: str, datatype: str, values: list[Any]) -> dict[str, Any]:
    shape = [len(values)]
    inner = values[0] if values else None
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0] if inner else None
    return {"name": name, "datatype": datatype, "shape": shape, "data": _flat(values, len(shape))}
