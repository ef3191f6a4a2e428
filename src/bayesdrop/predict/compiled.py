"""compile(): a model that will be called many times, recorded once and kept by the caller."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.errors import NoRandomness, must, whole_number
from bayesdrop.execute import PreparedPerceptron, Runner, as_perceptron
from bayesdrop.inputs import (
    Inputs,
    arguments,
    as_tensors,
    is_batch,
    mapped,
    num_rows,
    structure_of,
    tensors_in,
    to_device,
)
from bayesdrop.likelihoods import Likelihood
from bayesdrop.noise import NoiseSource, Sampler
from bayesdrop.predict.call import predict
from bayesdrop.predict.prediction import Prediction, frozen_copy
from bayesdrop.predict.sampler import Output, check_output, check_sites, checked_output, picked, unwrapped
from bayesdrop.predict.statistics import DrawStatistics
from bayesdrop.randomness import random_state_kept
from bayesdrop.trace import DoesNotFit, Op, Ref, Selection, Subject, Tape, Where, probe, recorded

__all__ = ["Compiled", "compile"]

#: bytes of weights, or of noise, that are kept ready for all draws
_READY = 64 * 2**20
#: kinds of inputs whose tapes are kept
_KINDS = 16


def compile(
    model: nn.Module,
    example: Inputs,
    *,
    num_draws: int = 100,
    seed: int = 0,
    likelihood: Likelihood | None = None,
    include: Where | Iterable[Where] | None = None,
    exclude: Where | Iterable[Where] | None = None,
    output: Output | None = None,
) -> Compiled:
    """A copy of a model, made ready for many predictions: `compiled(x)` is `predict(model, x, ...)`.

    `predict` studies a model again in every call, so that nothing it knows can be out of date. A compiled
    model keeps what was found: a copy of the model, the tape of its pass, the noise of all draws. Training
    the model further does not change what was compiled; compile it again. The draws are those of `predict`
    with the same seed, to rounding.

        fast = bd.compile(model, x, num_draws=100, likelihood=bd.Gaussian(0.1))
        fast(x).mean, fast(other).std

    Each new shape of inputs is recorded at its first call, and the 16 shapes used last are kept: a server
    should pad batches to a few sizes. It is an error if Python's control flow in the model depends on values
    of its inputs, if the model changes tensors in place, or draws numbers that no draw can hold.

    Args:
        model: any `nn.Module` with something random in it; it is copied.
        example: inputs as in later calls: a tensor or array, or a tuple or mapping of these.
        num_draws: how many functions, T.
        seed: of the draws.
        likelihood: what the outputs mean; copied. None gives moments of the raw outputs.
        include: which sites are on, as in `predict`.
        exclude: which sites are off.
        output: which tensor to use of a model that returns several, as in `predict`.

    Returns: a callable from inputs to a `Prediction` that has kept its draws.

    >>> import bayesdrop as bd
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    >>> fast = bd.compile(net, torch.zeros(5, 3), num_draws=20)
    >>> fast(torch.ones(2, 3))
    Prediction((2, 1), raw outputs, 20 draws, kept)
    """
    if not isinstance(model, nn.Module) or isinstance(model, Likelihood):
        raise TypeError(must("compile", "model", "a network, an nn.Module", model))
    if likelihood is not None and not isinstance(likelihood, Likelihood):
        raise TypeError(must("compile", "likelihood", "a Likelihood, as Categorical(), or None", likelihood))
    num_draws = whole_number("compile", "num_draws", num_draws, at_least=1)
    seed = whole_number("compile", "seed", seed)
    check_output(output, "compile")
    include, exclude = _reusable(include), _reusable(exclude)
    selection = Selection(include, exclude, owner="compile")
    selection.check(model)
    try:
        own = copy.deepcopy(unwrapped(model)).requires_grad_(False)
    except Exception as error:
        raise ValueError(f"compile: `model` cannot be copied ({error}); use predict.") from error
    compiled = Compiled(own, num_draws, seed, frozen_copy(likelihood), include, exclude, output)
    with torch.no_grad():
        compiled.outputs(example, "example")
    return compiled


def _reusable(where: Where | Iterable[Where] | None) -> Where | Iterable[Where] | None:
    """The rules in a form that can be read more than once, which an iterator cannot."""
    return tuple(where) if isinstance(where, Iterator) else where


class Compiled:
    """A model made ready for many predictions. Made by `bayesdrop.compile`.

    Args:
        model: a private copy, which nothing else changes.
        num_draws: T.
        seed: of the draws.
        likelihood: what outputs mean.
        include: which sites are on.
        exclude: which sites are off.
        output: which of the tensors that the model returns.
        owner: the function that errors name.
    """

    def __init__(
        self,
        model: nn.Module,
        num_draws: int,
        seed: int,
        likelihood: Likelihood | None,
        include: Where | Iterable[Where] | None,
        exclude: Where | Iterable[Where] | None,
        output: Output | None,
        owner: str = "compile",
    ) -> None:
        self._owner = owner
        self.num_draws, self.seed, self.likelihood = num_draws, seed, likelihood
        self._model, self._output = model, output
        self._include, self._exclude = include, exclude
        self._selection = Selection(include, exclude, owner=owner)
        self._source = _ReadySource(seed, num_draws)
        self._kinds: OrderedDict[Any, _Recorded] = OrderedDict()
        tensors = [*model.parameters(), *model.buffers()]
        self._device = tensors[0].device if tensors else torch.device("cpu")
        self._dtype = next((t.dtype for t in tensors if t.is_floating_point()), None)

    def __repr__(self) -> str:
        name = "raw outputs" if self.likelihood is None else type(self.likelihood).__name__
        return f"Compiled({type(self._model).__name__}, {name}, {self.num_draws} draws)"

    def __call__(self, x: Inputs) -> Prediction:
        """The predictive distribution of a batch, as `predict` gives it.

        Args:
            x: a tensor or array with N rows, or a tuple (positional) or mapping (keywords) of these.
        """
        with torch.no_grad():
            outputs, plan = self.outputs(x)
            running = DrawStatistics(self.likelihood)
            running.update_many(outputs)
            statistics = running.result()
        return Prediction.from_statistics(
            statistics, self.likelihood, shared=True, plan=plan, draws=outputs.cpu(), targets=None, joint=None
        )

    def draws(self, x: Inputs) -> Tensor:
        """(T, N, ...) raw outputs of all draws, on the model's device.

        Args:
            x: as in a call.
        """
        with torch.no_grad():
            return self.outputs(x)[0]

    def outputs(self, x: Any, argument: str = "x") -> tuple[Tensor, str]:
        """Raw outputs of all draws, and how they were computed."""
        if type(x) is not Tensor:
            if not is_batch(x):
                want = "a tensor, an array, or a tuple or mapping of such"
                raise TypeError(must("compile", argument, want, type(x)))
            x = as_tensors(x, self._dtype, "compile")
        inputs = arguments(to_device(x, self._device))
        tensors = tensors_in(inputs)
        # Names and numbers among the inputs belong to the kind: the tape has them as they were.
        kind = (structure_of(inputs), tuple(tensor.shape for tensor in tensors))
        found = self._kinds.get(kind)
        if found is None:
            if num_rows(x, "compile") < 1:
                raise ValueError(must("compile", argument, "at least one row", 0))
            found = _Recorded(self, inputs)
        # The latest kind goes last. Another thread may have removed this kind meanwhile.
        self._kinds.pop(kind, None)
        self._kinds[kind] = found
        if len(self._kinds) > _KINDS:
            self._kinds.popitem(last=False)
        try:
            return found.run(tensors), found.plan
        except DoesNotFit:
            # A shape depends on the values of the inputs: run the model itself.
            whole = predict(
                self._model,
                x,
                num_draws=self.num_draws,
                seed=self.seed,
                keep_draws=True,
                output=self._output,
                include=self._include,
                exclude=self._exclude,
            )
            return whole.draws, f"whole model: another batch does not fit the recording\n{whole.plan}"

    def record(self, inputs: tuple[Any, Any]) -> tuple[Tape, Tensor]:
        """The tape of a batch, whose first values are the inputs, and the output."""
        subject = Subject(self._model)
        known = probe(subject, inputs)
        with random_state_kept():
            draw, recorder, returned = recorded(
                subject,
                inputs,
                lambda value: picked(value, self._output, self._owner),
                any_inputs=True,
                seed=self.seed,
                selection=self._selection,
                findings=known,
                source=self._source,
            )
        check_sites(self._model, draw.sites, draw.foreign, self._owner)
        rows = tensors_in(inputs)[0].shape[0]
        output = checked_output(returned, rows, self._owner)
        tape = recorder.tape(output)
        if tape is None or tape.mutates:
            why = recorder.broken or "it changes tensors in place"
            raise ValueError(f"{self._owner}: `model` cannot be recorded: {why}. Use predict.")
        return tape, output

    @property
    def source(self) -> _ReadySource:
        """Where the noise comes from."""
        return self._source


class _Recorded:
    """The tape for one kind of inputs, ready to run.

    Args:
        owner: the compiled model.
        inputs: an example of this kind.
    """

    def __init__(self, owner: Compiled, inputs: tuple[Any, Any]) -> None:
        self._tape, _ = owner.record(inputs)
        self._num_draws, self._source = owner.num_draws, owner.source
        noisy = {leaf.index for leaf in self._tape.leaves}
        self._before: list[Op] = []
        self._after: list[Op] = []
        for op in self._tape.ops:
            if noisy.isdisjoint(op.refs):
                self._before.append(op)
            else:
                noisy.update(op.outputs)
                self._after.append(op)
        if self._tape.output not in noisy:
            raise NoRandomness("compile: no noise of `model` reaches its output.")
        #: values that do not depend on noise, used by operations that do
        self._edge = {index for op in self._after for index in op.refs} - noisy
        self._ready: PreparedPerceptron | None = None
        self.plan = self._prepare(tensors_in(inputs))

    def _prepare(self, tensors: list[Tensor]) -> str:
        values = self._values(tensors)
        net = as_perceptron(self._bound(values))
        same_input = net is not None and len(self._edge) == 1 and net.start is values[next(iter(self._edge))]
        if net is None or not same_input or PreparedPerceptron.bytes_needed(net, self._num_draws) > _READY:
            return "compiled: the recorded pass, with its noise kept"
        noise = {
            leaf.index: self._source.rows(leaf.key, 0, self._num_draws, leaf.shape, leaf.sample).to(
                leaf.device, leaf.dtype
            )
            for leaf in net.leaves
        }
        self._ready = PreparedPerceptron(net, noise)
        return "compiled: a perceptron, with the weights and the noise of every draw kept"

    def _values(self, tensors: list[Tensor]) -> list[Any]:
        values: list[Any] = [*tensors, *[None] * (self._tape.size - len(tensors))]
        for op in self._before:
            op.run(values)
        return values

    def _bound(self, values: list[Any]) -> Tape:
        """The tape of the operations that depend on noise, for these inputs."""

        def bind(ref: Ref) -> Any:
            return values[ref.index] if ref.index in self._edge else ref

        ops = [
            Op(op.func, mapped(op.args, Ref, bind), mapped(op.kwargs, Ref, bind), op.outputs, op.shapes)
            for op in self._after
        ]
        return Tape(ops, self._tape.leaves, self._tape.output, self._tape.size, mutates=False)

    def run(self, tensors: list[Tensor]) -> Tensor:
        """Outputs (T, N, ...) of all draws for inputs of this kind."""
        values = self._values(tensors)
        if self._ready is not None:
            return self._ready.run(values[next(iter(self._edge))])
        runner = Runner(self._bound(values), self._source, num_draws=self._num_draws)
        stacks = list(runner.outputs(0, self._num_draws))
        return stacks[0] if len(stacks) == 1 else torch.cat(stacks)


class _ReadySource(NoiseSource):
    """Noise that is made once and kept, up to `_READY` bytes."""

    def __init__(self, seed: int, num_draws: int) -> None:
        super().__init__(seed, most=num_draws)
        self._made_before: dict[tuple[str, int, int, tuple[int, ...]], Tensor] = {}
        self._bytes = 0

    def rows(self, site: str, first: int, count: int, shape: tuple[int, ...], sample: Sampler) -> Tensor:
        """See `NoiseSource`."""
        key = (site, first, count, shape)
        made = self._made_before.get(key)
        if made is None:
            made = super().rows(site, first, count, shape, sample)
            if self._bytes + made.nbytes <= _READY:
                self._bytes += made.nbytes
                self._made_before[key] = made
        return made
