"""Passes that change nothing: not the model, not its inputs, not what other threads see.

A pass runs on a copy of the model: modules, the lists, dictionaries and plain objects that they hold, and
their bound methods are copied; tensors (the weights above all), functions and everything else are shared. The
pass sets no flag and keeps no state in the model itself, so that any number of threads can run passes of one
model. Tensors that a pass writes to are put back at its end, and threads take turns at modules that may do
so.
"""

from __future__ import annotations

import dis
import functools
import gc
import sys
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn

from bayesdrop.inputs import mapped, tensors_in
from bayesdrop.trace.sites import HeldFlag, is_draws_hook
from bayesdrop.trace.tape import memory_of

__all__ = [
    "OF_EVERY_MODULE",
    "OPEN",
    "RUNNING",
    "NotPrivate",
    "PassState",
    "PrivateCopy",
    "Subject",
    "copied_arguments",
    "leads_back",
    "may_keep_tensors",
]

# the model of a call


class Pass(Protocol):
    """A context in which a model is run."""

    @property
    def escaped(self) -> bool:
        """Whether a module of the original model ran in the place of its copy."""

    def watch_over(self, tensors: Sequence[Tensor], copies: Mapping[nn.Module, nn.Module]) -> None:
        """Say that the module is a private copy: tensors it shares, and from each original to its copy."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: Any) -> None: ...


_Pass = TypeVar("_Pass", bound=Pass)


class Subject:
    """Runs passes of a model and changes nothing in it.

    Each pass runs on a private copy. Where a copy cannot replace the model (a part of it is a script, or a
    closure refers to the model itself), passes run on the model itself, one thread after the other, and
    everything is put back.

    Args:
        model: any module.

    Attributes:
        shared: why passes run on the model itself; None if they run on copies.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.shared: str | None = None
        self._looked = False
        self._spare: PrivateCopy | None = None

    def runs_copies(self) -> bool:
        """Whether passes run on private copies. It is found out by making the first of them."""
        if not self._looked and self.shared is None:
            with RUNNING.claimed(self._writers()):
                self._spare = self._copied()
        return self.shared is None

    def run(
        self,
        draw_of: Callable[[nn.Module], _Pass],
        inputs: tuple[Any, Any],
        pick: Callable[[Any], Any] | None = None,
    ) -> tuple[_Pass, Any]:
        """One pass inside a draw.

        Args:
            draw_of: from the module that is run to the draw that holds its noise.
            inputs: the positional and keyword arguments of the call. Objects among them (a cache) are copied,
                so that each pass finds them as they were.
            pick: takes the wanted part of the output, inside the draw; None for all of it.

        Returns: the draw, which is closed, and the output.
        """
        while True:
            args, kwargs = copied_arguments(inputs, tensors=False)
            with self._lent() as (module, tensors, copies):
                draw = draw_of(module)
                draw.watch_over(tensors, copies)
                try:
                    with draw:
                        output = module(*args, **kwargs)
                        output = output if pick is None else pick(output)
                except Exception:
                    if not draw.escaped:
                        raise
                else:
                    if not draw.escaped:
                        return draw, output
            # A module of the original ran in the place of its copy: the pass is void, and run once more.
            self.shared = "its code reaches its modules in a way that a copy does not follow"

    @contextmanager
    def _lent(self) -> Iterator[tuple[nn.Module, list[Tensor], dict[nn.Module, nn.Module]]]:
        writers = self._writers()
        with RUNNING.claimed(writers):
            # A new copy for every pass, as a pass may change its copy.
            copy, self._spare = self._spare, None
            if copy is None and self.shared is None:
                copy = self._copied()
            if copy is not None:
                yield copy.module, copy.tensors, copy.copies
                return
        with OPEN.claimed(self.model.modules()), RUNNING.claimed(writers):
            yield self.model, [], {}

    def _writers(self) -> list[nn.Module]:
        """Modules that may write to their tensors: what they wrote is put back only at the end of a pass."""
        return [module for module in self.model.modules() if may_keep_tensors(module)]

    def _copied(self) -> PrivateCopy | None:
        try:
            copy = PrivateCopy(self.model)
        except NotPrivate as error:
            self.shared = str(error)
            return None
        if not self._looked:
            self._looked = True
            self.shared = leads_back(copy)
        return copy if self.shared is None else None


