"""The methods: what noise the two hidden layers of the head have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from bayesdrop.layers import BernoulliDropout, ConcreteDropout, GaussianDropout, LearnableDropout, share_rates
from bayesdrop.models import vgg

__all__ = ["METHODS", "Method", "network"]


@dataclass(frozen=True)
class Method:
    """One row of the table."""

    title: str
    printed: tuple[float | None, float | None] = (None, None)  #: accuracy and mean PAvPU, in percent
    layer: type[nn.Module] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    shared: bool = False  #: one rate for both layers


METHODS = {
    "none": Method("no dropout"),
    #: the network of MC dropout, which predicts by one pass with its mean weights
    "regular": Method("regular dropout 0.5", (91.61, 56.81), BernoulliDropout),
    "bernoulli": Method("MC dropout 0.5", (91.57, 52.08), BernoulliDropout),
    "gaussian": Method("Gaussian dropout", (91.16, 52.71), GaussianDropout),
    "concrete": Method("Concrete dropout", (92.72, 59.97), ConcreteDropout, {"masks": "straight-through"}),
    "unit": Method("learnable, every unit", (93.47, 64.52), LearnableDropout),
    "layer": Method("learnable, every layer", (None, None), LearnableDropout, {"per": "layer"}),
    "one": Method("learnable, one rate", (92.11, None), LearnableDropout, {"per": "layer"}, shared=True),
}


def network(warm: Mapping[str, Any], method: Method, p: float) -> nn.Sequential:
    """The network of a method with new weights.

    Args:
        warm: the key of the shared weights.
        method: what noise its head has, if any.
        p: of fixed rates, and where learned ones start.
    """
    shape: dict[str, Any] = {"depth": warm["depth"]} if warm["depth"] else {"channels": warm["channels"]}
    options = {} if method.layer is None else {"layer": method.layer, **method.options}
    net = vgg(
        **shape,
        num_classes=10,
        head=warm["head"],
        input_size=32,
        batch_norm=warm["batch_norm"],
        p=0.0 if method.layer is None else p,
        **options,
    )
    if method.shared:
        share_rates(net, p=p)
    return net
