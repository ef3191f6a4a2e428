"""What two threads of torch buy `bayesdrop.predict`: wall time with one thread over that with two.

    python benchmarks/threads.py

Both numbers of threads take turns in one process; each time is the best of seven rounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

import bayesdrop as bd
from networks import CASES, made

ROUNDS = 7


def best_wall(call: Callable[[], object], threads: int, best: float) -> float:
    """The smaller of `best` and the seconds of one turn with so many threads."""
    torch.set_num_threads(threads)
    start, repeats = time.perf_counter(), 0
    while time.perf_counter() - start < 0.03 or not repeats:
        call()
        repeats += 1
    return min(best, (time.perf_counter() - start) / repeats)


def main() -> None:
    """Measure and print."""
    print("| network | T | `predict`, 1 thread / 2 threads | `eval()`, 1 thread / 2 threads |")
    print("|---|---|---|---|")
    for case in CASES.values():
        net, x = made(case)

        def evaluate(net: torch.nn.Module = net, x: torch.Tensor = x) -> None:
            with torch.no_grad():
                net(x)

        def draws(net: torch.nn.Module = net, x: torch.Tensor = x, count: int = case.num_draws) -> None:
            bd.predict(net, x, num_draws=count)

        ratios = []
        for call in (draws, evaluate):
            times = {1: math.inf, 2: math.inf}
            for _ in range(ROUNDS):
                for threads, best in times.items():
                    times[threads] = best_wall(call, threads, best)
            ratios.append(times[1] / times[2])
        print(f"| {case.title} | {case.num_draws} | {ratios[0]:.2f} | {ratios[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