# private copies


class NotPrivate(Exception):
    """No private copy of a model can be made; the message says why."""


#: a model that holds more objects than this is not copied
_MOST_OBJECTS = 100_000
_HEAP_TYPE = 1 << 9
_SHARED = frozenset(
    {
        int, float, complex, bool, str, bytes, bytearray, type(None), type(...), type(NotImplemented), type,
        types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.CodeType, range, slice,
        torch.Size, torch.dtype, torch.device, torch.memory_format, torch.layout, torch.Generator,
    }
)  # fmt: skip


class PrivateCopy:
    """A private copy of a model.

    Args:
        model: any module; nothing in it is changed.

    Attributes:
        module: the copy.
        tensors: those it shares with the model, other than parameters and buffers: held by attributes.
        copies: from every module of the model, registered as a child or not, to its copy.
    """

    def __init__(self, model: nn.Module) -> None:
        copier = _Copier()
        self.module: nn.Module = copier.copy(model)
        self.tensors = copier.tensors
        self.copies = copier.modules


_MAPPINGS = (dict, OrderedDict)
_TENSORS_OF_MODULE = ("_parameters", "_buffers")
#: names of the attributes that every module has
OF_EVERY_MODULE = frozenset(vars(nn.Module()))
#: attributes of a module that no pass changes, or that are copied already
_KEPT_OF_MODULE = OF_EVERY_MODULE - {
    "_modules", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
}  # fmt: skip


