"""Acting on uncertainty: worlds, models of how they move, and policies that are found in such models."""

from bayesdrop.errors import require

require("gymnasium", extra="control", owner="bayesdrop.control")

from bayesdrop.control.cross_entropy import Best, maximise  # noqa: E402
from bayesdrop.control.dynamics import DynamicsModel, fit_dynamics  # noqa: E402
from bayesdrop.control.features import StateFeatures  # noqa: E402
from bayesdrop.control.functions import HeldFunctions  # noqa: E402
from bayesdrop.control.mpc import MPC  # noqa: E402
from bayesdrop.control.planning import Planner, imitate  # noqa: E402
from bayesdrop.control.policies import MLPPolicy, RBFPolicy  # noqa: E402
from bayesdrop.control.policy_search import Found, PolicySearch  # noqa: E402
from bayesdrop.control.policy_stack import PolicyStack  # noqa: E402
from bayesdrop.control.rollout import Rollout, Simulator, moment_matched, rollout  # noqa: E402
from bayesdrop.control.transitions import Transitions  # noqa: E402
from bayesdrop.control.worlds import (  # noqa: E402
    CartPoleSwingUp,
    CartPoleSwingUpVector,
    cart_pole_reward,
)

__all__ = [
    "MPC",
    "Best",
    "CartPoleSwingUp",
    "CartPoleSwingUpVector",
    "DynamicsModel",
    "Found",
    "HeldFunctions",
    "MLPPolicy",
    "Planner",
    "PolicySearch",
    "PolicyStack",
    "RBFPolicy",
    "Rollout",
    "Simulator",
    "StateFeatures",
    "Transitions",
    "cart_pole_reward",
    "fit_dynamics",
    "imitate",
    "maximise",
    "moment_matched",
    "rollout",
]
