"""moments_of_tape: one pass over a tape that carries means and variances instead of numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayesdrop.noise import KeepNoise, Noise
from bayesdrop.operations import canonical, names, writes_in_place
from bayesdrop.predict.moments import arithmetic, elementwise, norms, pooling, shapes
from bayesdrop.predict.moments.ties import noise_to_follow
from bayesdrop.predict.moments.values import Moments, Rule, is_random, mean_of, unsupported
from bayesdrop.trace import Leaf, Op, Tape

__all__ = ["FOLLOWED", "RULES", "bytes_needed", "moments_of_tape"]

#: how many values of noise are followed at most, by default
FOLLOWED = 512
_LIKE = names(like=True)
_VIEWS = names(moves="view")
#: every function of a random value that can be followed
RULES: dict[str, Rule] = {
    **shapes.RULES,
    **arithmetic.RULES,
    **elementwise.RULES,
    **pooling.RULES,
    **norms.RULES,
}


@torch.no_grad()
def moments_of_tape(tape: Tape, *, followed: int = FOLLOWED, strict: bool = True) -> tuple[Tensor, Tensor]:
    """Mean and variance of a tape's output, in one pass and without draws.

    Every value is taken as Gaussian, with a mean and a variance for each element. Where elements that
    share noise are combined, that noise is followed: covariances are kept, to first order.

    Args:
        tape: the part of a pass that depends on noise, recorded with noise that rows share.
        followed: how many values of noise may be followed. Each costs as much as a few draws.
        strict: raise if that is not enough; else elements are taken as independent, whatever the error.

    Returns: mean and variance, each of the output's shape.
    Raises: ValueError, naming the first operation that has no rule.
    """
    _check_rules(tape)
    chosen = _chosen(tape, followed, strict=strict)
    values: list[Any] = [None] * tape.size
    for leaf in tape.leaves:
        values[leaf.index] = _noise(leaf, follow=leaf.index in chosen)
    aliases = _Aliases()
    for op, dead in zip(tape.ops, tape._release, strict=True):
        name = canonical(op.func)
        aliases.check(op, name)
        if any(is_random(values[index]) for index in op.refs):
            args, kwargs = op.filled(op.args, values), op.filled(op.kwargs, values)
            if "input" in kwargs and not args:
                args = (kwargs.pop("input"),)
            _store(op, RULES[name](_out_of_place(op), args, kwargs), values)
        else:
            op.run(values)
        for index in dead:
            values[index] = None
    output = values[tape.output]
    return (output.mean, output.variance) if is_random(output) else (output, torch.zeros_like(output))


def bytes_needed(tape: Tape, *, followed: int = FOLLOWED) -> int:
    """Memory of `moments_of_tape`, roughly: each followed value of noise takes as much as a draw."""
    count = sum(_size(leaf) for leaf in tape.leaves if leaf.index in _chosen(tape, followed, strict=False))
    largest = max((math.prod(shape) for op in tape.ops for shape in op.shapes), default=0)
    item = max((leaf.dtype.itemsize for leaf in tape.leaves), default=4)
    return 3 * (count + 2) * largest * item


def _size(leaf: Leaf) -> int:
    return math.prod(leaf.shape)


def _check_rules(tape: Tape) -> None:
    random = {leaf.index for leaf in tape.leaves}
    for op in tape.ops:
        name = canonical(op.func)
        if random.isdisjoint(op.refs) or name in _LIKE:
            continue
        if name not in RULES:
            raise unsupported(op.name)
        random.update(op.outputs)


def _chosen(tape: Tape, limit: int, *, strict: bool) -> set[int]:
    """The leaves that are followed: those that must be, the smallest first if there are too many."""
    needed = noise_to_follow(tape)
    leaves = sorted((leaf for leaf in tape.leaves if leaf.index in needed), key=_size)
    chosen: set[int] = set()
    used = 0
    for leaf in leaves:
        used += _size(leaf)
        if used <= limit:
            chosen.add(leaf.index)
        elif strict:
            raise ValueError(
                f"predict: method='moments' has no rule for {needed[leaf.index]} of values that share the "
                f"noise of {leaf.key!r}, as at most {limit} values of noise can be followed and there are "
                f"{sum(_size(leaf) for leaf in leaves)}; use method='draws'."
            )
    return chosen


def _noise(leaf: Leaf, *, follow: bool) -> Moments:
    noise = leaf.sample
    if not isinstance(noise, Noise):
        raise unsupported(f"the noise of {leaf.key!r}", "its mean and variance are not known")
    mean, variance = (
        value.to(leaf.device, leaf.dtype).expand(leaf.shape) for value in (noise.mean, noise.variance)
    )
    mask = isinstance(noise, KeepNoise) and bool((mean == 1).all())
    if not follow:
        return Moments(mean, variance, mask=mask)
    loading = torch.diag(variance.reshape(-1).sqrt()).reshape(-1, *leaf.shape)
    return Moments(mean, torch.zeros_like(mean), {leaf.index: loading}, mask=mask)


def _out_of_place(op: Op) -> Callable[..., Any]:
    """The function of an operation, changed to leave its argument as it is."""
    if not writes_in_place(op.name, op.args, op.kwargs):
        return op.func

    @functools.wraps(op.func)
    def copying(first: Tensor, *args: Any, **kwargs: Any) -> Any:
        return op.func(first.clone(), *args, **kwargs)

    return copying


def _store(op: Op, result: Any, values: list[Any]) -> None:
    results = result if isinstance(result, tuple) else (result,)
    for index, value in zip(op.outputs, results, strict=True):
        if not mean_of(value).is_floating_point():
            raise unsupported(op.name, f"its result is {mean_of(value).dtype}")
        values[index] = value


class _Aliases:
    """Which values share memory: one that was written through another must not be read again."""

    def __init__(self) -> None:
        self._root: dict[int, int] = {}
        self._stale: set[int] = set()

    def check(self, op: Op, name: str) -> None:
        """Note what an operation does to memory; raise if it reads what was overwritten."""
        if self._stale.intersection(op.refs):
            raise unsupported(op.name, "its argument was changed in place through another view")
        changes = writes_in_place(op.name, op.args, op.kwargs)
        first = op.refs[0] if op.refs and (changes or name in _VIEWS) else None
        for index in op.outputs:
            self._root[index] = index if first is None else self._root.get(first, first)
        if changes and first is not None:
            root = self._root[op.outputs[0]]
            same = {index for index, other in self._root.items() if other == root} | {root}
            self._stale |= same - set(op.outputs)
