"""Where a model is random: its sites, which are on, and the flag that shows where a call came from."""

from __future__ import annotations

import difflib
import dis
import fnmatch
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
from torch import Tensor, nn

from bayesdrop.errors import must

__all__ = [
    "HeldFlag",
    "Selection",
    "Site",
    "StochasticModule",
    "Where",
    "compares_flag",
    "is_draws_hook",
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
        """A flag of one module in one draw, in the place of what the flag was."""
        flag = cls(training)
        flag.owner = owner
        flag.path = path
        flag.was = was
        flag.thread = threading.get_ident()
        return flag

    def __bool__(self) -> bool:
        # To another thread the module is what it was.
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
        # Where torch wants a bool it takes nothing else, but for objects with this method. Inside a draw the
        # draw's own mode sees the call first.
        plain = [value._plain() if isinstance(value, cls) else value for value in args]
        named = {k: v._plain() if isinstance(v, cls) else v for k, v in (kwargs or {}).items()}
        return func(*plain, **named)

    def _plain(self) -> bool:
        return False if self.thread == threading.get_ident() else self.was

    def __deepcopy__(self, memo: dict[int, Any]) -> HeldFlag:
        # A module that is copied inside a draw, by the model itself, is part of the draw.
        return self

    def __reduce__(self) -> tuple[type[bool], tuple[bool]]:
        # What is stored outlives the draw: a plain flag.
        return bool, (int(self) != 0,)


def is_draws_hook(hook: Any) -> bool:
    """Whether a hook on a module is that of an open draw."""
    return bool(getattr(getattr(hook, "__self__", None), "is_draw_of_model", False))


@cache
def compares_flag(kind: type[Any]) -> bool:
    """Whether the code of a class asks if `self.training` *is* True or False: only a bool can be that."""
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
        reason: why, in a few words.
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
        """Path and call, as a person would look for it."""
        return f"{self.path or '(model)'}" + (f" call {self.call}" if self.call else "")


Where = str | type[nn.Module] | Callable[[str, nn.Module], bool]


class Selection:
    """Which sites are on: those that `include` names (all if None), less those that `exclude` names.

    Args:
        include: a path pattern as "encoder.*", a module type, a function of (path, module), or several.
        exclude: the same.
    """

    def __init__(
        self, include: Where | Iterable[Where] | None = None, exclude: Where | Iterable[Where] | None = None
    ):
        self._include = _rules("include", include)
        self._exclude = _rules("exclude", exclude)

    def check(self, model: nn.Module) -> None:
        """Raise if a rule matches no module of the model: a name that is misspelt would change nothing."""
        for argument, rules in (("include", self._include), ("exclude", self._exclude)):
            for rule in rules or ():
                if not any(_matches(rule, path, module) for path, module in model.named_modules()):
                    got = rule if isinstance(rule, str) else getattr(rule, "__name__", rule)
                    paths = [path for path, _ in model.named_modules() if path]
                    close = difflib.get_close_matches(rule, paths, n=3) if isinstance(rule, str) else []
                    hint = f"Did you mean {' or '.join(map(repr, close))}?" if close else ""
                    raise ValueError(
                        must("predict", argument, "what matches a module of the model", got, hint)
                    )

    def allows(self, path: str, module: nn.Module | None) -> bool:
        """Whether the site at `path` is on."""
        if self._include is not None and not any(_matches(rule, path, module) for rule in self._include):
            return False
        return not any(_matches(rule, path, module) for rule in self._exclude or ())


def _rules(argument: str, where: Where | Iterable[Where] | None) -> tuple[Where, ...] | None:
    if where is None:
        return None
    want = "paths, module types or functions of (path, module)"
    if isinstance(where, str | type) or callable(where):
        rules: tuple[Any, ...] = (where,)
    elif isinstance(where, Iterable) and not isinstance(where, Tensor | np.ndarray | Mapping):
        rules = tuple(where)
    else:
        raise TypeError(must("predict", argument, want, where))
    for rule in rules:
        is_class = isinstance(rule, type)
        is_rule = isinstance(rule, str) or (issubclass(rule, nn.Module) if is_class else callable(rule))
        if not is_rule or isinstance(rule, nn.Module):
            raise TypeError(must("predict", argument, want, rule))
    return rules


def _matches(rule: Where, path: str, module: nn.Module | None) -> bool:
    if isinstance(rule, str):
        return path == rule or path.startswith(f"{rule}.") or fnmatch.fnmatchcase(path, rule)
    if isinstance(rule, type):
        return isinstance(module, rule)
    return module is not None and bool(rule(path, module))
