"""fit(): the one training loop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from bayesdrop.errors import must, must_be_flag
from bayesdrop.fit.augment import Augment, Augmented, checked_augment
from bayesdrop.fit.average import averaged
from bayesdrop.fit.checkpoint import Run, read_checkpoint, write_checkpoint
from bayesdrop.fit.checks import (
    Objective,
    check_choosing,
    check_judging,
    check_modules,
    check_num_data,
    check_numbers,
    check_schedule,
    check_sharing,
    check_watching,
    checked_path,
)
from bayesdrop.fit.data import Batches, ChosenBatches, as_batches
from bayesdrop.fit.epoch import Loop, training
from bayesdrop.fit.history import History
from bayesdrop.fit.layout import ChannelsLast, laid_out
from bayesdrop.fit.optimise import (
    MakeOptimizer,
    MakeScheduler,
    make_optimizer,
    make_scheduler,
    parameter_groups,
)
from bayesdrop.fit.ranks import seed_of_rank, training_ranks
from bayesdrop.fit.rates import ScheduledRates
from bayesdrop.fit.settings import described, optimizer_settings, scheduler_settings
from bayesdrop.inputs import Inputs
from bayesdrop.progress import progress_bar
from bayesdrop.randomness import Turns, global_states_kept

__all__ = ["fit"]

#: the clock of `max_seconds` and of progress lines
_clock = time.monotonic
Data = tuple[Inputs, Tensor] | Dataset[Any] | DataLoader[Any]


def fit(
    model: nn.Module,
    train: Data,
    objective: Objective,
    *,
    epochs: int,
    batch_size: int | None = 128,
    batches: Callable[[int], Iterable[Any]] | None = None,
    validation: Data | None = None,
    lr: float = 1e-3,
    rate_lr: float | None = None,
    weight_decay: float = 0.0,
    optimizer: MakeOptimizer | None = None,
    rate_optimizer: MakeOptimizer | None = None,
    scheduler: MakeScheduler | str | None = None,
    warmup: float = 0.0,
    p_schedule: Callable[[float], float] | None = None,
    patience: int | None = None,
    min_delta: float = 0.0,
    clip_norm: float | None = None,
    accumulate: int = 1,
    ema: float | None = None,
    augment: Augment | Sequence[Augment] | None = None,
    channels_last: bool = False,
    score: Callable[[nn.Module], float] | None = None,
    validation_draws: int = 20,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1,
    resume: bool = True,
    seed: int = 0,
    generator: torch.Generator | None = None,
    share: Literal["rows"] | None = None,
    callback: Callable[[int, History], bool | None] | None = None,
    max_seconds: float | None = None,
    progress: bool | None = None,
) -> History:
    """Train a model in place by minibatch gradient descent.

    The same seed gives the same weights, bit for bit, also if several threads train their own models: they
    take turns, step by step. (A thread that draws from torch's global generator by itself meanwhile can
    change a run's numbers.) Training flags and the global random state are put back, also after an exception.

    Args:
        model: trained in `train()` mode.
        train: (x, y) with x a tensor, or a tuple or mapping of tensors; a `Dataset` of (x, y) items; or a
            `DataLoader`. The order of rows depends on (seed, epoch); a `DataLoader` has its own order.
        objective: `NegativeELBO`, or any callable (model, x, y) whose result is a scalar or has a `.loss`.
        epochs: passes over the data, those of a checkpoint included.
        batch_size: rows of a step; a last batch of a single row joins the one before. None: all rows at every
            step, in their order. A `DataLoader` has its own.
        batches: chooses the rows of every step instead: a function from the epoch, counted from 1, to the
            minibatches, each a list or tensor of row numbers. Random numbers that it draws from torch's
            global generator are those of the run. Named schedules cannot be used, as the number of steps is
            not known.
        validation: data as in `train`. With a likelihood, the validation loss is minus the mean log
            predictive density; else the objective in eval mode.
        lr: learning rate of the weights and of a learned noise.
        rate_lr: learning rate of drop rates; 10 lr if None, as the logit of a rate changes by more.
        weight_decay: of the weights alone.
        optimizer: from parameter groups (with their own lr) to an optimiser, as `torch.optim.SGD`; Adam if
            None, or AdamW with `weight_decay`.
        rate_optimizer: the same for the drop rates alone, with `rate_lr`; None: `optimizer` trains them too.
        scheduler: a name ("constant", "linear", "cosine" or "one-cycle": see
            `bayesdrop.fit.schedules.NamedSchedule`), over all `epochs`; or from the optimiser to a scheduler,
            stepped after every step of the optimiser.
        warmup: share of all steps in which learning rates rise from near 0; with a named schedule or none.
        p_schedule: from the share of all steps that is done, in [0, 1], to the drop rate, as `RateSchedule`:
            set by `set_rates` before every step, on all layers whose rate is not learned. The model ends with
            the rate that belongs to its weights: that of the last step, or of the best epoch if the weights
            of the best epoch are put back.
        patience: epochs without a better validation loss, or score, before training stops; the weights of the
            best epoch are put back, also if training was not stopped.
        min_delta: by how much a validation loss must be lower, or a score higher, to be better.
        clip_norm: largest norm of the gradient.
        accumulate: how many pieces every minibatch is run in, one after another, to save memory: each adds
            its gradient, times its share of the rows, and one step is made with their sum. For an objective
            that is a mean over rows this is, to rounding, the step of the whole minibatch. (Noise is drawn
            piece by piece, and BatchNorm takes its statistics from each piece.)
        ema: decay, in (0, 1), of a moving average of the weights (and buffers, and of a learned noise), as
            .999: see `bayesdrop.fit.average.update_average`. Validation, `score` and `callback` see the
            averages, and the model ends with them; training steps use the weights themselves.
        augment: changes training minibatches at random: `RandomCrop`, `RandomFlip`, any function from (x, y,
            generator) to (x, y), or several. Its numbers depend on (seed, epoch, minibatch) alone.
        channels_last: store images and convolutions channels last in training, which is faster on most
            machines. The weights have their own layout again afterwards.
        score: called after every epoch with the model, in eval mode; returns a number, higher for better,
            which is used instead of the validation loss. The model ends with the weights of the best epoch.
        validation_draws: draws for the predictive density of the validation data.
        checkpoint: a file to write the whole run to; it is always replaced as a whole.
        checkpoint_every: epochs from one checkpoint to the next; the last epoch is always written.
        resume: go on from the checkpoint if there is one, bit for bit as if the run had never stopped; only
            `epochs` may differ (and not with a named schedule or `p_schedule`, which span all epochs).
        seed: of the order of rows, the noise and the draws of validation.
        generator: noise (and the numbers of a `DataLoader`) begins in the state of this generator, instead of
            at `seed`; it is left in the state where training ends. A run in several calls, as in active
            learning, has new noise in each call that way.
        share: "rows": under `torch.distributed`, as of torchrun, all processes make the same call with the
            same data and train one model: every minibatch of `batch_size` rows is split between them, and
            their gradients are added up. All begin with the weights of the first process. It is, to rounding,
            the run of one process with the same `batch_size` whose noise is drawn piece by piece, as with
            `accumulate`; each process has noise of its own. The first one writes the checkpoint.
        callback: called after every epoch, and after its checkpoint, with the epoch, counted from 1, and the
            history so far; training stops if it returns True. Random numbers that it draws and training flags
            that it sets do not change the run.
        max_seconds: time limit of this call, checked after every step. The steps of an epoch that is cut
            short count for the model and the history. A checkpoint holds the last whole epoch and is written
            after every one; a run that is resumed repeats the epoch that was cut short, bit for bit.
        progress: show the progress of training: a bar in a terminal (needs the extra "cli"), elsewhere a
            plain line at most every ten seconds and at the end. None: the same, but lines only in long runs.

    Raises:
        Diverged: a loss or a parameter was not finite. The model is put back to the end of the last epoch
            in which all were.
    """
    check_modules(model, objective)
    check_numbers(
        {
            "epochs": (epochs, int, 1),
            "batch_size": (1 if batch_size is None else batch_size, int, 1),
            "lr": (lr, float, None),
            "rate_lr": (rate_lr, float, None),
            "weight_decay": (weight_decay, float, 0),
            "patience": (patience, int, 1),
            "min_delta": (min_delta, float, 0),
            "clip_norm": (clip_norm, float, None),
            "validation_draws": (validation_draws, int, 1),
            "checkpoint_every": (checkpoint_every, int, 1),
            "seed": (seed, int, 0),
            "warmup": (warmup, float, 0),
            "accumulate": (accumulate, int, 1),
            "ema": (ema, float, None),
            "max_seconds": (max_seconds, float, None),
        }
    )
    check_watching(callback, score, progress)
    check_schedule(p_schedule)
    check_choosing(generator, batches)
    check_judging(patience=patience, validation=validation, score=score, ema=ema)
    must_be_flag("fit", resume=resume, channels_last=channels_last)
    seed = int(seed)
    path = checked_path(checkpoint, model)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))

    def batches_of(rows: Data, argument: str) -> Batches:
        found = as_batches(rows, argument, batch_size=batch_size, seed=seed, device=device)
        if batches is not None and argument == "train":
            found = ChosenBatches(found, batches)
        if augment is not None and argument == "train":
            found = Augmented(found, checked_augment(augment), seed)
        return ChannelsLast(found) if channels_last else found

    check_sharing(share, train, generator)
    ranks = training_ranks(share, device)
    ranks.same_start([model, *([objective] if isinstance(objective, nn.Module) else [])])
    data = batches_of(train, "train")
    check_num_data(objective, data)
    held_out = None if validation is None else batches_of(validation, "validation")
    rate_lr = 10 * lr if rate_lr is None else rate_lr
    groups = parameter_groups(model, objective, lr=lr, rate_lr=rate_lr, weight_decay=weight_decay)
    made = make_optimizer(groups, optimizer, rate_optimizer)
    steps = data.num_batches()
    total_steps = None if steps is None else epochs * steps
    rates = None if p_schedule is None else ScheduledRates(model, p_schedule, total_steps)
    settings: dict[str, Any] = {}
    if path is not None:
        settings = {
            "batch_size": None if isinstance(train, DataLoader) else batch_size,
            "lr": lr,
            "rate_lr": rate_lr,
            "weight_decay": weight_decay,
            "patience": patience,
            "min_delta": min_delta,
            "clip_norm": clip_norm,
            "validation_draws": validation_draws,
            "seed": seed,
            "optimizer": optimizer_settings(made),
            "model": described(model),
            "objective": described(objective),
            "train": data.description(),
            "validation": None if held_out is None else held_out.description(),
        }
        later = {
            "accumulate": None if accumulate == 1 else accumulate,
            "ema": ema,
            "channels_last": channels_last or None,
            "score": None if score is None else described(score),
            "batches": None if batches is None else described(batches),
            "p_schedule": None if rates is None else rates.described(),
            "ranks": None if ranks.size == 1 else ranks.size,
        }
        # Only where they are used, so that checkpoints of older versions, without them, can be resumed.
        settings |= {name: value for name, value in later.items() if value is not None}
    schedule = make_scheduler(made, scheduler, warmup=warmup, total_steps=total_steps)
    if path is not None:
        settings["scheduler"] = scheduler_settings(schedule)
    modules = {"model": model}
    if isinstance(objective, nn.Module):
        modules["objective"] = objective
    run = Run(modules=modules, optimizer=made, scheduler=schedule, generators=data.generators(), ranks=ranks)
    start = _clock()
    loop = Loop(
        run=run,
        model=model,
        objective=objective,
        data=data,
        validation=held_out,
        validation_draws=validation_draws,
        clip_norm=clip_norm,
        lr=lr,
        seed=seed,
        checkpoint=path,
        score=score,
        accumulate=accumulate,
        ema=ema,
        rates=rates,
        ranks=ranks,
        numbers=Turns(seed_of_rank(seed, ranks.rank), generator),
        is_over=lambda: max_seconds is not None and _clock() - start >= max_seconds,
    )
    stopped_by = None
    with (
        laid_out(*modules.values(), channels_last=channels_last),
        training(*modules.values()),
        global_states_kept(),
        progress_bar("fit", epochs, show=progress if ranks.rank == 0 else False, clock=_clock) as advance,
    ):
        if path is not None and resume and path.exists():
            with loop.numbers.lent():
                read_checkpoint(path, run, settings)
            loop.written = run.epoch
            if run.epoch > epochs:
                hint = f"The checkpoint {path} has done as many."
                raise ValueError(must("fit", "epochs", f"at least {run.epoch}", epochs, hint))
            advance(run.epoch, "")
        with averaged(run):
            loop.last_good = run.copy_state()
        writer = _CheckpointWriter(loop, path, settings, 1 if max_seconds is not None else checkpoint_every)
        while run.epoch < epochs and not run.stopped and stopped_by is None:
            whole = loop.run_epoch(patience=patience, min_delta=min_delta)
            last = run.epoch == epochs or run.stopped
            writer.write(whole=whole, last=last)
            advance(1, f"loss {run.history.loss[-1]:.4g}")
            if callback is not None and loop.call_back(callback):
                stopped_by = "callback"
                writer.write(whole=whole, last=True)
            elif not whole or (ranks.any_of(loop.is_over()) and not last):
                stopped_by = "time"
        final = run.average if run.best is None else run.best
        if final is not None:
            run.put_back(final)
        if rates is not None:
            rates.set(run.step if run.best is None else (run.best_epoch or 0) * (steps or 0))
        if loop.has_m_step:
            with loop.numbers.copy():
                loop.m_step(num_draws=10, seed=run.epoch + 1)
    stopped_by = "patience" if run.stopped else stopped_by
    return replace(run.history, best_epoch=run.best_epoch, stopped_early=run.stopped, stopped_by=stopped_by)


@dataclass
class _CheckpointWriter:
    """Writes the checkpoint of a run every so many epochs."""

    loop: Loop
    path: Path | None
    settings: dict[str, Any]
    every: int

    def write(self, *, whole: bool, last: bool) -> None:
        """Write after an epoch if it is due. One that was cut short (not `whole`) is never written."""
        run = self.loop.run
        due = whole and (last or run.epoch % self.every == 0) and self.loop.written != run.epoch
        if self.path is not None and due:
            with self.loop.numbers.lent():
                write_checkpoint(self.path, run, self.settings)
            self.loop.written = run.epoch
