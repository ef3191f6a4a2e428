"""Acting on uncertainty: worlds to act in, and agents that explore by drawing functions (extra "control")."""

from bayesdrop.errors import require

require("gymnasium", extra="control", owner="bayesdrop.control")

from bayesdrop.control.agent_stack import AgentStack  # noqa: E402
from bayesdrop.control.agents import EpsilonGreedyAgent, GreedyAgent, QAgent, ThompsonAgent  # noqa: E402
from bayesdrop.control.replay import Batch, Replay  # noqa: E402
from bayesdrop.control.schedules import LinearDecay  # noqa: E402
from bayesdrop.control.settings import EpsilonGreedy, Greedy, QLearning, Thompson  # noqa: E402
from bayesdrop.control.training import train  # noqa: E402
from bayesdrop.control.worlds import DeepSea, DeepSeaVector, EyeWorld, EyeWorldVector  # noqa: E402

__all__ = [
    "AgentStack",
    "Batch",
    "DeepSea",
    "DeepSeaVector",
    "EpsilonGreedy",
    "EpsilonGreedyAgent",
    "EyeWorld",
    "EyeWorldVector",
    "Greedy",
    "GreedyAgent",
    "LinearDecay",
    "QAgent",
    "QLearning",
    "Replay",
    "Thompson",
    "ThompsonAgent",
    "train",
]
