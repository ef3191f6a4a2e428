"""Acting on uncertainty: worlds to act in, and agents that explore by drawing functions (extra "control")."""

from bayesdrop.errors import require

require("gymnasium", extra="control", owner="bayesdrop.control")

from bayesdrop.control.worlds import DeepSea, DeepSeaVector, EyeWorld, EyeWorldVector  # noqa: E402

__all__ = ["DeepSea", "DeepSeaVector", "EyeWorld", "EyeWorldVector"]
