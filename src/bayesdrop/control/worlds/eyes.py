"""The plane of the eye world: walls, rays, items and the agent's motion, for many worlds at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ACTIONS",
    "EYES",
    "EYE_RANGE",
    "FOOD",
    "HEIGHT",
    "NOTHING",
    "NUM_ITEMS",
    "POISON",
    "RADIUS",
    "WALL",
    "WALLS",
    "WIDTH",
    "Plane",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WIDTH, HEIGHT = 700, 500
RADIUS, EYE_RANGE, NUM_ITEMS = 10.0, 85.0, 30
#: what an eye may see, in the order of its three numbers; also the kinds of items
WALL, FOOD, POISON, NOTHING = 0, 1, 2, 3
#: (9,) angles of the eyes against the agent's own, in radians
EYES: Floats = np.arange(-3.0, 6.0) * 0.25
#: (5, 2) by how much either wheel turns the agent
ACTIONS: Floats = np.array([[1.0, 1.0], [0.8, 1.0], [1.0, 0.8], [0.5, 0.0], [0.0, 0.5]])
FOOD_REWARD, POISON_REWARD = 5.0, -6.0

_OLD, _REMOVE_EVERY, _REMOVE_CHANCE = 5000, 100, 0.1
_ADD_EVERY, _ADD_CHANCE = 10, 0.25
_HALF_AXLE = 5.0
#: coordinates of missing items, far from every eye and agent
_AWAY = -1e6


def _box(x: float, y: float, width: float, height: float) -> list[tuple[float, float, float, float]]:
    """The four sides of a box, the left one last."""
    right, low = x + width, y + height
    return [(x, y, right, y), (right, y, right, low), (right, low, x, low), (x, low, x, y)]


#: (10, 4) both ends of every wall: the outer rectangle, and two boxes without their left side
WALLS: Floats = np.array(
    [*_box(10, 10, 680, 480), *_box(100, 100, 200, 300)[:3], *_box(400, 100, 200, 300)[:3]]
)
_X, _Y = WALLS[:, 0], WALLS[:, 1]
_ALONG_X, _ALONG_Y = WALLS[:, 2] - _X, WALLS[:, 3] - _Y


def wall_distance(x: Floats, y: Floats, step_x: Floats, step_y: Floats) -> Floats:
    """Where lines from (x, y) to (x + step_x, y + step_y) first meet a wall, as a share of their length.

    Two segments p + t d and w + u e meet where t = (w - p) x e / (d x e) and u = (w - p) x d / (d x e) are
    both strictly between 0 and 1.

    Args:
        x: starts, of any shape; so are the others.
        y: as x.
        step_x: from the start to the end.
        step_y: as step_x.

    Returns: in (0, 1), or infinity where no wall is met.
    """
    far_x, far_y = _X - x[..., None], _Y - y[..., None]
    dx, dy = step_x[..., None], step_y[..., None]
    across = dx * _ALONG_Y - dy * _ALONG_X
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (far_x * _ALONG_Y - far_y * _ALONG_X) / across
        u = (far_x * dy - far_y * dx) / across
    met = (t > 0) & (t < 1) & (u > 0) & (u < 1)
    found: Floats = np.where(met, t, np.inf).min(-1)
    return found


class Plane:
    """W worlds side by side: the state of each, what its eyes see, and one tick of all of them.

    An item is seen where the perpendicular from its centre meets the ray, if that is at most 10 long and
    its foot lies strictly within the ray: the distance is that of the foot. (The published code puts the
    foot on the wrong side of items on one side of a ray, which shifts what is seen by up to 20 pixels.)

    Args:
        generators: of random numbers, one for each world; a world does not depend on the others.
        doubled_proximity: double the mean distance from walls, up to 1, in the reward, as the demo that the
            world comes from does.

    Attributes:
        x, y, angle: (W,) of the agents.
        item_x, item_y, item_kind, item_age: (W, 30); kind NOTHING where there is no item.
        tick: (W,) ticks since the world began.
        seen_kind: (W, 9) WALL, FOOD, POISON or NOTHING.
        seen_distance: (W, 9) distance of what is seen as a share of the eyes' range; 1 for nothing.
        eaten: (W, 2) food and poison eaten since the world began.
    """

    def __init__(self, generators: Sequence[np.random.Generator], *, doubled_proximity: bool = False) -> None:
        self.generators = list(generators)
        self.doubled_proximity = doubled_proximity
        worlds = len(self.generators)
        self.x, self.y, self.angle = np.zeros(worlds), np.zeros(worlds), np.zeros(worlds)
        self.item_x, self.item_y = np.zeros((worlds, NUM_ITEMS)), np.zeros((worlds, NUM_ITEMS))
        self.item_kind: Ints = np.full((worlds, NUM_ITEMS), NOTHING)
        self.item_age: Ints = np.zeros((worlds, NUM_ITEMS), np.int64)
        self.tick: Ints = np.zeros(worlds, np.int64)
        self.seen_kind: Ints = np.full((worlds, len(EYES)), NOTHING)
        self.seen_distance = np.ones((worlds, len(EYES)))
        self.eaten: Ints = np.zeros((worlds, 2), np.int64)
        self._rows = np.arange(worlds)[:, None]
        self.begin(range(worlds))

    def begin(self, places: Sequence[int]) -> None:
        """Reset some of the worlds; their generators go on."""
        for place in places:
            source = self.generators[place]
            self.x[place], self.y[place], self.angle[place] = 50.0, 50.0, 0.0
            self.tick[place], self.eaten[place] = 0, 0
            for slot in range(NUM_ITEMS):
                self._put_item(place, slot, source)
        self.look()

    def _put_item(self, place: int, slot: int, source: np.random.Generator) -> None:
        """A new item, anywhere at least 20 from the edge, food or poison with equal chances."""
        self.item_x[place, slot] = source.uniform(20, WIDTH - 20)
        self.item_y[place, slot] = source.uniform(20, HEIGHT - 20)
        self.item_kind[place, slot] = FOOD if source.random() < 0.5 else POISON
        self.item_age[place, slot] = 0

    def _take_item(self, place: int, slot: int) -> None:
        self.item_kind[place, slot] = NOTHING
        self.item_x[place, slot] = self.item_y[place, slot] = _AWAY

    def look(self) -> None:
        """What every eye sees: the nearest wall or item that its ray meets."""
        heading = self.angle[:, None] + EYES
        dx, dy = np.sin(heading), np.cos(heading)
        x, y = np.broadcast_to(self.x[:, None], dx.shape), np.broadcast_to(self.y[:, None], dy.shape)
        wall = wall_distance(x, y, EYE_RANGE * dx, EYE_RANGE * dy)
        far_x, far_y = (self.item_x - self.x[:, None])[:, None], (self.item_y - self.y[:, None])[:, None]
        dx, dy = dx[:, :, None], dy[:, :, None]
        foot = (far_x * dx + far_y * dy) / EYE_RANGE
        aside = far_x * dy - far_y * dx
        met = (np.abs(aside) <= RADIUS) & (foot > 0) & (foot < 1)
        foot = np.where(met, foot, np.inf)
        nearest = foot.argmin(-1)
        item = foot.min(-1)
        kind = self.item_kind[self._rows, nearest]
        self.seen_kind = np.where(item < wall, kind, np.where(wall < 1, WALL, NOTHING))
        self.seen_distance = np.minimum(np.minimum(item, wall), 1.0)

    def inputs(self) -> NDArray[np.float32]:
        """(W, 27) three numbers of each eye: the distance for what it sees, 1 for the others."""
        slots = np.ones((*self.seen_kind.shape, 3), np.float32)
        world, eye = np.nonzero(self.seen_kind != NOTHING)
        slots[world, eye, self.seen_kind[world, eye]] = self.seen_distance[world, eye]
        return slots.reshape(len(slots), -1)

    def step(self, actions: Ints) -> Floats:
        """One tick of every world: reward for what is seen, move, eat, remove and add items, look.

        Args:
            actions: (W,) one of the five, by number.

        Returns: (W,) rewards.
        """
        reward = self._comfort(actions)
        self._move(actions)
        self.tick += 1
        self.item_age += 1
        reward += self._eat()
        self._renew()
        self.look()
        return reward

    def _comfort(self, actions: Ints) -> Floats:
        """Reward for keeping away from walls, and for going straight on while there is room."""
        near = np.where(self.seen_kind == WALL, self.seen_distance, 1.0).mean(1)
        if self.doubled_proximity:
            near = np.minimum(1.0, 2 * near)
        forward: Floats = np.where((actions == 0) & (near > 0.75), 0.1 * near, 0.0)
        comfort: Floats = near + forward
        return comfort

    def _move(self, actions: Ints) -> None:
        """Each wheel turns the agent about the other; where a wall is in the way, the agent only turns.

        With b = angle + pi/2 and wheels 5 from the centre at +-v, v = 5 (sin b, cos b), the two turns have
        the mean p + (Rot(-rot1) v - Rot(rot2) v) / 2, and Rot(a) v = 5 (sin(b + a), cos(b + a)).
        """
        first, second = ACTIONS[actions].T
        across = self.angle + 0.5 * np.pi
        step_x = 0.5 * _HALF_AXLE * (np.sin(across - first) - np.sin(across + second))
        step_y = 0.5 * _HALF_AXLE * (np.cos(across - first) - np.cos(across + second))
        free = np.isinf(wall_distance(self.x, self.y, step_x, step_y))
        self.x = np.clip(np.where(free, self.x + step_x, self.x), 0, WIDTH)
        self.y = np.clip(np.where(free, self.y + step_y, self.y), 0, HEIGHT)
        turned = self.angle - first
        turned = np.where(turned < 0, turned + 2 * np.pi, turned) + second
        self.angle = np.where(turned > 2 * np.pi, turned - 2 * np.pi, turned)

    def _eat(self) -> Floats:
        """Remove the items that touch the agent, with no wall between; the rewards, (W,)."""
        reward = np.zeros(len(self.x))
        step_x, step_y = self.item_x - self.x[:, None], self.item_y - self.y[:, None]
        places, slots = np.nonzero(step_x * step_x + step_y * step_y < (2 * RADIUS) ** 2)
        if not len(places):
            return reward
        between = wall_distance(self.x[places], self.y[places], step_x[places, slots], step_y[places, slots])
        open_way = np.isinf(between)
        for place, slot in zip(places[open_way].tolist(), slots[open_way].tolist(), strict=True):
            kind = self.item_kind[place, slot]
            reward[place] += FOOD_REWARD if kind == FOOD else POISON_REWARD
            self.eaten[place, 0 if kind == FOOD else 1] += 1
            self._take_item(place, slot)
        return reward

    def _renew(self) -> None:
        """At some ticks, remove old items by chance, and add one where there are fewer than thirty."""
        for place in np.flatnonzero(self.tick % _REMOVE_EVERY == 0).tolist():
            there = self.item_kind[place] != NOTHING
            for slot in np.flatnonzero(there & (self.item_age[place] > _OLD)).tolist():
                if self.generators[place].random() < _REMOVE_CHANCE:
                    self._take_item(place, slot)
        due = self.tick % _ADD_EVERY == 0
        if not due.any():
            return
        for place in np.flatnonzero(due & (self.item_kind == NOTHING).any(1)).tolist():
            source = self.generators[place]
            if source.random() < _ADD_CHANCE:
                self._put_item(place, int(np.flatnonzero(self.item_kind[place] == NOTHING)[0]), source)
