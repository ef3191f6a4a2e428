"""One epoch of training: steps, noise in closed form, validation, and losses that are not finite."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import Diverged, NoRandomness, must
from bayesdrop.fit.average import averaged, update_average
from bayesdrop.fit.checkpoint import Run
from bayesdrop.fit.checks import Objective
from bayesdrop.fit.data import Batches, pieces
from bayesdrop.fit.history import History
from bayesdrop.fit.ranks import Alone
from bayesdrop.fit.rates import ScheduledRates
from bayesdrop.inputs import Inputs, call, take_rows
from bayesdrop.layers import StochasticLayer
from bayesdrop.likelihoods import Categorical, ConstantNoise, Likelihood
from bayesdrop.predict import predict
from bayesdrop.randomness import Turns, random_state_kept
from bayesdrop.trace import evaluating

__all__ = ["Loop", "training"]


@dataclass
class Loop:
    """The settings and data of a training run, which stay the same, and its epochs."""

    run: Run
    model: nn.Module
    objective: Objective
    data: Batches
    validation: Batches | None
    validation_draws: int
    clip_norm: float | None
    lr: float
    seed: int
    checkpoint: Path | None
    #: from the model to a number, higher for better, used instead of the validation loss
    score: Callable[[nn.Module], float] | None
    #: pieces that a minibatch is run in
    accumulate: int
    #: decay of the moving average of the weights
    ema: float | None
    #: the random numbers of this run
    numbers: Turns
    #: drop rates by a schedule
    rates: ScheduledRates | None = None
    #: the processes that train together
    ranks: Alone = field(default_factory=Alone)
    #: whether `max_seconds` are over
    is_over: Callable[[], bool] = lambda: False
    #: the epoch that the checkpoint holds, if this run wrote or read one
    written: int | None = None
    #: the model's and objective's tensors at the end of the last epoch, all finite
    last_good: dict[str, Tensor] | None = None

    def __post_init__(self) -> None:
        self.parameters: list[Tensor] = [p for g in self.run.optimizer.param_groups for p in g["params"]]
        likelihood = getattr(self.objective, "likelihood", None)
        self.likelihood = likelihood if isinstance(likelihood, Likelihood) else None
        self.has_m_step = bool(getattr(self.objective, "has_m_step", False))

    def run_epoch(self, *, patience: int | None, min_delta: float) -> bool:
        """One pass over the data, and everything after it except the checkpoint.

        Returns: whether all data were used; time may run out before.
        """
        run, history = self.run, self.run.history
        start = time.perf_counter()
        means, whole = self.train_epoch()
        self.ranks.mean_buffers(run.modules.values())
        run.epoch += 1
        if not _all_finite(self.parameters):
            raise self.diverged("a parameter was not finite after", run.epoch)
        if self.has_m_step:
            with self.numbers.copy():
                self.m_step(num_draws=1, seed=run.epoch)
        for name, value in means.items():
            getattr(history, name).append(value)
        with averaged(run):
            self.judge(patience=patience, min_delta=min_delta)
            self.record()
            self.last_good = run.copy_state(self.last_good)
        history.seconds.append(time.perf_counter() - start)
        return whole

    def judge(self, *, patience: int | None, min_delta: float) -> None:
        """Validate, keep the best weights, and find whether patience ran out."""
        run, figure = self.run, None
        if self.validation is not None:
            with self.numbers.copy():
                figure = self.validation_loss(self.validation)
            run.history.validation.append(figure)
        if self.score is not None:
            with self.numbers.copy():
                found = self.scored(self.score)
            run.history.score.append(found)
            figure = -found
        if figure is None:
            return
        figure = self.ranks.of_first(figure)
        if figure < run.best_loss - min_delta:
            run.best_loss, run.best_epoch = figure, run.epoch
            if patience is not None or self.score is not None:
                run.best = run.copy_state(run.best)
        run.stopped = patience is not None and run.epoch - (run.best_epoch or 0) >= patience

    @torch.no_grad()
    def scored(self, score: Callable[[nn.Module], float]) -> float:
        """The user's score of the model, in eval mode."""
        with random_state_kept(), evaluating(*self.run.modules.values()):
            found: Any = score(self.model)
        is_number = isinstance(found, int | float | np.number) and not isinstance(found, bool)
        if (isinstance(found, Tensor) and found.numel() == 1) or is_number:
            number = float(found)
            if math.isfinite(number):
                return number
        raise ValueError(must("fit", "score", "a function that gives a finite number", found))

    def train_epoch(self) -> tuple[dict[str, float], bool]:
        """Steps over all minibatches while there is time; at least one step.

        Returns: means over the rows of the loss and its terms, and whether all minibatches were used.
        """
        run, parameters = self.run, self.parameters
        step, clip_norm = run.optimizer.step, self.clip_norm
        advance_lr = None if run.scheduler is None else run.scheduler.step
        sums = [0.0, 0.0, 0.0]
        rows = 0
        has_terms = whole = True
        is_over = False
        for x, y in self.numbers.each(self.data.epoch(run.epoch + 1)):
            if rows and (is_over or (self.ranks.size == 1 and self.is_over())):
                whole = False
                break
            for parameter in parameters:
                parameter.grad = None
            count = y.shape[0] if y.dim() else 1
            if self.rates is not None:
                self.rates.set(run.step)
            # Backward passes draw numbers too: gradient checkpointing runs the forward pass again.
            with self.numbers.lent():
                run.step += 1
                found = [0.0, 0.0, 0.0]
                for part_x, part_y, share in self.own_pieces(x, y):
                    terms, value = self.add_gradient(part_x, part_y, share)
                    nll, kl = getattr(terms, "nll", None), getattr(terms, "kl", None)
                    has_terms = has_terms and nll is not None and kl is not None
                    for place, part in enumerate((value, nll, kl) if has_terms else (value,)):
                        found[place] += _number(part) * share
            found, is_over = self.joined(found)
            sums = [total + part * count for total, part in zip(sums, found, strict=True)]
            if clip_norm is not None:
                nn.utils.clip_grad_norm_(parameters, clip_norm)
            step()
            if advance_lr is not None:
                advance_lr()
            if self.ema is not None:
                update_average(run, self.ema)
            rows += count
        if self.rates is not None:
            self.rates.set(run.step)
        means = {"loss": sums[0] / rows}
        return (means | {"nll": sums[1] / rows, "kl": sums[2] / rows} if has_terms else means), whole

    def joined(self, found: list[float]) -> tuple[list[float], bool]:
        """Add up the gradients of processes that train together, and the loss and its terms.

        Returns: the sums, and whether the time of any process is over.
        """
        if self.ranks.size == 1:
            return found, False
        *sums, over = self.ranks.sum_gradients(self.parameters, [*found, float(self.is_over())])
        if not math.isfinite(sums[0]):
            raise self.diverged(f"the loss was {sums[0]} at", self.run.epoch + 1)
        return sums, over > 0

    def own_pieces(self, x: Inputs, y: Tensor) -> Iterator[tuple[Inputs, Tensor, float]]:
        """The pieces of a minibatch for this process, each with its share of the rows of the minibatch."""
        if self.ranks.size == 1:
            yield from pieces(x, y, self.accumulate)
            return
        total = y.shape[0]
        own = self.ranks.own_rows(total)
        count = own.stop - own.start
        if count:  # a last minibatch may have fewer rows than there are processes
            for part_x, part_y, share in pieces(take_rows(x, own), y[own], self.accumulate):
                yield part_x, part_y, share * count / total

    def add_gradient(self, x: Inputs, y: Tensor, share: float) -> tuple[Any, float]:
        """Add the gradient of the loss of some rows, times their share of the rows of the step.

        Returns: the result of the objective, and the loss.
        """
        terms = self.objective(self.model, x, y)
        loss = terms if isinstance(terms, Tensor) else getattr(terms, "loss", None)
        if not isinstance(loss, Tensor) or loss.dim() or not loss.requires_grad:
            want = "a callable that gives a scalar to differentiate, or has it as `.loss`"
            raise TypeError(must("fit", "objective", want, terms))
        value = loss.item()
        # Processes that train together find it together, from the sum of their losses.
        if not math.isfinite(value) and self.ranks.size == 1:
            raise self.diverged(f"the loss was {value} at", self.run.epoch + 1)
        (loss if share == 1 else loss * share).backward()  # type: ignore[no-untyped-call]
        return terms, value

    def m_step(self, *, num_draws: int, seed: int) -> None:
        """Set the noise in closed form; a loader's random numbers do not change those of training."""
        with random_state_kept():
            try:
                self.objective.m_step(self.model, self.data.in_order(), num_draws=num_draws, seed=seed)  # type: ignore[attr-defined]
            except ValueError as error:
                # Finite weights may be so large that errors are not finite.
                if self.errors_are_finite():
                    raise
                raise self.diverged("the squared error was not finite after", self.run.epoch) from error

    @torch.no_grad()
    def errors_are_finite(self) -> bool:
        """Whether the squared errors of the mean network are finite."""
        with evaluating(self.model):
            squares = (float((y - call(self.model, x)).square().sum()) for x, y in self.data.in_order())
            return all(math.isfinite(square) for square in squares)

    @torch.no_grad()
    def validation_loss(self, batches: Batches) -> float:
        """Mean loss over the validation set."""
        total, count = 0.0, 0
        with random_state_kept(), evaluating(*self.run.modules.values()):
            for x, y in batches.in_order():
                if self.likelihood is not None:
                    losses = -self.log_predictive(self.likelihood, x, y)
                    # The mean is over labels that are not void; the loss of void ones is 0.
                    is_void = isinstance(self.likelihood, Categorical) and ~self.likelihood.counts(y)
                    known = losses.numel() - int(torch.as_tensor(is_void).sum())
                    total, count = total + float(losses.sum(dtype=torch.float64)), count + known
                else:
                    terms = self.objective(self.model, x, y)
                    loss = float(terms if isinstance(terms, Tensor) else terms.loss)
                    total, count = total + loss * y.shape[0], count + y.shape[0]
        if not count:
            raise ValueError(must("fit", "validation", "at least one label that is not void", "none"))
        return total / count

    def log_predictive(self, likelihood: Likelihood, x: Inputs, y: Tensor) -> Tensor:
        """log p(y | x), averaged over draws; without draws where nothing is random."""
        try:
            prediction = predict(
                self.model,
                x,
                likelihood=likelihood,
                num_draws=self.validation_draws,
                seed=self.seed,
                targets=y,
                keep_draws=False,
            )
        except NoRandomness:
            return likelihood.log_prob(call(self.model, x), y)
        return prediction.log_prob(y)

    def record(self) -> None:
        """Append learning rate, noise and drop rates to the history."""
        history = self.run.history
        history.lr.append(float(self.run.optimizer.param_groups[0]["lr"]))
        if isinstance(self.likelihood, ConstantNoise):
            history.noise_std.append(self.likelihood.noise_std.tolist())
        for path, layer in self.model.named_modules():
            moves = isinstance(layer, StochasticLayer) and any(True for _ in layer.rate_parameters())
            if isinstance(layer, StochasticLayer) and (moves or self.rates is not None):
                history.rates.setdefault(path, []).append(float(layer.p.detach().mean()))

    def call_back(self, callback: Callable[[int, History], bool | None]) -> bool:
        """Call the user's callback after an epoch. Returns: whether to stop."""
        history = replace(self.run.history, best_epoch=self.run.best_epoch, stopped_early=self.run.stopped)
        with self.numbers.copy(), random_state_kept(), averaged(self.run):
            stop = callback(self.run.epoch, history)
        if not (stop is None or isinstance(stop, bool | np.bool_)):
            raise TypeError(must("fit", "callback", "a function that gives True, False or None", stop))
        for module in self.run.modules.values():
            module.train()
        return self.ranks.any_of(bool(stop))

    def diverged(self, what: str, epoch: int) -> Diverged:
        """Put the model back; returns the error that says so."""
        good = len(self.run.history)
        if self.last_good is not None:
            self.run.put_back(self.last_good)
        where = f"to the end of epoch {good}" if good else "to where it started"
        kept = (
            "" if self.written is None else f" The checkpoint {self.checkpoint} holds epoch {self.written}."
        )
        return Diverged(
            f"fit: {what} step {self.run.step} (epoch {epoch}). Lower `lr`, now {self.lr:g}, or set "
            f"clip_norm=1.0. The model was put back {where}.{kept}",
            step=self.run.step,
            epoch=epoch,
        )


def _number(value: Any) -> float:
    return float(value.detach()) if isinstance(value, Tensor) else float(value)


def _all_finite(parameters: list[Tensor]) -> bool:
    """Whether all parameters are finite, by their sums; one by one only if a sum is not."""
    with torch.no_grad():
        total = sum((p.sum().item() for p in parameters), 0.0)
        return math.isfinite(total) or all(bool(torch.isfinite(p).all()) for p in parameters)


@contextmanager
def training(*modules: nn.Module) -> Iterator[None]:
    """A context: modules are in train mode; at its end flags are restored and gradients set to None."""
    flags = {part: part.training for module in modules for part in module.modules()}
    try:
        for module in modules:
            module.train()
        yield
    finally:
        for part, flag in flags.items():
            part.training = flag
        for module in modules:
            module.zero_grad()
