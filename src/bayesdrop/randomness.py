"""Random numbers that are nobody else's, in place of the global generators.

Code of somebody else (a model's forward, a loader) draws from torch's global generator. To run it and leave
that generator as it was, one could keep its state and put it back; but a thread that draws numbers
meanwhile would then get them a second time. A `Stream` never touches the global generator: what is called
inside it is handed a generator of its own, which starts where the global one stands, so that the numbers
are the same.
"""

from __future__ import annotations

import random
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bayesdrop.operations import OPERATORS, name_of, names

__all__ = [
    "GENERATOR_TAKERS",
    "OwnNumbers",
    "ProcessSwitch",
    "SeedWatch",
    "States",
    "Stream",
    "Turns",
    "body_of",
    "global_states",
    "global_states_kept",
    "have_moved",
    "is_alone",
    "random_state_kept",
]

_Item = TypeVar("_Item")

#: functions that draw numbers and can be told from which generator
GENERATOR_TAKERS = names(random="generator")
_DROPOUTS = names(random="dropout")
# Written in Python by torch: their own code is run, and what it calls is seen.
_BODIES = names(body=True)
# Written in Python too, but only to choose another function, which is then out of sight.
_CHOOSING = frozenset({"fractional_max_pool2d", "fractional_max_pool3d"})
# First weights, in torch.nn.init: they can be told from which generator too.
_FIRST_WEIGHTS = frozenset({"uniform_", "normal_", "kaiming_uniform_", "kaiming_normal_"})
# What draws numbers where they cannot be handed in.
_UNSEEN = names(random="inside") - _BODIES - _CHOOSING
_DRAWING = names(random=True) | _FIRST_WEIGHTS
_SELU_LIMIT = 1.7580993408473766


def body_of(func: Any) -> Callable[..., Any]:
    """A function of torch.nn.functional that runs its own code while a mode is on.

    The code first asks whether a mode is on and, if so, hands the call back: here it must not.
    """
    asks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    inside = {**func.__globals__, **dict.fromkeys(asks, _nothing)}
    body = types.FunctionType(func.__code__, inside, func.__name__, func.__defaults__, func.__closure__)
    body.__kwdefaults__ = func.__kwdefaults__
    return body


def _nothing(*_: Any) -> bool:
    return False


