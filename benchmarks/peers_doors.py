"""Doors to MC dropout: one call, `draws(x)` of shape (T, N, D), for each library that is compared.

Runs in the peers' environment. Each peer is used as its documentation says, on the plain network.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version

import torch
from torch import Tensor, nn

import bayesdrop as bd
from peers import _EmptyModules

__all__ = ["DOORS", "Draws", "let_peers_in", "versions"]

Draws = Callable[[Tensor], Tensor]


def let_peers_in() -> None:
    """Their imports of torchvision and the like, for data sets and pictures, find empty modules."""
    # Before the empty modules are there: these look for torchvision, and do without it.
    import lightning  # noqa: F401
    import torchmetrics  # noqa: F401

    sys.meta_path.append(_EmptyModules())


def bayesdrop(net: nn.Module, num_draws: int, seed: int) -> Draws:
    """`predict(model, x, num_draws=T, seed=s)`."""
    return lambda x: bd.predict(net, x, num_draws=num_draws, seed=seed, keep_draws=True).draws


def torch_uncertainty(net: nn.Module, num_draws: int, seed: int) -> Draws:
    """`mc_dropout(model, T).eval()(x)`."""
    from torch_uncertainty.methods import mc_dropout

    ensemble = mc_dropout(net, num_estimators=num_draws).eval()
    torch.manual_seed(seed)

    def draws(x: Tensor) -> Tensor:
        with torch.no_grad():
            outputs: Tensor = ensemble(x)
        return outputs.unflatten(0, (num_draws, len(x)))

    return draws


def baal(net: nn.Module, num_draws: int, seed: int, *, consistent: bool = False) -> Draws:
    """`ModelWrapper(MCDropoutModule(model)).predict_on_batch(x, iterations=T)`."""
    from baal.bayesian.consistent_dropout import MCConsistentDropoutModule
    from baal.bayesian.dropout import MCDropoutModule
    from baal.modelwrapper import ModelWrapper, TrainingArgs

    module = MCConsistentDropoutModule(net) if consistent else MCDropoutModule(net)
    wrapper = ModelWrapper(module, TrainingArgs(use_cuda=False))
    wrapper.eval()
    torch.manual_seed(seed)
    return lambda x: wrapper.predict_on_batch(x, iterations=num_draws).movedim(-1, 0)


def baal_consistent(net: nn.Module, num_draws: int, seed: int) -> Draws:
    """The same with `MCConsistentDropoutModule`, whose masks stay from batch to batch."""
    return baal(net, num_draws, seed, consistent=True)


def lightning_uq_box(net: nn.Module, num_draws: int, seed: int) -> Draws:
    """`MCDropoutClassification(model, T, loss).predict_step(x)`."""
    from lightning_uq_box.uq_methods import MCDropoutClassification

    module = MCDropoutClassification(net, num_draws, nn.CrossEntropyLoss())
    module.eval()
    torch.manual_seed(seed)

    def draws(x: Tensor) -> Tensor:
        logits: Tensor = module.predict_step(x)["logits"]
        return logits.movedim(-1, 0)

    return draws


DOORS: dict[str, Callable[[nn.Module, int, int], Draws]] = {
    "bayesdrop": bayesdrop,
    "torch-uncertainty": torch_uncertainty,
    "baal": baal,
    "baal, consistent": baal_consistent,
    "lightning-uq-box": lightning_uq_box,
}


def versions() -> dict[str, str]:
    """Of what is compared."""
    return {
        name: version(name)
        for name in ("torch", "torch-uncertainty", "baal", "lightning-uq-box", "concretedropout")
    }
