"""Worlds as Gymnasium environments: `gymnasium.make("bayesdrop/EyeWorld-v0")` once this is imported."""

import gymnasium

from bayesdrop.control.worlds.cart_pole import CartPoleSwingUp, CartPoleSwingUpVector
from bayesdrop.control.worlds.cart_pole_physics import cart_pole_reward
from bayesdrop.control.worlds.deep_sea import DeepSea, DeepSeaVector
from bayesdrop.control.worlds.eye_world import EyeWorld, EyeWorldVector

__all__ = [
    "CartPoleSwingUp",
    "CartPoleSwingUpVector",
    "DeepSea",
    "DeepSeaVector",
    "EyeWorld",
    "EyeWorldVector",
    "cart_pole_reward",
]

for _name, _one, _many in (
    ("CartPoleSwingUp", CartPoleSwingUp, CartPoleSwingUpVector),
    ("DeepSea", DeepSea, DeepSeaVector),
    ("EyeWorld", EyeWorld, EyeWorldVector),
):
    gymnasium.register(f"bayesdrop/{_name}-v0", entry_point=_one, vector_entry_point=_many)  # type: ignore[arg-type]
