"""Running code that draws random numbers, and leaving the global generators as they were.

A model's forward or a data loader draws from torch's global generator. To run it and leave that generator as
it was, one could keep its state and put it back; but a thread that draws numbers meanwhile would then get the
same numbers a second time. A `Stream` does not touch the global generator: random functions that are called
inside it get another generator, which starts in the state of the global one, so that the numbers are the
same.
"""

from __future__ import annotations

import random
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
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
    "start_quiet_thread",
]

_Item = TypeVar("_Item")

#: functions that draw numbers and take a generator
GENERATOR_TAKERS = names(random="generator")
_DROPOUTS = names(random="dropout")
# Written in Python by torch: their own code is run, so that the random functions it calls are seen.
_BODIES = names(body=True)
# Written in Python too, but they only choose another function, whose call is not seen.
_CHOOSING = frozenset({"fractional_max_pool2d", "fractional_max_pool3d"})
# In torch.nn.init; these take a generator too.
_FIRST_WEIGHTS = frozenset({"uniform_", "normal_", "kaiming_uniform_", "kaiming_normal_"})
# They draw numbers inside torch and take no generator.
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
# One thread at a time uses the global generator or reads its state, so that no thread sees the state that
# another one has put there for a while. (And torch waits for a generator's lock without releasing the GIL,
# and may be interrupted while it holds the lock: two threads that ask for a state at once could wait for
# ever.)
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
    """A context: random functions of torch that this thread calls inside draw from the stream's generator.

    Unless a state is given, that generator starts in the state of the global one (or of the stream around),
    and gives the same numbers. Code that seeds the global generator gets the numbers of that seed, from the
    global generator. On devices other than the CPU the device's own generator is used.

    Args:
        state: of a generator; where the numbers begin.
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
        """Dropout with the stream's generator; the same numbers, bit for bit, as torch's on the CPU."""
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
        """Call with the global generator in the stream's state: the function draws from no other."""
        with _global:
            before = _global_state()
            _set_global_state(self.generator.get_state())
            try:
                return func(*args, **kwargs)
            finally:
                self.generator.set_state(_global_state())
                _set_global_state(before)


def _draws_unseen(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call of a function in `_UNSEEN` draws any numbers, by its arguments."""
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
    """Turns at the global generator: training runs in several threads each draw their own numbers from it.

    Training needs the global generator itself: gradient checkpointing, and objectives that draw the same
    noise twice, keep its state and set it. Each run has its own state, which the global generator has while
    it is the run's turn; the other runs wait.

    Args:
        seed: where the run's numbers begin.
        generator: where they begin instead; after every turn it is in the state where the turn ended.
    """

    def __init__(self, seed: int, generator: torch.Generator | None = None) -> None:
        self._generator = torch.Generator().manual_seed(seed) if generator is None else generator

    @contextmanager
    def lent(self) -> Iterator[None]:
        """One turn: the global generator goes on where this run's last turn ended, and is then put back."""
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
        """The same items, each fetched in one turn."""
        while True:
            with self.lent():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item


class OwnNumbers:
    """Runs code that draws random numbers, a stretch at a time; each stretch goes on where the last ended.

    After every stretch the global generators of torch, numpy and Python are as they were before it.
    """

    def __init__(self) -> None:
        self._stream = Stream()
        self._arrays: Any = None
        self._python: Any = None

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """A context: one stretch of the code."""
        with global_states_kept() as at_end:
            alone = is_alone()
            if alone and self._python is not None:
                np.random.set_state(self._arrays)  # noqa: NPY002
                random.setstate(self._python)
            try:
                with self._stream:
                    yield
            finally:
                if alone:
                    *_, self._arrays, self._python = at_end()


@contextmanager
def random_state_kept() -> Iterator[None]:
    """A context: the global generators of torch, numpy and Python are put back, also after an exception.

    Random functions of torch draw from a `Stream` inside; see `global_states_kept` for the rest.
    """
    with OwnNumbers().drawing():
        yield


@contextmanager
def global_states_kept() -> Iterator[Callable[[], States]]:
    """A context: global generators that code inside has moved or seeded are put back.

    They are left alone while another thread is running, which may have drawn numbers too: these must not
    come a second time. The context's value gives the states where its code ends; it is called there.
    """
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    before = global_states()
    # Reading numpy's state takes as long as a pass of a small model: it is read once.
    at_end = cache(global_states)
    try:
        yield at_end
    finally:
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        _put_back(before, at_end())


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


def have_moved(before: States, now: States, *, torch_too: bool = True) -> bool:
    """Whether any of the global generators has moved between two states.

    Args:
        before: their earlier states.
        now: their later states.
        torch_too: compare torch's generator as well.
    """
    if torch_too and (before[1] != now[1] or not torch.equal(before[0], now[0])):
        return True
    return not _same_arrays(before[2], now[2]) or before[3] != now[3]


def _same_arrays(first: Any, second: Any) -> bool:
    return bool(first[0] == second[0] and first[2:] == second[2:] and np.array_equal(first[1], second[1]))


def _put_back(before: States, now: States) -> None:
    seeded = now[1] != before[1]
    if not have_moved(before, now):
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


_WATCHING: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def start_quiet_thread(target: Callable[[], None]) -> None:
    """Start a thread that ends with the process and draws no random numbers: `is_alone` does not count it."""
    thread = threading.Thread(target=target, daemon=True)
    _WATCHING.add(thread)
    thread.start()


def is_alone() -> bool:
    """Whether no other Python thread is running that may draw random numbers."""
    return all(
        thread is threading.current_thread() or thread in _WATCHING or _package_of(thread) in _QUIET
        for thread in threading.enumerate()
    )


def _package_of(thread: threading.Thread) -> str:
    target = getattr(thread, "_target", None)
    module = getattr(target, "__module__", None) or type(thread).__module__
    return str(module).partition(".")[0]


class SeedWatch:
    """Finds whether the global generator was seeded since: code that seeds wants the same numbers again."""

    def __init__(self) -> None:
        self._seed = _global_seed()
        self._state = _global_state()
        self._seeded = False

    def seeded(self) -> bool:
        """Whether the global generator was seeded since this object was made."""
        if _global_seed() != self._seed:
            return True
        if self._seeded:
            return True
        # The same seed once more: the generator is in its first state, and was not before.
        state = _global_state()
        if not torch.equal(state, self._state):
            self._seeded = torch.equal(state, torch.Generator().manual_seed(self._seed).get_state())
        return self._seeded


class ProcessSwitch:
    """A context: the first thread that enters turns a switch on, the last that leaves turns it back.

    If every thread put back what it found, a thread that entered second and left last would leave it on.

    Args:
        turn: turns the switch on, and returns the function that turns it back.
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
