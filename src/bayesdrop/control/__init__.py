"""Decisions under uncertainty: worlds, agents, bandits, and models for planning (extra "control")."""

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
from bayesdrop.control.cross_entropy import Best, maximise  # noqa: E402
from bayesdrop.control.dynamics import DynamicsModel, fit_dynamics  # noqa: E402
from bayesdrop.control.features import StateFeatures  # noqa: E402
from bayesdrop.control.functions import HeldFunctions  # noqa: E402
from bayesdrop.control.mpc import MPC  # noqa: E402
from bayesdrop.control.neural_linear import NeuralLinear, NormalInverseGamma  # noqa: E402
from bayesdrop.control.planning import Planner, imitate  # noqa: E402
from bayesdrop.control.policies import MLPPolicy, RBFPolicy  # noqa: E402
from bayesdrop.control.policy_search import Found, PolicySearch  # noqa: E402
from bayesdrop.control.policy_stack import PolicyStack  # noqa: E402
from bayesdrop.control.replay import Batch, Replay  # noqa: E402
from bayesdrop.control.rollout import Rollout, Simulator, cautious, moment_matched, rollout  # noqa: E402
from bayesdrop.control.schedules import LinearDecay  # noqa: E402
from bayesdrop.control.settings import EpsilonGreedy, Greedy, QLearning, Thompson  # noqa: E402
from bayesdrop.control.training import train  # noqa: E402
from bayesdrop.control.transitions import Transitions  # noqa: E402
from bayesdrop.control.worlds import (  # noqa: E402
    CartPoleSwingUp,
    CartPoleSwingUpVector,
    DeepSea,
    DeepSeaVector,
    EyeWorld,
    EyeWorldVector,
    cart_pole_reward,
)

__all__ = [
    "MPC",
    "AgentStack",
    "Bandit",
    "Batch",
    "Best",
    "CartPoleSwingUp",
    "CartPoleSwingUpVector",
    "DeepSea",
    "DeepSeaVector",
    "DynamicsModel",
    "EpsilonGreedy",
    "EpsilonGreedyAgent",
    "EpsilonGreedyBandit",
    "EyeWorld",
    "EyeWorldVector",
    "Found",
    "Greedy",
    "GreedyAgent",
    "HeldFunctions",
    "LinearDecay",
    "MLPPolicy",
    "NeuralLinear",
    "NormalInverseGamma",
    "Planner",
    "PolicySearch",
    "PolicyStack",
    "Pulls",
    "QAgent",
    "QLearning",
    "RBFPolicy",
    "Replay",
    "Rollout",
    "Simulator",
    "StateFeatures",
    "TableBandit",
    "Thompson",
    "ThompsonAgent",
    "ThompsonBandit",
    "Transitions",
    "UniformBandit",
    "WheelBandit",
    "cart_pole_reward",
    "cautious",
    "fit_dynamics",
    "imitate",
    "maximise",
    "moment_matched",
    "play",
    "rollout",
    "train",
]
