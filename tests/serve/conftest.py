"""Stores on both databases, with a clock that tests turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from tests.serve import postgres

from bayesdrop.serve.store import Model, NewItem, NewRequest, Store
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
def model(store: Store) -> Model:
    added = store.versions.add(
        name="cats", kind="table", task="classification", digest="0" * 64, source="origin", about={}
    )
    return store.versions.activate(added)


@pytest.fixture
def ask(store: Store, model: Model) -> Callable[..., str]:
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
