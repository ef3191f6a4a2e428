"""Which labels to ask for: at random, by mutual information, or by the errors that they would prevent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from bayesdrop.experiments.active_learning import Asking, Task, learn
from bayesdrop.experiments.injected.images import load_images, make_network

__all__ = ["LABEL_METHODS", "label_piece"]

LABEL_METHODS = ("random", "bald", "zero_one")


def label_piece(key: Mapping[str, Any]) -> dict[str, Any]:
    """One run of active learning: numbers of labels, and the accuracy with each."""
    data = load_images(key["images"])
    # No accuracy reaches a target of 1.1: every run goes on to `most`.
    asking = Asking(
        start=20, batch=20, most=key["most"], target=1.1, pool=500, num_draws=min(20, key["num_draws"]),
        steps=80, num_test=min(key["num_test"], len(data.y_test)),
    )  # fmt: skip
    side = data.x_test.shape[-1]

    def network() -> nn.Sequential:
        *body, last = make_network(side)
        return nn.Sequential(*body, nn.Dropout(0.5), last)

    task = Task(data.x_train, data.y_train, data.x_test, data.y_test, _standardised, network)
    return learn(task, asking, key["method"], key["repeat"])


def _standardised(images: Tensor) -> Tensor:
    """Images with values from 0 to 1, as inputs with about mean 0 and variance 1."""
    return (images - 0.13) / 0.31
