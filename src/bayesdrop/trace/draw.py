"""A draw of a model: inside its context everything random in the model holds its noise.

Three mechanisms see to it, each for what the others cannot see. A function mode sees every function of torch
that the model calls, and gives dropout its noise. Hooks on the model see where a pass of the whole model
begins and ends. A flag in the place of `module.training` shows whose a call of dropout is, and keeps
everything else in eval mode. A context variable says which draws are open in this thread or task.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesdrop.inputs import structure_of, tensors_in
from bayesdrop.operations import name_of, written_by
from bayesdrop.randomness import ProcessSwitch, SeedWatch, global_states, have_moved, is_alone
from bayesdrop.trace.handlers import Arguments, Keywords, handler_of, is_random_function
from bayesdrop.trace.held import Findings, HeldNoise, RowAxis, check_groups
from bayesdrop.trace.isolate import OPEN, RUNNING, PassState, Subject, may_keep_tensors
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
        noise: of its sites.
        find_out: from inputs to what must be known of the model; None if the noise knows it already.

    Attributes:
        out_of_sight: of a pass that was recorded, whether a global generator moved during it and no function
            was seen that draws from one.
    """

    #: by which its hooks on a module are known
    is_draw_of_model = True

    def __init__(
        self,
        model: nn.Module,
        noise: HeldNoise,
        find_out: Callable[[tuple[Any, Any]], Findings] | None = None,
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
        # A copy of the model, made inside the draw, has the hooks below; they leave it alone.
        return self

    @property
    def sites(self) -> dict[str, Site]:
        """Every site of the latest pass, on or off."""
        return self.noise.book.sites

    @property
    def foreign(self) -> list[str]:
        """Names of functions in the model that draw numbers which nobody can hold."""
        return self.noise.book.foreign

    @property
    def unsure(self) -> dict[str, RowAxis | None]:
        """Sites of which it is not sure how the rows lie, and what was assumed."""
        return self.noise.unsure

    @property
    def escaped(self) -> bool:
        """Whether a module of the model itself ran in the place of its copy."""
        return self.noise.book.escaped

    def watch_over(self, tensors: Sequence[Tensor], copies: Mapping[nn.Module, nn.Module]) -> None:
        """`model` is a private copy: what it shares with the model itself, and every module's copy."""
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
                # Its layers ask for their noise themselves, and nothing else in it can happen.
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
        """Whether the code that asks is inside this draw, and not another thread or task."""
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
        """Whether the pass that was recorded has drawn numbers that no function was seen to draw."""
        recorder = self.noise.recorder
        if recorder is not None and self._mode is not None:
            recorder.put_back = self._mode.put_back
        if not self.foreign and have_moved(states, torch_too=is_alone()):
            self.out_of_sight = True
            self.saw_foreign_randomness("a random function out of sight")

    def saw_foreign_randomness(self, name: str) -> None:
        """Note that the model draws numbers which nobody can hold."""
        self.foreign.append(name)
        if self.noise.recorder is not None:
            self.noise.recorder.stop(f"the model calls {name}, which no draw can hold")

    # a pass. The two hooks may be called by another thread, as they come and go, without keywords: it is let
    # through.

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
        """What must be known of the model, once for every kind of inputs in this draw."""
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
        for site in known.off if known is not None else ():
            book.sites[f"{site.path}:{site.call}:{site.kind}"] = site
        for module, path in book.paths.items():
            if not isinstance(module, torch.jit.ScriptModule):
                # Straight into the dictionary: nn.Module.__setattr__ would cost ten times as much.
                on = path in book.trained and book.selected_below(path)
                now = module.__dict__["training"]
                was = now.was if isinstance(now, HeldFlag) else bool(now)
                plain = compares_flag(module.__class__)
                flag = on if plain else HeldFlag.of(book, path, training=on, was=was)
                module.__dict__["training"] = self._flags[module] = flag

    def _flags_are_set(self) -> bool:
        """Whether the flags are those of this draw still: `model.eval()` sets others."""
        return all(module.__dict__["training"] is flag for module, flag in self._flags.items())


def recorded(
    subject: Subject,
    inputs: tuple[Any, Any],
    pick: Callable[[Any], Any] | None = None,
    *,
    any_inputs: bool = False,
    **options: Any,
) -> tuple[Draw, Recorder, Any]:
    """One pass of a model, written down: the draw, which is closed, the recorder, and the output.

    Args:
        subject: a model.
        inputs: what it is called with, positional and keyword arguments.
        pick: what to take of the output.
        any_inputs: write down what depends on the inputs too. Their tensors, in the order of `tensors_in`,
            are the first values of the tape.
        options: of `HeldNoise`.
    """
    recorder = Recorder()

    def draw_of(model: nn.Module) -> Draw:
        nonlocal recorder
        recorder = Recorder()
        for tensor in tensors_in(inputs):
            recorder.input(tensor) if any_inputs else recorder.constant(tensor)
        for module in model.modules():
            if isinstance(module, torch.jit.ScriptModule):
                recorder.stop("a part of the model is a script")
            for name, value in vars(module).items():
                # Most are numbers, flags, and dictionaries of hooks.
                if isinstance(value, _HOLDERS) and name != "_modules" and not name.endswith("_hooks"):
                    recorder.constants(tensors_in(value))
        return Draw(model, HeldNoise(model, recorder=recorder, **options))

    draw, output = subject.run(draw_of, inputs, pick)
    return draw, recorder, output


_HOLDERS = (Tensor, dict, list, tuple, slice, Mapping)


# the function mode


def _run_eagerly() -> Callable[[], Any]:
    """Compiled parts run as they were written: a compiler would not see a mode."""
    stack = ExitStack()
    stack.enter_context(torch.compiler.set_stance("force_eager"))
    return stack.close


_eager = ProcessSwitch(_run_eagerly)


def _eagerly() -> AbstractContextManager[None]:
    """Inside, compiled parts run as they were written."""
    return _eager if "torch._dynamo" in sys.modules else nullcontext()


class _InterceptMode(TorchFunctionMode):
    """Sees every torch function that a model calls; dropout gets the noise of a draw, and a recorder is told.

    Attributes:
        state: of the pass that is under way.
        put_back: memory that is as it was, after the pass.
        asleep: whether calls pass unseen, while something else is found out about the model.
    """

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.draw = draw
        self.noise = draw.noise
        self.state: PassState | None = None
        self.put_back: set[int] = set()
        self.asleep = False
        self._entered = 0
        self._exit = ExitStack()
        self._seeds = SeedWatch()

    def __enter__(self) -> Self:
        if self._entered == 0:
            self._exit.enter_context(_eagerly())
            self._seeds = SeedWatch()
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
        """Call a function that is not dropout."""
        recorder = self.noise.recorder
        return func(*args, **kwargs) if recorder is None else recorder.call(func, args, kwargs)

    def overwrite(self, target: Tensor, value: Tensor) -> Tensor:
        """`target` with the elements of `value`: what a dropout call in place gives back."""
        self._before_write(target)
        recorder = self.noise.recorder
        return target.copy_(value) if recorder is None else recorder.overwrite(target, value)

    def unchanged(self, x: Tensor) -> Tensor:
        """What to read of a tensor that will be overwritten."""
        recorder = self.noise.recorder
        return x if recorder is None else recorder.unchanged(x)

    def ours(self, flag: Any) -> bool:
        """Whether a call with this training flag belongs to the model of this draw."""
        return not isinstance(flag, HeldFlag) or flag.owner is self.noise.book

    def start_pass(self, state: PassState) -> None:
        """A pass of the whole model begins."""
        self.state = state
        self._seeds = SeedWatch()

    def seeded(self) -> bool:
        """Whether the model has seeded the global generator: it wants the same numbers every time."""
        return self._seeds.seeded()

    def _before_write(self, target: Tensor) -> None:
        """A tensor is about to change; after the pass it will be put back if it was there before."""
        if self.state is not None and self.state.before_write(target):
            self.put_back.add(memory_of(target))

    def _without_flags(self, value: Any) -> Any:
        """Flags of this draw that reach anything but dropout say "eval"; those of others are passed on."""
        if isinstance(value, HeldFlag):
            return False if value.owner is self.noise.book else value
        if type(value) in (tuple, list) and any(_may_hold_flag(part) for part in value):
            return type(value)(self._without_flags(part) for part in value)
        if type(value) is dict and any(_may_hold_flag(part) for part in value.values()):
            return {name: self._without_flags(part) for name, part in value.items()}
        return value


def _may_hold_flag(value: Any) -> bool:
    return type(value) in (HeldFlag, tuple, list, dict)
