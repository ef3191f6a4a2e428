"""Which networks the figures need; one that serves two figures is trained once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesdrop.experiments.gal2017_mnist.networks import TRAINING
from bayesdrop.experiments.settings import picked

if TYPE_CHECKING:
    from bayesdrop.experiments.gal2017_mnist import Config

__all__ = ["Array", "Keys", "Pieces", "Plan"]

Array = np.ndarray[Any, np.dtype[Any]]
#: the keys of one network, one for every repeat
Keys = list[dict[str, Any]]


class Pieces:
    """Trained networks, found by their keys."""

    def __init__(self, keys: Keys, pieces: list[dict[str, Any]]) -> None:
        self._pieces = {_name(key): piece for key, piece in zip(keys, pieces, strict=True)}

    def __getitem__(self, key: Mapping[str, Any]) -> dict[str, Any]:
        return self._pieces[_name(key)]

    def values(self, keys: Keys, what: str) -> Array:
        """A number, or several, of all repeats. Shape (repeats, ...)."""
        return np.array([self[key][what] for key in keys])

    def scan(self, keys: Mapping[Any, Keys], what: str) -> Array:
        """The same of a whole scan. Shape (settings, repeats, ...)."""
        return np.array([self.values(own, what) for own in keys.values()])


def _name(key: Mapping[str, Any]) -> str:
    return repr(sorted(key.items()))


@dataclass(frozen=True)
class Plan:
    """The keys of all networks, by what they are for."""

    main: Keys
    baseline: Keys
    sizes: dict[int, Keys]
    widths: dict[int, Keys]
    scales: dict[float, Keys]

    @classmethod
    def of(cls, config: Config) -> Plan:
        """What a configuration asks for."""
        full = min(TRAINING, max(config.train_sizes))

        def keys(**settings: Any) -> Keys:
            names = ("width", "length_scale", "batch_size", "p_init", "temperature", "lr", "rate_lr")
            scan = {"steps": config.scan_steps, "draws": config.scan_draws}
            common = {"posterior": "concrete", "num_data": full, **scan, **picked(config, *names)}
            return [{**common, **settings, "seed": config.seed + repeat} for repeat in range(config.repeats)]

        accurate = {"steps": config.steps, "draws": config.num_draws}
        return cls(
            main=keys(**accurate),
            baseline=keys(posterior="bernoulli", **accurate) if config.dropout_baseline else [],
            # With all digits rates take longer to converge: that point is the network of the accuracy.
            sizes={
                size: keys(num_data=size, **(accurate if size == full else {})) for size in config.train_sizes
            },
            widths={width: keys(width=width) for width in config.widths},
            scales={l: keys(length_scale=l, width=config.length_scale_width) for l in config.length_scales},
        )

    @property
    def keys(self) -> Keys:
        """All of them, the longest first."""
        scans = [*self.sizes.values(), *self.widths.values(), *self.scales.values()]
        return [*self.main, *self.baseline, *(key for keys in reversed(scans) for key in keys)]

    @property
    def num_data(self) -> int:
        """Digits that the network of the accuracy is trained on."""
        return int(self.main[0]["num_data"])
