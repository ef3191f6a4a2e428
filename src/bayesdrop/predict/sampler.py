"""DrawSampler: the outputs of T draws of a model for one batch, computed in the cheapest safe way."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, TypeVar

from torch import Tensor, nn

from bayesdrop.errors import NoRandomness, is_one_of, must
from bayesdrop.execute import DrawPlan, Reading, Runner, read
from bayesdrop.inputs import Inputs, arguments, structure_of
from bayesdrop.noise import NoiseSource, PixelSource
from bayesdrop.randomness import OwnNumbers, is_alone
from bayesdrop.trace import (
    Draw,
    HeldNoise,
    ModelFindings,
    Recorder,
    Selection,
    Site,
    Subject,
    Tape,
    Where,
    first_look,
    leaves_doubts,
    probe,
    recorded,
    settled,
)

__all__ = [
    "DrawSampler",
    "Output",
    "PartlyRandom",
    "check_output",
    "check_sites",
    "checked_output",
    "no_randomness",
    "picked",
    "unwrapped",
]

#: a name, an index, or a function of the value that the model returns
Output = str | int | Callable[[Any], Tensor]


class PartlyRandom(UserWarning):
    """A part of the model that looks random is not, or draws numbers that no seed holds."""


_WARNED: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_UNHELD: weakref.WeakSet[nn.Module] = weakref.WeakSet()


# How often to record a pass where another thread may have moved a generator.
_TRIES = 3
_Found = TypeVar("_Found", bound=Recorder | None)
_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside wrappers that only change how it is run: compiled, data parallel."""
    while True:
        inner: Any = None
        if "_orig_mod" in model._modules:  # a script's modules have no `get`
            inner = model._modules["_orig_mod"]
        elif isinstance(model, _PARALLEL):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


