"""Where a model is random: its sites, which of them are on, and which site a call belongs to."""

from __future__ import annotations

import difflib
import dis
import fnmatch
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import FrameType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import must

__all__ = [
    "HeldFlag",
    "Selection",
    "Site",
    "SiteBook",
    "StochasticModule",
    "Where",
    "compares_flag",
    "evaluating",
    "flags_kept",
    "is_chain",
    "is_draws_hook",
    "needs_no_watching",
]


class StochasticModule(nn.Module):
    """A module that asks the active draw for its noise."""

    def is_random(self) -> bool:
        """Whether a draw of this module can differ from its mean."""
        return True


class HeldFlag(int):
    """Stands in for `module.training` inside a draw.

    A dropout call that was handed this object got it from `self.training`; a call that was handed a
    plain True or False has a constant in its source. As a number it is 0, so that everything else in
    the model is in eval mode, or 1 for the few modules that pass a rate only when training.
    """

    owner: Any
    path: str
    was: bool
    thread: int

    @classmethod
    def of(cls, owner: Any, path: str, *, training: bool, was: bool) -> HeldFlag:
        """The flag of one module in one draw; `was` is the module's own flag."""
        flag = cls(training)
        flag.owner = owner
        flag.path = path
        flag.was = was
        flag.thread = threading.get_ident()
        return flag

    def __bool__(self) -> bool:
        # Another thread sees the module's own flag.
        if self.thread != threading.get_ident():
            return self.was
        self.owner.asked.add(self.path)
        return int(self) != 0

    def __eq__(self, other: object) -> bool:
        return bool(self) == other

    def __hash__(self) -> int:
        return hash(bool(self))

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Where torch wants a bool it takes only a bool, or an object with this method. Inside a draw the
        # draw's mode sees the call first.
        plain = [value._plain() if isinstance(value, cls) else value for value in args]
        named = {k: v._plain() if isinstance(v, cls) else v for k, v in (kwargs or {}).items()}
        return func(*plain, **named)

    def _plain(self) -> bool:
        return False if self.thread == threading.get_ident() else self.was

    def __deepcopy__(self, memo: dict[int, Any]) -> HeldFlag:
        # If the model copies one of its modules inside a draw, the copy is part of the draw.
        return self

    def __reduce__(self) -> tuple[type[bool], tuple[bool]]:
        # A pickle outlives the draw: it stores a plain bool.
        return bool, (int(self) != 0,)


def is_draws_hook(hook: Any) -> bool:
    """Whether a hook on a module was put there by an open draw."""
    return bool(getattr(getattr(hook, "__self__", None), "is_draw_of_model", False))


@cache
def compares_flag(kind: type[Any]) -> bool:
    """Whether code of a class says `self.training is True` (or False), which a `HeldFlag` never is."""
    owners = [owner for owner in kind.__mro__ if not owner.__module__.startswith("torch.nn.")]
    codes = [
        member.__code__ for o in owners for member in vars(o).values() if isinstance(member, FunctionType)
    ]
    for code in codes:
        steps = list(dis.get_instructions(code))
        for first, second, third in zip(steps, steps[1:], steps[2:], strict=False):
            values = (first.argval, second.argval)
            if third.opname == "IS_OP" and "training" in values and any(type(v) is bool for v in values):
                return True
    return False


@dataclass(frozen=True)
class Site:
    """One source of randomness in a model.

    Attributes:
        path: the module it belongs to; "" for the model itself.
        call: which call of that module, counted from 0 in every pass.
        kind: as "Dropout", "F.dropout", "BernoulliDropout.input", "attention", "LSTM".
        p: its rate; None where it has several.
        shape: of the noise of one draw; None if it was not run.
        random: whether it is on.
        reason: why it is on or off, in a few words.
    """

    path: str
    call: int
    kind: str
    p: float | None
    shape: tuple[int, ...] | None
    random: bool
    reason: str

    @property
    def name(self) -> str:
        """Path and call, for people to read."""
        return f"{self.path or '(model)'}" + (f" call {self.call}" if self.call else "")


Where = str | type[nn.Module] | Callable[[str, nn.Module], bool]


