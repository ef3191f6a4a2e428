"""FGSM and PGD: one step along the gradient, or many."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from bayesdrop.attacks.ball import BALLS, Ball, Norm
from bayesdrop.attacks.gradient import Climb, Goal, Through, checked_climb, outside_inference
from bayesdrop.errors import is_one_of, must, must_be_flag, real_number, whole_number
from bayesdrop.likelihoods import Likelihood

__all__ = ["fgsm", "pgd"]


class _Room(NamedTuple):
    """The region in which attacked inputs may lie."""

    ball: Ball
    eps: float
    clamp: tuple[float, float] | None

    def inside(self, x: Tensor, moved: Tensor) -> Tensor:
        """The nearest change in the ball, then the nearest values in the range."""
        near = x + self.ball.project(moved - x, self.eps)
        return near if self.clamp is None else near.clamp(*self.clamp)


def _checked_room(owner: str, x: Tensor, eps: float, norm: Norm, clamp: tuple[float, float] | None) -> _Room:
    eps = real_number(owner, "eps", eps, "a number of at least 0, up to 1e15", at_least=0, at_most=1e15)
    if not is_one_of(norm, tuple(BALLS)):
        raise ValueError(must(owner, "norm", "'linf' or 'l2'", norm))
    if clamp is not None:
        want = "None, or (low, high) with low below high"
        if not isinstance(clamp, tuple | list) or len(clamp) != 2:
            raise ValueError(must(owner, "clamp", want, clamp))
        low, high = (real_number(owner, "clamp", end, want) for end in clamp)
        if not low < high:
            raise ValueError(must(owner, "clamp", want, clamp))
        if float(x.min()) < low or float(x.max()) > high:
            seen = f"values from {float(x.min()):.4g} to {float(x.max()):.4g}"
            hint = "Pass clamp=None, or the range that inputs have."
            raise ValueError(must(owner, "x", f"within clamp={low:g}, {high:g}", seen, hint))
        clamp = (low, high)
    return _Room(BALLS[norm], eps, clamp)


def fgsm(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    likelihood: Likelihood,
    *,
    eps: float,
    norm: Norm = "linf",
    clamp: tuple[float, float] | None = None,
    through: Through = "mean",
    num_draws: int = 10,
    goal: Goal = "wrong",
    batch_size: int = 500,
    seed: int = 0,
) -> Tensor:
    """Inputs after one step of size eps along the gradient: the fast gradient (sign) method.

        x' = x + eps sign(g)  (linf),    x + eps g / |g|  (l2),        g of `loss_gradient`

    Args:
        model: any module; it is left as it was.
        x: (N, ...) inputs.
        y: targets: the right ones, which the attack moves away from.
        likelihood: what the outputs mean, as `Categorical()`.
        eps: how far a row may move.
        norm: of that distance: "linf", the largest change, or "l2".
        clamp: (low, high) in which all values stay, as (0, 1) for images; None for no such range.
        through: the network that the attacker knows: "mean", the averaged weights, or "draws", the mean of
            gradients of `num_draws` functions.
        num_draws: of through="draws". A few draws of a network with high rates give a noisy direction, which
            can do less harm than "mean".
        goal: "wrong" lowers the likelihood of y; "sure" raises that of the most probable other class.
        batch_size: rows at a time; the result does not depend on it, except for rounding.
        seed: of the functions.

    Returns: (N, ...), detached.
    Reference: Goodfellow, Shlens & Szegedy (2015).
    """
    climb = checked_climb(
        "attacks.fgsm", model, x, y, likelihood, through=through, num_draws=num_draws, seed=seed, goal=goal
    )
    room = _checked_room("attacks.fgsm", x, eps, norm, clamp)
    batch_size = whole_number("attacks.fgsm", "batch_size", batch_size, at_least=1)
    with outside_inference():
        start = x.detach().clone()
        return _climbed(climb, room, start, start, y, steps=1, step_size=room.eps, batch_size=batch_size)


def pgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    likelihood: Likelihood,
    *,
    eps: float,
    norm: Norm = "linf",
    steps: int = 20,
    step_size: float | None = None,
    random_start: bool = True,
    clamp: tuple[float, float] | None = None,
    through: Through = "mean",
    num_draws: int = 10,
    goal: Goal = "wrong",
    batch_size: int = 500,
    seed: int = 0,
) -> Tensor:
    """Inputs after many steps along the gradient, each put back into the ball: projected gradient ascent.

        x_0 = x, or a point of the ball;    x_{s+1} = P( x_s + a d(g_s) ),    d(g) = sign(g)  or  g / |g|

    P takes the nearest change of norm at most eps, then the nearest values in the range of `clamp`. With
    through="draws" step s uses functions s T to (s + 1) T - 1 of `seed`: an expectation over dropout, with
    new draws in every step.

    Args:
        model: any module; it is left as it was.
        x: (N, ...) inputs.
        y: targets: the right ones, which the attack moves away from.
        likelihood: what the outputs mean, as `Categorical()`.
        eps: how far a row may move.
        norm: of that distance: "linf", the largest change, or "l2".
        steps: how many.
        step_size: a; 2.5 eps / steps if None, which is enough to cross the ball.
        random_start: begin at a point drawn uniformly from the ball, and not at `x`.
        clamp: (low, high) in which all values stay, as (0, 1) for images; None for no such range.
        through: the network that the attacker knows: "mean", the averaged weights, or "draws", the mean of
            gradients of `num_draws` functions.
        num_draws: of through="draws". A few draws of a network with high rates give a noisy direction, which
            can do less harm than "mean".
        goal: "wrong" lowers the likelihood of y; "sure" raises that of the most probable other class.
        batch_size: rows at a time; the result does not depend on it, except for rounding.
        seed: of the start and of the functions.

    Returns: (N, ...), detached.
    Reference: Madry et al. (2018), section 2.1; Athalye et al. (2018), on randomised networks.
    """
    climb = checked_climb(
        "attacks.pgd", model, x, y, likelihood, through=through, num_draws=num_draws, seed=seed, goal=goal
    )
    room = _checked_room("attacks.pgd", x, eps, norm, clamp)
    must_be_flag("attacks.pgd", random_start=random_start)
    batch_size = whole_number("attacks.pgd", "batch_size", batch_size, at_least=1)
    steps = whole_number("attacks.pgd", "steps", steps, at_least=1, at_most=10**6)
    if step_size is None:
        step_size = 2.5 * room.eps / steps
    else:
        want = "a positive number, up to 1e15"
        step_size = real_number("attacks.pgd", "step_size", step_size, want, above=0, at_most=1e15)
    with outside_inference():
        centre = start = x.detach().clone()
        if random_start:
            generator = torch.Generator().manual_seed(climb.seed)
            start = room.inside(centre, centre + room.ball.uniform(centre, room.eps, generator))
        return _climbed(
            climb, room, centre, start, y, steps=steps, step_size=step_size, batch_size=batch_size
        )


def _climbed(
    climb: Climb,
    room: _Room,
    x: Tensor,
    start: Tensor,
    y: Tensor,
    *,
    steps: int,
    step_size: float,
    batch_size: int,
) -> Tensor:
    """The inputs after all steps, some rows at a time."""
    parts = []
    for first in range(0, len(x), batch_size):
        rows = slice(first, first + batch_size)
        now, centre, targets = start[rows], x[rows], y[rows]
        for step in range(steps):
            slope = room.ball.steepest(climb.gradient(now, targets, step))
            now = room.inside(centre, now + step_size * slope)
        parts.append(now)
    return torch.cat(parts)
