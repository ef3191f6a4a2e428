"""Kill a server with SIGKILL while it answers and while people label, start it again, and count.

    python benchmarks/serve_kills.py MODEL ROWS.json [--kills 20] [--database postgresql+psycopg://...]

Every request has a name (Idempotency-Key) and every label its item. What was acknowledged before a kill must
be there after it; what was not is sent again under the same name, and must be there once.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text


@dataclass
class Running:
    """A server that runs: its port, and how to kill it."""

    port: int
    kill: Callable[[], None]


@dataclass
class Ledger:
    """What was sent and what was acknowledged.

    Attributes:
        answered: item ids by the name of the request.
        labelled: labels by item.
        unsure: names of requests that were sent and not acknowledged.
        refused: statuses that were no success.
    """

    answered: dict[str, list[str]] = field(default_factory=dict)
    labelled: dict[str, str] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    refused: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def send(port: int, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """POST JSON to a server of this machine."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(
            "POST", path, json.dumps(body), {"content-type": "application/json", **(headers or {})}
        )
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content else None
    finally:
        connection.close()


def ask(port: int, ledger: Ledger, name: str, rows: Sequence[Any]) -> bool:
    """One request under a name; whether the server is still there."""
    with ledger.lock:
        ledger.unsure.add(name)
    try:
        status, answer = send(port, "/predict", {"rows": rows}, {"idempotency-key": name})
    except (OSError, http.client.HTTPException, ValueError):
        return False
    with ledger.lock:
        if status == 200:
            ledger.answered[name] = [row["item"] for row in answer["predictions"]]
            ledger.unsure.discard(name)
        else:
            ledger.refused.append(status)
    return True


def label(port: int, ledger: Ledger, value: str) -> bool:
    """Take an item and label it; whether the server is still there."""
    try:
        status, item = send(port, "/v1/next", {})
        if status != 200:
            return True
        status, _ = send(port, f"/v1/items/{item['item']}/label", {"value": value})
    except (OSError, http.client.HTTPException, ValueError):
        return False
    with ledger.lock:
        if status == 200:
            ledger.labelled[item["item"]] = value
        else:
            ledger.refused.append(status)
    return True


def one_life(
    server: Running, ledger: Ledger, rows: Sequence[Any], *, life: int, requests: int, labels: int, last: bool
) -> None:
    """Requests of four callers and labels of one person; a kill in their midst, but in the last life."""
    acknowledged = threading.Semaphore(0)
    names = [f"{life}-{number}" for number in range(requests)]
    todo = iter(names)
    lock = threading.Lock()

    def call() -> None:
        while True:
            with lock:
                name = next(todo, None)
            if name is None or not ask(server.port, ledger, name, rows[:2]):
                return
            acknowledged.release()

    def work() -> None:
        for _ in range(labels):
            if not label(server.port, ledger, "high"):
                return
            acknowledged.release()

    threads = [threading.Thread(target=call) for _ in range(4)] + [threading.Thread(target=work)]
    for thread in threads:
        thread.start()
    if not last:
        # Somewhere in the middle.
        for _ in range(random.Random(life).randint(2, max(3, requests // 2))):
            acknowledged.acquire(timeout=60)
        server.kill()
    for thread in threads:
        thread.join()


def survive(
    start: Callable[[], Running],
    database: str,
    rows: Sequence[Any],
    *,
    kills: int,
    requests: int,
    labels: int,
) -> dict[str, int]:
    """Lives that end in a kill, a last one that ends well, and what is found in the database."""
    ledger = Ledger()
    for life in range(kills + 1):
        server = start()
        for name in sorted(ledger.unsure):
            ask(server.port, ledger, name, rows[:2])
        one_life(server, ledger, rows, life=life, requests=requests, labels=labels, last=life == kills)
        if life == kills:
            for name in sorted(ledger.unsure):
                ask(server.port, ledger, name, rows[:2])
            server.kill()
    return counted(ledger, database)


def counted(ledger: Ledger, database: str) -> dict[str, int]:
    """What was acknowledged and is not there, what is there twice, and how much there is."""
    engine = create_engine(database)
    with engine.connect() as connection:

        def rows_of(query: str) -> list[Any]:
            return list(connection.execute(text(query)).fetchall())

        keys = [row[0] for row in rows_of("select key from requests where key is not null")]
        items = rows_of(
            "select r.key, i.id from items i join requests r on r.id = i.request_id where r.key is not null"
        )
        live = rows_of(
            "select item_id, value_json, count(*) from labels"
            " where undone is null and not skipped group by 1, 2"
        )
        sqlite = engine.dialect.name == "sqlite"
        broken = sqlite and rows_of("pragma integrity_check")[0][0] != "ok"
        orphans = rows_of(
            "select count(*) from items i left join predictions p on p.item_id = i.id where p.id is null"
        )[0][0]
    engine.dispose()
    found: dict[str, list[str]] = {}
    for key, item in items:
        found.setdefault(key, []).append(item)
    stored = {item: json.loads(value) for item, value, _ in live}
    return {
        "requests": len(ledger.answered),
        "labels": len(ledger.labelled),
        "lost requests": sum(
            sorted(found.get(name, [])) != sorted(own) for name, own in ledger.answered.items()
        ),
        "doubled requests": len(keys) - len(set(keys)) + sum(len(own) > 2 for own in found.values()),
        "unanswered requests": len(ledger.unsure),
        "lost labels": sum(stored.get(item) != value for item, value in ledger.labelled.items()),
        "doubled labels": len(live)
        - len({item for item, _, _ in live})
        + sum(count > 1 for *_, count in live),
        "refused": len(ledger.refused),
        "items without an answer": orphans,
        "damaged": int(broken),
    }


def command_start(model: str, home: Path, database: str) -> Callable[[], Running]:
    """Starts `bayesdrop serve` as a process of its own."""

    def start() -> Running:
        command = [sys.executable, "-m", "bayesdrop", "serve", model, "--home", str(home), "--port", "0"]
        command += ["--random-share", "0.5", "--database", database]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()

        def kill() -> None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()

        return Running(int(line.rsplit(":", 1)[1]), kill)

    return start


def main() -> None:
    """Kill, count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a folder of `bayesdrop fit` with a class 'high'")
    parser.add_argument("rows", help="a JSON file with two rows or more")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--requests", type=int, default=50, help="of a life")
    parser.add_argument("--labels", type=int, default=10, help="of a life")
    parser.add_argument("--database", help="URL of an empty one; SQLite if none is given")
    asked = parser.parse_args()
    rows = json.loads(Path(asked.rows).read_text())
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        database = asked.database or f"sqlite:///{home / 'desk.sqlite'}"
        start = command_start(asked.model, home, database)
        options = {"kills": asked.kills, "requests": asked.requests, "labels": asked.labels}
        print(json.dumps(survive(start, database, rows, **options), indent=1))


if __name__ == "__main__":
    main()
