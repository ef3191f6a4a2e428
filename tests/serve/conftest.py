"""Stores on both databases, with a clock that tests turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from sqlalchemy import create_engine, text
from tests.serve import postgres
from tests.serve.models import Fitted, fit_folder

from bayesdrop.serve.served.images import ImageModel, save_image_model
from bayesdrop.serve.store import NewItem, NewRequest, SavedModel, Store
from bayesdrop.serve.store.ids import new_id


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    reason = postgres.why_not()
    if reason:
        pytest.skip(reason)
    with postgres.server() as url:
        yield url


_numbers = count()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'desk.sqlite'}"
        return
    server = request.getfixturevalue("postgres_server")
    name = f"desk{next(_numbers)}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"create database {name}"))
    engine.dispose()
    yield server.removesuffix("postgres") + name


@pytest.fixture
def store(database_url: str, clock: Clock) -> Iterator[Store]:
    with Store(database_url, clock=clock) as made:
        yield made


@pytest.fixture
def model(store: Store) -> SavedModel:
    added = store.versions.add(
        name="cats", kind="table", task="classification", digest="0" * 64, source="origin", about={}
    )
    return store.versions.activate(added)


@pytest.fixture
def ask(store: Store, model: SavedModel) -> Callable[..., str]:
    """Stores a request of one item and gives the item's id."""

    def stored(uncertainty: float = 0.5, *, defer: bool = True, **options: object) -> str:
        item = NewItem(
            new_id(store.now()),
            {"size": 1},
            {"label": "cat"},
            uncertainty,
            defer,
            "why",
            **options,  # type: ignore[arg-type]
        )
        one = NewRequest(new_id(store.now()), "predict", model.id, 100, 0, None, (item,), 1)
        store.add([one])
        return item.id

    return stored


# models


@pytest.fixture(scope="session")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """A regression."""
    return fit_folder(tmp_path_factory.mktemp("prices"), "price")


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """A classification."""
    return fit_folder(tmp_path_factory.mktemp("kinds"), "kind")


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of grey images, 8 x 8, bright on the left or on the right."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    labels = torch.tensor([number % 2 for number in range(80)])
    images = random.integers(0, 80, size=(80, 1, 8, 8))
    images[labels.numpy() == 0, :, :, :4] += 150
    images[labels.numpy() == 1, :, :, 4:] += 150
    net = torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(64, 16),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(16, 2),
    )
    made = ImageModel(
        net,
        ("left", "right"),
        (8, 8),
        mean=(0.3,),
        std=(0.3,),
        num_draws=10,
        defer_above=0.6,
        recipe={"epochs": 3},
        images=torch.from_numpy(images.astype(np.uint8)),
        labels=labels,
        held=torch.arange(80) >= 60,
    )
    folder = tmp_path_factory.mktemp("pictures") / "sides"
    save_image_model(made, folder)
    return folder
