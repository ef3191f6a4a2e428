"""Which noise must be followed, because elements that depend on it are added or multiplied together.

Means and variances alone are enough as long as every operation combines elements that are independent. A
linear map makes its outputs depend on the same noise; so do values that are copied to several positions.
The next map, mean or product that combines such elements needs their covariances.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from torch import Tensor

from bayesdrop.operations import canonical, names
from bayesdrop.predict.moments import arithmetic, elementwise, norms, pooling, shapes
from bayesdrop.predict.moments.values import named
from bayesdrop.trace import Op, Ref, Tape

__all__ = ["noise_to_follow"]

_Leaves = frozenset[int]
_NONE: _Leaves = frozenset()
_MAPS = names(product=True)
_LIKE = names(like=True)
_REDUCTIONS = frozenset(pooling.RULES) | {"glu"}
_COMBINATIONS = _MAPS | _REDUCTIONS | frozenset(norms.RULES) - {"batch_norm"}
_SUMS_AND_PRODUCTS = frozenset(arithmetic.RULES) - _MAPS
_ONE_BY_ONE = (frozenset(elementwise.RULES) | _SUMS_AND_PRODUCTS | {"batch_norm"}) - {"glu"}


def noise_to_follow(tape: Tape) -> dict[int, str]:
    """The leaves whose covariances matter, and the first operation that needs those of each."""
    ties = _Ties(tape)
    for op in tape.ops:
        ties.pass_through(op)
    return ties.needed


class _Ties:
    def __init__(self, tape: Tape) -> None:
        self.needed: dict[int, str] = {}
        self._rows = next(op.shapes[0][0] for op in tape.ops if tape.output in op.outputs)
        self._shape = {leaf.index: leaf.shape for leaf in tape.leaves}
        self._sizes = {leaf.index: math.prod(leaf.shape) for leaf in tape.leaves}
        #: the noise that a value depends on, and the part of it that several of its elements share
        self._noise: dict[int, _Leaves] = {leaf.index: frozenset({leaf.index}) for leaf in tape.leaves}
        self._shared: dict[int, _Leaves] = {}
        #: the value that a value is a function of, element by element
        self._root: dict[int, int] = {}

    def pass_through(self, op: Op) -> None:
        """Note the covariances that an operation needs, and the noise that its results depend on."""
        name = canonical(op.func)
        refs = [index for index in op.refs if index in self._noise]
        counts = Counter(leaf for index in refs for leaf in self._noise[index])
        twice = frozenset(leaf for leaf, count in counts.items() if count > 1)
        shared = frozenset().union(*(self._shared.get(index, _NONE) for index in refs))
        root = self._common_root(op, name, refs)
        if name in _COMBINATIONS:
            self._need(shared | twice, op)
        elif name in _SUMS_AND_PRODUCTS and root is None:
            self._need(twice, op)
        elif name not in _ONE_BY_ONE:
            shared |= twice
        noise = _NONE if name in _LIKE else frozenset(counts)
        shared |= self._newly_shared(op, name, refs)
        for index, shape in zip(op.outputs, op.shapes, strict=True):
            self._shape[index] = shape
            self._noise[index] = noise - self.needed.keys()
            self._shared[index] = shared - self.needed.keys()
            if root is not None:
                self._root[index] = root

    def _need(self, leaves: _Leaves, op: Op) -> None:
        for leaf in leaves - self.needed.keys():
            self.needed[leaf] = op.name

    def _common_root(self, op: Op, name: str, refs: list[int]) -> int | None:
        """The value that the result is a function of, element by element, as x in x * sigmoid(x)."""
        roots = {self._root.get(index, index) for index in refs}
        if name not in _ONE_BY_ONE or len(roots) != 1:
            return None
        return roots.pop() if all(self._shape[index] == op.shapes[0] for index in refs) else None

    def _newly_shared(self, op: Op, name: str, refs: list[int]) -> _Leaves:
        """The noise that elements of the result share although elements of the arguments did not."""
        found = _NONE
        out = op.shapes[0] if op.shapes else ()
        for index in refs:
            noise = self._noise[index]
            if name in _MAPS:
                found |= noise if index != _weight(op) else self._shared_weights(op, index)
            elif name in _REDUCTIONS:
                found |= noise if self._overlaps(op, index) else _NONE
            elif name in _ONE_BY_ONE:
                found |= noise if self._spreads(self._shape[index], out) else _NONE
            elif name not in shapes.RULES or _repeats(op) or math.prod(out) > math.prod(self._shape[index]):
                found |= noise
        return found

    def _spreads(self, shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
        """Whether an argument is broadcast over positions. (Rows share their noise anyway.)"""
        wide = [
            axis
            for axis, (a, b) in enumerate(zip((1,) * (len(out) - len(shape)) + shape, out, strict=True))
            if a != b
        ]
        rows = next((axis for axis, size in enumerate(out) if size == self._rows), 0)
        return not {0, rows}.issuperset(wide)

    def _shared_weights(self, op: Op, index: int) -> _Leaves:
        """Noise of random weights that several outputs of a row share."""
        weight, out = self._shape[index], op.shapes[0]
        positions = math.prod(out) > self._rows * weight[0]
        size = math.prod(weight)
        return frozenset(leaf for leaf in self._noise[index] if positions or self._sizes[leaf] != size)

    def _overlaps(self, op: Op, index: int) -> bool:
        """Whether windows have elements in common."""
        name = canonical(op.func)
        if "pool" not in name:
            return False
        inputs, outputs = math.prod(self._shape[index]), math.prod(op.shapes[0])
        if name.startswith("adaptive"):
            return bool(inputs % outputs)
        kernel = named("input kernel_size", op.args, op.kwargs)[1]
        positions = int(name[-2])
        sizes = tuple(kernel) if isinstance(kernel, tuple | list) else (kernel,) * positions
        return bool(outputs * math.prod(sizes) > inputs)


def _repeats(op: Op) -> bool:
    """Whether an operation may copy an element to several places."""
    if canonical(op.func) != "getitem":
        return canonical(op.func) in names(moves="repeat")
    index = op.args[1] if isinstance(op.args[1], tuple) else (op.args[1],)
    return any(isinstance(part, list | Tensor) for part in index)


def _weight(op: Op) -> int | None:
    """The number of a map's weights, if these are random."""
    given: Any = named("input weight", op.args, op.kwargs)[1]
    return given.index if isinstance(given, Ref) and canonical(op.func) in names(product="layer") else None
