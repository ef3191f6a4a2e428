"""A picture of an eye world, drawn pixel by pixel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesdrop.control.worlds.eyes import (
    EYE_RANGE,
    EYES,
    FOOD,
    HEIGHT,
    NOTHING,
    RADIUS,
    WALL,
    WALLS,
    WIDTH,
    Plane,
)

__all__ = ["draw_plane"]

Picture = NDArray[np.uint8]

_PAPER, _INK = (255, 255, 255), (40, 40, 40)
# A colour of Okabe and Ito for each kind of thing that an eye sees, and grey for nothing.
_FOOD, _POISON, _NOTHING, _AGENT = (0, 158, 115), (213, 94, 0), (190, 190, 190), (0, 114, 178)


def draw_plane(plane: Plane, place: int = 0) -> Picture:
    """World `place` as a picture (500, 700, 3): walls dark, food green, poison orange, the agent blue.

    The ray of every eye ends at what it sees and has the colour of that.
    """
    picture: Picture = np.full((HEIGHT, WIDTH, 3), _PAPER, np.uint8)
    for x, y, other_x, other_y in WALLS:
        _line(picture, x, y, other_x, other_y, _INK, thick=2)
    for x, y, kind in zip(plane.item_x[place], plane.item_y[place], plane.item_kind[place], strict=True):
        if kind != NOTHING:
            _disc(picture, x, y, _FOOD if kind == FOOD else _POISON)
    x, y = float(plane.x[place]), float(plane.y[place])
    for eye, kind, share in zip(EYES, plane.seen_kind[place], plane.seen_distance[place], strict=True):
        heading, length = plane.angle[place] + eye, EYE_RANGE * share
        color = {WALL: _INK, FOOD: _FOOD, NOTHING: _NOTHING}.get(int(kind), _POISON)
        _line(picture, x, y, x + length * np.sin(heading), y + length * np.cos(heading), color)
    _disc(picture, x, y, _AGENT)
    return picture


def _disc(picture: Picture, x: float, y: float, color: tuple[int, int, int]) -> None:
    left, top = max(int(x - RADIUS), 0), max(int(y - RADIUS), 0)
    part = picture[top : int(y + RADIUS) + 2, left : int(x + RADIUS) + 2]
    rows, columns = np.ogrid[top : top + part.shape[0], left : left + part.shape[1]]
    part[(columns - x) ** 2 + (rows - y) ** 2 <= RADIUS**2] = color


def _line(
    picture: Picture,
    x: float,
    y: float,
    other_x: float,
    other_y: float,
    color: tuple[int, int, int],
    thick: int = 1,
) -> None:
    """Draw a line by two points a pixel, so that no pixel is left out; parts outside are not drawn."""
    count = int(2 * max(abs(other_x - x), abs(other_y - y))) + 2
    columns = np.rint(np.linspace(x, other_x, count)).astype(int)
    rows = np.rint(np.linspace(y, other_y, count)).astype(int)
    for down in range(thick):
        for right in range(thick):
            inside = (rows + down >= 0) & (rows + down < HEIGHT) & (columns + right >= 0)
            inside &= columns + right < WIDTH
            picture[rows[inside] + down, columns[inside] + right] = color
