"""A server with a desk, in this process, whose clock tests turn; and browsers that sit down at it."""

from __future__ import annotations

import base64
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvicorn
from PIL import Image
from torch import nn

from bayesdrop.layers import BernoulliDropout
from bayesdrop.serve.app import create_app
from bayesdrop.serve.served.images import ImageModel, save_image_model
from bayesdrop.serve.service import Service
from bayesdrop.serve.settings import ServeSettings
from bayesdrop.serve.store import NewItem, NewRequest
from bayesdrop.serve.store.ids import new_id

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-sync",
    "--no-first-run",
]
EVIL = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"
CLASSES = ("zero", "one", EVIL)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, eq=False)
class Site:
    """A running server."""

    address: str
    service: Service
    clock: Clock

    def person(self, name: str, role: Any = "labeller") -> str:
        """A new person's token."""
        token = self.service.store.people.add(name, role)[1]
        self.service.guard.forget()
        return token

    def ask(
        self, uncertainty: float = 0.5, *, data: Any = None, reason: str = "unsure", **options: Any
    ) -> str:
        """An item that waits; its id."""
        store, record = self.service.store, self.service.registry.current.record
        self.clock.now += 1
        probs = [0.5, 0.3, 0.2]
        answer = {"label": CLASSES[0], "probs": probs, "entropy": 1.03, "mutual_information": 0.2}
        item = NewItem(new_id(store.now()), data or picture(), answer, uncertainty, True, reason, **options)
        store.add([NewRequest(new_id(store.now()), "predict", record.id, 50, 0, None, (item,), 1)])
        return item.id


def picture(seed: int = 0) -> dict[str, str]:
    """A small picture, as rows have it."""
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 8), dtype=np.uint8)
    file = BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return {"image": base64.b64encode(file.getvalue()).decode()}


def write_model(folder: Path) -> Path:
    """A classifier of three digits that has learned nothing yet, with what it could learn from."""
    from sklearn.datasets import load_digits

    found = load_digits(n_class=3)
    images = torch.from_numpy((found.images[:150] * 15).astype(np.uint8)).unsqueeze(1)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Flatten(),
        BernoulliDropout(nn.Linear(64, 16), p=0.1),
        nn.ReLU(),
        BernoulliDropout(nn.Linear(16, 3)),
    )
    model = ImageModel(
        net.eval(),
        CLASSES,
        (8, 8),
        num_draws=8,
        recipe={"epochs": 4, "lr": 0.01, "batch_size": 16},
        images=images,
        labels=torch.from_numpy(found.target[:150]).long(),
        held=torch.arange(150) >= 100,
    )
    save_image_model(model, folder / "three")
    return folder / "three"


@contextmanager
def running(settings: ServeSettings, clock: Clock) -> Iterator[Site]:
    """A server in a thread, until the end of the block."""
    app = create_app(settings)
    app.state.service.store.database.clock = clock
    ready = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            ready.set()

    server = Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert ready.wait(120)
        assert server.started
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Site(f"http://127.0.0.1:{port}", app.state.service, clock)
    finally:
        server.should_exit = True
        thread.join(60)


@contextmanager
def log_in(browser: Any, site: Site, token: str | None = None, **options: Any) -> Iterator[Any]:
    """A page of somebody who is logged in; nothing on it may run, fail or be fetched from elsewhere."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    tab = context.new_page()
    seen: list[str] = []
    tab.on(
        "console",
        lambda message: seen.append(message.text) if message.type in ("error", "warning") else None,
    )
    tab.on("pageerror", lambda error: seen.append(str(error)))
    tab.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
    tab.on(
        "request",
        lambda request: None if request.url.startswith((site.address, "data:")) else seen.append(request.url),
    )
    tab.goto(f"{site.address}/desk/login")
    if token is not None:
        tab.fill("#token", token)
        tab.click("button.main")
    tab.wait_for_selector("header.bar")
    yield tab
    assert not seen, seen
    assert tab.evaluate("() => window.ran === undefined")
    context.close()
