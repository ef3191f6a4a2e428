"""The parameters of a stack: one vector, seen as a tensor for each kind of number, and Adam's steps on it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.stacked.settings import Settings
from bayesdrop.stacked.streams import generator

__all__ = ["Adam", "ParameterLayout", "Parameters", "learning_rates"]

#: what a layer may consist of; from the third on, these have the learning rate of drop rates
_PARTS = ("weight", "bias", "logit", "log_std", "bias_log_std")
#: weights of layers with fewer outputs are stored transposed: their products are then four times as fast
_NARROW = 16
#: "one-cycle": the share of steps that rise, the first rate as a share of lr, the last as one of the first
_WARM, _START, _END = 0.3, 1 / 25, 1e-4


class ParameterLayout:
    """Names and shapes of a network's parameters.

    Args:
        settings: of the network.
        inputs: K.
        outputs: of the network.
        targets: D, how many noise levels there are where they are learned.

    Attributes:
        widths: inputs, hidden units, outputs.
        shapes: by name: "weight0" (K_in, K_out) and "bias0" (1, K_out) of the first layer, and so on;
            "logit0" (1, 1 or K_in) of a learned rate, "log_std0" and "bias_log_std0" of widths,
            "log_noise_std" (1, D).
    """

    def __init__(self, settings: Settings, inputs: int, outputs: int, targets: int) -> None:
        self.widths = (inputs, *settings.hidden, outputs)
        self.shapes: dict[str, tuple[int, int]] = {}
        pairs = list(itertools.pairwise(self.widths))
        for place, (before, after) in enumerate(pairs):
            self.shapes |= {f"weight{place}": (before, after), f"bias{place}": (1, after)}
        for place, (rate, (before, after)) in enumerate(zip(settings.rates, pairs, strict=True)):
            if rate > 0 and settings.learns_rates:
                self.shapes[f"logit{place}"] = (1, before if settings.per_unit else 1)
            if rate > 0 and settings.method == "meanfield":
                self.shapes |= {f"log_std{place}": (before, after), f"bias_log_std{place}": (1, after)}
        if settings.noise == "learned":
            self.shapes["log_noise_std"] = (1, targets)


def _laid_out(part: Tensor, stack: int, shape: tuple[int, int]) -> Tensor:
    """A stretch of the vector as a tensor (M, a, b)."""
    if shape[0] > 1 and shape[1] < _NARROW:
        return part.view(stack, shape[1], shape[0]).transpose(1, 2)
    return part.view(stack, *shape)


class Parameters:
    """The parameters of M networks of one layout: tensors (M, a, b) by name, which are views of one vector.

    A step of an optimiser is then a few operations on that vector, however many layers there are.
    """

    def __init__(self, layout: ParameterLayout, stack: int, dtype: torch.dtype) -> None:
        self.layout = layout
        sizes = [stack * math.prod(shape) for shape in layout.shapes.values()]
        self.vector = torch.zeros(sum(sizes), dtype=dtype)
        self.tensors: dict[str, Tensor] = {
            name: _laid_out(part, stack, shape)
            for part, (name, shape) in zip(
                torch.split(self.vector, sizes), layout.shapes.items(), strict=True
            )
        }

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def get(self, name: str) -> Tensor | None:
        """A tensor, or None if the layout has none of that name."""
        return self.tensors.get(name)

    def draw_first_weights(self, seeds: Sequence[int], kinds: Sequence[str] | None = None) -> None:
        """Draw first weights and biases, by each network's seed.

        Args:
            seeds: of the networks.
            kinds: "linear", as `nn.Linear` has them: U(-1, 1) / sqrt(K_in), biases too; or "glorot":
                U(-1, 1) sqrt(6 / (K_in + K_out)) and biases of 0. All "linear" if None.
        """
        made = [generator(seed, "init") for seed in seeds]
        kinds = ["linear"] * len(made) if kinds is None else kinds
        for place, (inputs, outputs) in enumerate(itertools.pairwise(self.layout.widths)):
            for part in ("weight", "bias"):
                for network, source, kind in zip(self.tensors[f"{part}{place}"], made, kinds, strict=True):
                    bound = 1 / math.sqrt(inputs)
                    if kind == "glorot":
                        bound = math.sqrt(6 / (inputs + outputs)) if part == "weight" else 0.0
                    network.copy_(torch.from_numpy(source.uniform(-bound, bound, tuple(network.shape))))

    def of_layer(self, place: int) -> dict[str, Tensor]:
        """The tensors of a weight layer, as "weight", "bias", and "logit", "log_std", ... if it has them."""
        names = {part: f"{part}{place}" for part in _PARTS}
        return {part: self.tensors[name] for part, name in names.items() if name in self.tensors}

    def of_network(self, place: int) -> dict[str, Tensor]:
        """A copy of one network's tensors, (a, b) by name."""
        return {name: tensor[place].clone() for name, tensor in self.tensors.items()}

    def kept(self, places: Tensor) -> Parameters:
        """A copy of some of the networks."""
        copy = Parameters(self.layout, len(places), self.vector.dtype)
        for name, tensor in self.tensors.items():
            copy.tensors[name].copy_(tensor[places])
        return copy

    def with_inputs(self, settings: Settings, used: Tensor) -> Parameters:
        """Themselves, or a copy with the weights of some inputs alone.

        Args:
            settings: of the networks, whose inputs have no noise.
            used: (K',) places of the inputs to keep, in order.
        """
        widths = self.layout.widths
        if len(used) == widths[0]:
            return self
        targets = self.layout.shapes.get("log_noise_std", (1, 1))[1]
        copy = Parameters(
            ParameterLayout(settings, len(used), widths[-1], targets),
            self.tensors["weight0"].shape[0],
            self.vector.dtype,
        )
        for name, tensor in self.tensors.items():
            copy.tensors[name].copy_(tensor[:, used] if name == "weight0" else tensor)
        return copy

    def norms(self) -> Tensor:
        """(M,) Euclidean norm of each network's parameters."""
        squares = [tensor.flatten(1).square().sum(1) for tensor in self.tensors.values()]
        return torch.stack(squares).sum(0).sqrt()