class Selection:
    """Which sites are on: those that `include` names (all if None), less those that `exclude` names.

    Args:
        include: a path pattern as "encoder.*", a module type, a function of (path, module), or several.
        exclude: of the same form as `include`.
        owner: the function that errors name.
    """

    def __init__(
        self,
        include: Where | Iterable[Where] | None = None,
        exclude: Where | Iterable[Where] | None = None,
        *,
        owner: str = "predict",
    ) -> None:
        self._owner = owner
        self._include = _rules(owner, "include", include)
        self._exclude = _rules(owner, "exclude", exclude)

    def check(self, model: nn.Module) -> None:
        """Raise if a rule matches no module of the model, as a misspelt name would go unnoticed."""
        for argument, rules in (("include", self._include), ("exclude", self._exclude)):
            for rule in rules or ():
                if not any(_matches(rule, path, module) for path, module in model.named_modules()):
                    got = rule if isinstance(rule, str) else getattr(rule, "__name__", rule)
                    paths = [path for path, _ in model.named_modules() if path]
                    close = difflib.get_close_matches(rule, paths, n=3) if isinstance(rule, str) else []
                    hint = f"Did you mean {' or '.join(map(repr, close))}?" if close else ""
                    raise ValueError(
                        must(self._owner, argument, "what matches a module of the model", got, hint)
                    )

    def allows(self, path: str, module: nn.Module | None) -> bool:
        """Whether the site at `path` is on."""
        if self._include is not None and not any(_matches(rule, path, module) for rule in self._include):
            return False
        return not any(_matches(rule, path, module) for rule in self._exclude or ())


class SiteBook:
    """The sites that passes of a model reach, noted as they are reached.

    A dropout call that got `self.training` belongs to the module of that flag; any other call belongs to the
    innermost module on the stack.

    Args:
        model: any module.
        selection: which sites are on.

    Attributes:
        paths: of all modules.
        sites: every site of the latest pass, on or off, by its key.
        foreign: names of functions in the model that draw numbers which no draw can hold.
        asked: paths of modules whose training flag was read, and not only passed on.
        flagged: sites that are on and got `self.training` itself.
        escaped: where `model` is a private copy, whether a module of the original ran.
        originals: where `model` is a private copy, from every module of the original to its copy; else empty.
        trained: paths of modules that are in training mode because of their dropout.
    """

    def __init__(self, model: nn.Module, selection: Selection | None = None) -> None:
        self.model = model
        self.paths = {module: path for path, module in model.named_modules()}
        self.sites: dict[str, Site] = {}
        self.foreign: list[str] = []
        self.asked: set[str] = set()
        self.flagged: set[str] = set()
        self.escaped = False
        self.originals: Mapping[nn.Module, nn.Module] = {}
        self.trained: frozenset[str] = frozenset()
        self._selection = selection or Selection()
        self._of_user: Mapping[nn.Module, nn.Module] = {}
        self._calls: dict[str, int] = {}
        self._inside: str | None = None

    def is_copy_of(self, copies: Mapping[nn.Module, nn.Module]) -> None:
        """Say that the model is a private copy, with a mapping from original modules to their copies."""
        self.originals = copies
        self._of_user = {copy: original for original, copy in copies.items()}

    def note(self, off: Iterable[Site]) -> None:
        """Note sites that stay off, which no pass in a draw reaches."""
        for site in off:
            self.sites[f"{site.path}:{site.call}:{site.kind}"] = site

    def selected(self, path: str) -> bool:
        """Whether the sites of the module at `path` are on."""
        module = self._module(path)
        # Rules are given the module that the user knows, not a copy of it.
        return self._selection.allows(path, module if module is None else self._of_user.get(module, module))

    def selected_below(self, path: str) -> bool:
        """Whether any site at or below `path` may be on."""
        prefix = f"{path}." if path else ""
        inner = (other for other in self.paths.values() if other.startswith(prefix))
        return self.selected(path) or any(self.selected(other) for other in inner)

    def start_pass(self) -> None:
        """Begin a pass: the calls of each module are counted from 0."""
        self._calls.clear()

    def next_call(self, flag: Any = None) -> tuple[str, str, int]:
        """Key, path and number of the call that is being made."""
        path = self._path_of(flag)
        call = self._calls.get(path, 0)
        self._calls[path] = call + 1
        return f"{path}:{call}", path, call

    def open(self, kind: str, p: float, flag: Any) -> str | None:
        """The key of a dropout call's noise, or None if the call is off.

        Args:
            kind: what was called.
            p: its rate.
            flag: its training argument: a `HeldFlag` if that came from `self.training`.
        """
        key, path, call = self.next_call(flag)
        module = self._module(path)
        if isinstance(module, nn.Dropout | nn.modules.dropout._DropoutNd):
            kind = type(module).__name__
        if not isinstance(flag, HeldFlag) and not flag:
            reason = "called with training=False"
        else:
            reason = "p = 0" if p == 0 else "on" if self.selected(path) else "excluded"
        on = reason == "on"
        self.sites[key] = Site(path, call, kind, p, None, on, reason)
        if on and isinstance(flag, HeldFlag):
            self.flagged.add(key)
        return key if on else None

    @contextmanager
    def inside(self, path: str | None) -> Iterator[None]:
        """A context: dropout calls made inside belong to the module at `path`."""
        before, self._inside = self._inside, path
        try:
            yield
        finally:
            self._inside = before

    def is_running(self) -> bool:
        """Whether code of the model is on the stack, as also when one of its modules is called alone."""
        return self._path_on_stack() is not None

    def in_training(self) -> bool:
        """Whether the module that is running is in training mode because of its dropout."""
        return bool(self.trained) and self._path_of(None) in self.trained

    def _path_of(self, flag: Any) -> str:
        if isinstance(flag, HeldFlag):
            return flag.path
        return self._inside if self._inside is not None else self._path_on_stack() or ""

    def _path_on_stack(self) -> str | None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            owner = frame.f_locals.get("self")
            path: str | None = self.paths.get(owner) if isinstance(owner, nn.Module) else None
            if path is not None:
                return path
            if isinstance(owner, nn.Module) and owner in self.originals:
                self.escaped = True
            frame = frame.f_back
        return None

    def _module(self, path: str) -> nn.Module | None:
        module: nn.Module = self.model
        for name in path.split(".") if path else ():
            inner = module._modules.get(name)
            if inner is None:
                return None
            module = inner
        return module


