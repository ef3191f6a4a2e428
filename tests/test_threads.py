"""Threads with one torch thread each, which change nothing for other threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from bayesdrop.threads import in_one_thread, in_threads, thread_pool


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def number_in_a_new_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


def test_only_the_workers_have_one_thread() -> None:
    with thread_pool(4) as pool:
        together = threading.Barrier(4)

        def number(_: int) -> tuple[int, str]:
            together.wait()
            return torch.get_num_threads(), threading.current_thread().name

        found = list(pool.map(number, range(4)))
        assert [count for count, _ in found] == [1, 1, 1, 1]
        assert len({name for _, name in found}) == 4
        assert torch.get_num_threads() == 3
        assert number_in_a_new_thread() == 3
    assert torch.get_num_threads() == 3
    assert number_in_a_new_thread() == 3


def test_a_failure_drops_what_has_not_begun() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        go_on.wait()

    def fail() -> None:
        with thread_pool(1) as pool:
            pool.submit(first)
            pool.submit(done.append, "begun")
            begun.wait()
            threading.Timer(0.05, go_on.set).start()
            raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        fail()
    assert not done


def test_threads_that_cannot_be_started_leave_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, []

    def refuse(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"), thread_pool(4):
        pass
    assert torch.get_num_threads() == 3
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()


def test_items_are_worked_on_in_threads_of_one_thread_and_come_back_in_order() -> None:
    together = threading.Barrier(3)

    def work(item: int) -> tuple[int, int]:
        together.wait(10)
        return item, torch.get_num_threads()

    assert in_threads(work, iter(range(3))) == [(0, 1), (1, 1), (2, 1)]
    assert in_one_thread(torch.get_num_threads) == 1
    assert in_threads(work, []) == []
    assert torch.get_num_threads() == 3


def test_where_torch_has_one_thread_items_are_worked_on_in_this_one() -> None:
    torch.set_num_threads(1)
    here = threading.current_thread()
    assert in_threads(lambda item: threading.current_thread() is here, range(2)) == [True, True]
