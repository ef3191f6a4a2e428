"""Worlds as Gymnasium environments: `gymnasium.make("bayesdrop/EyeWorld-v0")` once this is imported."""

import gymnasium

from bayesdrop.control.worlds.deep_sea import DeepSea, DeepSeaVector
from bayesdrop.control.worlds.eye_world import EyeWorld, EyeWorldVector

__all__ = ["DeepSea", "DeepSeaVector", "EyeWorld", "EyeWorldVector"]

for _name, _one, _many in (("EyeWorld", EyeWorld, EyeWorldVector), ("DeepSea", DeepSea, DeepSeaVector)):
    gymnasium.register(f"bayesdrop/{_name}-v0", entry_point=_one, vector_entry_point=_many)  # type: ignore[arg-type]
