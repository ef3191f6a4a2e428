"""train(): networks of any shapes, put into stacks of one shape each, in one process or several."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesdrop.engines import engine_for
from bayesdrop.errors import must, whole_number
from bayesdrop.progress import progress_bar
from bayesdrop.stacked.encode import EncodedRows
from bayesdrop.stacked.gaussian_weights import first_log_std
from bayesdrop.stacked.job import Job, Trained, trained_of
from bayesdrop.stacked.parameters import Adam, ParameterLayout, Parameters, learning_rates
from bayesdrop.stacked.scores import m_step, noise_mode, score
from bayesdrop.stacked.stack import Stack, noise_shapes
from bayesdrop.stacked.streams import NoiseStreams, RowStream
from bayesdrop.threads import thread_pool

__all__ = ["plan_stacks", "train", "train_stack"]

#: activations of a batch that a stack may hold, over all its networks: they fit into a core's cache
_STACK_NUMBERS = 2**20
#: multiplications that take as long as noise and non-linearity of one unit and row
_UNIT = 200
#: stacks for each thread or process, so that all of them are busy to the end
_SHARES = 3
#: networks of a stack that is cut for that reason, at least: fewer would be mostly calls
_TOGETHER = 3


def train(
    jobs: Sequence[Job],
    *,
    processes: int = 1,
    progress: bool = False,
    label: str = "train",
    note: str = "",
    beside: Sequence[Callable[[], None]] = (),
) -> list[Trained]:
    """Train every job's network; those of equal shape side by side in batched products.

    A network depends on its job alone, not on what is trained beside it (to the rounding of batched
    products). Within one process, stacks are trained side by side in as many threads as torch has: one
    stack's products are too small for several threads.

    Args:
        jobs: what to train, in any order and of any shapes.
        processes: at most so many processes, each with one thread; 1 stays in this one. More need a main
            module that can be imported, as `multiprocessing` does; inside of `bayesdrop.engines.running_on`
            they are workers of that engine.
        progress: show a bar that counts steps of networks (needs the extra "cli").
        label: what the bar says is going on.
        note: what it says behind that.
        beside: other work, done in this process: side by side with the stacks where they have threads.

    Returns: the networks, in the order of the jobs. One that diverged is marked, and does not stop the rest.
    """
    processes = whole_number("train", "processes", processes, at_least=1)
    jobs = list(jobs)
    for job in jobs:
        if not isinstance(job, Job):
            raise TypeError(must("train", "jobs", "Jobs", job))
    threads = torch.get_num_threads() if processes == 1 else 1
    plan = plan_stacks(jobs, at_least=max(processes, threads))
    stacks = [(places, [jobs[p] for p in places]) for places in plan]
    results: dict[int, Trained] = {}
    total = left = sum(map(_steps, jobs))
    with progress_bar(label, total, show=progress and total > 0) as show:

        def advance(steps: int) -> None:
            nonlocal left
            left -= steps
            show(steps, note)

        if threads > 1 and len(stacks) + len(beside) > 1:
            trained = _in_threads([own for _, own in stacks], beside, threads, advance)
            for (places, _), found in zip(stacks, trained, strict=True):
                results |= zip(places, found, strict=True)
        else:
            for work in beside:
                work()
            if processes == 1 or len(stacks) < 2:
                for places, own in stacks:
                    results |= zip(places, train_stack(own, advance), strict=True)
            else:
                engine = engine_for(min(processes, len(stacks)))
                for place, found in engine.run(train_stack, [own for _, own in stacks]):
                    places, own = stacks[place]
                    results |= zip(places, found, strict=True)
                    advance(sum(map(_steps, own)))
        # Networks that stopped early leave steps undone.
        advance(left)
    return [results[place] for place in range(len(jobs))]


class _Stopped(Exception):
    """Another stack has failed, or the user has stopped the work."""


def _in_threads(
    stacks: Sequence[Sequence[Job]],
    beside: Sequence[Callable[[], None]],
    threads: int,
    advance: Callable[[int], None],
) -> list[list[Trained]]:
    """Train stacks side by side, each in one thread, with other work beside them."""
    stop, lock = threading.Event(), threading.Lock()

    def told(steps: int) -> None:
        if stop.is_set():
            raise _Stopped
        with lock:
            advance(steps)

    with thread_pool(min(threads, len(stacks) + len(beside))) as pool:
        try:
            others = [pool.submit(work) for work in beside]
            trained = [pool.submit(train_stack, own, told) for own in stacks]
            for other in others:
                other.result()
            return [future.result() for future in trained]
        except BaseException:
            stop.set()
            raise


def plan_stacks(jobs: Sequence[Job], *, at_least: int = 1) -> list[list[int]]:
    """Which jobs share a stack: their places, a list for each stack, the stack with the most work first.

    Args:
        jobs: what is to be trained.
        at_least: jobs of one shape are cut into several stacks if there are fewer shapes than this; and if
            they are so much of the work that some of as many workers would have nothing to do at the end.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, job in enumerate(jobs):
        groups.setdefault(_shape(job), []).append(place)
    works = [_work(job) for job in jobs]
    share = sum(works) / (at_least * _SHARES) if at_least > 1 else math.inf
    stacks: list[list[int]] = []
    for places in groups.values():
        settings = jobs[places[0]].settings
        width = jobs[places[0]].x.shape[1] + 2 * sum(settings.hidden)
        room = max(1, _STACK_NUMBERS // (settings.batch_size * width))
        count = max(-(-len(places) // room), min(at_least, len(places)) if len(groups) < at_least else 1)
        own = sum(works[place] for place in places)
        count = max(count, min(math.ceil(own / share), len(places) // _TOGETHER))
        # Trainings of about equal length side by side, so that a stack stays full to its end.
        ordered = sorted(places, key=lambda place: _steps(jobs[place]))
        size = -(-len(ordered) // count)
        stacks += [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return sorted(stacks, key=lambda places: -sum(works[place] for place in places))


def _shape(job: Job) -> tuple[object, ...]:
    """What the jobs of a stack have in common."""
    return job.settings.stack_key, job.x.shape[1], job.targets, job.x.dtype


def _steps(job: Job) -> int:
    """Steps of a whole training."""
    return job.settings.epochs * -(-job.num_rows // job.settings.batch_size)


def _work(job: Job) -> int:
    """How long a whole training takes, in multiplications, nearly."""
    hidden = job.settings.hidden
    products = sum(a * b for a, b in itertools.pairwise((job.x.shape[1], *hidden)))
    return _steps(job) * job.settings.batch_size * (products + _UNIT * sum(hidden))


def train_stack(jobs: Sequence[Job], advance: Callable[[int], None] = lambda steps: None) -> list[Trained]:
    """Train networks of one `Settings.stack_key` and one shape of data together.

    Args:
        jobs: what to train.
        advance: called with the number of steps of networks that were done.

    Returns: the networks, in the order of the jobs.
    """
    if len(set(map(_shape, jobs))) != 1:
        raise ValueError(must("train_stack", "jobs", "of one shape", f"{len(jobs)} jobs of several"))
    with torch.no_grad():
        return _Loop(jobs).run(advance)


class _Member:
    """One network of a stack in training: its rows, its history and its best weights so far."""

    def __init__(self, job: Job, offset: int, idle: Tensor | None) -> None:
        self.job, self.settings = job, job.settings
        #: inputs whose weights come out as 0; see `_JoinedRows`
        self.idle = idle
        self.own = torch.arange(len(job.x)) if job.rows is None else job.rows
        self.rows = RowStream(job.seed, self.own.numpy().astype(np.int64) + offset)
        self.num_data = len(self.own)
        #: what makes the weights of the network's own rows one on average
        self.weight_factor = 1.0 if job.weight is None else 1.0 / float(job.weight[self.own].mean())
        self.epoch_steps = -(-self.num_data // self.settings.batch_size)
        self.total = self.settings.epochs * self.epoch_steps
        self.schedule = (self.settings.schedule, self.settings.lr, self.total)
        self.history: dict[str, list[Any]] = {"epoch": [], "nll": [], "kl": []}
        self.best: dict[str, Tensor] | None = None
        self.best_score = -math.inf
        self.best_epoch: int | None = None
        self.waited = 0
        self.result: Trained | None = None

    def next_event(self, step: int) -> int:
        """The next step, after `step`, at whose end something is to be done."""
        every = self.epoch_steps * (1 if self.settings.noise == "map" else self.settings.check_every)
        return min((step // every + 1) * every, self.total)

    def is_check(self, step: int) -> bool:
        """Whether a check is due at the end of `step`."""
        return step % (self.epoch_steps * self.settings.check_every) == 0 or step == self.total

    def judge(self, value: float, epoch: int, tensors: dict[str, Tensor]) -> bool:
        """Keep the weights if they are the best so far; returns whether patience has run out."""
        if self.settings.patience is None:
            return False
        if value > self.best_score:
            self.best, self.best_score, self.best_epoch, self.waited = tensors, value, epoch, 0
            return False
        self.waited += 1
        return self.waited >= self.settings.patience

    def last_m_step(self, result: Trained) -> Trained:
        """The network with its noise set freely for the trained weights, where `noise_pace` held it back."""
        if result.diverged or self.settings.noise_pace is None:
            return result
        job, weight = self.job, None
        if job.weight is not None:
            weight = job.weight[self.own] / job.weight[self.own].mean()
        return m_step(result, job.x[self.own], job.y[self.own], weight=weight, seed=job.seed)


class _JoinedRows:
    """The rows of all distinct tables of a stack, one table after another.

    Attributes:
        offsets: for each job, the place of its table's first row.
        idle: for each job, (K,) which inputs are 0 in all rows of its table: many, where an encoding does not
            need them (see `Encoder`). They teach nothing, and their weights come out as 0. None with noise
            on the inputs.
        used: places of the inputs that networks are trained on: those that are not 0 in all tables.
        dtype: of the inputs.
        y: (R, D) targets, or labels; weight: (R,) of the rows, or None.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        tables = list({(id(job.x), id(job.y), id(job.weight)): job for job in jobs}.items())
        self.idle: list[Tensor | None] = [None] * len(jobs)
        self.used, self.dtype = torch.arange(jobs[0].x.shape[1]), jobs[0].x.dtype
        if jobs[0].settings.rates[0] == 0:
            idle = {id(job.x): _idle_inputs(job.x) for _, job in tables}
            self.idle = [idle[id(job.x)] for job in jobs]
            used = (~torch.stack(list(idle.values())).all(0)).nonzero().flatten()
            self.used = used if len(used) else self.used
        starts = itertools.accumulate((len(job.x) for _, job in tables), initial=0)
        places = dict(zip((key for key, _ in tables), starts, strict=False))
        self.offsets = [places[id(job.x), id(job.y), id(job.weight)] for job in jobs]
        xs, ys = [job.x for _, job in tables], [job.y for _, job in tables]
        x = torch.cat([x[torch.arange(len(x))] for x in xs]) if len(xs) > 1 else xs[0]
        self._leaves_out = len(self.used) < x.shape[1]
        self._x = x[:, self.used] if self._leaves_out and isinstance(x, Tensor) else x
        self.y = torch.cat(ys) if len(ys) > 1 else ys[0]
        self.weight: Tensor | None = None
        if any(job.weight is not None for job in jobs):
            weights = [torch.ones(len(job.x)) if job.weight is None else job.weight for _, job in tables]
            self.weight = torch.cat([weight.to(self.dtype) for weight in weights])

    def inputs(self, rows: Tensor) -> Tensor:
        """(n, used) inputs of some rows."""
        x = self._x.index_select(0, rows)
        return x if isinstance(self._x, Tensor) or not self._leaves_out else x[:, self.used]


def _idle_inputs(x: Tensor | EncodedRows) -> Tensor:
    """(K,) which inputs are 0 in all rows."""
    if isinstance(x, EncodedRows):
        return torch.from_numpy(~x.encoder.needed)
    return ~(x != 0).any(0)


def _start_network(parameters: Parameters, level: Tensor, place: int, job: Job) -> None:
    """Set a network's first rates, widths and noise; its weights too if it goes on from another network."""
    start = job.start
    rates = [torch.tensor(rate, dtype=torch.float64) for rate in job.settings.rates]
    if start is not None:
        rates = start.p
        if start.log_noise_std is not None:
            level[place] = start.log_noise_std
    for layer, rate in enumerate(rates):
        tensors = {part: tensor[place] for part, tensor in parameters.of_layer(layer).items()}
        if start is not None:
            tensors["weight"].copy_(start.weights[layer])
            tensors["bias"].copy_(start.biases[layer])
        if "logit" in tensors:
            tensors["logit"].copy_(torch.logit(rate))
        if "log_std" in tensors:
            first = first_log_std(tensors["weight"], rate)
            for part, widths in (("log_std", "stds"), ("bias_log_std", "bias_stds")):
                known = getattr(start, widths, None)
                tensors[part].copy_(known[layer].log() if known else first)


class _Loop:
    """The training of a stack; networks leave it when they are done."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        first, self.batch = jobs[0], jobs[0].settings.batch_size
        self.table = _JoinedRows(jobs)
        self.members = [_Member(*one) for one in zip(jobs, self.table.offsets, self.table.idle, strict=True)]
        self.active = list(self.members)
        settings, dtype = [job.settings for job in jobs], self.table.dtype
        self.widths = first.widths
        layout = ParameterLayout(first.settings, first.x.shape[1], first.widths[-1], first.targets)
        parameters = Parameters(layout, len(jobs), dtype)
        parameters.draw_first_weights([job.seed for job in jobs], [one.first_weights for one in settings])
        levels = torch.tensor([one.first_noise_std for one in settings], dtype=dtype).log()
        level = levels.view(-1, 1, 1).expand(-1, 1, first.targets).clone()
        for place, job in enumerate(jobs):
            _start_network(parameters, level, place, job)
        learned = parameters.get("log_noise_std")
        if learned is not None:
            learned.copy_(level)
        parameters = parameters.with_inputs(first.settings, self.table.used)
        self.is_map = first.settings.noise == "map"
        fixed = level if self.is_map or first.settings.noise == "fixed" else None
        self.stack = Stack(settings, parameters, self._num_data(), fixed)
        self.adam = Adam(settings, parameters)
        self.noise = NoiseStreams(
            [job.seed for job in jobs],
            noise_shapes(first.settings, self.widths),
            normal=first.settings.has_normal_noise,
        )
        self.step = 0
        self.sums = torch.zeros(len(jobs), dtype=dtype)
        self.counts = np.zeros(len(jobs))
        self.squares = torch.zeros(len(jobs), dtype=torch.float64)

    def _num_data(self) -> Tensor:
        return torch.tensor([one.num_data for one in self.active], dtype=self.table.dtype)

    def run(self, advance: Callable[[int], None]) -> list[Trained]:
        """Train all networks; returns them in the order of the jobs."""
        while self.active:
            event = min(one.next_event(self.step) for one in self.active)
            count = min(event - self.step, self.noise.steps_ahead())
            self._steps(count)
            if self.step == event:
                self._m_steps()
                self._checks()
            advance(count * len(self.active))
        return [one.result for one in self.members if one.result is not None]

    def _steps(self, count: int) -> None:
        """Do the next `count` steps of all networks."""
        table, size = self.table, (len(self.active), self.batch)
        taken = [one.rows.take(count * self.batch).reshape(count, self.batch) for one in self.active]
        order = torch.from_numpy(np.stack(taken, 1)).view(count, -1)
        known = {one.schedule: one for one in self.active}
        rates = {key: learning_rates(m.settings, self.step, count, m.total) for key, m in known.items()}
        by_step = np.stack([rates[one.schedule] for one in self.active], 1)
        # One number where all networks have the same.
        alike = by_step[:, 0].tolist() if bool((by_step == by_step[:, :1]).all()) else None
        lrs = torch.from_numpy(by_step).to(table.dtype) if alike is None else alike
        factors = torch.tensor([[one.weight_factor] for one in self.active], dtype=table.dtype)
        self.noise.make(count)
        for step, rows in enumerate(order):
            x = table.inputs(rows).view(*size, -1)
            y = table.y.index_select(0, rows).view(*size, *table.y.shape[1:])
            weight = None
            if table.weight is not None:
                weight = table.weight.index_select(0, rows).view(size) * factors
            loss = self.stack.step_gradient(x, y, weight, self.noise.of_step(step))
            self.adam.step(self.stack.grads, lrs[step])
            self.sums += (loss if weight is None else loss * weight).sum(1)
        self.counts += count * self.batch
        self.step += count
        if self.stack.squared_error is not None:
            self.squares += self.stack.squared_error
            self.stack.squared_error = None

    def _m_steps(self) -> None:
        """Set "map" noise in closed form, for the networks whose epoch is over."""
        level = self.stack.log_noise_std
        if not self.is_map or level is None:
            return
        for place, member in enumerate(self.active):
            if self.step % member.epoch_steps:
                continue
            targets, settings = level.shape[2], member.settings
            errors = member.num_data * targets
            mean = float(self.squares[place]) / (member.epoch_steps * self.batch * targets)
            # `noise_pace` may stop it on its way to the mode.
            reach = math.inf if settings.noise_pace is None else settings.noise_pace / settings.epochs
            level[place] += (noise_mode(mean * errors, errors) - level[place]).clamp(-reach, reach)
            self.squares[place] = 0.0

    def _checks(self) -> None:
        """Do the checks that are due: write histories, validate, and take out networks that are done."""
        due = [place for place, one in enumerate(self.active) if one.is_check(self.step)]
        if not due:
            return
        divergence, finite = self.stack.kl(), self.stack.parameters.norms().isfinite().tolist()
        done: list[int] = []
        for place in due:
            member = self.active[place]
            epoch = self.step // member.epoch_steps
            self._record(place, epoch, float(divergence[place]))
            stopped = self.step >= member.total or not finite[place]
            tensors = self._tensors(place)
            if finite[place] and member.job.validation is not None:
                value = self._validation_score(member, tensors)
                member.history.setdefault("validation", []).append(value)
                stopped |= member.judge(value, epoch, tensors)
            if stopped:
                kept = tensors if member.best is None or not finite[place] else member.best
                found = self._trained(member, kept, diverged=not finite[place])
                member.result = member.last_m_step(found)
                done.append(place)
        if done:
            self._leave(done)

    def _record(self, place: int, epoch: int, divergence: float) -> None:
        """Write what happened since the last check into a network's history."""
        history, level = self.active[place].history, self.stack.noise_level()
        history["epoch"].append(epoch)
        history["nll"].append(float(self.sums[place]) / float(self.counts[place]))
        history["kl"].append(divergence)
        self.sums[place], self.counts[place] = 0.0, 0.0
        if level is not None:
            history.setdefault("noise_std", []).append(level[place].exp().flatten().tolist())
        if self.active[place].settings.learns_rates:
            p = [float(layer.p[place].mean()) for layer in self.stack.layers]
            history.setdefault("rates", []).append(p)

    def _validation_score(self, member: _Member, tensors: dict[str, Tensor]) -> float:
        """Mean log-likelihood of a network's validation rows."""
        job, network = member.job, self._trained(member, tensors)
        rows, draws = job.validation, job.settings.validation_draws
        assert rows is not None
        return float(score([network], job.x[rows], job.y[rows], num_draws=draws).log_prob.mean())

    def _tensors(self, place: int) -> dict[str, Tensor]:
        """A copy of a network's parameters, and "log_noise_std" also where it is not one of them."""
        tensors, level = self.stack.parameters.of_network(place), self.stack.log_noise_std
        idle = self.active[place].idle
        if idle is not None:
            trained = tensors["weight0"]
            tensors["weight0"] = trained.new_zeros(self.widths[0], trained.shape[1])
            tensors["weight0"][self.table.used] = trained
            tensors["weight0"][idle] = 0
        return tensors if level is None else {**tensors, "log_noise_std": level[place].clone()}

    def _trained(self, member: _Member, tensors: dict[str, Tensor], *, diverged: bool = False) -> Trained:
        return trained_of(
            member.settings,
            self.widths,
            tensors,
            seed=member.job.seed,
            name=member.job.name,
            num_data=member.num_data,
            history=member.history,
            diverged=diverged,
            best_epoch=member.best_epoch,
        )

    def _leave(self, done: Sequence[int]) -> None:
        """Go on without the networks that are done."""
        stay = [place for place in range(len(self.active)) if place not in done]
        self.active = [self.active[place] for place in stay]
        if not stay:
            return
        places, level = torch.tensor(stay), self.stack.log_noise_std
        parameters = self.stack.parameters.kept(places)
        self.adam = self.adam.kept(places, parameters)
        settings = [one.settings for one in self.active]
        self.stack = Stack(settings, parameters, self._num_data(), None if level is None else level[places])
        self.noise.keep(stay)
        self.sums, self.squares = self.sums[places], self.squares[places]
        self.counts = self.counts[stay]
