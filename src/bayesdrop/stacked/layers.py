"""The weight layers of all networks of a stack: forward and, by hand, backward.

M networks stand side by side: W is (M, K_in, K_out), activations a are (M, B, K), and a layer is one batched
product. Posteriors differ in where their noise is; z are masks and e normal numbers.

    NoisyInputs     h = (a * z) W / (1 - p) + b                     bernoulli, concrete, learnable, gaussian
    NoisyWeights    h = a (W * z / (1 - p) + s e) + b + s e         dropconnect (s = 0), mixture

`gaussian_weights` has noise on the outputs. Divergences and estimators are those of `bayesdrop.functional`,
which the layers of `bayesdrop.layers` use too. Gradients are written down, since autograd takes longer; tests
compare every one of them with autograd.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bayesdrop.functional import bernoulli_dropout_kl, gaussian_dropout_kl, gaussian_kl, mixture_dropout_kl
from bayesdrop.functional.arm import disarm_slope
from bayesdrop.functional.kl import mixture_information
from bayesdrop.functional.products import batched_matmul

__all__ = ["LayerPrior", "NoisyInputs", "NoisyWeights", "StackLayer", "over_units", "transposed_product"]

# Values of the 16-bit words that masks are made of.
_WORDS = 2**16
# Distance of a mixture's two components, in widths, from which on a sample surely shows which one it is of.
_FAR = 12.0


@dataclass(frozen=True, eq=False)
class LayerPrior:
    """The prior N(0, I / l^2) of a layer, and N rows of data, which divergences are divided by.

    Attributes:
        length_scale: (M, 1, 1) l of the weights.
        bias_scale: (M, 1, 1) l of the biases.
        num_data: (M, 1, 1) N.
    """

    length_scale: Tensor
    bias_scale: Tensor
    num_data: Tensor

    @cached_property
    def precision(self) -> Tensor:
        """l^2 / N of the weights, (M, 1, 1)."""
        return self.length_scale.square() / self.num_data

    @cached_property
    def bias_precision(self) -> Tensor:
        """l^2 / N of the biases, (M, 1, 1)."""
        return self.bias_scale.square() / self.num_data

    def per_row(self, *divergences: Tensor) -> Tensor:
        """(M,) sums of divergences (M, a, b), divided by N."""
        return torch.stack([one.sum((1, 2)) for one in divergences]).sum(0) / self.num_data.view(-1)

    def of_points(self, bias: Tensor) -> Tensor:
        """Divergence of biases without noise, l^2 b^2 / 2, of their shape."""
        return 0.5 * (self.bias_scale * bias).square()


def transposed_product(u: Tensor, grad: Tensor, out: Tensor) -> None:
    """u^T grad into `out`, by the product that suits the order of `out` in memory."""
    if out.stride(1) == 1 and out.stride(2) != 1:
        batched_matmul(grad.transpose(1, 2), u, out=out.transpose(1, 2))
    else:
        batched_matmul(u.transpose(1, 2), grad, out=out)


def over_units(grad: Tensor, per_unit: Tensor) -> Tensor:
    """`per_unit`, (M, 1, K_in), in the shape of `grad`: summed over units where these share a rate."""
    return per_unit if grad.shape == per_unit.shape else per_unit.sum(2, keepdim=True)


class StackLayer(ABC):
    """One weight layer of M networks.

    Args:
        values: "weight" (M, K_in, K_out) and "bias" (M, 1, K_out); "logit" (M, 1, 1 or K_in) where a rate is
            learned, "log_std" and "bias_log_std" where widths are. All are views of the parameters.
        grads: tensors that gradients are written to, by the same names; empty if the layer is not trained.
        rows: B, rows of a batch.
    """

    def __init__(self, values: Mapping[str, Tensor], grads: Mapping[str, Tensor], rows: int) -> None:
        self.values, self.grads = values, grads
        self.weight, self.bias = values["weight"], values["bias"]
        stack, inputs, outputs = self.weight.shape
        # Memory that is made once and used in every step.
        self.out = self.weight.new_empty(stack, rows, outputs)
        self.input_grad = self.weight.new_empty(stack, rows, inputs)
        self.input = self.input_grad
        self.set_rate(self.weight.new_zeros(stack, 1, 1))

    def set_rate(self, p: Tensor) -> None:
        """Set the rates, (M, 1, 1) or (M, 1, K_in)."""
        self.p = p
        #: 1 / (1 - p) as the weights of an input unit are laid out, (M, 1, 1) or (M, K_in, 1)
        self.scale = (1 - p).reciprocal().transpose(1, 2)

    def update_rate(self) -> None:
        """Take a learned rate from its logit."""
        if "logit" in self.values:
            self.set_rate(torch.sigmoid(self.values["logit"]))

    @abstractmethod
    def set_noise(self, noise: Tensor) -> None:
        """Set the noise of a step, made of random words or normal numbers (see `noise_shapes`)."""

    @abstractmethod
    def forward(self, a: Tensor) -> Tensor:
        """h, (M, B, K_out), with the noise that was set."""

    @abstractmethod
    def backward(self, grad: Tensor, *, through: bool, unmasked: bool = False) -> Tensor:
        """Gradients of all parameters into `grads`, from dL/dh; returns dL/da, (M, B, K_in).

        Args:
            grad: dL/dh, (M, B, K_out).
            through: whether dL/da is wanted; if not, what is returned means nothing.
            unmasked: return dL/d(a z): the non-linearity that takes it also takes care of the mask z.
        """

    @abstractmethod
    def kl(self, prior: LayerPrior) -> Tensor:
        """KL(q || prior) / N of every network, (M,)."""

    def add_prior(self, prior: LayerPrior) -> None:
        """Add the gradient of KL(q || prior) / N to `grads`."""
        self.grads["weight"].addcmul_(self.weight, self.pull(prior))
        self.grads["bias"].addcmul_(self.bias, prior.bias_precision)

    def pull(self, prior: LayerPrior) -> Tensor:
        """The gradient of KL / N in the weights, divided by the weights: (M, 1 or K_in, 1)."""
        return prior.precision * self.scale

    def backward_product(self, u: Tensor, grad: Tensor) -> Tensor:
        """Gradients of W and b from dL/d(u W + b), into `grads`; returns that of W."""
        transposed_product(u, grad, self.grads["weight"])
        torch.sum(grad, 1, keepdim=True, out=self.grads["bias"])
        return self.grads["weight"]

    def backward_input(self, grad: Tensor, weight: Tensor) -> Tensor:
        """dL/du from dL/d(u W + b)."""
        return batched_matmul(grad, weight.transpose(1, 2), out=self.input_grad)


class NoisyInputs(StackLayer):
    """Noise multiplies the inputs. The weights are divided by 1 - p: they are fewer numbers than a batch.

    Args:
        values: see `StackLayer`.
        grads: see `StackLayer`.
        rows: see `StackLayer`.
        kind: "hard" 0-1 masks, "soft" concrete masks, "normal" noise, or "none".
        temperature: of soft masks.

    Attributes:
        mask: what the inputs are multiplied by.
        masked: the inputs times the mask.
    """

    def __init__(
        self,
        values: Mapping[str, Tensor],
        grads: Mapping[str, Tensor],
        rows: int,
        *,
        kind: str,
        temperature: float = 0.1,
    ) -> None:
        self.kind, self.temperature = kind, temperature
        super().__init__(values, grads, rows)
        self.mask, self.masked = torch.empty_like(self.input), torch.empty_like(self.input)
        self._dropped = self.mask
        self._scaled = torch.empty_like(self.weight) if kind in ("hard", "soft") else self.weight

    def set_rate(self, p: Tensor) -> None:
        super().set_rate(p)
        if self.kind == "hard":
            self._threshold = _thresholds(p)

    def set_noise(self, noise: Tensor) -> None:
        if self.kind == "hard":
            torch.ge(noise, self._threshold, out=self.mask)
        elif self.kind == "normal":
            torch.mul(noise, (self.p / (1 - self.p)).sqrt(), out=self.mask).add_(1)
        else:
            # The middle of each of the 2^16 intervals of a uniform number.
            uniform = noise.to(self.mask.dtype).add_(_WORDS / 2 + 0.5).div_(_WORDS)
            logit = self.values["logit"]
            self._dropped = uniform.logit_().add_(logit).div_(self.temperature).sigmoid_()
            torch.sub(1, self._dropped, out=self.mask)

    def set_opposite_noise(self, noise: Tensor) -> None:
        """Set the antithetic hard mask: `set_noise` keeps where u >= p, and this where 1 - u > p."""
        torch.lt(noise, -self._threshold.to(torch.int32), out=self.mask)

    def forward(self, a: Tensor) -> Tensor:
        self.input = a
        if self.kind == "none":
            self.masked = a
        else:
            torch.mul(a, self.mask, out=self.masked)
        if self._scaled is not self.weight:
            torch.mul(self.weight, self.scale, out=self._scaled)
        return batched_matmul(self.masked, self._scaled, bias=self.bias, out=self.out)

    def backward(self, grad: Tensor, *, through: bool, unmasked: bool = False) -> Tensor:
        """See `StackLayer`. Of a learned rate, the path through soft masks and 1 - p; see `add_score` too."""
        weight_grad = self.backward_product(self.masked, grad)
        rate_grad = self.grads.get("logit")
        if rate_grad is not None:
            # d/dlogit of 1 / (1 - p) is p / (1 - p).
            per_unit = (self.weight * weight_grad).sum(2, keepdim=True).transpose(1, 2)
            rate_grad.copy_(over_units(rate_grad, per_unit.mul_(self.p / (1 - self.p))))
        if self._scaled is not self.weight:
            weight_grad.mul_(self.scale)
        soft = self.kind == "soft"
        if not through and not soft:
            return self.input_grad
        input_grad = self.backward_input(grad, self._scaled)
        if soft and rate_grad is not None:
            # d keep / d logit p = -s (1 - s) / t, s the relaxed chance of being dropped
            slope = self._dropped.mul_(self.mask).div_(-self.temperature)
            per_unit = slope.mul_(input_grad).mul_(self.input).sum(1, keepdim=True)
            rate_grad.add_(over_units(rate_grad, per_unit))
        if self.kind != "none" and through and not unmasked:
            input_grad.mul_(self.mask)
        return input_grad

    def add_score(self, change: Tensor, noise: Tensor) -> None:
        """Add the gradient of a learned rate through hard masks: DisARM, with the two losses of each row.

        Args:
            change: (M, B, 1) the loss of each row, divided by B, less that with the opposite mask.
            noise: the random words that the mask was made of.
        """
        kept, grad = self.mask.clone(), self.grads["logit"]
        self.set_opposite_noise(noise)
        per_unit = kept.sub_(self.mask).mul_(change).sum(1, keepdim=True)
        grad.add_(over_units(grad, disarm_slope(per_unit, self.p)))

    def pull(self, prior: LayerPrior) -> Tensor:
        """See `StackLayer`. Gaussian noise pushes weights away from 0, where its width would vanish."""
        if self.kind != "normal":
            return super().pull(prior)
        norm = self.weight.square().sum(2, keepdim=True)
        push = (norm + torch.finfo(norm.dtype).tiny).reciprocal() / prior.num_data
        return prior.precision * self.scale - push

    def add_prior(self, prior: LayerPrior) -> None:
        super().add_prior(prior)
        logit = self.values.get("logit")
        if logit is not None:
            grad, p = self.grads["logit"], self.p
            norm = self.weight.square().sum(2, keepdim=True).transpose(1, 2)
            units = norm.shape[2] // logit.shape[2]
            grad.addcmul_(0.5 * prior.precision * over_units(grad, norm), p / (1 - p))
            grad.addcmul_(logit, units * p * (1 - p) / prior.num_data)

    def kl(self, prior: LayerPrior) -> Tensor:
        norm = self.weight.square().sum(2, keepdim=True)
        divergence = gaussian_dropout_kl if self.kind == "normal" else bernoulli_dropout_kl
        weights = divergence(norm, self.p.transpose(1, 2).expand_as(norm), prior.length_scale)
        return prior.per_row(weights, prior.of_points(self.bias))


class NoisyWeights(StackLayer):
    """Noise on the weights, the same for all rows of a batch.

    Without `sigma` every weight has a mask of its own. With it the weights that leave a unit share a mask,
    and Gaussian noise of width s is added to weights and biases: a mixture of two Gaussians.

    Args:
        values: see `StackLayer`.
        grads: see `StackLayer`.
        rows: see `StackLayer`.
        sigma: s; 0 for none.

    Attributes:
        kept: masks of the weights, divided by 1 - p.
    """

    def __init__(
        self, values: Mapping[str, Tensor], grads: Mapping[str, Tensor], rows: int, *, sigma: float = 0.0
    ) -> None:
        super().__init__(values, grads, rows)
        self.sigma = sigma
        self.kept = torch.ones_like(self.weight)
        self._normal = torch.zeros_like(self.weight)
        self._drawn = torch.empty_like(self.weight)
        self._drawn_bias = self.bias

    def set_noise(self, noise: Tensor) -> None:
        """Masks from (M, K_in, K_out) words.

        A mixture has (M, K_in + 1, K_out + 1) normal numbers: the last row is that of the biases, and the
        last column says which units are kept, with chance 1 - p.
        """
        if not self.sigma:
            torch.ge(noise, _thresholds(self.p), out=self.kept)
            self.kept.mul_(self.scale)
            return
        noise = noise.to(self.weight.dtype)
        least = torch.special.ndtri(self.p).transpose(1, 2)
        self.kept.copy_((noise[:, :-1, -1:] >= least) * self.scale)
        self._normal = noise[:, :-1, :-1]
        self._drawn_bias = self.bias + self.sigma * noise[:, -1:, :-1]

    def forward(self, a: Tensor) -> Tensor:
        self.input = a
        torch.mul(self.weight, self.kept, out=self._drawn)
        if self.sigma:
            self._drawn.add_(self._normal, alpha=self.sigma)
        return batched_matmul(a, self._drawn, bias=self._drawn_bias, out=self.out)

    def backward(self, grad: Tensor, *, through: bool, unmasked: bool = False) -> Tensor:
        self.backward_product(self.input, grad).mul_(self.kept)
        return self.backward_input(grad, self._drawn) if through else self.input_grad

    def pull(self, prior: LayerPrior) -> Tensor:
        """See `StackLayer`. Of a mixture, less the slope of the information on which component was drawn."""
        if not self.sigma:
            return super().pull(prior)
        # d, the distance of a unit's two components in units of s: d^2 = (|W_k| / (s (1 - p)))^2.
        square = self.weight.square().sum(2, keepdim=True)
        factor = (self.scale / self.sigma).square()
        distance = ((square + torch.finfo(square.dtype).tiny) * factor).sqrt()
        near = distance < _FAR
        slope = torch.zeros_like(distance)
        if bool(near.any()):
            with torch.enable_grad():
                close = distance[near].requires_grad_()
                information = mixture_information(close, self.p.transpose(1, 2).expand_as(distance)[near])
                (by_distance,) = torch.autograd.grad(information.sum(), close)
            slope[near] = by_distance / close.detach()
        return super().pull(prior) - slope * factor / prior.num_data

    def kl(self, prior: LayerPrior) -> Tensor:
        square, p, l = self.weight.square(), self.p.transpose(1, 2), prior.length_scale
        if not self.sigma:
            weights = bernoulli_dropout_kl(square, p.expand_as(square), l)
            return prior.per_row(weights, prior.of_points(self.bias))
        sigma, norm = square.new_tensor(self.sigma), square.sum(2, keepdim=True)
        weights = mixture_dropout_kl(norm, p.expand_as(norm), sigma, square.shape[2], l)
        return prior.per_row(weights, gaussian_kl(self.bias.square(), sigma.square(), prior.bias_scale))


def _thresholds(p: Tensor) -> Tensor:
    """The smallest 16-bit word that is kept at the rate p; words are int16, from -2^15."""
    return (torch.round(p.double() * _WORDS) - _WORDS // 2).clamp_max(_WORDS // 2 - 1).to(torch.int16)