class DrawSampler:
    """Makes draws of a model, batch after batch.

    Args:
        model: any module.
        seed: of the draws.
        num_draws: how many draws to make.
        first: number of the first draw.
        per_row: every row has its own noise.
        include, exclude: which sites are on.
        recurrent: "variational" for one mask over time between recurrent layers.
        max_memory: bytes that the draws run at a time may take.
        way: how to run the draws, whatever it costs; None to choose.
        chunk: the most draws to run at a time.
        output: which of the tensors that the model returns.
        source: where noise comes from.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        seed: int,
        num_draws: int,
        first: int = 0,
        per_row: bool,
        include: Where | Iterable[Where] | None,
        exclude: Where | Iterable[Where] | None,
        recurrent: str,
        max_memory: int | None,
        way: str | None,
        chunk: int | None = None,
        output: Output | None = None,
        source: NoiseSource,
    ) -> None:
        if not is_one_of(recurrent, ("module", "variational")):
            raise ValueError(must("predict", "recurrent", "'module' or 'variational'", recurrent))
        self.subject = Subject(model)
        self.model = model
        self.seed = seed
        self.num_draws = num_draws
        self.first = first
        self.per_row = per_row
        self.max_memory = max_memory
        self.way = way
        self.chunk = chunk
        self.output = output
        self.selection = Selection(include, exclude)
        self.selection.check(model)
        self.source = source
        self.plan: DrawPlan | None = None
        self.sites: dict[str, Site] = {}
        self._options: dict[str, Any] = {
            "seed": seed,
            "selection": self.selection,
            "source": self.source,
            "variational": recurrent == "variational",
            "per_row": per_row,
        }
        self._structure: Any = None

    def batch(self, batch: Inputs, rows: int, offset: int) -> Iterator[Tensor]:
        """Outputs of `num_draws` draws for one batch, in order, as stacks (C, N, ...).

        Args:
            batch: inputs.
            rows: how many rows it has.
            offset: number of its first row.
        """
        first, last = self.first, self.first + self.num_draws
        place: dict[str, Any] = {"offset": offset} if self.per_row else {}
        if self.way == "whole model":
            yield from self._whole(batch, rows, place, range(first, last), "as asked")
            return
        work: Tape | Reading | None = None
        # Only a draw marks the noise of pixels, which a `PixelSource` needs.
        plain = isinstance(self.model, nn.Sequential) and self.output is None
        if plain and not isinstance(self.source, PixelSource):
            work = read(self.model, batch, per_row=self.per_row, selection=self.selection)
        if isinstance(work, Reading):
            self._look_at(work.sites, [])
        elif self.num_draws == 1:
            yield from self._whole(batch, rows, place, range(first, last), "there is one draw")
            return
        else:
            draw, recorder, output = self._recorded(batch, rows, place, first)
            self._look_at(draw.sites, draw.foreign)
            yield output.unsqueeze(0)
            first += 1
            work = recorder.tape(output)
            if not recorder.is_random:
                raise NoRandomness("predict: no noise of `model` reaches its output.")
            if work is None:
                yield from self._whole(batch, rows, place, range(first, last), recorder.broken or "")
                return
            del draw, recorder, output
        yield from self._replayed(work, batch, rows, place, range(first, last))

    def _recorded(
        self, batch: Inputs, rows: int, place: dict[str, Any], index: int
    ) -> tuple[Draw, Recorder, Tensor]:
        """One draw, recorded."""
        self._study(batch, recorded=True)

        def run() -> tuple[Draw, Recorder, Any]:
            return recorded(self.subject, arguments(batch), self._pick, index=index, **place, **self._options)

        for _ in range(_TRIES):
            with self._numbers.drawing():
                draw, recorder, output = self._settled(run, batch)
            # If another thread draws numbers, it is not known whether the model did; try once more.
            if is_alone() or not draw.out_of_sight:
                break
        return draw, recorder, checked_output(output, rows)

    @cached_property
    def _numbers(self) -> OwnNumbers:
        """The random numbers that the model draws itself, which go on from draw to draw."""
        return OwnNumbers()

    def _pick(self, returned: Any) -> Any:
        return picked(returned, self.output)

    def _settled(
        self, run: Callable[[], tuple[Draw, _Found, Any]], batch: Inputs
    ) -> tuple[Draw, _Found, Any]:
        """A pass in a draw; run once more if it did without what must be known of the model."""
        done = run()
        if self._findings.is_first_look and leaves_doubts(done[0].noise):
            self._options["findings"] = known = probe(self.subject, arguments(batch), thorough=False)
            if known.trained or not done[0].noise.agrees(known):
                done = run()
            else:
                done[0].noise.book.note(known.off)
        if done[0].unsure:
            known = settled(self.subject, arguments(batch), self._findings)
            self._options["findings"] = known
            if any(known.rows.get(site) != assumed for site, assumed in done[0].unsure.items()):
                done = run()
        return done

    def _replayed(
        self, work: Tape | Reading, batch: Inputs, rows: int, place: dict[str, Any], draws: range
    ) -> Iterator[Tensor]:
        """Draws from a reading or a tape; from the model itself once a draw does not fit the tape."""
        runner = Runner(
            work,
            self.source,
            suffix=f"@{place['offset']}" if self.per_row else "",
            num_draws=self.num_draws,
            max_memory=self.max_memory,
            way=self.way,
            most=self.chunk,
        )
        self.plan = runner.plan
        done = draws.start
        try:
            for outputs in runner.outputs(done, len(draws)):
                self.plan = runner.plan
                done += outputs.shape[0]
                yield outputs
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            # The model itself is always right, and raises the clearest error.
            why = f"another draw does not fit the recording ({str(error).splitlines()[0][:80]})"
            yield from self._whole(batch, rows, place, range(done, draws.stop), why)

    @property
    def _findings(self) -> ModelFindings:
        found: ModelFindings = self._options["findings"]
        return found

    def _study(self, batch: Inputs, *, recorded: bool) -> None:
        """Find what a draw must know of the model, once for every kind of inputs.

        Args:
            batch: of the kind.
            recorded: whether the draw is recorded, so that a first look may be enough.
        """
        structure = structure_of(batch)
        if structure != self._structure or (self._findings.is_first_look and not recorded):
            found = first_look(self.subject) if recorded else None
            found = found or probe(self.subject, arguments(batch), thorough=False)
            self._options["findings"], self._structure = found, structure

    def _whole(
        self, batch: Inputs, rows: int, place: dict[str, Any], draws: range, why: str
    ) -> Iterator[Tensor]:
        """Draws from the model itself."""
        self.plan = DrawPlan("whole model", 1, False, why)
        self._study(batch, recorded=False)

        def run(index: int) -> tuple[Draw, None, Any]:
            def draw_of(model: nn.Module) -> Draw:
                return Draw(model, HeldNoise(model, index=index, **place, **self._options))

            draw, output = self.subject.run(draw_of, arguments(batch), self._pick)
            return draw, None, output

        for index in draws:
            with self._numbers.drawing():
                draw, _, output = self._settled(partial(run, index), batch)
            self._look_at(draw.sites, draw.foreign)
            yield checked_output(output, rows).unsqueeze(0)

    def _look_at(self, sites: dict[str, Site], foreign: list[str]) -> None:
        """Check the sites of the first pass."""
        if not self.sites:
            self.sites = sites
            check_sites(self.model, sites, foreign)

    def __str__(self) -> str:
        on = [site for site in self.sites.values() if site.random]
        names = ", ".join(f"{site.name} ({site.kind})" for site in on[:6]) + (", ..." if len(on) > 6 else "")
        return f"{self.plan}\n{len(on)} of {len(self.sites)} sites are random: {names}"


def check_sites(model: nn.Module, sites: dict[str, Site], foreign: list[str], owner: str = "predict") -> None:
    """After the first pass: raise if no site is on (all variances would be 0); warn of sites that are off.

    Args:
        model: the user's model; there is one warning for each.
        sites: of the model.
        foreign: names of functions in the model that draw numbers which no draw can hold.
        owner: the function that the error names.
    """
    off = [site for site in sites.values() if not site.random]
    if not foreign and not any(site.random for site in sites.values()):
        raise NoRandomness(no_randomness(off, owner))
    # Attention has no dropout by default: no need to warn.
    names = [f"{s.name} ({s.reason})" for s in off if not (s.kind == "attention" and s.reason == "p = 0")]
    if names and model not in _WARNED:
        _WARNED.add(model)
        message = f"{owner}: these are not random: {', '.join(names)}."
        warnings.warn(message, PartlyRandom, stacklevel=_level_of_caller())
    if foreign and model not in _UNHELD:
        _UNHELD.add(model)
        message = f"{owner}: the model draws numbers that no seed can repeat: {', '.join(foreign)}."
        warnings.warn(message, PartlyRandom, stacklevel=_level_of_caller())


#: packages between a user's code and a warning
_CALLED = ("bayesdrop.predict", "bayesdrop.export")


def _level_of_caller() -> int:
    """The stack level, for the caller of this function, of the code that called `predict` or `export`."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(_CALLED):
        level, frame = level + 1, frame.f_back
    return level


