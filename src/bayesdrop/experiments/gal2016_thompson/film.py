"""A film of a trained agent: its actions, done again in the same world."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.control.worlds import EyeWorld
from bayesdrop.experiments.gal2016_thompson.lives import FILM_SEED
from bayesdrop.experiments.row import Outcome

__all__ = ["film"]

#: every third tick is a frame, and 2 x 2 pixels become one
_EVERY, _SMALLER = 3, 2


def film(outcome: Outcome) -> NDArray[np.uint8]:
    """Frames (F, 250, 350, 3) of the agent whose actions are in the outcome."""
    actions: Any = outcome.arrays["film"]
    world = EyeWorld(render_mode="rgb_array")
    world.reset(seed=FILM_SEED)
    frames = []
    for tick, action in enumerate(actions):
        if tick % _EVERY == 0:
            picture = world.render()
            assert picture is not None
            blocks = picture.reshape(500 // _SMALLER, _SMALLER, 700 // _SMALLER, _SMALLER, 3)
            frames.append(blocks.mean((1, 3)).round().astype(np.uint8))
        world.step(np.int64(action))
    return np.stack(frames)