def learning_rates(settings: Settings, first: int, count: int, total: int) -> NDArray[np.float64]:
    """(count,) learning rates of steps first, ..., first + count - 1 of `total`, counted from 0.

    "one-cycle" rises from lr / 25 over the first 30 % of the steps and falls to lr / 250,000, both as
    cosines.
    """
    if settings.schedule == "constant":
        return np.full(count, settings.lr)
    steps = np.arange(first, first + count)
    top = max(_WARM * total - 1, 0.0)
    rising = np.clip(steps / top, 0, 1) if top > 0 else np.ones(count)
    falling = np.clip((steps - top) / max(total - 1 - top, 1e-9), 0, 1)
    up = 1 + (_START - 1) * (1 + np.cos(math.pi * rising)) / 2
    low = _START * _END
    down = low + (1 - low) * (1 + np.cos(math.pi * falling)) / 2
    value: NDArray[np.float64] = settings.lr * np.where(steps < top, up, down)
    return value


class Adam:
    """Adam for all networks of a stack: each has its own learning rate, all have taken as many steps.

    Args:
        settings: of the networks.
        parameters: what is trained.
    """

    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def __init__(self, settings: Sequence[Settings], parameters: Parameters) -> None:
        self._settings, self._parameters = list(settings), parameters
        dtype = parameters.vector.dtype
        self._mean, self._square, self._update = (
            Parameters(parameters.layout, len(settings), dtype) for _ in range(3)
        )
        self._steps = 0
        ratios = [10.0 if one.rate_lr is None else one.rate_lr / one.lr for one in settings]
        self._rate_ratio = torch.tensor(ratios, dtype=dtype).view(-1, 1, 1)
        limits = [math.inf if one.clip_norm is None else one.clip_norm for one in settings]
        self._limit = torch.tensor(limits, dtype=dtype) if min(limits) < math.inf else None
        plain = not any(name.startswith(_PARTS[2:]) for name in parameters.tensors)
        self._is_fused = plain and parameters.vector.device.type == "cpu"

    def step(self, grads: Parameters, lr: Tensor | float) -> None:
        """One step of all networks.

        Args:
            grads: gradients; overwritten where they are clipped.
            lr: learning rates, (M,), or one number for all networks: a step is then one pass over memory.
        """
        if self._limit is not None:
            factor = (self._limit / (grads.norms() + 1e-12)).clamp_max(1).view(-1, 1, 1)
            for tensor in grads.tensors.values():
                tensor.mul_(factor)
        self._steps += 1
        if self._is_fused and isinstance(lr, float):
            self._fused_step(grads, lr)
            return
        mean, square, update = self._mean.vector, self._square.vector, self._update.vector
        mean.lerp_(grads.vector, 1 - self.beta1)
        square.mul_(self.beta2).addcmul_(grads.vector, grads.vector, value=1 - self.beta2)
        torch.sqrt(square, out=update)
        correction = math.sqrt(1 - self.beta2**self._steps)
        update.add_(self.epsilon * correction)
        torch.div(mean, update, out=update)
        rates = lr if isinstance(lr, Tensor) else torch.tensor(lr, dtype=mean.dtype)
        size = -rates.view(-1, 1, 1) * (correction / (1 - self.beta1**self._steps))
        for name, tensor in self._parameters.tensors.items():
            factor = size * self._rate_ratio if name.startswith(_PARTS[2:]) else size
            tensor.addcmul_(self._update[name], factor)

    def _fused_step(self, grads: Parameters, lr: float) -> None:
        """The same step in one pass over memory, where all parameters have one learning rate."""
        torch._fused_adam_(
            [self._parameters.vector],
            [grads.vector],
            [self._mean.vector],
            [self._square.vector],
            [],
            [torch.tensor(float(self._steps))],
            lr=lr,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=0.0,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
        )

    def kept(self, places: Tensor, parameters: Parameters) -> Adam:
        """Adam for some of the networks, with their moments.

        Args:
            places: of the networks to keep.
            parameters: of these networks.
        """
        copy = Adam([self._settings[place] for place in places.tolist()], parameters)
        copy._mean, copy._square = self._mean.kept(places), self._square.kept(places)
        copy._steps = self._steps
        return copy
