"""Draws of one model for many strengths of its noise: what comes before the noise runs once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bayesdrop.errors import NoRandomness
from bayesdrop.execute import Runner
from bayesdrop.inputs import InputBatch, arguments, call, structure_of
from bayesdrop.likelihoods import Likelihood
from bayesdrop.noise import NoiseSource, Sampler
from bayesdrop.predict.call import predict
from bayesdrop.predict.prediction import Prediction
from bayesdrop.predict.sampler import Output, checked_output, picked
from bayesdrop.predict.statistics import DrawStatistics, Statistics
from bayesdrop.randomness import random_state_kept
from bayesdrop.trace import Site, Subject, Tape, evaluating, probe, recorded

__all__ = ["NoiseSweep"]

#: from the noise of a site to other noise of the same shape
Change = Callable[[Sampler], Sampler]


@dataclass(frozen=True)
class _Recorded:
    """A batch, and the part of its pass that depends on noise; None where the pass cannot be run again."""

    batch: InputBatch
    tape: Tape | None
    why: str


class NoiseSweep:
    """Predictions of a model with noise, for any strength of the noise.

    A pass of every batch is recorded, as in `predict`, and kept. The draws for other noise start from what
    the noise multiplies. A batch whose pass cannot be recorded is run as a whole for every draw.

    Args:
        model: with noise that is on; nothing else may change it meanwhile.
        batches: of inputs, with their targets if there are any.
        likelihood: what outputs mean.
        num_draws: T.
        seed: of the draws: the same as those of `predict`.
        output: which tensor of several that the model returns.
        owner: the function that errors name.

    Attributes:
        sites: of the model, by their keys.
        foreign: names of functions in the model that draw numbers which no draw can hold.
        targets: of all rows; None if there are none.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[InputBatch],
        *,
        likelihood: Likelihood,
        num_draws: int,
        seed: int,
        output: Output | None,
        owner: str,
    ) -> None:
        self.model = model
        self.likelihood = likelihood
        self.num_draws = num_draws
        self.seed = seed
        self.owner = owner
        self.sites: dict[str, Site] = {}
        self.foreign: list[str] = []
        self._output = output
        with torch.no_grad(), random_state_kept():
            self._parts = list(self._record(batches))
        targets = [part.batch.targets for part in self._parts]
        given = [target.cpu() for target in targets if target is not None]
        self.targets = torch.cat(given) if given else None

    def _record(self, batches: Iterable[InputBatch]) -> Iterator[_Recorded]:
        subject, structure, known = Subject(self.model), None, None
        for batch in batches:
            inputs = arguments(batch.inputs)
            if known is None or structure_of(batch.inputs) != structure:
                structure, known = structure_of(batch.inputs), probe(subject, inputs, thorough=False)
            draw, recorder, returned = recorded(
                subject, inputs, self._pick, seed=self.seed, findings=known, source=NoiseSource(self.seed)
            )
            output = checked_output(returned, batch.rows, self.owner)
            self.sites |= draw.sites
            self.foreign += draw.foreign
            tape = recorder.tape(output)
            if not recorder.is_random:
                raise NoRandomness(f"{self.owner}: no noise reaches the output of the model.")
            if draw.unsure:  # where the rows are must be found out first, which `predict` does
                tape = None
            yield _Recorded(batch, tape, recorder.broken or "")

    def _pick(self, returned: object) -> object:
        return picked(returned, self._output, self.owner)

    @property
    def whole(self) -> str | None:
        """Why the whole model runs for every draw; None where the part before the noise runs once."""
        return next((part.why or "its rows are not known" for part in self._parts if part.tape is None), None)

    @torch.no_grad()
    def bare(self) -> Prediction:
        """What the model says without noise, as a prediction of one draw."""
        return self._joined([self._statistics(part, iter([self._quiet(part)])) for part in self._parts])

    def _quiet(self, part: _Recorded) -> Tensor:
        """(1, N, ...) the output without noise: that of noise which is one everywhere."""
        tape = part.tape
        if tape is not None and not tape.mutates:
            ones = (torch.ones(leaf.shape, dtype=leaf.dtype, device=leaf.device) for leaf in tape.leaves)
            return tape.run(*ones).unsqueeze(0)
        with random_state_kept(), evaluating(self.model):
            output = self._pick(call(self.model, part.batch.inputs))
        return checked_output(output, part.batch.rows, self.owner).unsqueeze(0)

    @torch.no_grad()
    def prediction(self, change: Change, apply: Callable[[], None]) -> Prediction:
        """The prediction with other noise.

        Args:
            change: gives the other noise of every site.
            apply: gives the model itself that noise, where it has to be run as a whole.
        """
        source = NoiseSource(self.seed, most=self.num_draws)
        parts = []
        for part in self._parts:
            if part.tape is not None:
                leaves = [replace(leaf, sample=change(leaf.sample)) for leaf in part.tape.leaves]
                tape = copy.copy(part.tape)
                tape.leaves = leaves
                runner = Runner(tape, source, num_draws=self.num_draws)
                parts.append(self._statistics(part, runner.outputs(0, self.num_draws)))
                continue
            apply()
            whole = predict(
                self.model, part.batch.inputs, num_draws=self.num_draws, seed=self.seed, output=self._output,
                keep_draws=True,
            )  # fmt: skip
            parts.append(self._statistics(part, iter([whole.draws.to(_device(part.batch))])))
        return self._joined(parts)

    def _statistics(self, part: _Recorded, outputs: Iterator[Tensor]) -> Statistics:
        running = DrawStatistics(self.likelihood, part.batch.targets)
        for some in outputs:
            running.update_many(some)
        return running.result()

    def _joined(self, parts: list[Statistics]) -> Prediction:
        return Prediction.from_statistics(
            Statistics.concatenate(parts), self.likelihood, shared=True, plan=self.owner, draws=None,
            targets=self.targets,
        )  # fmt: skip


def _device(batch: InputBatch) -> torch.device:
    return torch.device("cpu") if batch.targets is None else batch.targets.device
