"""bayesdrop: honest uncertainty for any PyTorch network through Bayesian dropout."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bayesdrop.version import __version__ as __version__

if TYPE_CHECKING:
    from bayesdrop.public import *  # noqa: F403  (its `__all__` is the list)

#: functions that have the name of the package they live in
_FUNCTIONS = frozenset({"audit", "fit", "predict"})


class _Package(ModuleType):
    """The public names come from `bayesdrop.public`, all of them when the first is asked for.

    Nothing here imports torch, so that `bayesdrop --help` answers at once.
    """

    def __getattr__(self, name: str) -> Any:
        # Names with an underscore are those that the import system asks for.
        if not name.startswith("_") or name == "__all__":
            public = importlib.import_module("bayesdrop.public")
            vars(self).update({each: getattr(public, each) for each in public.__all__})
            vars(self)["__all__"] = public.__all__
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(f"module 'bayesdrop' has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        # The import system gives a package its parts as attributes; a function of that name comes first.
        if not (name in _FUNCTIONS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


sys.modules[__name__].__class__ = _Package
