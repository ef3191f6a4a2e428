"""A pool of processes for work that torch's own threads do not share."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import torch

from bayesdrop.randomness import start_quiet_thread

__all__ = ["process_pool"]


@contextmanager
def process_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes with one torch thread each; work that is left is dropped, and they end, if something fails.

    They end with this process too, however it ends. They are spawned: a fork of a process that has used
    torch's threads may hang. What is submitted must therefore be importable, and so must the main module.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    others = set(multiprocessing.active_children())
    try:
        yield pool
    except BaseException:
        own = [process for process in multiprocessing.active_children() if process not in others]
        pool.shutdown(wait=False, cancel_futures=True)
        for process in own:
            process.terminate()
        raise
    pool.shutdown()


def _start_worker() -> None:
    torch.set_num_threads(1)
    # Ctrl-C reaches every process of a terminal: the first one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start_quiet_thread(_end_with_parent)


def _end_with_parent() -> None:
    """Wait for the end of the process that started this one: one that was killed cannot end its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
