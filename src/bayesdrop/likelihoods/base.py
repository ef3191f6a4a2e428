"""Likelihood: what a network's output means, and how probable a target is under it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from bayesdrop.likelihoods.mixture import crossing

__all__ = ["ClassLikelihood", "ConstantNoise", "Likelihood", "NumberLikelihood"]


class Likelihood(nn.Module):
    """p(y | f) for the output f of a network. `N` rows on axis 0."""

    @abstractmethod
    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log p(y | output) in nats, rows on axis 0: one value for a label, or for a vector of numbers."""

    @abstractmethod
    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of y given the output, of equal shape."""

    @abstractmethod
    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One y for every output."""

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        """`log_prob`."""
        return self.log_prob(output, y)


class NumberLikelihood(Likelihood):
    """A likelihood of numbers, with quantiles; the noise of the outputs is independent."""

    @abstractmethod
    def cdf(self, output: Tensor, value: Tensor) -> Tensor:
        """P(y <= value), element by element."""

    @abstractmethod
    def quantile(self, output: Tensor, q: float) -> Tensor:
        """The value that y stays below with chance q, element by element."""

    def mixture_quantiles(self, outputs: Tensor, levels: Sequence[float]) -> Tensor:
        """For each level q the v with (1/T) sum_t P(y <= v | f_t) = q, in double precision.

        Args:
            outputs: (T, N, ...), the f_t.
            levels: each in (0, 1).

        Returns: (len(levels), N, D).
        """
        # In double precision: single has no number between 1 - 6e-8 and 1, as 1 - 1e-9 is.
        outputs = outputs.to(torch.float64)
        return torch.stack([self._mixture_quantile(outputs, q) for q in levels])

    def _mixture_quantile(self, outputs: Tensor, q: float) -> Tensor:
        # The mixture's quantile lies between the smallest and the largest of its components' quantiles.
        ends = self.quantile(outputs, q)
        lower, upper = ends.amin(0), ends.amax(0)
        # Where much of the probability is at one value, as at a bound, that may be the quantile.
        upper = torch.where(self.cdf(outputs, lower).mean(0) >= q, lower, upper)
        lower, upper = crossing(lambda value: self.cdf(outputs, value).mean(0) - q, lower, upper)
        return self.settled(0.5 * (lower + upper))

    def settled(self, value: Tensor) -> Tensor:
        """What a number near `value` must be to be one that y can have: itself, unless y is whole or ends."""
        return value


class ConstantNoise(NumberLikelihood):
    """y is the output plus noise of mean zero, whose distribution is the same for all rows."""

    noise: Literal["fixed", "learned", "map"]

    @property
    @abstractmethod
    def noise_std(self) -> Tensor:
        """Standard deviation of the noise: shape (), or one per output."""


class ClassLikelihood(Likelihood):
    """A likelihood of labels: gives the probability of every class, whatever the layout of its outputs."""

    @abstractmethod
    def class_log_probs(self, output: Tensor, *, leading: int = 0) -> Tensor:
        """Log-probability of every class, classes on the last axis: (N, ..., K).

        Args:
            output: (N, ...), or with more axes before the rows.
            leading: how many axes come before the rows: 1 for draws (T, N, ...).
        """

    @abstractmethod
    def laid_out(self, by_class: Tensor) -> Tensor:
        """Values of the classes (N, ..., K) in the layout of an output, as those of `moments`."""

    @abstractmethod
    def output_of(self, class_log_probs: Tensor) -> Tensor:
        """An output with these log-probabilities (N, ..., K) of the classes."""

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Mean p and variance p (1 - p) of whether a class is the label. Shapes as `output`."""
        probs = self.laid_out(self.class_log_probs(output).exp())
        return probs, probs * (1 - probs)
