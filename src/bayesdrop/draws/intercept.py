"""The function mode that turns every dropout call of a model into held noise, with no surgery."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bayesdrop.draws import dropouts, own
from bayesdrop.draws.own import is_random_function
from bayesdrop.draws.passes import memory_of, written_by
from bayesdrop.draws.sites import HeldFlag
from bayesdrop.randomness import OPERATORS, SeedWatch, name_of
from bayesdrop.switch import ProcessSwitch

if TYPE_CHECKING:
    from bayesdrop.draws.held import HeldNoise
    from bayesdrop.draws.passes import PassState

__all__ = ["InterceptMode", "eagerly", "randomness_of"]

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Handler = Callable[["InterceptMode", Any, Arguments, Keywords], Any]


def _run_eagerly() -> Callable[[], Any]:
    """Compiled parts run as they were written: a compiler would not see a mode."""
    stack = ExitStack()
    stack.enter_context(torch.compiler.set_stance("force_eager"))
    return stack.close


_eager = ProcessSwitch(_run_eagerly)


def eagerly() -> AbstractContextManager[None]:
    """Inside, compiled parts run as they were written."""
    return _eager if "torch._dynamo" in sys.modules else nullcontext()


class InterceptMode(TorchFunctionMode):
    """Sees every torch function that a model calls; dropout gets the noise of `draw`."""

    def __init__(self, draw: HeldNoise) -> None:
        super().__init__()
        self.draw = draw
        #: of the pass that is under way
        self.state: PassState | None = None
        #: memory that is as it was, after the pass
        self.put_back: set[int] = set()
        #: looks the other way while something else is found out about the model
        self.asleep = False
        self._depth = 0
        self._exit = ExitStack()
        self._seeds = SeedWatch()

    def __enter__(self) -> Self:
        if self._depth == 0:
            self._exit.enter_context(eagerly())
            self._seeds = SeedWatch()
        self._depth += 1
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._depth -= 1
        if self._depth == 0:
            self._exit.close()

    def __torch_function__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.asleep or not self.draw.is_current():
            return func(*args, **kwargs)
        handler = _HANDLERS.get(func)
        if handler is None and isinstance(func, OPERATORS):
            handler = _OPERATORS.get(name_of(func))
        if handler in _OWN and self.state is None and not self.draw.is_running():
            handler = None  # a random function of the code around the draw: its own business
        if handler is not None:
            result = handler(self, func, args, kwargs)
            if result is not NotImplemented:
                return result
        args, kwargs = self._without_flags(args), self._without_flags(kwargs)
        name = name_of(func)
        for tensor in written_by(name, args, kwargs):
            self.before_write(tensor)
        if is_random_function(name, args, kwargs) and (self.state is not None or self.draw.is_running()):
            self.draw.saw_foreign_randomness(name)
        return self.run(func, args, kwargs)

    def run(self, func: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Call a function that is not dropout."""
        return func(*args, **kwargs)

    def overwrite(self, target: Tensor, value: Tensor) -> Tensor:
        """`target` with the elements of `value`: what a dropout call in place gives back."""
        self.before_write(target)
        return target.copy_(value)

    def before_write(self, target: Tensor) -> None:
        """A tensor is about to change; after the pass it will be put back if it was there before."""
        if self.state is not None and self.state.before_write(target):
            self.put_back.add(memory_of(target))

    def unchanged(self, x: Tensor) -> Tensor:
        """What to read of a tensor that will be overwritten."""
        return x

    def ours(self, flag: Any) -> bool:
        """Whether a call with this training flag belongs to the model of this draw."""
        return not isinstance(flag, HeldFlag) or flag.owner is self.draw

    def start_pass(self, state: PassState) -> None:
        """A pass of the whole model begins."""
        self.state = state
        self._seeds = SeedWatch()

    def seeded(self) -> bool:
        """Whether the model has seeded the global generator: it wants the same numbers every time."""
        return self._seeds.seeded()

    def _without_flags(self, value: Any) -> Any:
        """Flags of this draw that reach anything but dropout say "eval"; those of others are passed on."""
        if isinstance(value, HeldFlag):
            return False if value.owner is self.draw else value
        if type(value) in (tuple, list) and any(_may_hold_flag(part) for part in value):
            return type(value)(self._without_flags(part) for part in value)
        if type(value) is dict and any(_may_hold_flag(part) for part in value.values()):
            return {name: self._without_flags(part) for name, part in value.items()}
        return value


def _may_hold_flag(value: Any) -> bool:
    return type(value) in (HeldFlag, tuple, list, dict)


_HANDLERS: dict[Any, Handler] = {
    **dict.fromkeys(dropouts.FUNCTIONAL, dropouts.dropout),
    **dict.fromkeys(
        (
            torch.dropout,
            torch.dropout_,
            torch.alpha_dropout,
            torch.alpha_dropout_,
            torch.feature_dropout,
            torch.feature_dropout_,
            torch.feature_alpha_dropout,
            torch.feature_alpha_dropout_,
        ),
        dropouts.dropout,
    ),
    torch.native_dropout: dropouts.native_dropout,
    F.scaled_dot_product_attention: dropouts.attention,
    F.multi_head_attention_forward: dropouts.multi_head_attention,
    **dict.fromkeys((torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu), dropouts.recurrent),
    **dict.fromkeys(
        (F.batch_norm, F.instance_norm, torch.batch_norm, torch.instance_norm), dropouts.statistics
    ),
    **dict.fromkeys((torch.rand, torch.randn, torch.rand_like, torch.randn_like), own.factory),
    **dict.fromkeys((torch.bernoulli, Tensor.bernoulli, Tensor.bernoulli_), own.bernoulli),
    **dict.fromkeys((Tensor.uniform_, Tensor.normal_, Tensor.exponential_), own.fill),
    torch.normal: own.normal,
    F.gumbel_softmax: own.gumbel_softmax,
}
#: handlers of random functions that are not dropout
_OWN = frozenset({own.factory, own.bernoulli, own.fill, own.normal, own.gumbel_softmax})
#: the same functions as operators, as torch.ops.aten.dropout
_OPERATORS: dict[str, Handler] = {
    name_of(func): handler
    for func, handler in _HANDLERS.items()
    if handler in (dropouts.dropout, dropouts.native_dropout, dropouts.attention, dropouts.recurrent)
    and func not in dropouts.FUNCTIONAL
}


def randomness_of(func: Any) -> str | None:
    """What to call a function of torch that is random: "F.dropout"; None for one that is not."""
    try:
        known = func in _HANDLERS and _HANDLERS[func] is not dropouts.statistics
    except TypeError:
        return None  # not hashable: no function
    if not known:
        return None
    return f"{'F' if getattr(F, name_of(func), None) is func else 'torch'}.{name_of(func)}"
