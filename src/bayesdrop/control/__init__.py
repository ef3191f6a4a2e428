"""Acting on uncertainty (extra "control")."""

from bayesdrop.errors import require

require("gymnasium", extra="control", owner="bayesdrop.control")

from bayesdrop.control.bandit_problems import Pulls, TableBandit, WheelBandit, play  # noqa: E402
from bayesdrop.control.bandits import Bandit, EpsilonGreedyBandit, ThompsonBandit, UniformBandit  # noqa: E402
from bayesdrop.control.neural_linear import NeuralLinear, NormalInverseGamma  # noqa: E402

__all__ = [
    "Bandit",
    "EpsilonGreedyBandit",
    "NeuralLinear",
    "NormalInverseGamma",
    "Pulls",
    "TableBandit",
    "ThompsonBandit",
    "UniformBandit",
    "WheelBandit",
    "play",
]
