"""How large the networks, the frames and the runs are: settings that the experiments on CamVid share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["MINUTES", "PUBLISHED", "SECONDS", "Scale"]


@dataclass(frozen=True)
class Scale:
    """What the shared weights depend on, and how long methods are trained and with how many draws tested."""

    seeds: int = 1
    depth: Literal[56, 67, 103] | None = None  #: of a published FC-DenseNet; None for `blocks`
    blocks: tuple[int, ...] = (2, 2, 4, 6)  #: layers of each level
    middle: int = 8
    growth: int = 12
    first: int = 24
    shrink: int = 4  #: squares of so many pixels a side become one: frames have 90 x 120
    crop: tuple[int, int] | None = (64, 96)  #: of the shared training; methods see whole frames
    warm_epochs: int = 100  #: without dropout, shared by the methods of a seed
    epochs: int = 12  #: of each method
    batch_size: int = 4
    solver: Literal["adam", "rmsprop"] = "adam"  #: with one-cycle rates; or with rates falling 0.5 % an epoch
    warm_lr: float = 3e-3
    lr: float = 1e-3
    rate_lr: float = 2e-2
    num_train: int = 367
    num_validation: int = 101
    num_test: int = 233
    num_draws: int = 20
    seed: int = 0

    @property
    def run_seeds(self) -> list[int]:
        """The seeds of the shared weights; every method is run once from each."""
        return [self.seed + number for number in range(self.seeds)]

    def warm_key(self, seed: int) -> dict[str, Any]:
        """The key of the shared weights of a seed."""
        names = (
            "depth", "blocks", "middle", "growth", "first", "shrink", "crop", "warm_epochs", "batch_size",
            "solver", "warm_lr", "num_train",
        )  # fmt: skip
        return {"seed": seed, **{name: getattr(self, name) for name in names}}

    def method_key(self, seed: int) -> dict[str, Any]:
        """The key of a method that is trained from them, without the method's own settings."""
        names = ("epochs", "lr", "rate_lr", "num_validation", "num_test", "num_draws")
        return {"warm": self.warm_key(seed), **{name: getattr(self, name) for name in names}}


#: what differs in runs of seconds, of minutes, and as published, which is days on a CPU
SECONDS: Mapping[str, Any] = {
    "blocks": (1, 1), "middle": 2, "growth": 4, "first": 4, "shrink": 12, "crop": (16, 24), "warm_epochs": 1,
    "epochs": 1, "num_train": 8, "num_validation": 3, "num_test": 3, "num_draws": 3,
}  # fmt: skip
MINUTES: Mapping[str, Any] = {
    "blocks": (1, 2, 4), "middle": 5, "first": 16, "warm_epochs": 10, "epochs": 2, "num_train": 150,
    "num_validation": 20, "num_test": 40, "num_draws": 5,
}  # fmt: skip
PUBLISHED: Mapping[str, Any] = {
    "depth": 103, "first": 48, "shrink": 1, "crop": (224, 224), "warm_epochs": 750, "epochs": 100,
    "batch_size": 3, "solver": "rmsprop", "warm_lr": 1e-3, "lr": 1e-4, "rate_lr": 1e-2, "num_draws": 50,
}  # fmt: skip
