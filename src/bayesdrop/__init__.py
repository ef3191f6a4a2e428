"""bayesdrop: honest uncertainty for any PyTorch network through Bayesian dropout."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bayesdrop.version import __version__ as __version__

if TYPE_CHECKING:
    from bayesdrop import acquire as acquire
    from bayesdrop import attacks as attacks
    from bayesdrop import calibration as calibration
    from bayesdrop import control as control
    from bayesdrop import data as data
    from bayesdrop import estimators as estimators
    from bayesdrop import experiments as experiments
    from bayesdrop import gp as gp
    from bayesdrop import linear as linear
    from bayesdrop import plots as plots
    from bayesdrop import recommend as recommend
    from bayesdrop import serve as serve
    from bayesdrop import stacked as stacked
    from bayesdrop import tables as tables
    from bayesdrop import vae as vae
    from bayesdrop.public import *  # noqa: F403  (its `__all__` is the list)

#: functions that have the name of the module or package they live in
_FUNCTIONS = frozenset({"audit", "cascade", "export", "fit", "inject", "predict"})
#: packages that are imported when they are asked for, as `bayesdrop.plots`, and the extra that each needs
_ON_DEMAND = {
    "acquire": None,
    "attacks": None,
    "calibration": None,
    "control": "control",
    "data": None,
    "estimators": "sklearn",
    "experiments": None,
    "gp": None,
    "linear": "sklearn",
    "plots": None,
    "recommend": "recommend",
    "serve": "serve",
    "stacked": None,
    "tables": "tables",
    "vae": None,
}


class _Package(ModuleType):
    """The public names come from `bayesdrop.public`, all of them when the first is asked for.

    Nothing here imports torch, so that `bayesdrop --help` answers at once.
    """

    def __getattr__(self, name: str) -> Any:
        if name in _ON_DEMAND:
            return _imported(name)
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
        return sorted({*super().__dir__(), *self.__all__, *_ON_DEMAND})


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"bayesdrop.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("bayesdrop"):
            raise
        from bayesdrop.errors import MissingExtra

        raise MissingExtra.of(f"bayesdrop.{name}", error.name, _ON_DEMAND[name] or "all") from error


sys.modules[__name__].__class__ = _Package
