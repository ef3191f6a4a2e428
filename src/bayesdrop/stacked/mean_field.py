"""A weight layer of Gaussian weights, of all networks of a stack: forward and, by hand, backward.

    h = a W + b + sqrt(a^2 S^2 + t^2) e,    e ~ N(0, 1) for every row and output

S and t are the widths of weights and biases, whose logarithms are trained: the noise of
`bayesdrop.MeanFieldGaussian` in training.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesdrop.functional.kl import mean_field_kl
from bayesdrop.stacked.layers import MaskedLayer

__all__ = ["MeanFieldLayer", "first_log_std", "rate_of"]

# The square root has no gradient at zero.
_SMALLEST = 1e-16


def first_log_std(weight: Tensor, p: Tensor) -> Tensor:
    """Where the logs of widths start: sqrt(p / (1 - p)) times the weights' root mean square. Shape ()."""
    return 0.5 * (weight.double().square().mean().log() + torch.logit(p.double()))


def rate_of(weight: Tensor, std: Tensor) -> Tensor:
    """|s|^2 / (|s|^2 + |w|^2), as `MeanFieldGaussian.p`. Shape ()."""
    variance = std.square().sum()
    return variance / (variance + weight.square().sum())


class MeanFieldLayer(MaskedLayer):
    """Noise on the outputs, as Gaussian weights make it.

    Args:
        weight: (M, K_in, K_out) view of the means.
        bias: (M, 1, K_out) view.
        weight_grad: where the gradient of `weight` goes.
        bias_grad: where the gradient of `bias` goes.
        log_std: (M, K_in, K_out) view of the logs of the weights' widths.
        bias_log_std: (M, 1, K_out) view of those of the biases.
        log_std_grad: where the gradient of `log_std` goes.
        bias_log_std_grad: where the gradient of `bias_log_std` goes.
        rows: B, rows of a batch.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        weight_grad: Tensor,
        bias_grad: Tensor,
        *,
        log_std: Tensor,
        bias_log_std: Tensor,
        log_std_grad: Tensor,
        bias_log_std_grad: Tensor,
        rows: int,
    ) -> None:
        super().__init__(weight, bias, weight_grad, bias_grad, rows=rows, kind="none", temperature=1.0)
        self.log_std, self.bias_log_std = log_std, bias_log_std
        self.log_std_grad, self.bias_log_std_grad = log_std_grad, bias_log_std_grad
        self._variance = torch.empty_like(weight)
        self._bias_variance = torch.empty_like(bias)
        self._square = torch.empty_like(self.input_grad)
        self._std = torch.empty_like(self.out)
        self._through = torch.empty_like(self.input_grad)
        self._normal = self._std

    def set_rate(self, p: Tensor, logit: Tensor | None = None) -> None:
        """Nothing: a rate only says where the widths start."""

    def make_mask(self, noise: Tensor) -> None:
        """The normal numbers of a step, (M, B, K_out)."""
        self._normal = noise.to(self.weight.dtype)

    def forward(self, a: Tensor) -> Tensor:
        """h, (M, B, K_out); the noise has been made."""
        self.input = a
        torch.mul(self.log_std, 2, out=self._variance).exp_()
        torch.mul(self.bias_log_std, 2, out=self._bias_variance).exp_()
        torch.mul(a, a, out=self._square)
        torch.baddbmm(self._bias_variance, self._square, self._variance, out=self._std)
        self._std.add_(_SMALLEST).sqrt_()
        torch.baddbmm(self.bias, a, self.weight, out=self.out)
        return self.out.addcmul_(self._std, self._normal)

    def backward(
        self, grad: Tensor, *, through: bool, rate_grad: Tensor | None = None, unmasked: bool = False
    ) -> Tensor:
        """From dL/dh to the gradients of means and logs of widths; returns dL/da."""
        self._weight_gradient(self.input, grad)
        # Twice dL/dv, v the variance of an output: v has the slope 2 S^2 in log S, and 2 a S^2 in a.
        slope = (grad * self._normal).div_(self._std)
        self._products(slope)
        self.log_std_grad.mul_(self._variance)
        torch.sum(slope, 1, keepdim=True, out=self.bias_log_std_grad)
        self.bias_log_std_grad.mul_(self._bias_variance)
        if through:
            torch.bmm(slope, self._variance.transpose(1, 2), out=self._through)
            torch.bmm(grad, self.weight.transpose(1, 2), out=self.input_grad)
            self.input_grad.addcmul_(self._through, self.input)
        return self.input_grad

    def _products(self, slope: Tensor) -> None:
        """(a^2)^T slope into `log_std_grad`."""
        if self._by_columns:
            torch.bmm(slope.transpose(1, 2), self._square, out=self.log_std_grad.transpose(1, 2))
        else:
            torch.bmm(self._square.transpose(1, 2), slope, out=self.log_std_grad)

    def add_prior(self, precision: Tensor, bias_precision: Tensor, num_data: Tensor) -> None:
        """Add the gradient of KL(q || prior) / N.

        Args:
            precision: (M, 1, 1) l^2 / N of the weights.
            bias_precision: (M, 1, 1) l^2 / N of the biases.
            num_data: (M, 1, 1) N.
        """
        self.weight_grad.addcmul_(self.weight, precision)
        self.bias_grad.addcmul_(self.bias, bias_precision)
        each = num_data.reciprocal()
        self.log_std_grad.addcmul_(self._variance, precision).sub_(each)
        self.bias_log_std_grad.addcmul_(self._bias_variance, bias_precision).sub_(each)

    def kl(self, length_scale: Tensor, bias_scale: Tensor) -> Tensor:
        """KL(q || prior) of every network, (M,).

        Args:
            length_scale: (M, 1, 1) l of the weights.
            bias_scale: (M, 1, 1) l of the biases.
        """
        weights = mean_field_kl(self.weight, self.log_std, length_scale).sum((1, 2))
        return weights + mean_field_kl(self.bias, self.bias_log_std, bias_scale).sum((1, 2))
