"""Running a tape, or a network that was read off its modules, for many draws at once."""

from bayesdrop.execute.perceptron import Perceptron, PreparedPerceptron
from bayesdrop.execute.plan import WAYS, DrawPlan, Runner
from bayesdrop.execute.rewrite import as_perceptron
from bayesdrop.execute.sequential import Reading, read

__all__ = [
    "WAYS",
    "DrawPlan",
    "Perceptron",
    "PreparedPerceptron",
    "Reading",
    "Runner",
    "as_perceptron",
    "read",
]
