"""Weight layers whose weights are Gaussian, of all networks of a stack: noise on the outputs.

    h = a W + b + sqrt(a^2 V + v) e,    e ~ N(0, 1) for every row and output

V and v are the variances of weights and biases: "the local reparametrisation", which gives every row noise of
its own for the price of a second product.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from bayesdrop.functional.kl import mean_field_kl
from bayesdrop.functional.log_uniform import log_uniform_kl
from bayesdrop.functional.products import batched_matmul
from bayesdrop.stacked.layers import LayerPrior, StackLayer, over_units, transposed_product

__all__ = ["MeanField", "Variational", "first_log_std", "rate_of"]

# The least variance of an output: the square root has no gradient at zero.
_SMALLEST = 1e-16
# The largest log-variance of variational noise, as in `VariationalGaussianDropout`.
_CEILING = 10.0


def first_log_std(weight: Tensor, p: Tensor) -> Tensor:
    """log s that widths s start from: s^2 = mean(w^2) p / (1 - p), so that `rate_of` is p. Shape ()."""
    return 0.5 * (weight.double().square().mean().log() + torch.logit(p.double()))


def rate_of(weight: Tensor, std: Tensor) -> Tensor:
    """p = |s|^2 / (|s|^2 + |w|^2) of weights w and widths s, as `MeanFieldGaussian.p`. Shape ()."""
    variance = std.square().sum()
    return variance / (variance + weight.square().sum())


class _NoisyOutputs(StackLayer):
    """Noise on the outputs; subclasses say where the variances V and v come from."""

    def __init__(self, values: Mapping[str, Tensor], grads: Mapping[str, Tensor], rows: int) -> None:
        super().__init__(values, grads, rows)
        self.variance = torch.empty_like(self.weight)
        self.bias_variance = torch.zeros_like(self.bias)
        self._square = torch.empty_like(self.input)
        self._std = torch.empty_like(self.out)
        self._through = torch.empty_like(self.input)
        self._normal = self._std

    @abstractmethod
    def set_variances(self) -> None:
        """Set V, `variance`, and v, `bias_variance`, from the parameters as they are now."""

    @abstractmethod
    def backward_variances(self, slope: Tensor) -> None:
        """From 2 dL/d(variance of an output), (M, B, K_out), to gradients of what V and v are made of."""

    def by_weight(self, slope: Tensor, out: Tensor) -> Tensor:
        """2 dL/dV = (a^2)^T slope, into `out`."""
        transposed_product(self._square, slope, out)
        return out

    def set_noise(self, noise: Tensor) -> None:
        """The normal numbers of a step, (M, B, K_out)."""
        self._normal = noise.to(self.weight.dtype)

    def forward(self, a: Tensor) -> Tensor:
        self.input = a
        self.set_variances()
        torch.mul(a, a, out=self._square)
        batched_matmul(self._square, self.variance, bias=self.bias_variance, out=self._std)
        self._std.clamp_min_(_SMALLEST).sqrt_()
        batched_matmul(a, self.weight, bias=self.bias, out=self.out)
        return self.out.addcmul_(self._std, self._normal)

    def backward(self, grad: Tensor, *, through: bool, unmasked: bool = False) -> Tensor:
        self.backward_product(self.input, grad)
        slope = (grad * self._normal).div_(self._std)
        slope.masked_fill_(self._std <= _SMALLEST**0.5, 0)
        self.backward_variances(slope)
        if through:
            # The variance of an output has the slope 2 a V in a.
            batched_matmul(slope, self.variance.transpose(1, 2), out=self._through)
            self.backward_input(grad, self.weight).addcmul_(self._through, self.input)
        return self.input_grad


class MeanField(_NoisyOutputs):
    """Every weight and bias has a width of its own, whose logarithm is trained: `MeanFieldGaussian`."""

    def set_rate(self, p: Tensor) -> None:
        """Ignore p, which only says where the widths start: nothing is dropped."""
        super().set_rate(torch.zeros_like(p))

    def set_variances(self) -> None:
        """V = exp(2 log s), for weights and biases."""
        torch.mul(self.values["log_std"], 2, out=self.variance).exp_()
        torch.mul(self.values["bias_log_std"], 2, out=self.bias_variance).exp_()

    def backward_variances(self, slope: Tensor) -> None:
        """V has the slope 2 V in log s."""
        self.by_weight(slope, self.grads["log_std"]).mul_(self.variance)
        torch.sum(slope, 1, keepdim=True, out=self.grads["bias_log_std"]).mul_(self.bias_variance)

    def add_prior(self, prior: LayerPrior) -> None:
        super().add_prior(prior)
        each = prior.num_data.reciprocal()
        self.grads["log_std"].addcmul_(self.variance, prior.precision).sub_(each)
        self.grads["bias_log_std"].addcmul_(self.bias_variance, prior.bias_precision).sub_(each)

    def kl(self, prior: LayerPrior) -> Tensor:
        weights = mean_field_kl(self.weight, self.values["log_std"], prior.length_scale)
        return prior.per_row(weights, mean_field_kl(self.bias, self.values["bias_log_std"], prior.bias_scale))


class Variational(_NoisyOutputs):
    """V = a W^2, and log a = logit p is trained under a log-uniform prior: `VariationalGaussianDropout`.

    That prior has no length scale, and neither the means nor the biases are pulled anywhere.
    """

    def update_rate(self) -> None:
        self.set_rate(torch.sigmoid(self.values["logit"].clamp_max(_CEILING)))

    def set_variances(self) -> None:
        """V = a W^2; biases have no noise."""
        self._alpha = self.values["logit"].clamp_max(_CEILING).exp().transpose(1, 2)
        torch.mul(self.weight, self.weight, out=self.variance).mul_(self._alpha)

    def backward_variances(self, slope: Tensor) -> None:
        """V has the slope 2 a W in W, and V in log a below its ceiling."""
        by_weight = self.by_weight(slope, torch.empty_like(self.weight))
        self.grads["weight"].addcmul_(by_weight * self._alpha, self.weight)
        per_unit = by_weight.mul_(self.variance).sum(2, keepdim=True).transpose(1, 2)
        grad, logit = self.grads["logit"], self.values["logit"]
        grad.copy_(over_units(grad, per_unit) * (0.5 * (logit <= _CEILING)))

    def add_prior(self, prior: LayerPrior) -> None:
        with torch.enable_grad():
            logit = self.values["logit"].detach().requires_grad_()
            (slope,) = torch.autograd.grad(self._divergence(logit).sum(), logit)
        self.grads["logit"].addcdiv_(slope, prior.num_data)

    def kl(self, prior: LayerPrior) -> Tensor:
        return prior.per_row(self._divergence(self.values["logit"]))

    def _divergence(self, logit: Tensor) -> Tensor:
        """Of the weights that share a variance, (M, 1, 1 or K_in): each of them counts."""
        sharing = self.weight.shape[1] * self.weight.shape[2] // logit.shape[2]
        return log_uniform_kl(logit.clamp_max(_CEILING)) * sharing
