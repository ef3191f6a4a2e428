"""NetworkKernel: the covariance function of an infinitely wide network, and of one with K units."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_finite, must_be_tensor, real_numbers, whole_number, whole_seed
from bayesdrop.gp.moments import Nonlinearity, activation, second_moment

__all__ = ["NetworkKernel"]


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
        bias_std: standard deviation of the hidden units' biases.
        variance: v, the variance that the weights after a hidden layer sum to: K / l^2 for K units.
        depth: number of hidden layers.

    Reference: Gal & Ghahramani (2015), section 3.1.

    >>> kernel = NetworkKernel("relu", bias_std=0.0)
    >>> kernel(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """

    nonlinearity: Nonlinearity
    length_scale: float | Tensor = 1.0
    bias_std: float | Tensor = 1.0
    variance: float | Tensor = 1.0
    depth: int = 1

    def __post_init__(self) -> None:
        activation(self.nonlinearity)
        for name in ("length_scale", "bias_std", "variance"):
            value = real_numbers("NetworkKernel", name, getattr(self, name), "a number")
            # Squares of such numbers, and sums and products of a few, are doubles.
            good = ((value >= 1e-30) | ((value == 0) & (name == "bias_std"))) & (value <= 1e30)
            most = 1 if name == "length_scale" else 0
            if value.dim() > most or not value.numel() or not bool(good.all()):
                least = "a number of at least 0" if name == "bias_std" else "above 0"
                want = f"{least}, and from 1e-30 to 1e30"
                raise ValueError(must("NetworkKernel", name, want, getattr(self, name)))
        whole_number("NetworkKernel", "depth", self.depth, at_least=1)

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Covariances of all pairs of rows. Shapes (..., N, Q), (..., M, Q) -> (..., N, M)."""
        first = self._scaled(x)
        second = first if y is None else self._scaled(y, x)
        bias = self._bias()
        xx = first.square().sum(-1).unsqueeze(-1) + bias
        yy = second.square().sum(-1).unsqueeze(-2) + bias
        xy = first @ second.transpose(-1, -2) + bias
        for _ in range(self.depth - 1):
            xx, yy, xy = (
                self._moment(xx, xx, xx) + bias,
                self._moment(yy, yy, yy) + bias,
                self._moment(xx, yy, xy) + bias,
            )
        return self._moment(xx, yy, xy).to(x.dtype)

    def diagonal(self, x: Tensor) -> Tensor:
        """k(x, x) of every row. Shape (..., N, Q) -> (..., N)."""
        bias = self._bias()
        xx = self._scaled(x).square().sum(-1) + bias
        for _ in range(self.depth - 1):
            xx = self._moment(xx, xx, xx) + bias
        return self._moment(xx, xx, xx).to(x.dtype)

    def features(self, x: Tensor, *, num_units: int, seed: int = 0) -> Tensor:
        """Outputs of K hidden units with random weights, scaled so that phi(x).phi(y) has the mean k(x, y).

            phi(x) = sqrt(v / K) s(x W + b)

        Args:
            x: (..., N, Q).
            num_units: K, of every hidden layer.
            seed: of the weights; the same units for any x.

        Returns: (..., N, K).
        Reference: Gal & Ghahramani (2015), section 3.1.
        """
        owner = "NetworkKernel.features"
        num_units = whole_number(owner, "num_units", num_units, at_least=1)
        generator = torch.Generator().manual_seed(whole_seed(owner, seed))
        function = activation(self.nonlinearity)
        hidden = self._scaled(x)
        for _ in range(self.depth):
            size = (hidden.shape[-1], num_units)
            weight = torch.randn(size, generator=generator, dtype=torch.float64).to(x.device)
            hidden = function(hidden @ weight + self._biases(num_units, generator).to(x.device))
            hidden = hidden * (torch.as_tensor(self.variance, dtype=torch.float64) / num_units).sqrt()
        return hidden.to(x.dtype)

    def approximate(self, x: Tensor, y: Tensor | None = None, *, num_units: int, seed: int = 0) -> Tensor:
        """The Monte Carlo estimate of the covariance with K units; its error falls as K^-1/2.

            K^(x, y) = (v / K) sum_k s(w_k.x + b_k) s(w_k.y + b_k)

        Args:
            x: (..., N, Q).
            y: (..., M, Q); x if None.
            num_units: K.
            seed: of the units.

        Returns: (..., N, M), positive semidefinite for x = y, of rank at most K.
        """
        first = self.features(x, num_units=num_units, seed=seed)
        second = first if y is None else self.features(y, num_units=num_units, seed=seed)
        return first @ second.transpose(-1, -2)

    def _moment(self, xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
        return self.variance * second_moment(self.nonlinearity, xx, yy, xy)

    def _bias(self) -> Tensor:
        return torch.as_tensor(self.bias_std, dtype=torch.float64).square()

    def _biases(self, num_units: int, generator: torch.Generator) -> Tensor:
        if self.nonlinearity == "cosine":
            return 2 * math.pi * torch.rand(num_units, generator=generator, dtype=torch.float64)
        return torch.randn(num_units, generator=generator, dtype=torch.float64) * torch.as_tensor(
            self.bias_std, dtype=torch.float64
        )

    def _scaled(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """Inputs in units of the length scale, in double precision: an angle needs half its digits."""
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
