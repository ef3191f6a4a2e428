"""The networks: LeNet as it is, with dropout in all layers, and with last layers of several kinds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from bayesdrop.data.mnist import MNIST
from bayesdrop.experiments.digits import Recipe, as_inputs, trained_lenet
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.fit import fit
from bayesdrop.layers import ConcreteDropout, DropConnect, GaussianDropout
from bayesdrop.likelihoods import Categorical
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import Prediction, predict

__all__ = ["VARIANTS", "Variants"]

#: last layers by name; None for networks that are trained as a whole
VARIANTS: dict[str, Callable[[nn.Linear], nn.Module] | None] = {
    "LeNet": None,
    "MC dropout": None,
    "MC dropout, all layers": None,
    "Gaussian": lambda layer: GaussianDropout(layer, p=0.5),
    "DropConnect": lambda layer: DropConnect(layer, p=0.5),
    "concrete": lambda layer: ConcreteDropout(layer, p_init=0.1),
}


class Variants:
    """Predictions of every network; networks and features are made when they are first needed."""

    def __init__(self, config: Any, data: MNIST, cache: PieceCache, progress: bool) -> None:
        self.config = config
        self.data = data
        self.cache = cache
        self.progress = progress
        self._heads: dict[str, nn.Module] = {}

    def predict(self, name: str, x: Tensor) -> Prediction:
        """The prediction of a network for images."""
        net = self._network(name)
        if name == "LeNet":
            return one_pass(net, x, Categorical(), batch_size=500)
        return predict(
            net, x, num_draws=self.config.num_draws, seed=self.config.seed, likelihood=Categorical(),
            keep_draws=True, batch_size=500,
        )  # fmt: skip

    @cached_property
    def _lenet(self) -> nn.Sequential:
        return trained_lenet(self._recipe, self.cache, progress=self.progress)

    @property
    def _recipe(self) -> Recipe:
        return Recipe(epochs=self.config.epochs, num_train=self.config.num_train, seed=self.config.seed)

    @cached_property
    def _features(self) -> Tensor:
        """(N, 500) what goes into the last layer's dropout, for the training images."""
        x = as_inputs(self.data.x_train[: self.config.num_train])
        return one_pass(self._lenet[:-2], x, batch_size=500).mean

    def _network(self, name: str) -> nn.Module:
        if name in ("LeNet", "MC dropout"):
            return self._lenet
        if name not in self._heads:
            self._heads[name] = self._made(name)
        return self._heads[name]

    def _made(self, name: str) -> nn.Module:
        make = VARIANTS[name]
        if make is None:
            everywhere = Recipe(**{**self._recipe.__dict__, "where": "all"})
            return trained_lenet(everywhere, self.cache, progress=self.progress)
        last = nn.Linear(500, 10)
        last.load_state_dict(self._lenet[-1].state_dict())
        head = make(last)
        labels = self.data.y_train[: self.config.num_train]
        objective = NegativeELBO(Categorical(), num_data=len(labels))
        fit(
            head, (self._features, labels), objective, epochs=self.config.head_epochs, batch_size=256,
            seed=self.config.seed, progress=False,
        )  # fmt: skip
        return nn.Sequential(*list(self._lenet)[:-2], head).eval()
