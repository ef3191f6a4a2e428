"""The store: nothing half-written, nothing twice, no item in two hands, on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from bayesdrop.serve.store import KeyTaken, LeaseLost, NewItem, NewRequest, SavedModel, Store
from bayesdrop.serve.store.database import Database
from bayesdrop.serve.store.ids import is_id, new_id
from bayesdrop.serve.store.migrate import upgrade
from bayesdrop.serve.store.schema import metadata

Ask = Callable[..., str]


def test_migrations_lead_to_the_schema(database_url: str) -> None:
    database = Database(database_url)
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    database.close()


def test_an_older_schema_is_migrated_with_what_it_holds(database_url: str) -> None:
    database = Database(database_url, migrate=False)
    upgrade(database.engine, "0001")
    with database.engine.begin() as connection:
        connection.execute(text("insert into people (name, role, created) values ('ada', 'labeller', 1)"))
        connection.execute(
            text("insert into models (name, version, kind, task, digest, source, created)"
                 " values ('cats', 1, 'table', 'classification', 'd', 'origin', 1)")
        )  # fmt: skip
        connection.execute(
            text("insert into requests (id, route, num_rows, received) values ('r', 'p', 1, 1)")
        )
        connection.execute(
            text("insert into items (id, request_id, place, data_json, state, uncertainty, created)"
                 " values ('i', 'r', 0, '{}', 'done', 0.5, 1)")
        )  # fmt: skip
        connection.execute(
            text("insert into labels (item_id, person_id, value_json, created) values ('i', 1, '\"cat\"', 1)")
        )
    database.close()
    with Store(database_url) as store:
        (item,) = store.overview.labelled()
        assert (item.agreed, item.labels[0].person, item.labels[0].source) == ("cat", "ada", "desk")
        assert store.people.log_in(store.people.named("ada"), 60).csrf


def test_a_newer_schema_is_refused(database_url: str) -> None:
    database = Database(database_url)
    with database.engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = '9999'"))
    database.close()
    with pytest.raises(ValueError, match="newer bayesdrop"):
        Store(database_url)


def test_requests_are_stored_all_or_none(store: Store, model: SavedModel) -> None:
    def request(item_id: str) -> NewRequest:
        item = NewItem(item_id, {"a": 1.5}, {"label": "cat", "probs": [0.4, 0.6]}, 0.7, True, "unsure")
        return NewRequest(new_id(store.now()), "predict", model.id, 100, 3, None, (item,), 1, key=item_id[:4])

    good, twice = new_id(store.now()), new_id(store.now() + 1)
    with pytest.raises((IntegrityError, KeyTaken)):
        store.add([request(good), request(twice), request(twice)])
    assert store.overview.counts().items == store.overview.counts().requests == 0
    store.add([request(good)])
    (item,) = store.requests.by_key(good[:4]).items  # type: ignore[union-attr]
    assert item.data == {"a": 1.5}
    assert item.predictions[0].answer == {"label": "cat", "probs": [0.4, 0.6]}
    assert (item.predictions[0].seed, item.state) == (3, "queued")
    assert is_id(item.id)


def test_a_key_is_used_once(store: Store, model: SavedModel) -> None:
    one = NewRequest(new_id(1), "predict", model.id, 100, 0, None, (), 0, key="mine")
    store.add([one])
    with pytest.raises(KeyTaken):
        store.add([NewRequest(new_id(2), "predict", model.id, 100, 0, None, (), 0, key="mine")])
    assert store.overview.counts().requests == 1


def test_sure_items_are_not_queued_and_random_ones_are(store: Store, ask: Ask) -> None:
    ask(0.1, defer=False)
    seen = ask(0.1, defer=False, random=True)
    person, _ = store.people.add("ada", "labeller")
    item = store.queue.next_item(person.id)
    assert item is not None
    assert item.id == seen
    assert store.overview.counts().queued == 1


def test_the_most_uncertain_item_comes_first_and_random_ones_in_turn(store: Store, ask: Ask) -> None:
    by_doubt = {doubt: ask(doubt) for doubt in (0.2, 0.9, 0.5, 0.4)}
    first_random = ask(0.99, random=True)
    person, _ = store.people.add("ada", "labeller")
    order = []
    while (item := store.queue.next_item(person.id)) is not None:
        order.append(item.id)
        store.queue.label(item.id, person.id, "cat")
    assert order == [by_doubt[0.9], by_doubt[0.5], by_doubt[0.4], first_random, by_doubt[0.2]]


def test_the_next_item_is_unlike_the_last_one(store: Store, ask: Ask) -> None:
    ask(0.9, sketch=(0.0, 0.0))
    ask(0.89, sketch=(0.0, 0.01))
    other, another = ask(0.6, sketch=(5.0, 5.0)), ask(0.5, sketch=(-5.0, 5.0))
    person, _ = store.people.add("ada", "labeller")
    first = store.queue.next_item(person.id)
    assert first is not None
    store.queue.label(first.id, person.id, "cat")
    second = store.queue.next_item(person.id)
    assert second is not None
    assert second.id in (other, another)


def test_two_people_never_have_the_same_item(store: Store, ask: Ask) -> None:
    expected = {ask(0.5) for _ in range(12)}
    people = [store.people.add(name, "labeller")[0] for name in ("ada", "ben", "cyd")]
    got: list[str] = []

    def work(person_id: int) -> None:
        while (item := store.queue.next_item(person_id)) is not None:
            got.append(item.id)
            store.queue.label(item.id, person_id, "cat")

    threads = [threading.Thread(target=work, args=(person.id,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(expected)
    assert store.overview.counts().labels == 12


def test_a_lease_that_runs_out_goes_to_another(store: Store, ask: Ask, clock: object) -> None:
    item_id = ask(0.5)
    ada, _ = store.people.add("ada", "labeller")
    ben, _ = store.people.add("ben", "labeller")
    assert store.queue.next_item(ada.id) is not None
    assert store.queue.next_item(ben.id) is None
    clock.now += 301  # type: ignore[attr-defined]
    taken = store.queue.next_item(ben.id)
    assert taken is not None
    assert taken.id == item_id
    with pytest.raises(LeaseLost, match="run out"):
        store.queue.label(item_id, ada.id, "cat")
    assert [event.kind for event in store.events.latest(1)] == ["lease expired"]


def test_asking_again_gives_the_same_item(store: Store, ask: Ask) -> None:
    ask(0.5), ask(0.6)
    ada, _ = store.people.add("ada", "labeller")
    first, again = store.queue.next_item(ada.id), store.queue.next_item(ada.id)
    assert first is not None
    assert again is not None
    assert first.id == again.id
    assert store.overview.counts().leased == 1


def test_the_same_label_twice_is_one_label_and_another_is_refused(store: Store, ask: Ask) -> None:
    item_id = ask(0.5)
    ada, _ = store.people.add("ada", "labeller")
    store.queue.next_item(ada.id)
    for _ in range(2):
        item = store.queue.label(item_id, ada.id, "cat", note="clear")
    assert [label.value for label in item.labels] == ["cat"]
    with pytest.raises(LeaseLost, match="undo"):
        store.queue.label(item_id, ada.id, "dog")


def test_undo_gives_the_item_back(store: Store, ask: Ask) -> None:
    item_id = ask(0.5)
    ada, _ = store.people.add("ada", "labeller")
    store.queue.next_item(ada.id)
    store.queue.label(item_id, ada.id, "cat")
    assert store.queue.next_item(ada.id) is None
    item = store.queue.undo(ada.id)
    assert item is not None
    assert (item.id, item.labels, item.state) == (item_id, (), "queued")
    assert store.queue.label(item_id, ada.id, "dog").agreed == "dog"
    assert store.queue.undo(ada.id) is not None
    assert store.queue.undo(ada.id) is None


def test_a_skipped_item_goes_to_others_only(store: Store, ask: Ask) -> None:
    item_id = ask(0.5)
    ada, _ = store.people.add("ada", "labeller")
    ben, _ = store.people.add("ben", "labeller")
    store.queue.next_item(ada.id)
    store.queue.skip(item_id, ada.id)
    assert store.queue.next_item(ada.id) is None
    item = store.queue.next_item(ben.id)
    assert item is not None
    assert item.id == item_id
    assert store.overview.counts().skips == 1


def test_a_second_opinion_comes_from_somebody_else(store: Store, ask: Ask) -> None:
    item_id = ask(0.5)
    ada, _ = store.people.add("ada", "labeller")
    ben, _ = store.people.add("ben", "labeller")
    store.queue.next_item(ada.id)
    assert store.queue.label(item_id, ada.id, "cat").state == "done"
    store.queue.ask_opinions(item_id, 2)
    assert store.queue.next_item(ada.id) is None
    item = store.queue.next_item(ben.id)
    assert item is not None
    item = store.queue.label(item.id, ben.id, "dog")
    assert (item.state, item.disagreement, item.agreed) == ("done", True, None)
    assert [one.id for one in store.overview.labelled(disagreeing=True)] == [item_id]


def test_tokens_are_stored_as_hashes_and_end_when_asked(store: Store) -> None:
    ada, token = store.people.add("ada", "labeller")
    assert store.people.by_token(token) == ada
    assert store.people.by_token(token + "x") is None
    with store.database.read() as connection:
        held = connection.execute(text("select token_hash from people where name = 'ada'")).scalar_one()
    assert token not in held
    assert len(held) == 64
    new = store.people.renew("ada")
    assert store.people.by_token(token) is None
    assert store.people.by_token(new) == ada
    store.people.disable("ada")
    assert store.people.by_token(new) is None


def test_a_login_ends_by_time_and_by_hand(store: Store, clock: object) -> None:
    ada, _ = store.people.add("ada", "labeller")
    session = store.people.log_in(ada, 60)
    found = store.people.by_cookie(session.cookie)
    assert found is not None
    assert found[0] == ada
    store.people.log_out(session.cookie)
    assert store.people.by_cookie(session.cookie) is None
    session = store.people.log_in(ada, 60)
    clock.now += 61  # type: ignore[attr-defined]
    assert store.people.by_cookie(session.cookie) is None


def test_versions_are_kept_and_one_step_back_is_there(store: Store, model: SavedModel) -> None:
    second = store.versions.add(
        name="cats", kind="table", task="classification", digest="1" * 64, source="v2", about={}, parent=1
    )
    assert (second.version, store.versions.active("cats")) == (2, model)
    store.versions.activate(second)
    active = store.versions.active("cats")
    assert active is not None
    assert active.version == 2
    back = store.versions.before(active)
    assert back is not None
    store.versions.activate(back, why="one step back")
    assert [one.active for one in store.versions.all("cats")] == [False, True]


def test_the_overview_counts(store: Store, ask: Ask, clock: object) -> None:
    ask(0.25, defer=False), ask(0.75)
    clock.now += 60  # type: ignore[attr-defined]
    ask(0.5)
    spans = store.overview.spans(60)
    assert [(span.items, span.deferred, span.uncertainty) for span in spans] == [(2, 1, 0.5), (1, 1, 0.5)]
    ada, _ = store.people.add("ada", "labeller")
    item = store.queue.next_item(ada.id)
    assert item is not None
    clock.now += 8  # type: ignore[attr-defined]
    store.queue.label(item.id, ada.id, "cat")
    (count,) = store.overview.per_person()
    assert (count.person, count.labels, count.seconds) == ("ada", 1, 8.0)
    counts = store.overview.counts()
    assert (counts.items, counts.queued, counts.done, counts.deferred) == (3, 1, 1, 2)


@pytest.mark.parametrize("url", ["mysql://x", "nonsense", "sqlite://"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="database"):
        Store(url)


def test_a_database_that_cannot_be_reached_is_told_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be opened") as caught:
        Store("postgresql://me:secret@127.0.0.1:1/desk?connect_timeout=2")
    assert "secret" not in str(caught.value)
