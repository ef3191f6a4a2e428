"""A copy of a model that shares its weights and nothing else: what a pass changes, it changes there.

Modules, the lists, dictionaries and plain objects that they hold, and their bound methods are made anew;
tensors, functions and everything else are shared. A pass of the copy sets no flag and keeps no state in the
model itself, so that any number of threads can run passes of one model, each of a copy of its own.
"""

from __future__ import annotations

import dis
import functools
import gc
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.draws.passes import tensors_in
from bayesdrop.draws.sites import HeldFlag, is_draws_hook

__all__ = ["NotPrivate", "PrivateCopy", "copied_arguments", "leads_back"]


class NotPrivate(Exception):
    """A model of which no private copy can be made; the message says why."""


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
        tensors: what it shares with the model, other than parameters and buffers: tensors that its
            attributes hold.
        copies: of every module of the model, registered or not, its copy.
    """

    def __init__(self, model: nn.Module) -> None:
        copier = _Copier()
        self.module: nn.Module = copier.copy(model)
        self.tensors = copier.tensors
        self.copies = copier.modules


_MAPPINGS = (dict, OrderedDict)
_TENSORS_OF_MODULE = ("_parameters", "_buffers")
#: attributes of a module that no pass changes, or that are copied already
_KEPT_OF_MODULE = frozenset(vars(nn.Module())) - {
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
        if kind in _SHARED:
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
        """These are not copied."""
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
            if name not in _KEPT_OF_MODULE:
                # Most are empty dictionaries of hooks.
                empty = type(value) in _MAPPINGS and not value
                attributes[name] = type(value)() if empty else self.copy(value)
        # A draw may be open on the model itself; what it has set is not the model's.
        flag: Any = made.training
        if isinstance(flag, HeldFlag):
            attributes["training"] = flag.was
        for hooks in (made._forward_pre_hooks, made._forward_hooks):
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


def _is_plain_object(kind: type[Any]) -> bool:
    """Whether an object of this class is its attributes and nothing else, and nothing says how to copy it."""
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
    """What a model is called with, so that a pass cannot change it: lists, dictionaries and objects, as a
    cache.

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


# whether a copy is all that its passes will use


def leads_back(copy: PrivateCopy) -> str | None:
    """Where something in the copy still leads to a module of the model itself; None if nothing does.

    Closures, objects that cannot be copied and global names may hold a module. A pass of the copy would
    then run a part of the model itself, on which no noise is held.
    """
    originals = {id(module) for module in copy.copies}
    seen: set[int] = set()
    waiting: list[Any] = []
    for module in copy.copies.values():
        seen.add(id(module))
        waiting += [value for name, value in vars(module).items() if name not in _KEPT_OF_MODULE]
    kinds = {type(module) for module in copy.copies}
    functions = [member for kind in kinds for member in _own_functions(kind)]
    while waiting:
        value = waiting.pop()
        if type(value) in _NO_HOLDERS or id(value) in seen:
            continue
        seen.add(id(value))
        if id(value) in originals:
            return f"something in it holds {type(value).__name__} by another way than as a child"
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
    """A global name that one of some functions reads and that stands for a module of the model."""
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
