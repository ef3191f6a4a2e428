"""Batcher: requests that arrive together run as one batch, and are on the disk before they are answered.

Threads take what waits, predict it in one go, and hand it to a writer. The writer stores all that has been
handed to it meanwhile in one transaction, and only then are the callers answered: one wait for the disk
serves many requests.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

from bayesdrop.serve.served import Answers, Ask, ServedModel

if TYPE_CHECKING:
    from bayesdrop.serve.store import NewRequest

__all__ = ["Answered", "BatchedJob", "Batcher", "Full", "Stopping"]

_log = logging.getLogger("bayesdrop.serve")


class Full(Exception):
    """More rows wait than may.

    Attributes:
        retry_after: seconds after which there may be room.
    """

    def __init__(self, retry_after: int) -> None:
        super().__init__("the queue is full")
        self.retry_after = retry_after


class Stopping(Exception):
    """The server takes nothing any more."""


@dataclass(frozen=True, eq=False)
class Answered:
    """A job that was predicted.

    Attributes:
        rows: as they are stored.
        answers: what the model said.
    """

    rows: list[dict[str, Any]]
    answers: Answers


@dataclass(frozen=True, eq=False)
class BatchedJob:
    """Rows to answer.

    Attributes:
        model: that answers them.
        rows: as `ServedModel.row` gave them.
        ask: with which draws.
        record: makes what is stored of an answer; None to store nothing.
        done: is given the answer once it is stored, or the error.
    """

    model: ServedModel
    rows: Sequence[dict[str, Any]]
    ask: Ask
    record: Callable[[Answered], NewRequest] | None
    done: Future[Answered] = field(default_factory=Future)

    def goes_with(self, other: BatchedJob) -> bool:
        """Whether both can run in one batch."""
        return self.model is other.model and self.ask == other.ask


class Batcher:
    """Runs jobs.

    Args:
        store: writes requests; all of a list or none.
        workers: threads that predict.
        batch_rows: rows that run together at most.
        linger: seconds that a batch waits for company.
        queue_rows: rows that may wait.
        told: is given the rows and answers of every batch.
    """

    def __init__(
        self,
        store: Callable[[Sequence[NewRequest]], None],
        *,
        workers: int = 1,
        batch_rows: int = 512,
        linger: float = 0.002,
        queue_rows: int = 100_000,
        told: Callable[[Answers], None] = lambda answers: None,
    ) -> None:
        self._store, self._told = store, told
        self._batch_rows, self._linger, self._most = batch_rows, linger, queue_rows
        self._waiting: deque[BatchedJob] = deque()
        self._changed = threading.Condition()
        self._reserved = 0
        self._rate = 100.0
        self._stopping = False
        self._written: queue.SimpleQueue[tuple[BatchedJob, Answered] | None] = queue.SimpleQueue()
        self._workers = [
            threading.Thread(target=self._work, name=f"predict-{place}", daemon=True)
            for place in range(workers)
        ]
        self._writer = threading.Thread(target=self._write, name="store", daemon=True)
        for thread in (*self._workers, self._writer):
            thread.start()

    @property
    def rows_waiting(self) -> int:
        """Rows that were accepted and not answered yet."""
        return self._reserved

    def reserve(self, rows: int) -> None:
        """Make room for rows, to be given back with `release`; raises `Full` or `Stopping`."""
        with self._changed:
            if self._stopping:
                raise Stopping
            if self._reserved and self._reserved + rows > self._most:
                raise Full(min(60, max(1, math.ceil(self._reserved / self._rate))))
            self._reserved += rows

    def release(self, rows: int) -> None:
        """Give back room for rows that were answered, or never will be."""
        with self._changed:
            self._reserved -= rows
            self._changed.notify_all()

    def submit(self, job: BatchedJob) -> Future[Answered]:
        """Run a job for which room was reserved."""
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()
        return job.done

    def stop(self, timeout: float) -> bool:
        """Take nothing more, finish what was accepted, end the threads; whether all was finished in time."""
        end = monotonic() + timeout
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            while self._reserved and (left := end - monotonic()) > 0:
                self._changed.wait(min(left, 0.1))
            finished = not self._reserved
            self._changed.notify_all()
        for thread in self._workers:
            thread.join(max(0.1, end - monotonic()))
        self._written.put(None)
        self._writer.join(max(0.1, end - monotonic()))
        return finished

    # threads that predict

    def _work(self) -> None:
        torch.set_num_threads(1)
        while (jobs := self._batch()) is not None:
            started = monotonic()
            self._run(jobs)
            rows = sum(len(job.rows) for job in jobs)
            self._rate = 0.9 * self._rate + 0.1 * rows / max(1e-6, monotonic() - started)

    def _batch(self) -> list[BatchedJob] | None:
        """Jobs that run together, the oldest and those that go with it; None at the end."""
        with self._changed:
            while not self._waiting:
                if self._stopping and not self._reserved:
                    return None
                self._changed.wait(1.0)
            end = monotonic() + self._linger
            while sum(len(job.rows) for job in self._waiting) < self._batch_rows and not self._stopping:
                left = end - monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            if not self._waiting:  # another thread took them
                return []
            first = self._waiting.popleft()
            taken, rows = [first], len(first.rows)
            others: deque[BatchedJob] = deque()
            while self._waiting:
                job = self._waiting.popleft()
                if first.goes_with(job) and rows + len(job.rows) <= self._batch_rows:
                    taken.append(job)
                    rows += len(job.rows)
                else:
                    others.append(job)
            self._waiting = others
            if others:
                self._changed.notify()
            return taken

    def _run(self, jobs: list[BatchedJob]) -> None:
        if not jobs:
            return
        model, ask = jobs[0].model, jobs[0].ask
        try:
            rows = model.canonical([row for job in jobs for row in job.rows])
            answers = model.predict(rows, ask)
            self._told(answers)
        except Exception as error:
            if len(jobs) > 1:
                # One bad row spoils no other request.
                for job in jobs:
                    self._run([job])
                return
            _fail(jobs[0], error)
            return
        start = 0
        for job in jobs:
            end = start + len(job.rows)
            part = Answered(rows[start:end], _part(answers, start, end))
            start = end
            if job.record is None:
                _give(job, part)
            else:
                self._written.put((job, part))

    # the thread that writes

    def _write(self) -> None:
        while (first := self._written.get()) is not None:
            together = [first]
            ended = False
            while True:
                try:
                    more = self._written.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    ended = True
                    break
                together.append(more)
            self._commit(together)
            if ended:
                return

    def _commit(self, together: list[tuple[BatchedJob, Answered]]) -> None:
        try:
            self._store([job.record(part) for job, part in together if job.record is not None])
        except Exception as error:
            if len(together) > 1:
                for pair in together:
                    self._commit([pair])
                return
            if not isinstance(error, ValueError):
                _log.exception("an answer could not be stored")
            _fail(together[0][0], error)
            return
        for job, part in together:
            _give(job, part)


def _give(job: BatchedJob, part: Answered) -> None:
    # Whoever waited may have gone: that must not end the thread.
    with suppress(InvalidStateError):
        job.done.set_result(part)


def _fail(job: BatchedJob, error: Exception) -> None:
    with suppress(InvalidStateError):
        job.done.set_exception(error)


def _part(answers: Answers, start: int, end: int) -> Answers:
    if (start, end) == (0, len(answers)):
        return answers
    return Answers(
        {name: values[start:end] for name, values in answers.columns.items()},
        answers.uncertainty[start:end],
        answers.defer[start:end],
        answers.reason[start:end],
        answers.sketch[start:end],
    )
