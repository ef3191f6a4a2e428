"""The pool of processes: one thread each, and none is left behind."""

from __future__ import annotations

import multiprocessing
import time

import pytest
import torch

from bayesdrop.processes import process_pool
from bayesdrop.randomness import is_alone


def stopped_pool() -> None:
    with process_pool(2) as pool:
        pool.submit(time.sleep, 1000)
        pool.submit(int).result()
        assert multiprocessing.active_children()
        raise KeyboardInterrupt


def test_a_stop_ends_the_processes_of_a_pool() -> None:
    with pytest.raises(KeyboardInterrupt):
        stopped_pool()
    for process in multiprocessing.active_children():
        process.join(60)
    assert not multiprocessing.active_children()


def test_each_process_has_one_thread() -> None:
    with process_pool(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 1
        # The thread that waits for the end of the parent draws no random numbers.
        assert pool.submit(is_alone).result()
