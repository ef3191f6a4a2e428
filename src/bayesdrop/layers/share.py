"""One rate for several layers."""

from __future__ import annotations

import torch
from torch import nn

from bayesdrop.errors import must, must_be_module, real_number
from bayesdrop.layers.learned_rate import LearnedRateLayer

__all__ = ["share_rates"]


def share_rates(model: nn.Module, *, p: float | None = None) -> nn.Parameter:
    """One learned rate for all `ConcreteDropout` and `LearnableDropout` layers of a model.

    The layers keep their names and share one parameter, which `parameters()` lists once; files, copies and
    optimisers treat it as any other tied parameter. Call this before making an optimiser.

    Args:
        model: its learned layers must have one rate each, `per="layer"`.
        p: where the rate starts, in (0, 1); None for the mean of the layers' logits.

    Returns: the logit of the rate, shape ().

    >>> from bayesdrop import ConcreteDropout, rates
    >>> net = nn.Sequential(ConcreteDropout(nn.Linear(3, 2), 0.1), ConcreteDropout(nn.Linear(2, 1), 0.3))
    >>> logit = share_rates(net, p=0.2)
    >>> rates(net)
    {'0': tensor(0.2000), '1': tensor(0.2000)}
    """
    must_be_module("share_rates", "model", model)
    if p is not None:
        p = real_number("share_rates", "p", p, "in (0, 1)", above=0, below=1)
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, LearnedRateLayer)}
    if not layers:
        hint = "See convert(model, 'concrete')."
        raise ValueError(must("share_rates", "model", "a model with learned rates", model, hint))
    per_unit = [name for name, layer in layers.items() if layer.per != "layer"]
    if per_unit:
        hint = "Make it with per='layer', as convert(model, 'learnable', per='layer')."
        raise ValueError(must("share_rates", "model", "a model with one rate a layer", per_unit[0], hint))
    first = next(iter(layers.values())).logit_p
    others = {layer.logit_p for layer in layers.values()}
    if len({(logit.dtype, logit.device) for logit in others}) > 1:
        raise ValueError(must("share_rates", "model", "of one dtype and on one device", model))
    with torch.no_grad():
        logits = torch.stack([layer.logit_p for layer in layers.values()]).to(torch.float64)
        first.copy_(logits.mean() if p is None else torch.logit(torch.tensor(p, dtype=torch.float64)))
    for layer in layers.values():
        layer.logit_p = first
    return first
