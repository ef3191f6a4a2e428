"""The names of the kinds of noise, and how a layer of each kind is made."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from bayesdrop.errors import must
from bayesdrop.layers.activations import (
    ActivationNoise,
    BernoulliNoise,
    ConcreteNoise,
    GaussianNoise,
    LearnableNoise,
    VariationalGaussianNoise,
)
from bayesdrop.layers.base import StochasticLayer
from bayesdrop.layers.bernoulli import BernoulliDropout
from bayesdrop.layers.concrete import ConcreteDropout
from bayesdrop.layers.dropconnect import DropConnect
from bayesdrop.layers.gaussian import GaussianDropout
from bayesdrop.layers.learnable import LearnableDropout
from bayesdrop.layers.masksembles import Masksembles
from bayesdrop.layers.mean_field import MeanFieldGaussian
from bayesdrop.layers.mixture import MixtureDropout
from bayesdrop.layers.variational_gaussian import VariationalGaussianDropout

__all__ = [
    "KINDS",
    "check_options",
    "kind_named",
    "make_layer",
    "make_noise",
    "noise_form",
    "options_of",
    "weight_form",
]

KINDS: dict[str, type[StochasticLayer]] = {
    "bernoulli": BernoulliDropout,
    "gaussian": GaussianDropout,
    "concrete": ConcreteDropout,
    "learnable": LearnableDropout,
    "dropconnect": DropConnect,
    "mixture": MixtureDropout,
    "variational": VariationalGaussianDropout,
    "meanfield": MeanFieldGaussian,
    "masksembles": Masksembles,
}
#: from noise on weights to the same noise that stands alone
_NOISES: dict[type[StochasticLayer], type[ActivationNoise]] = {
    BernoulliDropout: BernoulliNoise,
    GaussianDropout: GaussianNoise,
    ConcreteDropout: ConcreteNoise,
    LearnableDropout: LearnableNoise,
    VariationalGaussianDropout: VariationalGaussianNoise,
}


def noise_form(kind: type[StochasticLayer]) -> type[ActivationNoise] | None:
    """The class of this kind whose noise stands alone; None if there is only noise on weights."""
    return kind if issubclass(kind, ActivationNoise) else _NOISES.get(kind)


def weight_form(kind: type[StochasticLayer]) -> type[StochasticLayer] | None:
    """The class if its noise is on weights; None if its noise stands alone."""
    return None if issubclass(kind, ActivationNoise) else kind


def kind_named(owner: str, kind: object, *, alone: bool = False) -> type[StochasticLayer]:
    """The class of a kind, which is given as a name or a class.

    Args:
        owner: the function or class that the error names.
        kind: a name or a class.
        alone: whether classes whose noise stands alone are allowed, too.
    """
    if isinstance(kind, str) and kind in KINDS:
        return KINDS[kind]
    is_kind = isinstance(kind, type) and issubclass(kind, StochasticLayer) and not inspect.isabstract(kind)
    if is_kind and (alone or not issubclass(kind, ActivationNoise)):  # type: ignore[arg-type]
        return kind  # type: ignore[return-value]
    want = f"one of {', '.join(map(repr, KINDS))}, or such a class"
    raise (ValueError if isinstance(kind, str) else TypeError)(must(owner, "kind", want, kind))


def _rate_name(kind: type[StochasticLayer]) -> str:
    return "p_init" if "p_init" in inspect.signature(kind).parameters else "p"


def options_of(kind: type[StochasticLayer]) -> set[str]:
    """Names of the options that a kind takes, except its rate."""
    return set(inspect.signature(kind).parameters) - {"layer", "num_units", "axis", _rate_name(kind)}


def check_options(owner: str, kind: type[StochasticLayer], options: Mapping[str, Any]) -> None:
    """Raise if there are options that a kind does not have."""
    unknown = sorted(set(options) - options_of(kind))
    if unknown:
        known = ", ".join(sorted(options_of(kind)))
        raise TypeError(must(owner, "options", f"options of {kind.__name__} ({known})", ", ".join(unknown)))


def make_layer(
    kind: type[StochasticLayer], layer: nn.Module, p: Any, options: Mapping[str, Any]
) -> StochasticLayer:
    """A layer of a kind around a weight layer; for p None, at the kind's default rate."""
    if isinstance(p, Tensor) and p.dim() == 0:
        p = p.item()
    rate = {} if p is None else {_rate_name(kind): p}
    made = kind(layer, **rate, **options)
    made.train(layer.training)
    return made


def make_noise(
    kind: type[ActivationNoise], num_units: int, axis: int, p: Any, options: Mapping[str, Any]
) -> ActivationNoise:
    """Noise of a kind that stands alone; for p None, at the kind's default rate."""
    if isinstance(p, Tensor) and p.dim() == 0:
        p = p.item()
    rate = {} if p is None else {_rate_name(kind): p}
    make: Any = kind
    made: ActivationNoise = make(num_units, axis=axis, **rate, **options)
    return made
