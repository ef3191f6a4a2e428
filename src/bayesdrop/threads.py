"""A pool of threads for work that torch's own threads do not share: many small products."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

__all__ = ["in_one_thread", "in_threads", "thread_pool"]

Item = TypeVar("Item")
Made = TypeVar("Made")


@contextmanager
def thread_pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads whose products have one thread each. Work that has not begun is dropped if something fails.

    A thread has its own number of torch threads, which it takes when it first uses torch: what was set last,
    by whatever thread. So the number is set back as soon as the workers have taken theirs.
    """
    number = torch.get_num_threads()
    ready = threading.Barrier(workers + 1)

    def start() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # which takes it, for good
        ready.wait()

    pool = ThreadPoolExecutor(workers, initializer=start)
    try:
        try:
            for _ in range(workers):
                pool.submit(int)
            ready.wait()
        except BaseException:
            # Where the system has no more threads, those that wait for the others must not wait for ever.
            ready.abort()
            raise
        finally:
            torch.set_num_threads(number)
        yield pool
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def in_threads(work: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """`work` of every item, in their order: side by side in as many threads as torch has, each with one.

    Torch shares sums and products of some ten thousand numbers among its threads. They gain little by it, and
    where other programs want the processors too, each of them waits for the one that was stopped, and uses up
    processor time while it waits.

    Args:
        work: takes no part in the work of other items.
        items: what to do.
    """
    items, threads = list(items), torch.get_num_threads()
    if threads == 1 or not items:
        return [work(item) for item in items]
    with thread_pool(min(threads, len(items))) as pool:
        return list(pool.map(work, items))


def in_one_thread(work: Callable[[], Made]) -> Made:
    """What `work` makes, without sharing its sums and products among torch's threads; see `in_threads`."""
    return in_threads(lambda _: work(), [None])[0]