class _Current(threading.local):
    """The streams that are open in this thread, the innermost last."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []


_current = _Current()
# Whoever borrows the global generator, or looks at it, does so alone: what one run has put into it is nobody
# else's. (And torch waits for a generator's own lock without letting other threads of Python run, and may be
# interrupted while it holds it: two threads that ask for a state at once could wait for ever.)
_global = threading.RLock()


def _global_state() -> Tensor:
    with _global:
        return torch.get_rng_state()


def _global_seed() -> int:
    with _global:
        return torch.default_generator.initial_seed()


def _set_global_state(state: Tensor) -> None:
    with _global:
        torch.set_rng_state(state)


class Stream(TorchFunctionMode):
    """Random functions of torch that are called inside, in this thread, draw from a generator of its own.

    Unless a state is given it begins where the global generator (or an outer stream) stands, and gives the
    numbers that this would give. Code that seeds the global generator wants what follows from that seed, and
    gets it. On other devices than the CPU the device's own generator is used as ever.

    Args:
        state: of a generator, to begin with.
    """

    def __init__(self, state: Tensor | None = None) -> None:
        super().__init__()
        self.generator = torch.Generator()
        if state is None:
            outer = _current.streams
            state = outer[-1].generator.get_state() if outer else _global_state()
        self.generator.set_state(state)
        self._watch = SeedWatch()

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        _current.streams.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        _current.streams.pop()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_function__(
        self, func: Any, types_: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name not in _DRAWING:
            if not isinstance(func, OPERATORS):
                return func(*args, **kwargs)
            name = name_of(func)
        return self._drawn(name, func, args, kwargs)

    def _drawn(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(func, types.FunctionType):
            if name in _FIRST_WEIGHTS and _on_cpu(args, kwargs) and kwargs.get("generator") is None:
                own = {} if self._watch.seeded() else {"generator": self.generator}
                return func(*args, **(kwargs | own))
            if name in _CHOOSING and not self._watch.seeded():
                return self._borrowed(func, args, kwargs)
            if name not in _BODIES:
                return func(*args, **kwargs)
            with self:
                return body_of(func)(*args, **kwargs)
        if not _on_cpu(args, kwargs) or self._watch.seeded():
            return func(*args, **kwargs)
        if torch._C._functorch.peek_interpreter_stack() is not None:
            # A transform of torch.func takes no generator.
            return self._borrowed(func, args, kwargs)
        if name in GENERATOR_TAKERS:
            if kwargs.get("generator") is not None or any(isinstance(a, torch.Generator) for a in args):
                return func(*args, **kwargs)
            return func(*args, **{**kwargs, "generator": self.generator})
        if name in _DROPOUTS:
            return self._dropped(name, func, args, kwargs)
        if name in _UNSEEN and _draws_unseen(name, args, kwargs):
            return self._borrowed(func, args, kwargs)
        return func(*args, **kwargs)

    def _dropped(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Dropout as torch computes it on the CPU, to the last bit."""
        values = dict(zip(("input", "p", "train"), args, strict=False)) | kwargs
        if values.keys() != {"input", "p", "train"} or values["train"] is not True:
            return func(*args, **kwargs)
        x: Tensor = values["input"]
        p: float = values["p"]
        if not isinstance(p, float | int) or not 0 < p < 1 or x.numel() == 0:
            return func(*args, **kwargs)
        features = name.startswith("feature")
        if features and x.dim() < 2:
            return func(*args, **kwargs)
        size = (*x.shape[:2], *(1 for _ in x.shape[2:]))
        noise = x.new_empty(size) if features else torch.empty_like(x)
        noise = noise.detach().bernoulli_(1 - p, generator=self.generator)
        offset: Tensor | None = None
        if "alpha" in name:
            scale = 1 / ((_SELU_LIMIT**2 * p + 1) * (1 - p)) ** 0.5
            offset = noise.add(-1).mul_(_SELU_LIMIT * scale).add_(_SELU_LIMIT * scale * p)
            noise.mul_(scale)
        else:
            noise.div_(1 - p)
        if name.endswith("_"):
            return x.mul_(noise) if offset is None else x.mul_(noise).add_(offset)
        return x * noise if offset is None else x * noise + offset

    def _borrowed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The global generator itself, for as long as one call takes: torch has no other way there."""
        with _global:
            before = _global_state()
            _set_global_state(self.generator.get_state())
            try:
                return func(*args, **kwargs)
            finally:
                self.generator.set_state(_global_state())
                _set_global_state(before)


def _draws_unseen(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call of what draws numbers inside torch does draw some."""
    if name == "scaled_dot_product_attention":
        return bool(args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0))
    if name == "native_dropout":
        return True
    # torch.lstm(input, hx, params, has_biases, num_layers, dropout, train, ...), or (data, batch_sizes, hx,
    # ...)
    first = 1 if len(args) > 3 and isinstance(args[3], tuple | list) else 0
    p = args[5 + first] if len(args) > 5 + first else kwargs.get("dropout", 0.0)
    train = args[6 + first] if len(args) > 6 + first else kwargs.get("train", False)
    return bool(p) and bool(train)


def _on_cpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    if device is not None:
        return torch.device(device).type == "cpu"
    first = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
    return torch.get_default_device().type == "cpu" if first is None else first.device.type == "cpu"


class Turns:
    """The global generator, lent to one run for a stretch at a time, so that runs in several threads do not
    mix.

    Training draws from the global generator itself: gradient checkpointing, and objectives that draw the same
    noise twice, keep its state and set it. Each run
    has a state of its own, and the others wait for the end of a stretch.

    Args:
        seed: where the run's numbers begin.
        generator: where they begin instead; it stands where they ended after every stretch.
    """

    def __init__(self, seed: int, generator: torch.Generator | None = None) -> None:
        self._generator = torch.Generator().manual_seed(seed) if generator is None else generator

    @contextmanager
    def lent(self) -> Iterator[None]:
        """The global generator, where the last stretch of this run ended; given back as it was."""
        with _global:
            before = _global_state()
            _set_global_state(self._generator.get_state())
            try:
                yield
            finally:
                self._generator.set_state(_global_state())
                _set_global_state(before)

    def copy(self) -> Stream:
        """The numbers that come next, without using them up."""
        return Stream(self._generator.get_state())

    def each(self, items: Iterator[_Item]) -> Iterator[_Item]:
        """The same items, each fetched in a stretch of its own."""
        while True:
            with self.lent():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item


