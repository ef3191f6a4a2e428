"""train(): any networks, put into stacks by their shapes, over one process or several."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed

from bayesdrop.errors import must, whole_number
from bayesdrop.processes import process_pool
from bayesdrop.progress import progress_bar
from bayesdrop.stacked.job import Job, Trained
from bayesdrop.stacked.loop import train_stack

__all__ = ["plan_stacks", "train"]

#: activations of a batch that a stack may hold: what fits into a core's share of the cache
_STACK_NUMBERS = 2**20


def train(jobs: Sequence[Job], *, processes: int = 1, progress: bool = False) -> list[Trained]:
    """Train every job's network; those of equal shape side by side in batched products.

    A network's result depends on its job alone, not on what is trained beside it (to the rounding of
    batched products). With `progress` a bar counts steps of networks.

    Args:
        jobs: what to train, in any order and of any shapes.
        processes: at most so many processes, each with one thread; 1 stays in this one. More need a main
            module that can be imported, as `multiprocessing` does.
        progress: show a bar (needs the extra "cli").

    Returns: the networks, in the order of the jobs. One that diverged says so and does not stop the rest.
    """
    processes = whole_number("train", "processes", processes, at_least=1)
    jobs = list(jobs)
    for job in jobs:
        if not isinstance(job, Job):
            raise TypeError(must("train", "jobs", "Jobs", job))
    stacks = plan_stacks(jobs, at_least=processes)
    total = sum(_steps(job) for job in jobs)
    results: dict[int, Trained] = {}
    with progress_bar("train", total, show=progress) as advance:
        if processes == 1 or len(stacks) < 2:
            for places in stacks:
                found = train_stack([jobs[place] for place in places], lambda steps: advance(steps, ""))
                results |= dict(zip(places, found, strict=True))
        else:
            _over_processes(jobs, stacks, processes, results, lambda steps: advance(steps, ""))
    return [results[place] for place in range(len(jobs))]


def plan_stacks(jobs: Sequence[Job], *, at_least: int = 1) -> list[list[int]]:
    """Places of the jobs of every stack, the most work first.

    Args:
        jobs: what is to be trained.
        at_least: groups of one shape are cut so that there is work for so many processes.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, job in enumerate(jobs):
        key = (job.settings.stack_key, job.x.shape[1], job.targets, job.x.dtype)
        groups.setdefault(key, []).append(place)
    stacks: list[list[int]] = []
    for places in groups.values():
        settings = jobs[places[0]].settings
        width = jobs[places[0]].x.shape[1] + 2 * sum(settings.hidden)
        room = max(1, _STACK_NUMBERS // (settings.batch_size * width))
        count = max(-(-len(places) // room), min(at_least, len(places)) if len(groups) < at_least else 1)
        # Networks of equal length side by side, so that a stack does not thin out.
        ordered = sorted(places, key=lambda place: _steps(jobs[place]))
        size = -(-len(ordered) // count)
        stacks += [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return sorted(stacks, key=lambda places: -sum(_work(jobs[place]) for place in places))


def _steps(job: Job) -> int:
    return job.settings.epochs * -(-job.num_rows // job.settings.batch_size)


def _work(job: Job) -> int:
    widths = (job.x.shape[1], *job.settings.hidden)
    return _steps(job) * job.settings.batch_size * sum(a * b for a, b in itertools.pairwise(widths))


def _over_processes(
    jobs: Sequence[Job],
    stacks: Sequence[Sequence[int]],
    processes: int,
    results: dict[int, Trained],
    advance: Callable[[int], None],
) -> None:
    with process_pool(min(processes, len(stacks))) as pool:
        waiting = {pool.submit(_train_alone, [jobs[p] for p in places]): places for places in stacks}
        for future in as_completed(waiting):
            places = waiting[future]
            results |= dict(zip(places, future.result(), strict=True))
            advance(sum(_steps(jobs[place]) for place in places))


def _train_alone(jobs: list[Job]) -> list[Trained]:
    return train_stack(jobs)
