"""create_app(): the web application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from bayesdrop.serve import desk
from bayesdrop.serve.auth import NeedsLogin
from bayesdrop.serve.metrics import Meter
from bayesdrop.serve.routes import inference, invocations, label_studio, labelling, login, plain, versions
from bayesdrop.serve.service import Service
from bayesdrop.serve.settings import ServeSettings
from bayesdrop.serve.shield import Shield
from bayesdrop.version import __version__

__all__ = ["create_app"]


def create_app(settings: ServeSettings) -> FastAPI:
    """The application of a server: its routes, and `app.state.service` behind them.

    Args:
        settings: how it runs.
    """
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    # No pages about the API: they would load scripts from elsewhere.
    app = FastAPI(title="bayesdrop", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.add_middleware(Meter, metrics=service.metrics)
    app.add_middleware(Shield, settings=settings)
    for part in (plain, inference, invocations, label_studio, labelling, versions, login, desk):
        app.include_router(part.router)
    static = Path(desk.__file__).parent / "static"
    app.mount("/desk/static", StaticFiles(directory=static), name="static")
    app.add_exception_handler(HTTPException, _told)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(NeedsLogin, _to_login)
    return app


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, dict(error.headers or {}))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"error": f"{where}: {first['msg']}"}, 422)


async def _to_login(request: Request, error: Exception) -> Response:
    # A script of the page is told; a browser is sent to the login page.
    if request.method != "GET" or request.headers.get("hx-request"):
        return JSONResponse({"error": "log in first"}, 401)
    return RedirectResponse("/desk/login", 303)
