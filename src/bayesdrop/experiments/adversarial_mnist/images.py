"""Sets of images to attack, and the network that fits each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.data import load_mnist
from bayesdrop.errors import must, require
from bayesdrop.models import lenet, mlp

__all__ = ["DATASETS", "Images", "load_images"]

MakeLayer = Callable[..., nn.Module]


@dataclass(frozen=True, eq=False)
class Images:
    """Images of ten classes, with values from 0 to 1."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    network: Callable[[float, MakeLayer], nn.Module]  #: (drop rate, maker of dropout layers) -> new network


def _mnist() -> Images:
    data = load_mnist()
    x_train, x_test = (part.float().div(255).unsqueeze(1) for part in (data.x_train, data.x_test))
    return Images(
        x_train, data.y_train, x_test, data.y_test, lambda p, layer: lenet(p=p, where="all", layer=layer)
    )


def _digits() -> Images:
    """The 8 x 8 digits of scikit-learn: the first 1,400 to train on, the others to test."""
    datasets: Any = require("sklearn.datasets", extra="sklearn", owner="adversarial-mnist")
    x, y = datasets.load_digits(return_X_y=True)
    images, labels = torch.as_tensor(x, dtype=torch.float32) / 16, torch.as_tensor(y, dtype=torch.int64)
    return Images(
        images[:1400],
        labels[:1400],
        images[1400:],
        labels[1400:],
        lambda p, layer: mlp(64, (100, 100), 10, p=p, input_p=0.0, layer=layer),
    )


#: loaders by name
DATASETS: dict[str, Callable[[], Images]] = {"mnist": _mnist, "digits": _digits}


def load_images(name: str) -> Images:
    """A set by its name.

    Raises:
        DataNotFound: it is not at hand.
    """
    if name not in DATASETS:
        raise ValueError(must("adversarial-mnist", "dataset", f"one of {', '.join(DATASETS)}", name))
    return DATASETS[name]()
