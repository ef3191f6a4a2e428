"""Engines: independent tasks on processes of this machine or on a Ray cluster; lost ones are run again."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

import torch

from bayesdrop.errors import is_one_of, must, require, whole_number
from bayesdrop.processes import process_pool

__all__ = ["Engine", "LocalEngine", "RayEngine", "WorkersLost", "engine_for", "make_engine", "running_on"]

#: how often workers may die in a row while nothing is finished; on Ray, how often those of one task may
_MOST_DEATHS = 5
#: tasks that are given out for each worker, so that none has to wait for its next one
_AHEAD = 2

Task = Any
Result = Any


class WorkersLost(RuntimeError):
    """Workers died again and again, and the same tasks were never finished."""


class Engine(ABC):
    """Runs a function of tasks that do not depend on each other.

    Attributes:
        workers: how many tasks run at a time.
    """

    workers: int

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 (most engines have nothing to end)
        """End what the engine has started; also the end of its context."""

    @abstractmethod
    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """The place and the result of every task, in the order in which they are finished.

        A task whose worker dies is run again, so that a function should leave nothing half done. An exception
        of the function is raised here, with its own type; tasks that are under way are then dropped.

        Args:
            function: importable, or a `functools.partial` of such; it runs with one torch thread.
            tasks: small objects that can be pickled.
        """


class LocalEngine(Engine):
    """Processes of this machine.

    Args:
        workers: how many; 1 runs tasks in this process. As many as the machine has cores if None.
    """

    def __init__(self, workers: int | None = None) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.workers = cores if workers is None else _checked_workers(workers)

    def __repr__(self) -> str:
        return "one process" if self.workers == 1 else f"{self.workers} processes"

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """See `Engine`."""
        if self.workers == 1:
            for place, task in enumerate(tasks):
                yield place, function(task)
            return
        waiting, deaths = deque(range(len(tasks))), 0
        while waiting:
            running: dict[Future[Result], int] = {}
            try:
                with process_pool(min(self.workers, len(waiting))) as pool:
                    while waiting or running:
                        while waiting and len(running) < _AHEAD * self.workers:
                            place = waiting.popleft()
                            running[pool.submit(function, tasks[place])] = place
                        done = wait(running, return_when=FIRST_COMPLETED).done
                        # Those that were finished before a worker died count.
                        for future in sorted(done, key=_is_lost):
                            result = future.result()
                            deaths = 0
                            yield running.pop(future), result
            except BrokenProcessPool as error:
                lost = sorted(running.values())
                deaths += 1
                if deaths == _MOST_DEATHS:
                    raise WorkersLost(_lost_text(deaths, [tasks[place] for place in lost])) from error
                waiting.extendleft(reversed(lost))


def _is_lost(future: Future[Any]) -> bool:
    return isinstance(future.exception(), BrokenProcessPool)


def _lost_text(deaths: int, tasks: Sequence[Task]) -> str:
    shown = ", ".join(str(task) for task in tasks[:3]) + (", ..." if len(tasks) > 3 else "")
    return (
        f"a worker died {deaths} times while these were under way, and none of them was finished: {shown}. "
        "Is there enough memory?"
    )


class RayEngine(Engine):
    """A Ray cluster, or one that is started on this machine with the first work, until `close`.

    Args:
        address: of a cluster, as "auto" or "ray://head:10001"; None: the cluster that this program is
            connected to already, or else one of its own on this machine.
        workers: tasks that run at a time, a core each; all cores of the cluster if None.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        require("ray", extra="ray", owner="The engine ray")
        self.address = address
        self._own = False
        self._asked = None if workers is None else _checked_workers(workers)
        self.workers = self._asked or LocalEngine().workers

    def __repr__(self) -> str:
        where = "this machine" if self.address is None else self.address
        return f"Ray on {where}, {self.workers} workers"

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """See `Engine`."""
        ray = require("ray", extra="ray", owner="The engine ray")
        if not ray.is_initialized():
            self._start(ray)
            self._own = True
        if self._asked is None:
            self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        yield from self._run(ray, function, tasks)

    def close(self) -> None:
        """Disconnect, if this engine has connected; a cluster that it has started ends."""
        if self._own:
            self._own = False
            require("ray", extra="ray", owner="The engine ray").shutdown()

    def _start(self, ray: Any) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray's workers have the lowest priority unless told otherwise, and starve beside any other work.
        os.environ.setdefault("RAY_worker_niceness", "0")
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address is None:
            options |= {"address": "local", "num_cpus": self.workers, "include_dashboard": False}
            options |= {"_node_ip_address": "127.0.0.1"}
        else:
            options["address"] = self.address
        ray.init(**options)

    def _run(
        self, ray: Any, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        remote = ray.remote(num_cpus=1, max_retries=_MOST_DEATHS)(_called)
        shared = ray.put(function)
        waiting = deque(range(len(tasks)))
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < _AHEAD * self.workers:
                    place = waiting.popleft()
                    running[remote.remote(shared, tasks[place])] = place
                for reference in ray.wait(list(running), num_returns=1)[0]:
                    yield running[reference], self._result(ray, reference, tasks[running[reference]])
                    del running[reference]
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    @staticmethod
    def _result(ray: Any, reference: Any, task: Task) -> Result:
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
            raise WorkersLost(_lost_text(_MOST_DEATHS + 1, [task])) from error


def _called(function: Callable[[Task], Result], task: Task) -> Result:
    torch.set_num_threads(1)
    return function(task)


def make_engine(name: str, *, workers: int | None = None, address: str | None = None) -> Engine:
    """The engine of a name.

    Args:
        name: "local" or "ray".
        workers: how many; see the engines.
        address: of a Ray cluster.
    """
    if not is_one_of(name, ("local", "ray")):
        raise ValueError(must("make_engine", "engine", "'local' or 'ray'", name))
    if name == "ray":
        return RayEngine(address, workers)
    if address is not None:
        raise ValueError(must("make_engine", "address", "None for the engine local", address))
    return LocalEngine(workers)


_ENGINE: ContextVar[Engine | None] = ContextVar("engine", default=None)


@contextmanager
def running_on(engine: Engine | None) -> Iterator[None]:
    """A context in which work that would be shared by processes of this machine goes to an engine.

    Args:
        engine: None changes nothing.
    """
    token = _ENGINE.set(_ENGINE.get() if engine is None else engine)
    try:
        yield
    finally:
        _ENGINE.reset(token)


def engine_for(processes: int) -> Engine:
    """The engine of the context; else so many processes of this machine."""
    return _ENGINE.get() or LocalEngine(processes)


def _checked_workers(workers: int) -> int:
    return whole_number("engine", "workers", workers, at_least=1)
