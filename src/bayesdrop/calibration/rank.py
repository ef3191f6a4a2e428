"""The finite-sample quantile of split conformal prediction, and the distribution of its coverage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from bayesdrop.errors import must, must_be_tensor, real_number, whole_number

__all__ = ["CoverageLaw", "conformal_quantile", "coverage_law"]


@dataclass(frozen=True)
class CoverageLaw:
    """Beta(a, b): the distribution, over calibration sets, of the coverage on new rows.

    With exchangeable rows and scores without ties, the probability that a new row is covered, given the
    calibration set, has the distribution Beta(r, n + 1 - r), r being the rank of the threshold. Ties only
    raise coverage.

    Reference: Vovk (2012).
    """

    a: float
    b: float

    @property
    def mean(self) -> float:
        """r / (n + 1): the probability that a new row is covered, averaged over calibration sets."""
        return self.a / (self.a + self.b)

    @property
    def std(self) -> float:
        """Standard deviation over calibration sets."""
        total = self.a + self.b
        return math.sqrt(self.a * self.b / (total + 1)) / total


def threshold_rank(num_calibration: int, level: float) -> int:
    """ceil((n + 1) level), exactly: 0.9 is 9 / 10 here, and not the double nearest to it."""
    return math.ceil((num_calibration + 1) * Fraction(repr(float(level))))


def coverage_law(num_calibration: int, level: float) -> CoverageLaw:
    """The distribution of coverage after calibrating on n rows.

    Args:
        num_calibration: n, at least level / (1 - level): with fewer rows only sets of all classes, or
            infinite intervals, have the coverage.
        level: the wanted coverage.

    >>> coverage_law(99, 0.9)
    CoverageLaw(a=90, b=10)
    """
    level = check_level("coverage_law", level)
    num_calibration = whole_number("coverage_law", "num_calibration", num_calibration, at_least=1)
    rank = threshold_rank(num_calibration, level)
    if not 1 <= rank <= num_calibration:
        exact = Fraction(repr(float(level)))
        need = math.ceil(exact / (1 - exact))
        raise ValueError(must("coverage_law", "num_calibration", f"at least {need}", num_calibration))
    return CoverageLaw(rank, num_calibration + 1 - rank)


def conformal_quantile(scores: Tensor, level: float) -> Tensor:
    """The ceil((n + 1) level)-th smallest of n scores over axis 0; infinite if n is too small for it.

    A new score, exchangeable with these, is at most this with a probability of at least `level`.

    Args:
        scores: (n, ...).
        level: in (0, 1).

    Returns: (...).
    """
    must_be_tensor("conformal_quantile", "scores", scores, floating=True)
    level = check_level("conformal_quantile", level)
    if scores.dim() < 1 or not scores.numel():
        raise ValueError(must("conformal_quantile", "scores", "(n, ...) with n at least 1", scores))
    if bool(scores.isnan().any()):
        count = f"{int(scores.isnan().sum())} of {scores.numel()} NaN"
        raise ValueError(must("conformal_quantile", "scores", "numbers", count))
    rank = threshold_rank(scores.shape[0], level)
    if rank > scores.shape[0]:
        return torch.full_like(scores[0], math.inf)
    return scores.kthvalue(rank, 0).values


def check_level(owner: str, level: float) -> float:
    """The level; raise unless it is a coverage between 0 and 1."""
    return real_number(owner, "level", level, "in (0, 1)", above=0, below=1)
