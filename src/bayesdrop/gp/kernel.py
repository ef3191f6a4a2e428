"""NetworkKernel: the covariance function of an infinitely wide network, and of one with K units."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesdrop.errors import (
    LARGEST_WIDTH,
    must,
    must_be_finite,
    must_be_tensor,
    real_numbers,
    whole_number,
    whole_seed,
)
from bayesdrop.gp.moments import Nonlinearity, activation, second_moment

__all__ = ["FiniteKernel", "NetworkKernel"]

#: how many weights are drawn together when functions are sampled
_TOGETHER = 2**22


@dataclass(frozen=True, eq=False)
class NetworkKernel:
    """Covariance of the outputs of a random network with infinitely many hidden units.

        k(x, y) = v E[s(w.x + b) s(w.y + b)],    w ~ N(0, I / l^2),  b ~ N(0, bias_std^2)

    For "cosine" the bias is uniform on the circle, whatever its `bias_std`, and k is the squared
    exponential v exp(-|x - y|^2 / (2 l^2)). With `depth` above 1 the outputs of one layer, of which v E[s^2]
    is the variance, are inputs of the next.

    Args:
        nonlinearity: "relu", "step", "erf", "cosine", "tanh", or a function of a tensor (see
            `second_moment`).
        length_scale: l, one number or one per input.
        bias_std: standard deviation of the hidden units' biases: one number, or one per hidden layer.
        variance: v, the total variance of the weights after a hidden layer: K / l^2 for K units; one number,
            or one per hidden layer.
        depth: number of hidden layers.

    Reference: Gal & Ghahramani (2015), section 3.1; (2016), Eq. 2 (several layers).

    >>> kernel = NetworkKernel("relu", bias_std=0.0)
    >>> kernel(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """

    nonlinearity: Nonlinearity
    length_scale: float | Tensor = 1.0
    bias_std: float | Tensor | Sequence[float] = 1.0
    variance: float | Tensor | Sequence[float] = 1.0
    depth: int = 1

    def __post_init__(self) -> None:
        activation(self.nonlinearity)
        whole_number("NetworkKernel", "depth", self.depth, at_least=1)
        for name in ("length_scale", "bias_std", "variance"):
            value = real_numbers("NetworkKernel", name, getattr(self, name), "a number")
            # Squares of such numbers, and sums and products of a few, fit into doubles.
            good = ((value >= 1e-30) | ((value == 0) & (name == "bias_std"))) & (value <= 1e30)
            if value.dim() > 1 or not value.numel() or not bool(good.all()):
                least = "a number of at least 0" if name == "bias_std" else "above 0"
                want = f"{least}, and from 1e-30 to 1e30"
                raise ValueError(must("NetworkKernel", name, want, getattr(self, name)))
            if name != "length_scale" and value.dim() == 1 and value.numel() != self.depth:
                want = f"one number, or one per hidden layer ({self.depth})"
                raise ValueError(must("NetworkKernel", name, want, f"{value.numel()} of them"))

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Covariances of all pairs of rows. Shapes (..., N, Q), (..., M, Q) -> (..., N, M)."""
        first = self._scaled(x)
        second = first if y is None else self._scaled(y, x)
        xx = first.square().sum(-1).unsqueeze(-1)
        yy = second.square().sum(-1).unsqueeze(-2)
        xy = first @ second.transpose(-1, -2)
        for layer in range(self.depth):
            bias = self._of_layer(self.bias_std, layer).square()
            xx, yy, xy = xx + bias, yy + bias, xy + bias
            xx, yy, xy = (
                self._moment(layer, xx, xx, xx),
                self._moment(layer, yy, yy, yy),
                self._moment(layer, xx, yy, xy),
            )
        return xy.to(x.dtype)

    def diagonal(self, x: Tensor) -> Tensor:
        """k(x, x) of every row. Shape (..., N, Q) -> (..., N)."""
        xx = self._scaled(x).square().sum(-1)
        for layer in range(self.depth):
            xx = xx + self._of_layer(self.bias_std, layer).square()
            xx = self._moment(layer, xx, xx, xx)
        return xx.to(x.dtype)

    def features(self, x: Tensor, *, num_units: int | Sequence[int], seed: int = 0) -> Tensor:
        """Outputs of the last K hidden units of a random network.

            phi(x) = sqrt(v / K) s(x W + b)

        With one hidden layer, phi(x).phi(y) has the mean k(x, y). With several, phi_i is the input of layer i
        + 1, and this holds in the limit where all layers but the last are wide; given the layers before, the
        mean over the last is the covariance of one layer at phi_{L-1}.

        Args:
            x: (..., N, Q).
            num_units: K of every hidden layer: one number, or one per layer.
            seed: of the weights; the same units for any x.

        Returns: (..., N, K_L).
        Reference: Gal & Ghahramani (2015), section 3.1; (2016), Eq. 2.
        """
        owner = "NetworkKernel.features"
        widths = self._widths(owner, num_units)
        generator = torch.Generator().manual_seed(whole_seed(owner, seed))
        return self._hidden(self._scaled(x), widths, generator).to(x.dtype)

    def sample(
        self,
        x: Tensor,
        num_functions: int,
        *,
        num_units: int | Sequence[int],
        num_outputs: int = 1,
        seed: int = 0,
    ) -> Tensor:
        """Functions of the deep Gaussian process whose layers have K units: a network's prior.

            f(x) = sqrt(v_L / K_L) s( ... sqrt(v_1 / K_1) s(x W_1 / l + b_1) W_2 + b_2 ... ) W_{L+1}

        with standard normal weights. A network without the factors sqrt(v_i / K_i), whose weights have the
        prior N(0, 1 / l_{i+1}^2) with l_{i+1}^2 = K_i / v_i, is the same in distribution.

        Args:
            x: (N, Q).
            num_functions: S.
            num_units: K of every hidden layer: one number, or one per layer.
            num_outputs: D; outputs share all hidden layers.
            seed: of the functions.

        Returns: (S, N, D).
        Reference: Gal & Ghahramani (2016), Eq. 2.
        """
        owner = "NetworkKernel.sample"
        num_functions = whole_number(owner, "num_functions", num_functions, at_least=1)
        num_outputs = whole_number(owner, "num_outputs", num_outputs, at_least=1, at_most=LARGEST_WIDTH)
        widths = self._widths(owner, num_units)
        generator = torch.Generator().manual_seed(whole_seed(owner, seed))
        scaled = self._scaled(x)
        if x.dim() != 2:
            raise ValueError(must(owner, "x", "a tensor (N, Q)", tuple(x.shape)))
        sizes = [scaled.shape[-1], *widths, num_outputs]
        weights = sum(a * b for a, b in itertools.pairwise(sizes))
        at_once = max(1, _TOGETHER // max(weights, x.shape[0] * max(sizes)))
        parts = []
        for start in range(0, num_functions, at_once):
            count = min(at_once, num_functions - start)
            hidden = self._hidden(scaled, widths, generator, networks=(count,))
            size = (count, widths[-1], num_outputs)
            last = torch.randn(size, generator=generator, dtype=torch.float64).to(x.device)
            parts.append((hidden @ last).to(x.dtype))
        return torch.cat(parts)

    def approximate(
        self, x: Tensor, y: Tensor | None = None, *, num_units: int | Sequence[int], seed: int = 0
    ) -> Tensor:
        """The Monte Carlo estimate of the covariance with K units; its error falls as K^-1/2.

            K^(x, y) = (v / K) sum_k s(w_k.x + b_k) s(w_k.y + b_k)

        Args:
            x: (..., N, Q).
            y: (..., M, Q); x if None.
            num_units: K of every hidden layer: one number, or one per layer.
            seed: of the units.

        Returns: (..., N, M), positive semidefinite for x = y, of rank at most K_L.
        """
        first = self.features(x, num_units=num_units, seed=seed)
        second = first if y is None else self.features(y, num_units=num_units, seed=seed)
        return first @ second.transpose(-1, -2)

    def given(self, *, num_units: int | Sequence[int], seed: int = 0) -> FiniteKernel:
        """The covariance of the outputs given a draw of all hidden layers of K units.

        Args:
            num_units: K of every hidden layer: one number, or one per layer.
            seed: of the draw.
        """
        return FiniteKernel(self, num_units, seed)

    def _hidden(
        self,
        scaled: Tensor,
        widths: Sequence[int],
        generator: torch.Generator,
        networks: tuple[int, ...] = (),
    ) -> Tensor:
        """phi_L of inputs (..., N, Q) in units of the length scale; of several networks (S, N, K_L)."""
        function = activation(self.nonlinearity)
        hidden = scaled
        for layer, units in enumerate(widths):
            size = (*networks, hidden.shape[-1], units)
            weight = torch.randn(size, generator=generator, dtype=torch.float64).to(scaled.device)
            biases = self._biases(layer, (*networks, 1, units), generator).to(scaled.device)
            hidden = function(hidden @ weight + biases)
            hidden = hidden * (self._of_layer(self.variance, layer) / units).sqrt()
        return hidden

    def _moment(self, layer: int, xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
        return self._of_layer(self.variance, layer) * second_moment(self.nonlinearity, xx, yy, xy)

    def _biases(self, layer: int, size: tuple[int, ...], generator: torch.Generator) -> Tensor:
        if self.nonlinearity == "cosine":
            return 2 * math.pi * torch.rand(size, generator=generator, dtype=torch.float64)
        normal = torch.randn(size, generator=generator, dtype=torch.float64)
        return normal * self._of_layer(self.bias_std, layer)

    @staticmethod
    def _of_layer(value: float | Tensor | Sequence[float], layer: int) -> Tensor:
        numbers = torch.as_tensor(value, dtype=torch.float64)
        return numbers if numbers.dim() == 0 else numbers[layer]

    def _widths(self, owner: str, num_units: Any) -> list[int]:
        if isinstance(num_units, Sequence) and not isinstance(num_units, str):
            if len(num_units) != self.depth:
                want = f"one number, or one per hidden layer ({self.depth})"
                raise ValueError(must(owner, "num_units", want, num_units))
            given = list(num_units)
        else:
            given = [num_units] * self.depth
        return [whole_number(owner, "num_units", units, at_least=1, at_most=LARGEST_WIDTH) for units in given]

    def _scaled(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """Inputs in units of the length scale, in double precision: small angles lose half of the digits."""
        name = "x" if other is None else "y"
        must_be_tensor("NetworkKernel", name, x, floating=True)
        if x.dim() < 2:
            raise ValueError(must("NetworkKernel", name, "a floating tensor (..., N, Q)", x))
        must_be_finite("NetworkKernel", name, x)
        if other is not None and other.shape[-1] != x.shape[-1]:
            raise ValueError(must("NetworkKernel", "y", f"of {other.shape[-1]} inputs", tuple(x.shape)))
        scale = torch.as_tensor(self.length_scale, dtype=torch.float64)
        if scale.dim() == 1 and scale.shape[0] != x.shape[-1]:
            got = f"{scale.shape[0]} of them"
            raise ValueError(must("NetworkKernel", "length_scale", f"one per input ({x.shape[-1]})", got))
        return x.to(torch.float64) / scale.to(x.device)


@dataclass(frozen=True, eq=False)
class FiniteKernel:
    """Covariance of the outputs given a draw of the hidden layers: phi(x).phi(y), of rank at most K_L.

    A process with it is Bayesian linear regression on the units of the last hidden layer, whatever the depth.
    Over draws of the hidden layers its prior is the deep Gaussian process of `NetworkKernel.sample`.

    Args:
        kernel: the network.
        num_units: K of every hidden layer: one number, or one per layer.
        seed: of the draw.

    >>> NetworkKernel("relu", depth=2).given(num_units=(5, 3))(torch.zeros(2, 4)).shape
    torch.Size([2, 2])
    """

    kernel: NetworkKernel
    num_units: int | Sequence[int]
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, NetworkKernel):
            raise TypeError(must("FiniteKernel", "kernel", "a NetworkKernel", self.kernel))
        # Wrong widths and seeds raise here, and not only when the kernel is called.
        self.kernel._widths("FiniteKernel", self.num_units)
        whole_seed("FiniteKernel", self.seed)

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Covariances of all pairs of rows. Shapes (..., N, Q), (..., M, Q) -> (..., N, M)."""
        return self.kernel.approximate(x, y, num_units=self.num_units, seed=self.seed)
