"""One weight layer of all networks of a stack: forward and, by hand, backward.

    h = (a * z) W / (1 - p) + b

W is (M, K_in, K_out): M networks side by side in one batched product. The factor 1 / (1 - p) is put into
the weights, which are smaller than a batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MaskedLayer", "WeightMaskedLayer", "thresholds"]

_WORDS = 2**16


def thresholds(p: Tensor) -> Tensor:
    """The smallest 16-bit word that is kept at the rate p, in int16's order."""
    return (torch.round(p.double() * _WORDS) - _WORDS // 2).clamp_max(_WORDS // 2 - 1).to(torch.int16)


class MaskedLayer:
    """Noise multiplies the inputs. Buffers are made once and used in every step.

    Args:
        weight: (M, K_in, K_out) view of the parameters.
        bias: (M, 1, K_out) view.
        weight_grad: where the gradient of `weight` goes.
        bias_grad: where the gradient of `bias` goes.
        rows: B, rows of a batch.
        kind: "hard" 0-1 masks, "soft" concrete masks, "normal" noise, or "none".
        temperature: of soft masks.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        weight_grad: Tensor,
        bias_grad: Tensor,
        *,
        rows: int,
        kind: str,
        temperature: float,
    ) -> None:
        self.weight, self.bias = weight, bias
        self.weight_grad, self.bias_grad = weight_grad, bias_grad
        self.kind, self.temperature = kind, temperature
        stack, inputs, outputs = weight.shape
        self.out = weight.new_empty(stack, rows, outputs)
        self.masked = weight.new_empty(stack, rows, inputs) if kind != "none" else None
        self.mask = torch.empty_like(self.masked) if self.masked is not None else None
        self.input_grad = weight.new_empty(stack, rows, inputs)
        self.scaled = torch.empty_like(weight) if kind in ("hard", "soft") else None
        self.input = self.input_grad
        #: (M, 1, 1) or (M, 1, K_in) rate
        self.p = weight.new_zeros(stack, 1, 1)
        self._threshold = thresholds(self.p)
        self._logit = self.p
        self._dropped: Tensor | None = None
        #: 1 / (1 - p), (M, 1, 1) or (M, K_in, 1): as the weights of an input unit are laid out
        self.scale = (1 - self.p).reciprocal().transpose(1, 2)
        self._by_columns = weight_grad.stride(1) == 1 and weight_grad.stride(2) != 1

    def set_rate(self, p: Tensor, logit: Tensor | None = None) -> None:
        """The rates from now on; with the logits for soft masks, where p alone would lose digits."""
        self.p = p
        self.scale = (1 - p).reciprocal().transpose(1, 2)
        if self.kind == "hard":
            self._threshold = thresholds(p)
        if self.kind == "soft":
            self._logit = torch.logit(p) if logit is None else logit

    @property
    def hides_zeros(self) -> bool:
        """Whether a kept input of zero and a dropped one need not be told apart: hard masks behind a ReLU."""
        return self.kind == "hard" and self.masked is not None

    def make_mask(self, noise: Tensor) -> None:
        """From random words or normal numbers to what the input is multiplied by."""
        assert self.mask is not None
        if self.kind == "hard":
            torch.ge(noise, self._threshold, out=self.mask)
        elif self.kind == "normal":
            torch.mul(noise, (self.p / (1 - self.p)).sqrt(), out=self.mask).add_(1)
        else:
            # The middle of each of the 2^16 intervals of a uniform number.
            uniform = noise.to(self.mask.dtype).add_(_WORDS / 2 + 0.5).div_(_WORDS)
            self._dropped = uniform.logit_().add_(self._logit).div_(self.temperature).sigmoid_()
            torch.sub(1, self._dropped, out=self.mask)

    def make_opposite_mask(self, noise: Tensor) -> None:
        """The mask of u where `make_mask` has that of 1 - u: kept if u < 1 - p."""
        assert self.mask is not None
        torch.lt(noise, -self._threshold.to(torch.int32), out=self.mask)

    def forward(self, a: Tensor) -> Tensor:
        """h, (M, B, K_out); the mask has been made."""
        self.input = a
        u = a
        if self.mask is not None:
            assert self.masked is not None
            u = torch.mul(a, self.mask, out=self.masked)
        weight = self.weight
        if self.scaled is not None:
            weight = torch.mul(self.weight, self.scale, out=self.scaled)
        return torch.baddbmm(self.bias, u, weight, out=self.out)

    def _weight_gradient(self, u: Tensor, grad: Tensor) -> None:
        """u^T grad into `weight_grad`, and the sum over rows into `bias_grad`."""
        if self._by_columns:
            torch.bmm(grad.transpose(1, 2), u, out=self.weight_grad.transpose(1, 2))
        else:
            torch.bmm(u.transpose(1, 2), grad, out=self.weight_grad)
        torch.sum(grad, 1, keepdim=True, out=self.bias_grad)

    def backward(
        self, grad: Tensor, *, through: bool, rate_grad: Tensor | None = None, unmasked: bool = False
    ) -> Tensor:
        """From dL/dh to the gradients of weights, bias and logits; returns dL/da.

        Args:
            grad: dL/dh, (M, B, K_out).
            through: whether dL/da is wanted.
            rate_grad: (M, 1, 1) or (M, 1, K_in), where dL/dlogit p by the path through noise and scale goes.
            unmasked: leave the mask of the inputs to whoever takes dL/da.
        """
        u = self.input if self.masked is None else self.masked
        self._weight_gradient(u, grad)
        if rate_grad is not None:
            # d/dlogit of 1 / (1 - p) is p / (1 - p).
            per_unit = (self.weight * self.weight_grad).sum(2, keepdim=True).transpose(1, 2)
            per_unit.mul_(self.p / (1 - self.p))
            rate_grad.copy_(per_unit if rate_grad.shape == per_unit.shape else per_unit.sum(2, keepdim=True))
        if self.scaled is not None:
            self.weight_grad.mul_(self.scale)
        if not through and (rate_grad is None or self.kind != "soft"):
            return self.input_grad
        weight = self.weight if self.scaled is None else self.scaled
        torch.bmm(grad, weight.transpose(1, 2), out=self.input_grad)
        if rate_grad is not None and self.kind == "soft":
            assert self.mask is not None
            assert self._dropped is not None
            # d keep / d logit p = -s (1 - s) / t, s the relaxed chance of being dropped
            slope = self._dropped.mul_(self.mask).div_(-self.temperature)
            per_unit = slope.mul_(self.input_grad).mul_(self.input).sum(1, keepdim=True)
            rate_grad.add_(per_unit if rate_grad.shape == per_unit.shape else per_unit.sum(2, keepdim=True))
        if self.mask is not None and through and not unmasked:
            self.input_grad.mul_(self.mask)
        return self.input_grad


class WeightMaskedLayer(MaskedLayer):
    """DropConnect: every weight has a mask of its own, one set for a batch."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        weight_grad: Tensor,
        bias_grad: Tensor,
        *,
        rows: int,
        kind: str,
        temperature: float,
    ) -> None:
        super().__init__(
            weight, bias, weight_grad, bias_grad, rows=rows, kind="none", temperature=temperature
        )
        self.kind = kind
        self.scaled = torch.empty_like(weight)
        self._kept = torch.ones_like(weight)

    def make_mask(self, noise: Tensor) -> None:
        """Zero or 1 / (1 - p) for every weight."""
        if self.kind == "hard":
            torch.ge(noise, self._threshold, out=self._kept)
            self._kept.mul_(self.scale)

    def set_rate(self, p: Tensor, logit: Tensor | None = None) -> None:
        """The rates from now on."""
        self.p = p
        self.scale = (1 - p).reciprocal().transpose(1, 2)
        self._threshold = thresholds(p)

    def forward(self, a: Tensor) -> Tensor:
        """h, (M, B, K_out); the mask has been made."""
        self.input = a
        assert self.scaled is not None
        torch.mul(self.weight, self._kept, out=self.scaled)
        return torch.baddbmm(self.bias, a, self.scaled, out=self.out)

    def backward(
        self, grad: Tensor, *, through: bool, rate_grad: Tensor | None = None, unmasked: bool = False
    ) -> Tensor:
        """From dL/dh to the gradients of weights and bias; returns dL/da."""
        self._weight_gradient(self.input, grad)
        self.weight_grad.mul_(self._kept)
        if through:
            assert self.scaled is not None
            torch.bmm(grad, self.scaled.transpose(1, 2), out=self.input_grad)
        return self.input_grad