def _rules(owner: str, argument: str, where: Where | Iterable[Where] | None) -> tuple[Where, ...] | None:
    if where is None:
        return None
    want = "paths, module types or functions of (path, module)"
    if isinstance(where, str | type) or callable(where):
        rules: tuple[Any, ...] = (where,)
    elif isinstance(where, Iterable) and not isinstance(where, Tensor | np.ndarray | Mapping):
        rules = tuple(where)
    else:
        raise TypeError(must(owner, argument, want, where))
    for rule in rules:
        is_class = isinstance(rule, type)
        is_rule = isinstance(rule, str) or (issubclass(rule, nn.Module) if is_class else callable(rule))
        if not is_rule or isinstance(rule, nn.Module):
            raise TypeError(must(owner, argument, want, rule))
    return rules


def _matches(rule: Where, path: str, module: nn.Module | None) -> bool:
    if isinstance(rule, str):
        return path == rule or path.startswith(f"{rule}.") or fnmatch.fnmatchcase(path, rule)
    if isinstance(rule, type):
        return isinstance(module, rule)
    return module is not None and bool(rule(path, module))


@contextmanager
def flags_kept(modules: Iterable[nn.Module]) -> Iterator[None]:
    """A context: every `training` flag is restored at its end. Scripts are in eval mode inside."""
    flags = {module: module.training for module in modules}
    try:
        for module in flags:
            if isinstance(module, torch.jit.ScriptModule):
                module.training = False
        yield
    finally:
        for module, flag in flags.items():
            if isinstance(module, torch.jit.ScriptModule):
                module.training = flag
            else:
                module.__dict__["training"] = flag


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """A context: the modules and all below them are in eval mode; every training flag is restored."""
    flags = {child: child.training for module in modules for child in module.modules()}
    try:
        for child in flags:
            child.training = False
        yield
    finally:
        for child, flag in flags.items():
            child.training = flag


# Models made of torch's own layers and ours alone need not be studied; where none of their layers drops,
# keeps statistics or writes in place, they need not be watched either.

_LAYERS = (
    nn.Sequential,
    nn.ModuleList,
    nn.Identity,
    nn.Linear,
    nn.Embedding,
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.modules.dropout._DropoutNd,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
)
#: layers that a draw must watch: they are random, or what they do depends on the training flag
_WATCHED = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase, nn.RReLU)


def is_chain(model: nn.Module) -> bool:
    """Whether a model is a chain of known layers, so that rows are on axis 0 everywhere."""
    for module in model.modules():
        kind = type(module)
        if isinstance(module, StochasticModule):
            continue
        activation = kind.__module__ == "torch.nn.modules.activation" and kind is not nn.MultiheadAttention
        flatten = isinstance(module, nn.Flatten) and module.start_dim >= 1
        layer = isinstance(module, _LAYERS) and kind.__module__.startswith("torch.nn.modules.")
        # Networks of this library declare it.
        ours = kind.__module__.startswith("bayesdrop.") and getattr(kind, "keeps_rows", False)
        if not (activation or flatten or layer or ours) or _is_changed(module):
            return False
    return True


def needs_no_watching(model: nn.Module) -> bool:
    """Whether nothing in a pass is random except this library's layers, and the pass changes nothing."""
    if nn.modules.module._has_any_global_hook() or not is_chain(model):  # type: ignore[no-untyped-call]
        return False
    for module in model.modules():
        if isinstance(module, StochasticModule) and not type(module).__module__.startswith("bayesdrop."):
            return False
        writes = getattr(module, "inplace", False) or getattr(module, "max_norm", None) is not None
        if writes or isinstance(module, _WATCHED) or _is_changed(module):
            return False
    return True


def _is_changed(module: nn.Module) -> bool:
    """Whether calling the module does more than its class: hooks, its own `forward`, or a compiler."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return (
        not all(map(is_draws_hook, hooks))
        or "forward" in vars(module)
        or module._compiled_call_impl is not None
    )
