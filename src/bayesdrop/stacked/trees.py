"""Boosted trees as plain arrays.

The trees are grown by scikit-learn and held as arrays: nothing is pickled, and predictions do not need
scikit-learn. A few rows walk from the roots. For many, the leaves of a tree are numbered from left to right,
a bit each. A node whose threshold a row's value exceeds rules out the leaves to its left; of the leaves that
no node rules out, the first is the one that the row falls into. What all nodes of a tree that ask for one
column rule out depends on where a value lies among their thresholds: a table of masks, and one look-up a row.

Reference: Lucchese, Nardini, Orlando, Perego, Tonellotto & Venturini (2015), "QuickScorer".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.errors import must

__all__ = ["Array", "Places", "Trees", "joined_trees", "read_trees"]

Array = NDArray[np.float64]
Places = NDArray[np.int64]
#: the leaves of a tree from left to right, and its inner nodes, each with the leaves to its left as bits
_Walk = tuple[list[int], list[tuple[int, int]]]

#: rows times trees that are walked at a time
_CELLS = 2**17
#: rows from which on it pays to make masks of the leaves first
_MANY = 2000
#: leaves of a tree, at most: the bits of a mask
_BITS = 32
#: rows that are looked up together: what is held of them stays in a core's cache
_TOGETHER = 8192


@dataclass(frozen=True, eq=False)
class Trees:
    """Boosted regression trees: base + the sum over trees of the leaf that a row falls into.

    There are T trees for each of C outputs, M nodes in all. At an inner node a row goes left if its value is
    at most the threshold. A leaf points to itself, so that `depth` steps from a root always end at a leaf.

    Attributes:
        feature: (M,) the column that a node asks for; 0 at a leaf.
        threshold: (M,) of a node; 0 at a leaf.
        left: (M,) the node that rows go to which are not above the threshold.
        right: (M,) the node that the others go to.
        value: (M,) of a leaf; 0 elsewhere.
        roots: (T, C) the first node of every tree.
        base: (C,) what the sum over trees is added to.
        depth: steps from any root to any leaf, at most.
    """

    feature: Places
    threshold: Array
    left: Places
    right: Places
    value: Array
    roots: Places
    base: Array
    depth: int

    def __call__(self, x: Array) -> Array:
        """(N, K) columns to (N, C) scores: a number, or the log-odds of classes."""
        masks = _LeafMasks.of(self, x.shape[1]) if len(x) >= _MANY else None
        if masks is not None:
            return masks(x)
        made = np.empty((len(x), self.roots.shape[1]))
        rows = max(1, _CELLS // max(1, self.roots.size))
        for start in range(0, len(x), rows):
            # Tree after tree, so that the last bits do not depend on how many rows there are.
            total = self.leaves(x[start : start + rows]).cumsum(1)[:, -1:].sum(1)
            made[start : start + rows] = total + self.base
        return made

    def leaves(self, x: Array) -> Array:
        """(N, T, C) what every tree adds."""
        columns, count = x.shape[1], self.roots.size
        flat, children = np.ascontiguousarray(x).ravel(), np.stack([self.left, self.right], 1).ravel()
        at = np.tile(self.roots.ravel(), len(x))
        ended = at.copy()
        # Of every walk that is not at a leaf yet: its place among all, and where its row begins in `flat`.
        place = np.arange(len(at))
        row = np.repeat(np.arange(0, len(flat), columns), count)
        inner = self.left != np.arange(len(self.left))
        for _ in range(self.depth):
            above = flat.take(row + self.feature.take(at)) > self.threshold.take(at)
            below = children.take(2 * at + above)
            on = inner.take(below)
            ended[place] = below
            at, place, row = below[on], place[on], row[on]
            if not len(at):
                break
        return self.value[ended].reshape(len(x), *self.roots.shape)

    def first(self, count: int) -> Trees:
        """The first `count` trees of every output, without the nodes of the others."""
        roots = self.roots[:count]
        kept = np.zeros(len(self.feature), dtype=bool)
        at = roots.ravel()
        while len(at):
            kept[at] = True
            below = np.concatenate([self.left[at], self.right[at]])
            at = np.unique(below[~kept[below]])
        place = np.cumsum(kept) - 1
        return Trees(
            self.feature[kept], self.threshold[kept], place[self.left[kept]], place[self.right[kept]],
            self.value[kept], place[roots], self.base, min(self.depth, int(kept.sum())),
        )  # fmt: skip

    def as_dict(self) -> dict[str, NDArray[Any]]:
        """The arrays by name; `from_dict` is the way back."""
        return {
            "feature": self.feature, "threshold": self.threshold, "left": self.left, "right": self.right,
            "value": self.value, "roots": self.roots, "base": self.base, "depth": np.array(self.depth),
        }  # fmt: skip

    @staticmethod
    def from_dict(arrays: dict[str, NDArray[Any]], columns: int) -> Trees:
        """From the arrays of `as_dict`; a `ValueError` if these are no trees over so many columns.

        Args:
            arrays: by name.
            columns: K of the table.
        """
        numbers = {"threshold", "value", "base"}
        kinds = {name: np.float64 if name in numbers else np.int64 for name in Trees.__dataclass_fields__}
        if {name: array.dtype.type for name, array in arrays.items()} != kinds:
            raise ValueError(must("Trees", "arrays", f"{', '.join(kinds)}", sorted(arrays)))
        depth = arrays["depth"]
        nodes = arrays["feature"].shape
        roots = arrays["roots"]
        sound = (
            len(nodes) == 1
            and all(arrays[name].shape == nodes for name in ("threshold", "left", "right", "value"))
            and depth.shape == ()
            and int(depth) >= 0
            and roots.ndim == 2
            and arrays["base"].shape == roots.shape[1:]
            and _are_places(arrays["feature"], columns)
            and all(_are_places(arrays[name], nodes[0]) for name in ("left", "right", "roots"))
            and all(np.isfinite(arrays[name]).all() for name in numbers)
        )
        if not sound:
            raise ValueError(must("Trees", "arrays", f"those of trees over {columns} columns", nodes))
        rest = {name: array for name, array in arrays.items() if name != "depth"}
        # No walk has more steps than there are nodes; files may tell the depth of trees that were left out.
        return Trees(**rest, depth=min(int(depth), nodes[0]))


def _are_places(values: Places, count: int) -> bool:
    return bool(((values >= 0) & (values < count)).all())


def read_trees(model: Any) -> Trees:
    """The trees of a fitted boosting model of scikit-learn."""
    try:
        predictors, base = model._predictors, np.asarray(model._baseline_prediction, dtype=np.float64)
        nodes = [tree.nodes for stage in predictors for tree in stage]
        # What nodes do with missing values is not read: there are none.
        fields = [
            np.concatenate([part[name] for part in nodes])
            for name in ("feature_idx", "num_threshold", "left", "right", "value", "is_leaf", "depth")
        ]
    except (AttributeError, KeyError, ValueError) as error:
        raise RuntimeError(
            "boosted trees: this version of scikit-learn keeps its trees in a form that is not known. Use "
            "one from 1.5 to 1.9, or preset='quick', which has no trees."
        ) from error
    feature, threshold, left, right, value, is_leaf, depth = fields
    leaf = is_leaf.astype(bool)
    sizes = np.array([len(part) for part in nodes])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    offset = np.repeat(starts, sizes)
    here = np.arange(len(leaf))
    return Trees(
        feature=np.where(leaf, 0, feature).astype(np.int64),
        threshold=np.where(leaf, 0.0, threshold),
        left=np.where(leaf, here, left + offset).astype(np.int64),
        right=np.where(leaf, here, right + offset).astype(np.int64),
        value=np.where(leaf, value, 0.0),
        roots=starts.reshape(len(predictors), -1).astype(np.int64),
        base=base.ravel(),
        depth=int(depth.max(initial=0)),
    )


def joined_trees(parts: Sequence[Trees]) -> Trees:
    """Trees of several outputs, side by side."""
    if len(parts) == 1:
        return parts[0]
    sizes = np.cumsum([0, *(len(one.feature) for one in parts)])
    shifted = [(one, int(start)) for one, start in zip(parts, sizes, strict=False)]
    return Trees(
        feature=np.concatenate([one.feature for one in parts]),
        threshold=np.concatenate([one.threshold for one in parts]),
        left=np.concatenate([one.left + start for one, start in shifted]),
        right=np.concatenate([one.right + start for one, start in shifted]),
        value=np.concatenate([one.value for one in parts]),
        roots=np.concatenate([one.roots + start for one, start in shifted], 1),
        base=np.concatenate([one.base for one in parts]),
        depth=max(one.depth for one in parts),
    )


@dataclass(frozen=True, eq=False)
class _TreeMasks:
    """One tree: columns with their tables of masks, and the values of the leaves from left to right."""

    tables: list[tuple[int, NDArray[np.uint32]]]
    values: NDArray[np.float64]


class _LeafMasks:
    """Trees made ready for many rows; sums are those of walking from the roots, bit for bit.

    Args:
        trees: of at most 32 leaves each (see `of`).
        columns: K of the rows.
        walks: of every tree, from `_from_left`.
    """

    def __init__(self, trees: Trees, columns: int, walks: Sequence[Sequence[_Walk]]) -> None:
        inner = trees.left != np.arange(len(trees.left))
        self._cuts = [
            np.unique(trees.threshold[inner & (trees.feature == column)]) for column in range(columns)
        ]
        self._trees = [[self._tree(trees, walk) for walk in row] for row in walks]
        self._base = trees.base

    @classmethod
    def of(cls, trees: Trees, columns: int) -> _LeafMasks | None:
        """The masks of trees; None if one has more leaves than a mask has bits."""
        walks = [[_from_left(trees, int(root)) for root in roots] for roots in trees.roots]
        if any(len(leaves) > _BITS for row in walks for leaves, _ in row):
            return None
        return cls(trees, columns, walks)

    def _tree(self, trees: Trees, walk: _Walk) -> _TreeMasks:
        leaves, nodes = walk
        tables: dict[int, NDArray[np.uint32]] = {}
        for node, mask in nodes:
            column = int(trees.feature[node])
            cuts = self._cuts[column]
            table = tables.setdefault(column, np.zeros(len(cuts) + 1, dtype=np.uint32))
            table[np.searchsorted(cuts, trees.threshold[node]) + 1] |= np.uint32(mask)
        whole = [(column, np.bitwise_or.accumulate(table)) for column, table in tables.items()]
        return _TreeMasks(whole, trees.value[leaves])

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N, K) columns to (N, C): the base and the sum over trees."""
        made = np.empty((len(x), len(self._base)))
        for start in range(0, len(x), _TOGETHER):
            rows = x[start : start + _TOGETHER]
            # How many thresholds of its column a value is above; none if it is NaN.
            places = [
                np.where(np.isnan(values), 0, np.searchsorted(cuts, values))
                for cuts, values in zip(self._cuts, rows.T, strict=True)
            ]
            total = np.zeros((len(self._base), len(rows)))
            for trees in self._trees:
                for output, tree in enumerate(trees):
                    total[output] += tree.values.take(_first_left(tree, places, len(rows)))
            made[start : start + _TOGETHER] = total.T + self._base
        return made


