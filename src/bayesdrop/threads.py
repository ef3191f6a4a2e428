"""A pool of threads for work that torch's own threads do not share: many small products."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

__all__ = ["thread_pool"]


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
