"""Acting on uncertainty: worlds, agents, bandits, and models to plan with (extra "control")."""

from bayesdrop.errors import require

require("gymnasium", extra="control", owner="bayesdrop.control")

from bayesdrop.control.agent_stack import AgentStack  # noqa: E402
from bayesdrop.control.agents import EpsilonGreedyAgent, GreedyAgent, QAgent, ThompsonAgent  # noqa: E402
from bayesdrop.control.bandit_problems import Pulls, TableBandit, WheelBandit, play  # noqa: E402
from bayesdrop.control.bandits import (  # noqa: E402
    Bandit,
    EpsilonGreedyBandit,
    ThompsonBandit,
    UniformBandit,
)
from bayesdrop.control.neural_linear import NeuralLinear, NormalInverseGamma  # noqa: E402
from bayesdrop.control.replay import Batch, Replay  # noqa: E402
from bayesdrop.control.schedules import LinearDecay  # noqa: E402
from bayesdrop.control.settings import EpsilonGreedy, Greedy, QLearning, Thompson  # noqa: E402
from bayesdrop.control.training import train  # noqa: E402
from bayesdrop.control.worlds import DeepSea, DeepSeaVector, EyeWorld, EyeWorldVector  # noqa: E402

__all__ = [
    "AgentStack",
    "Bandit",
    "Batch",
    "DeepSea",
    "DeepSeaVector",
    "EpsilonGreedy",
    "EpsilonGreedyAgent",
    "EpsilonGreedyBandit",
    "EyeWorld",
    "EyeWorldVector",
    "Greedy",
    "GreedyAgent",
    "LinearDecay",
    "NeuralLinear",
    "NormalInverseGamma",
    "Pulls",
    "QAgent",
    "QLearning",
    "Replay",
    "TableBandit",
    "Thompson",
    "ThompsonAgent",
    "ThompsonBandit",
    "UniformBandit",
    "WheelBandit",
    "play",
    "train",
]
