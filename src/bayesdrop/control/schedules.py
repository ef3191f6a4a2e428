"""How often an agent acts at random, as it grows older."""

from __future__ import annotations

from dataclasses import dataclass

from bayesdrop.errors import must, real_number, whole_number

__all__ = ["LinearDecay"]


@dataclass(frozen=True)
class LinearDecay:
    """A number that is `first` up to the age `start`, then falls linearly, and stays at `last`.

        value(age) = min(first, max(last, first (1 - (age - start) / (end - start))))

    The line is that of Karpathy's demo: it points at 0 at the age `end` and is cut at `last`.

    Args:
        start: the age, in steps, at which it begins to fall.
        end: the age at which the line would reach 0.
        first: the first value.
        last: the last value.

    >>> paper = LinearDecay(3_000, 200_000)
    >>> paper(0), round(paper(40_000), 2), paper(200_000)
    (1.0, 0.81, 0.05)
    """

    start: int
    end: int
    first: float = 1.0
    last: float = 0.05

    def __post_init__(self) -> None:
        owner = "LinearDecay"
        whole_number(owner, "start", self.start, at_least=0)
        whole_number(owner, "end", self.end, at_least=1)
        if self.end <= self.start:
            raise ValueError(must(owner, "end", f"above start ({self.start})", self.end))
        for name in ("first", "last"):
            real_number(owner, name, getattr(self, name), "a chance, in [0, 1]", at_least=0, at_most=1)
        if self.last > self.first:
            raise ValueError(must(owner, "last", f"at most first ({self.first})", self.last))

    def __call__(self, age: int) -> float:
        """The value at an age."""
        line = self.first * (1 - (age - self.start) / (self.end - self.start))
        return min(self.first, max(self.last, line))
