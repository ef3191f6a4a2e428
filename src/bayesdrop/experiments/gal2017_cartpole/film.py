"""The swing-up as a film."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesdrop.control.worlds.cart_pole_picture import cart_pole_picture
from bayesdrop.experiments.row import Outcome

__all__ = ["film"]


def film(outcome: Outcome) -> list[np.ndarray[Any, Any]]:
    """Frames (200, 320, 3) of the last trial of the first agent, one a step of 0.1 s."""
    last = max(int(name.split()[1]) for name in outcome.arrays if name.startswith("real "))
    states = np.asarray(outcome.arrays[f"real {last}"], dtype=float)
    frames = [cart_pole_picture(state, pole_length=0.6) for state in states]
    # The end stays for half a second before it begins again.
    return [*frames, *([frames[-1]] * 5)]
