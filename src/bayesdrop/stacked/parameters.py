"""Where the parameters of a stack live: one block of memory, seen layer by layer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bayesdrop.stacked.streams import generator

__all__ = ["RATES", "Layout", "Parameters"]

#: how the names of blocks begin that have the learning rate of drop rates
RATES = ("logit", "log_std", "bias_log_std")


@dataclass(frozen=True)
class Layout:
    """The blocks of a network's parameters.

    Attributes:
        widths: inputs, hidden units, outputs.
        rates: for every weight layer, how many logits of a learned rate it has: 0, 1 or K_in.
        noise: how many learned noise levels there are.
        gaussian: for every weight layer, whether its weights and biases have widths; none has if empty.
    """

    widths: tuple[int, ...]
    rates: tuple[int, ...]
    noise: int
    gaussian: tuple[bool, ...] = ()

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Shape of every block for one network, by name."""
        found: dict[str, tuple[int, int]] = {}
        for place, (inputs, outputs) in enumerate(itertools.pairwise(self.widths)):
            found[f"weight{place}"] = (inputs, outputs)
            found[f"bias{place}"] = (1, outputs)
        for place, count in enumerate(self.rates):
            if count:
                found[f"logit{place}"] = (1, count)
        for place, has_widths in enumerate(self.gaussian):
            if has_widths:
                found[f"log_std{place}"] = found[f"weight{place}"]
                found[f"bias_log_std{place}"] = found[f"bias{place}"]
        if self.noise:
            found["log_noise_std"] = (1, self.noise)
        return found


#: layers with fewer outputs have theirs one after another in memory: products are then four times as fast
_NARROW = 16


def _laid_out(part: Tensor, stack: int, shape: tuple[int, int]) -> Tensor:
    """A block (M, a, b) of memory."""
    if shape[0] > 1 and shape[1] < _NARROW:
        return part.view(stack, shape[1], shape[0]).transpose(1, 2)
    return part.view(stack, *shape)


class Parameters:
    """M networks' numbers of one layout: block after block in one vector, each block (M, a, b).

    A step of an optimiser is then a few operations on one vector, however many layers there are.
    """

    def __init__(self, layout: Layout, stack: int, dtype: torch.dtype) -> None:
        self.layout = layout
        sizes = {name: stack * math.prod(shape) for name, shape in layout.shapes.items()}
        self.vector = torch.zeros(sum(sizes.values()), dtype=dtype)
        parts = torch.split(self.vector, list(sizes.values()))
        self.blocks: dict[str, Tensor] = {
            name: _laid_out(part, stack, shape)
            for part, (name, shape) in zip(parts, layout.shapes.items(), strict=True)
        }

    def __getitem__(self, name: str) -> Tensor:
        return self.blocks[name]

    def get(self, name: str) -> Tensor | None:
        """A block, or None if the layout has none of that name."""
        return self.blocks.get(name)

    def start(self, seeds: Sequence[int], kinds: Sequence[str] | None = None) -> None:
        """First weights and biases, by each network's seed.

        Args:
            seeds: of the networks.
            kinds: "linear", as `nn.Linear` has them: U(-1, 1) / sqrt(K_in), biases too; or "glorot":
                U(-1, 1) sqrt(6 / (K_in + K_out)) and biases of 0. All "linear" if None.
        """
        made = [generator(seed, "init") for seed in seeds]
        kinds = ["linear"] * len(made) if kinds is None else kinds
        for place, (inputs, outputs) in enumerate(itertools.pairwise(self.layout.widths)):
            for part in ("weight", "bias"):
                block = self.blocks[f"{part}{place}"]
                for network, source, kind in zip(block, made, kinds, strict=True):
                    bound = 1 / math.sqrt(inputs)
                    if kind == "glorot":
                        bound = math.sqrt(6 / (inputs + outputs)) if part == "weight" else 0.0
                    values = source.uniform(-bound, bound, tuple(network.shape))
                    network.copy_(torch.from_numpy(values))

    def kept(self, places: Tensor) -> Parameters:
        """A copy of some of the networks."""
        copy = Parameters(self.layout, len(places), self.vector.dtype)
        for name, block in self.blocks.items():
            copy.blocks[name].copy_(block[places])
        return copy

    def of_network(self, place: int) -> dict[str, Tensor]:
        """A copy of one network's blocks."""
        return {name: block[place].clone() for name, block in self.blocks.items()}

    def put(self, place: int, blocks: dict[str, Tensor]) -> None:
        """Overwrite one network's blocks."""
        for name, block in blocks.items():
            self.blocks[name][place] = block

    def norms(self) -> Tensor:
        """(M,) Euclidean norm of each network's numbers."""
        squares = [block.flatten(1).square().sum(1) for block in self.blocks.values()]
        return torch.stack(squares).sum(0).sqrt()

    def finite(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """(M,) whether all of a network's numbers are finite."""
        return np.asarray(torch.isfinite(self.norms()))
