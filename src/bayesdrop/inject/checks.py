"""What `inject` refuses, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from bayesdrop.audit import audit
from bayesdrop.errors import is_one_of, must, real_number
from bayesdrop.inject.place import KINDS
from bayesdrop.inject.search import Measured, Search
from bayesdrop.inputs import InputBatch
from bayesdrop.likelihoods import Likelihood
from bayesdrop.predict.sweep import NoiseSweep

__all__ = [
    "check_arguments",
    "checked_rates",
    "checked_scales",
    "must_be_allowed",
    "must_be_alone",
    "must_be_enough",
    "must_be_quiet",
]

#: targets by which a rate can be chosen at all
_FEWEST = 30


def check_arguments(model: Any, likelihood: Any, kind: Any, target: Any, data: Any, p: Any) -> None:
    """Raise for a wrong model, likelihood, kind, target or rate, or if there is nothing to choose by."""
    if not isinstance(model, nn.Module) or isinstance(model, Likelihood):
        raise TypeError(must("inject", "model", "a trained network, an nn.Module", model))
    if not isinstance(likelihood, Likelihood):
        raise TypeError(must("inject", "likelihood", "a Likelihood, as Categorical()", likelihood))
    if not is_one_of(kind, KINDS):
        hint = "Noise that is learned is given by convert(model, kind), and learned by fit."
        raise ValueError(must("inject", "kind", f"one of {', '.join(map(repr, KINDS))}", kind, hint))
    if not is_one_of(target, ("likelihood", "information")):
        raise ValueError(must("inject", "target", "'likelihood' or 'information'", target))
    if p is not None:
        real_number("inject", "p", p, "in (0, 1)", above=0, below=1)
    elif data is None:
        raise ValueError(
            must("inject", "data", "held-out rows to choose the rate by, unless `p` is given", None)
        )


def checked_rates(values: Any) -> tuple[float, ...]:
    """The rates in order; raise unless they are in (0, 1)."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not len(values):
        raise ValueError(must("inject", "rates", "numbers in (0, 1), as (0.05, 0.1)", values))
    return tuple(sorted(real_number("inject", "rates", v, "in (0, 1)", above=0, below=1) for v in values))


def checked_scales(values: Any) -> tuple[float, ...]:
    """The scales in order; raise unless they are above 0."""
    want = "positive numbers, as (0.5, 1.0)"
    if not isinstance(values, Sequence) or isinstance(values, str) or not len(values):
        raise ValueError(must("inject", "scales", want, values))
    found = (real_number("inject", "scales", v, want, at_least=1e-3, at_most=1e3) for v in values)
    return tuple(sorted(found))


_HAS_NOISE = (
    "inject: `model` must be a network in which nothing is random; got noise at {places}. Its dropout is "
    "what `predict` uses: there is nothing to inject. To change its rates use set_rates(model, p) or convert."
)


def must_be_quiet(model: nn.Module) -> None:
    """Raise if the modules of a model show that it has dropout already."""
    random = [site.name for site in audit(model).sites if site.random]
    if random:
        raise ValueError(_HAS_NOISE.format(places=", ".join(random)))


def must_be_alone(sweep: NoiseSweep, paths: Sequence[str]) -> None:
    """Raise if a pass has shown other noise than what was injected."""
    random = [site.name for site in sweep.sites.values() if site.random and site.path not in paths]
    if random or sweep.foreign:
        raise ValueError(_HAS_NOISE.format(places=", ".join([*random, *dict.fromkeys(sweep.foreign)])))


def must_be_enough(search: Search, batches: Sequence[InputBatch]) -> None:
    """Raise if there are too few targets, or rows, to choose by."""
    points = search.bare.points
    count = sum(batch.rows for batch in batches) if points is None else len(points)
    if count < _FEWEST:
        want = f"at least {_FEWEST} {'rows' if points is None else 'targets'} that the network has not seen"
        hint = "With fewer, the choice would be chance. Give `p` if you know the rate."
        raise ValueError(must("inject", "data", want, count, hint))


def must_be_allowed(search: Search, tried: Sequence[Measured], tolerance: float) -> None:
    """Raise if every strength makes the mean prediction worse than the tolerance allows."""
    if any(one.candidate.allowed for one in tried):
        return
    before, least = search.bare.candidate.quality, tried[0].candidate
    name = "an accuracy" if search.metric == "accuracy" else "an RMSE"
    raise ValueError(
        f"inject: refused, as the mean prediction becomes worse than `tolerance` = {tolerance:g} allows: "
        f"{name} of {before:.4g} without noise, and of {least.quality:.4g} at p = {least.p:g}. Try smaller "
        "`rates` or scales, another place, or a larger tolerance."
    )
