"""convert(): give a network another kind of noise and keep its trained weights."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must
from bayesdrop.inputs import Inputs
from bayesdrop.layers.activations import ActivationNoise
from bayesdrop.layers.base import StochasticLayer
from bayesdrop.layers.feeds import Fed, Width, feeds
from bayesdrop.layers.kinds import (
    KINDS,
    check_options,
    kind_named,
    make_layer,
    make_noise,
    noise_form,
    options_of,
    weight_form,
)
from bayesdrop.layers.last import last_maps
from bayesdrop.layers.learnable import LearnableDropout
from bayesdrop.layers.learned_rate import InitialRate
from bayesdrop.layers.places import DROPOUTS, RECURRENT, choose, keep_hooks, swap
from bayesdrop.layers.plain import made_plain
from bayesdrop.layers.recurrent import RecurrentDropout
from bayesdrop.trace import Where

__all__ = ["convert"]

Kind = str | type[StochasticLayer]
_MISSING = object()


def convert(
    model: nn.Module,
    kind: Kind,
    *,
    where: Where | Iterable[Where] = "dropouts",
    p: InitialRate | Sequence[float] | None = None,
    inplace: bool = False,
    x: Inputs | None = None,
    **options: Any,
) -> nn.Module:
    """Give a network another kind of noise. Trained weights are kept: its `eval()` output is the same.

    Args:
        model: any module; it may be a weight layer itself.
        kind: "bernoulli", "gaussian", "concrete", "learnable", "dropconnect", "mixture", "variational",
            "meanfield", "masksembles", or one of their classes. A class of noise that stands alone, as
            `bd.layers.ConcreteNoise`, replaces every dropout by such a module. "none" removes the noise;
            "dropout" replaces it by an `nn.Dropout` of the same rate in front of the weight layers.
        where: "dropouts": every `nn.Dropout`, `nn.Dropout1d/2d/3d` is replaced by noise at its rate: on the
            weight layers that it feeds, or, where it feeds anything else (a norm, a sum, a concatenation), by
            a module of noise that stands alone. Stochastic layers change their kind and keep their rates;
            recurrent modules with dropout become `RecurrentDropout`. "weights": every weight layer and
            recurrent module; dropouts stay. "last": the weight layers after which no other comes on the way
            to the output, one for each head, as a pass of `x` shows; without `x`, the last one that the model
            has. Or paths ("encoder", "layers.*.fc"), module types, functions of
            (path, module), or several of all these.
        p: the rate, or where a learned one starts. None keeps the rate of the dropout or stochastic layer
            that is replaced; other layers get the kind's default.
        inplace: change `model` itself instead of a copy.
        x: a batch of inputs: one pass shows what the dropouts feed and how many units they have. Without it
            both must follow from their neighbours in an `nn.Sequential`.
        options: of the kind, as `length_scale`, `per`, `temperature`; a stochastic layer keeps those that are
            not given. Noise in the place of an `nn.Dropout` is `elementwise`. Options about weights, as
            `length_scale`, have no effect on noise that stands alone.

    Every chosen dropout is replaced; where that is impossible, an error names it: a dropout that feeds a
    layer which has noise already; one module used at several places that would have to stand alone; one that
    feeds no weights, where the kind ("dropconnect", "mixture", "meanfield", "masksembles") is noise on
    weights only. The projections of `nn.MultiheadAttention`, which torch reads without calling them, are not
    changed.

    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    >>> convert(net, "concrete")
    Sequential(
      (0): Linear(in_features=3, out_features=8, bias=True)
      (1): ReLU()
      (2): Identity()
      (3): ConcreteDropout(
        p=0.5, temperature=0.1, masks='hard'
        (layer): Linear(in_features=8, out_features=1, bias=True)
      )
    )
    """
    if not isinstance(model, nn.Module):
        raise TypeError(must("convert", "model", "an nn.Module", model))
    if is_one_of(kind, ("none", "dropout")):
        if options or p is not None:
            raise TypeError(must("convert", "options", f"none for the kind {kind!r}", {"p": p, **options}))
        return made_plain(model if inplace else copy.deepcopy(model), where, dropout=kind == "dropout")
    if isinstance(kind, str) and kind not in KINDS:
        want = ", ".join(map(repr, (*KINDS, "dropout", "none")))
        raise ValueError(must("convert", "kind", f"one of {want}", kind))
    made = kind_named("convert", kind, alone=True)
    rate = options.pop("p_init", p)
    check_options("convert", made, options)
    model = model if inplace else copy.deepcopy(model)
    chosen = choose(model, where, last=lambda: last_maps(model, x))
    _check_weights(chosen, made)
    dropouts: dict[nn.Module, list[str]] = {
        module: paths for module, paths in chosen.items() if isinstance(module, DROPOUTS)
    }
    fed = feeds(model, dropouts, x)
    if weight_form(made) is None:
        fed = Fed({}, dict.fromkeys(dropouts, "stands alone"), {}, fed.widths)
    _check_fed(fed, made, dropouts, model, watched=x is not None)
    parents = list(model.modules())
    swaps: dict[nn.Module, nn.Module] = {}
    for layer, dropout in fed.layers.items():
        swaps[layer] = _wrapped(layer, dropout, made, rate, options, dropouts[dropout][0])
    for module, (path, *_) in chosen.items():
        if isinstance(module, DROPOUTS):
            alone = module in fed.alone
            new = _alone(module, fed.widths[module], made, rate, options, path) if alone else nn.Identity()
            swaps[module] = new.train(module.training)
            keep_hooks(module, new)
        elif isinstance(module, StochasticLayer):
            swaps[module] = _changed(module, made, rate, options, path)
        elif isinstance(module, RECURRENT):
            swaps[module] = _recurrent(module, made, rate, options, path)
        elif not isinstance(module, RecurrentDropout) and module not in swaps:
            swaps[module] = _wrapped(module, None, made, rate, options, path)
    return swap(model, swaps, parents)


def _check_weights(chosen: Mapping[nn.Module, list[str]], kind: type[StochasticLayer]) -> None:
    """Raise if weight layers are chosen and the kind is noise that stands alone."""
    if weight_form(kind) is not None:
        return
    others = [p[0] for m, p in chosen.items() if not isinstance(m, (*DROPOUTS, ActivationNoise))]
    if others:
        hint = f"Use its form on weights, as {kind.__mro__[2].__name__}."
        want = "dropouts, which noise that stands alone can replace"
        raise ValueError(must("convert", "where", want, others[0] or "the model itself", hint))


def _check_fed(
    fed: Fed,
    kind: type[StochasticLayer],
    dropouts: Mapping[nn.Module, list[str]],
    model: nn.Module,
    *,
    watched: bool,
) -> None:
    """Raise if a dropout can be replaced neither by noise on weights nor by noise that stands alone."""
    troubles = dict(fed.doubled)
    if noise_form(kind) is None:
        troubles |= fed.alone
    else:
        for dropout, why in fed.alone.items():
            width = fed.widths[dropout]
            if isinstance(width, str):
                troubles.setdefault(dropout, width if why == "stands alone" else f"{why}, and {width}")
    if not troubles:
        return
    reasons = "; ".join(f"{dropouts[dropout][0]!r} {trouble}" for dropout, trouble in troubles.items())
    good = [paths[0] for dropout, paths in dropouts.items() if dropout not in troubles]
    hint = "" if watched else "Give `x`, a batch of inputs: a pass then shows where each goes. "
    hint += "A dropout that is left as it is stays random in `predict`: "
    hint += f"name the others, as where={good!r}." if good else "choose weight layers by where='weights'."
    if any(isinstance(part, StochasticLayer) for part in model.modules()):
        hint += " where=StochasticLayer means the layers that have noise on their weights already."
    want = "dropouts whose noise can act on the weights of the layers that they feed, or stand in their place"
    if noise_form(kind) is None:
        want = "dropouts whose noise can act on the weights of the layers that they feed"
    raise ValueError(f"convert: `where` must choose {want}; but {reasons}. {hint}")


def _alone(
    dropout: nn.Module,
    width: Width | str,
    kind: type[StochasticLayer],
    p: Any,
    options: Mapping[str, Any],
    path: str,
) -> ActivationNoise:
    """Noise that stands alone, in the place of a dropout."""
    form = noise_form(kind)
    assert form is not None
    assert isinstance(width, Width)
    given = {name: value for name, value in options.items() if name in options_of(form)}
    if "elementwise" in options_of(form):
        given.setdefault("elementwise", isinstance(dropout, nn.Dropout) and width.positions)
    rate = dropout.p if p is None else p
    return _made_noise(form, width.num_units, width.axis, rate, given, path)


def _changed_noise(
    noise: ActivationNoise, kind: type[StochasticLayer], p: Any, options: Mapping[str, Any], path: str
) -> ActivationNoise:
    """Noise of another kind that stands alone, with the rates and options that the new kind has too."""
    form = noise_form(kind)
    if form is None:
        raise ValueError(
            f"convert: {path!r} is noise that stands alone, and {kind.__name__} is noise on weights."
        )
    kept = {name: getattr(noise, name) for name in options_of(form) if hasattr(noise, name)}
    rate = noise.p.detach().clone() if p is None else p
    if "per" in options_of(form) and not hasattr(noise, "per") and isinstance(rate, Tensor) and rate.dim():
        kept["per"] = "unit"
    chosen = {name: value for name, value in options.items() if name in options_of(form)}
    made = _made_noise(form, noise.num_units, noise.axis, rate, {**kept, **chosen}, path)
    made.to(noise.layer.weight).train(noise.training)
    keep_hooks(noise, made)
    return made


def _made_noise(
    form: type[ActivationNoise], num_units: int, axis: int, p: Any, options: Mapping[str, Any], path: str
) -> ActivationNoise:
    try:
        return make_noise(form, num_units, axis, p, options)
    except (ValueError, TypeError) as error:
        raise type(error)(f"convert, at {path or 'the model itself'!r}: {error}") from error


def _wrapped(
    layer: nn.Module,
    dropout: nn.Module | None,
    kind: type[StochasticLayer],
    p: Any,
    options: Mapping[str, Any],
    path: str,
) -> StochasticLayer:
    """A weight layer with noise, at the rate of the dropout that it replaces if there is one."""
    given = dict(options)
    if dropout is not None:
        p = dropout.p if p is None else p
        if "elementwise" in options_of(kind):
            given.setdefault("elementwise", isinstance(dropout, nn.Dropout))
    made = _made(kind, layer, p, given, path)
    _keep_mean(made, layer.weight)  # type: ignore[arg-type]
    return made


def _changed(
    layer: StochasticLayer, kind: type[StochasticLayer], p: Any, options: Mapping[str, Any], path: str
) -> StochasticLayer:
    """A stochastic layer of another kind, with the rates and options that the new kind has too."""
    if isinstance(layer, ActivationNoise):
        return _changed_noise(layer, kind, p, options, path)
    kept: dict[str, Any] = {}
    for name in options_of(kind):
        value = getattr(layer, name, _MISSING)
        if isinstance(value, Tensor):
            kept[name] = value.item()
        elif value is None or isinstance(value, bool | int | float | str):
            kept[name] = value
    if kept.get("per") == "weight":
        del kept["per"]
    rate = layer.p.detach().clone() if p is None else p
    if "per" in options_of(kind) and not hasattr(layer, "per") and isinstance(rate, Tensor) and rate.dim():
        kept["per"] = "unit"
    with torch.no_grad():
        mean = layer.weight.clone()
    made = _made(kind, layer.layer, rate, {**kept, **options}, path)
    _keep_mean(made, mean)
    made.train(layer.training)
    keep_hooks(layer, made)
    return made


def _recurrent(
    layer: nn.RNNBase, kind: type[StochasticLayer], p: Any, options: Mapping[str, Any], path: str
) -> RecurrentDropout:
    """A recurrent module with noise; one mask for all steps, whatever `elementwise` says."""
    given = {name: value for name, value in options.items() if name != "elementwise"}
    if p is None and layer.dropout > 0:
        p = layer.dropout
    rate = {} if p is None else {"p": p}
    try:
        made = RecurrentDropout(layer, kind, **rate, **given)
    except (ValueError, TypeError) as error:
        raise type(error)(f"convert, at {path or 'the model itself'!r}: {error}") from error
    for part in made.modules():
        if isinstance(part, StochasticLayer):
            _keep_mean(part, part.layer.weight)
    return made


def _made(
    kind: type[StochasticLayer], layer: nn.Module, p: Any, options: Mapping[str, Any], path: str
) -> StochasticLayer:
    try:
        return make_layer(kind, layer, p, options)
    except (ValueError, TypeError) as error:
        raise type(error)(f"convert, at {path or 'the model itself'!r}: {error}") from error


@torch.no_grad()
def _keep_mean(layer: StochasticLayer, mean: Tensor) -> None:
    """Set the wrapped weights so that the layer's mean is `mean`: raw masks multiply them by 1 - p."""
    raw = isinstance(layer, LearnableDropout) and layer.scaling == "raw"
    if raw and isinstance(layer, LearnableDropout):
        layer.layer.weight.copy_(mean / layer.unit_weights())
    elif mean is not layer.layer.weight:
        layer.layer.weight.copy_(mean)