def no_randomness(off: list[Site], owner: str = "predict") -> str:
    """The error for a model in which nothing is random, and what to do."""
    found = ", ".join(f"{site.name} ({site.reason})" for site in off) or "none"
    said = f"{owner}: `model` must contain a stochastic layer or dropout with p > 0; got {found}."
    reasons = {site.reason for site in off}
    if any(site.kind == "script" for site in off):
        return f"{said} Give the model before it was scripted: torch.jit runs where no noise can be held."
    if "excluded" in reasons:
        return f"{said} Excluded sites are not random: see `include` and `exclude`."
    return (
        f"{said} To put dropout in front of every weight layer: "
        'model = bd.convert(model, "bernoulli", where="weights", p=0.1). Then train it on: the spread of '
        "a network that was not trained with its dropout means little, unless held-out rows choose it: "
        "bd.inject(model, (x, y), likelihood=...)."
    )


# which of the returned tensors to use


def check_output(output: Any, owner: str = "predict") -> None:
    """Raise unless `output` can say which tensor to use."""
    if output is not None and (
        isinstance(output, bool) or not (isinstance(output, str | int) or callable(output))
    ):
        raise TypeError(must(owner, "output", "a name, an index, a function, or None", output))


def picked(returned: Any, output: Output | None, owner: str = "predict") -> Any:
    """The part of a returned value that `output` names; for None its `.logits`, if any, or all of it."""
    if output is None:
        logits = None if isinstance(returned, Tensor) else getattr(returned, "logits", None)
        return logits if isinstance(logits, Tensor) else returned
    if isinstance(output, str):
        return _by_name(returned, output, owner)
    if isinstance(output, int):
        return _by_place(returned, output, owner)
    return output(returned)


def _by_name(returned: Any, name: str, owner: str) -> Any:
    if isinstance(returned, Mapping) and name in returned:
        return returned[name]
    if not isinstance(returned, Tensor) and hasattr(returned, name):
        return getattr(returned, name)
    names = list(returned) if isinstance(returned, Mapping) else list(getattr(returned, "_fields", ()))
    what = (
        f"one of {', '.join(map(repr, names))}"
        if names
        else f"None or a function: {_described(returned)} is returned"
    )
    raise ValueError(must(owner, "output", what, name))


def _by_place(returned: Any, place: int, owner: str) -> Any:
    if isinstance(returned, Mapping) or hasattr(returned, "to_tuple"):
        returned = tuple(returned.values())
    if not isinstance(returned, tuple | list):
        what = f"None or a function: {_described(returned)} is returned"
        raise ValueError(must(owner, "output", what, place))
    if not -len(returned) <= place < len(returned):
        raise ValueError(must(owner, "output", f"the index of one of {len(returned)} outputs", place))
    return returned[place]


def checked_output(output: Any, rows: int, owner: str = "predict") -> Tensor:
    """The picked output; raise unless it is a tensor with one row for each row of the batch."""
    if not isinstance(output, Tensor):
        hint = "Say which tensor with `output=`: a name, an index, or a function of what the model returns."
        raise TypeError(must(owner, "model", "a model that returns one tensor", type(output), hint))
    if output.dim() < 1 or output.shape[0] != rows:
        raise ValueError(must(owner, "model", f"a model that returns {rows} rows", tuple(output.shape)))
    return output


def _described(value: Any) -> str:
    return "one tensor" if isinstance(value, Tensor) else f"a {type(value).__name__}"
