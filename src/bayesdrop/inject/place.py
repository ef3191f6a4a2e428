"""Where `inject` puts noise, and a model with it."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any

from torch import nn

from bayesdrop.layers import BernoulliDropout, DropConnect, GaussianDropout, ScaledDropout, StochasticLayer
from bayesdrop.layers.convert import convert
from bayesdrop.layers.last import last_maps
from bayesdrop.layers.places import DROPOUTS, choose
from bayesdrop.predict.sampler import Output, picked

__all__ = ["KINDS", "Placement", "copied", "noise_paths"]

KINDS: dict[str, type[StochasticLayer]] = {
    "bernoulli": BernoulliDropout,
    "gaussian": GaussianDropout,
    "dropconnect": DropConnect,
}


class Placement:
    """The places of a model that noise is put in front of.

    Args:
        model: without noise; copies of it get noise.
        where: see `inject`.
        x: a few rows for a pass that shows the last maps; None to take the last among the modules.
        output: which tensor of several that the model returns.
    """

    def __init__(self, model: nn.Module, where: Any, x: Any, output: Output | None) -> None:
        self._model, self._where, self._x, self._output = model, where, x, output

    @cached_property
    def _chosen(self) -> dict[nn.Module, list[str]]:
        def last() -> list[nn.Module]:
            return last_maps(self._model, self._x, lambda returned: picked(returned, self._output, "inject"))

        every = isinstance(self._where, str) and self._where == "every layer"
        return choose(self._model, "weights" if every else self._where, last=last, owner="inject")

    @property
    def replaces_dropout(self) -> bool:
        """Whether a dropout of rate 0 is among the places."""
        return any(isinstance(module, DROPOUTS) for module in self._chosen)

    def noisy(self, kind: type[StochasticLayer], p: float, scale: float = 1.0) -> nn.Module:
        """A copy of the model with noise.

        Args:
            kind: of noise.
            p: chance of dropping.
            scale: of the noise; other than 1 it is `ScaledDropout`, whatever the kind.
        """
        paths = [paths[0] for paths in self._chosen.values()]
        # A path of "" would be that of everything.
        places: Any = paths if paths != [""] else lambda path, module: path == ""
        options = {} if scale == 1 else {"scale": scale}
        made = kind if scale == 1 else ScaledDropout
        return convert(copied(self._model), made, where=places, p=p, inplace=True, x=self._x, **options)


def noise_paths(model: nn.Module) -> tuple[str, ...]:
    """The paths of all stochastic layers of a model."""
    return tuple(path for path, part in model.named_modules() if isinstance(part, StochasticLayer))


def copied(model: nn.Module) -> nn.Module:
    """A copy of a model; raise if it cannot be copied."""
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise ValueError(f"inject: `model` cannot be copied: {error}") from error
