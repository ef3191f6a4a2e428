"""Categorical and multinomial likelihoods: the output holds logits."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.likelihoods.base import ClassLikelihood

__all__ = ["Categorical", "Multinomial"]


class Categorical(ClassLikelihood):
    """y ~ Categorical(softmax(f)); -log p is the cross-entropy.

    Args:
        class_axis: the axis of the logits, 1 as in `torch.nn.functional.cross_entropy`.

    Shape: output (N, K, ...), y (N, ...) of integers -> (N, ...).
    """

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """Log-probability of each label. Shape (N, ...)."""
        log_probs = self.log_probs(output).movedim(self.class_axis, -1)
        self._check_labels(log_probs, y)
        return log_probs.gather(-1, y.long().unsqueeze(-1)).squeeze(-1)

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One label for every output. Shape (N, ...)."""
        probs = self.log_probs(output).exp().movedim(self.class_axis, -1)
        flat = torch.multinomial(probs.reshape(-1, probs.shape[-1]).cpu(), 1, generator=generator)
        return flat.reshape(probs.shape[:-1]).to(output.device)

    def _check_labels(self, log_probs: Tensor, y: Tensor) -> None:
        classes = log_probs.shape[-1]
        if y.shape != log_probs.shape[:-1]:
            want = f"labels of shape {tuple(log_probs.shape[:-1])}"
            raise ValueError(must("Categorical", "y", want, tuple(y.shape)))
        if y.is_floating_point() or y.is_complex():
            raise TypeError(must("Categorical", "y", "integer labels", y.dtype))
        if y.numel() and (int(y.min()) < 0 or int(y.max()) >= classes):
            seen = f"{int(y.min())} to {int(y.max())}"
            raise ValueError(
                f"Categorical: `y` must be in 0 to {classes - 1}, the model's classes; got {seen}."
            )


class Multinomial(ClassLikelihood):
    """Counts y ~ Multinomial(n, softmax(f)) with n = sum of y, as of a user's clicks over items.

    Args:
        coefficient: include the multinomial coefficient log(n! / prod_k y_k!), which no parameter moves.
        class_axis: the axis of the logits.

    Shape: output (N, K), y (N, K) of counts -> (N,).
    Reference: Boluki et al. (2020), section 3.3; Liang et al. (2018), Eq. 2.
    """

    def __init__(self, *, coefficient: bool = True, class_axis: int = 1) -> None:
        super().__init__(class_axis=class_axis)
        self.coefficient = coefficient

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """sum_k y_k log p_k, plus the coefficient. Shape (N, ...)."""
        log_probs = self.log_probs(output)
        if y.shape != output.shape:
            raise ValueError(
                must("Multinomial", "y", f"counts of shape {tuple(output.shape)}", tuple(y.shape))
            )
        if bool((y < 0).any()):
            raise ValueError(must("Multinomial", "y", "counts of at least 0", float(y.min())))
        counts = y.to(log_probs.dtype)
        value = (counts * log_probs).sum(self.class_axis)
        if self.coefficient:
            total = counts.sum(self.class_axis)
            value = value + torch.lgamma(total + 1) - torch.lgamma(counts + 1).sum(self.class_axis)
        return value

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One trial for every row: the class that was drawn. Shape (N, ...)."""
        return Categorical(class_axis=self.class_axis).sample(output, generator)