def _first_left(tree: _TreeMasks, places: list[NDArray[np.int64]], rows: int) -> NDArray[np.int32]:
    """(rows,) the leaf of every row, counted from the left."""
    gone = np.zeros(rows, dtype=np.uint32)
    for column, table in tree.tables:
        gone |= table.take(places[column])
    left = ~gone
    # The lowest bit alone is a power of two, whose exponent a float holds exactly.
    left &= np.uint32(0) - left
    exponents: NDArray[np.int32] = (left.astype(np.float32).view(np.int32) >> 23) - 127
    return exponents


def _from_left(trees: Trees, root: int) -> _Walk:
    """The leaves of a tree from left to right; its nodes, each with the leaves to the left of it as bits."""
    leaves: list[int] = []
    nodes: list[tuple[int, int]] = []
    #: nodes whose left side is being walked, with the number of leaves before it
    waiting: list[tuple[int, int]] = []
    at = root
    # Bounded, since nodes of a damaged file may point in a circle.
    for _ in range(2 * len(trees.left)):
        if int(trees.left[at]) != at:
            waiting.append((at, len(leaves)))
            at = int(trees.left[at])
            continue
        leaves.append(at)
        if not waiting:
            break
        at, before = waiting.pop()
        nodes.append((at, (1 << len(leaves)) - (1 << before)))
        at = int(trees.right[at])
    return leaves, nodes
