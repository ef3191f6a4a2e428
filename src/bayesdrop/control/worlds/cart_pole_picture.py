"""A picture of the cart and its pole, pixel by pixel."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["cart_pole_picture"]

_WHITE, _INK, _BLUE, _ORANGE, _GREY = (
    np.array(color, dtype=float)
    for color in ((255, 255, 255), (40, 40, 40), (0, 114, 178), (213, 94, 0), (200, 200, 200))
)
_METRES = 2.6  #: from the left edge to the right one
Image = np.ndarray[Any, np.dtype[np.uint8]]


def cart_pole_picture(
    state: np.ndarray[Any, Any], *, pole_length: float, width: int = 320, height: int = 200
) -> Image:
    """A picture of the cart (blue), the pole (orange), and the goal of its tip (a grey ring).

    Args:
        state: (4,).
        pole_length: in metres.
        width: in pixels.
        height: in pixels.

    Shape: (height, width, 3), bytes.
    """
    scale = width / _METRES
    across = (np.arange(width) + 0.5 - width / 2) / scale
    up = (height * 0.55 - np.arange(height) - 0.5) / scale
    x, y = np.meshgrid(across, up)
    cart, angle = float(state[0]), float(state[2])
    tip = (cart + pole_length * np.sin(angle), -pole_length * np.cos(angle))
    to_target = np.hypot(x, y - pole_length)
    parts = (
        (np.abs(y) - 0.004, _GREY),
        (np.abs(to_target - 0.06) - 0.008, _GREY),
        (np.maximum(np.abs(x - cart) - 0.16, np.abs(y) - 0.06), _BLUE),
        (_to_segment(x, y, (cart, 0.0), tip) - 0.022, _ORANGE),
        (np.hypot(x - cart, y) - 0.03, _INK),
    )
    picture = np.broadcast_to(_WHITE, (height, width, 3))
    for outside, color in parts:
        # Edges are blended over a pixel, so that they look smooth.
        cover = np.clip(0.5 - outside * scale, 0, 1)[..., None]
        picture = picture * (1 - cover) + color * cover
    return picture.round().astype(np.uint8)


def _to_segment(
    x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], start: tuple[float, float], end: tuple[float, float]
) -> np.ndarray[Any, Any]:
    """Distance of every point from a segment."""
    along = (end[0] - start[0], end[1] - start[1])
    share = ((x - start[0]) * along[0] + (y - start[1]) * along[1]) / (along[0] ** 2 + along[1] ** 2)
    share = np.clip(share, 0, 1)
    distance: np.ndarray[Any, Any] = np.hypot(
        x - start[0] - share * along[0], y - start[1] - share * along[1]
    )
    return distance
