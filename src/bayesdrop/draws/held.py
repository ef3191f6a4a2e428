"""FunctionDraw: one sampled function. Inside its context a model's noise is held."""

from __future__ import annotations

from contextlib import ExitStack
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from bayesdrop.draws.claims import OPEN, RUNNING
from bayesdrop.draws.flags import flags_kept
from bayesdrop.draws.indices import check_batch
from bayesdrop.draws.intercept import InterceptMode, eagerly
from bayesdrop.draws.known import needs_no_watching
from bayesdrop.draws.noises import SiteNoise
from bayesdrop.draws.passes import PassState, may_keep_tensors, structure_of
from bayesdrop.draws.sites import HeldFlag, compares_flag
from bayesdrop.draws.source import NoiseSource, Sampler
from bayesdrop.draws.subject import Subject

__all__ = ["FunctionDraw", "HeldNoise", "RowDraw", "active_draw"]

_ACTIVE: ContextVar[tuple[HeldNoise, ...]] = ContextVar("bayesdrop_active_draws", default=())


def active_draw(module: nn.Module) -> HeldNoise | None:
    """The innermost draw that holds noise for this module, if any."""
    for draw in reversed(_ACTIVE.get()):
        if draw.holds(module):
            return draw
    return None


class HeldNoise(SiteNoise):
    """Noise that stays the same while this context is open. Use `FunctionDraw` or `RowDraw`.

    Args:
        model: any module.
        seed: names a sequence of functions.
        index: which of them: a whole number, or several where rows share noise.
        selection: which sites are on; all if None.
        source: where noise comes from; shared between draws, so that none is made twice.
        study: what is known of the model; found out in the first pass if None.
        variational: one mask over time between recurrent layers, instead of one for each step.
    """

    _depth = 0
    _mode_of_pass: InterceptMode | None = None
    _exit: ExitStack | None = None
    _structure: Any = None
    _turn: ExitStack
    _flags: dict[nn.Module, bool | HeldFlag]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A copy of the model, made inside the draw, has the hooks below; they leave it alone.
        return self

    # The two hooks may be called by another thread, as they come and go, without keywords: it is let through.

    def _before(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, /
    ) -> None:
        mode = self._mode_of_pass
        if mode is None or mode.asleep or module is not self.model or not self.is_current():
            return
        self._depth += 1
        if self._depth > 1:
            return  # the model calls itself
        inputs = (args, kwargs or {})
        if self.num_functions > 1:
            check_batch(type(self).__name__, inputs, self.num_functions)
        self._find_out(mode, inputs)
        if not self.flags_are_set():
            self._set_flags()
        if not self._originals:
            self._turn.enter_context(RUNNING.claimed(filter(may_keep_tensors, self._paths)))
        self.start_pass(inputs)
        mode.start_pass(PassState(self.model, inputs, self._shared_tensors))

    def _after(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
        mode, output = self._mode_of_pass, rest[-1]
        if mode is None or mode.asleep or module is not self.model or not self.is_current():
            return output
        self._depth -= 1
        if self._depth == 0 and mode.state is not None:
            state, mode.state = mode.state, None
            try:
                output = state.finish(output)
            finally:
                self._turn.close()
            if not self._originals and not self.flags_are_set() and not self._model_sets_flags():
                raise RuntimeError(
                    f"{type(self).__name__}: the training flags of the model were changed while a pass of it "
                    "was running in a draw. Another thread must not call train() or eval() on it meanwhile; "
                    "`predict` does not mind."
                )
        return output

    def is_current(self) -> bool:
        """Whether the code that asks is inside this draw, and not another thread or task."""
        return self in _ACTIVE.get()

    def _find_out(self, mode: InterceptMode, inputs: tuple[Any, Any]) -> None:
        """What must be known of the model, once for every kind of inputs in this draw."""
        if self._study is not None and self._structure is None:
            return  # it was told
        structure = structure_of(inputs)
        if structure == self._structure:
            return
        from bayesdrop.draws.study import in_groups, study

        mode.asleep = True
        try:
            subject = Subject(self.model)
            self._study = study(subject, inputs)
            if self.num_functions > 1:
                self._study = in_groups(subject, inputs, self._study)
        finally:
            mode.asleep = False
        self._structure = structure
        self._set_flags()

    def _selected_below(self, path: str) -> bool:
        """Whether any site at or below `path` may be on."""
        prefix = f"{path}." if path else ""
        inner = (other for other in self._paths.values() if other.startswith(prefix))
        return self.selected(path) or any(self.selected(other) for other in inner)

    def _set_flags(self) -> None:
        trained = self._study.trained if self._study is not None else frozenset()
        for site in self._study.off if self._study is not None else ():
            self.sites[f"{site.path}:{site.call}:{site.kind}"] = site
        for module, path in self._paths.items():
            if not isinstance(module, torch.jit.ScriptModule):
                # Straight into the dictionary: nn.Module.__setattr__ would cost ten times as much.
                on = path in trained and self._selected_below(path)
                plain = compares_flag(module.__class__)
                now = module.__dict__["training"]
                was = now.was if isinstance(now, HeldFlag) else bool(now)
                flag = on if plain else HeldFlag.of(self, path, training=on, was=was)
                module.__dict__["training"] = self._flags[module] = flag

    def flags_are_set(self) -> bool:
        """Whether the flags are those of this draw still: `model.eval()` sets others."""
        return all(module.__dict__["training"] is flag for module, flag in self._flags.items())

    def _model_sets_flags(self) -> bool:
        return self._study is not None and self._study.sets_flags

    def _mode(self) -> InterceptMode:
        return InterceptMode(self)

    def __enter__(self) -> Self:
        if self._exit is not None:
            raise RuntimeError(f"{type(self).__name__}: this draw is open already; make another one.")
        with ExitStack() as stack:
            if not self._originals:
                stack.enter_context(OPEN.claimed(self._paths))
            self._turn = ExitStack()
            self._flags = {}
            stack.callback(self._turn.close)
            token = _ACTIVE.set((*_ACTIVE.get(), self))
            stack.callback(_ACTIVE.reset, token)
            self._depth = 0
            self._ready.clear()
            stack.enter_context(flags_kept(self._paths))
            self._set_flags()
            self._is_watched = self.sees_all or not needs_no_watching(self.model)
            if not self._is_watched:
                # Its layers ask for their noise themselves, and nothing else in it can happen.
                self._mode_of_pass = None
                stack.enter_context(eagerly())
            else:
                self._watch(stack)
            stack.callback(self._check_order)
            self._exit = stack.pop_all()
        return self

    def _watch(self, stack: ExitStack) -> None:
        """See every pass of the model, and every function that it calls."""
        if not isinstance(self.model, torch.jit.ScriptModule):  # which takes no hooks and has no sites
            before = self.model.register_forward_pre_hook(self._before, with_kwargs=True)
            stack.callback(before.remove)
            after = self.model.register_forward_hook(self._after, with_kwargs=True, always_call=True)
            stack.callback(after.remove)
        self._mode_of_pass = self._mode()
        stack.enter_context(self._mode_of_pass)

    def _check_order(self) -> None:
        top = torch.overrides._get_current_function_mode()  # type: ignore[no-untyped-call]
        is_last = _ACTIVE.get()[-1:] == (self,)
        if not is_last or (self._mode_of_pass is not None and top is not self._mode_of_pass):
            raise RuntimeError(
                f"{type(self).__name__}: draws must be left in the order in which they were opened, the last "
                "first; do not hold one across an await."
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._exit is not None:
            stack, self._exit = self._exit, None
            stack.close()


class FunctionDraw(HeldNoise):
    """One sampled function: inside `with`, everything random in `model` holds its noise.

        with FunctionDraw(model, seed=0, index=3):
            f = model(x)          # draw 3 of seed 0: the same function for every batch

    The noise is shared by all rows, whatever the training flags say; everything else, BatchNorm too, is
    in eval mode. Nothing is left switched. While a draw is open its model is this thread's: another thread
    that opens a draw of it waits, `predict` does not need to. What is found of the model in the first pass
    (of every shape of inputs) holds until the draw is left: settings that change are seen by the next draw.

    Several functions at once, each for its own group of rows:

        with FunctionDraw(model, seed=0, index=[3, 7, 9]):
            f = model(torch.cat([a, b, c]))   # a through function 3, b through 7, c through 9

    K whole numbers make of a batch of K * n rows K groups of n rows, one after another; group k goes through
    function index[k], as in K draws of their own (to rounding: products of other sizes are summed in another
    order). No row may depend on other rows of the batch. What cannot be done so is an error: a batch that
    does not fall into K groups, dropout where the rows cannot be found or that has none (on weights, or one
    number for a whole batch), packed sequences with dropout between layers.

    In a draw the rate of `ConcreteDropout` has the gradient of its relaxed masks, of the same random numbers.

    Args:
        model: any module: its stochastic layers, `nn.Dropout*` modules, functional dropout, attention
            and recurrent dropout become one function.
        seed: names a sequence of functions.
        index: which of them: a whole number, or a sequence of them for several functions at once.
    """

    per_row = False
    sees_all = False


class RowDraw(HeldNoise):
    """Seeded noise that is fresh for every row: per-point moments as `FunctionDraw`, no joint function.

    Args:
        model: as in `FunctionDraw`.
        seed: names a sequence of samples.
        index: which of them.
        offset: number of the first row of the batch, so that batches have noise of their own.
    """

    per_row = True
    sees_all = False

    def __init__(
        self, model: nn.Module, *, seed: int = 0, index: int = 0, offset: int = 0, **options: Any
    ) -> None:
        super().__init__(model, seed=seed, index=index, **options)
        self.offset = offset

    def _made(
        self, key: str, shape: tuple[int, ...], sample: Sampler, source: NoiseSource | None = None
    ) -> Tensor:
        return super()._made(f"{key}@{self.offset}", shape, sample, source)
