"""A draw of a model: inside its context everything random in the model holds its noise.

Four mechanisms work together, each for what the others cannot see. A function mode sees every function of
torch that the model calls, and gives dropout its noise. Hooks on the model see where a pass of the whole
model begins and ends. A flag in the place of `module.training` shows which module a call of dropout belongs
to, and keeps everything else in eval mode. A context variable says which draws are open in this thread or
task.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesdrop.inputs import batch_rows, structure_of, tensors_in
from bayesdrop.operations import name_of, names, written_by
from bayesdrop.randomness import ProcessSwitch, SeedWatch, Stream, global_states, have_moved, is_alone
from bayesdrop.trace.handlers import Arguments, Keywords, handler_of, is_random_function
from bayesdrop.trace.held import HeldNoise, ModelFindings, RowAxis, check_groups
from bayesdrop.trace.isolate import OF_EVERY_MODULE, OPEN, RUNNING, PassState, Subject, may_keep_tensors
from bayesdrop.trace.sites import HeldFlag, Site, compares_flag, flags_kept, needs_no_watching
from bayesdrop.trace.tape import Recorder, memory_of

__all__ = ["Draw", "active_draw", "recorded"]

_ACTIVE: ContextVar[tuple[Draw, ...]] = ContextVar("bayesdrop_active_draws", default=())


def active_draw(module: nn.Module) -> HeldNoise | None:
    """The noise of the innermost open draw that holds some for this module, if any."""
    for draw in reversed(_ACTIVE.get()):
        if module in draw.noise.book.paths:
            return draw.noise
    return None


class Draw:
    """A context in which the noise of a model stays the same. Users open a `FunctionDraw`.

    Args:
        model: any module.
        noise: of the model's sites.
        find_out: from inputs to findings about the model; None if `noise` has them already.

    Attributes:
        out_of_sight: after a recorded pass, whether a global generator moved during it although no function
            that draws from one was seen.
    """

    #: marks the hooks of a draw on a module: see `is_draws_hook`
    is_draw_of_model = True

    def __init__(
        self,
        model: nn.Module,
        noise: HeldNoise,
        find_out: Callable[[tuple[Any, Any]], ModelFindings] | None = None,
    ) -> None:
        self.model = model
        self.noise = noise
        self.out_of_sight = False
        self._find_out = find_out
        self._structure: Any = None
        self._depth = 0
        self._mode: _InterceptMode | None = None
        self._exit: ExitStack | None = None
        self._turn = ExitStack()
        self._flags: dict[nn.Module, bool | HeldFlag] = {}
        self._shared_tensors: Sequence[Tensor] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A copy of the model that is made inside the draw has the hooks below; they do nothing for the copy.
        return self

    @property
    def sites(self) -> dict[str, Site]:
        """Every site of the latest pass, on or off."""
        return self.noise.book.sites

    @property
    def foreign(self) -> list[str]:
        """Names of functions in the model that draw numbers which no draw can hold."""
        return self.noise.book.foreign

    @property
    def unsure(self) -> dict[str, RowAxis | None]:
        """Sites where the place of the rows is uncertain, and the place that was assumed."""
        return self.noise.unsure

    @property
    def escaped(self) -> bool:
        """Whether a module of the model itself ran in the place of its copy."""
        return self.noise.book.escaped

    def watch_over(self, tensors: Sequence[Tensor], copies: Mapping[nn.Module, nn.Module]) -> None:
        """Say that `model` is a private copy.

        Args:
            tensors: those that the copy shares with the original.
            copies: from every module of the original to its copy.
        """
        self._shared_tensors = tensors
        self.noise.book.is_copy_of(copies)

    # opening and closing

    def __enter__(self) -> Self:
        noise = self.noise
        if self._exit is not None:
            raise RuntimeError(f"{noise.owner}: this draw is open already; make another one.")
        states = None if noise.recorder is None else global_states()
        with ExitStack() as stack:
            if states is not None:
                stack.callback(lambda: self._check_unseen(states))
            if not noise.book.originals:
                stack.enter_context(OPEN.claimed(noise.book.paths))
            self._turn = ExitStack()
            self._flags = {}
            stack.callback(self._turn.close)
            token = _ACTIVE.set((*_ACTIVE.get(), self))
            stack.callback(_ACTIVE.reset, token)
            self._depth = 0
            noise.open()
            stack.enter_context(flags_kept(noise.book.paths))
            self._set_flags()
            noise.is_watched = noise.sees_all or not needs_no_watching(self.model)
            if noise.is_watched:
                self._watch(stack)
            else:
                # Its layers ask for their noise themselves, and nothing else in it is random.
                self._mode = None
                stack.enter_context(_eagerly())
            stack.callback(self._check_order)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._exit is not None:
            stack, self._exit = self._exit, None
            stack.close()

    def is_current(self) -> bool:
        """Whether the calling code is inside this draw, and not in another thread or task."""
        return self in _ACTIVE.get()

    def _watch(self, stack: ExitStack) -> None:
        """See every pass of the model, and every function that it calls."""
        if not isinstance(self.model, torch.jit.ScriptModule):  # which takes no hooks and has no sites
            before = self.model.register_forward_pre_hook(self._before, with_kwargs=True)
            stack.callback(before.remove)
            after = self.model.register_forward_hook(self._after, with_kwargs=True, always_call=True)
            stack.callback(after.remove)
        self._mode = _InterceptMode(self)
        stack.enter_context(self._mode)

    def _check_order(self) -> None:
        top = torch.overrides._get_current_function_mode()  # type: ignore[no-untyped-call]
        is_last = _ACTIVE.get()[-1:] == (self,)
        if not is_last or (self._mode is not None and top is not self._mode):
            raise RuntimeError(
                f"{self.noise.owner}: draws must be left in the order in which they were opened, the last "
                "first; do not hold one across an await."
            )

    def _check_unseen(self, states: Any) -> None:
        """Note it if the recorded pass has drawn numbers although no function was seen to draw them."""
        recorder = self.noise.recorder
        if recorder is not None and self._mode is not None:
            recorder.put_back = self._mode.put_back
        if not self.foreign and have_moved(states, global_states(), torch_too=is_alone()):
            self.out_of_sight = True
            self.saw_foreign_randomness("a random function out of sight")

    def saw_foreign_randomness(self, name: str) -> None:
        """Note that the model calls `name`, which draws numbers that no draw can hold."""
        self.foreign.append(name)
        if self.noise.recorder is not None:
            self.noise.recorder.stop(f"the model calls {name}, which no draw can hold")

    # A pass. Another thread may call the two hooks too, without keywords while they are being added or
    # removed: they do nothing for it.

    def _before(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, /
    ) -> None:
        mode, noise = self._mode, self.noise
        if mode is None or mode.asleep or module is not self.model or not self.is_current():
            return
        self._depth += 1
        if self._depth > 1:
            return  # the model calls itself
        inputs = (args, kwargs or {})
        if noise.num_functions > 1:
            check_groups(noise.owner, inputs, noise.num_functions)
        self._study(mode, inputs)
        if not self._flags_are_set():
            self._set_flags()
        if not noise.book.originals:
            self._turn.enter_context(RUNNING.claimed(filter(may_keep_tensors, noise.book.paths)))
        noise.start_pass(inputs)
        mode.start_pass(PassState(self.model, inputs, self._shared_tensors))

    def _after(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
        mode, output = self._mode, rest[-1]
        if mode is None or mode.asleep or module is not self.model or not self.is_current():
            return output
        self.noise.end_pass(flags_changed=not self._flags_are_set())
        self._depth -= 1
        if self._depth == 0 and mode.state is not None:
            state, mode.state = mode.state, None
            try:
                output = state.finish(output)
            finally:
                self._turn.close()
            known = self.noise.findings
            sets_flags = known is not None and known.sets_flags
            if not self.noise.book.originals and not sets_flags and not self._flags_are_set():
                raise RuntimeError(
                    f"{self.noise.owner}: the training flags of the model were changed while a pass of it "
                    "was running in a draw. Another thread must not call train() or eval() on it meanwhile; "
                    "`predict` does not mind."
                )
        return output

    def _study(self, mode: _InterceptMode, inputs: tuple[Any, Any]) -> None:
        """Find out what must be known of the model, once for every kind of inputs in this draw."""
        structure = structure_of(inputs)
        if self._find_out is None or structure == self._structure:
            return
        mode.asleep = True
        try:
            self.noise.findings = self._find_out(inputs)
        finally:
            mode.asleep = False
        self._structure = structure
        self._set_flags()

    # training flags

    def _set_flags(self) -> None:
        book, known = self.noise.book, self.noise.findings
        book.trained = known.trained if known is not None else frozenset()
        book.note(known.off if known is not None else ())
        for module, path in book.paths.items():
            if not isinstance(module, torch.jit.ScriptModule):
                # Written to the dictionary: nn.Module.__setattr__ would cost ten times as much.
                on = path in book.trained and book.selected_below(path)
                now = module.__dict__["training"]
                was = now.was if isinstance(now, HeldFlag) else bool(now)
                plain = compares_flag(module.__class__)
                flag = on if plain else HeldFlag.of(book, path, training=on, was=was)
                module.__dict__["training"] = self._flags[module] = flag

    def _flags_are_set(self) -> bool:
        """Whether the flags are still those of this draw: `model.eval()` sets others."""
        return all(module.__dict__["training"] is flag for module, flag in self._flags.items())


def recorded(
    subject: Subject,
    inputs: tuple[Any, Any],
    pick: Callable[[Any], Any] | None = None,
    *,
    any_inputs: bool = False,
    **options: Any,
) -> tuple[Draw, Recorder, Any]:
    """Record one pass of a model.

    Args:
        subject: the model.
        inputs: the positional and keyword arguments of the call.
        pick: takes the wanted part of the output; None for all of it.
        any_inputs: record what depends on the inputs too. Their tensors, in the order of `tensors_in`, are
            the first values of the tape.
        options: of `HeldNoise`.

    Returns: the draw, which is closed, the recorder, and the output.
    """
    recorder, rows = Recorder(), batch_rows(inputs)

    def draw_of(model: nn.Module) -> Draw:
        nonlocal recorder
        recorder = Recorder()
        for tensor in tensors_in(inputs):
            recorder.input(tensor) if any_inputs else recorder.constant(tensor)
            if rows is not None and tensor.dim() > 0:
                recorder.rows(tensor)
        for module in model.modules():
            if isinstance(module, torch.jit.ScriptModule):
                recorder.stop("a part of the model is a script")
            for name, value in vars(module).items():
                if name in _TENSORS_OF_MODULE or name not in OF_EVERY_MODULE:
                    recorder.constants(tensors_in(value))
        return Draw(model, HeldNoise(model, recorder=recorder, **options))

    draw, output = subject.run(draw_of, inputs, pick)
    return draw, recorder, output


_TENSORS_OF_MODULE = ("_parameters", "_buffers")


# the function mode


def _run_eagerly() -> Callable[[], Any]:
    """Run compiled parts of models eagerly, since compiled code does not call a function mode."""
    stack = ExitStack()
    stack.enter_context(torch.compiler.set_stance("force_eager"))
    return stack.close


_eager = ProcessSwitch(_run_eagerly)


def _eagerly() -> AbstractContextManager[None]:
    """A context in which compiled parts of models run eagerly."""
    return _eager if "torch._dynamo" in sys.modules else nullcontext()


class _InterceptMode(TorchFunctionMode):
    """Sees every torch function that a model calls: gives dropout its noise, and passes calls to a recorder.

    Attributes:
        state: what the current pass may change; None outside a pass.
        put_back: memory that was written to in a pass and put back after it.
        asleep: whether calls are ignored, while passes of another draw study the model.
    """

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.draw = draw
        self.noise = draw.noise
        self.state: PassState | None = None
        self.put_back: set[int] = set()
        self.asleep = False
        self._entered = 0
        self._only_streams = False
        self._exit = ExitStack()
        self._seeds = SeedWatch()

    def __enter__(self) -> Self:
        if self._entered == 0:
            self._exit.enter_context(_eagerly())
            self._seeds = SeedWatch()
            below: list[Any] = torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]
            self._only_streams = all(type(mode) is Stream for mode in below)
        self._entered += 1
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._entered -= 1
        if self._entered == 0:
            self._exit.close()

    def __torch_function__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.asleep or not self.draw.is_current():
            return func(*args, **kwargs)
        handler = handler_of(func, self, in_pass=self.state is not None)
        if handler is not None:
            result = handler(self, func, args, kwargs)
            if result is not NotImplemented:
                return result
        args, kwargs = self._without_flags(args), self._without_flags(kwargs)
        name = name_of(func)
        for tensor in tensors_in(written_by(name, args, kwargs)):
            self._before_write(tensor)
        if is_random_function(name, args, kwargs) and (
            self.state is not None or self.noise.book.is_running()
        ):
            self.draw.saw_foreign_randomness(name)
        return self.run(func, args, kwargs)

    def run(self, func: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Call a function as it is, and record it."""
        recorder = self.noise.recorder
        if recorder is None:
            return func(*args, **kwargs)
        known = self._only_streams and name_of(func) in _DRAW_NOTHING
        if known and _are_plain(args) and (not kwargs or _are_plain(kwargs.values())):
            # No stream need see it, nor what the recorder asks of its tensors: a mode takes longer than that.
            with torch._C.DisableTorchFunction():
                return recorder.call(func, args, kwargs)
        return recorder.call(func, args, kwargs)

    def overwrite(self, target: Tensor, value: Tensor) -> Tensor:
        """Write the elements of `value` into `target`, as a dropout in place does; returns `target`."""
        self._before_write(target)
        recorder = self.noise.recorder
        return target.copy_(value) if recorder is None else recorder.overwrite(target, value)

    def unchanged(self, x: Tensor) -> Tensor:
        """A tensor with the elements of `x` that may still be read after `x` is overwritten."""
        recorder = self.noise.recorder
        return x if recorder is None else recorder.unchanged(x)

    def ours(self, flag: Any) -> bool:
        """Whether a call with this training flag belongs to the model of this draw."""
        return not isinstance(flag, HeldFlag) or flag.owner is self.noise.book

    def start_pass(self, state: PassState) -> None:
        """Begin a pass of the whole model."""
        self.state = state
        self._seeds = SeedWatch()

    def seeded(self) -> bool:
        """Whether the model has seeded the global generator, to get the same numbers in every pass."""
        return self._seeds.seeded()

    def _before_write(self, target: Tensor) -> None:
        """Keep a copy of `target`, which is about to change, if it existed before the pass."""
        if self.state is not None and self.state.before_write(target):
            self.put_back.add(memory_of(target))

    def _without_flags(self, value: Any) -> Any:
        """The arguments with every flag of this draw replaced by False; flags of other draws stay."""
        if isinstance(value, HeldFlag):
            return False if value.owner is self.noise.book else value
        if type(value) in (tuple, list) and not _MAY_HOLD_FLAGS.isdisjoint(map(type, value)):
            return type(value)(self._without_flags(part) for part in value)
        if type(value) is dict and not _MAY_HOLD_FLAGS.isdisjoint(map(type, value.values())):
            return {name: self._without_flags(part) for name, part in value.items()}
        return value


#: functions that draw no numbers, whatever they are called with
_DRAW_NOTHING = (
    names(elementwise=True)
    | names(arithmetic=True)
    | names(product=True)
    | names(rows=True)
    | names(reads="shape")
) - names(random=True)


def _are_plain(values: Iterable[Any]) -> bool:
    """Whether no value is of a class that may see the functions it is given to."""
    return all(
        type(value) in _PLAIN or (type(value) in (tuple, list) and _are_plain(value)) for value in values
    )


_PLAIN = frozenset({Tensor, nn.Parameter, int, float, bool, str, type(None), torch.Size, torch.dtype})
_MAY_HOLD_FLAGS = frozenset({HeldFlag, tuple, list, dict})
