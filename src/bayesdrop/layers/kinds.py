"""The kinds of noise by name, and how a layer of each is made."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from bayesdrop.errors import must
from bayesdrop.layers.base import StochasticLayer
from bayesdrop.layers.bernoulli import BernoulliDropout
from bayesdrop.layers.concrete import ConcreteDropout
from bayesdrop.layers.dropconnect import DropConnect
from bayesdrop.layers.gaussian import GaussianDropout
from bayesdrop.layers.learnable import LearnableDropout
from bayesdrop.layers.mixture import MixtureDropout
from bayesdrop.layers.variational_gaussian import VariationalGaussianDropout

__all__ = ["KINDS", "check_options", "kind_named", "make_layer", "options_of"]

KINDS: dict[str, type[StochasticLayer]] = {
    "bernoulli": BernoulliDropout,
    "gaussian": GaussianDropout,
    "concrete": ConcreteDropout,
    "learnable": LearnableDropout,
    "dropconnect": DropConnect,
    "mixture": MixtureDropout,
    "variational": VariationalGaussianDropout,
}


def kind_named(owner: str, kind: object) -> type[StochasticLayer]:
    """The class of a kind, given by name or as the class itself."""
    if isinstance(kind, str) and kind in KINDS:
        return KINDS[kind]
    if isinstance(kind, type) and issubclass(kind, StochasticLayer) and not inspect.isabstract(kind):
        return kind
    want = f"one of {', '.join(map(repr, KINDS))}, or such a class"
    raise (ValueError if isinstance(kind, str) else TypeError)(must(owner, "kind", want, kind))


def _rate_name(kind: type[StochasticLayer]) -> str:
    return "p_init" if "p_init" in inspect.signature(kind).parameters else "p"


def options_of(kind: type[StochasticLayer]) -> set[str]:
    """Names of the options that a kind takes, its rate aside."""
    return set(inspect.signature(kind).parameters) - {"layer", _rate_name(kind)}


def check_options(owner: str, kind: type[StochasticLayer], options: Mapping[str, Any]) -> None:
    """An error for options that a kind does not have."""
    unknown = sorted(set(options) - options_of(kind))
    if unknown:
        known = ", ".join(sorted(options_of(kind)))
        raise TypeError(must(owner, "options", f"options of {kind.__name__} ({known})", ", ".join(unknown)))


def make_layer(
    kind: type[StochasticLayer], layer: nn.Module, p: Any, options: Mapping[str, Any]
) -> StochasticLayer:
    """A layer of a kind around a weight layer; p None leaves the kind's own default."""
    if isinstance(p, Tensor) and p.dim() == 0:
        p = p.item()
    rate = {} if p is None else {_rate_name(kind): p}
    made = kind(layer, **rate, **options)
    made.train(layer.training)
    return made
