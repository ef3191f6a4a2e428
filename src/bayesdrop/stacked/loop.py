"""The training loop of one stack."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.stacked.job import Job, Trained
from bayesdrop.stacked.mean_field import first_log_std, rate_of
from bayesdrop.stacked.members import JoinedTable, Network
from bayesdrop.stacked.network import Stack, layout_of, noise_shapes
from bayesdrop.stacked.noise_step import m_step, noise_mode
from bayesdrop.stacked.optimise import Adam, learning_rates
from bayesdrop.stacked.parameters import Parameters
from bayesdrop.stacked.scores import log_likelihoods
from bayesdrop.stacked.streams import NoiseStreams

__all__ = ["train_stack"]


def _start_network(parameters: Parameters, level: Tensor, place: int, job: Job) -> None:
    """Rates and noise of a network, and its weights where it goes on from another."""
    rates = [torch.tensor(rate, dtype=torch.float64) for rate in job.settings.rates]
    if job.start is not None:
        rates = list(job.start.p)
        for layer, (weight, bias) in enumerate(zip(job.start.weights, job.start.biases, strict=True)):
            parameters[f"weight{layer}"][place] = weight
            parameters[f"bias{layer}"][place] = bias
        if job.start.log_noise_std is not None:
            level[place] = job.start.log_noise_std
    for layer, rate in enumerate(rates):
        block = parameters.get(f"logit{layer}")
        if block is not None:
            block[place] = torch.logit(rate)
        if f"log_std{layer}" in parameters.blocks:
            _start_widths(parameters, place, layer, rate, job.start)


def _start_widths(parameters: Parameters, place: int, layer: int, p: Tensor, start: Trained | None) -> None:
    """Widths of Gaussian weights: those of the network to go on from, or as the rate says."""
    for name, widths in (("log_std", "stds"), ("bias_log_std", "bias_stds")):
        known = getattr(start, widths)[layer] if start is not None and start.stds else None
        first = first_log_std(parameters[f"weight{layer}"][place], p)
        parameters[f"{name}{layer}"][place] = first if known is None else known.log()


class _Loop:
    """State of a stack in training: networks that are done leave it."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        first = jobs[0]
        self.table = JoinedTable(jobs)
        self.networks = [Network(job, at) for job, at in zip(jobs, self.table.offsets, strict=True)]
        self.active = list(self.networks)
        settings = [job.settings for job in jobs]
        layout = layout_of(first.settings, first.x.shape[1], first.widths[-1], first.targets)
        parameters = Parameters(layout, len(jobs), first.x.dtype)
        parameters.start([job.seed for job in jobs], [job.settings.first_weights for job in jobs])
        levels = torch.tensor([one.noise_std for one in settings], dtype=first.x.dtype).log()
        level = levels.view(-1, 1, 1).expand(-1, 1, first.targets).clone()
        for place, job in enumerate(jobs):
            _start_network(parameters, level, place, job)
        learned = parameters.get("log_noise_std")
        if learned is not None:
            learned.copy_(level)
        fixed = level if first.settings.noise in ("fixed", "map") else None
        self.stack = Stack(settings, parameters, self._num_data(), fixed)
        self.adam = Adam(settings, parameters)
        self.noise = NoiseStreams(
            [job.seed for job in jobs],
            noise_shapes(first.settings, layout.widths),
            normal=first.settings.method in ("gaussian", "meanfield"),
        )
        self.step = 0
        self.sums = torch.zeros(len(jobs), dtype=first.x.dtype)
        self.counts = np.zeros(len(jobs))
        self.squares = torch.zeros(len(jobs), dtype=torch.float64)

    def _num_data(self) -> Tensor:
        return torch.tensor([one.num_data for one in self.active], dtype=self.networks[0].job.x.dtype)

    def run(self, advance: Callable[[int], None]) -> list[Trained]:
        """Train all networks to their ends."""
        batch = self.networks[0].job.settings.batch_size
        width = self.networks[0].job.x.shape[1]
        while self.active:
            event = min(one.next_event(self.step) for one in self.active)
            count = min(event - self.step, self.noise.steps_ahead())
            taken = np.stack([one.rows.take(count * batch).reshape(count, batch) for one in self.active], 1)
            order = torch.from_numpy(taken).view(count, -1)
            lrs = self._learning_rates(count)
            factors = torch.tensor([[one.weight_factor] for one in self.active], dtype=self.table.x.dtype)
            self.noise.make(count)
            for step in range(count):
                rows = order[step]
                x = self.table.x.index_select(0, rows).view(len(self.active), batch, width)
                y = self.table.y.index_select(0, rows).view(len(self.active), batch, *self.table.y.shape[1:])
                weight = None
                if self.table.weight is not None:
                    weight = self.table.weight.index_select(0, rows).view(len(self.active), batch) * factors
                loss = self.stack.step_gradient(x, y, weight, self.noise.of_step(step))
                self.adam.step(self.stack.grads, lrs[step])
                self.sums += (loss if weight is None else loss * weight).sum(1)
            self.counts += count * batch
            self.step += count
            if self.stack.head.squared_error is not None:
                self.squares += self.stack.head.squared_error
                self.stack.head.squared_error = None
            if self.step == event:
                self._events()
            advance(count * len(self.active))
        results = [one.result for one in self.networks]
        return [result for result in results if result is not None]

    def _learning_rates(self, count: int) -> Tensor:
        """(count, M) of the next steps; networks with the same schedule share the work."""
        known: dict[tuple[str, float, int], NDArray[np.float64]] = {}
        for one in self.active:
            key = (one.job.settings.schedule, one.job.settings.lr, one.total)
            if key not in known:
                known[key] = learning_rates(one.job.settings, self.step, count, one.total)
        keys = [(one.job.settings.schedule, one.job.settings.lr, one.total) for one in self.active]
        return torch.from_numpy(np.stack([known[key] for key in keys], 1)).to(self.table.x.dtype)

    def _events(self) -> None:
        """M-steps, checks and ends that are due."""
        self._m_steps()
        due = [place for place, one in enumerate(self.active) if one.is_check(self.step)]
        if not due:
            return
        divergence = self.stack.kl()
        finite = self.stack.parameters.finite()
        done: list[int] = []
        scores = self._validation_scores([place for place in due if finite[place]])
        for place in due:
            network = self.active[place]
            epoch = self.step // network.epoch_steps
            history = network.history
            history["epoch"].append(epoch)
            history["nll"].append(float(self.sums[place]) / float(self.counts[place]))
            history["kl"].append(float(divergence[place]))
            self.sums[place], self.counts[place] = 0.0, 0.0
            self._record(place, history)
            stopped = self.step >= network.total or not finite[place]
            if place in scores:
                history.setdefault("validation", []).append(scores[place])
                stopped |= self._judge(place, scores[place], epoch)
            if stopped:
                result = self._result(place, diverged=not bool(finite[place]))
                network.result = result if result.diverged else self._last_m_step(result, network.job)
                done.append(place)
        if done:
            self._leave(done)

    def _record(self, place: int, history: dict[str, list[Any]]) -> None:
        level = self.stack.noise_level()
        if level is not None:
            history.setdefault("noise_std", []).append(level[place].exp().flatten().tolist())
        if self.active[place].job.settings.learns_rates:
            p = [float(layer.p[place].mean()) for layer in self.stack.layers]
            history.setdefault("rates", []).append(p)

    def _m_steps(self) -> None:
        if self.active[0].job.settings.noise != "map":
            return
        level = self.stack.log_noise_std
        assert level is not None
        for place, network in enumerate(self.active):
            if self.step % network.epoch_steps:
                continue
            targets = level.shape[2]
            errors = network.num_data * targets
            mean = float(self.squares[place]) / (
                network.epoch_steps * network.job.settings.batch_size * targets
            )
            level[place] = self._toward(level[place], noise_mode(mean * errors, errors), network)
            self.squares[place] = 0.0

    def _toward(self, level: Tensor, mode: float, network: Network) -> Tensor:
        """The level after an M-step, which `noise_pace` may stop on its way to the mode."""
        settings = network.job.settings
        reach = math.inf if settings.noise_pace is None else settings.noise_pace / settings.epochs
        return level + (mode - level).clamp(-reach, reach)

    def _last_m_step(self, result: Trained, job: Job) -> Trained:
        """Noise that was held back goes all the way, with the weights that it was held back for."""
        if job.settings.noise != "map" or job.settings.noise_pace is None:
            return result
        rows = torch.arange(len(job.x)) if job.rows is None else job.rows
        weight = None if job.weight is None else job.weight[rows] / job.weight[rows].mean()
        return m_step(result, job.x[rows], job.y[rows], weight=weight, seed=job.seed)

    def _validation_scores(self, places: Sequence[int]) -> dict[int, float]:
        wanted = [place for place in places if self.active[place].job.validation is not None]
        if not wanted:
            return {}
        found = log_likelihoods([self._checked(place) for place in wanted])
        return dict(zip(wanted, found, strict=True))

    def _checked(self, place: int) -> tuple[Trained, Tensor, Tensor]:
        job = self.active[place].job
        assert job.validation is not None
        return self._result(place, diverged=False), job.x[job.validation], job.y[job.validation]

    def _judge(self, place: int, score: float, epoch: int) -> bool:
        """Keep the best weights; whether patience has run out."""
        network = self.active[place]
        patience = network.job.settings.patience
        if patience is None:
            return False
        if score > network.best_score:
            network.best_score, network.best_epoch, network.waited = score, epoch, 0
            network.best = self.stack.parameters.of_network(place)
            if self.stack.log_noise_std is not None:
                network.best["fixed noise"] = self.stack.log_noise_std[place].clone()
            return False
        network.waited += 1
        return network.waited >= patience

    def _result(self, place: int, *, diverged: bool) -> Trained:
        network = self.active[place]
        job = network.job
        blocks = self.stack.parameters.of_network(place)
        level = None if self.stack.log_noise_std is None else self.stack.log_noise_std[place]
        if network.best is not None and (self.step >= network.total or network.waited):
            blocks = network.best
            level = blocks.get("fixed noise", level)
        level = blocks.get("log_noise_std", level)
        layers = range(len(self.stack.layers))
        rates = [
            torch.sigmoid(blocks[f"logit{layer}"]).reshape(-1)
            if f"logit{layer}" in blocks
            else torch.tensor([job.settings.rates[layer]], dtype=job.x.dtype)
            for layer in layers
        ]
        stds, bias_stds = (
            [blocks[f"{name}{layer}"].exp() if f"{name}{layer}" in blocks else None for layer in layers]
            if job.settings.method == "meanfield"
            else []
            for name in ("log_std", "bias_log_std")
        )
        for layer, std in enumerate(stds):
            if std is not None:
                rates[layer] = rate_of(blocks[f"weight{layer}"], std).reshape(1)
        return Trained(
            settings=job.settings,
            seed=job.seed,
            name=job.name,
            widths=self.stack.widths,
            weights=[blocks[f"weight{layer}"] for layer in layers],
            biases=[blocks[f"bias{layer}"].reshape(-1) for layer in layers],
            p=[rate[0] if len(rate) == 1 else rate for rate in rates],
            log_noise_std=None if level is None else level.reshape(-1).clone(),
            num_data=network.num_data,
            history=network.history,
            diverged=diverged,
            best_epoch=network.best_epoch,
            stds=stds,
            bias_stds=[None if std is None else std.reshape(-1) for std in bias_stds],
        )

    def _leave(self, done: Sequence[int]) -> None:
        """Go on without the networks that are done."""
        stay = [place for place in range(len(self.active)) if place not in set(done)]
        self.active = [self.active[place] for place in stay]
        if not stay:
            return
        places = torch.tensor(stay)
        parameters = self.stack.parameters.kept(places)
        self.adam = self.adam.kept(places, parameters)
        level = self.stack.log_noise_std
        settings = [one.job.settings for one in self.active]
        self.stack = Stack(settings, parameters, self._num_data(), None if level is None else level[places])
        self.noise.keep(stay)
        self.sums, self.squares = self.sums[places], self.squares[places]
        self.counts = self.counts[stay]


def train_stack(jobs: Sequence[Job], advance: Callable[[int], None] = lambda steps: None) -> list[Trained]:
    """Train networks of one `Settings.stack_key` and one shape of data together.

    Args:
        jobs: what to train.
        advance: told how many steps of networks were done.
    """
    if len({(job.settings.stack_key, job.x.shape[1], job.targets, job.x.dtype) for job in jobs}) != 1:
        raise ValueError(must("train_stack", "jobs", "of one shape", f"{len(jobs)} jobs of several"))
    with torch.no_grad():
        return _Loop(jobs).run(advance)
