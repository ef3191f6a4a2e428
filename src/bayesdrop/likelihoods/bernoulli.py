"""Bernoulli likelihood: one logit for every yes or no."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from bayesdrop.errors import must, must_be_finite, must_be_tensor
from bayesdrop.likelihoods.base import ClassLikelihood

__all__ = ["Bernoulli"]


class Bernoulli(ClassLikelihood):
    """y ~ Bernoulli(sigmoid(f)) for every output; -log p is the binary cross-entropy.

    For two classes from one logit, and for several labels that do not exclude each other (multi-label).
    One logit f means what the two logits (0, f) mean to `Categorical`, and gives the same entropies and
    metrics.

    Shape: output (N, ...), y of the same shape, 0 or 1 of any dtype -> (N, ...), one value a label.

    >>> Bernoulli().log_prob(torch.zeros(2, 3), torch.ones(2, 3)).exp()
    tensor([[0.5000, 0.5000, 0.5000],
            [0.5000, 0.5000, 0.5000]])
    """

    def class_log_probs(self, output: Tensor, *, leading: int = 0) -> Tensor:
        """log P(y = 0) and log P(y = 1), on a last axis of two."""
        must_be_tensor("Bernoulli", "output", output, floating=True)
        if output.dim() <= leading:
            raise ValueError(must("Bernoulli", "output", "logits (N, ...)", tuple(output.shape)))
        return torch.stack((logsigmoid(-output), logsigmoid(output)), -1)

    def laid_out(self, by_class: Tensor) -> Tensor:
        """The values of y = 1."""
        return by_class[..., 1]

    def output_of(self, class_log_probs: Tensor) -> Tensor:
        """log P(y = 1) - log P(y = 0), the logit."""
        return class_log_probs[..., 1] - class_log_probs[..., 0]

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """Log-probability of each label. Shape (N, ...), as the output."""
        must_be_tensor("Bernoulli", "output", output, floating=True)
        must_be_tensor("Bernoulli", "y", y)
        if y.shape != output.shape:
            hint = ""
            if output.shape == (*y.shape, 1):
                hint = "Pass y.unsqueeze(-1), or squeeze the output."
            elif y.dim() == 1 and output.dim() == 2 and len(y) == len(output):
                hint = "Categorical() is for labels that exclude each other."
            want = f"0 or 1 for every output, of shape {tuple(output.shape)}"
            raise ValueError(must("Bernoulli", "y", want, tuple(y.shape), hint))
        yes = y == 1
        if not bool((yes | (y == 0)).all()):
            others = y[~(yes | (y == 0))]
            raise ValueError(must("Bernoulli", "y", "0 or 1", others.flatten()[0].item()))
        return logsigmoid(torch.where(yes, output, -output))

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """0 or 1 for every output. Shape (N, ...), as the output."""
        probs = self.class_log_probs(output)[..., 1].exp()
        must_be_finite("Bernoulli", "output", probs)
        return torch.bernoulli(probs.cpu(), generator=generator).long().to(output.device)
