"""The eye world once more, one world and one number at a time, as its description has it."""

from __future__ import annotations

import math
from typing import NamedTuple


class Item(NamedTuple):
    x: float
    y: float
    kind: int  # 1 food, 2 poison


Point = tuple[float, float]


def _sides(x: float, y: float, w: float, h: float) -> list[tuple[Point, Point]]:
    return [
        ((x, y), (x + w, y)),
        ((x + w, y), (x + w, y + h)),
        ((x + w, y + h), (x, y + h)),
        ((x, y + h), (x, y)),
    ]


WALLS = _sides(10, 10, 680, 480) + _sides(100, 100, 200, 300)[:-1] + _sides(400, 100, 200, 300)[:-1]
TURNS = [(1, 1), (0.8, 1), (1, 0.8), (0.5, 0), (0, 0.5)]


def crossing(a: Point, b: Point, c: Point, d: Point) -> float | None:
    """How far from a to b the segment c d is met, by Cramer's rule on a + t (b - a) = c + u (d - c)."""
    m11, m12 = b[0] - a[0], -(d[0] - c[0])
    m21, m22 = b[1] - a[1], -(d[1] - c[1])
    determinant = m11 * m22 - m12 * m21
    if determinant == 0:
        return None
    r1, r2 = c[0] - a[0], c[1] - a[1]
    t = (r1 * m22 - m12 * r2) / determinant
    u = (m11 * r2 - r1 * m21) / determinant
    return t if 0 < t < 1 and 0 < u < 1 else None


def blocked(a: Point, b: Point) -> bool:
    return any(crossing(a, b, c, d) is not None for c, d in WALLS)


def see(place: Point, angle: float, items: list[Item]) -> list[tuple[int, float]]:
    """Kind (0 wall, 1 food, 2 poison, 3 nothing) and share of the range, of all nine eyes."""
    found = []
    for k in range(9):
        heading = angle + (k - 3) * 0.25
        end = (place[0] + 85 * math.sin(heading), place[1] + 85 * math.cos(heading))
        best, kind = 1.0, 3
        for c, d in WALLS:
            t = crossing(place, end, c, d)
            if t is not None and t < best:
                best, kind = t, 0
        for item in items:
            # The foot of the perpendicular, by projecting onto the ray.
            ex, ey = end[0] - place[0], end[1] - place[1]
            share = ((item.x - place[0]) * ex + (item.y - place[1]) * ey) / (ex * ex + ey * ey)
            foot = (place[0] + share * ex, place[1] + share * ey)
            if math.dist(foot, (item.x, item.y)) <= 10 and 0 < share < 1 and share < best:
                best, kind = share, item.kind
        found.append((kind, best))
    return found


def inputs(seen: list[tuple[int, float]]) -> list[float]:
    values = []
    for kind, share in seen:
        three = [1.0, 1.0, 1.0]
        if kind < 3:
            three[kind] = share
        values += three
    return values


def rotated(x: float, y: float, a: float) -> Point:
    return x * math.cos(a) + y * math.sin(a), -x * math.sin(a) + y * math.cos(a)


def moved(place: Point, angle: float, action: int) -> tuple[Point, float]:
    rot1, rot2 = TURNS[action]
    vx, vy = rotated(0, 5, angle + math.pi / 2)
    w1, w2 = (place[0] + vx, place[1] + vy), (place[0] - vx, place[1] - vy)
    x2, y2 = rotated(place[0] - w2[0], place[1] - w2[1], -rot1)
    x1, y1 = rotated(place[0] - w1[0], place[1] - w1[1], rot2)
    new = (0.5 * (w2[0] + x2) + 0.5 * (w1[0] + x1), 0.5 * (w2[1] + y2) + 0.5 * (w1[1] + y1))
    angle -= rot1
    if angle < 0:
        angle += 2 * math.pi
    angle += rot2
    if angle > 2 * math.pi:
        angle -= 2 * math.pi
    if blocked(place, new):
        new = place
    return (min(max(new[0], 0), 700), min(max(new[1], 0), 500)), angle


def comfort(seen: list[tuple[int, float]], action: int, doubled: bool) -> float:
    prox = sum(share if kind == 0 else 1.0 for kind, share in seen) / 9
    if doubled:
        prox = min(1.0, 2 * prox)
    return prox + (0.1 * prox if action == 0 and prox > 0.75 else 0.0)


def eaten(place: Point, items: list[Item]) -> list[Item]:
    return [
        item
        for item in items
        if math.dist(place, (item.x, item.y)) < 20 and not blocked(place, (item.x, item.y))
    ]
