"""Batches: together what comes together, bounded, stored before it is answered, finished before a stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.serve.models import Fitted, serving

from bayesdrop.serve.batching import Answered, BatchedJob, Batcher, Full, Stopping
from bayesdrop.serve.served import Answers, Ask, BadRow, ServedModel

ASK = Ask(10, 0, None)


class Echo(ServedModel):
    """Answers with what it is given, when it is let."""

    kind, task, digest, classes = "torch", "regression", "0" * 64, ()

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.open, self.entered = threading.Event(), threading.Semaphore(0)
        self.open.set()

    def rows_of(self, tensors: Any) -> list[dict[str, Any]]:
        return []

    def row(self, given: Any) -> dict[str, Any]:
        return {"x": given}

    def check(self, rows: Sequence[dict[str, Any]]) -> None:
        pass

    def predict(self, rows: Sequence[dict[str, Any]], ask: Ask) -> Answers:
        self.entered.release()
        assert self.open.wait(60)
        if any(row["x"] == "bad" for row in rows):
            raise BadRow("bad")
        self.batches.append(len(rows))
        count = len(rows)
        return Answers(
            {"mean": [row["x"] for row in rows]}, np.zeros(count), np.zeros(count, dtype=bool), [""] * count,
            np.zeros((count, 1)),
        )  # fmt: skip


@contextmanager
def batcher(store: Callable[[Any], None] = lambda new: None, **options: Any) -> Iterator[Batcher]:
    made = Batcher(store, linger=0.0, **options)
    try:
        yield made
    finally:
        made.stop(30)


def submit(runs: Batcher, model: Echo, *values: Any, ask: Ask = ASK, record: Any = None) -> Future[Answered]:
    runs.reserve(len(values))
    done = runs.submit(BatchedJob(model, [{"x": value} for value in values], ask, record))
    done.add_done_callback(lambda _: runs.release(len(values)))
    return done


def held(model: Echo, runs: Batcher) -> Future[Answered]:
    """A job that keeps the only worker busy until the model is opened."""
    model.open.clear()
    first = submit(runs, model, "first")
    assert model.entered.acquire(timeout=60)
    return first


def test_what_waits_together_runs_together_and_is_given_apart() -> None:
    model = Echo()
    with batcher() as runs:
        held(model, runs)
        jobs = [submit(runs, model, number, number + 0.5) for number in range(5)]
        other = submit(runs, model, "other", ask=Ask(10, 1, None))
        model.open.set()
        told = [job.result(60).answers.columns["mean"] for job in jobs]
        assert other.result(60).rows == [{"x": "other"}]
    assert told == [[number, number + 0.5] for number in range(5)]
    assert model.batches == [1, 10, 1]


def test_a_batch_has_its_largest_size() -> None:
    model = Echo()
    with batcher(batch_rows=4) as runs:
        held(model, runs)
        jobs = [submit(runs, model, number, number) for number in range(5)]
        model.open.set()
        for job in jobs:
            job.result(60)
    assert model.batches == [1, 4, 4, 2]


def test_a_bad_row_spoils_its_own_request_alone() -> None:
    model = Echo()
    with batcher() as runs:
        held(model, runs)
        good, bad, fine = submit(runs, model, 1), submit(runs, model, "bad"), submit(runs, model, 2)
        model.open.set()
        assert good.result(60).answers.columns["mean"] == [1]
        assert fine.result(60).answers.columns["mean"] == [2]
        with pytest.raises(BadRow):
            bad.result(60)


def test_the_queue_is_bounded_and_says_when_to_come_again() -> None:
    model = Echo()
    with batcher(queue_rows=5) as runs:
        held(model, runs)
        jobs = [submit(runs, model, number, number) for number in range(2)]
        with pytest.raises(Full) as caught:
            submit(runs, model, 1)
        assert caught.value.retry_after >= 1
        model.open.set()
        for job in jobs:
            job.result(60)


def test_an_answer_is_stored_before_it_is_given_and_many_in_one_transaction() -> None:
    model, written = Echo(), []
    gate, entered = threading.Event(), threading.Semaphore(0)

    def store(new: Sequence[Any]) -> None:
        entered.release()
        assert gate.wait(60)
        written.append(list(new))

    with batcher(store) as runs:
        first = submit(runs, model, 1, record=lambda part: "first")
        assert entered.acquire(timeout=60)
        others = [
            submit(runs, model, n, ask=Ask(10, n, None), record=lambda part, n=n: n) for n in range(1, 4)
        ]
        for _ in range(4):
            assert model.entered.acquire(timeout=60)
        assert not first.done()
        gate.set()
        for job in (first, *others):
            job.result(60)
    assert written[0] == ["first"]
    assert sorted(one for part in written[1:] for one in part) == [1, 2, 3]
    assert len(written) <= 4


def test_a_request_that_cannot_be_stored_fails_alone() -> None:
    model = Echo()

    def store(new: Sequence[Any]) -> None:
        if "wrong" in new:
            raise ValueError("taken")

    with batcher(store) as runs:
        held(model, runs)
        good = submit(runs, model, 1, record=lambda part: "good")
        wrong = submit(runs, model, 2, record=lambda part: "wrong")
        model.open.set()
        assert good.result(60)
        with pytest.raises(ValueError, match="taken"):
            wrong.result(60)


def test_a_stop_finishes_what_was_accepted_and_takes_nothing_more() -> None:
    model = Echo()
    with batcher() as runs:
        held(model, runs)
        jobs = [submit(runs, model, number) for number in range(3)]
        stopped: list[bool] = []
        thread = threading.Thread(target=lambda: stopped.append(runs.stop(60)))
        thread.start()
        while True:
            try:
                runs.reserve(1)
            except Stopping:
                break
            runs.release(1)
        model.open.set()
        thread.join()
        assert [job.result(0).rows for job in jobs] == [[{"x": number}] for number in range(3)]
        assert stopped == [True]


def test_a_full_server_answers_429(kinds: Fitted, tmp_path: Path) -> None:
    with serving(kinds, tmp_path / "desk", queue_rows=4) as client:
        service = client.app.state.service  # type: ignore[attr-defined]
        service.batcher.reserve(4)
        answer = client.post("/predict", json={"rows": kinds.rows[:1]})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        service.batcher.release(4)
        assert client.post("/predict", json={"rows": kinds.rows[:1]}).status_code == 200