class _Copier:
    def __init__(self, *, clone: bool = False) -> None:
        self.tensors: list[Tensor] = []
        self.modules: dict[nn.Module, nn.Module] = {}
        self._clone = clone
        self._made: dict[int, Any] = {}
        self._originals: list[Any] = []  # kept alive, so that no two have one id

    def copy(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SHARED or (kind is tuple and _SHARED.issuperset(map(type, value))):
            return value
        made = self._made.get(id(value))
        if made is not None:
            return made
        if isinstance(value, Tensor):
            made = value.detach().clone() if self._clone else value
            self.tensors.append(value)
            return self._note(value, made)
        if isinstance(value, nn.Module):
            return self._module(value)
        return self._other(value, kind)

    def keep(self, tensors: Iterable[Tensor]) -> None:
        """Share these tensors instead of copying them."""
        for tensor in tensors:
            self._note(tensor, tensor)

    def _note(self, value: Any, made: Any) -> Any:
        self._made[id(value)] = made
        self._originals.append(value)
        if len(self._originals) > _MOST_OBJECTS:
            raise NotPrivate(f"it holds more than {_MOST_OBJECTS} objects")
        return made

    def _module(self, module: nn.Module) -> nn.Module:
        if isinstance(module, torch.jit.ScriptModule):
            raise NotPrivate("a part of it is a script")
        made: nn.Module = self._note(module, self._bare(module))
        self.modules[module] = made
        attributes = vars(made)
        attributes.update(vars(module))
        for name in _TENSORS_OF_MODULE:
            attributes[name] = attributes[name].copy()
        for name, value in list(attributes.items()):
            if type(value) not in _SHARED and name not in _KEPT_OF_MODULE:
                attributes[name] = type(value)() if _is_empty(value) else self.copy(value)
        # A draw may be open on the model itself; its flags and hooks do not belong to the model.
        flag: Any = made.training
        if isinstance(flag, HeldFlag):
            attributes["training"] = flag.was
        for hooks in filter(None, (made._forward_pre_hooks, made._forward_hooks)):
            for key in [key for key, hook in hooks.items() if is_draws_hook(hook)]:
                del hooks[key]
        return made

    def _bare(self, value: Any) -> Any:
        try:
            return object.__new__(type(value))
        except TypeError as error:
            raise NotPrivate(f"a {type(value).__name__} cannot be copied") from error

    def _other(self, value: Any, kind: type[Any]) -> Any:
        if kind in (dict, OrderedDict):
            mapping = self._note(value, kind())
            for key, part in list(value.items()):
                mapping[self.copy(key)] = self.copy(part)
            return mapping
        if kind is list:
            parts = self._note(value, [])
            parts.extend(map(self.copy, value))
            return parts
        if isinstance(value, tuple) and (kind is tuple or hasattr(kind, "_fields")):
            made = [self.copy(part) for part in value]
            if all(new is old for new, old in zip(made, value, strict=True)):
                return value
            return self._note(value, kind(made) if kind is tuple else kind(*made))
        if kind in (set, frozenset):
            return self._note(value, kind(map(self.copy, list(value))))
        if kind is deque:
            return self._note(value, deque(map(self.copy, list(value)), value.maxlen))
        if kind is defaultdict:
            items = {self.copy(key): self.copy(part) for key, part in list(value.items())}
            return self._note(value, defaultdict(self.copy(value.default_factory), items))
        if kind is types.MethodType:
            owner = self.copy(value.__self__)
            return value if owner is value.__self__ else types.MethodType(value.__func__, owner)
        if kind is functools.partial:
            args, keywords = self.copy(value.args), self.copy(value.keywords)
            return self._note(value, functools.partial(self.copy(value.func), *args, **keywords))
        if kind is weakref.ref:
            target = value()
            known = self.copy(target) if isinstance(target, nn.Module) else target
            return value if known is target else weakref.ref(known)
        if kind is types.SimpleNamespace or _is_plain_object(kind):
            made = self._note(value, kind() if kind is types.SimpleNamespace else self._bare(value))
            vars(made).update({name: self.copy(part) for name, part in list(vars(value).items())})
            return made
        return value


def _is_empty(value: Any) -> bool:
    """Whether this is an empty dictionary, as most dictionaries of hooks are."""
    return type(value) in _MAPPINGS and not value


def _is_plain_object(kind: type[Any]) -> bool:
    """Whether an object of this class is made of its attributes alone, and has no copy methods."""
    if not kind.__flags__ & _HEAP_TYPE or not kind.__dictoffset__:
        return False
    if kind.__module__.partition(".")[0] in sys.stdlib_module_names or kind.__module__.startswith("torch."):
        return False
    python = all(base is object or base.__flags__ & _HEAP_TYPE for base in kind.__mro__)
    base: Any = object
    names = ("__reduce_ex__", "__reduce__", "__getstate__", "__new__")
    usual = all(getattr(kind, name, None) is getattr(base, name, None) for name in names)
    own = any(hasattr(kind, name) for name in ("__copy__", "__deepcopy__", "__setstate__"))
    slots = any(vars(base).get("__slots__") for base in kind.__mro__)
    return python and usual and not own and not slots


def copied_arguments(inputs: tuple[Any, Any], *, tensors: bool) -> tuple[Any, Any]:
    """The arguments of a call, with lists, dictionaries and objects copied, as a pass may change them.

    Args:
        inputs: positional and keyword arguments.
        tensors: copy the tensors among them too; those inside objects are always copied.
    """
    copier = _Copier(clone=True)
    if not tensors:
        copier.keep(tensors_in(inputs))
    try:
        copied: tuple[Any, Any] = copier.copy(inputs)
    except NotPrivate as error:
        raise ValueError(f"predict: an argument of the model cannot be copied: {error}.") from error
    return copied


# whether passes of a copy can reach the original


def leads_back(copy: PrivateCopy) -> str | None:
    """How something in the copy still refers to a module of the original model; None if nothing does.

    Closures, objects that cannot be copied and global names may hold a module. A pass of the copy would
    then run a part of the original, for which no noise is held.
    """
    originals = {id(module) for module in copy.copies}
    seen: set[int] = set()
    waiting: list[Any] = []
    for module in copy.copies.values():
        seen.add(id(module))
        waiting += [
            value
            for name, value in vars(module).items()
            if type(value) not in _NO_HOLDERS and name not in _KEPT_OF_MODULE and not _is_empty(value)
        ]
    kinds = {type(module) for module in copy.copies}
    functions = [member for kind in kinds for member in _own_functions(kind)]
    while waiting:
        value = waiting.pop()
        if type(value) in _NO_HOLDERS or id(value) in seen:
            continue
        seen.add(id(value))
        if id(value) in originals:
            return f"something in it holds {type(value).__name__} in another way than as a child"
        if len(seen) > 2 * _MOST_OBJECTS:
            return f"it holds more than {2 * _MOST_OBJECTS} objects"
        if isinstance(value, types.FunctionType):
            functions.append(value)
            waiting += [*(value.__closure__ or ()), value.__defaults__, value.__kwdefaults__, vars(value)]
        elif isinstance(value, weakref.ReferenceType | weakref.ProxyType | weakref.CallableProxyType):
            waiting += _referent(value)
        elif not isinstance(value, type | types.ModuleType | Tensor | types.FrameType):
            waiting += gc.get_referents(value)
    name = _global_name(functions, originals)
    return None if name is None else f"its code uses the global name {name!r}"


_NO_HOLDERS = frozenset(
    {int, float, complex, bool, str, bytes, type(None), types.CodeType, torch.Size, torch.dtype, torch.device}
)


def _referent(reference: Any) -> list[Any]:
    if isinstance(reference, weakref.ReferenceType):
        return [reference()]
    try:
        return [reference.__repr__.__self__]
    except (ReferenceError, AttributeError):
        return []


def _own_functions(kind: type[Any]) -> Iterator[types.FunctionType]:
    for owner in kind.__mro__:
        if owner.__module__.startswith("torch.nn.") or owner is object:
            continue
        for member in vars(owner).values():
            inner = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            if isinstance(inner, types.FunctionType):
                yield inner


def _global_name(functions: Iterable[types.FunctionType], originals: set[int]) -> str | None:
    """A global name that one of the functions reads and that holds a module of the original model."""
    held: dict[int, set[str]] = {}
    for function in functions:
        names = function.__globals__
        if id(names) not in held:
            held[id(names)] = {name for name, value in list(names.items()) if _holds(value, originals)}
        for name in held[id(names)]:
            if any(_reads(code, name) for code in _codes(function.__code__)):
                return name
    return None


def _holds(value: Any, originals: set[int]) -> bool:
    if isinstance(value, nn.Module):
        return id(value) in originals
    if type(value) is dict:
        return any(id(part) in originals for part in value.values())
    return type(value) in (list, tuple) and any(id(part) in originals for part in value)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _reads(code: types.CodeType, name: str) -> bool:
    if name not in code.co_names:
        return False
    return any(
        step.argval == name
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    )


# tensors and attributes that a pass changes


class PassState:
    """Keeps what a pass of `model` may change, and puts it back in `finish`.

    A tensor that exists before the pass (a parameter, a buffer, an input) is copied when a function is
    about to write into it. Attributes are put back in every module that keeps tensors from one pass to the
    next, as a hidden state or a cache; otherwise a draw would depend on the draws before it.

    Args:
        model: any module.
        inputs: the arguments of the call.
        shared: further tensors that must not change: those that a private copy shares with the model.
    """

    def __init__(self, model: nn.Module, inputs: Any, shared: Sequence[Tensor] = ()) -> None:
        self._model = model
        self._inputs = inputs
        self._shared = shared
        self._owners: dict[int, list[Tensor]] | None = None
        self._saved: dict[int, tuple[Tensor, Tensor]] = {}
        self._attributes = [
            (module, _simple(vars(module)), dict(module._buffers), dict(module._parameters))
            for module in model.modules()
            if may_keep_tensors(module)
        ]

    def before_write(self, target: Tensor) -> bool:
        """Keep `target`, which is about to change, if it existed before the pass. Whether it did."""
        if self._owners is None:
            self._owners = {}
            known = [
                *self._model.parameters(),
                *self._model.buffers(),
                *tensors_in(self._inputs),
                *self._shared,
            ]
            known += [tensor for _, simple, _, _ in self._attributes for tensor in tensors_in(simple)]
            for tensor in known:
                self._owners.setdefault(memory_of(tensor), []).append(tensor)
        owners = self._owners.get(memory_of(target), ())
        for tensor in owners:
            if id(tensor) not in self._saved:
                self._saved[id(tensor)] = (tensor, tensor.detach().clone())
        return bool(owners)

    def finish(self, output: Any) -> Any:
        """Put everything back; returns the output, copied where it shares memory with what is put back."""
        if self._saved:
            # The mode that watches the model must not see this; the copy of the output is a step of the pass.
            with torch._C.DisableTorchFunction():
                touched = {memory_of(tensor) for tensor, _ in self._saved.values()}
                shared = {id(tensor) for tensor in tensors_in(output) if memory_of(tensor) in touched}
            if shared:
                output = mapped(output, Tensor, lambda t: t.clone() if id(t) in shared else t)
            with torch._C.DisableTorchFunction(), torch.no_grad():
                for tensor, copy in self._saved.values():
                    tensor.copy_(copy)
        for module, simple, buffers, parameters in self._attributes:
            _put_back(module._buffers, buffers)
            _put_back(module._parameters, parameters)
            _put_attributes_back(module, simple)
        return output


def may_keep_tensors(module: nn.Module) -> bool:
    """Whether a module may keep tensors from pass to pass: torch's own modules do not in eval mode."""
    own = type(module).__module__.startswith("torch.nn.")
    return not own and not isinstance(module, torch.jit.ScriptModule)


def _simple(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes in which a pass may keep something, each with a copy if it is a list or dictionary."""
    kept: dict[str, Any] = {}
    for name, value in attributes.items():
        if name in OF_EVERY_MODULE:
            continue
        if type(value) in (list, dict):
            kept[name] = (value, value.copy())
        elif value is None or isinstance(value, Tensor | tuple | int | float | str):
            kept[name] = (value, value)
    return kept


def _put_attributes_back(module: nn.Module, before: dict[str, tuple[Any, Any]]) -> None:
    now = vars(module)
    fresh = [name for name in now if name not in before and name not in OF_EVERY_MODULE]
    fresh = [name for name in fresh if _holds_tensor(now[name])]
    changed = [
        name
        for name, (value, copy) in before.items()
        if now.get(name) is not value or (type(value) in (list, dict) and not _same_items(value, copy))
    ]
    # A counter alone changes no output; next to a tensor it says what the tensor is.
    if not fresh and not any(
        _holds_tensor(now.get(name)) or _holds_tensor(before[name][1]) for name in changed
    ):
        return
    for name in fresh:
        del now[name]
    for name in changed:
        value, copy = before[name]
        if isinstance(value, list):
            value[:] = copy
        elif isinstance(value, dict):
            _put_back(value, copy)
        now[name] = value


def _put_back(mapping: dict[Any, Any], copy: dict[Any, Any]) -> None:
    if not _same_items(mapping, copy):
        mapping.clear()
        mapping.update(copy)


def _same_items(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return list(first) == list(second) and _same_items(list(first.values()), list(second.values()))
    return len(first) == len(second) and all(a is b for a, b in zip(first, second, strict=True))


def _holds_tensor(value: Any) -> bool:
    return isinstance(value, Tensor | list | tuple | dict) and bool(tensors_in(value))


# turns

#: the thread, and in it the task of asyncio, if any
_Holder = tuple[int, int | None]


class Claims:
    """Which modules are claimed, and by which thread.

    Args:
        purpose: what modules are claimed for, as an error says it.
    """

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        self._free = threading.Condition()
        self._busy: dict[nn.Module, _Holder] = {}

    @contextmanager
    def claimed(self, modules: Iterable[nn.Module]) -> Iterator[None]:
        """A context: the modules belong to this thread. Other threads wait; this one may claim them again."""
        wanted = set(modules)
        me = (threading.get_ident(), _task())
        with self._free:
            while others := {self._busy[module] for module in wanted if self._busy.get(module, me) != me}:
                if any(thread == me[0] for thread, _ in others):
                    raise RuntimeError(
                        f"FunctionDraw: {self._purpose} in another task of this thread. "
                        "Leave it before the next await, or use threads."
                    )
                self._free.wait()
            mine = [module for module in wanted if module not in self._busy]
            self._busy.update(dict.fromkeys(mine, me))
        try:
            yield
        finally:
            with self._free:
                for module in mine:
                    del self._busy[module]
                self._free.notify_all()


#: models on which a draw is open, which sets their flags
OPEN = Claims("a draw of this model is open")
#: models of which a pass is running, which may write to their tensors and puts back what it wrote
RUNNING = Claims("a pass of this model is running")


def _task() -> int | None:
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else id(task)
