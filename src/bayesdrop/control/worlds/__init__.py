"""Worlds as Gymnasium environments: `gymnasium.make("bayesdrop/CartPoleSwingUp-v0")` once imported."""

import gymnasium

from bayesdrop.control.worlds.cart_pole import CartPoleSwingUp, CartPoleSwingUpVector
from bayesdrop.control.worlds.cart_pole_physics import cart_pole_reward

__all__ = ["CartPoleSwingUp", "CartPoleSwingUpVector", "cart_pole_reward"]

for _name, _one, _many in (("CartPoleSwingUp", CartPoleSwingUp, CartPoleSwingUpVector),):
    gymnasium.register(f"bayesdrop/{_name}-v0", entry_point=_one, vector_entry_point=_many)  # type: ignore[arg-type]