class OwnNumbers:
    """Random numbers of somebody else's code, a stretch at a time: they go on where the last stretch ended.

    The global generators of torch, numpy and Python are after every stretch as before.
    """

    def __init__(self) -> None:
        self._stream = Stream()
        self._arrays: Any = None
        self._python: Any = None

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """A stretch."""
        with global_states_kept():
            alone = is_alone()
            if alone and self._python is not None:
                np.random.set_state(self._arrays)  # noqa: NPY002
                random.setstate(self._python)
            try:
                with self._stream:
                    yield
            finally:
                if alone:
                    self._arrays, self._python = np.random.get_state(), random.getstate()  # noqa: NPY002


@contextmanager
def random_state_kept() -> Iterator[None]:
    """The global generators of torch, numpy and Python are afterwards as before, also after an exception.

    Random functions of torch have a stream of their own inside: see `global_states_kept` for the rest.
    """
    with OwnNumbers().drawing():
        yield


@contextmanager
def global_states_kept() -> Iterator[None]:
    """What moves a global generator inside (numpy, `random`, a script, a model that seeds) is put back.

    Unless another thread is running, which may have moved it too: its numbers must not come a second time.
    """
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    before = global_states()
    try:
        yield
    finally:
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        _put_back(before)


#: states of the global generators: torch's state and seed, numpy's, Python's
States = tuple[Tensor, int, Any, Any]


def global_states() -> States:
    """The states of the global generators of torch, numpy and Python."""
    return (
        _global_state(),
        _global_seed(),
        np.random.get_state(),  # noqa: NPY002
        random.getstate(),
    )


def have_moved(before: States, *, torch_too: bool = True) -> bool:
    """Whether any of the global generators is in another state now.

    Args:
        before: their states.
        torch_too: look at torch's as well.
    """
    now = global_states()
    if torch_too and (before[1] != now[1] or not torch.equal(before[0], now[0])):
        return True
    return not _same_arrays(before[2], now[2]) or before[3] != now[3]


def _same_arrays(first: Any, second: Any) -> bool:
    return bool(first[0] == second[0] and first[2:] == second[2:] and np.array_equal(first[1], second[1]))


def _put_back(before: States) -> None:
    seeded = _global_seed() != before[1]
    if not have_moved(before):
        return
    alone = is_alone()
    if alone or seeded:
        # Only code that was run here can have wanted another seed.
        _set_global_state(before[0])
    if alone:
        np.random.set_state(before[2])  # noqa: NPY002
        random.setstate(before[3])


#: packages whose threads draw no random numbers: progress bars, notebooks, debuggers, test runners
_QUIET = frozenset(
    {"rich", "tqdm", "ipykernel", "IPython", "zmq", "tornado", "debugpy", "pydevd", "execnet", "xdist"}
)


def is_alone() -> bool:
    """Whether no other thread of Python is there that may draw random numbers."""
    return all(
        thread is threading.current_thread() or _package_of(thread) in _QUIET
        for thread in threading.enumerate()
    )


def _package_of(thread: threading.Thread) -> str:
    target = getattr(thread, "_target", None)
    module = getattr(target, "__module__", None) or type(thread).__module__
    return str(module).partition(".")[0]


class SeedWatch:
    """Tells whether the global generator was seeded since: who seeds wants the same numbers every time."""

    def __init__(self) -> None:
        self._seed = _global_seed()
        self._state = _global_state()
        self._seeded = False

    def seeded(self) -> bool:
        """Whether it was."""
        if _global_seed() != self._seed:
            return True
        if self._seeded:
            return True
        # The same seed once more: the generator stands at its beginning, where it did not stand before.
        state = _global_state()
        if not torch.equal(state, self._state):
            self._seeded = torch.equal(state, torch.Generator().manual_seed(self._seed).get_state())
        return self._seeded


class ProcessSwitch:
    """A context: the first thread that enters turns the switch, the last that leaves turns it back.

    Each for itself would leave it turned, where the first to enter is the first to leave.

    Args:
        turn: turns the switch and gives what turns it back.
    """

    def __init__(self, turn: Callable[[], Callable[[], Any]]) -> None:
        self._turn = turn
        self._back: Callable[[], Any] = lambda: None
        self._lock = threading.Lock()
        self._users = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._back = self._turn()
            self._users += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._back()
